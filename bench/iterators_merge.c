/* Case (d): k runs with random keys and vectors of 128 f32, resident (docs/benchmarks.md, "bench/iterators"). */
#include <stdio.h>

#include "bench/iterators.h"

#define RUN_ENTRIES 100000u
#define DIMENSION   128u

static void name_of(char name[64], uint32_t runs, bool touch) {
  (void)snprintf(name, 64, "merge/k%u/%s", runs, touch ? "rows" : "keys");
}

static bool wants(const struct bench_options *bench, uint32_t runs, bool touch) {
  char name[64];
  name_of(name, runs, touch);
  return bench_wants(bench, name);
}

static void target_rows(const struct shape *shape, const struct contest *contest) {
  static const char *const ours[] = {"split", "batch"};
  walks_slower_row(contest, "split", "floor", 1.5, "at most 1.5 times the floor");
  walks_slower_row(contest, "batch", "floor", 1.2, "at most 1.2 times the floor");
  for (size_t i = 0; i < sizeof ours / sizeof *ours; i++) {
    walks_faster_row(contest, ours[i], "rocksdb", shape->touch ? 6 : 20, shape->touch ? "at least 6 times" : "at least 20 times");
    walks_faster_row(contest, ours[i], "leveldb", 10, shape->touch ? NULL : "at least 10 times");
  }
}

/* k = 8 has all variants and the rivals. With rows, memory is most of what is measured: the gains of the split have targets on keys. */
static void run_merge(const struct bench_options *bench, struct world *world, uint32_t runs) {
  struct shape shape = {.bench = bench, .world = world, .runs = runs, .floor = true, .variants = !bench->quick || runs == 8};
  shape.entries = (uint64_t)runs * world->set->entries;
  if (!wants(bench, runs, false) && !wants(bench, runs, true))
    return;
  if (runs == 8)
    shape_build_rivals(&shape, !bench->quick);
  for (int touch = 0; touch < 2; touch++) {
    struct contest contest;
    shape.touch = touch;
    shape.rounds = touch || bench->quick ? 5 : 7;
    shape.unions = runs == 8 && !bench->quick;
    shape.prefetch = shape.unions && touch;
    shape.remote = shape.counted = runs == 8 && !touch;
    name_of(shape.name, runs, shape.touch);
    if (!wants(bench, runs, shape.touch))
      continue;
    shape_run(&shape, &contest, runs == 8 && !touch);
    target_rows(&shape, &contest);
  }
  shape_remove_rivals(&shape);
}

static const uint32_t few[] = {1, 2, 4, 8}, many[] = {16, 64};

static void run_few(const struct bench_options *bench, struct world *world) {
  for (size_t i = 0; i < sizeof few / sizeof *few; i++)
    if (few[i] <= world->run_count)
      run_merge(bench, world, few[i]);
}

static void run_many(const struct bench_options *bench, struct world *world) {
  for (size_t i = 0; i < sizeof many / sizeof *many; i++)
    if (many[i] <= world->run_count)
      run_merge(bench, world, many[i]);
}

/* The most runs that anybody asked for; 0: nobody. */
static uint32_t most_wanted(const struct bench_options *bench, const uint32_t *counts, size_t count) {
  uint32_t most = 0;
  for (size_t i = 0; i < count; i++)
    if (wants(bench, counts[i], false) || wants(bench, counts[i], true))
      most = counts[i];
  return most;
}

void merge_cases(const struct bench_options *bench) {
  struct data_set set = {
      .name = "few", .keys = DATA_RANDOM, .tables = 1, .entries = bench->quick ? RUN_ENTRIES / 2 : RUN_ENTRIES, .dimension = DIMENSION};
  set.runs = most_wanted(bench, few, sizeof few / sizeof *few);
  if (set.runs)
    shape_stage(bench, &set, true, run_few);
  set.name = "many";
  set.entries = bench->quick ? RUN_ENTRIES / 16 : RUN_ENTRIES;
  set.runs = most_wanted(bench, many, sizeof many / sizeof *many);
  if (set.runs)
    shape_stage(bench, &set, true, run_many);
}
