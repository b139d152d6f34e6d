/* bench/policy_model: a collection without I/O under a policy of compactor/policy, for the simulator bench/policy.
 *
 * The model. A flush is of `flush_rows` writes of `row_bytes` each. A share of the writes are updates: each takes a key of a universe of
 * `universe_rows` keys, uniformly and independently; the others insert keys that are never written again. A run that stands for m updates
 * and n inserts holds n + U (1 - e^(-m / U)) entries, the expected number of distinct keys; so does the run that a merge of them leaves, with
 * the sums of m and n. Merges happen at once and keep one version of a key: no snapshots, no deletes.
 *
 * Live bytes are what one merge of everything that is held would leave. Space is taken after each flush and its merges ("at rest"), and at
 * its peak while the inputs and the output of a merge are both there. A read looks for a live key, any as likely as any other, in one run
 * after the other, newest first, without filters.
 *
 * One thread. Sizes are whole bytes in 64 bits: up to 16 EiB. */
#ifndef TURB_BENCH_POLICY_MODEL_H
#define TURB_BENCH_POLICY_MODEL_H

#include "compactor/policy.h"

struct model_options {
  struct policy_options policy; /* unit_bytes and now_s are set by the model */
  uint64_t flushes;
  uint64_t flush_rows, row_bytes, universe_rows;
  double update_share;       /* of writes, 0 to 1 */
  uint64_t flush_interval_s; /* for TTLs */
};

struct model_result {
  double write_amplification;     /* bytes of flushes and merges by bytes written by the user */
  double space_mean, space_worst; /* bytes held by live bytes, at rest, over the last nine tenths of the flushes */
  double space_peak;              /* the worst with the output of a merge beside its inputs */
  double reads_mean;              /* runs that a read of a live key looks at */
  double runs_mean;               /* over the last nine tenths */
  uint64_t runs_most;
  double user_bytes, held_bytes, dropped_bytes;
  uint64_t decisions; /* calls of policy_next */
  double cpu_seconds; /* of the whole simulation */
};

void model_run(const struct model_options *options, struct model_result *result);

#endif
