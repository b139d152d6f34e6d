/* Threads, mutexes and conditions. */
#include "base/thread.h"

#include <signal.h>

#include "tests/support/test.h"

struct shared {
  pthread_mutex_t mutex;
  pthread_cond_t cond;
  unsigned turn;
  unsigned rounds;
  char name[THREAD_NAME_BYTES];
  bool blocked;
};

static void ping(void *context) {
  struct shared *shared = context;
  CHECK_EQ(pthread_getname_np(pthread_self(), shared->name, sizeof shared->name), 0);
  sigset_t mask;
  CHECK_EQ(pthread_sigmask(SIG_SETMASK, NULL, &mask), 0);
  shared->blocked = sigismember(&mask, SIGTERM) == 1 && sigismember(&mask, SIGINT) == 1;
  mutex_lock(&shared->mutex);
  for (unsigned i = 0; i < shared->rounds; i++) {
    while (shared->turn % 2 != 1) {
      cond_wait(&shared->cond, &shared->mutex);
    }
    shared->turn++;
    cond_broadcast(&shared->cond);
  }
  mutex_unlock(&shared->mutex);
}

TEST(thread, two_threads_take_turns) {
  static struct shared shared = {.rounds = 1000};
  mutex_init(&shared.mutex);
  cond_init(&shared.cond);
  struct thread thread;
  CHECK_OK(thread_start(&thread, "a-name-that-is-too-long", ping, &shared, NULL));
  mutex_lock(&shared.mutex);
  for (unsigned i = 0; i < shared.rounds; i++) {
    while (shared.turn % 2 != 0) {
      cond_wait(&shared.cond, &shared.mutex);
    }
    shared.turn++;
    cond_signal(&shared.cond);
  }
  mutex_unlock(&shared.mutex);
  thread_join(&thread);
  thread_join(&thread); /* nothing */
  CHECK_EQ(shared.turn, 2 * shared.rounds);
  CHECK_STR_EQ(shared.name, "a-name-that-is-");
  CHECK(shared.blocked);
  sigset_t mask;
  CHECK_EQ(pthread_sigmask(SIG_SETMASK, NULL, &mask), 0);
  CHECK_EQ(sigismember(&mask, SIGINT), 0);
  cond_destroy(&shared.cond);
  mutex_destroy(&shared.mutex);
}

TEST(thread, waiting_ends_at_the_deadline) {
  pthread_mutex_t mutex;
  pthread_cond_t cond;
  mutex_init(&mutex);
  cond_init(&cond);
  mutex_lock(&mutex);
  const uint64_t deadline_ns = clock_monotonic_ns() + 5 * CLOCK_NS_PER_MS;
  while (cond_wait_until(&cond, &mutex, deadline_ns)) {}
  CHECK_GE(clock_monotonic_ns(), deadline_ns);
  CHECK(!cond_wait_until(&cond, &mutex, 0));
  mutex_unlock(&mutex);
  CHECK(mutex_try_lock(&mutex));
  mutex_unlock(&mutex);
  cond_destroy(&cond);
  mutex_destroy(&mutex);
}

TEST(thread, counts_cpus) {
  CHECK_GE(thread_cpu_count(), 1);
}
