/* The rows of tests over what is not in memory; see cold_rows.h. */
#include "tests/engine/cold_rows.h"

#include <stdlib.h>

#include "sstable/table_parts.h"

#define ATTRIBUTE_MAX 3000u
#define SCRIBBLES     48
#define RANGE_BEGIN   100u
#define RANGE_END     140u

static turb_error err;
static turb_error *fresh(void) {
  err = (turb_error)TURB_ERROR_INIT;
  return &err;
}

turb_bytes cold_rows_key(uint32_t number, char key[16]) {
  return (turb_bytes){key, (size_t)snprintf(key, 16, "k%05u", number)};
}

uint32_t cold_rows_number(turb_bytes key) {
  char text[16] = {0};
  CHECK_EQ(key.size, 6);
  memcpy(text, key.data, key.size);
  CHECK_EQ(text[0], 'k');
  return (uint32_t)strtoul(text + 1, NULL, 10);
}

uint32_t cold_rows_version(uint32_t number, uint32_t stage) {
  if (stage == 3 && number % 11 == 0)
    return 3;
  if (stage >= 2)
    return number % 7 == 1 || (number >= RANGE_BEGIN && number < RANGE_END) ? 0 : number % 3 == 0 ? 2 : 1;
  return stage;
}

void cold_rows_list(struct cold_list *list, uint32_t stage) {
  list->stage = stage;
  list->count = 0;
  for (uint32_t i = 0; i < COLD_KEYS; i++)
    if (cold_rows_version(i, stage))
      list->numbers[list->count++] = i;
}

static uint32_t make(uint32_t number, uint32_t version, float *vector, uint8_t *attribute) {
  for (uint32_t i = 0; i < COLD_DIMENSION; i++)
    vector[i] = (float)(number * 3 + version * 1000 + i);
  const uint32_t size = number % 5 ? (number * 71 + version * 13) % ATTRIBUTE_MAX : 0;
  memset(attribute, (int)(number + version * 64) & 0xff, size);
  return size;
}

void cold_rows_check(const turb_entry *entry, uint32_t number, uint32_t stage, uint32_t parts) {
  static float vector[COLD_DIMENSION];
  static uint8_t attribute[ATTRIBUTE_MAX];
  const uint32_t size = make(number, cold_rows_version(number, stage), vector, attribute);
  char key[16];
  const turb_bytes wanted = cold_rows_key(number, key);
  CHECK(entry != NULL);
  CHECK_EQ(entry->key.size, wanted.size);
  CHECK_MSG(!memcmp(entry->key.data, wanted.data, wanted.size), "%.6s, not %.6s", (const char *)entry->key.data, key);
  if (parts & TURB_VECTOR) {
    CHECK_EQ(entry->vector.size, sizeof vector);
    CHECK_MEM_EQ(entry->vector.data, vector, sizeof vector);
  }
  if (parts & TURB_ATTRIBUTES) {
    CHECK_EQ(entry->attributes.size, size);
    CHECK(!size || !memcmp(entry->attributes.data, attribute, size));
  }
}

static void put(struct cold_rows *rows, uint32_t number, uint32_t version) {
  static float vector[COLD_DIMENSION];
  static uint8_t attribute[ATTRIBUTE_MAX];
  char key[16];
  const uint32_t size = make(number, version, vector, attribute);
  const turb_bytes row = {vector, sizeof vector}, attributes = {attribute, size};
  CHECK_OK_ERR(turb_put(rows->c, cold_rows_key(number, key), row, attributes, NULL, fresh()), &err);
}

static void play(struct cold_rows *rows, uint32_t stage) {
  char key[16], end[16];
  for (uint32_t i = 0; i < COLD_KEYS; i++) {
    if (stage == 1 || (stage == 2 && i % 3 == 0) || (stage == 3 && i % 11 == 0))
      put(rows, i, stage);
    if (stage == 2 && i % 7 == 1)
      CHECK_OK_ERR(turb_delete(rows->c, cold_rows_key(i, key), NULL, fresh()), &err);
  }
  if (stage == 2)
    CHECK_OK_ERR(turb_delete_range(rows->c, cold_rows_key(RANGE_BEGIN, key), cold_rows_key(RANGE_END, end), NULL, fresh()), &err);
  if (stage == COLD_STAGES)
    return;
  CHECK_OK_ERR(turb_flush(rows->db, rows->c, fresh()), &err);
  CHECK_OK_ERR(turb_snapshot_create(rows->db, &rows->snapshots[stage], fresh()), &err);
}

void cold_rows_begin(struct cold_rows *rows, uint64_t seed) {
  memset(rows, 0, sizeof *rows);
  test_allocator_init(&rows->allocator);
  turb_simulation_options disk = TURB_SIMULATION_OPTIONS_INIT;
  disk.seed = seed;
  disk.reorder_percent = 50;
  disk.short_percent = 5;
  CHECK_OK_ERR(turb_simulation_create(&disk, &rows->simulation, fresh()), &err);
  turb_options options = TURB_OPTIONS_INIT;
  options.backend = TURB_BACKEND_SIMULATED;
  options.simulation = rows->simulation;
  options.allocator = &rows->allocator.base;
  options.memory_budget_bytes = 16u << 20;
  options.worker_threads = -1;
  options.durability = TURB_LOGGED;
  CHECK_OK_ERR(turb_open("/db", &options, &rows->db, fresh()), &err);
  turb_collection_options shape = TURB_COLLECTION_OPTIONS_INIT;
  shape.dimension = COLD_DIMENSION;
  CHECK_OK_ERR(turb_collection_create(rows->db, "c", &shape, &rows->c, fresh()), &err);
  for (uint32_t stage = 1; stage <= COLD_STAGES; stage++)
    play(rows, stage);
}

void cold_rows_end(struct cold_rows *rows) {
  for (uint32_t stage = 1; stage < COLD_STAGES; stage++)
    turb_snapshot_release(rows->snapshots[stage]);
  CHECK_OK_ERR(turb_close(rows->db, fresh()), &err);
  turb_simulation_free(rows->simulation);
  test_allocator_check_empty(&rows->allocator);
}

void cold_rows_chill(struct cold_rows *rows) {
  const struct version *version = rows->c->version;
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
  while (count < SCRIBBLES && cache_memory_take(rows->db->cache, SLOT_PAGE_BYTES, UNIT_KEYS, true, &pages[count]))
    memset(pages[count++].data, 0xdd, SLOT_PAGE_BYTES);
  while (count != 0)
    cache_memory_give(rows->db->cache, &pages[--count]);
  struct budget *budget = &rows->db->budget;
  const uint64_t all = budget_limit(budget) - budget_used(budget) + budget_used_for(budget, BUDGET_CACHE);
  if (budget_take(budget, BUDGET_JOB, all))
    budget_give(budget, BUDGET_JOB, all);
}

void cold_rows_wait(turb_iterator *it) {
  CHECK_OK_ERR(reads_wait(&((struct iterator *)it)->reads, fresh()), &err);
}
