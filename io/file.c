/*
 * Files: opening, reference counts, and the transfers that block.
 *
 * Invariants
 *  1. A file's descriptor is open from io_file_opened until the last reference is released; operations in flight hold references of their own.
 *  2. The first failed sync is remembered for good (the kernel may have dropped the dirty pages and would call a second one a success).
 *  3. While one system has a file open directly, it does not have it open buffered: the page cache and the disk would tell different tales.
 *     Asserted in debug builds.
 * Threads: any.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/thread.h"
#include "io/backend.h"

struct io_file *io_file_prepare(struct io_system *system, const char *path, unsigned flags) {
  struct io_file *file = mem_alloc_zeroed(&system->allocator, sizeof *file);
  if (file == NULL) {
    return NULL;
  }
  file->path = mem_strdup(&system->allocator, path);
  if (file->path == NULL) {
    mem_free(&system->allocator, file, sizeof *file);
    return NULL;
  }
  file->system = system;
  file->flags = flags;
  file->direct = (flags & IO_OPEN_DIRECT) != 0 && !system->options.refused_direct;
  file->descriptor = -1;
  atomic_init(&file->references, 1);
  list_init(&file->link);
  atomic_fetch_add(&system->files, 1);
  return file;
}

void io_file_discard(struct io_file *file) {
  struct io_system *system = file->system;
  mem_free_string(&system->allocator, file->path);
  mem_free(&system->allocator, file, sizeof *file);
  atomic_fetch_sub(&system->files, 1);
}

#ifdef TURB_DEBUG
static void check_not_mixed(const struct io_file *file) {
  for (struct list *link = list_first(&file->system->open_files); link != NULL; link = list_next(&file->system->open_files, link)) {
    const struct io_file *other = LIST_ENTRY(link, struct io_file, link);
    assert(other->inode != file->inode || other->device != file->device || other->direct == file->direct);
  }
}
#endif

void io_file_opened(struct io_file *file) {
#ifdef TURB_DEBUG
  if (file->handle == NULL) {
    io_posix_identify(file);
  }
  mutex_lock(&file->system->mutex);
  if (file->inode != 0) {
    check_not_mixed(file);
  }
  list_push_back(&file->system->open_files, &file->link);
  mutex_unlock(&file->system->mutex);
#else
  (void)file;
#endif
}

turb_status io_file_open(struct io_system *system, const char *path, unsigned flags, struct io_file **out, turb_error *err) {
  *out = NULL;
  struct io_file *file = io_file_prepare(system, path, flags);
  if (file == NULL) {
    return status_set_file(err, TURB_NO_MEMORY, path, STATUS_NO_OFFSET, "no memory to open a file");
  }
  const int os_error = system->disk->open(file);
  if (os_error != 0) {
    io_file_discard(file);
    return status_from_errno(err, os_error, (flags & IO_OPEN_CREATE) != 0 ? "create" : "open", path, STATUS_NO_OFFSET);
  }
  io_file_opened(file);
  *out = file;
  return TURB_OK;
}

struct io_file *io_file_retain(struct io_file *file) {
  atomic_fetch_add_explicit(&file->references, 1, memory_order_relaxed);
  return file;
}

void io_file_release(struct io_file *file) {
  if (file == NULL || atomic_fetch_sub_explicit(&file->references, 1, memory_order_acq_rel) != 1) {
    return;
  }
#ifdef TURB_DEBUG
  mutex_lock(&file->system->mutex);
  list_remove(&file->link);
  mutex_unlock(&file->system->mutex);
#endif
  file->system->disk->close(file);
  io_file_discard(file);
}

const char *io_file_path(const struct io_file *file) {
  return file->path;
}

bool io_file_is_direct(const struct io_file *file) {
  return file->direct;
}

turb_status io_file_size(struct io_file *file, uint64_t *size, turb_error *err) {
  *size = 0;
  const int os_error = file->system->disk->size(file, size);
  return os_error == 0 ? TURB_OK : status_from_errno(err, os_error, "size", file->path, STATUS_NO_OFFSET);
}

turb_status io_file_truncate(struct io_file *file, uint64_t size, turb_error *err) {
  const int os_error = file->system->disk->truncate(file, size);
  return os_error == 0 ? TURB_OK : status_from_errno(err, os_error, "truncate", file->path, size);
}

turb_status io_file_allocate(struct io_file *file, uint64_t offset, uint64_t size, bool extend, turb_error *err) {
  const int os_error = file->system->disk->allocate(file, offset, size, extend);
  if (os_error == 0 || os_error == EOPNOTSUPP) {
    return TURB_OK;
  }
  return status_from_errno(err, os_error, "reserve space", file->path, offset);
}

int io_file_short(struct io_file *file, bool write, uint64_t offset, size_t moved, size_t *counts, bool *ended) {
  *ended = false;
  *counts = moved;
  if (!write) {
    /* Asking is cheaper than a second read that would return 0, and the only way to tell the end of a direct file from a transfer that was cut. */
    uint64_t size = 0;
    const int os_error = file->system->disk->size(file, &size);
    if (os_error != 0) {
      return os_error;
    }
    if (offset + moved >= size) {
      *ended = true;
      return 0;
    }
  }
  if (file->direct) {
    *counts = moved / IO_DIRECT_ALIGNMENT * IO_DIRECT_ALIGNMENT;
  }
  return 0;
}

static void check_transfer(const struct io_file *file, const void *data, size_t size, uint64_t offset) {
  assert(!file->direct || ((uintptr_t)data | size | offset) % IO_DIRECT_ALIGNMENT == 0);
  (void)file;
  (void)data;
  (void)size;
  (void)offset;
}

/* One transfer from beginning to end. *end: where it stopped, the size or the end of the file. Returns errno. */
static int transfer(struct io_file *file, bool write, uint8_t *data, size_t size, uint64_t offset, size_t *end) {
  const struct io_disk *disk = file->system->disk;
  size_t done = 0;
  unsigned attempts = 0;
  while (done < size) {
    const size_t piece = size - done < IO_PIECE_BYTES ? size - done : IO_PIECE_BYTES;
    const int64_t moved =
        write ? disk->write(file, data + done, piece, offset + done) : disk->read(file, data + done, piece, offset + done);
    size_t counts = 0;
    bool ended = false;
    if (moved >= 0 && (size_t)moved == piece) {
      counts = piece;
    } else if (moved >= 0) {
      const int os_error = io_file_short(file, write, offset + done, (size_t)moved, &counts, &ended);
      if (os_error != 0) {
        return os_error;
      }
      if (ended) {
        done += (size_t)moved;
        break;
      }
    } else if (moved != -EINTR && moved != -EAGAIN) {
      return (int)-moved;
    }
    attempts = counts == 0 ? attempts + 1 : 0;
    if (attempts == IO_ATTEMPTS) {
      return moved < 0 ? (int)-moved : EIO;
    }
    done += counts;
  }
  *end = done;
  return 0;
}

turb_status io_file_read(struct io_file *file, void *data, size_t size, uint64_t offset, turb_error *err) {
  check_transfer(file, data, size, offset);
  size_t end = 0;
  const int os_error = transfer(file, false, data, size, offset, &end);
  if (os_error != 0) {
    return status_from_errno(err, os_error, "read", file->path, offset);
  }
  io_system_count(file->system, &(struct io_counters){.reads = 1, .read_bytes = end});
  if (end < size) {
    return status_set_file(err, TURB_CORRUPTION, file->path, offset, "truncated: %zu bytes were to be read and %zu are there", size, end);
  }
  return TURB_OK;
}

turb_status io_file_write(struct io_file *file, const void *data, size_t size, uint64_t offset, turb_error *err) {
  check_transfer(file, data, size, offset);
  size_t end = 0;
  /* The cast is of the shared loop, which does not write to it. */
  const int os_error = transfer(file, true, (uint8_t *)(uintptr_t)data, size, offset, &end);
  if (os_error != 0) {
    return status_from_errno(err, os_error, "write", file->path, offset);
  }
  io_system_count(file->system, &(struct io_counters){.writes = 1, .write_bytes = end});
  return TURB_OK;
}

int io_file_sync_result(struct io_file *file, int error) {
  int before = 0;
  if (error != 0) {
    if (atomic_compare_exchange_strong(&file->sync_error, &before, error)) {
      return error;
    }
    return before;
  }
  return atomic_load(&file->sync_error);
}

turb_status io_file_sync(struct io_file *file, turb_error *err) {
  int os_error = atomic_load(&file->sync_error);
  if (os_error == 0) {
    os_error = io_file_sync_result(file, file->system->disk->sync(file));
    io_system_count(file->system, &(struct io_counters){.syncs = 1});
  }
  return os_error == 0 ? TURB_OK : status_from_errno(err, os_error, "sync", file->path, STATUS_NO_OFFSET);
}
