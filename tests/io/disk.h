/*
 * A system on each backend for the tests of io/: the same body runs on all of them.
 *
 * The real backends work in the test's own folder, the simulated one in a folder on a fresh disk, once calm and once with everything reordered and
 * cut short. Every disk has a counting allocator and a budget; disk_close checks that both are empty and that no descriptor was left open.
 */
#ifndef TURB_TESTS_IO_DISK_H
#define TURB_TESTS_IO_DISK_H

#include "io/buffer.h"
#include "io/io.h"
#include "tests/support/allocator.h"
#include "tests/support/test.h"

enum disk_kind { DISK_URING, DISK_BLOCKING, DISK_CALM, DISK_STORMY, DISK_KINDS };

struct disk {
  enum disk_kind kind;
  struct io_system *system;
  turb_simulation *simulation; /* NULL on the real ones */
  struct test_allocator allocator;
  struct budget budget;
  const char *folder;
  int descriptors; /* open before */
};

const char *disk_name(enum disk_kind kind);

/* False, with a line on standard error, where this machine forbids io_uring. Options may be NULL; backend, simulation, allocator and budget are
 * filled in. */
bool disk_open(struct disk *disk, enum disk_kind kind, const struct io_system_options *options);
void disk_close(struct disk *disk);
/* Runs body on every kind of disk. */
void disk_each(void (*body)(struct disk *disk));

/* folder/name, as test_path. */
const char *disk_path(const struct disk *disk, const char *name);
struct io_file *disk_file(const struct disk *disk, const char *name, unsigned flags);
int disk_count_descriptors(void);

/* Bytes that tell where they belong. */
void disk_fill(void *data, size_t size, uint64_t seed);
uint8_t *disk_buffer(const struct disk *disk, size_t size);
void disk_buffer_free(const struct disk *disk, uint8_t *buffer, size_t size);

/* An operation that counts its completions and checks that it has one at most. */
struct tracked {
  struct io_op op;
  unsigned completions;
  struct io_ring *ring;
};
void tracked_complete(struct io_op *op);
struct tracked tracked_transfer(enum io_op_kind kind, struct io_file *file, void *data, uint32_t size, uint64_t offset);
struct tracked tracked_sync(struct io_file *file);
void tracked_queue(struct io_ring *ring, struct tracked *tracked);
void tracked_wait(struct io_ring *ring, struct tracked *tracked);

#endif
