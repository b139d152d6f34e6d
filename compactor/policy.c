/* policy.h has the contract, the states and the invariants. */
#include "compactor/policy.h"

/* The level of a run: 0 up to T units, 1 up to T^2, ... */
static uint32_t level_of(const struct policy_options *options, uint64_t bytes) {
  uint32_t level = 0;
  /* A run of T flushes is a little larger or smaller than T units: half a step of slack. */
  for (uint64_t bound = options->unit_bytes * options->size_ratio / 2; bytes > bound && level < 20; level++) {
    if (bound > UINT64_MAX / options->size_ratio)
      break;
    bound *= options->size_ratio;
  }
  return level;
}

static struct policy_pick pick(enum policy_reason reason, size_t first, size_t count, size_t all) {
  return (struct policy_pick){.reason = reason, .first = first, .count = count, .bottom = first + count == all};
}

/* The upper runs together are large beside the bottom. Young databases, whose bottom is of few flushes, are left to the tiers: there the
 * bound would rewrite everything again
 * and again for little space. */
static bool space_is_due(const struct policy_options *options, const struct policy_run *runs, size_t count) {
  const uint64_t bottom = runs[count - 1].bytes;
  if (bottom < options->unit_bytes * options->size_ratio / 2)
    return false;
  uint64_t upper = 0;
  for (size_t i = 0; i + 1 < count; i++)
    upper += runs[i].bytes;
  return upper / 100 > bottom / 100 * options->max_space_amplification_percent / 100;
}

struct policy_pick policy_next(const struct policy_options *options, const struct policy_run *runs, size_t count) {
  const struct policy_pick nothing = {0};
  if (count < 2)
    return nothing;
  bool any_busy = false;
  for (size_t i = 0; i < count; i++)
    any_busy |= runs[i].busy;
  if (!any_busy && space_is_due(options, runs, count))
    return pick(POLICY_SPACE, 0, count, count);
  /* The newest T neighbours of one level; a smaller run between them goes along. */
  for (size_t first = 0; first + 1 < count; first++) {
    if (runs[first].busy)
      continue;
    uint32_t level = level_of(options, runs[first].bytes);
    size_t n = 1;
    while (first + n < count && !runs[first + n].busy && level_of(options, runs[first + n].bytes) <= level)
      n++;
    if (n >= options->size_ratio)
      return pick(POLICY_TIER, first, n, count);
  }
  return nothing;
}

struct policy_pick policy_everything(const struct policy_run *runs, size_t count) {
  const struct policy_pick nothing = {0};
  for (size_t i = 0; i < count; i++)
    if (runs[i].busy)
      return nothing;
  return count < 2 ? nothing : pick(POLICY_REQUEST, 0, count, count);
}

struct policy_pick policy_narrow(struct policy_pick wide, const struct policy_run *runs, size_t count, size_t most) {
  if (wide.count <= most)
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
  return pick(wide.reason, first, most, count);
}
