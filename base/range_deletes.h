/*
 * Range deletes as sorted, disjoint fragments: how the memtable, flush, merge and cursors hand them on.
 *
 * A range delete hides, in [begin, end), the entries older than its sequence number. Overlapping ones are cut at each other's borders, so
 * that each key lies in at most one fragment, which lists the sequence numbers that cover it.
 *
 * Invariants of a struct range_deletes
 *   1. Fragments ascend and do not overlap; none is empty; only the last may have an open end.
 *   2. A fragment's sequences descend strictly; there is at least one.
 *   3. Fragments that touch differ in their sequences (results of build, merge and drop; a clip or a table's list may break this one).
 *   4. Immutable once made.
 *
 * Memory: arrays come from the arena given. Key bytes, and where nothing was dropped sequences, are borrowed from the inputs;
 * range_deletes_copy cuts that tie. Scratch is taken with the arena's allocator and budget and released before the call returns. On
 * failure (TURB_BUDGET, TURB_NO_MEMORY) the result is empty.
 *
 * Threads: pure functions.
 */
#ifndef TURB_BASE_RANGE_DELETES_H
#define TURB_BASE_RANGE_DELETES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/key.h"
#include "base/status.h"
#include "turbidite/turbidite.h"

struct arena;

/* An end of size 0 is open. One with begin >= end covers nothing. */
struct range_delete {
  turb_bytes begin, end;
  uint64_t sequence;
};

/* [begin, end) hidden for entries older than each of `sequences` (highest first). An open end has end.data NULL and end.size 0. */
struct range_fragment {
  turb_bytes begin, end;
  uint32_t sequence_count;
  const uint64_t *sequences;
};

struct range_deletes {
  const struct range_fragment *fragments;
  size_t count;
};

/*
 * The snapshots that readers may hold, ascending; the newest state is always one more. Of the sequence numbers of a fragment that the
 * same snapshots see, only the highest matters, and only it is kept. Where a function takes a pointer to this, NULL keeps all.
 */
struct range_snapshots {
  const uint64_t *sequences;
  size_t count;
};

/* Whether the fragment ends above key. */
static inline bool range_fragment_ends_after(const struct range_fragment *fragment, turb_bytes key) {
  return fragment->end.size == 0 || key_compare(fragment->end.data, fragment->end.size, key.data, key.size) > 0;
}

/* The highest sequence <= snapshot of a fragment, or 0. */
uint64_t range_fragment_sequence(const struct range_fragment *fragment, uint64_t snapshot);

/* The first fragment that ends above key (it covers key when it begins at or below it); count when there is none. */
size_t range_deletes_find(const struct range_deletes *deletes, turb_bytes key);

/* The highest sequence <= snapshot of a fragment that covers key, or 0. An entry is hidden when its own sequence is lower. */
uint64_t range_deletes_cover(const struct range_deletes *deletes, turb_bytes key, uint64_t snapshot);

/* Fragments of any list, in any order. O(n log n) and what comes out. */
TURB_MUST_CHECK turb_status range_deletes_build(const struct range_delete *list, size_t count, const struct range_snapshots *snapshots,
                                                struct arena *arena, struct range_deletes *deletes, turb_error *err);

/* One set of several. */
TURB_MUST_CHECK turb_status range_deletes_merge(const struct range_deletes *const *sets, size_t set_count,
                                                const struct range_snapshots *snapshots, struct arena *arena, struct range_deletes *deletes,
                                                turb_error *err);

/* What lies in [lower, upper); an upper of size 0 is open. */
TURB_MUST_CHECK turb_status range_deletes_clip(const struct range_deletes *from, turb_bytes lower, turb_bytes upper, struct arena *arena,
                                               struct range_deletes *deletes, turb_error *err);

/*
 * Drops what no snapshot distinguishes, and every sequence at or below `through` (0: none; a merge that reaches the bottom passes its oldest
 * snapshot once nothing older is left to hide).
 */
TURB_MUST_CHECK turb_status range_deletes_drop(const struct range_deletes *from, const struct range_snapshots *snapshots, uint64_t through,
                                               struct arena *arena, struct range_deletes *deletes, turb_error *err);

/* A copy that borrows nothing. */
TURB_MUST_CHECK turb_status range_deletes_copy(const struct range_deletes *from, struct arena *arena, struct range_deletes *deletes,
                                               turb_error *err);

/* Whether invariants 1 and 2 hold; for what was read from a file, and for assertions. */
bool range_deletes_valid(const struct range_deletes *deletes);

#endif
