/* The budget from several threads: the limit holds at every moment and nothing is lost. */
#include <stdatomic.h>

#include "base/budget.h"
#include "base/thread.h"
#include "tests/support/test.h"

#define THREADS 4
#define LIMIT   1000

struct shared {
  struct budget budget;
  _Atomic uint64_t held;   /* what the workers hold, counted after taking and before giving */
  _Atomic uint64_t cached; /* what the reclaimer may free */
  _Atomic uint64_t over;   /* times the limit was seen passed */
  uint64_t rounds;
  uint64_t seed;
};

struct worker {
  struct thread thread;
  struct shared *shared;
  uint64_t number;
};

static uint64_t reclaim(void *context, uint64_t bytes) {
  struct shared *shared = context;
  uint64_t cached = atomic_load(&shared->cached);
  uint64_t freed;
  do {
    freed = bytes < cached ? bytes : cached;
  } while (!atomic_compare_exchange_weak(&shared->cached, &cached, cached - freed));
  budget_give(&shared->budget, BUDGET_CACHE, freed);
  return freed;
}

static void work(void *context) {
  const struct worker *worker = context;
  struct shared *shared = worker->shared;
  struct random random;
  random_init(&random, shared->seed + worker->number);
  for (uint64_t round = 0; round < shared->rounds; round++) {
    const uint64_t bytes = random_between(&random, 1, LIMIT / 2);
    if (random_one_in(&random, 2)) {
      if (budget_try(&shared->budget, BUDGET_CACHE, bytes)) {
        atomic_fetch_add(&shared->cached, bytes);
      }
    } else if (budget_take(&shared->budget, BUDGET_JOB, bytes)) {
      if (atomic_fetch_add(&shared->held, bytes) + bytes > LIMIT) {
        atomic_fetch_add(&shared->over, 1);
      }
      atomic_fetch_sub(&shared->held, bytes);
      budget_give(&shared->budget, BUDGET_JOB, bytes);
    }
  }
}

TEST(budget_threads, the_limit_holds) {
  static struct shared shared;
  budget_init(&shared.budget, LIMIT);
  budget_set_reclaimer(&shared.budget, reclaim, &shared);
  shared.rounds = test_scale(50000, 20000, 500000);
  shared.seed = test_seed();
  struct worker workers[THREADS];
  for (uint64_t i = 0; i < THREADS; i++) {
    workers[i].shared = &shared;
    workers[i].number = i;
    CHECK_OK(thread_start(&workers[i].thread, "budget", work, &workers[i], NULL));
  }
  for (int i = 0; i < THREADS; i++) {
    thread_join(&workers[i].thread);
  }
  CHECK_EQ(shared.over, 0);
  CHECK_LE(budget_peak(&shared.budget), LIMIT);
  CHECK_EQ(budget_used_for(&shared.budget, BUDGET_JOB), 0);
  CHECK_EQ(budget_used(&shared.budget), shared.cached);
  CHECK_EQ(budget_used_for(&shared.budget, BUDGET_CACHE), shared.cached);
}
