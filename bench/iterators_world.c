/* A set opened without an engine (iterators.h). */
#include <stdlib.h>

#include "base/alloc.h"
#include "bench/iterators.h"

static void open_table(struct world *world, uint32_t run, uint32_t table) {
  turb_error error = TURB_ERROR_INIT;
  struct source *source = &world->runs[run].sources[table];
  char *path = data_path(world->set, world->folder, run, table);
  *source = (struct source){.run = run};
  bench_check(table_open(&world->env, path, NULL, &source->table, &error), &error);
  free(path);
}

struct world *world_open(const struct data_set *set, const char *folder, uint32_t runs, uint64_t budget_bytes) {
  turb_error error = TURB_ERROR_INIT;
  struct world *world = bench_alloc(sizeof *world);
  world->set = set;
  world->folder = folder;
  budget_init(&world->budget, budget_bytes);
  const struct io_system_options system = {.allocator = alloc_default()};
  bench_check(io_system_open(&system, &world->system, &error), &error);
  bench_check(cache_create(alloc_default(), &world->budget, &world->cache, &error), &error);
  world->env = (struct table_env){.system = world->system, .allocator = alloc_default(), .budget = &world->budget, .cache = world->cache};
  world->run_count = runs;
  world->runs = bench_alloc(runs * sizeof *world->runs);
  for (uint32_t run = 0; run < runs; run++) {
    world->runs[run] = (struct run_view){.sources = bench_alloc(set->tables * sizeof(struct source)), .count = set->tables};
    for (uint32_t table = 0; table < set->tables; table++)
      open_table(world, run, table);
  }
  return world;
}

void world_warm(struct world *world, bool rows) {
  uint64_t sum = 0, before = 0;
  for (int pass = 0; pass < 2; pass++) {
    struct io_stats stats;
    io_system_stats(world->system, &stats);
    before = stats.reads;
    for (uint32_t run = 0; run < world->run_count; run++) {
      const struct tree_options options = {.first_run = run, .runs = 1, .parts = rows};
      struct tree tree;
      tree_open(&tree, world, &options);
      (void)walk_tree(&tree, true, rows, &sum);
      tree_close(&tree);
    }
    io_system_stats(world->system, &stats);
    before = stats.reads - before;
  }
  if (before)
    bench_fail("%s: %.0f reads though everything should be resident", world->set->name, (double)before);
}
