/*
 * The simulated backend: its disk calls, and a carrier that runs requests when it is polled, in an order that the seed decides.
 *
 *   put ─> staged ─ flush ─> pending ─ reap: each pending request, oldest first, is held back or run
 *
 * Nothing runs by itself, so that with one thread the same seed and the same calls give the same schedule. A request is held back at most HOLDS
 * times: every wait ends.
 *
 * Invariants
 *  1. A linked request runs after the one before it has, and is given back as cancelled when that one did not go well.
 *  2. The descriptor is readable exactly while requests are pending: polling is what moves them.
 * Threads: as in io.h.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "io/backend.h"
#include "io/simulation.h"

#define HOLDS 8u

/* ---- the disk ---- */

static int simulated_make_folder(struct io_system *system, const char *path) {
  return simulation_make_folder(system->simulation, path);
}

static int simulated_remove_folder(struct io_system *system, const char *path) {
  return simulation_remove_folder(system->simulation, path);
}

static int simulated_list_folder(struct io_system *system, const char *path, void (*each)(void *context, const char *name), void *context) {
  return simulation_list_folder(system->simulation, path, each, context);
}

static int simulated_rename(struct io_system *system, const char *from, const char *to) {
  return simulation_rename(system->simulation, from, to);
}

static int simulated_link(struct io_system *system, const char *from, const char *to) {
  return simulation_link(system->simulation, from, to);
}

static int simulated_unlink(struct io_system *system, const char *path) {
  return simulation_unlink(system->simulation, path);
}

static int simulated_sync_folder(struct io_system *system, const char *path) {
  return simulation_sync_folder(system->simulation, path);
}

static int simulated_stat(struct io_system *system, const char *path, uint64_t *size, uint64_t *allocated) {
  return simulation_stat(system->simulation, path, size, allocated);
}

static int simulated_open(struct io_file *file) {
  const unsigned flags = file->direct ? file->flags : file->flags & ~(unsigned)IO_OPEN_DIRECT;
  const int os_error = simulation_open(file->system->simulation, file->path, flags, &file->handle);
  if (os_error == 0) {
    file->inode = simulation_inode(file->handle);
  }
  return os_error;
}

static void simulated_close(struct io_file *file) {
  simulation_close(file->handle);
  file->handle = NULL;
}

static int simulated_lock(struct io_lock *lock) {
  return simulation_lock(lock->system->simulation, lock->path, lock->shared, &lock->handle);
}

static void simulated_unlock(struct io_lock *lock) {
  simulation_unlock(lock->handle);
}

static int simulated_size(struct io_file *file, uint64_t *size) {
  return simulation_size(file->handle, size);
}

static int simulated_truncate(struct io_file *file, uint64_t size) {
  return simulation_truncate(file->handle, size);
}

static int simulated_allocate(struct io_file *file, uint64_t offset, uint64_t size, bool extend) {
  return simulation_allocate(file->handle, offset, size, extend);
}

static int64_t simulated_read(struct io_file *file, void *data, size_t size, uint64_t offset) {
  return simulation_read(file->handle, data, size, offset);
}

static int64_t simulated_write(struct io_file *file, const void *data, size_t size, uint64_t offset) {
  return simulation_write(file->handle, data, size, offset);
}

static int simulated_sync(struct io_file *file) {
  return simulation_sync(file->handle);
}

const struct io_disk io_disk_simulated = {
    .make_folder = simulated_make_folder,
    .remove_folder = simulated_remove_folder,
    .list_folder = simulated_list_folder,
    .rename = simulated_rename,
    .link = simulated_link,
    .unlink = simulated_unlink,
    .sync_folder = simulated_sync_folder,
    .stat = simulated_stat,
    .open = simulated_open,
    .close = simulated_close,
    .lock = simulated_lock,
    .unlock = simulated_unlock,
    .size = simulated_size,
    .truncate = simulated_truncate,
    .allocate = simulated_allocate,
    .read = simulated_read,
    .write = simulated_write,
    .sync = simulated_sync,
};

/* ---- the carrier ---- */

struct pending {
  struct io_request *request; /* NULL: done */
  uint32_t holds;
  bool linked;    /* the next pending request waits for this one */
  bool cancelled; /* ends without running */
};

struct simulated_ring {
  uint32_t capacity;
  uint32_t count;   /* in pending, in the order they were put */
  uint32_t flushed; /* the first so many are handed over */
  int descriptor;   /* eventfd, or -1 */
  bool signalled;
  struct pending pending[];
};

static struct simulated_ring *state_of(const struct io_ring *ring) {
  return ring->carrier_state;
}

static size_t state_bytes(uint32_t requests) {
  return sizeof(struct simulated_ring) + requests * sizeof(struct pending);
}

static int simulated_ring_create(struct io_ring *ring, const struct io_ring_options *options, uint32_t requests) {
  struct simulated_ring *state = mem_alloc_zeroed(&ring->system->allocator, state_bytes(requests));
  if (state == NULL) {
    return ENOMEM;
  }
  state->capacity = requests;
  state->descriptor = -1;
  if (options->pollable) {
    state->descriptor = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (state->descriptor < 0) {
      const int os_error = errno;
      mem_free(&ring->system->allocator, state, state_bytes(requests));
      return os_error;
    }
  }
  ring->carrier_state = state;
  return 0;
}

static void simulated_ring_destroy(struct io_ring *ring) {
  struct simulated_ring *state = state_of(ring);
  if (state->descriptor >= 0) {
    (void)close(state->descriptor);
  }
  mem_free(&ring->system->allocator, state, state_bytes(state->capacity));
}

static int simulated_ring_register_buffer(struct io_ring *ring, void *data, size_t size) {
  (void)ring;
  (void)data;
  (void)size;
  return 0; /* nothing to lock, and users meet the same path as with io_uring */
}

static uint32_t simulated_ring_space(struct io_ring *ring) {
  return state_of(ring)->capacity - state_of(ring)->count;
}

static void simulated_ring_put(struct io_ring *ring, struct io_request *request) {
  struct simulated_ring *state = state_of(ring);
  assert(state->count < state->capacity);
  state->pending[state->count++] = (struct pending){.request = request, .linked = request->linked};
}

/* Keeps the descriptor as invariant 2 says. */
static void signal_pending(struct simulated_ring *state) {
  const bool due = state->flushed != 0;
  if (state->descriptor < 0 || due == state->signalled) {
    return;
  }
  uint64_t value = 1;
  const ssize_t done = due ? write(state->descriptor, &value, sizeof value) : read(state->descriptor, &value, sizeof value);
  (void)done; /* cannot fail: the counter is 0 or 1 */
  state->signalled = due;
}

static int simulated_ring_flush(struct io_ring *ring) {
  struct simulated_ring *state = state_of(ring);
  if (state->flushed != state->count) {
    state->flushed = state->count;
    ring->counters.submissions++;
    signal_pending(state);
  }
  return 0;
}

static int64_t run(struct io_system *system, const struct io_request *request) {
  switch (request->kind) {
  case IO_READ: return simulated_read(request->file, request->data, request->size, request->offset);
  case IO_WRITE: return simulated_write(request->file, request->data, request->size, request->offset);
  case IO_SYNC: return -simulated_sync(request->file);
  case IO_OPEN: return -simulated_open(request->file);
  default: return -simulated_unlink(system, request->op->path);
  }
}

static bool is_whole(const struct io_request *request, int64_t result) {
  const bool transfer = request->kind == IO_READ || request->kind == IO_WRITE;
  return transfer ? result == (int64_t)request->size : result >= 0;
}

/* Runs the request at `index` unless the dice or its chain keep it. */
static void step(struct io_ring *ring, uint32_t index) {
  struct simulated_ring *state = state_of(ring);
  struct pending *pending = &state->pending[index];
  if (index != 0 && state->pending[index - 1].request != NULL && state->pending[index - 1].linked) {
    return;
  }
  if (pending->holds < HOLDS && simulation_holds_back(ring->system->simulation)) {
    pending->holds++;
    return;
  }
  struct io_request *request = pending->request;
  const int64_t result = pending->cancelled ? -ECANCELED : run(ring->system, request);
  if (pending->linked && !is_whole(request, result)) {
    state->pending[index + 1].cancelled = true;
  }
  pending->request = NULL;
  io_ring_finish(ring, request, result);
}

static void simulated_ring_reap(struct io_ring *ring) {
  struct simulated_ring *state = state_of(ring);
  for (uint32_t i = 0; i < state->flushed; i++) {
    step(ring, i);
  }
  uint32_t kept = 0;
  uint32_t flushed = 0;
  for (uint32_t i = 0; i < state->count; i++) {
    if (state->pending[i].request != NULL) {
      flushed += i < state->flushed;
      state->pending[kept++] = state->pending[i];
    }
  }
  state->count = kept;
  state->flushed = flushed;
  signal_pending(state);
}

static int simulated_ring_wait(struct io_ring *ring, uint32_t count, uint64_t timeout_ns) {
  (void)count;
  (void)simulated_ring_flush(ring);
  return timeout_ns == 0 ? ETIME : 0; /* the polls that follow move things */
}

static void simulated_ring_cancel(struct io_ring *ring, struct io_request *request) {
  struct simulated_ring *state = state_of(ring);
  for (uint32_t i = 0; i < state->count; i++) {
    if (state->pending[i].request == request) {
      /* Too late as often as not. */
      state->pending[i].cancelled = state->pending[i].cancelled || simulation_draw(ring->system->simulation, 2) == 0;
    }
  }
}

static void simulated_ring_withdraw(struct io_ring *ring) {
  (void)ring; /* a flush never fails */
}

static int simulated_ring_descriptor(const struct io_ring *ring) {
  return state_of(ring)->descriptor;
}

const struct io_carrier io_carrier_simulated = {
    .backend = TURB_BACKEND_SIMULATED,
    .grants_buffer = true,
    .create = simulated_ring_create,
    .destroy = simulated_ring_destroy,
    .register_buffer = simulated_ring_register_buffer,
    .space = simulated_ring_space,
    .put = simulated_ring_put,
    .flush = simulated_ring_flush,
    .reap = simulated_ring_reap,
    .wait = simulated_ring_wait,
    .cancel = simulated_ring_cancel,
    .withdraw = simulated_ring_withdraw,
    .descriptor = simulated_ring_descriptor,
};
