/* Cases (a), (b), (c): the shapes of Hummock's own benches, resident (docs/benchmarks.md, "bench/iterators"). */
#include <stdio.h>
#include <string.h>

#include "bench/iterators.h"

static struct shape shape_of(const struct bench_options *bench, struct world *world, const char *name) {
  struct shape shape = {
      .bench = bench, .world = world, .runs = world->run_count, .rounds = bench->quick ? 5 : 7, .variants = true, .counted = true};
  shape.entries = (uint64_t)world->run_count * world->set->tables * world->set->entries;
  (void)snprintf(shape.name, sizeof shape.name, "%s", name);
  return shape;
}

static void rival_rows(const struct contest *contest, double least, const char *target) {
  static const char *const ours[] = {"split", "batch"}, *const rivals[] = {"rocksdb", "leveldb"};
  for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
    for (size_t j = 0; j < sizeof rivals / sizeof *rivals; j++)
      walks_faster_row(contest, ours[i], rivals[j], least, target);
}

/* ---- (a) ---- */

static void time_row(const struct contest *contest, const char *name) {
  const double ns = walks_ns(contest, walks_find(contest, name));
  row_begin("ns", ns, "%s: an input entry, %s", contest->what, name);
  row_number("rounds", contest->rounds);
  row_target("at most 20 ns an input entry", ns <= 20);
  row_end();
}

static void run_levels(const struct bench_options *bench, struct world *world) {
  struct shape shape = shape_of(bench, world, "levels");
  struct contest contest;
  shape.visible = shape.touch = shape.remote = true;
  shape.unions = shape.prefetch = !bench->quick;
  shape.entries /= 2; /* the older half is hidden */
  shape_build_rivals(&shape, !bench->quick);
  shape_run(&shape, &contest, true);
  time_row(&contest, "split");
  time_row(&contest, "batch");
  rival_rows(&contest, 10, "at least 10 times");
  shape_remove_rivals(&shape);
}

void levels_cases(const struct bench_options *bench) {
  static const struct data_set set = {"levels", DATA_LEVELS, 2, 2, 131072, 2};
  if (bench_wants(bench, "levels"))
    shape_stage(bench, &set, true, run_levels);
}

/* ---- (b) ---- */

static void run_interleaved(const struct bench_options *bench, struct world *world) {
  struct shape shape = shape_of(bench, world, "interleaved");
  struct contest contest;
  shape_build_rivals(&shape, !bench->quick);
  shape.unions = !bench->quick;
  shape_run(&shape, &contest, false);
  rival_rows(&contest, 0, NULL);
  shape_remove_rivals(&shape);
}

void interleaved_cases(const struct bench_options *bench) {
  static const struct data_set set = {"interleaved", DATA_INTERLEAVED, 100, 1, 10000, 2};
  if (!bench->quick && bench_wants(bench, "interleaved"))
    shape_stage(bench, &set, false, run_interleaved);
}

/* ---- (c) ---- */

static void run_table(const struct bench_options *bench, struct world *world) {
  struct shape shape = shape_of(bench, world, "table-scan");
  struct contest contest;
  shape_build_rivals(&shape, true);
  shape_run(&shape, &contest, false);
  rival_rows(&contest, 0, NULL);
  shape_remove_rivals(&shape);
}

static void run_block(const struct bench_options *bench, struct world *world) {
  struct shape shape = shape_of(bench, world, "block-scan");
  struct contest contest;
  shape_run(&shape, &contest, false);
}

/* A page has room for 57 such entries. */
void single_cases(const struct bench_options *bench) {
  static const struct data_set table = {"table", DATA_LEVELS, 1, 1, 131072, 2}, block = {"block", DATA_LEVELS, 1, 1, 56, 2};
  if (bench->quick)
    return;
  if (bench_wants(bench, "table-scan"))
    shape_stage(bench, &table, false, run_table);
  if (bench_wants(bench, "block-scan"))
    shape_stage(bench, &block, false, run_block);
}
