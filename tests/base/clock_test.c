/* Clocks run forward and agree with the system. */
#include "base/clock.h"

#include "tests/support/test.h"

TEST(clock, monotonic_never_goes_back) {
  uint64_t before = clock_monotonic_ns();
  for (int i = 0; i < 10000; i++) {
    const uint64_t now = clock_monotonic_ns();
    CHECK_GE(now, before);
    before = now;
  }
  const struct timespec pause = {0, 2000000};
  const uint64_t start = clock_monotonic_ns();
  CHECK_EQ(nanosleep(&pause, NULL), 0);
  CHECK_GE(clock_monotonic_ns() - start, 2 * CLOCK_NS_PER_MS);
}

TEST(clock, realtime_is_the_system_time) {
  const uint64_t now = clock_realtime_ns() / CLOCK_NS_PER_SECOND;
  const uint64_t system = (uint64_t)time(NULL);
  CHECK_LE(now > system ? now - system : system - now, 2);
  CHECK_LE(clock_thread_cpu_ns(), clock_monotonic_ns());
}
