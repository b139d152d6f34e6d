/* The page cache under threads: readers, inserters, closing directories and takers of the budget at once. What a pin shows must stay what it is while
 * it is held. */
#include <stdlib.h>

#include "base/thread.h"
#include "sstable/cache.h"
#include "tests/support/allocator.h"
#include "tests/support/test.h"

enum { THREADS = 4, TABLES = 6, UNITS = 400, HELD = 6 };

struct shared {
  struct test_allocator allocator;
  struct budget budget;
  struct cache *cache;
  struct {
    pthread_rwlock_t lock; /* a directory is closed by one while no other uses it; pins outlive that */
    struct cache_directory directory;
    uint32_t generation;
  } tables[TABLES];
  uint64_t rounds;
};

struct worker {
  struct shared *shared;
  struct thread thread;
  uint64_t seed, hits;
};

static uint32_t unit_size(uint32_t unit) {
  static const uint32_t sizes[] = {4096, 8192, 32768, 16384};
  return sizes[unit % 4];
}

static enum unit_kind unit_kind_of(uint32_t unit) {
  static const enum unit_kind kinds[] = {UNIT_KEYS, UNIT_FILTER, UNIT_ROWS, UNIT_ATTRIBUTES};
  return kinds[unit % 4];
}

static void check_bytes(const struct cache_pin *pin, uint64_t label) {
  const uint64_t *words = pin->data;
  const size_t last = pin->size / sizeof *words - 1;
  CHECK_EQ(words[0], label);
  CHECK_EQ(words[last / 2], label);
  CHECK_EQ(words[last], label);
}

/* A pin on a unit, by the cache or by an insert. False when there is no memory. */
static bool get(struct worker *worker, size_t t, uint32_t unit, struct cache_pin *pin, uint64_t *label) {
  struct shared *shared = worker->shared;
  struct cache_directory *directory = &shared->tables[t].directory;
  *label = (uint64_t)shared->tables[t].generation << 40 | (uint64_t)t << 32 | unit;
  if (cache_pin(directory, unit, pin)) {
    worker->hits++;
    return true;
  }
  struct cache_memory memory;
  if (!cache_memory_take(shared->cache, unit_size(unit), unit_kind_of(unit), true, &memory)) {
    return false;
  }
  uint64_t *words = memory.data;
  const size_t last = unit_size(unit) / sizeof *words - 1;
  words[0] = words[last / 2] = words[last] = *label;
  if (unit % 7 == 0) {
    cache_keep(&memory, pin);
  } else {
    cache_insert(directory, unit, &memory, pin);
  }
  return true;
}

static void work(void *context) {
  struct worker *worker = context;
  struct shared *shared = worker->shared;
  struct random random;
  random_init(&random, worker->seed);
  struct {
    struct cache_pin pin;
    uint64_t label;
  } held[HELD] = {0};
  uint64_t taken = 0;
  for (uint64_t n = 0; n < shared->rounds; n++) {
    const size_t t = random_below(&random, TABLES), h = random_below(&random, HELD);
    const uint32_t unit = (uint32_t)(random_below(&random, UNITS) * random_below(&random, UNITS) / UNITS);
    if (held[h].pin.frame != NULL) {
      check_bytes(&held[h].pin, held[h].label);
      cache_unpin(&held[h].pin);
    }
    const uint64_t what = random_below(&random, 1000);
    if (what < 2) {
      (void)pthread_rwlock_wrlock(&shared->tables[t].lock);
      cache_directory_close(&shared->tables[t].directory);
      shared->tables[t].generation++;
      CHECK_OK(cache_directory_open(shared->cache, UNITS, &shared->tables[t].directory, NULL));
      (void)pthread_rwlock_unlock(&shared->tables[t].lock);
    } else if (what < 6) {
      budget_give(&shared->budget, BUDGET_JOB, taken);
      taken = random_below(&random, 1u << 20);
      if (!budget_take(&shared->budget, BUDGET_JOB, taken)) {
        taken = 0;
      }
    } else if (what == 6) {
      struct cache_stats stats;
      cache_get_stats(shared->cache, &stats);
      CHECK_LE(stats.pinned_frames, (THREADS * (HELD + 2)));
    } else {
      (void)pthread_rwlock_rdlock(&shared->tables[t].lock);
      if (get(worker, t, unit, &held[h].pin, &held[h].label)) {
        check_bytes(&held[h].pin, held[h].label);
      }
      (void)cache_admits(&shared->tables[t].directory, unit, 32768);
      (void)pthread_rwlock_unlock(&shared->tables[t].lock);
    }
    CHECK_LE(budget_used(&shared->budget), budget_limit(&shared->budget));
  }
  for (int h = 0; h < HELD; h++) {
    cache_unpin(&held[h].pin);
  }
  budget_give(&shared->budget, BUDGET_JOB, taken);
}

static void run(uint64_t limit, uint64_t rounds, uint64_t seed) {
  struct shared shared = {.rounds = rounds};
  struct worker workers[THREADS] = {0};
  test_allocator_init(&shared.allocator);
  budget_init(&shared.budget, limit);
  CHECK_OK(cache_create(&shared.allocator.base, &shared.budget, &shared.cache, NULL));
  for (int t = 0; t < TABLES; t++) {
    (void)pthread_rwlock_init(&shared.tables[t].lock, NULL);
    CHECK_OK(cache_directory_open(shared.cache, UNITS, &shared.tables[t].directory, NULL));
  }
  for (int i = 0; i < THREADS; i++) {
    workers[i].shared = &shared;
    workers[i].seed = seed + (uint64_t)i;
    CHECK_OK(thread_start(&workers[i].thread, "cache", work, &workers[i], NULL));
  }
  uint64_t hits = 0;
  for (int i = 0; i < THREADS; i++) {
    thread_join(&workers[i].thread);
    hits += workers[i].hits;
  }
  CHECK_GT(hits, rounds / 10);
  for (int t = 0; t < TABLES; t++) {
    cache_directory_close(&shared.tables[t].directory);
    (void)pthread_rwlock_destroy(&shared.tables[t].lock);
  }
  struct cache_stats stats;
  cache_get_stats(shared.cache, &stats);
  CHECK_EQ(stats.pinned_frames, 0);
  CHECK_EQ(stats.frames, 0);
  CHECK_EQ(stats.bytes, budget_used(&shared.budget));
  cache_destroy(shared.cache);
  CHECK_EQ(budget_used(&shared.budget), 0);
  test_allocator_check_empty(&shared.allocator);
}

TEST(cache_threads, a_small_cache) {
  run(2u << 20, test_scale(20000, 20000, 200000), test_seed());
}

TEST(cache_threads, a_large_cache_with_shards) {
  run(512u << 20, test_scale(20000, 20000, 200000), test_seed());
}
