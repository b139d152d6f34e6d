/* Reads with no engine (device.h). */
#include "bench/device.h"

#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE_BYTES 4096u
#define HUGE_BYTES ((size_t)2 << 20)

struct device {
  struct io_uring ring;
  int fd;
  uint64_t size_bytes;
  uint8_t *memory; /* depth buffers of request_bytes */
  uint32_t request_bytes, depth;
  const struct device_case *what;
  uint64_t at;
};

static void open_device(struct device *device, const char *file, uint32_t request_bytes, uint32_t depth, bool huge_pages) {
  device->fd = open(file, O_RDONLY | O_DIRECT | O_CLOEXEC);
  struct stat info;
  if (device->fd < 0 || fstat(device->fd, &info) != 0)
    bench_fail("%s cannot be opened around the page cache: %s", file, strerror(errno));
  device->size_bytes = (uint64_t)info.st_size;
  device->request_bytes = request_bytes;
  device->depth = depth;
  const size_t memory_bytes = (size_t)request_bytes * depth;
  if (posix_memalign((void **)&device->memory, huge_pages ? HUGE_BYTES : PAGE_BYTES, memory_bytes) != 0)
    bench_fail("no memory for reads");
  if (huge_pages)
    (void)madvise(device->memory, memory_bytes / HUGE_BYTES * HUGE_BYTES, MADV_HUGEPAGE);
  memset(device->memory, 1, (size_t)request_bytes * depth);
  const int code = io_uring_queue_init(depth, &device->ring, 0);
  if (code < 0)
    bench_fail("no io_uring: %s", strerror(-code));
}

static void close_device(struct device *device) {
  io_uring_queue_exit(&device->ring);
  (void)close(device->fd);
  free(device->memory);
}

static void queue_read(struct device *device, uint32_t buffer, uint64_t offset) {
  struct io_uring_sqe *sqe = io_uring_get_sqe(&device->ring);
  if (!sqe)
    bench_fail("the ring is full");
  io_uring_prep_read(sqe, device->fd, device->memory + (size_t)buffer * device->request_bytes, device->request_bytes, offset);
  io_uring_sqe_set_data64(sqe, buffer);
}

/* Takes what has completed; the buffers' numbers go to `buffers`. */
static uint32_t take(struct device *device, uint32_t *buffers) {
  struct io_uring_cqe *cqe;
  unsigned head;
  uint32_t count = 0;
  io_uring_for_each_cqe(&device->ring, head, cqe) {
    if (cqe->res < 0)
      bench_fail("a read failed: %s", strerror(-cqe->res));
    buffers[count++] = (uint32_t)io_uring_cqe_get_data64(cqe);
  }
  io_uring_cq_advance(&device->ring, count);
  return count;
}

static void submit(struct device *device, uint32_t wait) {
  const int code = io_uring_submit_and_wait(&device->ring, wait);
  if (code < 0 && code != -EINTR)
    bench_fail("io_uring: %s", strerror(-code));
}

/* ---- random ---- */

void *device_begin(const void *argument) {
  struct device *device = bench_alloc(sizeof *device);
  device->what = argument;
  open_device(device, device->what->file, PAGE_BYTES, device->what->depth, false);
  return device;
}

static void queue_random(struct device *device, uint32_t buffer) {
  queue_read(device, buffer, work_below(device->at++, device->size_bytes / PAGE_BYTES) * PAGE_BYTES);
}

void device_pass(void *state, uint32_t round, struct sample *sample) {
  struct device *device = state;
  const uint32_t depth = device->what->depth, operations = device->what->operations;
  uint32_t *buffers = bench_alloc(2 * depth * sizeof *buffers);
  struct meter meter;
  (void)round;
  meter_start(&meter);
  uint32_t queued = 0, ended = 0;
  for (; queued < depth && queued < operations; queued++)
    queue_random(device, queued);
  while (ended < operations) {
    submit(device, device->what->window ? 1 : queued - ended);
    const uint32_t count = take(device, buffers);
    ended += count;
    for (uint32_t i = 0; i < count && queued < operations; i++, queued++)
      queue_random(device, buffers[i]);
  }
  meter_stop(&meter, operations, sample);
  free(buffers);
}

void device_end(void *state) {
  struct device *device = state;
  close_device(device);
  free(device);
}

/* ---- sequential ---- */

double device_sequential(const char *file, uint32_t request_bytes, uint32_t depth, bool huge_pages) {
  struct device device = {0};
  open_device(&device, file, request_bytes, depth, huge_pages);
  uint32_t *buffers = bench_alloc(2 * depth * sizeof *buffers);
  const uint64_t requests = device.size_bytes / request_bytes;
  if (requests < depth)
    bench_fail("%s is too small to measure the device", file);
  const double begin = now_seconds();
  uint64_t queued = 0, ended = 0;
  for (; queued < depth; queued++)
    queue_read(&device, (uint32_t)queued, queued * request_bytes);
  while (ended < requests) {
    submit(&device, 1);
    const uint32_t count = take(&device, buffers);
    ended += count;
    for (uint32_t i = 0; i < count && queued < requests; i++, queued++)
      queue_read(&device, buffers[i], queued * request_bytes);
  }
  const double seconds = now_seconds() - begin;
  free(buffers);
  close_device(&device);
  return (double)(requests * request_bytes) / seconds;
}
