/* Cases over a resident world (iterators.h): who takes part, and the rows that all of them have. */
#include <stdio.h>
#include <stdlib.h>

#include "bench/engine.h"
#include "bench/iterators.h"

/* At least so many a pass: none is too short to be timed. */
#define PASS_ENTRIES       1600000u
#define QUICK_PASS_ENTRIES 600000u

static const struct walk_case *add_walk(struct shape *shape, const struct tree_options *tree, bool batch) {
  const struct data_set *set = shape->world->set;
  const uint64_t input = (uint64_t)shape->runs * set->tables * set->entries;
  const uint32_t pass_entries = shape->bench->quick ? QUICK_PASS_ENTRIES : PASS_ENTRIES;
  struct walk_case *walk = &shape->walks[shape->walk_count++];
  *walk = (struct walk_case){.world = shape->world,
                             .tree = *tree,
                             .batch = batch,
                             .touch = shape->touch,
                             .repeats = tree->streaming ? 1 : (uint32_t)((pass_entries + input - 1) / input),
                             .entries = shape->entries};
  walk->tree.runs = shape->runs;
  walk->tree.visible = shape->visible;
  walk->tree.parts = shape->touch;
  return walk;
}

static void contest_walk(struct shape *shape, struct contest *contest, const char *name, struct tree_options tree, bool batch) {
  const struct worker_job job = walk_job(add_walk(shape, &tree, batch));
  contest_add(contest, name, &job);
}

static void contest_remote(struct shape *shape, struct contest *contest, const char *name, enum tree_kind kind, bool batch) {
  const struct tree_options tree = {.kind = kind};
  const struct walk_case *walk = add_walk(shape, &tree, batch);
  shape->walks[shape->walk_count - 1].no_lto = true;
  const struct worker_job job = remote_job(walk);
  contest_add(contest, name, &job);
}

static struct rival_case rival_of(const struct shape *shape, const char *folder, uint32_t variant) {
  return (struct rival_case){.set = shape->world->set,
                             .folder = folder,
                             .runs = shape->runs,
                             .variant = variant,
                             .touch = shape->touch,
                             .entries = shape->entries};
}

static void add_rivals(struct shape *shape, struct contest *contest) {
  static const char *const names[] = {"rocksdb/4k-blocks", "rocksdb/32k-blocks"};
  for (uint32_t variant = 0; variant < 2; variant++)
    if (shape->rocksdb[variant]) {
      shape->rivals[variant] = rival_of(shape, shape->rocksdb[variant], variant);
      const struct worker_job job = rocksdb_job(&shape->rivals[variant]);
      contest_add(contest, names[variant], &job);
    }
  if (shape->leveldb && !(shape->bench->quick && shape->touch && !shape->visible)) { /* no target there */
    shape->rivals[2] = rival_of(shape, shape->leveldb, 0);
    const struct worker_job job = leveldb_job(&shape->rivals[2]);
    contest_add(contest, "leveldb", &job);
  }
}

static void add_all(struct shape *shape, struct contest *contest) {
  contest_walk(shape, contest, "split", (struct tree_options){0}, false);
  contest_walk(shape, contest, "batch", (struct tree_options){0}, true);
  if (shape->floor) {
    const struct worker_job job = floor_job(&shape->walks[0]);
    contest_add(contest, "floor", &job);
  }
  if (shape->variants) {
    contest_walk(shape, contest, "boxed", (struct tree_options){.kind = TREE_BOXED}, false);
    contest_walk(shape, contest, "always-await", (struct tree_options){.kind = TREE_ALWAYS_AWAIT}, false);
  }
  if (shape->remote) {
    contest_remote(shape, contest, "no-lto/split", TREE_SPLIT, false);
    if (!shape->bench->quick)
      contest_remote(shape, contest, "no-lto/batch", TREE_SPLIT, true);
    contest_remote(shape, contest, "no-lto/boxed", TREE_BOXED, false);
    contest_remote(shape, contest, "no-lto/always-await", TREE_ALWAYS_AWAIT, false);
  }
  if (shape->unions) {
    contest_walk(shape, contest, "union/split", (struct tree_options){.union_children = true}, false);
    contest_walk(shape, contest, "union/always-await", (struct tree_options){.kind = TREE_ALWAYS_AWAIT, .union_children = true}, false);
  }
  if (shape->prefetch) {
    contest_walk(shape, contest, "prefetch/split", (struct tree_options){.streaming = true}, false);
    contest_walk(shape, contest, "prefetch/always-await", (struct tree_options){.kind = TREE_ALWAYS_AWAIT, .streaming = true}, false);
  }
  add_rivals(shape, contest);
}

/* Of a contestant that walks a tree in memory, NULL of others. */
static const struct walk_case *walk_of(const struct shape *shape, const struct contest *contest, size_t contestant) {
  for (size_t i = 0; i < shape->walk_count; i++)
    if (contest->contestants[contestant].job.argument == &shape->walks[i] && contestant != walks_find(contest, "floor") &&
        !shape->walks[i].tree.streaming)
      return &shape->walks[i];
  return NULL;
}

static void print_rows(const struct shape *shape, const struct contest *contest) {
  for (size_t i = 0; i < contest->count; i++) {
    const struct walk_case *walk = walk_of(shape, contest, i);
    walks_row_begin(contest, i);
    const double counted = walk && shape->counted && !shape->bench->quick ? remote_instructions(walk) : 0;
    if (counted > 0)
      row_number("instructions_per_entry", counted);
    row_end();
  }
}

void shape_run(struct shape *shape, struct contest *contest, bool target) {
  walks_init(contest, shape->bench, shape->name, shape->rounds);
  shape->walk_count = 0;
  add_all(shape, contest);
  contest_run(contest);
  print_rows(shape, contest);
  static const char *const ways[] = {"", "no-lto/", "union/", "prefetch/"};
  for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
    char split[32], await[32], boxed[32];
    (void)snprintf(split, sizeof split, "%ssplit", ways[i]);
    (void)snprintf(await, sizeof await, "%salways-await", ways[i]);
    (void)snprintf(boxed, sizeof boxed, "%sboxed", ways[i]);
    walks_faster_row(contest, split, await, 1.5, target && i < 2 ? "at least 1.5 times" : NULL);
    walks_faster_row(contest, split, boxed, 3, target && i < 2 ? "at least 3 times" : NULL);
  }
}

/* ---- rivals' databases ---- */

void shape_build_rivals(struct shape *shape, bool both_blocks) {
  const struct data_set *set = shape->world->set;
  for (uint32_t variant = both_blocks ? 0 : 1; variant < 2; variant++) {
    shape->rocksdb[variant] = path_join(shape->bench->folder, "rocksdb-%u-%s", variant, set->name);
    const struct rival_case build = {.set = set, .folder = shape->rocksdb[variant], .runs = shape->runs, .variant = variant};
    rocksdb_build(&build);
  }
  shape->leveldb = path_join(shape->bench->folder, "leveldb-%s", set->name);
  const struct rival_case build = {.set = set, .folder = shape->leveldb, .runs = shape->runs};
  leveldb_build(&build);
}

void shape_remove_rivals(struct shape *shape) {
  char *folders[] = {shape->rocksdb[0], shape->rocksdb[1], shape->leveldb};
  for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
    if (folders[i])
      folder_remove(folders[i]);
    free(folders[i]);
  }
  shape->rocksdb[0] = shape->rocksdb[1] = shape->leveldb = NULL;
}

/* ---- stages ---- */

struct stage {
  const struct bench_options *bench;
  const struct data_set *set;
  bool rows;
  void (*run)(const struct bench_options *bench, struct world *world);
};

static void *begin_stage(const void *argument) {
  return (void *)(uintptr_t)argument;
}

static void run_stage(void *argument, uint32_t round, struct sample *sample) {
  const struct stage *stage = argument;
  (void)round;
  (void)sample;
  struct world *world = world_open(stage->set, stage->bench->folder, stage->set->runs, UINT64_C(16) << 30);
  world_warm(world, stage->rows);
  stage->run(stage->bench, world);
}

void shape_stage(const struct bench_options *bench, const struct data_set *set, bool rows,
                 void (*run)(const struct bench_options *bench, struct world *world)) {
  const struct stage stage = {bench, set, rows, run};
  const struct worker_job job = {begin_stage, run_stage, NULL, &stage};
  struct sample sample;
  data_write(set, bench->folder, set->runs);
  worker_run(&job, 0, &sample);
  for (uint32_t run_number = 0; run_number < set->runs; run_number++)
    for (uint32_t table = 0; table < set->tables; table++) {
      char *path = data_path(set, bench->folder, run_number, table);
      (void)remove(path);
      free(path);
    }
}
