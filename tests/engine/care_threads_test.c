/* Checkpoints, verify, statistics and searches while another thread writes and workers flush and merge. */
#include <stdatomic.h>
#include <unistd.h>

#include "base/thread.h"
#include "tests/support/test.h"

#define DIMENSION 32u

struct writing {
  turb_collection *collection;
  _Atomic uint32_t acknowledged; /* keys below are there */
  _Atomic uint32_t allowed;      /* it waits here, so that merges keep up */
  _Atomic bool stop;
  turb_status status;
};

static turb_bytes key_of(uint32_t number, uint8_t key[4]) {
  key[0] = (uint8_t)(number >> 24);
  key[1] = (uint8_t)(number >> 16);
  key[2] = (uint8_t)(number >> 8);
  key[3] = (uint8_t)number;
  return (turb_bytes){key, 4};
}

/* Key i at i; some are put again at i + 0.5 when later keys are there, so that runs hide each other's rows. */
static void write_on(void *context) {
  struct writing *w = context;
  float row[DIMENSION] = {0};
  uint8_t key[4];
  turb_write_options options = TURB_WRITE_OPTIONS_INIT;
  for (uint32_t i = 0; !atomic_load(&w->stop) && w->status == TURB_OK; i++) {
    options.durability = i % 5 == 0 ? TURB_UNLOGGED : TURB_LOGGED;
    row[0] = (float)i;
    w->status = turb_put(w->collection, key_of(i, key), (turb_bytes){row, sizeof row}, TURB_NONE, &options, NULL);
    const uint32_t again = i * 3 / 4;
    row[0] = (float)again + 0.5f;
    if (w->status == TURB_OK && i % 3 == 0)
      w->status = turb_put(w->collection, key_of(again, key), (turb_bytes){row, sizeof row}, TURB_NONE, &options, NULL);
    atomic_store(&w->acknowledged, i + 1);
    while (i + 1 >= atomic_load(&w->allowed) && !atomic_load(&w->stop))
      (void)usleep(1000);
  }
}

/* The nearest to key `number` is that key, once. */
static void check_search(turb_collection *c, uint32_t number) {
  turb_error err = TURB_ERROR_INIT;
  const float query[DIMENSION] = {(float)number + 0.25f};
  turb_search_options options = TURB_SEARCH_OPTIONS_INIT;
  options.k = 2;
  options.parts = TURB_VECTOR;
  turb_result *result;
  CHECK_OK_ERR(turb_search(c, (turb_bytes){query, sizeof query}, &options, &result, &err), &err);
  CHECK_EQ(turb_result_count(result), 2);
  uint8_t key[4];
  CHECK_MEM_EQ(turb_result_hit(result, 0)->key.data, key_of(number, key).data, 4);
  CHECK(memcmp(turb_result_hit(result, 1)->key.data, key, 4) != 0);
  const float *value = turb_result_hit(result, 0)->vector.data;
  CHECK(value[0] == (float)number || value[0] == (float)number + 0.5f);
  turb_result_free(result);
}

static void check_copy(const char *path, const turb_options *options, uint32_t keys) {
  turb_error err = TURB_ERROR_INIT;
  turb_db *db;
  turb_collection *c;
  CHECK_OK_ERR(turb_open(path, options, &db, &err), &err);
  CHECK_OK_ERR(turb_collection_open(db, "c", &c, &err), &err);
  CHECK_OK_ERR(turb_verify(db, NULL, NULL, NULL, &err), &err);
  uint8_t key[4];
  float row[DIMENSION];
  for (uint32_t i = 0; i < keys; i++)
    CHECK_OK_ERR(turb_get(c, key_of(i, key), NULL, row, NULL, 0, NULL, NULL, &err), &err);
  CHECK_OK_ERR(turb_close(db, &err), &err);
}

TEST(care_threads, everything_at_once) {
  turb_error err = TURB_ERROR_INIT;
  turb_options options = TURB_OPTIONS_INIT;
  options.memory_budget_bytes = 64u << 20;
  options.memtable_bytes = 256u << 10;
  options.worker_threads = 2;
  const char *folder = test_tmpdir();
  turb_db *db;
  struct writing w = {.allowed = 3000};
  turb_collection_options shape = TURB_COLLECTION_OPTIONS_INIT;
  shape.dimension = DIMENSION;
  CHECK_OK_ERR(turb_open(test_path(folder, "db"), &options, &db, &err), &err);
  CHECK_OK_ERR(turb_collection_create(db, "c", &shape, &w.collection, &err), &err);
  struct thread thread = {0};
  CHECK_OK_ERR(thread_start(&thread, "writer", write_on, &w, &err), &err);
  uint32_t keys[64];
  const uint32_t rounds = (uint32_t)test_scale(4, 3, 40);
  char path[256];
  for (uint32_t round = 0; round < rounds; round++) {
    atomic_store(&w.allowed, 1500 * (round + 3));
    while (atomic_load(&w.acknowledged) < 1500 * (round + 1)) {
      const uint32_t known = atomic_load(&w.acknowledged);
      if (known > 10)
        check_search(w.collection, known / 2);
    }
    keys[round] = atomic_load(&w.acknowledged);
    (void)snprintf(path, sizeof path, "%s%u", test_path(folder, "copy"), round);
    CHECK_OK_ERR(turb_checkpoint(db, path, &err), &err);
    CHECK_OK_ERR(turb_verify(db, NULL, NULL, NULL, &err), &err);
    turb_stats stats = {.size = sizeof stats};
    CHECK_OK_ERR(turb_get_stats(db, &stats, &err), &err);
    CHECK_GE(stats.last_sequence, keys[round]);
  }
  atomic_store(&w.stop, true);
  thread_join(&thread);
  CHECK_OK(w.status);
  CHECK_OK_ERR(turb_close(db, &err), &err);
  for (uint32_t round = 0; round < rounds; round++) {
    (void)snprintf(path, sizeof path, "%s%u", test_path(folder, "copy"), round);
    check_copy(path, &options, keys[round]);
  }
}
