/*
 * Clocks. Monotonic time measures and sets deadlines; real time is for what people and TTLs see.
 *
 * Threads: any.
 */
#ifndef TURB_BASE_CLOCK_H
#define TURB_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

#define CLOCK_NS_PER_SECOND UINT64_C(1000000000)
#define CLOCK_NS_PER_MS     UINT64_C(1000000)
#define CLOCK_NS_PER_US     UINT64_C(1000)

static inline uint64_t clock_read_ns(clockid_t id) {
  struct timespec now;
  (void)clock_gettime(id, &now); /* fails for unknown clocks alone */
  return (uint64_t)now.tv_sec * CLOCK_NS_PER_SECOND + (uint64_t)now.tv_nsec;
}

/* Nanoseconds since an arbitrary start; never goes back. */
static inline uint64_t clock_monotonic_ns(void) {
  return clock_read_ns(CLOCK_MONOTONIC);
}

/* Nanoseconds since 1970; may be set, so may go back. */
static inline uint64_t clock_realtime_ns(void) {
  return clock_read_ns(CLOCK_REALTIME);
}

/* CPU time of the calling thread. */
static inline uint64_t clock_thread_cpu_ns(void) {
  return clock_read_ns(CLOCK_THREAD_CPUTIME_ID);
}

#endif
