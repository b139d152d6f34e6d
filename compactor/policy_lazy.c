/* Lazy levelling: the upper runs are tiered, the bottom is one run. The bottom is rewritten only when what lies above it is large beside it:
 * the space that old versions take is bounded by max_space_amplification_percent, at the price of one write of everything for each such
 * share that came above. */
#include "compactor/policy_parts.h"

/* Young databases, whose bottom is of few flushes, are left to the tiers: there the bound would rewrite everything again and again for
 * little space. */
static bool space_is_due(const struct policy_options *options, const struct policy_run *runs, size_t count) {
  const uint64_t bottom = runs[count - 1].bytes;
  if (bottom < options->unit_bytes * options->size_ratio / 2)
    return false;
  uint64_t upper = 0;
  for (size_t i = 0; i + 1 < count; i++)
    upper += runs[i].bytes;
  return upper / 100 > bottom / 100 * options->max_space_amplification_percent / 100;
}

struct policy_pick policy_lazy_next(const struct policy_options *options, const struct policy_run *runs, size_t count) {
  if (count < 2)
    return (struct policy_pick){0};
  bool any_busy = false;
  for (size_t i = 0; i < count; i++)
    any_busy |= runs[i].busy;
  if (!any_busy && space_is_due(options, runs, count))
    return policy_stretch(POLICY_SPACE, 0, count, count);
  return policy_tier(options, runs, count);
}
