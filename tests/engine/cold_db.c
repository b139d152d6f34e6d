/* The database of tests over what is not in memory; see cold_db.h. */
#include "tests/engine/cold_db.h"

#include "sstable/table_parts.h"

#define SCRIBBLES 48

static turb_error err;
static turb_error *fresh(void) {
  err = (turb_error)TURB_ERROR_INIT;
  return &err;
}

void cold_db_begin(struct cold_db *disk, uint64_t seed, uint32_t dimension) {
  test_allocator_init(&disk->allocator);
  turb_simulation_options simulation = TURB_SIMULATION_OPTIONS_INIT;
  simulation.seed = seed;
  simulation.reorder_percent = 50;
  simulation.short_percent = 5;
  CHECK_OK_ERR(turb_simulation_create(&simulation, &disk->simulation, fresh()), &err);
  turb_options options = TURB_OPTIONS_INIT;
  options.backend = TURB_BACKEND_SIMULATED;
  options.simulation = disk->simulation;
  options.allocator = &disk->allocator.base;
  options.memory_budget_bytes = 16u << 20;
  options.worker_threads = -1;
  options.durability = TURB_LOGGED;
  CHECK_OK_ERR(turb_open("/db", &options, &disk->db, fresh()), &err);
  turb_collection_options shape = TURB_COLLECTION_OPTIONS_INIT;
  shape.dimension = dimension;
  CHECK_OK_ERR(turb_collection_create(disk->db, "c", &shape, &disk->c, fresh()), &err);
}

void cold_db_end(struct cold_db *disk) {
  CHECK_OK_ERR(turb_close(disk->db, fresh()), &err);
  turb_simulation_free(disk->simulation);
  test_allocator_check_empty(&disk->allocator);
}

void cold_db_chill(struct cold_db *disk) {
  const struct version *version = disk->c->version;
  for (uint32_t r = 0; r < version->run_count; r++) {
    for (uint32_t t = 0; t < version->runs[r].view.count; t++) {
      struct cache_directory *directory = &version->runs[r].view.sources[t].table->directory;
      struct cache *cache = directory->cache;
      const uint32_t units = directory->unit_count;
      cache_directory_close(directory);
      CHECK_OK_ERR(cache_directory_open(cache, units, directory, fresh()), &err);
    }
  }
  struct cache_memory pages[SCRIBBLES];
  int count = 0;
  while (count < SCRIBBLES && cache_memory_take(disk->db->cache, SLOT_PAGE_BYTES, UNIT_KEYS, true, &pages[count]))
    memset(pages[count++].data, 0xdd, SLOT_PAGE_BYTES);
  while (count != 0)
    cache_memory_give(disk->db->cache, &pages[--count]);
  struct budget *budget = &disk->db->budget;
  const uint64_t all = budget_limit(budget) - budget_used(budget) + budget_used_for(budget, BUDGET_CACHE);
  if (budget_take(budget, BUDGET_JOB, all))
    budget_give(budget, BUDGET_JOB, all);
}
