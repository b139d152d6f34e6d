/* Trees of cursors of every kind over one small ground on the simulated disk: a run of three tables, one table and a memtable, whose keys lie
 * between each other, with the entries that each tree must yield. For tests that need the same tree again and again.
 *
 * Threads: one.
 */
#ifndef TURB_TESTS_ITERATORS_GROUND_H
#define TURB_TESTS_ITERATORS_GROUND_H

#include "base/arena.h"
#include "tests/iterators/cursor_world.h"
#include "tests/support/allocator.h"

enum tree_kind {
  TREE_TABLE,
  TREE_STREAM,
  TREE_CONCAT,
  TREE_CONCAT_STREAM,
  TREE_MERGE_TWO,
  TREE_MERGE,
  TREE_MERGE_STREAM,
  TREE_BOUNDED,
  TREE_VISIBLE,
  TREE_VISIBLE_BOUNDED,
  TREE_FILTERED, /* visible, by a caller's filter that wants one key of three or so */
  TREE_KINDS
};

struct ground {
  struct world world;
  struct test_allocator allocator; /* of cursors and loads */
  struct world_list lists[3];      /* of the run, the table, the memtable */
  struct run_view runs[2];
  struct memtable *memtable;
  struct source memtable_source;
  struct key_bounds bounds;
  uint64_t snapshot;
  struct arena arena;
  struct range_deletes range_deletes;
};

void ground_begin(struct ground *ground, uint64_t seed);
void ground_end(struct ground *ground);

/* Every page that is needed from here on is read again. */
void ground_chill(struct ground *ground);

/* A FRESH tree. */
struct cursor *ground_open(struct ground *ground, enum tree_kind kind);
/* What it must yield. Release: world_list_free. */
struct world_list ground_expected(const struct ground *ground, enum tree_kind kind);
/* A tree that knows one version of a key: seeks name whole keys, with SLOT_SEQUENCE_MAX or 0. */
static inline bool tree_knows_whole_keys(enum tree_kind kind) {
  return kind == TREE_VISIBLE || kind == TREE_VISIBLE_BOUNDED || kind == TREE_FILTERED;
}

/* A key of 48 bytes, in the order of its number (below 1,000,000); some 45 fill a page. */
void ground_key(struct world_entry *entry, uint64_t number);

/* The first entry of the list not before (key, sequence). */
ptrdiff_t list_lower_bound(const struct world_list *list, turb_bytes key, uint64_t sequence);

/* All cursors are closed: what they left in flight ends, and neither memory nor budget is held beyond `before` (budget_used_for by use). */
void ground_check_empty(struct ground *ground, const uint64_t before[BUDGET_USES]);
void ground_note_budget(const struct ground *ground, uint64_t used[BUDGET_USES]);

#endif
