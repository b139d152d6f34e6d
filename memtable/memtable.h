/* memtable: the newest entries of a collection, in memory, sorted.
 *
 * Entries lie in 4 KiB pages of the form of base/slot.h (in order of arrival; a page's slot_count is not meaningful to readers), so that a slot pointer is all a cursor needs. A skip list orders
 * them by (key ascending, sequence descending). Rows lie in contiguous chunks of MEMTABLE_CHUNK_ROWS at a fixed stride, attributes and range deletes beside.
 *
 * Invariants
 *  1. One writer at a time (the caller's affair); any number of readers without locks: an entry is published by a release store of its links after all
 *     its bytes are written.
 *  2. Nothing is freed or moved before memtable_release drops the last reference.
 *  3. All memory is charged to BUDGET_MEMTABLE before it is taken.
 *  4. Rows are numbered in order of arrival; memtable_rows() rows are readable (release/acquire).
 */
#ifndef TURB_MEMTABLE_MEMTABLE_H
#define TURB_MEMTABLE_MEMTABLE_H

#include <stdbool.h>

#include "base/budget.h"
#include "base/slot.h"
#include "base/status.h"

#define MEMTABLE_CHUNK_ROWS 512u

struct memtable;

struct memtable_options {
  const turb_allocator *allocator;
  struct budget *budget;
  uint32_t row_bytes;
  uint32_t stride; /* of rows in chunks */
};
TURB_MUST_CHECK turb_status memtable_create(const struct memtable_options *options, struct memtable **memtable, turb_error *err);
struct memtable *memtable_retain(struct memtable *memtable);
void memtable_release(struct memtable *memtable);

/* Writer only. BUDGET or NO_MEMORY leave the memtable as it was. `row_hash` and `attribute_hash` as in docs/format.md 2. */
TURB_MUST_CHECK turb_status memtable_put(struct memtable *memtable, turb_bytes key, uint64_t sequence, const void *row, uint64_t row_hash,
                                         turb_bytes attributes, uint32_t attribute_hash, turb_error *err);
TURB_MUST_CHECK turb_status memtable_delete(struct memtable *memtable, turb_bytes key, uint64_t sequence, turb_error *err);
TURB_MUST_CHECK turb_status memtable_delete_range(struct memtable *memtable, turb_bytes begin, turb_bytes end /* size 0: open */, uint64_t sequence,
                                                  turb_error *err);
/* Takes from the budget what the next `bytes` of entries may need, so that a batch cannot fail half way: after OK, puts of up to that many bytes (as counted by
 * memtable_need) succeed. */
TURB_MUST_CHECK turb_status memtable_reserve(struct memtable *memtable, size_t entries, size_t bytes, turb_error *err);

/* Any thread. */
uint64_t memtable_bytes(const struct memtable *memtable); /* charged */
uint64_t memtable_entries(const struct memtable *memtable);
uint64_t memtable_range_delete_count(const struct memtable *memtable);
uint64_t memtable_rows(const struct memtable *memtable);
uint64_t memtable_first_sequence(const struct memtable *memtable), memtable_last_sequence(const struct memtable *memtable); /* 0 when empty */

/* The row of a put, and its attributes. */
const void *memtable_row(const struct memtable *memtable, uint64_t row);
const void *memtable_attributes(const struct memtable *memtable, const struct slot *slot);
/* The newest version of key at or below sequence, or NULL. */
const struct slot *memtable_get(const struct memtable *memtable, turb_bytes key, uint64_t sequence);
/* The highest sequence <= snapshot of a range delete covering key, or 0. */
uint64_t memtable_range_cover(const struct memtable *memtable, turb_bytes key, uint64_t snapshot);
/* All range deletes with sequence <= snapshot as sorted, disjoint fragments, in memory of the caller's arena. */
struct arena;
TURB_MUST_CHECK turb_status memtable_range_deletes(const struct memtable *memtable, uint64_t snapshot, struct arena *arena,
                                                   struct range_deletes *deletes, turb_error *err);
/* Slot of a row number (for scans over chunks): row_slots[row] in order of arrival. */
const struct slot *memtable_row_slot(const struct memtable *memtable, uint64_t row);

/* Position in the skip list: a node. NULL is the end on either side. */
struct memtable_node;
const struct memtable_node *memtable_first(const struct memtable *memtable);
const struct memtable_node *memtable_last(const struct memtable *memtable);
const struct memtable_node *memtable_next(const struct memtable_node *node);
/* The last node before `node`'s entry (searches). */
const struct memtable_node *memtable_previous(const struct memtable *memtable, const struct memtable_node *node);
/* First node not before (key, sequence) in entry order; last node before it. */
const struct memtable_node *memtable_lower_bound(const struct memtable *memtable, turb_bytes key, uint64_t sequence);
const struct memtable_node *memtable_before(const struct memtable *memtable, turb_bytes key, uint64_t sequence);
const struct slot *memtable_node_slot(const struct memtable_node *node);

#endif
