/* compactor/policy: what is done next with the runs of a collection, and why. Pure: it sees sizes and times, no files and no clock, so that
 * the engine and the simulator (bench/policy) run the same code.
 *
 *   policy_lazy.c      lazy levelling: tiers above, one bottom run that is rewritten only when the upper runs are large beside it
 *   policy_tiered.c    tiering: T runs of a level become one of the next, the bottom is no exception
 *   policy_levelled.c  full levelling: one run a level
 *   policy_fifo.c      the oldest runs are dropped by size or age; small neighbours are merged to bound the number of runs
 *   policy_parts.h     what they share: levels and tiers
 *
 * A run belongs to level 0 up to T / 2 units, to level 1 up to T^2 / 2 units, and so on: about log_T(bytes / unit).
 *
 * Invariants
 *  1. A merge is of two or more neighbours in age, so that runs keep disjoint ranges of sequence numbers. It takes no busy run.
 *  2. A drop is of the oldest runs: what they delete or hide lies below nothing else. It takes no busy and no held run.
 *  3. Every pick leaves fewer runs, so that without new ones a fixed point is reached after fewer picks than there are runs.
 */
#ifndef TURB_COMPACTOR_POLICY_H
#define TURB_COMPACTOR_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "turbidite/turbidite.h"

struct policy_run { /* newest first */
  uint64_t bytes;
  uint64_t entries;
  bool busy;             /* input of a running job, or quarantined: no stretch crosses it */
  bool held;             /* a snapshot reads it: it may be merged, not dropped */
  uint64_t written_by_s; /* unix seconds by which its youngest entry was written, at the latest; 0: unknown, never old */
};

struct policy_options {
  turb_compaction_policy policy;            /* TURB_COMPACTION_DEFAULT: lazy levelling */
  uint32_t size_ratio;                      /* T, 2 or more */
  uint32_t max_space_amplification_percent; /* lazy levelling: of the upper runs together beside the bottom run */
  uint64_t unit_bytes;                      /* what a flush writes, about; not 0 */
  uint64_t fifo_max_bytes;                  /* FIFO: of all runs together; 0: no bound */
  uint64_t ttl_s;                           /* FIFO: seconds; 0: no bound */
  uint64_t now_s;                           /* unix seconds, for the TTL */
};

enum policy_reason {
  POLICY_NOTHING = 0,
  POLICY_TIER = 1,      /* merge: T runs of one level */
  POLICY_SPACE = 2,     /* merge: the upper runs are large beside the bottom one */
  POLICY_REQUEST = 3,   /* merge: asked for */
  POLICY_LEVEL = 4,     /* merge: two runs of one level, or a level outgrew the next */
  POLICY_DROP_SIZE = 5, /* drop: beyond fifo_max_bytes */
  POLICY_DROP_AGE = 6   /* drop: every entry is older than ttl_s */
};

struct policy_pick {
  enum policy_reason reason;
  size_t first, count; /* runs [first, first + count) */
  bool bottom;         /* the oldest run is among them: nothing older lies below */
};

/* Whether the picked runs are dropped; otherwise they are merged into one. */
static inline bool policy_drops(enum policy_reason reason) {
  return reason == POLICY_DROP_SIZE || reason == POLICY_DROP_AGE;
}

/* POLICY_NOTHING when nothing is due. */
struct policy_pick policy_next(const struct policy_options *options, const struct policy_run *runs, size_t count);
/* When time alone will make a drop due, unix seconds; UINT64_MAX: never. */
uint64_t policy_next_drop_s(const struct policy_options *options, const struct policy_run *runs, size_t count);
/* A number of runs that the policy does not let stand: above it a merge is late, and writers should wait for it. */
uint32_t policy_runs_max(const struct policy_options *options);
/* Everything into one run; POLICY_NOTHING when it is one already or a run is busy. */
struct policy_pick policy_everything(const struct policy_run *runs, size_t count);
/* Of a merge at most `most` (2 or more) of the picked runs: the neighbours that are smallest together, the oldest of equals. A drop stays
 * as it is. */
struct policy_pick policy_narrow(struct policy_pick pick, const struct policy_run *runs, size_t count, size_t most);

#endif
