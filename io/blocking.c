/*
 * The blocking carrier: threads that run pread, pwrite and fdatasync, for kernels and containers that forbid io_uring.
 *
 * One pool a system, shared by its rings, made with the first of them. Threads are started as work queues up, up to MAX_THREADS (a deep queue
 * keeps a disk busy only when that many calls wait for it at once), and joined when the system closes. Where not one can be started, the flush
 * does the work itself.
 *
 *   put ─> staged (ring's thread) ─ flush ─> pool queue ─ a thread ─> done list of the ring ─ reap ─> io_ring_finish
 *
 * Invariants
 *  1. A linked chain is one entry of the pool's queue and runs on one thread, in order.
 *  2. A job is touched by its ring's thread while staged or done, by the pool otherwise; the two mutexes hand it over.
 *  3. The descriptor is readable exactly while the done list is not empty.
 * Locks: the pool's mutex and a ring's are never held together.
 */
#include <assert.h>
#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/thread.h"
#include "io/backend.h"

#define MAX_THREADS 16u

struct blocking_job {
  struct io_ring *ring;
  struct io_request *request;
  struct blocking_job *next;     /* in staged, the pool's queue, or done */
  struct blocking_job *follower; /* linked behind it */
  int64_t result;
  _Atomic bool cancelled;
};

struct job_list {
  struct blocking_job *head, *tail;
};

struct blocking_pool {
  turb_allocator allocator;
  pthread_mutex_t mutex;
  pthread_cond_t work;
  struct job_list queue;
  uint32_t queued;
  uint32_t idle;
  uint32_t thread_count;
  bool stopping;
  struct thread threads[MAX_THREADS];
};

/* What a ring has of its own. */
struct blocking_ring {
  struct blocking_pool *pool;
  struct job_list staged;
  uint32_t staged_count;
  struct blocking_job *chain; /* the last job put, when it was linked to the next */
  uint32_t job_count;
  struct blocking_job *jobs; /* one a request */
  int descriptor;            /* eventfd, or -1 */
  pthread_mutex_t mutex;     /* guards what follows */
  pthread_cond_t finished;
  struct job_list done;
  _Atomic uint32_t done_count;
};

static void job_push(struct job_list *list, struct blocking_job *job) {
  job->next = NULL;
  if (list->tail != NULL) {
    list->tail->next = job;
  } else {
    list->head = job;
  }
  list->tail = job;
}

static struct blocking_job *job_pop(struct job_list *list) {
  struct blocking_job *job = list->head;
  list->head = job->next;
  if (list->head == NULL) {
    list->tail = NULL;
  }
  return job;
}

/* ---- the threads' side ---- */

static int64_t run(const struct blocking_job *job) {
  const struct io_request *request = job->request;
  const struct io_disk *disk = job->ring->system->disk;
  if (atomic_load_explicit(&job->cancelled, memory_order_relaxed)) {
    return -ECANCELED;
  }
  switch (request->kind) {
  case IO_READ: return disk->read(request->file, request->data, request->size, request->offset);
  case IO_WRITE: return disk->write(request->file, request->data, request->size, request->offset);
  case IO_SYNC: return -disk->sync(request->file);
  case IO_OPEN: return -disk->open(request->file);
  default: return -disk->unlink(job->ring->system, request->op->path);
  }
}

static bool is_whole(const struct io_request *request, int64_t result) {
  const bool transfer = request->kind == IO_READ || request->kind == IO_WRITE;
  return transfer ? result == (int64_t)request->size : result >= 0;
}

static void hand_back(struct blocking_job *job) {
  struct blocking_ring *blocking = job->ring->carrier_state;
  mutex_lock(&blocking->mutex);
  job_push(&blocking->done, job);
  const uint32_t before = atomic_fetch_add_explicit(&blocking->done_count, 1, memory_order_release);
  if (before == 0 && blocking->descriptor >= 0) {
    const uint64_t one = 1;
    const ssize_t written = write(blocking->descriptor, &one, sizeof one); /* cannot fail: the counter was 0 */
    (void)written;
  }
  cond_signal(&blocking->finished);
  mutex_unlock(&blocking->mutex);
}

static void run_chain(struct blocking_job *job) {
  bool broken = false;
  while (job != NULL) {
    struct blocking_job *follower = job->follower; /* the job is its ring's again once it is handed back */
    job->result = broken ? -ECANCELED : run(job);
    broken = broken || !is_whole(job->request, job->result);
    hand_back(job);
    job = follower;
  }
}

static void pool_main(void *context) {
  struct blocking_pool *pool = context;
  mutex_lock(&pool->mutex);
  for (;;) {
    while (pool->queue.head == NULL && !pool->stopping) {
      pool->idle++;
      cond_wait(&pool->work, &pool->mutex);
      pool->idle--;
    }
    if (pool->queue.head == NULL) {
      break;
    }
    struct blocking_job *job = job_pop(&pool->queue);
    pool->queued--;
    mutex_unlock(&pool->mutex);
    run_chain(job);
    mutex_lock(&pool->mutex);
  }
  mutex_unlock(&pool->mutex);
}

static struct blocking_pool *pool_of(struct io_system *system) {
  mutex_lock(&system->mutex);
  struct blocking_pool *pool = system->blocking;
  if (pool == NULL) {
    pool = mem_alloc_zeroed(&system->allocator, sizeof *pool);
    if (pool != NULL) {
      pool->allocator = system->allocator;
      mutex_init(&pool->mutex);
      cond_init(&pool->work);
      system->blocking = pool;
    }
  }
  mutex_unlock(&system->mutex);
  return pool;
}

void blocking_pool_destroy(struct blocking_pool *pool) {
  mutex_lock(&pool->mutex);
  pool->stopping = true;
  cond_broadcast(&pool->work);
  mutex_unlock(&pool->mutex);
  for (uint32_t i = 0; i < pool->thread_count; i++) {
    thread_join(&pool->threads[i]);
  }
  cond_destroy(&pool->work);
  mutex_destroy(&pool->mutex);
  const turb_allocator allocator = pool->allocator;
  mem_free(&allocator, pool, sizeof *pool);
}

/* Under the pool's mutex: a thread for each queued chain that no idle one will take. */
static void start_threads(struct blocking_pool *pool) {
  for (uint32_t idle = pool->idle; idle < pool->queued && pool->thread_count < MAX_THREADS; idle++) {
    if (thread_start(&pool->threads[pool->thread_count], "turb-io", pool_main, pool, NULL) != TURB_OK) {
      return; /* those that run have to do */
    }
    pool->thread_count++;
  }
}

/* ---- the ring's side ---- */

static struct blocking_ring *state_of(const struct io_ring *ring) {
  return ring->carrier_state;
}

static int blocking_create(struct io_ring *ring, const struct io_ring_options *options, uint32_t requests) {
  const turb_allocator *allocator = &ring->system->allocator;
  struct blocking_ring *blocking = mem_alloc_zeroed(allocator, sizeof *blocking);
  if (blocking == NULL) {
    return ENOMEM;
  }
  blocking->pool = pool_of(ring->system);
  blocking->jobs = mem_alloc_array(allocator, requests, sizeof *blocking->jobs);
  blocking->job_count = requests;
  blocking->descriptor = -1;
  int os_error = blocking->pool == NULL || blocking->jobs == NULL ? ENOMEM : 0;
  if (os_error == 0 && options->pollable) {
    blocking->descriptor = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    os_error = blocking->descriptor < 0 ? errno : 0;
  }
  if (os_error != 0) {
    mem_free(allocator, blocking->jobs, requests * sizeof *blocking->jobs);
    mem_free(allocator, blocking, sizeof *blocking);
    return os_error;
  }
  mutex_init(&blocking->mutex);
  cond_init(&blocking->finished);
  ring->carrier_state = blocking;
  return 0;
}

static void blocking_destroy(struct io_ring *ring) {
  struct blocking_ring *blocking = state_of(ring);
  /* The thread that handed the last job back may still be about to let go of the mutex. */
  mutex_lock(&blocking->mutex);
  mutex_unlock(&blocking->mutex);
  if (blocking->descriptor >= 0) {
    (void)close(blocking->descriptor);
  }
  cond_destroy(&blocking->finished);
  mutex_destroy(&blocking->mutex);
  const turb_allocator *allocator = &ring->system->allocator;
  mem_free(allocator, blocking->jobs, blocking->job_count * sizeof *blocking->jobs);
  mem_free(allocator, blocking, sizeof *blocking);
}

static int blocking_register_buffer(struct io_ring *ring, void *data, size_t size) {
  (void)ring;
  (void)data;
  (void)size;
  return ENOSYS;
}

static uint32_t blocking_space(struct io_ring *ring) {
  return state_of(ring)->job_count; /* each request has its job */
}

static void blocking_put(struct io_ring *ring, struct io_request *request) {
  struct blocking_ring *blocking = state_of(ring);
  struct blocking_job *job = &blocking->jobs[io_request_number(ring, request)];
  job->ring = ring;
  job->request = request;
  job->follower = NULL;
  atomic_store_explicit(&job->cancelled, false, memory_order_relaxed);
  if (blocking->chain != NULL) {
    blocking->chain->follower = job;
  } else {
    job_push(&blocking->staged, job);
    blocking->staged_count++;
  }
  blocking->chain = request->linked ? job : NULL;
}

static int blocking_flush(struct io_ring *ring) {
  struct blocking_ring *blocking = state_of(ring);
  struct blocking_pool *pool = blocking->pool;
  if (blocking->staged.head == NULL) {
    return 0;
  }
  assert(blocking->chain == NULL);
  ring->counters.submissions++;
  mutex_lock(&pool->mutex);
  while (blocking->staged.head != NULL) {
    job_push(&pool->queue, job_pop(&blocking->staged));
  }
  pool->queued += blocking->staged_count;
  blocking->staged_count = 0;
  start_threads(pool);
  const bool alone = pool->thread_count == 0;
  cond_broadcast(&pool->work);
  while (alone && pool->queue.head != NULL) {
    struct blocking_job *job = job_pop(&pool->queue);
    pool->queued--;
    mutex_unlock(&pool->mutex);
    run_chain(job);
    mutex_lock(&pool->mutex);
  }
  mutex_unlock(&pool->mutex);
  return 0;
}

static void blocking_reap(struct io_ring *ring) {
  struct blocking_ring *blocking = state_of(ring);
  if (atomic_load_explicit(&blocking->done_count, memory_order_acquire) == 0) {
    return;
  }
  mutex_lock(&blocking->mutex);
  struct job_list done = blocking->done;
  blocking->done = (struct job_list){NULL, NULL};
  atomic_store_explicit(&blocking->done_count, 0, memory_order_relaxed);
  if (blocking->descriptor >= 0) {
    uint64_t count = 0;
    const ssize_t got = read(blocking->descriptor, &count, sizeof count); /* cannot fail: the list was not empty */
    (void)got;
  }
  mutex_unlock(&blocking->mutex);
  while (done.head != NULL) {
    const struct blocking_job *job = job_pop(&done);
    io_ring_finish(ring, job->request, job->result);
  }
}

static int blocking_wait(struct io_ring *ring, uint32_t count, uint64_t timeout_ns) {
  struct blocking_ring *blocking = state_of(ring);
  (void)blocking_flush(ring);
  const uint64_t deadline = timeout_ns == IO_NO_TIMEOUT ? IO_NO_TIMEOUT : clock_monotonic_ns() + timeout_ns;
  int os_error = 0;
  mutex_lock(&blocking->mutex);
  while (os_error == 0 && atomic_load_explicit(&blocking->done_count, memory_order_relaxed) < count) {
    if (deadline == IO_NO_TIMEOUT) {
      cond_wait(&blocking->finished, &blocking->mutex);
    } else if (!cond_wait_until(&blocking->finished, &blocking->mutex, deadline)) {
      os_error = ETIME;
    }
  }
  mutex_unlock(&blocking->mutex);
  return os_error;
}

static void blocking_cancel(struct io_ring *ring, struct io_request *request) {
  struct blocking_ring *blocking = state_of(ring);
  atomic_store_explicit(&blocking->jobs[io_request_number(ring, request)].cancelled, true, memory_order_relaxed);
}

static void blocking_withdraw(struct io_ring *ring) {
  (void)ring; /* a flush never fails */
}

static int blocking_descriptor(const struct io_ring *ring) {
  return state_of(ring)->descriptor;
}

const struct io_carrier io_carrier_blocking = {
    .backend = TURB_BACKEND_BLOCKING,
    .grants_buffer = false,
    .create = blocking_create,
    .destroy = blocking_destroy,
    .register_buffer = blocking_register_buffer,
    .space = blocking_space,
    .put = blocking_put,
    .flush = blocking_flush,
    .reap = blocking_reap,
    .wait = blocking_wait,
    .cancel = blocking_cancel,
    .withdraw = blocking_withdraw,
    .descriptor = blocking_descriptor,
};
