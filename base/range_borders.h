/*
 * The borders of a list of ranges, sorted and ranked: the first step of everything that cuts ranges at each other's borders.
 *
 * Invariants of a struct range_borders
 *   1. borders ascend strictly; begins[i] and ends[i] are the ranks of range i's borders, ends[i] = count where its end is open.
 *   2. All arrays are the scratch arena's; keys are borrowed from the ranges.
 *
 * Threads: pure functions.
 */
#ifndef TURB_BASE_RANGE_BORDERS_H
#define TURB_BASE_RANGE_BORDERS_H

#include "base/arena.h"
#include "base/range_deletes.h"

#define RANGE_BORDERS_MAX (UINT32_C(1) << 30) /* ranges in a list */

struct range_border {
  uint64_t prefix; /* of the key, for quick comparison */
  turb_bytes key;
  uint32_t range; /* one that it borders */
  bool is_end;
};

struct range_borders {
  struct range_border *borders;
  uint32_t count;
  uint32_t *begins, *ends;
};

/* Sorts by (prefix, key) and returns the array of the two that has the result. */
struct range_border *range_borders_sort(struct range_border *from, struct range_border *to, size_t count);

/* count is 1 to RANGE_BORDERS_MAX; no range is empty. False: scratch->failure says why. */
__attribute__((warn_unused_result)) bool range_borders_rank(const struct range_delete *const *ranges, uint32_t count, struct arena *scratch,
                                                            struct range_borders *borders);

#endif
