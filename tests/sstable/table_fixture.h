/* Tables for the tests of the reading half: an environment on one backend, entries that are a function of a seed, and their table. */
#ifndef TURB_TESTS_SSTABLE_TABLE_FIXTURE_H
#define TURB_TESTS_SSTABLE_TABLE_FIXTURE_H

#include "sstable/stream.h"
#include "sstable/writer.h"
#include "tests/support/allocator.h"
#include "tests/support/test.h"

struct environment {
  struct test_allocator allocator;
  struct budget budget;
  turb_simulation *simulation; /* NULL: the real disk */
  struct io_system *system;
  struct cache *cache;
  struct table_env env;
  const char *folder;
};

/* backend: TURB_BACKEND_SIMULATED (calm, or with everything reordered and cut short), _BLOCKING or _URING. False where this machine forbids io_uring. */
bool environment_open(struct environment *e, turb_backend backend, bool stormy, uint64_t budget_bytes);
/* Everything that was opened on it is closed. Checks that nothing is left. */
void environment_close(struct environment *e);
/* Another cache, empty; all tables are closed. */
void environment_drop_cache(struct environment *e);
const char *environment_path(const struct environment *e, const char *name);

struct entry {
  uint8_t *key;
  uint32_t key_size;
  uint64_t sequence;
  bool put;
  uint8_t *row;
  uint8_t *attributes;
  uint32_t attribute_size;
};

struct entries {
  struct table_shape shape;
  struct entry *at;
  uint32_t count, puts;
  uint64_t seed;
  bool bulk;
};

struct entries_options {
  uint32_t keys;      /* distinct ones */
  uint32_t dimension; /* 0: 8 */
  turb_type type;     /* 0: f32 */
  uint8_t compression;
  uint32_t versions; /* of a key at most; 0: 1 */
  uint32_t delete_percent;
  uint32_t attribute_percent;
  uint32_t attribute_bytes;  /* at most, mostly much less; 0: 100 */
  uint32_t key_bytes;        /* at most, random; 0: 16 bytes each, "key" and 13 digits, of even numbers */
  uint32_t long_key_percent; /* keys near 4,096 bytes */
  bool bulk;
  bool spiky; /* one key with 500 versions in the middle */
};

void entries_make(struct entries *entries, const struct entries_options *options, uint64_t seed);
void entries_free(struct entries *entries);
/* The newest version of key at or below sequence; its index, or -1. */
int64_t entries_find(const struct entries *entries, const void *key, size_t size, uint64_t sequence);
/* Numbers of the put entries, in order: row -> entry. Freed by the caller (free). */
uint32_t *entries_rows(const struct entries *entries);
uint64_t entry_hash_of_row(const struct entries *entries, const struct entry *entry);

/* Record with key bytes of its own. */
struct stored_record {
  struct table_record record;
  uint8_t lower[4200], upper[4200];
};

/* Writes the table; tables of bulk entries get bulk sequence 77 in the record. */
void entries_write(struct environment *e, const struct entries *entries, const char *name, struct stored_record *record);
struct table *entries_open(struct environment *e, const char *name, const struct stored_record *record);
/* Both, under a name made of the entries' seed. */
struct table *entries_table(struct environment *e, const struct entries *entries, struct stored_record *record);

/* A load brought to its end. */
enum load_state await_load(struct reads *reads, struct load *load, enum load_state state);
/* A look-up brought to its end. */
enum get_state await_get(struct table_get *get, enum get_state state);
/* A piece of a lane; false at its end. Fails the test on an error unless `wanted` is given: then LOAD_FAILED is noted there. */
bool await_piece(struct reads *reads, struct lane *lane, struct piece *piece, turb_error *failure);

#endif
