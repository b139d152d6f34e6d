/* bench/policy: the merge policies driven without I/O, by the code that the engine runs (policy_next), over petabytes of simulated flushes.
 *
 *   update   every write updates a key of a universe of 4,096 flushes: a collection of 4 TiB that is overwritten for ever
 *   mixed    half of the writes do so, the others insert
 *   insert   every write inserts: space is never wasted, the levels grow
 *   window   FIFO by size and by age, which keep 4,096 flushes' worth
 *
 * A row is one simulation: its value is the write amplification; the members say space, reads, runs and the rate of decisions.
 * bench/policy_model.h has the model, docs/compaction.md the results. */
#include <stdio.h>

#include "bench/bench.h"
#include "bench/policy_model.h"

#define GIBIBYTE      (UINT64_C(1) << 30)
#define ROW_BYTES     UINT64_C(512)
#define FLUSH_ROWS    (GIBIBYTE / ROW_BYTES)
#define UNIVERSE      UINT64_C(4096)    /* flushes */
#define FULL_FLUSHES  UINT64_C(2097152) /* of 1 GiB: 2 PiB */
#define QUICK_FLUSHES UINT64_C(262144)
#define INTERVAL_S    UINT64_C(60)

static const struct workload {
  const char *name;
  double update_share;
} workloads[] = {{"update", 1}, {"mixed", 0.5}, {"insert", 0}};
#define WORKLOADS (sizeof workloads / sizeof *workloads)

static const uint32_t ratios[] = {2, 3, 4, 6, 8, 10, 16, 32};
static const uint32_t space_percents[] = {10, 25, 50, 100, 200, 400};

/* Over all simulations. */
static double slowest = 1e300; /* decisions a CPU second */
static uint64_t flushes_done;
static bool runs_bounded = true;

static const char *policy_name(turb_compaction_policy policy) {
  switch (policy) {
  case TURB_COMPACTION_DEFAULT:
  case TURB_COMPACTION_LAZY_LEVELLING: return "lazy";
  case TURB_COMPACTION_TIERED: return "tiered";
  case TURB_COMPACTION_LEVELLED: return "levelled";
  case TURB_COMPACTION_FIFO: return "fifo";
  }
  return "?";
}

static void row(const struct workload *workload, const struct model_options *o, const struct model_result *r) {
  const struct policy_options *p = &o->policy;
  const bool lazy = p->policy == TURB_COMPACTION_LAZY_LEVELLING, fifo = p->policy == TURB_COMPACTION_FIFO;
  char extra[64] = "";
  if (lazy)
    (void)snprintf(extra, sizeof extra, " space=%u%%", p->max_space_amplification_percent);
  if (fifo)
    (void)snprintf(extra, sizeof extra, " by-%s", p->ttl_s ? "age" : "size");
  row_begin("bytes written a user byte", r->write_amplification, "%s/%s T=%u%s", workload->name, policy_name(p->policy), p->size_ratio,
            extra);
  row_text("workload", workload->name);
  row_text("policy", policy_name(p->policy));
  row_number("size_ratio", p->size_ratio);
  if (lazy)
    row_number("space_percent", p->max_space_amplification_percent);
  row_number("space_mean", r->space_mean);
  row_number("space_worst", r->space_worst);
  row_number("space_peak", r->space_peak);
  row_number("read_amplification", r->reads_mean);
  row_number("runs_mean", r->runs_mean);
  row_number("runs_most", (double)r->runs_most);
  row_number("user_tib", r->user_bytes / 1024 / (double)GIBIBYTE);
  row_number("held_tib", r->held_bytes / 1024 / (double)GIBIBYTE);
  row_number("flushes", (double)o->flushes);
  row_number("decisions_per_cpu_s", (double)r->decisions / r->cpu_seconds);
  row_number("user_tb_per_cpu_s", r->user_bytes / r->cpu_seconds / 1e12);
  const double bound = 1 + p->max_space_amplification_percent / 100.0;
  if (lazy)
    row_target("space at rest at most 1 + the bound", r->space_worst <= bound * 1.001);
  row_end();
}

static void simulate(const struct bench_options *options, const struct workload *workload, struct policy_options policy) {
  if (!bench_wants(options, workload->name))
    return;
  const struct model_options model = {.policy = policy,
                                      .flushes = options->quick ? QUICK_FLUSHES : FULL_FLUSHES,
                                      .flush_rows = FLUSH_ROWS,
                                      .row_bytes = ROW_BYTES,
                                      .universe_rows = UNIVERSE * FLUSH_ROWS,
                                      .update_share = workload->update_share,
                                      .flush_interval_s = INTERVAL_S};
  struct model_result result;
  model_run(&model, &result);
  row(workload, &model, &result);
  const double rate = (double)result.decisions / result.cpu_seconds;
  slowest = rate < slowest ? rate : slowest;
  flushes_done += model.flushes;
  runs_bounded &= result.runs_most <= policy_runs_max(&policy) + 1; /* one more is there between a flush and the merge that it makes due */
}

static void levels(const struct bench_options *options, const struct workload *workload) {
  for (size_t r = 0; r < sizeof ratios / sizeof *ratios; r++) {
    if (options->quick && ratios[r] != 4 && ratios[r] != 10)
      continue;
    struct policy_options policy = {.size_ratio = ratios[r], .max_space_amplification_percent = 100};
    for (policy.policy = TURB_COMPACTION_LAZY_LEVELLING; policy.policy <= TURB_COMPACTION_LEVELLED; policy.policy++)
      simulate(options, workload, policy);
  }
}

static void bounds(const struct bench_options *options, const struct workload *workload) {
  for (size_t s = 0; s < sizeof space_percents / sizeof *space_percents; s++) {
    const struct policy_options policy = {
        .policy = TURB_COMPACTION_LAZY_LEVELLING, .size_ratio = 10, .max_space_amplification_percent = space_percents[s]};
    if (space_percents[s] != 100 && (!options->quick || space_percents[s] == 25))
      simulate(options, workload, policy);
  }
}

static void windows(const struct bench_options *options) {
  const struct workload window = {"window", 0};
  for (size_t r = 0; r < sizeof ratios / sizeof *ratios; r++) {
    if (ratios[r] != 4 && ratios[r] != 10)
      continue;
    struct policy_options policy = {.policy = TURB_COMPACTION_FIFO, .size_ratio = ratios[r], .fifo_max_bytes = UNIVERSE * GIBIBYTE};
    simulate(options, &window, policy);
    policy.fifo_max_bytes = 0;
    policy.ttl_s = UNIVERSE * INTERVAL_S;
    simulate(options, &window, policy);
  }
}

static void run(const struct bench_options *options) {
  for (size_t w = 0; w < WORKLOADS; w++) {
    levels(options, &workloads[w]);
    bounds(options, &workloads[w]);
  }
  windows(options);
  row_begin("decisions a CPU second", slowest, "slowest simulation");
  row_number("flushes", (double)flushes_done);
  row_target("a million, the simulation included", slowest >= 1e6);
  row_end();
  row_begin("yes or no", runs_bounded, "runs stay below what makes writers wait");
  row_target("in every simulation", runs_bounded);
  row_end();
}

int main(int argc, char **argv) {
  return bench_main(argc, argv, "policy", run);
}
