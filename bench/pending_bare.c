/* A bare io_uring loop that reads random 4 KiB of a registered file (pending.h). */
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bench/pending.h"

struct bare_state {
  const struct pending *what;
  struct io_uring ring;
  int fd;
  uint64_t pages, at;
  uint8_t *memory;
  uint32_t *buffers;
};

static void *begin_bare(const void *argument) {
  struct bare_state *state = bench_alloc(sizeof *state);
  state->what = argument;
  const uint32_t depth = state->what->depth;
  char *file = folder_largest_file(state->what->path);
  struct stat info;
  state->fd = open(file, O_RDONLY | O_DIRECT | O_CLOEXEC);
  if (state->fd < 0 || fstat(state->fd, &info) != 0)
    bench_fail("%s cannot be opened around the page cache: %s", file, strerror(errno));
  free(file);
  state->pages = (uint64_t)info.st_size / PAGE_BYTES;
  state->buffers = bench_alloc(2 * depth * sizeof *state->buffers);
  if (posix_memalign((void **)&state->memory, PAGE_BYTES, (size_t)depth * PAGE_BYTES) != 0)
    bench_fail("no memory for reads");
  memset(state->memory, 1, (size_t)depth * PAGE_BYTES);
  int code = io_uring_queue_init(depth, &state->ring, state->what->flags);
  if (code == 0)
    code = io_uring_register_files(&state->ring, &state->fd, 1);
  if (code < 0)
    bench_fail("no io_uring: %s", strerror(-code));
  return state;
}

static void bare_read(struct bare_state *state, uint32_t buffer) {
  struct io_uring_sqe *sqe = io_uring_get_sqe(&state->ring);
  if (!sqe)
    bench_fail("the ring is full");
  const uint64_t offset = work_below(state->at++, state->pages) * PAGE_BYTES;
  io_uring_prep_read(sqe, 0, state->memory + (size_t)buffer * PAGE_BYTES, PAGE_BYTES, offset);
  sqe->flags |= IOSQE_FIXED_FILE;
  io_uring_sqe_set_data64(sqe, buffer);
}

static uint32_t bare_take(struct bare_state *state) {
  struct io_uring_cqe *cqe;
  unsigned head;
  uint32_t count = 0;
  io_uring_for_each_cqe(&state->ring, head, cqe) {
    if (cqe->res != (int)PAGE_BYTES)
      bench_fail("a read failed: %s", strerror(-cqe->res));
    state->buffers[count++] = (uint32_t)io_uring_cqe_get_data64(cqe);
  }
  io_uring_cq_advance(&state->ring, count);
  return count;
}

static void pass_bare(void *argument, uint32_t round, struct sample *sample) {
  struct bare_state *state = argument;
  const uint32_t depth = state->what->depth;
  const uint64_t reads = 2 * (uint64_t)state->what->seeks;
  uint64_t queued = 0, ended = 0, calls = 0;
  struct meter meter;
  (void)round;
  meter_start(&meter);
  for (; queued < depth; queued++)
    bare_read(state, (uint32_t)queued);
  while (ended < reads) {
    const int code = io_uring_submit_and_wait(&state->ring, 1);
    calls++;
    if (code < 0 && code != -EINTR)
      bench_fail("io_uring: %s", strerror(-code));
    const uint32_t count = bare_take(state);
    ended += count;
    for (uint32_t i = 0; i < count && queued < reads; i++, queued++)
      bare_read(state, state->buffers[i]);
  }
  meter_stop(&meter, (double)reads, sample);
  sample->system_calls = (double)calls;
  sample->requests = (double)reads;
  sample->read_bytes = (double)reads * PAGE_BYTES;
}

static void end_bare(void *argument) {
  struct bare_state *state = argument;
  io_uring_queue_exit(&state->ring);
  (void)close(state->fd);
  free(state->memory);
  free(state->buffers);
  free(state);
}

struct worker_job bare_job(const struct pending *what) {
  return (struct worker_job){begin_bare, pass_bare, end_bare, what};
}
