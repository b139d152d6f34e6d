/* The databases of bench/pending (pending.h). */
#include "bench/pending.h"

turb_db *pending_open(const char *path, uint64_t budget_bytes, uint32_t row_bytes, turb_collection **rows) {
  turb_error error = TURB_ERROR_INIT;
  turb_options options = TURB_OPTIONS_INIT;
  options.memory_budget_bytes = budget_bytes;
  options.table_bytes = 4096 * MEBIBYTE; /* one file */
  options.ring_entries = 1024;
  options.size_ratio = 64; /* nothing merges by itself */
  options.max_space_amplification_percent = 1000;
  turb_db *db;
  bench_check(turb_open(path, &options, &db, &error), &error);
  turb_status status = turb_collection_open(db, "rows", rows, &error);
  if (status == TURB_NOT_FOUND) {
    turb_collection_options collection = TURB_COLLECTION_OPTIONS_INIT;
    collection.dimension = row_bytes / (uint32_t)sizeof(float);
    error = (turb_error)TURB_ERROR_INIT;
    status = turb_collection_create(db, "rows", &collection, rows, &error);
  }
  bench_check(status, &error);
  return db;
}

void pending_put(turb_db *db, turb_collection *rows, uint32_t count, uint32_t row_bytes) {
  turb_error error = TURB_ERROR_INIT;
  turb_write_options options = TURB_WRITE_OPTIONS_INIT;
  options.durability = TURB_UNLOGGED;
  uint8_t key[KEY_BYTES];
  for (uint32_t i = 0; i < count; i++) {
    work_key(i, true, key);
    bench_check(turb_put(rows, (turb_bytes){key, KEY_BYTES}, (turb_bytes){work_row(i, row_bytes), row_bytes}, TURB_NONE, &options, &error),
                &error);
  }
  bench_check(turb_compact(db, rows, &error), &error);
}

void *pending_argument(const void *argument) {
  return (void *)(uintptr_t)argument;
}
