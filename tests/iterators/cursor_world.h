/* Tables and memtables on the simulated disk, and what each cursor over them must yield: the ground of the contract suite. */
#ifndef TURB_TESTS_ITERATORS_CURSOR_WORLD_H
#define TURB_TESTS_ITERATORS_CURSOR_WORLD_H

#include "base/alloc.h"
#include "base/random.h"
#include "iterators/cursor.h"
#include "iterators/visible_cursor.h"
#include "sstable/writer.h"
#include "tests/support/test.h"

#define WORLD_DIMENSION   4
#define WORLD_ENTRIES_MAX 4000

struct world_entry {
  uint8_t key[64];
  uint16_t key_size;
  uint64_t sequence;
  enum slot_kind kind;
};

/* Entries in entry order. */
struct world_list {
  struct world_entry *entries;
  size_t count;
};

struct world {
  turb_simulation *simulation;
  struct budget budget;
  struct logger logger;
  struct io_system *system;
  struct cache *cache;
  struct table_env env;
  struct reads reads;
  struct cursor_context context;
  struct random_state {
    uint64_t value;
  } random;
  uint64_t next_file, next_sequence;
};

uint64_t world_random(struct world *world, uint64_t below);
void world_begin(struct world *world, uint64_t seed, uint64_t budget_bytes);
void world_end(struct world *world);

/* Random entries: keys of a small alphabet with a common prefix, several versions of some; sequence numbers are never used twice. */
struct world_list world_make(struct world *world, size_t count);
/* All of several lists, in entry order. */
struct world_list world_join(const struct world_list *lists, size_t count);
void world_list_free(struct world_list *list);

struct memtable *world_memtable(struct world *world, const struct world_list *list);
/* A run of `tables` tables; versions of one key stay together. Release: world_run_free. */
struct run_view world_run(struct world *world, const struct world_list *list, size_t tables, uint32_t number);
void world_run_free(struct run_view *run);

/* Everything in the cache is forgotten where it may be: not what shares memory with a pinned page. */
void world_chill(struct world *world);
/* Nothing of the run's tables is resident any more, whatever is pinned; what is not pinned is overwritten where it lies. */
void world_forget(struct world *world, struct run_view *run);

bool world_is(const struct slot *slot, const struct world_entry *entry);

#endif
