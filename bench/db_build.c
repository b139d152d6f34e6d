/* The contenders, and compacted databases to read from (db_cases.h). Entries are put in the order of their keys, which every engine takes
 * fastest, without a log. */
#include <stdlib.h>
#include <string.h>

#include "bench/db_cases.h"

const struct contender contender_turbidite = {&engine_turbidite, 0, "turbidite"};
const struct contender contender_lmdb = {&engine_lmdb, 0, "lmdb"};
const struct contender contender_rocksdb = {&engine_rocksdb, 0, "rocksdb"};
const struct contender contender_rocksdb_large = {&engine_rocksdb, ROCKSDB_LARGE_BLOCKS, "rocksdb-32k-blocks"};
const struct contender contender_rocksdb_hash = {&engine_rocksdb, ROCKSDB_HASH_INDEX, "rocksdb-hash-index"};
const struct contender contender_rocksdb_universal = {&engine_rocksdb, ROCKSDB_LARGE_BLOCKS | ROCKSDB_UNIVERSAL,
                                                      "rocksdb-universal-32k-blocks"};
const struct contender contender_rocksdb_pipelined = {&engine_rocksdb, ROCKSDB_PIPELINED, "rocksdb-pipelined"};

#define DATABASES_MAX 16

struct built {
  const struct contender *contender;
  struct shape shape;
  char *path;
};

static struct built built[DATABASES_MAX];
static size_t built_count;

static void *begin(const void *argument) {
  return (void *)(uintptr_t)argument;
}

static void build(void *state, uint32_t round, struct sample *sample) {
  const struct built *what = state;
  const struct engine *engine = what->contender->engine;
  const struct engine_options options = {.path = what->path,
                                         .row_bytes = shape_row_bytes(&what->shape),
                                         .cache_bytes = UINT64_C(512) << 20,
                                         .memtable_bytes = UINT64_C(64) << 20,
                                         .durability = UNLOGGED,
                                         .variant = what->contender->variant};
  (void)round;
  void *db = engine->open(&options);
  uint32_t *order = work_sorted(what->shape.rows);
  uint8_t key[KEY_BYTES];
  struct meter meter;
  meter_start(&meter);
  for (uint32_t i = 0; i < what->shape.rows; i++) {
    work_key(order[i], false, key);
    engine->put(db, key, work_row(order[i], options.row_bytes));
  }
  engine->compact(db);
  meter_stop(&meter, what->shape.rows, sample);
  free(order);
  engine->close(db);
}

const char *database_of(const struct bench_options *bench, const struct contender *contender, const struct shape *shape) {
  for (size_t i = 0; i < built_count; i++)
    if (built[i].contender == contender && !memcmp(&built[i].shape, shape, sizeof *shape))
      return built[i].path;
  if (built_count == DATABASES_MAX)
    bench_fail("more than %d databases", DATABASES_MAX);
  struct built *what = &built[built_count++];
  what->contender = contender;
  what->shape = *shape;
  what->path = path_join(bench->folder, "%s-%u-%u", contender->name, shape->dimension, shape->rows);
  const struct worker_job job = {begin, build, NULL, what};
  struct sample sample;
  worker_run(&job, 0, &sample);
  bench_say("built %s: %u rows of %u floats in %.1f s", contender->name, shape->rows, shape->dimension, sample.seconds);
  return what->path;
}

void database_drop_all(void) {
  for (size_t i = 0; i < built_count; i++) {
    folder_remove(built[i].path);
    free(built[i].path);
  }
  built_count = 0;
}
