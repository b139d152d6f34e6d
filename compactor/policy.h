/* compactor/policy: which runs are merged next, and why. Pure: it sees sizes, no files, so that it can be driven without I/O.
 *
 * Lazy levelling: runs above the bottom are tiered. A run belongs to the level log_T(bytes / unit); when the newest T runs that lie side
 * by side are of one level (or lower), they become one
 * run of the next. The bottom run is rewritten only when what lies above it is large beside it.
 *
 * Invariant: a pick is a stretch of neighbours in age, so that runs keep disjoint ranges of sequence numbers.
 */
#ifndef TURB_COMPACTOR_POLICY_H
#define TURB_COMPACTOR_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct policy_run { /* newest first */
  uint64_t bytes;
  uint64_t entries;
  bool busy; /* input of a running job, or quarantined: a stretch never crosses it */
};

struct policy_options {
  uint32_t size_ratio;                      /* T */
  uint32_t max_space_amplification_percent; /* of the upper runs together beside the bottom run */
  uint64_t unit_bytes;                      /* what a flush writes, about */
};

enum policy_reason { POLICY_NOTHING = 0, POLICY_TIER = 1, POLICY_SPACE = 2, POLICY_REQUEST = 3 };

struct policy_pick {
  enum policy_reason reason;
  size_t first, count; /* runs [first, first + count) */
  bool bottom;         /* the oldest run is among them: nothing older lies below */
};

/* POLICY_NOTHING when no merge is due. */
struct policy_pick policy_next(const struct policy_options *options, const struct policy_run *runs, size_t count);
/* Everything into one run; POLICY_NOTHING when it is one already or a run is busy. */
struct policy_pick policy_everything(const struct policy_run *runs, size_t count);
/* At most `most` (2 or more) of the picked runs: the neighbours that are smallest together, the oldest of equals. */
struct policy_pick policy_narrow(struct policy_pick pick, const struct policy_run *runs, size_t count, size_t most);

#endif
