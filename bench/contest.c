/* Contests: rounds, medians, paired ratios (bench.h). The machine may be shared and its speed wander: what was measured within one round belongs together, so
 * ratios are taken round by round, and their median counts. */
#include "bench/bench.h"

#include <stdio.h>
#include <string.h>

void contest_add(struct contest *contest, const char *name, const struct worker_job *job) {
  if (contest->count == CONTEST_MAX_CONTESTANTS)
    bench_fail("more than %d contestants", CONTEST_MAX_CONTESTANTS);
  contest->contestants[contest->count].name = name;
  contest->contestants[contest->count].job = *job;
  contest->count++;
}

void contest_run(struct contest *contest) {
  struct worker *workers[CONTEST_MAX_CONTESTANTS] = {0};
  for (size_t i = 0; i < contest->count && !contest->fresh; i++)
    workers[i] = worker_start(&contest->contestants[i].job);
  for (uint32_t round = 0; round < contest->rounds; round++)
    for (size_t turn = 0; turn < contest->count; turn++) {
      const size_t i = (turn + round) % contest->count;
      if (contest->fresh)
        worker_run(&contest->contestants[i].job, round, &contest->samples[i][round]);
      else
        worker_pass(workers[i], round, &contest->samples[i][round]);
    }
  for (size_t i = 0; i < contest->count && !contest->fresh; i++) {
    struct sample last;
    worker_end(workers[i], &last);
    for (uint32_t round = 0; round < contest->rounds; round++) {
      contest->samples[i][round].peak_bytes = last.peak_bytes;
      contest->samples[i][round].anonymous_bytes = last.anonymous_bytes;
    }
  }
}

static double rate(const struct sample *sample) {
  return sample->seconds > 0 ? sample->operations / sample->seconds : 0;
}

double contest_rate(const struct contest *contest, size_t contestant) {
  double rates[CONTEST_MAX_ROUNDS];
  for (uint32_t round = 0; round < contest->rounds; round++)
    rates[round] = rate(&contest->samples[contestant][round]);
  return median(rates, contest->rounds);
}

double contest_median(const struct contest *contest, size_t contestant, size_t member_offset) {
  double values[CONTEST_MAX_ROUNDS];
  for (uint32_t round = 0; round < contest->rounds; round++)
    memcpy(&values[round], (const uint8_t *)&contest->samples[contestant][round] + member_offset, sizeof values[round]);
  return median(values, contest->rounds);
}

#define MEDIAN(member) contest_median(contest, i, offsetof(struct sample, member))

void contest_row_begin(const struct contest *contest, size_t i) {
  row_begin(contest->unit, contest_rate(contest, i), "%s/%s", contest->what, contest->contestants[i].name);
  double best = 0;
  for (uint32_t round = 0; round < contest->rounds; round++)
    if (rate(&contest->samples[i][round]) > best)
      best = rate(&contest->samples[i][round]);
  row_number("best", best);
  row_number("rounds", contest->rounds);
  if (MEDIAN(p50_us) > 0) {
    row_number("p50_us", MEDIAN(p50_us));
    row_number("p99_us", MEDIAN(p99_us));
  }
  row_number("seconds", MEDIAN(seconds));
  row_number("cpu_seconds", MEDIAN(cpu_seconds));
  row_number("peak_mib", MEDIAN(peak_bytes) / (1 << 20));
}

void contest_rows(const struct contest *contest) {
  for (size_t i = 0; i < contest->count; i++) {
    contest_row_begin(contest, i);
    row_end();
  }
}

size_t contest_best(const struct contest *contest, const char *name) {
  size_t best = contest->count;
  for (size_t i = 0; i < contest->count; i++)
    if (!strncmp(contest->contestants[i].name, name, strlen(name)) &&
        (best == contest->count || contest_rate(contest, i) > contest_rate(contest, best)))
      best = i;
  if (best == contest->count)
    bench_fail("no contestant is named %s", name);
  return best;
}

struct ratio contest_ratio_between(const struct contest *contest, size_t contestant, size_t against) {
  double ratios[CONTEST_MAX_ROUNDS];
  struct ratio ratio = {.least = 1e300, .against = contest->contestants[against].name};
  for (uint32_t round = 0; round < contest->rounds; round++) {
    ratios[round] = rate(&contest->samples[contestant][round]) / rate(&contest->samples[against][round]);
    ratio.least = ratios[round] < ratio.least ? ratios[round] : ratio.least;
    ratio.most = ratios[round] > ratio.most ? ratios[round] : ratio.most;
  }
  ratio.median = median(ratios, contest->rounds);
  return ratio;
}

struct ratio contest_ratio(const struct contest *contest, const char *name) {
  return contest_ratio_between(contest, 0, contest_best(contest, name));
}

void contest_ratio_row(const struct contest *contest, const char *name, const char *words, double least) {
  const struct ratio ratio = contest_ratio(contest, name);
  row_begin("times", ratio.median, "%s: rate by that of %s", contest->what, ratio.against);
  row_number("least", ratio.least);
  row_number("most", ratio.most);
  row_number("rounds", contest->rounds);
  row_target(words, ratio.median >= least);
  row_end();
}
