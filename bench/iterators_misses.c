/* Mispredicted branches of the calling thread, where the machine counts them (iterators.h); many virtual ones do not. */
#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "bench/iterators.h"

int branch_misses_open(void) {
  struct perf_event_attr attributes = {
      .type = PERF_TYPE_HARDWARE, .size = sizeof attributes, .config = PERF_COUNT_HW_BRANCH_MISSES, .exclude_kernel = 1, .exclude_hv = 1};
  return (int)syscall(SYS_perf_event_open, &attributes, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
}

double branch_misses_read(int counter) {
  uint64_t count = 0;
  if (counter < 0 || read(counter, &count, sizeof count) != (ssize_t)sizeof count)
    return 0;
  return (double)count;
}
