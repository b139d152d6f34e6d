/*
 * Tables for tests: a disk (simulated), a made-up sequence of entries, writing it, and a checker that reads the file's bytes with the codec alone and
 * compares all of it with what was written.
 *
 * Memory of the writer comes from `allocator` (counting, failing) and is charged to `budget`; the system has an allocator of its own.
 */
#ifndef TURB_TESTS_SSTABLE_WRITTEN_H
#define TURB_TESTS_SSTABLE_WRITTEN_H

#include "sstable/codec.h"
#include "sstable/writer.h"
#include "tests/support/allocator.h"
#include "tests/support/test.h"

struct written_disk {
  turb_simulation *simulation;
  struct io_system *system;
  struct test_allocator allocator, system_allocator;
  struct budget budget;
  struct table_env env;
};
void written_disk_open(struct written_disk *disk, uint64_t seed);
/* The real disk; false, with a line on standard error, where this machine forbids the backend. */
bool written_disk_open_real(struct written_disk *disk, turb_backend backend, bool buffered);
/* Checks that nothing leaked and nothing is charged. */
void written_disk_close(struct written_disk *disk);
bool written_disk_has(struct written_disk *disk, const char *path);

struct written_entry {
  turb_bytes key;
  uint64_t sequence;
  enum slot_kind kind;
  const uint8_t *row; /* row_bytes */
  turb_bytes attributes;
};

struct written_set {
  struct table_shape shape;
  struct written_entry *entries;
  size_t count;
  const struct range_fragment *ranges;
  size_t range_count;
  bool bulk;
};
/* How random sets look. */
struct written_wish {
  uint32_t dimension;
  turb_type type;
  uint8_t compression;
  size_t entries;
  size_t key_min, key_max;
  size_t attribute_max; /* 0: none */
  unsigned versions;    /* of a key, at most */
  unsigned deletes_percent;
  bool bulk;
};
/* Entries in order, from a seed; freed by written_set_free. */
struct written_set written_set_make(const struct written_wish *wish, uint64_t seed);
void written_set_free(struct written_set *set);

/* The slot of an entry, in a page of its own (static; good until the next call). */
const struct slot *written_slot(const struct written_entry *entry, uint32_t row_bytes);

/* Writes the set; destroys the writer in any case. attribute_part: attributes above it are appended in parts of that size (0: never). */
turb_status written_write(struct written_disk *disk, const char *path, const struct written_set *set, size_t attribute_part,
                          struct table_record *record, turb_error *err);
/* The file's bytes (malloc). */
uint8_t *written_read(struct written_disk *disk, const char *path, size_t *size);
/* Walks the file and compares it with the set and the record. */
void written_check(const uint8_t *file, size_t size, const struct written_set *set, const struct table_record *record);

#endif
