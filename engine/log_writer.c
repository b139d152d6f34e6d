/*
 * The log's writer; see log.h for its states and invariants.
 *
 *   page 0 | staging area | records ... end | reserved: zeros ... reserved
 *
 * What reaches the file when: a record appended to be synced is gathered and written with one call. Any other is copied into the staging
 * area,
 * a shared mapping, and is safe from a kill there; the area is written to its place as a whole. Bytes of [staged_at, end) may thus be in
 * the
 * area alone; they go to their place before anything is written behind them.
 *
 * Space is reserved ahead, with the file's size, in steps that double from RESERVE_LEAST to RESERVE_MOST: a sync then has no size to record
 * (which would cost a commit of the file system's journal each time). That some of these pages were written for the first time has to be recorded
 * too; so before a record that is to be synced, zeros are written some way ahead of it, and most syncs have nothing but bytes to bring to the device.
 *
 * Locks: `lock` guards the staging area, the places written and the failure. It is not held during a sync.
 */
#include <assert.h>
#include <stdatomic.h>
#include <sys/random.h>

#include "base/thread.h"
#include "engine/log_format.h"
#include "engine/name.h"
#include "io/map.h"

#define STAGING_PAGES  16u
#define SCRATCH_BYTES  (64u << 10)
#define RESERVE_LEAST  (UINT64_C(256) << 10)
#define RESERVE_MOST   (UINT64_C(8) << 20)
#define ZEROS_LEAST    (UINT64_C(64) << 10)
#define ZEROS_MOST     (UINT64_C(512) << 10)
#define LARGEST_OFFSET (UINT64_C(1) << 62)

struct log_writer {
  const turb_allocator *allocator;
  struct io_file *file;
  uint64_t number, seed;
  pthread_mutex_t lock;
  uint8_t *staging; /* NULL: none */
  size_t staging_bytes;
  size_t staged;        /* bytes in the area */
  uint64_t staged_at;   /* their place */
  uint64_t prepared_ns; /* when the area was last made ready for stores, by the coarse clock */
  uint8_t *scratch;
  _Atomic uint64_t end, durable, reserved;
  uint64_t zeroed; /* pages before this place were written */
  bool finished;
  bool syncing; /* then the kernel may take the area's pages */
  bool failed;  /* a sync did */
  turb_error failure;
};

/* ---- the records ---- */

/* Copies the pieces one behind the other. */
static uint8_t *gather(uint8_t *to, const turb_bytes *pieces, size_t count) {
  for (size_t i = 0; i < count; i++) {
    if (pieces[i].size != 0) {
      memcpy(to, pieces[i].data, pieces[i].size);
      to += pieces[i].size;
    }
  }
  return to;
}

/* Builds the record that will stand at `end` in contiguous memory of log_record_size bytes. */
static void build_record(const struct log_writer *writer, uint8_t *to, enum log_record_type type, const turb_bytes *pieces, size_t count,
                         uint32_t payload_bytes) {
  const uint64_t offset = atomic_load_explicit(&writer->end, memory_order_relaxed);
  log_record_encode(to, type, payload_bytes, writer->number, offset, atomic_load(&writer->durable));
  uint8_t *end = gather(to + LOG_RECORD_BYTES, pieces, count);
  store_u64(to, hash64(to + 8, LOG_RECORD_BYTES - 8 + (size_t)payload_bytes, table_part_seed(writer->seed, offset)));
  memset(end, 0, log_record_size(payload_bytes) - LOG_RECORD_BYTES - payload_bytes);
}

/* True when the staging area may be stored into now; else the record is written instead (which also reports why the disk refuses). */
static bool prepare_staging(struct log_writer *writer) {
  if (writer->syncing) {
    return false;
  }
  const uint64_t now_ns = clock_read_ns(CLOCK_MONOTONIC_COARSE);
  if (writer->prepared_ns == 0 || now_ns - writer->prepared_ns >= (IO_MAP_PREPARED_MS / 2) * CLOCK_NS_PER_MS) {
    if (io_map_prepare(writer->staging, writer->staging_bytes, NULL) != TURB_OK) {
      writer->prepared_ns = 0;
      return false;
    }
    writer->prepared_ns = now_ns;
  }
  return true;
}

/* Brings what is staged to its place. */
static turb_status write_staged(struct log_writer *writer, turb_error *err) {
  if (writer->staged == 0) {
    return TURB_OK;
  }
  const turb_status status = io_file_write(writer->file, writer->staging, writer->staged, writer->staged_at, err);
  if (status == TURB_OK) {
    writer->staged = 0;
  }
  return status;
}

/* Writes one stretch through the scratch buffer: small ones are collected, large ones go out by themselves. */
struct scatter {
  struct log_writer *writer;
  uint64_t offset; /* of the scratch buffer's begin */
  size_t used;
};

static turb_status scatter_flush(struct scatter *scatter, turb_error *err) {
  const turb_status status = io_file_write(scatter->writer->file, scatter->writer->scratch, scatter->used, scatter->offset, err);
  scatter->offset += scatter->used;
  scatter->used = 0;
  return status;
}

static turb_status scatter_write(struct scatter *scatter, turb_bytes bytes, turb_error *err) {
  if (bytes.size > SCRATCH_BYTES - scatter->used) {
    turb_status status = scatter->used != 0 ? scatter_flush(scatter, err) : TURB_OK;
    if (status == TURB_OK && bytes.size > SCRATCH_BYTES / 2) {
      status = io_file_write(scatter->writer->file, bytes.data, bytes.size, scatter->offset, err);
      scatter->offset += bytes.size;
      return status;
    }
    if (status != TURB_OK) {
      return status;
    }
  }
  if (bytes.size != 0) {
    memcpy(scatter->writer->scratch + scatter->used, bytes.data, bytes.size);
    scatter->used += bytes.size;
  }
  return TURB_OK;
}

/* A record that does not fit the scratch buffer: its checksum is taken over the pieces, and they are written in turn. */
static turb_status write_large_record(struct log_writer *writer, enum log_record_type type, const turb_bytes *pieces, size_t count,
                                      uint32_t payload_bytes, turb_error *err) {
  const uint64_t offset = atomic_load_explicit(&writer->end, memory_order_relaxed);
  uint8_t head[LOG_RECORD_BYTES];
  log_record_encode(head, type, payload_bytes, writer->number, offset, atomic_load(&writer->durable));
  struct hash_stream hash;
  hash_stream_init(&hash, table_part_seed(writer->seed, offset));
  hash_stream_update(&hash, head + 8, LOG_RECORD_BYTES - 8);
  for (size_t i = 0; i < count; i++) {
    hash_stream_update(&hash, pieces[i].data, pieces[i].size);
  }
  store_u64(head, hash_stream_digest(&hash));

  static const uint8_t zeros[LOG_ALIGNMENT];
  struct scatter scatter = {.writer = writer, .offset = offset};
  turb_status status = scatter_write(&scatter, (turb_bytes){head, sizeof head}, err);
  for (size_t i = 0; i < count && status == TURB_OK; i++) {
    status = scatter_write(&scatter, pieces[i], err);
  }
  const size_t padding = (size_t)(log_record_size(payload_bytes) - LOG_RECORD_BYTES - payload_bytes);
  if (status == TURB_OK) {
    status = scatter_write(&scatter, (turb_bytes){zeros, padding}, err);
  }
  return status == TURB_OK && scatter.used != 0 ? scatter_flush(&scatter, err) : status;
}

/* Reserves space up to `needed` and some ahead; on a full disk just as much as is needed. */
static turb_status reserve(struct log_writer *writer, uint64_t needed, turb_error *err) {
  const uint64_t reserved = atomic_load_explicit(&writer->reserved, memory_order_relaxed);
  if (needed <= reserved) {
    return TURB_OK;
  }
  uint64_t step = reserved < RESERVE_LEAST ? RESERVE_LEAST : reserved > RESERVE_MOST ? RESERVE_MOST : reserved;
  const uint64_t least = ((needed - reserved) + (LOG_PAGE_BYTES - 1)) & ~(uint64_t)(LOG_PAGE_BYTES - 1);
  if (step < least) {
    step = least;
  }
  turb_status status = io_file_allocate(writer->file, reserved, step, true, step > least ? NULL : err);
  if (status != TURB_OK && step > least) {
    step = least;
    status = io_file_allocate(writer->file, reserved, step, true, err);
  }
  if (status == TURB_OK) {
    atomic_store(&writer->reserved, reserved + step);
  }
  return status;
}

/* Writes zeros ahead of a record that will end at `end`, in the reserved space alone. For speed only: a failure is not looked at. */
static void write_zeros(struct log_writer *writer, uint64_t end) {
  const uint64_t offset = atomic_load_explicit(&writer->end, memory_order_relaxed);
  const uint64_t reserved = atomic_load_explicit(&writer->reserved, memory_order_relaxed);
  if (end <= writer->zeroed) {
    return;
  }
  const uint64_t step = offset < ZEROS_LEAST ? ZEROS_LEAST : offset > ZEROS_MOST ? ZEROS_MOST : offset;
  const uint64_t target = (end + step < reserved ? end + step : reserved) & ~(uint64_t)(LOG_PAGE_BYTES - 1);
  const uint64_t first = (offset + (LOG_PAGE_BYTES - 1)) & ~(uint64_t)(LOG_PAGE_BYTES - 1);
  uint64_t at = writer->zeroed > first ? writer->zeroed : first;
  memset(writer->scratch, 0, SCRATCH_BYTES);
  while (at < target) {
    const size_t size = target - at < SCRATCH_BYTES ? (size_t)(target - at) : SCRATCH_BYTES;
    if (io_file_write(writer->file, writer->scratch, size, at, NULL) != TURB_OK) {
      break;
    }
    at += size;
  }
  writer->zeroed = target; /* also after a failure: not tried again for this stretch */
}

/* ---- calls ---- */

static turb_status check_usable(const struct log_writer *writer, turb_error *err) {
  if (writer->failed) {
    const turb_status status = status_set_file(err, TURB_UNKNOWN_OUTCOME, io_file_path(writer->file), atomic_load(&writer->durable),
                                               "a sync of the log failed: %s", writer->failure.message);
    if (err != NULL && err->status == TURB_UNKNOWN_OUTCOME && err->os_error == 0) {
      err->os_error = writer->failure.os_error;
    }
    return status;
  }
  if (writer->finished) {
    return status_set_file(err, TURB_INVALID, io_file_path(writer->file), STATUS_NO_OFFSET, "the log is finished");
  }
  return TURB_OK;
}

/* Under the lock. */
static turb_status append_record(struct log_writer *writer, enum log_record_type type, enum log_append_mode mode, const turb_bytes *pieces,
                                 size_t count, turb_error *err) {
  uint64_t payload_bytes = 0;
  for (size_t i = 0; i < count; i++) {
    payload_bytes += pieces[i].size;
    if (payload_bytes > LOG_MAX_PAYLOAD) {
      return status_set(err, TURB_TOO_LARGE, "a log record is beyond its bound of %u bytes", LOG_MAX_PAYLOAD);
    }
  }
  if (payload_bytes == 0) {
    return status_set(err, TURB_INVALID, "a log record must not be empty");
  }
  const uint64_t offset = atomic_load_explicit(&writer->end, memory_order_relaxed);
  const uint64_t size = log_record_size(payload_bytes);
  if (size > LARGEST_OFFSET - offset) {
    return status_set_file(err, TURB_TOO_LARGE, io_file_path(writer->file), offset, "the log is full");
  }
  turb_status status = reserve(writer, offset + size, err);
  if (status != TURB_OK) {
    return status;
  }
  if (mode == LOG_APPEND_SYNCED && type == LOG_BATCH) {
    write_zeros(writer, offset + size);
  }
  const bool stages = mode == LOG_APPEND_LOGGED && size <= writer->staging_bytes && prepare_staging(writer);
  if (!stages || size > writer->staging_bytes - writer->staged) {
    status = write_staged(writer, err);
    if (status != TURB_OK) {
      return status;
    }
  }
  if (stages) {
    if (writer->staged == 0) {
      writer->staged_at = offset;
    }
    build_record(writer, writer->staging + writer->staged, type, pieces, count, (uint32_t)payload_bytes);
    writer->staged += (size_t)size;
  } else if (size <= SCRATCH_BYTES) {
    build_record(writer, writer->scratch, type, pieces, count, (uint32_t)payload_bytes);
    status = io_file_write(writer->file, writer->scratch, (size_t)size, offset, err);
  } else {
    status = write_large_record(writer, type, pieces, count, (uint32_t)payload_bytes, err);
  }
  if (status == TURB_OK) {
    atomic_store(&writer->end, offset + size);
  }
  return status;
}

turb_status log_writer_append(struct log_writer *writer, enum log_append_mode mode, const turb_bytes *pieces, size_t count, uint64_t *end,
                              turb_error *err) {
  if (end != NULL) {
    *end = 0;
  }
  mutex_lock(&writer->lock);
  turb_status status = check_usable(writer, err);
  if (status == TURB_OK) {
    status = append_record(writer, LOG_BATCH, mode, pieces, count, err);
  }
  if (status == TURB_OK && end != NULL) {
    *end = atomic_load_explicit(&writer->end, memory_order_relaxed);
  }
  mutex_unlock(&writer->lock);
  return status;
}

/* Makes the file durable up to its end, which is in its place; a failure is final. Called with the lock, which it lets go. */
static turb_status sync_and_unlock(struct log_writer *writer, turb_error *err) {
  const uint64_t target = atomic_load(&writer->end);
  if (target <= atomic_load(&writer->durable)) {
    mutex_unlock(&writer->lock);
    return TURB_OK;
  }
  writer->syncing = true;
  mutex_unlock(&writer->lock);
  turb_error failure = TURB_ERROR_INIT;
  turb_status status = io_file_sync(writer->file, &failure);
  mutex_lock(&writer->lock);
  writer->syncing = false;
  writer->prepared_ns = 0;
  if (status == TURB_OK) {
    atomic_store(&writer->durable, target);
  } else {
    writer->failed = true;
    writer->failure = failure;
    status = check_usable(writer, err);
  }
  mutex_unlock(&writer->lock);
  return status;
}

turb_status log_writer_sync(struct log_writer *writer, turb_error *err) {
  mutex_lock(&writer->lock);
  const turb_status status = writer->failed ? check_usable(writer, err) : write_staged(writer, err);
  if (status != TURB_OK) {
    mutex_unlock(&writer->lock);
    return status;
  }
  return sync_and_unlock(writer, err);
}

turb_status log_writer_finish(struct log_writer *writer, uint64_t next_number, turb_error *err) {
  uint8_t payload[LOG_END_PAYLOAD_BYTES];
  store_u64(payload, next_number);
  const turb_bytes piece = {payload, sizeof payload};
  mutex_lock(&writer->lock);
  turb_status status = check_usable(writer, err);
  if (status == TURB_OK) {
    status = append_record(writer, LOG_END, LOG_APPEND_SYNCED, &piece, 1, err);
  }
  if (status != TURB_OK) {
    mutex_unlock(&writer->lock);
    return status;
  }
  writer->finished = true;
  /* Only for the space: a log may be longer than its records. */
  if (io_file_truncate(writer->file, atomic_load(&writer->end), NULL) == TURB_OK) {
    atomic_store(&writer->reserved, atomic_load(&writer->end));
  }
  return sync_and_unlock(writer, err);
}

/* ---- creation ---- */

static turb_status random_seed(uint64_t *seed, turb_error *err) {
  ssize_t got = 0;
  do {
    got = getrandom(seed, sizeof *seed, 0);
  } while (got < 0 && errno == EINTR);
  return got == (ssize_t)sizeof *seed ? TURB_OK : status_from_errno(err, errno, "draw random bytes", NULL, STATUS_NO_OFFSET);
}

/* Reserves the first space, maps the staging area where that is possible, and writes page 0. */
static turb_status write_front(struct log_writer *writer, const struct log_writer_options *options, turb_error *err) {
  turb_status status = random_seed(&writer->seed, err);
  if (status == TURB_OK) {
    status = reserve(writer, log_begin(STAGING_PAGES), err);
  }
  if (status != TURB_OK) {
    return status;
  }
  struct log_header header = {.number = options->number, .seed = writer->seed, .first_sequence = options->first_sequence};
  memcpy(header.database_id, options->database_id, LOG_DATABASE_ID_BYTES);
  memset(writer->scratch, 0, STAGING_PAGES * LOG_PAGE_BYTES);
  void *staging = NULL;
  /* Written before it is mapped, so that storing into it needs no space. */
  status = io_file_write(writer->file, writer->scratch, STAGING_PAGES * LOG_PAGE_BYTES, LOG_PAGE_BYTES, err);
  if (status != TURB_OK) {
    return status;
  }
  if (io_file_map(writer->file, LOG_PAGE_BYTES, STAGING_PAGES * LOG_PAGE_BYTES, &staging, NULL) == TURB_OK) {
    writer->staging = staging;
    writer->staging_bytes = STAGING_PAGES * LOG_PAGE_BYTES;
    header.staging_pages = STAGING_PAGES;
  }
  log_header_encode(writer->scratch, &header);
  atomic_store(&writer->end, log_begin(header.staging_pages));
  return io_file_write(writer->file, writer->scratch, LOG_PAGE_BYTES, 0, err);
}

static turb_status create_file(struct log_writer *writer, const struct log_writer_options *options, const char *path, turb_error *err) {
  turb_status status =
      io_file_open(options->system, path, IO_OPEN_READ | IO_OPEN_WRITE | IO_OPEN_CREATE | IO_OPEN_EXCLUSIVE, &writer->file, err);
  if (status != TURB_OK) {
    return status;
  }
  status = write_front(writer, options, err);
  if (status == TURB_OK) {
    status = io_file_sync(writer->file, err);
  }
  if (status == TURB_OK) {
    status = io_sync_folder(options->system, options->folder, err);
  }
  if (status == TURB_OK) {
    atomic_store(&writer->durable, atomic_load(&writer->end));
    return TURB_OK;
  }
  /* A log without records that stays behind does no harm; its number is never used again. */
  if (io_unlink(options->system, path, NULL) != TURB_OK) {
    return status;
  }
  return status;
}

turb_status log_writer_create(const struct log_writer_options *options, struct log_writer **out, turb_error *err) {
  *out = NULL;
  struct log_writer *writer = mem_alloc_zeroed(options->allocator, sizeof *writer);
  if (writer == NULL) {
    return status_set(err, TURB_NO_MEMORY, "no memory for a log writer");
  }
  writer->allocator = options->allocator;
  writer->number = options->number;
  mutex_init(&writer->lock);
  char *path = name_path(options->allocator, options->folder, NAME_LOG, options->number);
  writer->scratch = mem_alloc(options->allocator, SCRATCH_BYTES);
  turb_status status = TURB_NO_MEMORY;
  if (path != NULL && writer->scratch != NULL) {
    status = create_file(writer, options, path, err);
  } else {
    (void)status_set(err, status, "no memory for a log writer");
  }
  mem_free_string(options->allocator, path);
  if (status != TURB_OK) {
    log_writer_close(writer);
    return status;
  }
  *out = writer;
  return TURB_OK;
}

void log_writer_close(struct log_writer *writer) {
  if (writer == NULL) {
    return;
  }
  if (writer->staging != NULL) {
    /* What cannot be written stays in the area, where recovery finds it. */
    if (writer->failed || write_staged(writer, NULL) != TURB_OK) {
      writer->staged = 0;
    }
    io_file_unmap(writer->staging, writer->staging_bytes);
  }
  io_file_release(writer->file);
  mem_free(writer->allocator, writer->scratch, SCRATCH_BYTES);
  mutex_destroy(&writer->lock);
  mem_free(writer->allocator, writer, sizeof *writer);
}

uint64_t log_writer_number(const struct log_writer *writer) {
  return writer->number;
}

uint64_t log_writer_end(const struct log_writer *writer) {
  return atomic_load(&writer->end);
}

uint64_t log_writer_durable(const struct log_writer *writer) {
  return atomic_load(&writer->durable);
}

uint64_t log_writer_bytes(const struct log_writer *writer) {
  return atomic_load(&writer->reserved);
}

const char *log_writer_path(const struct log_writer *writer) {
  return io_file_path(writer->file);
}
