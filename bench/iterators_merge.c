/* Case (d): k runs with random keys and vectors of 128 f32, resident (docs/benchmarks.md, "bench/iterators"). */
#include <stdio.h>
#include <stdlib.h>

#include "bench/engine.h"
#include "bench/iterators.h"

#define RUN_ENTRIES 100000u
#define DIMENSION   128u
#define WALK_MIN    1600000u /* entries a pass, so that no pass is too short to be timed */

struct merge_case {
  const struct bench_options *bench;
  struct world *world;
  uint32_t runs;
  bool touch, rivals;
  char *rocksdb[2], *leveldb; /* their folders; NULL: not built */
};

static struct walk_case walk_of(const struct merge_case *what, enum tree_kind kind, bool batch) {
  const uint64_t entries = (uint64_t)what->runs * what->world->set->entries;
  return (struct walk_case){.world = what->world,
                            .tree = {.kind = kind, .runs = what->runs, .parts = what->touch},
                            .batch = batch,
                            .touch = what->touch,
                            .repeats = (uint32_t)((WALK_MIN + entries - 1) / entries),
                            .entries = entries};
}

static struct rival_case rival_of(const struct merge_case *what, const char *folder, uint32_t variant) {
  return (struct rival_case){.set = what->world->set,
                             .folder = folder,
                             .runs = what->runs,
                             .variant = variant,
                             .touch = what->touch,
                             .entries = (uint64_t)what->runs * what->world->set->entries};
}

static void run_merge(const struct merge_case *what) {
  char name[64];
  (void)snprintf(name, sizeof name, "merge/k%u/%s", what->runs, what->touch ? "rows" : "keys");
  struct contest contest;
  walks_init(&contest, what->bench, name, what->touch ? 7 : 9);
  const struct walk_case split = walk_of(what, TREE_SPLIT, false), batch = walk_of(what, TREE_SPLIT, true);
  const struct walk_case boxed = walk_of(what, TREE_BOXED, false), await = walk_of(what, TREE_ALWAYS_AWAIT, false);
  const struct rival_case small = rival_of(what, what->rocksdb[0], 0), large = rival_of(what, what->rocksdb[1], ROCKSDB_LARGE_BLOCKS);
  const struct rival_case level = rival_of(what, what->leveldb, 0);
  const struct worker_job jobs[] = {walk_job(&split), walk_job(&batch),    floor_job(&batch),   walk_job(&boxed),
                                    walk_job(&await), rocksdb_job(&small), rocksdb_job(&large), leveldb_job(&level)};
  contest_add(&contest, "split", &jobs[0]);
  contest_add(&contest, "batch", &jobs[1]);
  contest_add(&contest, "floor", &jobs[2]);
  if (!what->bench->quick || what->runs == 8) {
    contest_add(&contest, "boxed", &jobs[3]);
    contest_add(&contest, "always-await", &jobs[4]);
  }
  if (what->rivals && what->rocksdb[0])
    contest_add(&contest, "rocksdb/4k-blocks", &jobs[5]);
  if (what->rivals && what->rocksdb[1])
    contest_add(&contest, "rocksdb/32k-blocks", &jobs[6]);
  if (what->rivals && what->leveldb)
    contest_add(&contest, "leveldb", &jobs[7]);
  contest_run(&contest);
  walks_rows(&contest);
  walks_slower_row(&contest, "split", "floor", 1.5, "at most 1.5 times the floor");
  walks_slower_row(&contest, "batch", "floor", 1.2, "at most 1.2 times the floor");
  const bool target = what->runs == 8 && !what->touch; /* with rows, memory is most of it */
  walks_faster_row(&contest, "split", "always-await", 1.5, target ? "at least 1.5 times" : NULL);
  walks_faster_row(&contest, "split", "boxed", 3, target ? "at least 3 times" : NULL);
  static const char *const ours[] = {"split", "batch"};
  for (size_t i = 0; i < sizeof ours / sizeof *ours; i++) {
    walks_faster_row(&contest, ours[i], "rocksdb", what->touch ? 6 : 20, what->touch ? "at least 6 times" : "at least 20 times");
    walks_faster_row(&contest, ours[i], "leveldb", 10, what->touch ? NULL : "at least 10 times");
  }
}

static void build_rivals(struct merge_case *what, const struct data_set *set) {
  what->rocksdb[0] = path_join(what->bench->folder, "rocksdb-%s", set->name);
  what->rocksdb[1] = path_join(what->bench->folder, "rocksdb-large-%s", set->name);
  what->leveldb = path_join(what->bench->folder, "leveldb-%s", set->name);
  for (uint32_t variant = 0; variant < 2; variant++) {
    const struct rival_case build = {.set = set, .folder = what->rocksdb[variant], .runs = what->runs, .variant = variant};
    rocksdb_build(&build);
  }
  const struct rival_case build = {.set = set, .folder = what->leveldb, .runs = what->runs};
  leveldb_build(&build);
}

static void remove_rivals(struct merge_case *what) {
  char *folders[] = {what->rocksdb[0], what->rocksdb[1], what->leveldb};
  for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
    if (folders[i])
      folder_remove(folders[i]);
    free(folders[i]);
  }
  what->rocksdb[0] = what->rocksdb[1] = what->leveldb = NULL;
}

/* The first k runs of one set, for each k; keys, then rows. */
struct merge_stage {
  const struct bench_options *bench;
  struct data_set set;
  uint32_t counts[6];
  uint32_t count;
};

static bool wants(const struct bench_options *bench, uint32_t runs, bool touch) {
  char name[64];
  (void)snprintf(name, sizeof name, "merge/k%u/%s", runs, touch ? "rows" : "keys");
  return bench_wants(bench, name);
}

static void *begin_stage(const void *argument) {
  return (void *)(uintptr_t)argument;
}

static void run_stage(void *argument, uint32_t round, struct sample *sample) {
  const struct merge_stage *stage = argument;
  (void)round;
  (void)sample;
  struct world *world = world_open(&stage->set, stage->bench->folder, stage->set.runs, UINT64_C(16) << 30);
  world_warm(world, true);
  for (uint32_t i = 0; i < stage->count; i++) {
    const uint32_t runs = stage->counts[i];
    struct merge_case what = {.bench = stage->bench, .world = world, .runs = runs, .rivals = runs == 8};
    if (what.rivals && (wants(stage->bench, runs, false) || wants(stage->bench, runs, true)))
      build_rivals(&what, &stage->set);
    for (int touch = 0; touch < 2; touch++) {
      what.touch = touch;
      if (wants(stage->bench, runs, what.touch))
        run_merge(&what);
    }
    remove_rivals(&what);
  }
}

static void run_set(struct merge_stage *stage) {
  bool wanted = false;
  uint32_t runs = 1;
  for (uint32_t i = 0; i < stage->count; i++)
    for (int touch = 0; touch < 2; touch++)
      if (wants(stage->bench, stage->counts[i], touch)) {
        wanted = true;
        runs = stage->counts[i] > runs ? stage->counts[i] : runs;
      }
  if (!wanted)
    return;
  stage->set.runs = runs;
  data_write(&stage->set, stage->bench->folder, runs);
  const struct worker_job job = {begin_stage, run_stage, NULL, stage};
  struct sample sample;
  worker_run(&job, 0, &sample);
  for (uint32_t run = 0; run < runs; run++) {
    char *path = data_path(&stage->set, stage->bench->folder, run, 0);
    (void)remove(path);
    free(path);
  }
}

void merge_cases(const struct bench_options *bench) {
  struct merge_stage few = {.bench = bench, .set = {"few", DATA_RANDOM, 0, 1, RUN_ENTRIES, DIMENSION}, .counts = {1, 2, 4, 8}, .count = 4};
  struct merge_stage many = {.bench = bench,
                             .set = {"many", DATA_RANDOM, 0, 1, bench->quick ? RUN_ENTRIES / 8 : RUN_ENTRIES, DIMENSION},
                             .counts = {16, 64},
                             .count = 2};
  run_set(&few);
  run_set(&many);
}
