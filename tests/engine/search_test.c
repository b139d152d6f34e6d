/* Searches against brute force: what a collection holds in memtables and runs, with overwrites, deletes, range deletes, snapshots and every option. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "tests/engine/search_model.h"
#include "tests/support/allocator.h"

static turb_error err = TURB_ERROR_INIT;

static turb_options small_options(void) {
  turb_options options = TURB_OPTIONS_INIT;
  options.memory_budget_bytes = 16u << 20;
  options.memtable_bytes = 256u << 10;
  options.worker_threads = -1;
  return options;
}

static void run_model(turb_type type, turb_metric metric, uint32_t dimension, turb_compression compression, uint64_t steps) {
  static uint64_t round;
  struct model m;
  char folder[64];
  const turb_options options = small_options();
  turb_collection_options shape = TURB_COLLECTION_OPTIONS_INIT;
  shape.type = type;
  shape.metric = metric;
  shape.dimension = dimension;
  shape.compression = compression;
  (void)snprintf(folder, sizeof folder, "db%llu", (unsigned long long)round);
  model_open(&m, test_path(test_tmpdir(), folder), &options, &shape, test_seed() + round++);
  for (uint64_t i = 0; i < steps; i++) {
    model_step(&m);
    if (i % 8 == 0)
      model_check_search(&m);
  }
  model_close(&m);
}

TEST(search, every_type_and_metric_against_brute_force) {
  static const turb_type types[] = {TURB_F32, TURB_F16, TURB_BF16, TURB_I8, TURB_U8};
  static const turb_metric metrics[] = {TURB_L2, TURB_INNER_PRODUCT, TURB_COSINE, TURB_MANHATTAN};
  const uint64_t steps = test_scale(300, 200, 6000);
  for (size_t t = 0; t < 5; t++)
    for (size_t i = 0; i < 4; i++)
      run_model(types[t], metrics[i], 5 + (uint32_t)(t * 4 + i), TURB_COMPRESSION_NONE, steps);
  run_model(TURB_BITS, TURB_HAMMING, 13, TURB_COMPRESSION_NONE, steps);
  run_model(TURB_BITS, TURB_HAMMING, 64, TURB_COMPRESSION_NONE, steps);
}

TEST(search, compressed_collections) {
  const uint64_t steps = test_scale(300, 200, 4000);
  run_model(TURB_F32, TURB_L2, 24, TURB_COMPRESSION_ZSTD, steps);
  run_model(TURB_U8, TURB_L2, 200, TURB_COMPRESSION_ZSTD, steps);
}

TEST(search, long_runs_of_operations) {
  run_model(TURB_F32, TURB_L2, 16, TURB_COMPRESSION_NONE, test_scale(4000, 1000, 60000));
  run_model(TURB_U8, TURB_L2, 784, TURB_COMPRESSION_NONE, test_scale(2000, 500, 20000));
}

/* ---- a larger collection: several extents and tables, cold and warm ---- */

#define MANY 6000u

static turb_bytes number_key(uint32_t number, uint8_t key[4]) {
  key[0] = (uint8_t)(number >> 24);
  key[1] = (uint8_t)(number >> 16);
  key[2] = (uint8_t)(number >> 8);
  key[3] = (uint8_t)number;
  return (turb_bytes){key, 4};
}

static uint32_t number_of(turb_bytes key) {
  const uint8_t *k = key.data;
  return (uint32_t)k[0] << 24 | (uint32_t)k[1] << 16 | (uint32_t)k[2] << 8 | k[3];
}

/* Row i lies at distance i * i from the query 0, in an order that has nothing to do with keys. */
static void fill_many(turb_collection *c, turb_db *db, uint32_t dimension) {
  float *row = calloc(dimension, sizeof *row);
  uint8_t key[4];
  turb_write_options options = TURB_WRITE_OPTIONS_INIT;
  options.durability = TURB_LOGGED;
  for (uint32_t i = 0; i < MANY; i++) {
    const uint32_t number = (uint32_t)((uint64_t)i * 2654435761u % MANY);
    row[number % dimension] = (float)((uint64_t)number * 7919 % MANY);
    CHECK_OK_ERR(turb_put(c, number_key(number, key), (turb_bytes){row, dimension * sizeof *row}, TURB_NONE, &options, &err), &err);
    row[number % dimension] = 0;
    if (i % 2500 == 2499)
      CHECK_OK_ERR(turb_flush(db, c, &err), &err);
  }
  free(row);
}

static void check_many(turb_collection *c, uint32_t dimension, uint32_t k, uint64_t streamed_bytes) {
  float *query = calloc(dimension, sizeof *query);
  turb_search_options o = TURB_SEARCH_OPTIONS_INIT;
  o.k = k;
  o.parts = TURB_ALL;
  turb_result *result;
  CHECK_OK_ERR(turb_search(c, (turb_bytes){query, dimension * sizeof *query}, &o, &result, &err), &err);
  CHECK_EQ(turb_result_count(result), k < MANY ? k : MANY);
  for (uint32_t i = 0; i < turb_result_count(result); i++) {
    const turb_hit *hit = turb_result_hit(result, i);
    const uint32_t number = number_of(hit->key);
    CHECK_EQ((uint64_t)number * 7919 % MANY, i); /* 7919 is prime: every distance once */
    CHECK(hit->distance == (float)i * (float)i);
    CHECK(((const float *)hit->vector.data)[number % dimension] == (float)i);
  }
  turb_costs costs = {.size = sizeof costs};
  CHECK_OK(turb_result_costs(result, &costs, NULL));
  CHECK_EQ(costs.distances, MANY);
  CHECK_EQ(costs.hidden, 0);
  CHECK_GE(costs.bytes_read, streamed_bytes);
  if (streamed_bytes)
    CHECK_GT(costs.rows_streamed, MANY / 2);
  turb_result_free(result);
  free(query);
}

static void many(turb_backend backend, turb_compression compression, uint32_t dimension) {
  turb_options options = small_options();
  options.backend = backend;
  options.table_bytes = 1u << 20;
  options.memory_budget_bytes = 48u << 20;
  turb_db *db;
  turb_collection *c;
  turb_collection_options shape = TURB_COLLECTION_OPTIONS_INIT;
  shape.dimension = dimension;
  shape.compression = compression;
  const char *path = test_tmpdir();
  turb_simulation *simulation = NULL;
  if (backend == TURB_BACKEND_SIMULATED) {
    turb_simulation_options disk = TURB_SIMULATION_OPTIONS_INIT;
    disk.seed = test_seed();
    disk.reorder_percent = disk.short_percent = 30;
    CHECK_OK_ERR(turb_simulation_create(&disk, &simulation, &err), &err);
    options.simulation = simulation;
    path = "/db";
  }
  CHECK_OK_ERR(turb_open(path, &options, &db, &err), &err);
  CHECK_OK_ERR(turb_collection_create(db, "c", &shape, &c, &err), &err);
  fill_many(c, db, dimension);
  check_many(c, dimension, 10, 0);
  CHECK_OK_ERR(turb_flush(db, c, &err), &err);
  CHECK_OK_ERR(turb_close(db, &err), &err);
  CHECK_OK_ERR(turb_open(path, &options, &db, &err), &err);
  CHECK_OK_ERR(turb_collection_open(db, "c", &c, &err), &err);
  const uint64_t bytes = compression == TURB_COMPRESSION_ZSTD ? 1 : (uint64_t)MANY / 2 * dimension * sizeof(float);
  check_many(c, dimension, 7, bytes);    /* cold */
  check_many(c, dimension, 2000, bytes); /* rows are not brought into the cache by a scan */
  CHECK_OK_ERR(turb_compact(db, c, &err), &err);
  check_many(c, dimension, MANY + 5, 0);
  /* Some frames resident, islands of all lengths. */
  uint8_t key[4];
  turb_pinned pinned;
  for (uint32_t i = 0; i < MANY; i += i % 1000 < 500 ? 1 : 97) {
    CHECK_OK_ERR(turb_get_pinned(c, number_key(i, key), NULL, &pinned, &err), &err);
    turb_pinned_release(&pinned);
  }
  check_many(c, dimension, 100, 0);
  CHECK_OK_ERR(turb_close(db, &err), &err);
  turb_simulation_free(simulation);
}

TEST(search, cold_and_warm_on_a_real_disk) {
  many(TURB_BACKEND_AUTO, TURB_COMPRESSION_NONE, 100);
}

TEST(search, cold_and_warm_through_the_blocking_backend) {
  many(TURB_BACKEND_BLOCKING, TURB_COMPRESSION_NONE, 128);
}

TEST(search, cold_and_warm_on_a_simulated_disk) {
  many(TURB_BACKEND_SIMULATED, TURB_COMPRESSION_NONE, 100);
}

TEST(search, cold_and_warm_compressed) {
  many(TURB_BACKEND_SIMULATED, TURB_COMPRESSION_ZSTD, 64);
}

/* ---- errors ---- */

struct world {
  turb_simulation *simulation;
  turb_options options;
  turb_db *db;
  turb_collection *c;
};

static void world_open(struct world *w) {
  CHECK_OK_ERR(turb_open("/db", &w->options, &w->db, &err), &err);
  CHECK_OK_ERR(turb_collection_open(w->db, "c", &w->c, &err), &err);
}

static void world_create(struct world *w, uint32_t dimension) {
  turb_simulation_options disk = TURB_SIMULATION_OPTIONS_INIT;
  disk.seed = test_seed();
  disk.reorder_percent = 20;
  CHECK_OK_ERR(turb_simulation_create(&disk, &w->simulation, &err), &err);
  w->options = small_options();
  w->options.backend = TURB_BACKEND_SIMULATED;
  w->options.simulation = w->simulation;
  turb_collection_options shape = TURB_COLLECTION_OPTIONS_INIT;
  shape.dimension = dimension;
  CHECK_OK_ERR(turb_open("/db", &w->options, &w->db, &err), &err);
  CHECK_OK_ERR(turb_collection_create(w->db, "c", &shape, &w->c, &err), &err);
}

TEST(search, an_io_error_is_an_error_and_never_a_wrong_answer) {
  struct world w;
  world_create(&w, 128);
  fill_many(w.c, w.db, 128);
  CHECK_OK_ERR(turb_flush(w.db, w.c, &err), &err);
  CHECK_OK_ERR(turb_close(w.db, &err), &err);
  float query[128] = {0};
  turb_search_options o = TURB_SEARCH_OPTIONS_INIT;
  o.parts = TURB_ALL;
  uint64_t failures = 0;
  for (uint64_t at = 1;; at += test_scale(7, 17, 1)) {
    world_open(&w);
    const uint64_t begin = turb_simulation_operations(w.simulation);
    turb_simulation_fail_at(w.simulation, begin + at, EIO);
    turb_result *result;
    turb_error why = TURB_ERROR_INIT;
    const turb_status status = turb_search(w.c, (turb_bytes){query, sizeof query}, &o, &result, &why);
    const uint64_t used = turb_simulation_operations(w.simulation) - begin;
    turb_simulation_fail_at(w.simulation, 0, 0);
    if (status == TURB_OK) {
      CHECK_EQ(turb_result_count(result), 10);
      for (uint32_t i = 0; i < 10; i++)
        CHECK_EQ((uint64_t)number_of(turb_result_hit(result, i)->key) * 7919 % MANY, i);
      turb_result_free(result);
    } else {
      failures++;
      CHECK_EQ(status, TURB_IO);
      CHECK(result == NULL);
      CHECK(why.file[0] != '\0');
    }
    check_many(w.c, 128, 20, 0); /* the next one is as good as ever */
    CHECK_OK_ERR(turb_close(w.db, &err), &err);
    if (used < at)
      break;
  }
  CHECK_GT(failures, 3);
  turb_simulation_free(w.simulation);
}

static void find_table(void *context, const char *path, uint64_t size) {
  struct {
    char path[256];
    uint64_t size;
  } *found = context;
  if (!found->size && strstr(path, ".tbl")) {
    (void)snprintf(found->path, sizeof found->path, "%s", path);
    found->size = size;
  }
}

TEST(search, damaged_rows_are_an_error_that_names_file_and_offset) {
  struct world w;
  world_create(&w, 128);
  fill_many(w.c, w.db, 128);
  CHECK_OK_ERR(turb_flush(w.db, w.c, &err), &err);
  CHECK_OK_ERR(turb_close(w.db, &err), &err);
  struct {
    char path[256];
    uint64_t size;
  } found = {"", 0};
  turb_simulation_list(w.simulation, find_table, &found);
  CHECK_GT(found.size, 0);
  CHECK_OK_ERR(turb_simulation_flip_bit(w.simulation, found.path, 4096 + 512 * 100 + 3, 2, &err), &err);
  world_open(&w);
  float query[128] = {0};
  turb_result *result;
  turb_error why = TURB_ERROR_INIT;
  CHECK_STATUS(turb_search(w.c, (turb_bytes){query, sizeof query}, NULL, &result, &why), TURB_CORRUPTION);
  CHECK(result == NULL);
  CHECK(test_contains(why.file, strrchr(found.path, '/')));
  CHECK_LE(why.offset, 4096 + 512 * 100 + 3);
  CHECK_OK_ERR(turb_close(w.db, &err), &err);
  turb_simulation_free(w.simulation);
}

TEST(search, what_is_asked_is_checked) {
  turb_options options = small_options();
  turb_db *db, *other_db;
  turb_collection *c;
  turb_collection_options shape = TURB_COLLECTION_OPTIONS_INIT;
  shape.dimension = 3;
  CHECK_OK_ERR(turb_open(test_path(test_tmpdir(), "one"), &options, &db, &err), &err);
  CHECK_OK_ERR(turb_open(test_path(test_tmpdir(), "two"), &options, &other_db, &err), &err);
  CHECK_OK_ERR(turb_collection_create(db, "c", &shape, &c, &err), &err);
  turb_result *result = (turb_result *)&options, *results[2] = {result, result};
  float query[6] = {1, 2, 3, 4, NAN, 6};
  const turb_bytes good = {query, 12};
  turb_error why = TURB_ERROR_INIT;
  CHECK_STATUS(turb_search(c, (turb_bytes){query, 8}, NULL, &result, &why), TURB_INVALID);
  CHECK(result == NULL);
  CHECK(test_contains(why.message, "8 bytes"));
  CHECK_STATUS(turb_search(c, (turb_bytes){query + 3, 12}, NULL, &result, NULL), TURB_INVALID);
  why = (turb_error)TURB_ERROR_INIT;
  CHECK_STATUS(turb_search_batch(c, 2, query, NULL, results, &why), TURB_INVALID);
  CHECK(results[0] == NULL && results[1] == NULL);
  CHECK(test_contains(why.message, "query 1") && test_contains(why.message, "component 1"));
  turb_search_options o = TURB_SEARCH_OPTIONS_INIT;
  o.k = (1u << 20) + 1;
  CHECK_STATUS(turb_search(c, good, &o, &result, NULL), TURB_INVALID);
  o.k = 1u << 20;
  CHECK_OK_ERR(turb_search(c, good, &o, &result, &err), &err);
  CHECK_EQ(turb_result_count(result), 0);
  CHECK(turb_result_hit(result, 0) == NULL);
  CHECK_STATUS(turb_close(db, NULL), TURB_BUSY);
  turb_result_free(result);
  turb_result_free(NULL);
  o.parts = 8;
  CHECK_STATUS(turb_search(c, good, &o, &result, NULL), TURB_INVALID);
  o.parts = 0;
  o.mode = (turb_search_mode)7;
  CHECK_STATUS(turb_search(c, good, &o, &result, NULL), TURB_INVALID);
  o.mode = TURB_SEARCH_EXACT;
  o.has_radius = true;
  o.radius = NAN;
  CHECK_STATUS(turb_search(c, good, &o, &result, NULL), TURB_INVALID);
  o.has_radius = false;
  o.lower = (turb_bytes){query, TURB_MAX_KEY_BYTES + 1};
  CHECK_STATUS(turb_search(c, good, &o, &result, NULL), TURB_TOO_LARGE);
  o.lower = TURB_NONE;
  turb_snapshot *snapshot;
  CHECK_OK_ERR(turb_snapshot_create(other_db, &snapshot, &err), &err);
  o.snapshot = snapshot;
  CHECK_STATUS(turb_search(c, good, &o, &result, NULL), TURB_INVALID);
  turb_snapshot_release(snapshot);
  CHECK_OK_ERR(turb_search_batch(c, 0, NULL, NULL, NULL, &err), &err);
  CHECK_OK_ERR(turb_collection_drop(db, "c", &err), &err);
  CHECK_STATUS(turb_search(c, good, NULL, &result, NULL), TURB_NOT_FOUND);
  CHECK_OK_ERR(turb_close(db, &err), &err);
  CHECK_OK_ERR(turb_close(other_db, &err), &err);
}

/* ---- ties, filters, memory ---- */

TEST(search, ties_go_by_key_over_all_runs) {
  turb_options options = small_options();
  turb_db *db;
  turb_collection *c;
  turb_collection_options shape = TURB_COLLECTION_OPTIONS_INIT;
  shape.dimension = 8;
  shape.type = TURB_BITS;
  CHECK_OK_ERR(turb_open(test_tmpdir(), &options, &db, &err), &err);
  CHECK_OK_ERR(turb_collection_create(db, "c", &shape, &c, &err), &err);
  uint8_t key[4];
  const uint8_t same = 0x5a;
  for (uint32_t i = 0; i < 900; i++) {
    const uint32_t number = i * 7 % 900;
    CHECK_OK_ERR(turb_put(c, number_key(number, key), (turb_bytes){&same, 1}, TURB_NONE, NULL, &err), &err);
    if (i % 250 == 249)
      CHECK_OK_ERR(turb_flush(db, c, &err), &err);
  }
  turb_search_options o = TURB_SEARCH_OPTIONS_INIT;
  for (o.k = 1; o.k < 1000; o.k = o.k * 3 + 1) {
    turb_result *result;
    CHECK_OK_ERR(turb_search(c, (turb_bytes){&same, 1}, &o, &result, &err), &err);
    CHECK_EQ(turb_result_count(result), o.k < 900 ? o.k : 900);
    for (uint32_t i = 0; i < turb_result_count(result); i++)
      CHECK_EQ(number_of(turb_result_hit(result, i)->key), i);
    turb_result_free(result);
  }
  CHECK_OK_ERR(turb_close(db, &err), &err);
}

struct asked {
  uint32_t count;
  uint32_t keep;
};

static bool keeps_multiples(void *context, turb_bytes key, uint64_t sequence) {
  struct asked *asked = context;
  asked->count++;
  CHECK_GT(sequence, 0);
  return number_of(key) % asked->keep == 0;
}

TEST(search, a_filter_is_asked_for_what_would_enter_alone) {
  turb_options options = small_options();
  turb_db *db;
  turb_collection *c;
  turb_collection_options shape = TURB_COLLECTION_OPTIONS_INIT;
  shape.dimension = 16;
  CHECK_OK_ERR(turb_open(test_tmpdir(), &options, &db, &err), &err);
  CHECK_OK_ERR(turb_collection_create(db, "c", &shape, &c, &err), &err);
  fill_many(c, db, 16);
  float query[16] = {0};
  struct asked asked = {0, 10};
  turb_search_options o = TURB_SEARCH_OPTIONS_INIT;
  o.k = 5;
  o.filter = keeps_multiples;
  o.filter_context = &asked;
  turb_result *result;
  CHECK_OK_ERR(turb_search(c, (turb_bytes){query, sizeof query}, &o, &result, &err), &err);
  CHECK_EQ(turb_result_count(result), 5);
  uint32_t found = 0;
  for (uint32_t i = 0; found < 5; i++) /* distances i in order: the key is i divided by 7919 */
    for (uint32_t number = 0; number < MANY; number += 10)
      if ((uint64_t)number * 7919 % MANY == i)
        CHECK_EQ(number_of(turb_result_hit(result, found++)->key), number);
  turb_costs costs = {.size = sizeof costs};
  CHECK_OK(turb_result_costs(result, &costs, NULL));
  CHECK_GT(asked.count, costs.filtered);
  CHECK_LT(asked.count, MANY / 4); /* (k / share) (1 + ln(rows share / k)) is about 285 */
  turb_result_free(result);
  CHECK_OK_ERR(turb_close(db, &err), &err);
}

TEST(search, memory_is_charged_and_given_back) {
  turb_options options = small_options();
  options.memory_budget_bytes = 8u << 20;
  turb_db *db;
  turb_collection *c;
  turb_collection_options shape = TURB_COLLECTION_OPTIONS_INIT;
  shape.dimension = 100;
  CHECK_OK_ERR(turb_open(test_tmpdir(), &options, &db, &err), &err);
  CHECK_OK_ERR(turb_collection_create(db, "c", &shape, &c, &err), &err);
  fill_many(c, db, 100);
  CHECK_OK_ERR(turb_flush(db, c, &err), &err);
  turb_stats before = {.size = sizeof before}, after = {.size = sizeof after};
  CHECK_OK_ERR(turb_get_stats(db, &before, &err), &err);
  const size_t count = 2000;
  float *queries = calloc(count * 100, sizeof *queries);
  turb_result **results = calloc(count, sizeof *results);
  turb_search_options o = TURB_SEARCH_OPTIONS_INIT;
  o.k = MANY;
  turb_error why = TURB_ERROR_INIT;
  CHECK_STATUS(turb_search_batch(c, count, queries, &o, results, &why), TURB_BUDGET);
  for (size_t i = 0; i < count; i++)
    CHECK(results[i] == NULL);
  check_many(c, 100, 100, 0); /* the rest goes on */
  CHECK_OK_ERR(turb_get_stats(db, &after, &err), &err);
  CHECK_LE(after.memory_used_bytes - after.cache_bytes, before.memory_used_bytes - before.cache_bytes);
  CHECK_LE(after.memory_peak_bytes, options.memory_budget_bytes);
  free(queries);
  free(results);
  CHECK_OK_ERR(turb_close(db, &err), &err);
}

/* Every allocation of a search on a database that was just opened fails once. */
TEST(search, without_memory) {
  struct world w;
  struct test_allocator allocator;
  world_create(&w, 128);
  fill_many(w.c, w.db, 128);
  CHECK_OK_ERR(turb_close(w.db, &err), &err);
  test_allocator_init(&allocator);
  w.options.allocator = &allocator.base;
  float queries[3 * 128] = {0};
  uint64_t failures = 0;
  for (uint64_t at = 1;; at += test_scale(3, 11, 1)) {
    turb_result *results[3];
    turb_search_options o = TURB_SEARCH_OPTIONS_INIT;
    o.parts = TURB_ALL;
    o.prefix = (turb_bytes){"\0", 1};
    world_open(&w);
    test_allocator_fail_at(&allocator, at);
    turb_error why = TURB_ERROR_INIT;
    const turb_status status = turb_search_batch(w.c, 3, queries, &o, results, &why);
    const bool failed = allocator.failed;
    test_allocator_fail_at(&allocator, 0);
    if (status == TURB_OK) {
      for (size_t i = 0; i < 3; i++) {
        CHECK_EQ(turb_result_count(results[i]), 10);
        for (uint32_t j = 0; j < 10; j++)
          CHECK_EQ((uint64_t)number_of(turb_result_hit(results[i], j)->key) * 7919 % MANY, j);
        turb_result_free(results[i]);
      }
    } else {
      failures++;
      CHECK_MSG(status == TURB_NO_MEMORY || status == TURB_BUDGET, "%s: %s", turb_status_name(status), why.message);
      CHECK(results[0] == NULL && results[1] == NULL && results[2] == NULL);
    }
    CHECK_OK_ERR(turb_close(w.db, &err), &err);
    test_allocator_check_empty(&allocator);
    if (!failed)
      break;
  }
  CHECK_GT(failures, 10);
  w.options.allocator = NULL;
  turb_simulation_free(w.simulation);
}
