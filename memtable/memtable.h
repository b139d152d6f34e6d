/*
 * The memtable: the newest entries of a collection, in memory, sorted.
 *
 * Entries lie in pages of the form of base/slot.h, in order of arrival (a page's slot_count is not meaningful to readers), so that a slot
 * pointer is all a cursor needs:
 *
 *   page header | slot | slot | ... ->        free        <- ... | node, key | node, key
 *
 * A page is one 4 KiB unit, or two when it was opened for a key that does not fit one; its slots lie in the first. Beside each key is the
 * entry's node in the list that orders entries by (key ascending, sequence descending), and a tree finds places in that list (index.h).
 * Rows lie in contiguous chunks at a fixed stride (rows.h). Attributes lie in the same chunk of memory as the page of their entry (where
 * that chunk is full, a new page is opened in the next), and the page's base_attribute is the chunk's address: so slot_attribute_offset
 * is the address of the attributes. Range deletes are kept beside (ranges.h).
 *
 * Invariants
 *   1. One writer at a time (the caller's affair); any number of readers without locks: an entry is published by a release store of its
 *      links after all its bytes are written.
 *   2. Nothing is freed or moved before memtable_release drops the last reference.
 *   3. All memory is charged to BUDGET_MEMTABLE before it is taken.
 *   4. Rows are numbered in order of arrival; memtable_rows() rows are readable (release/acquire). A row becomes readable after its entry
 *      is in the order.
 *   5. No two entries have both key and sequence in common (the caller's affair).
 */
#ifndef TURB_MEMTABLE_MEMTABLE_H
#define TURB_MEMTABLE_MEMTABLE_H

#include <stdbool.h>

#include "base/budget.h"
#include "base/slot.h"
#include "base/status.h"

/*
 * No contiguous run of rows crosses a multiple of this. The first 512 rows lie in several runs, and so do rows above 2 KiB
 * (memtable_row_run).
 */
#define MEMTABLE_CHUNK_ROWS 512u

struct memtable;
struct memtable_pool;

struct memtable_options {
  const turb_allocator *allocator; /* copied */
  struct budget *budget;           /* outlives the memtable */
  struct memtable_pool *pool;      /* where chunks come from and go to (pool.h), with the same allocator and budget; or NULL */
  uint32_t row_bytes;
  uint32_t stride; /* of rows in chunks: row_bytes or more; the bytes between are undefined */
};
/* Takes about 1 KiB; the first entry takes about 12 KiB and its row. */
TURB_MUST_CHECK turb_status memtable_create(const struct memtable_options *options, struct memtable **memtable, turb_error *err);
struct memtable *memtable_retain(struct memtable *memtable);
void memtable_release(struct memtable *memtable); /* NULL ok */

/*
 * Writer only. BUDGET or NO_MEMORY leave the entries as they were. `row_hash` and `attribute_hash` as in docs/format.md 2. Keys have 1
 * to 4,096 bytes, attributes up to 16 MiB, sequences are 1 to SLOT_SEQUENCE_MAX (asserted).
 */
TURB_MUST_CHECK turb_status memtable_put(struct memtable *memtable, turb_bytes key, uint64_t sequence, const void *row, uint64_t row_hash,
                                         turb_bytes attributes, uint32_t attribute_hash, turb_error *err);
TURB_MUST_CHECK turb_status memtable_delete(struct memtable *memtable, turb_bytes key, uint64_t sequence, turb_error *err);
/* A range with begin >= end is legal and hides nothing. */
TURB_MUST_CHECK turb_status memtable_delete_range(struct memtable *memtable, turb_bytes begin, turb_bytes end /* size 0: open */,
                                                  uint64_t sequence, turb_error *err);

/*
 * Takes from the budget what the next `bytes` of entries may need, so that a batch cannot fail half way: after OK, the next calls of
 * put, delete and delete_range succeed, as long as they are at most `entries` and their memtable_need adds up to at most `bytes`.
 * Rows are counted by `entries` and not by their bytes. What is not used stays for later entries; calling again does not add to it.
 */
TURB_MUST_CHECK turb_status memtable_reserve(struct memtable *memtable, size_t entries, size_t bytes, turb_error *err);

/*
 * What an entry counts in memtable_reserve (of a range delete: key_size is that of begin and end together): twice its slot, node and
 * key, since the end of a page may stay unused where the next entry does not fit, and its attributes.
 */
static inline size_t memtable_need(size_t key_size, size_t attribute_size) {
  return 2 * (sizeof(struct slot) + key_size) + 256 + attribute_size;
}

/* Any thread. */
uint64_t memtable_bytes(const struct memtable *memtable); /* charged */
uint64_t memtable_entries(const struct memtable *memtable);
uint64_t memtable_range_delete_count(const struct memtable *memtable);
uint64_t memtable_rows(const struct memtable *memtable);
/* The smallest and the largest sequence of entries and range deletes; 0 when empty. */
uint64_t memtable_first_sequence(const struct memtable *memtable);
uint64_t memtable_last_sequence(const struct memtable *memtable);

/* The row of a put, and its attributes. */
const void *memtable_row(const struct memtable *memtable, uint64_t row);
const void *memtable_attributes(const struct memtable *memtable, const struct slot *slot);
/* Rows side by side from `row` (below memtable_rows) on: *count of them, at the stride, at most up to memtable_rows as it was read. */
const void *memtable_row_run(const struct memtable *memtable, uint64_t row, uint64_t *count);
/* The newest version of key at or below sequence, or NULL. */
const struct slot *memtable_get(const struct memtable *memtable, turb_bytes key, uint64_t sequence);
/* The highest sequence <= snapshot of a range delete covering key, or 0. */
uint64_t memtable_range_cover(const struct memtable *memtable, turb_bytes key, uint64_t snapshot);
/*
 * The range deletes with sequence <= snapshot as sorted, disjoint fragments, with all their sequences; arrays in the arena, key bytes
 * the memtable's. Deeply nested range deletes take the square of their number here: prefer the second form where snapshots are
 * known.
 */
struct arena;
TURB_MUST_CHECK turb_status memtable_range_deletes(const struct memtable *memtable, uint64_t snapshot, struct arena *arena,
                                                   struct range_deletes *deletes, turb_error *err);
/* The same without what the snapshots do not tell apart; a reader at `snapshot` passes none (count 0) and gets one sequence a fragment. */
TURB_MUST_CHECK turb_status memtable_range_deletes_seen(const struct memtable *memtable, uint64_t snapshot,
                                                        const struct range_snapshots *snapshots, struct arena *arena,
                                                        struct range_deletes *deletes, turb_error *err);
/* Slot of a row number below memtable_rows (for scans over chunks): in order of arrival. */
const struct slot *memtable_row_slot(const struct memtable *memtable, uint64_t row);

/* Position in the order: a node. NULL is the end on either side. What is inserted meanwhile may or may not be met. */
struct memtable_node;
const struct memtable_node *memtable_first(const struct memtable *memtable);
const struct memtable_node *memtable_last(const struct memtable *memtable);
const struct memtable_node *memtable_next(const struct memtable_node *node);
/* The last node before `node` (no search: nodes are linked both ways). */
const struct memtable_node *memtable_previous(const struct memtable *memtable, const struct memtable_node *node);
/* First node not before (key, sequence) in entry order; last node before it. */
const struct memtable_node *memtable_lower_bound(const struct memtable *memtable, turb_bytes key, uint64_t sequence);
const struct memtable_node *memtable_before(const struct memtable *memtable, turb_bytes key, uint64_t sequence);
const struct slot *memtable_node_slot(const struct memtable_node *node);

/* Whether order, tree and links are consistent; for tests and assertions, by the writer. */
bool memtable_valid(const struct memtable *memtable);

#endif
