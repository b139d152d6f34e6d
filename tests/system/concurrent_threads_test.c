/* Writers, readers, snapshots, flushes and merges at once. Each writer owns its keys, so every reader can tell whether what it sees is one
 * state of them. */
#include <pthread.h>
#include <stdatomic.h>

#include "tests/support/test.h"

#define DIMENSION 8
#define KEYS      64 /* a writer; one batch writes all of them with one value */

struct stage {
  turb_db *db;
  turb_collection *collection;
  _Atomic bool stop;
  _Atomic uint64_t rounds;
  uint64_t limit;
};

static void key_of(uint32_t writer, uint32_t i, uint8_t key[8]) {
  key[0] = (uint8_t)(i * 37); /* writers' keys interleave */
  key[1] = (uint8_t)i;
  key[2] = (uint8_t)writer;
  memset(key + 3, 7, 5);
}

static void *write_batches(void *context) {
  struct stage *stage = context;
  static _Atomic uint32_t next;
  const uint32_t writer = atomic_fetch_add(&next, 1);
  turb_error err = TURB_ERROR_INIT;
  turb_batch *batch;
  CHECK_OK_ERR(turb_batch_create(stage->db, &batch, &err), &err);
  for (uint64_t round = 1; round <= stage->limit; round++) {
    float vector[DIMENSION];
    for (int i = 0; i < DIMENSION; i++)
      vector[i] = (float)(round * 8 + (uint64_t)i);
    turb_batch_clear(batch);
    for (uint32_t i = 0; i < KEYS; i++) {
      uint8_t key[8];
      key_of(writer, i, key);
      CHECK_OK_ERR(turb_batch_put(batch, stage->collection, (turb_bytes){key, 8}, (turb_bytes){vector, sizeof vector},
                                  (turb_bytes){&round, 8}, &err),
                   &err);
    }
    turb_write_options options = TURB_WRITE_OPTIONS_INIT;
    options.durability = round % 16 ? TURB_LOGGED : TURB_DURABLE;
    CHECK_OK_ERR(turb_write(stage->db, batch, &options, &err), &err);
    atomic_fetch_add(&stage->rounds, 1);
  }
  turb_batch_free(batch);
  return NULL;
}

/* All keys of a writer have one value in one state. */
static void *read_states(void *context) {
  struct stage *stage = context;
  turb_error err = TURB_ERROR_INIT;
  while (!atomic_load(&stage->stop)) {
    turb_iterator *it;
    turb_iterator_options options = TURB_ITERATOR_OPTIONS_INIT;
    CHECK_OK_ERR(turb_iterator_open(stage->collection, &options, &it, &err), &err);
    uint64_t seen[16] = {0}, counts[16] = {0};
    for (turb_state s = turb_finish(it, turb_first(it)); s == TURB_READY; s = turb_next(it)) {
      const uint8_t *key = it->entry->key.data;
      uint64_t round;
      CHECK_EQ(it->entry->attributes.size, 8);
      memcpy(&round, it->entry->attributes.data, 8);
      CHECK_EQ((uint64_t)((const float *)it->entry->vector.data)[3], round * 8 + 3);
      if (!counts[key[2]]++)
        seen[key[2]] = round;
      CHECK_MSG(seen[key[2]] == round, "half a batch: rounds %llu and %llu", (unsigned long long)seen[key[2]], (unsigned long long)round);
    }
    CHECK_OK_ERR(turb_iterator_status(it, &err), &err);
    turb_iterator_close(it);
    for (int w = 0; w < 16; w++)
      CHECK(counts[w] == 0 || counts[w] == KEYS);
  }
  return NULL;
}

static void *read_points(void *context) {
  struct stage *stage = context;
  turb_error err = TURB_ERROR_INIT;
  uint32_t n = 0;
  while (!atomic_load(&stage->stop)) {
    turb_snapshot *snapshot;
    CHECK_OK_ERR(turb_snapshot_create(stage->db, &snapshot, &err), &err);
    turb_read_options options = TURB_READ_OPTIONS_INIT;
    options.snapshot = snapshot;
    uint64_t first = 0;
    for (uint32_t i = 0; i < 8; i++, n++) {
      uint8_t key[8];
      key_of(0, n % KEYS, key);
      turb_pinned pinned;
      err = (turb_error)TURB_ERROR_INIT;
      const turb_status status = turb_get_pinned(stage->collection, (turb_bytes){key, 8}, &options, &pinned, &err);
      if (status == TURB_NOT_FOUND) {
        CHECK_EQ(first, 0);
        continue;
      }
      CHECK_OK_ERR(status, &err);
      uint64_t round;
      memcpy(&round, pinned.attributes.data, 8);
      if (!first)
        first = round;
      CHECK_EQ(round, first);
      turb_pinned_release(&pinned);
    }
    turb_snapshot_release(snapshot);
  }
  return NULL;
}

static void *care(void *context) {
  struct stage *stage = context;
  turb_error err = TURB_ERROR_INIT;
  for (int n = 0; !atomic_load(&stage->stop); n++) {
    CHECK_OK_ERR(turb_flush(stage->db, NULL, &err), &err);
    if (n % 4 == 3) {
      const turb_status status = turb_compact(stage->db, stage->collection, &err);
      CHECK(status == TURB_OK || status == TURB_CANCELLED);
      err = (turb_error)TURB_ERROR_INIT;
    }
    if (n % 7 == 5)
      CHECK_OK_ERR(turb_cancel(stage->db, 0, &err), &err);
  }
  return NULL;
}

static void run(int32_t workers) {
  struct stage stage = {.limit = test_scale(60, 40, 800)};
  static char path[512];
  (void)snprintf(path, sizeof path, "%s/db", test_tmpdir());
  turb_options options = TURB_OPTIONS_INIT;
  options.memory_budget_bytes = 32 << 20;
  options.memtable_bytes = 256 << 10;
  options.table_bytes = 128 << 10;
  options.worker_threads = workers;
  turb_error err = TURB_ERROR_INIT;
  CHECK_OK_ERR(turb_open(path, &options, &stage.db, &err), &err);
  turb_collection_options shape = TURB_COLLECTION_OPTIONS_INIT;
  shape.dimension = DIMENSION;
  CHECK_OK_ERR(turb_collection_create(stage.db, "c", &shape, &stage.collection, &err), &err);
  pthread_t writers[3], others[4];
  for (int i = 0; i < 3; i++)
    CHECK_EQ(pthread_create(&writers[i], NULL, write_batches, &stage), 0);
  CHECK_EQ(pthread_create(&others[0], NULL, read_states, &stage), 0);
  CHECK_EQ(pthread_create(&others[1], NULL, read_states, &stage), 0);
  CHECK_EQ(pthread_create(&others[2], NULL, read_points, &stage), 0);
  CHECK_EQ(pthread_create(&others[3], NULL, care, &stage), 0);
  for (int i = 0; i < 3; i++)
    CHECK_EQ(pthread_join(writers[i], NULL), 0);
  atomic_store(&stage.stop, true);
  for (int i = 0; i < 4; i++)
    CHECK_EQ(pthread_join(others[i], NULL), 0);
  CHECK_EQ(atomic_load(&stage.rounds), 3 * stage.limit);
  CHECK_OK_ERR(turb_wait_idle(stage.db, 60000, &err), &err);
  CHECK_OK_ERR(turb_close(stage.db, &err), &err);
}

TEST(concurrent, with_two_workers) {
  run(2);
}
TEST(concurrent, without_workers) {
  run(-1);
}
