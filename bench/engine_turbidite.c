/* turbidite as a contestant (engine.h). */
#include <stdlib.h>

#include "bench/engine.h"
#include "turbidite/turbidite.h"

struct ours {
  turb_db *db;
  turb_collection *rows;
  uint32_t row_bytes;
};

static const turb_durability durabilities[] = {[DURABLE] = TURB_DURABLE, [LOGGED] = TURB_LOGGED, [UNLOGGED] = TURB_UNLOGGED};

static void *open_ours(const struct engine_options *given) {
  struct ours *ours = bench_alloc(sizeof *ours);
  turb_error error = TURB_ERROR_INIT;
  turb_options options = TURB_OPTIONS_INIT;
  options.durability = durabilities[given->durability];
  options.memory_budget_bytes = given->cache_bytes;
  options.memtable_bytes = given->memtable_bytes;
  ours->row_bytes = given->row_bytes;
  bench_check(turb_open(given->path, &options, &ours->db, &error), &error);
  turb_status status = turb_collection_open(ours->db, "rows", &ours->rows, &error);
  if (status == TURB_NOT_FOUND) {
    turb_collection_options collection = TURB_COLLECTION_OPTIONS_INIT;
    collection.dimension = given->row_bytes / 4;
    error = (turb_error)TURB_ERROR_INIT;
    status = turb_collection_create(ours->db, "rows", &collection, &ours->rows, &error);
  }
  bench_check(status, &error);
  return ours;
}

static void close_ours(void *db) {
  struct ours *ours = db;
  turb_error error = TURB_ERROR_INIT;
  bench_check(turb_close(ours->db, &error), &error);
  free(ours);
}

static void put(void *db, const uint8_t *key, const void *row) {
  const struct ours *ours = db;
  turb_error error;
  error.status = TURB_OK;
  bench_check(turb_put(ours->rows, (turb_bytes){key, KEY_BYTES}, (turb_bytes){row, ours->row_bytes}, TURB_NONE, NULL, &error), &error);
}

static bool get(void *db, const uint8_t *key, void *row) {
  const struct ours *ours = db;
  turb_error error;
  error.status = TURB_OK;
  const turb_status status = turb_get(ours->rows, (turb_bytes){key, KEY_BYTES}, NULL, row, NULL, 0, NULL, NULL, &error);
  if (status != TURB_NOT_FOUND)
    bench_check(status, &error);
  return status == TURB_OK;
}

#define MULTI_MAX 256

static size_t multi_get(void *db, size_t count, uint8_t (*keys)[KEY_BYTES], uint64_t *touched) {
  const struct ours *ours = db;
  turb_bytes names[MULTI_MAX];
  turb_pinned pinned[MULTI_MAX];
  turb_status statuses[MULTI_MAX];
  turb_error error = TURB_ERROR_INIT;
  if (!count || count > MULTI_MAX)
    return 0;
  for (size_t i = 0; i < count; i++)
    names[i] = (turb_bytes){keys[i], KEY_BYTES};
  bench_check(turb_multi_get(ours->rows, count, names, NULL, pinned, statuses, &error), &error);
  size_t found = 0;
  for (size_t i = 0; i < count; i++) {
    if (statuses[i] == TURB_NOT_FOUND)
      continue;
    bench_check(statuses[i], &error);
    *touched += touch(pinned[i].vector.data, ours->row_bytes);
    turb_pinned_release(&pinned[i]);
    found++;
  }
  return found;
}

static uint64_t scan(void *db, bool backward, uint64_t *touched) {
  const struct ours *ours = db;
  turb_error error = TURB_ERROR_INIT;
  turb_iterator_options options = TURB_ITERATOR_OPTIONS_INIT;
  options.parts = TURB_KEY | TURB_VECTOR;
  turb_iterator *it;
  bench_check(turb_iterator_open(ours->rows, &options, &it, &error), &error);
  uint64_t count = 0, sum = 0;
  turb_state state = turb_finish(it, backward ? turb_last(it) : turb_first(it));
  for (; state == TURB_READY; state = backward ? turb_prev(it) : turb_next(it)) {
    const turb_entry *entry = it->entry;
    sum += ((const uint8_t *)entry->key.data)[KEY_BYTES - 1] + touch(entry->vector.data, entry->vector.size);
    count++;
  }
  bench_check(turb_iterator_status(it, &error), &error);
  turb_iterator_close(it);
  *touched += sum;
  return count;
}

static size_t seek(void *db, size_t count, uint8_t (*keys)[KEY_BYTES], uint64_t *touched) {
  const struct ours *ours = db;
  turb_error error = TURB_ERROR_INIT;
  turb_iterator_options options = TURB_ITERATOR_OPTIONS_INIT;
  options.parts = TURB_KEY | TURB_VECTOR;
  turb_iterator *it;
  bench_check(turb_iterator_open(ours->rows, &options, &it, &error), &error);
  size_t found = 0;
  for (size_t i = 0; i < count; i++) {
    if (turb_finish(it, turb_seek(it, (turb_bytes){keys[i], KEY_BYTES})) != TURB_READY)
      continue;
    *touched += touch(it->entry->vector.data, it->entry->vector.size);
    found++;
  }
  turb_iterator_close(it);
  return found;
}

static void compact(void *db) {
  const struct ours *ours = db;
  turb_error error = TURB_ERROR_INIT;
  bench_check(turb_compact(ours->db, ours->rows, &error), &error);
}

static double table_bytes(void *db, double user_bytes, double entries) {
  const struct ours *ours = db;
  turb_error error = TURB_ERROR_INIT;
  turb_stats stats = {.size = sizeof stats};
  bench_check(turb_get_stats(ours->db, &stats, &error), &error);
  (void)user_bytes;
  (void)entries;
  return (double)(stats.flush_bytes_written + stats.merge_bytes_written);
}

static void warm_index(void *db) {
  const struct ours *ours = db;
  turb_error error = TURB_ERROR_INIT;
  turb_iterator_options options = TURB_ITERATOR_OPTIONS_INIT;
  options.parts = TURB_KEY;
  turb_iterator *it;
  bench_check(turb_iterator_open(ours->rows, &options, &it, &error), &error);
  turb_state state = turb_finish(it, turb_first(it));
  while (state == TURB_READY)
    state = turb_next(it);
  bench_check(turb_iterator_status(it, &error), &error);
  turb_iterator_close(it);
}

const struct engine engine_turbidite = {.name = "turbidite",
                                        .open = open_ours,
                                        .close = close_ours,
                                        .put = put,
                                        .get = get,
                                        .multi_get = multi_get,
                                        .scan = scan,
                                        .seek = seek,
                                        .compact = compact,
                                        .table_bytes = table_bytes,
                                        .warm_index = warm_index};
