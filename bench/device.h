/* bench/device: what the device gives with no engine in between: random reads of 4 KiB, and sequential reads, both around the page cache through io_uring. */
#ifndef TURB_BENCH_DEVICE_H
#define TURB_BENCH_DEVICE_H

#include "bench/bench.h"

struct device_case {
  const char *file;
  uint32_t depth;
  uint32_t operations; /* a pass */
  bool window;         /* as one read ends the next begins; else batches of `depth`, each awaited whole */
};

/* A worker_job's; the argument is a struct device_case. */
void *device_begin(const void *argument);
void device_pass(void *state, uint32_t round, struct sample *sample);
void device_end(void *state);

/* Reads the whole file once in requests of `request_bytes`, `depth` in flight; bytes a second. */
double device_sequential(const char *file, uint32_t request_bytes, uint32_t depth, bool huge_pages);

#endif
