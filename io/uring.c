/*
 * The io_uring carrier, through liburing.
 *
 * Set-up flags, measured with random 4 KiB direct reads at depth 64 (medians of five, one thread / two threads on one file):
 *
 *   flags                          reads/s            CPU µs a read    spinning on the completion queue, µs a read
 *   none                           168,000 / 190,000  2.4 / 2.8        6.8 / 10.6
 *   COOP_TASKRUN | TASKRUN_FLAG    196,000 / 193,000  2.1 / 2.5        6.2 / 9.6
 *   SINGLE_ISSUER | DEFER_TASKRUN  221,000 / 208,000  2.6 / 2.7        6.0 / 9.8
 *
 * SINGLE_ISSUER ties a ring to the thread that made it, which a pool of leased rings and a loop that an embedder hands from thread to thread
 * cannot keep, and DEFER_TASKRUN needs it. COOP_TASKRUN saves the interrupts that would make a running thread post its completions. Its price is
 * that they stand in the kernel until the thread enters it; TASKRUN_FLAG tells so in shared memory, so that a poll enters the kernel when
 * something is there and never otherwise.
 *
 * A registered buffer saves 8 to 12 % of the CPU time of a read (2.04 to 1.83 µs) and is kept. Registered files saved 0 to 2 % alone and nothing
 * beside registered buffers, with one thread and with two on one file, and would keep deleted files' space occupied until every ring had let go:
 * not used.
 *
 * Threads: a ring's owner.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>

#include "base/clock.h"
#include "base/thread.h"
#include "io/backend.h"

/* Completions beyond one a request, for cancellations. The kernel keeps what does not fit, at the price of a system call. */
#define SPARE_COMPLETIONS 16u

static struct io_uring *uring_of(const struct io_ring *ring) {
  return ring->carrier_state;
}

/* liburing maps and unmaps a ring's memory without libc, so that ThreadSanitizer takes one ring's memory for an older one's of another thread.
 * Called before the unmapping and behind the mapping, this puts the two in order for it. */
static void order_mappings(struct io_system *system) {
#if defined(__SANITIZE_THREAD__)
  mutex_lock(&system->mutex);
  mutex_unlock(&system->mutex);
#endif
  (void)system;
}

static int set_up(struct io_uring *uring, const struct io_ring *ring, uint32_t requests) {
  static const unsigned wishes[] = {IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG | IORING_SETUP_SUBMIT_ALL, /* Linux 5.19 */
                                    0};
  int result = -EINVAL;
  for (size_t i = 0; i < sizeof wishes / sizeof wishes[0] && result == -EINVAL; i++) {
    struct io_uring_params parameters = {.flags = wishes[i] | IORING_SETUP_CQSIZE | IORING_SETUP_CLAMP,
                                         .cq_entries = requests + SPARE_COMPLETIONS};
    result = io_uring_queue_init_params(ring->entries, uring, &parameters);
  }
  if (result != 0) {
    return -result;
  }
  const unsigned needed = IORING_FEAT_NODROP | IORING_FEAT_EXT_ARG; /* Linux 5.11, which also knows every operation we use */
  if ((uring->features & needed) != needed) {
    io_uring_queue_exit(uring);
    return ENOSYS;
  }
  return 0;
}

static int uring_create(struct io_ring *ring, const struct io_ring_options *options, uint32_t requests) {
  (void)options;
  const turb_allocator *allocator = &ring->system->allocator;
  if (ring->system->options.refused_uring_errno != 0) {
    return ring->system->options.refused_uring_errno;
  }
  struct io_uring *uring = mem_alloc_zeroed(allocator, sizeof *uring);
  if (uring == NULL) {
    return ENOMEM;
  }
  const int os_error = set_up(uring, ring, requests);
  if (os_error != 0) {
    mem_free(allocator, uring, sizeof *uring);
    return os_error;
  }
  ring->carrier_state = uring;
  order_mappings(ring->system);
  return 0;
}

static void uring_destroy(struct io_ring *ring) {
  struct io_uring *uring = uring_of(ring);
  order_mappings(ring->system);
  io_uring_queue_exit(uring);
  mem_free(&ring->system->allocator, uring, sizeof *uring);
}

static int uring_register_buffer(struct io_ring *ring, void *data, size_t size) {
  const struct iovec buffer = {.iov_base = data, .iov_len = size};
  return -io_uring_register_buffers(uring_of(ring), &buffer, 1);
}

static uint32_t uring_space(struct io_ring *ring) {
  return io_uring_sq_space_left(uring_of(ring));
}

static void uring_put(struct io_ring *ring, struct io_request *request) {
  struct io_uring_sqe *sqe = io_uring_get_sqe(uring_of(ring));
  assert(sqe != NULL);
  switch (request->kind) {
  case IO_READ:
    if (request->fixed) {
      io_uring_prep_read_fixed(sqe, request->file->descriptor, request->data, request->size, request->offset, 0);
    } else {
      io_uring_prep_read(sqe, request->file->descriptor, request->data, request->size, request->offset);
    }
    break;
  case IO_WRITE:
    if (request->fixed) {
      io_uring_prep_write_fixed(sqe, request->file->descriptor, request->data, request->size, request->offset, 0);
    } else {
      io_uring_prep_write(sqe, request->file->descriptor, request->data, request->size, request->offset);
    }
    break;
  case IO_SYNC: io_uring_prep_fsync(sqe, request->file->descriptor, IORING_FSYNC_DATASYNC); break;
  case IO_OPEN:
    io_uring_prep_openat(sqe, AT_FDCWD, request->file->path, io_posix_open_flags(request->file->flags, request->file->direct),
                         IO_FILE_MODE);
    break;
  default: io_uring_prep_unlinkat(sqe, AT_FDCWD, request->op->path, 0); break;
  }
  if (request->linked) {
    sqe->flags |= IOSQE_IO_LINK;
  }
  io_uring_sqe_set_data(sqe, request);
}

static int uring_flush(struct io_ring *ring) {
  struct io_uring *uring = uring_of(ring);
  while (io_uring_sq_ready(uring) != 0) {
    const int taken = io_uring_submit(uring);
    ring->counters.submissions++;
    ring->counters.ring_calls++;
    if (taken == 0) {
      return EAGAIN;
    }
    if (taken < 0 && taken != -EINTR) {
      return -taken;
    }
  }
  return 0;
}

static void uring_reap(struct io_ring *ring) {
  struct io_uring *uring = uring_of(ring);
  unsigned ready = io_uring_cq_ready(uring);
  if (ready == 0) {
    if ((IO_URING_READ_ONCE(*uring->sq.kflags) & (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW)) == 0) {
      return;
    }
    ring->counters.ring_calls++;
    (void)io_uring_get_events(uring); /* a failure leaves them for the next poll */
    ready = io_uring_cq_ready(uring);
  }
  for (; ready != 0; ready--) {
    const struct io_uring_cqe *cqe = &uring->cq.cqes[*uring->cq.khead & uring->cq.ring_mask];
    struct io_request *request = io_uring_cqe_get_data(cqe);
    int64_t result = cqe->res;
    io_uring_cq_advance(uring, 1);
    if (request == NULL) {
      continue; /* the answer to a cancellation */
    }
    if (request->kind == IO_OPEN && result >= 0) {
      request->file->descriptor = (int)result;
      result = 0;
    }
    io_ring_finish(ring, request, result);
  }
}

static int uring_wait(struct io_ring *ring, uint32_t count, uint64_t timeout_ns) {
  struct io_uring *uring = uring_of(ring);
  int result = 0;
  if (timeout_ns == IO_NO_TIMEOUT) {
    result = io_uring_submit_and_wait(uring, count);
    ring->counters.submissions++;
    ring->counters.ring_calls++;
  } else {
    /* Two system calls: in one, a submission would hide that the time is up. */
    const int os_error = uring_flush(ring);
    if (os_error != 0) {
      return os_error;
    }
    struct __kernel_timespec timeout = {.tv_sec = (int64_t)(timeout_ns / CLOCK_NS_PER_SECOND),
                                        .tv_nsec = (long long)(timeout_ns % CLOCK_NS_PER_SECOND)};
    struct io_uring_getevents_arg argument = {.ts = (uint64_t)(uintptr_t)&timeout};
    ring->counters.ring_calls++;
    result = io_uring_enter2((unsigned)uring->ring_fd, 0, count, IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG,
                             (sigset_t *)(void *)&argument, sizeof argument);
  }
  return result >= 0 || result == -EINTR ? 0 : -result;
}

static void uring_cancel(struct io_ring *ring, struct io_request *request) {
  struct io_uring *uring = uring_of(ring);
  if (io_uring_sq_space_left(uring) == 0 && uring_flush(ring) != 0) {
    return; /* it completes as it goes */
  }
  struct io_uring_sqe *sqe = io_uring_get_sqe(uring);
  if (sqe == NULL) {
    return;
  }
  io_uring_prep_cancel(sqe, request, 0);
  io_uring_sqe_set_data(sqe, NULL);
  (void)uring_flush(ring); /* what stays goes with the next submission */
}

static void uring_withdraw(struct io_ring *ring) {
  struct io_uring *uring = uring_of(ring);
  const unsigned head = *uring->sq.khead; /* the kernel moves it only while we are in io_uring_enter */
  const unsigned tail = uring->sq.sqe_tail;
  for (unsigned at = head; at != tail; at++) {
    struct io_request *request = (struct io_request *)(uintptr_t)uring->sq.sqes[at & uring->sq.ring_mask].user_data;
    if (request != NULL) {
      io_ring_finish(ring, request, -ECANCELED);
    }
  }
  uring->sq.sqe_head = head;
  uring->sq.sqe_tail = head;
  io_uring_smp_store_release(uring->sq.ktail, head);
}

static int uring_descriptor(const struct io_ring *ring) {
  return uring_of(ring)->ring_fd;
}

const struct io_carrier io_carrier_uring = {
    .backend = TURB_BACKEND_URING,
    .grants_buffer = true,
    .create = uring_create,
    .destroy = uring_destroy,
    .register_buffer = uring_register_buffer,
    .space = uring_space,
    .put = uring_put,
    .flush = uring_flush,
    .reap = uring_reap,
    .wait = uring_wait,
    .cancel = uring_cancel,
    .withdraw = uring_withdraw,
    .descriptor = uring_descriptor,
};
