/*
 * Threads, mutexes and conditions: thin wrappers over pthreads.
 *
 * Threads are named, run with all signals blocked (signals are the embedder's) and are joined by who
 * started them. A failing lock call is our own mistake, so it is asserted and not reported. Conditions
 * wait on the monotonic clock.
 *
 * The state is the caller's; there is none in the process.
 */
#ifndef TURB_BASE_THREAD_H
#define TURB_BASE_THREAD_H

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "base/clock.h"
#include "base/status.h"

#define THREAD_NAME_BYTES 16 /* the kernel's bound, with its terminator */

typedef void (*thread_main_fn)(void *context);

/* Must stay where it is from thread_start to thread_join. Zeroed: no thread. */
struct thread {
  pthread_t handle;
  thread_main_fn main;
  void *context;
  char name[THREAD_NAME_BYTES];
  bool started;
};

/*
 * Starts main(context). name is cut to 15 bytes. TURB_IO (with the system's words) or TURB_NO_MEMORY when
 * the system refuses a thread; thread_join is then a no-op.
 */
TURB_MUST_CHECK turb_status thread_start(struct thread *thread, const char *name, thread_main_fn main, void *context, turb_error *err);

/* Waits until main has returned; nothing when the thread was not started or was joined already. */
void thread_join(struct thread *thread);

/* The CPUs that this process may run on, at least 1. */
unsigned thread_cpu_count(void);

/* For results that only our own mistake makes non-zero. */
static inline void thread_check(int result) {
  assert(result == 0);
  (void)result;
}

static inline void mutex_init(pthread_mutex_t *mutex) {
  thread_check(pthread_mutex_init(mutex, NULL));
}

static inline void mutex_destroy(pthread_mutex_t *mutex) {
  thread_check(pthread_mutex_destroy(mutex));
}

static inline void mutex_lock(pthread_mutex_t *mutex) {
  thread_check(pthread_mutex_lock(mutex));
}

static inline bool mutex_try_lock(pthread_mutex_t *mutex) {
  const int result = pthread_mutex_trylock(mutex);
  assert(result == 0 || result == EBUSY);
  return result == 0;
}

static inline void mutex_unlock(pthread_mutex_t *mutex) {
  thread_check(pthread_mutex_unlock(mutex));
}

static inline void cond_init(pthread_cond_t *cond) {
  pthread_condattr_t attributes;
  thread_check(pthread_condattr_init(&attributes));
  thread_check(pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC));
  thread_check(pthread_cond_init(cond, &attributes));
  thread_check(pthread_condattr_destroy(&attributes));
}

static inline void cond_destroy(pthread_cond_t *cond) {
  thread_check(pthread_cond_destroy(cond));
}

/* May wake without a signal: wait in a loop over the condition. */
static inline void cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex) {
  thread_check(pthread_cond_wait(cond, mutex));
}

/* False when the monotonic time deadline_ns has passed. */
static inline bool cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *mutex, uint64_t deadline_ns) {
  const struct timespec deadline = {.tv_sec = (time_t)(deadline_ns / CLOCK_NS_PER_SECOND),
                                    .tv_nsec = (long)(deadline_ns % CLOCK_NS_PER_SECOND)};
  const int result = pthread_cond_timedwait(cond, mutex, &deadline);
  assert(result == 0 || result == ETIMEDOUT);
  return result == 0;
}

/* A semaphore that begins at 0: one thread posts, one waits, and whoever waited may release it at once. */
static inline void semaphore_init(sem_t *semaphore) {
  thread_check(sem_init(semaphore, 0, 0));
}

static inline void semaphore_destroy(sem_t *semaphore) {
  thread_check(sem_destroy(semaphore));
}

static inline void semaphore_post(sem_t *semaphore) {
  thread_check(sem_post(semaphore));
}

static inline void semaphore_wait(sem_t *semaphore) {
  while (sem_wait(semaphore) != 0) {
    assert(errno == EINTR);
  }
}

/* False when the monotonic time deadline_ns has passed without a post. */
static inline bool semaphore_wait_until(sem_t *semaphore, uint64_t deadline_ns) {
  const struct timespec deadline = {.tv_sec = (time_t)(deadline_ns / CLOCK_NS_PER_SECOND),
                                    .tv_nsec = (long)(deadline_ns % CLOCK_NS_PER_SECOND)};
  while (sem_clockwait(semaphore, CLOCK_MONOTONIC, &deadline) != 0) {
    if (errno == ETIMEDOUT) {
      return false;
    }
    assert(errno == EINTR);
  }
  return true;
}

static inline void cond_signal(pthread_cond_t *cond) {
  thread_check(pthread_cond_signal(cond));
}

static inline void cond_broadcast(pthread_cond_t *cond) {
  thread_check(pthread_cond_broadcast(cond));
}

#endif
