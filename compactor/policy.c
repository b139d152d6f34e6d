/* policy.h has the contract and the invariants. */
#include "compactor/policy.h"

#include "compactor/policy_parts.h"

/* ---- what the policies share ---- */

uint32_t policy_level(const struct policy_options *options, uint64_t bytes) {
  uint32_t level = 0;
  /* A run of T flushes is a little larger or smaller than T units: half a step of slack. */
  for (uint64_t bound = options->unit_bytes * options->size_ratio / 2; bytes > bound; level++) {
    if (bound > UINT64_MAX / options->size_ratio)
      break;
    bound *= options->size_ratio;
  }
  return level;
}

struct policy_pick policy_stretch(enum policy_reason reason, size_t first, size_t count, size_t all) {
  return (struct policy_pick){.reason = reason, .first = first, .count = count, .bottom = first + count == all};
}

/* How many runs from `first` on lie side by side at or below a level. */
static size_t count_at(const struct policy_options *options, const struct policy_run *runs, size_t first, size_t count, uint32_t level) {
  size_t n = 0;
  while (first + n < count && !runs[first + n].busy && policy_level(options, runs[first + n].bytes) <= level)
    n++;
  return n;
}

/* Where a tier of runs [first, end) ends when its result would be one of T runs of the next level, and so on. */
static size_t cascade(const struct policy_options *options, const struct policy_run *runs, size_t first, size_t end, size_t count) {
  uint64_t bytes = 0;
  for (size_t i = first;;) {
    for (; i < end; i++)
      bytes += runs[i].bytes;
    const size_t more = count_at(options, runs, end, count, policy_level(options, bytes));
    if (more + 1 < options->size_ratio)
      return end;
    end += more;
  }
}

struct policy_pick policy_tier(const struct policy_options *options, const struct policy_run *runs, size_t count) {
  for (size_t first = 0; first + options->size_ratio <= count; first++) {
    if (runs[first].busy)
      continue;
    const size_t n = count_at(options, runs, first, count, policy_level(options, runs[first].bytes));
    if (n < options->size_ratio)
      continue;
    const size_t end = cascade(options, runs, first, first + n, count);
    return policy_stretch(POLICY_TIER, first, end - first, count);
  }
  return (struct policy_pick){0};
}

/* ---- the interface ---- */

struct policy_pick policy_next(const struct policy_options *options, const struct policy_run *runs, size_t count) {
  switch (options->policy) {
  case TURB_COMPACTION_DEFAULT:
  case TURB_COMPACTION_LAZY_LEVELLING: return policy_lazy_next(options, runs, count);
  case TURB_COMPACTION_TIERED: return policy_tiered_next(options, runs, count);
  case TURB_COMPACTION_LEVELLED: return policy_levelled_next(options, runs, count);
  case TURB_COMPACTION_FIFO: return policy_fifo_next(options, runs, count);
  }
  return (struct policy_pick){0};
}

uint64_t policy_next_drop_s(const struct policy_options *options, const struct policy_run *runs, size_t count) {
  return options->policy == TURB_COMPACTION_FIFO ? policy_fifo_next_drop_s(options, runs, count) : UINT64_MAX;
}

uint32_t policy_runs_max(const struct policy_options *options) {
  if (options->policy == TURB_COMPACTION_FIFO)
    return policy_fifo_runs_max(options);
  return 4 * options->size_ratio + 64; /* levels of T - 1 runs each */
}

struct policy_pick policy_everything(const struct policy_run *runs, size_t count) {
  const struct policy_pick nothing = {0};
  for (size_t i = 0; i < count; i++)
    if (runs[i].busy)
      return nothing;
  return count < 2 ? nothing : policy_stretch(POLICY_REQUEST, 0, count, count);
}

struct policy_pick policy_narrow(struct policy_pick wide, const struct policy_run *runs, size_t count, size_t most) {
  if (wide.count <= most || policy_drops(wide.reason))
    return wide;
  uint64_t bytes = 0;
  for (size_t i = 0; i < most; i++)
    bytes += runs[wide.first + i].bytes;
  size_t first = wide.first;
  uint64_t least = bytes;
  for (size_t begin = wide.first + 1; begin + most <= wide.first + wide.count; begin++) {
    bytes += runs[begin + most - 1].bytes - runs[begin - 1].bytes;
    if (bytes <= least) {
      least = bytes;
      first = begin;
    }
  }
  return policy_stretch(wide.reason, first, most, count);
}
