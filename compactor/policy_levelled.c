/* Full levelling: one run a level, each T times the one above. A run whose older neighbour is of its level or below is merged into it, and
 * when the result outgrows its level so that the next neighbour is reached too, that one goes along at once instead of being written twice.
 * The fewest runs to read, the least space, the most writing: about T / 2 times a level. */
#include "compactor/policy_parts.h"

struct policy_pick policy_levelled_next(const struct policy_options *options, const struct policy_run *runs, size_t count) {
  for (size_t first = 0; first + 1 < count; first++) {
    if (runs[first].busy)
      continue;
    uint64_t bytes = runs[first].bytes;
    size_t end = first + 1;
    while (end < count && !runs[end].busy && policy_level(options, bytes) >= policy_level(options, runs[end].bytes))
      bytes += runs[end++].bytes;
    if (end - first > 1)
      return policy_stretch(POLICY_LEVEL, first, end - first, count);
  }
  return (struct policy_pick){0};
}
