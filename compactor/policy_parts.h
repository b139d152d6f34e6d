/* compactor/policy_parts: what the policies share, and the policies one by one for policy_next. See policy.h. */
#ifndef TURB_COMPACTOR_POLICY_PARTS_H
#define TURB_COMPACTOR_POLICY_PARTS_H

#include "compactor/policy.h"

/* The level of a run of that size. */
uint32_t policy_level(const struct policy_options *options, uint64_t bytes);
/* A pick of runs [first, first + count) of `all`. */
struct policy_pick policy_stretch(enum policy_reason reason, size_t first, size_t count, size_t all);
/* The newest T or more neighbours that lie side by side at or below the level of the first, and with them those whose tier the result would
 * complete, instead of writing it twice; POLICY_NOTHING when there are none. */
struct policy_pick policy_tier(const struct policy_options *options, const struct policy_run *runs, size_t count);

struct policy_pick policy_lazy_next(const struct policy_options *options, const struct policy_run *runs, size_t count);
struct policy_pick policy_tiered_next(const struct policy_options *options, const struct policy_run *runs, size_t count);
struct policy_pick policy_levelled_next(const struct policy_options *options, const struct policy_run *runs, size_t count);
struct policy_pick policy_fifo_next(const struct policy_options *options, const struct policy_run *runs, size_t count);
uint64_t policy_fifo_next_drop_s(const struct policy_options *options, const struct policy_run *runs, size_t count);
uint32_t policy_fifo_runs_max(const struct policy_options *options);

#endif
