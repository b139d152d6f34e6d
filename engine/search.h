/* engine/search: exact nearest neighbours: one pass over the rows of a view, for one query or many.
 *
 *   search_open -> search_scan -> search_finish (answers become results) -> search_close
 *
 *   search.c         the public calls; opening and closing
 *   search_scan.c    which rows, and how they come: memtables, resident frames, lanes; distances
 *   search_check.c   a row that is near enough: its key, and whether the view sees it
 *   search_heap.c    the best k of a query so far
 *   search_result.c  the answers: hits, their vectors and attributes
 *
 * Rows are scanned without a look at their keys. A row at or below a query's threshold is a candidate, and is checked at once: its slot is
 * found by its row number, then it must be the newest
 * version at the view's sequence (nothing for its key in a newer memtable or run, none before it in its own table) and not range-deleted;
 * only then
 * the filter is asked and the heap takes it. About k ln(rows / k) rows are checked, and the threshold is exact at every moment, so that
 * hidden rows cost no answers.
 *
 * A check that needs a read waits while the scan goes on; SEARCH_CHECKS of them may. All reads of a search share one ring.
 *
 * Invariants
 *  1. A heap holds visible entries only, each key at most once, in the order (distance, key): the k first of all that were checked.
 *  2. A row that was neither above its query's threshold nor checked is in `waiting`; search_scan returns when that is empty.
 *  3. All memory that grows with k, the queries or the rows in flight is charged to BUDGET_SEARCH.
 * Threads: one, the caller's.
 */
#ifndef TURB_ENGINE_SEARCH_H
#define TURB_ENGINE_SEARCH_H

#include "engine/db.h"
#include "index/kernels/kernels.h"
#include "sstable/table_row.h"

#define SEARCH_MAX_K      (1u << 20)
#define SEARCH_CHECKS     64u
#define SEARCH_DISTANCES  (64u << 10) /* floats of the buffer of distances */
#define SEARCH_BLOCK      256u        /* queries that are worked on together */
#define SEARCH_CHUNK_ROWS 4096u       /* rows that are worked on together, at most */

struct search_memory {
  const turb_allocator *allocator;
  struct budget *budget;
};
/* Charged to BUDGET_SEARCH, aligned to 64. */
TURB_MUST_CHECK turb_status search_take(const struct search_memory *memory, size_t bytes, void **taken, turb_error *err);
void search_give(const struct search_memory *memory, void *taken, size_t bytes); /* NULL ok */

/* ---- heap ---- */

struct search_found { /* a visible entry */
  const struct source *source;
  turb_bytes key; /* in a heap: data is NULL, key_at tells */
  uint64_t key_at;
  uint64_t sequence, row, row_hash, attribute_offset; /* memtable: the address of its attributes */
  uint32_t attribute_size, attribute_hash;
};

struct search_heap_item {
  float distance;
  uint32_t found;
};

struct search_heap {
  struct search_heap_item *items; /* the worst first; after search_heap_sort ascending */
  struct search_found *found;     /* [capacity] */
  uint32_t count, capacity, k;
  float threshold; /* a row above it does not enter */
  uint8_t *keys;
  size_t key_capacity, key_end, key_live; /* bytes; end - live: of entries that left */
  uint64_t hidden, filtered;
};

void search_heap_init(struct search_heap *heap, uint32_t k, float limit);
void search_heap_free(struct search_heap *heap, const struct search_memory *memory);
/* Would (distance, key) enter? */
bool search_heap_wants(const struct search_heap *heap, float distance, turb_bytes key);
/* It does. On failure the heap is as it was. */
TURB_MUST_CHECK turb_status search_heap_put(struct search_heap *heap, const struct search_memory *memory, float distance,
                                            const struct search_found *found, turb_error *err);
void search_heap_sort(struct search_heap *heap);
static inline turb_bytes search_heap_key(const struct search_heap *heap, const struct search_found *found) {
  return (turb_bytes){heap->keys + found->key_at, found->key.size};
}

/* ---- checks ---- */

enum search_stage { SEARCH_IDLE, SEARCH_ROW, SEARCH_OWN_TABLE, SEARCH_RUNS, SEARCH_IN_RUN, SEARCH_DECIDED };

struct search_check {
  enum search_stage stage;
  const struct source *source;
  uint64_t row;
  uint32_t run; /* the next newer one to look into */
  bool visible;
  bool hashed;
  uint64_t hash;
  const struct slot *slot;
  struct table_row_find find;
  struct table_get get;
};

struct search_waiting { /* a candidate whose row is being checked */
  uint16_t check;
  uint32_t query;
  float distance;
};

struct search {
  turb_db *db;
  turb_collection *collection;
  struct read_view view;
  struct search_memory memory;
  struct reads reads;
  turb_search_options options; /* checked, defaults filled in; its bytes are the caller's */
  struct key_bounds bounds;
  uint8_t *bound_scratch;
  /* queries */
  uint32_t query_count;
  struct kernel_query *queries;
  const struct kernel_query **query_pointers;
  void *query_scratch;
  size_t query_scratch_bytes;
  struct search_heap *heaps;
  float *distances; /* SEARCH_DISTANCES */
  uint32_t chunk_rows;
  /* checks */
  struct search_check *checks; /* SEARCH_CHECKS */
  uint16_t idle[SEARCH_CHECKS], busy[SEARCH_CHECKS];
  uint32_t idle_count, busy_count;
  struct search_waiting *waiting;
  uint32_t waiting_count, waiting_capacity;
  /* costs, alike for all queries */
  uint64_t rows, rows_streamed;
};

TURB_MUST_CHECK turb_status search_checks_open(struct search *search, turb_error *err);
void search_checks_close(struct search *search);
/* A row at or below the threshold of its query. */
TURB_MUST_CHECK turb_status search_checks_add(struct search *search, const struct source *source, uint64_t row, uint32_t query,
                                              float distance, turb_error *err);
/* Goes on with those that wait, without waiting; hands new reads to the kernel. */
TURB_MUST_CHECK turb_status search_checks_poll(struct search *search, turb_error *err);
/* Waits until all are decided. */
TURB_MUST_CHECK turb_status search_checks_drain(struct search *search, turb_error *err);

/* ---- scan, results ---- */

TURB_MUST_CHECK turb_status search_scan(struct search *search, turb_error *err);
/* The answer of one query, with the parts asked for. */
TURB_MUST_CHECK turb_status search_result_make(struct search *search, uint32_t query, turb_result **result, turb_error *err);

#endif
