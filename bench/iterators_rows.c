/* Contests of walks and their rows (iterators.h): nanoseconds an input entry, and how many times as long as another. */
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "bench/iterators.h"

/* The cores that the bench may use; read before the first pass narrows them. */
static cpu_set_t all_cores;

__attribute__((constructor)) static void find_cores(void) {
  if (sched_getaffinity(0, sizeof all_cores, &all_cores) != 0)
    CPU_ZERO(&all_cores);
}

double resident_begin(uint32_t round) {
  const uint32_t count = (uint32_t)CPU_COUNT(&all_cores);
  uint32_t skip = count ? round % count : 0;
  for (size_t core = 0; core < CPU_SETSIZE; core++) {
    if (!CPU_ISSET(core, &all_cores) || skip-- > 0)
      continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    (void)sched_setaffinity(0, sizeof one, &one); /* where it is refused, medians have to do */
    break;
  }
  return thread_seconds();
}

void resident_stop(double begin, double operations, struct sample *sample) {
  sample->seconds = sample->cpu_seconds = thread_seconds() - begin;
  sample->operations = operations;
}

void walks_init(struct contest *contest, const struct bench_options *bench, const char *what, uint32_t rounds) {
  *contest = (struct contest){.what = what, .unit = "entries/s", .rounds = bench->rounds ? bench->rounds : rounds};
}

double walks_ns(const struct contest *contest, size_t contestant) {
  return 1e9 / contest_rate(contest, contestant);
}

static double least_ns(const struct contest *contest, size_t contestant) {
  double best = 0;
  for (uint32_t round = 0; round < contest->rounds; round++) {
    const struct sample *sample = &contest->samples[contestant][round];
    const double ns = sample->seconds / sample->operations * 1e9;
    best = !round || ns < best ? ns : best;
  }
  return best;
}

size_t walks_find(const struct contest *contest, const char *name) {
  for (size_t i = 0; i < contest->count; i++)
    if (!strcmp(contest->contestants[i].name, name))
      return i;
  return contest->count;
}

void walks_row_begin(const struct contest *contest, size_t contestant) {
  row_begin("ns an entry", walks_ns(contest, contestant), "%s/%s", contest->what, contest->contestants[contestant].name);
  row_number("least", least_ns(contest, contestant));
  row_number("rounds", contest->rounds);
  const double misses = contest_median(contest, contestant, offsetof(struct sample, branch_misses));
  if (misses > 0)
    row_number("branch_misses_per_entry", misses / contest->samples[contestant][0].operations);
}

void walks_rows(const struct contest *contest) {
  for (size_t i = 0; i < contest->count; i++) {
    walks_row_begin(contest, i);
    row_end();
  }
}

/* Both: medians of the rounds' ratios. Nothing when one of the two is not there. */
void walks_faster_row(const struct contest *contest, const char *name, const char *against, double least, const char *target) {
  const size_t i = walks_find(contest, name);
  bool there = false;
  for (size_t j = 0; j < contest->count; j++)
    there |= !strncmp(contest->contestants[j].name, against, strlen(against));
  if (i == contest->count || !there)
    return;
  const size_t best = contest_best(contest, against);
  const struct ratio ratio = contest_ratio_between(contest, i, best);
  row_begin("times", ratio.median, "%s: %s faster than %s", contest->what, name, contest->contestants[best].name);
  row_number("least", ratio.least);
  row_number("most", ratio.most);
  row_number("rounds", contest->rounds);
  if (target)
    row_target(target, ratio.median >= least);
  row_end();
}

void walks_slower_row(const struct contest *contest, const char *name, const char *against, double most, const char *target) {
  const size_t i = walks_find(contest, name), j = walks_find(contest, against);
  if (i == contest->count || j == contest->count)
    return;
  const struct ratio ratio = contest_ratio_between(contest, j, i);
  row_begin("times", ratio.median, "%s: %s's time by that of %s", contest->what, name, against);
  row_number("least", ratio.least);
  row_number("most", ratio.most);
  row_number("rounds", contest->rounds);
  if (target)
    row_target(target, ratio.median <= most);
  row_end();
}
