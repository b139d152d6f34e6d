/*
 * Systems: the choice of the backend, names, locks, statistics, and the pool of rings.
 *
 *   AUTO ── first ring set up ──> io_uring
 *     └──── refused (kernel, seccomp, limits) ──> blocking, with fell_back and the errno in the statistics
 *
 * A single ring that io_uring refuses later (EMFILE, say) is made blocking too where AUTO was asked for, so that a full table of descriptors slows
 * reads down and does not fail each of them.
 *
 * Invariants
 *  1. The pool holds rings of the system's own carrier alone. They may carry orphans: operations of closed cursors, which free themselves.
 *  2. io_system_close comes after every file, lock and ring was given back; that is asserted.
 * Threads: all calls from any thread; the mutex guards pool and open files and is never held over a system call that may block on a disk.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/thread.h"
#include "io/backend.h"

#define DEFAULT_RING_ENTRIES     256u
#define MAX_RING_ENTRIES         4096u
#define DEFAULT_REGISTERED_BYTES (4u << 20)

static const char *backend_name(turb_backend backend) {
  switch (backend) {
  case TURB_BACKEND_AUTO: return "auto";
  case TURB_BACKEND_URING: return "io_uring";
  case TURB_BACKEND_BLOCKING: return "blocking";
  case TURB_BACKEND_SIMULATED: return "simulated";
  }
  return "unknown";
}

void io_system_fell_back(struct io_system *system, int os_error) {
  if (!atomic_exchange(&system->fell_back, true)) {
    atomic_store(&system->fallback_errno, os_error);
    const char *words = strerrordesc_np(os_error);
    logger_write(system->logger, LOGGER_WARNING, "io_uring is refused (%s): transfers go through threads",
                 words != NULL ? words : "unknown error");
  }
}

static turb_status choose_backend(struct io_system *system, turb_error *err) {
  switch (system->options.backend) {
  case TURB_BACKEND_AUTO:
  case TURB_BACKEND_URING:
    system->automatic = system->options.backend == TURB_BACKEND_AUTO;
    system->carrier = &io_carrier_uring;
    system->disk = &io_disk_posix;
    return TURB_OK;
  case TURB_BACKEND_BLOCKING:
    system->carrier = &io_carrier_blocking;
    system->disk = &io_disk_posix;
    return TURB_OK;
  case TURB_BACKEND_SIMULATED:
    if (system->options.simulation == NULL) {
      return status_set(err, TURB_INVALID, "option simulation is NULL; the simulated backend needs one");
    }
    system->carrier = &io_carrier_simulated;
    system->disk = &io_disk_simulated;
    return TURB_OK;
  }
  return status_set(err, TURB_INVALID, "option backend is %d; 0 to 3 are known", (int)system->options.backend);
}

/* The first ring shows whether io_uring is to be had, and is then the first of the pool. */
static turb_status make_first_ring(struct io_system *system, turb_error *err) {
  struct io_ring *ring = NULL;
  const turb_status status = io_ring_create(system, &(struct io_ring_options){.entries = 0}, &ring, err);
  if (status != TURB_OK) {
    return status;
  }
  system->carrier = ring->carrier;
  ring->leased = true;
  io_ring_return(ring);
  return TURB_OK;
}

turb_status io_system_open(const struct io_system_options *options, struct io_system **out, turb_error *err) {
  *out = NULL;
  const turb_allocator *allocator = options->allocator != NULL ? options->allocator : alloc_default();
  struct io_system *system = mem_alloc_zeroed(allocator, sizeof *system);
  if (system == NULL) {
    return status_set(err, TURB_NO_MEMORY, "no memory for an input/output system");
  }
  system->allocator = *allocator;
  system->options = *options;
  system->logger = options->logger;
  system->budget = options->budget;
  system->simulation = options->simulation;
  if (system->options.ring_entries == 0) {
    system->options.ring_entries = DEFAULT_RING_ENTRIES;
  }
  if (system->options.registered_buffer_bytes == 0) {
    system->options.registered_buffer_bytes = DEFAULT_REGISTERED_BYTES;
  }
  mutex_init(&system->mutex);
  list_init(&system->pool);
  list_init(&system->open_files);

  turb_status status = choose_backend(system, err);
  if (status == TURB_OK && system->options.ring_entries > MAX_RING_ENTRIES) {
    status =
        status_set(err, TURB_INVALID, "option ring_entries is %u; 1 to %u are allowed", system->options.ring_entries, MAX_RING_ENTRIES);
  }
  if (status == TURB_OK) {
    status = make_first_ring(system, err);
  }
  if (status != TURB_OK) {
    io_system_close(system);
    return status;
  }
  logger_write(system->logger, LOGGER_DEBUG, "input/output through %s", backend_name(system->carrier->backend));
  *out = system;
  return TURB_OK;
}

static struct io_ring *pool_take(struct io_system *system) {
  mutex_lock(&system->mutex);
  struct list *link = list_pop_front(&system->pool);
  mutex_unlock(&system->mutex);
  return link != NULL ? LIST_ENTRY(link, struct io_ring, link) : NULL;
}

void io_system_drain(struct io_system *system) {
  for (struct io_ring *ring = pool_take(system); ring != NULL; ring = pool_take(system)) {
    io_ring_destroy(ring);
  }
}

void io_system_close(struct io_system *system) {
  if (system == NULL) {
    return;
  }
  io_system_drain(system);
  assert(atomic_load(&system->files) == 0 && atomic_load(&system->locks) == 0 && atomic_load(&system->rings) == 0);
  if (system->blocking != NULL) {
    blocking_pool_destroy(system->blocking);
  }
  mutex_destroy(&system->mutex);
  const turb_allocator allocator = system->allocator;
  mem_free(&allocator, system, sizeof *system);
}

turb_status io_ring_lease(struct io_system *system, struct io_ring **ring, turb_error *err) {
  *ring = pool_take(system);
  if (*ring == NULL) {
    const turb_status status = io_ring_create(system, &(struct io_ring_options){.entries = 0}, ring, err);
    if (status != TURB_OK) {
      return status;
    }
  }
  (*ring)->leased = true;
  return TURB_OK;
}

void io_ring_return(struct io_ring *ring) {
  struct io_system *system = ring->system;
  assert(ring->leased);
  ring->leased = false;
  if (ring->carrier != system->carrier) {
    io_ring_destroy(ring); /* it stood in for one that was refused */
    return;
  }
  mutex_lock(&system->mutex);
  list_push_front(&system->pool, &ring->link); /* the last one used is the warmest */
  mutex_unlock(&system->mutex);
}

/* ---- statistics ---- */

static void add(_Atomic uint64_t *sum, uint64_t value) {
  if (value != 0) {
    atomic_fetch_add_explicit(sum, value, memory_order_relaxed);
  }
}

void io_system_count(struct io_system *system, struct io_counters *counters) {
  add(&system->reads, counters->reads);
  add(&system->read_bytes, counters->read_bytes);
  add(&system->writes, counters->writes);
  add(&system->write_bytes, counters->write_bytes);
  add(&system->syncs, counters->syncs);
  add(&system->submissions, counters->submissions);
  add(&system->ring_calls, counters->ring_calls);
  memset(counters, 0, sizeof *counters);
}

void io_system_stats(const struct io_system *system, struct io_stats *stats) {
  *stats = (struct io_stats){
      .backend = system->carrier->backend,
      .fell_back = atomic_load(&system->fell_back),
      .fallback_errno = atomic_load(&system->fallback_errno),
      .registered_buffer_bytes = atomic_load_explicit(&system->registered_buffer_bytes, memory_order_relaxed),
      .reads = atomic_load_explicit(&system->reads, memory_order_relaxed),
      .read_bytes = atomic_load_explicit(&system->read_bytes, memory_order_relaxed),
      .writes = atomic_load_explicit(&system->writes, memory_order_relaxed),
      .write_bytes = atomic_load_explicit(&system->write_bytes, memory_order_relaxed),
      .syncs = atomic_load_explicit(&system->syncs, memory_order_relaxed),
      .submissions = atomic_load_explicit(&system->submissions, memory_order_relaxed),
      .ring_calls = atomic_load_explicit(&system->ring_calls, memory_order_relaxed),
  };
}

/* ---- names ---- */

static turb_status outcome(turb_error *err, int os_error, const char *what, const char *path) {
  return os_error == 0 ? TURB_OK : status_from_errno(err, os_error, what, path, STATUS_NO_OFFSET);
}

turb_status io_make_folder(struct io_system *system, const char *path, turb_error *err) {
  return outcome(err, system->disk->make_folder(system, path), "make folder", path);
}

turb_status io_remove_folder(struct io_system *system, const char *path, turb_error *err) {
  return outcome(err, system->disk->remove_folder(system, path), "remove folder", path);
}

struct names { /* one behind the other, each with its end */
  const turb_allocator *allocator;
  char *bytes;
  size_t size, capacity;
  bool failed;
};

static void collect_name(void *context, const char *name) {
  struct names *names = context;
  const size_t size = strlen(name) + 1;
  if (names->size + size > names->capacity) {
    const size_t capacity = 2 * names->capacity + size + 1024;
    char *bytes = mem_resize(names->allocator, names->bytes, names->capacity, capacity);
    names->failed |= bytes == NULL;
    if (bytes == NULL) {
      return;
    }
    names->bytes = bytes;
    names->capacity = capacity;
  }
  memcpy(names->bytes + names->size, name, size);
  names->size += size;
}

/* All names first: a listing that goes on while names go passes over others. */
turb_status io_list_folder(struct io_system *system, const char *path, void (*each)(void *context, const char *name), void *context,
                           turb_error *err) {
  struct names names = {.allocator = &system->allocator};
  turb_status status = outcome(err, system->disk->list_folder(system, path, collect_name, &names), "list folder", path);
  if (status == TURB_OK && names.failed) {
    status = status_set_file(err, TURB_NO_MEMORY, path, STATUS_NO_OFFSET, "no memory for the names in the folder");
  }
  for (size_t at = 0; at < names.size && status == TURB_OK; at += strlen(names.bytes + at) + 1) {
    each(context, names.bytes + at);
  }
  mem_free(names.allocator, names.bytes, names.capacity);
  return status;
}

turb_status io_rename(struct io_system *system, const char *from, const char *to, turb_error *err) {
  return outcome(err, system->disk->rename(system, from, to), "rename", from);
}

turb_status io_link(struct io_system *system, const char *from, const char *to, turb_error *err) {
  return outcome(err, system->disk->link(system, from, to), "make hard link", to);
}

turb_status io_unlink(struct io_system *system, const char *path, turb_error *err) {
  return outcome(err, system->disk->unlink(system, path), "remove file", path);
}

turb_status io_sync_folder(struct io_system *system, const char *path, turb_error *err) {
  return outcome(err, system->disk->sync_folder(system, path), "sync folder", path);
}

turb_status io_stat(struct io_system *system, const char *path, uint64_t *size, uint64_t *allocated, turb_error *err) {
  uint64_t file_size = 0;
  uint64_t file_allocated = 0;
  const int os_error = system->disk->stat(system, path, &file_size, &file_allocated);
  if (size != NULL) {
    *size = file_size;
  }
  if (allocated != NULL) {
    *allocated = file_allocated;
  }
  return outcome(err, os_error, "look up", path);
}

turb_status io_lock(struct io_system *system, const char *path, bool shared, struct io_lock **out, turb_error *err) {
  *out = NULL;
  struct io_lock *lock = mem_alloc_zeroed(&system->allocator, sizeof *lock);
  if (lock != NULL) {
    lock->path = mem_strdup(&system->allocator, path);
  }
  if (lock == NULL || lock->path == NULL) {
    mem_free(&system->allocator, lock, sizeof *lock);
    return status_set_file(err, TURB_NO_MEMORY, path, STATUS_NO_OFFSET, "no memory for a lock");
  }
  lock->system = system;
  lock->shared = shared;
  const int os_error = system->disk->lock(lock);
  if (os_error == 0) {
    atomic_fetch_add(&system->locks, 1);
    *out = lock;
    return TURB_OK;
  }
  mem_free_string(&system->allocator, lock->path);
  mem_free(&system->allocator, lock, sizeof *lock);
  if (os_error == EWOULDBLOCK) {
    return status_set_file(err, TURB_LOCKED, path, STATUS_NO_OFFSET, "another opener holds the lock");
  }
  return outcome(err, os_error, "lock", path);
}

void io_unlock(struct io_lock *lock) {
  if (lock == NULL) {
    return;
  }
  struct io_system *system = lock->system;
  system->disk->unlock(lock);
  mem_free_string(&system->allocator, lock->path);
  mem_free(&system->allocator, lock, sizeof *lock);
  atomic_fetch_sub(&system->locks, 1);
}
