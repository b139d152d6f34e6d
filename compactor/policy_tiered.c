/* Tiering: T runs of a level become one of the next, and nothing is ever merged for space. The least is written; old versions stay until the
 * runs that hold them meet, so up to T - 1 bottom runs may hold the same keys. */
#include "compactor/policy_parts.h"

struct policy_pick policy_tiered_next(const struct policy_options *options, const struct policy_run *runs, size_t count) {
  return policy_tier(options, runs, count);
}
