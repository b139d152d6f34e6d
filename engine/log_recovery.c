/*
 * Recovery of one log; see log.h, and docs/format.md 4 for the rule.
 *
 * The log is looked at through a view: the file's bytes, zeros behind its end, and over both the records of the staging area at their
 * place. A
 * window of the view is in memory; a larger record is checked in pieces first, and only one that verifies is brought in whole, so that a
 * damaged length costs time and no memory.
 */
#include <assert.h>

#include "engine/log_format.h"
#include "engine/name.h"

#define WINDOW_BYTES (256u << 10)

struct view {
  const struct log_recovery_options *options;
  const char *path;
  struct io_file *file;
  uint64_t file_bytes;
  uint64_t size; /* of the view */
  uint64_t number, seed, begin;
  uint8_t *staging; /* the area's copy, or NULL */
  size_t staging_bytes;
  uint64_t overlay_at;
  size_t overlay_bytes;
  uint64_t staged_durable; /* the highest mark of staged records */
  uint8_t *window;
  uint64_t window_at;
  size_t window_bytes;
  uint8_t *large; /* a record larger than the window */
  size_t large_capacity;
};

/* A record that verifies. */
struct record {
  uint8_t type;
  uint32_t payload_bytes;
  uint64_t size; /* with head and padding */
  uint64_t durable;
  uint64_t checksum;
};

/* ---- the view ---- */

/* Reads [offset, offset + size) of the view. */
static turb_status view_read(struct view *view, uint64_t offset, uint8_t *to, size_t size, turb_error *err) {
  size_t there = 0;
  if (offset < view->file_bytes) {
    there = view->file_bytes - offset < size ? (size_t)(view->file_bytes - offset) : size;
    const turb_status status = io_file_read(view->file, to, there, offset, err);
    if (status != TURB_OK) {
      return status;
    }
  }
  memset(to + there, 0, size - there);
  const uint64_t from = offset > view->overlay_at ? offset : view->overlay_at;
  const uint64_t overlay_end = view->overlay_at + view->overlay_bytes;
  const uint64_t until = offset + size < overlay_end ? offset + size : overlay_end;
  if (from < until) {
    memcpy(to + (from - offset), view->staging + (from - view->overlay_at), (size_t)(until - from));
  }
  return TURB_OK;
}

/* Bytes [offset, offset + size) in the window; size is at most WINDOW_BYTES and within the view. */
static turb_status view_at(struct view *view, uint64_t offset, size_t size, const uint8_t **bytes, turb_error *err) {
  assert(size <= WINDOW_BYTES && offset + size <= view->size);
  if (offset < view->window_at || offset + size > view->window_at + view->window_bytes) {
    const uint64_t left = view->size - offset;
    const size_t wanted = left < WINDOW_BYTES ? (size_t)left : WINDOW_BYTES;
    view->window_bytes = 0;
    const turb_status status = view_read(view, offset, view->window, wanted, err);
    if (status != TURB_OK) {
      return status;
    }
    view->window_at = offset;
    view->window_bytes = wanted;
  }
  *bytes = view->window + (offset - view->window_at);
  return TURB_OK;
}

/* ---- records ---- */

/* What a head says, when it can be that of a record at `offset` of a log of so many bytes; false otherwise. */
static bool parse_head(const struct view *view, const uint8_t *head, uint64_t offset, uint64_t bytes_left, struct record *record) {
  record->payload_bytes = load_u32(head + LOG_RECORD_AT_SIZE);
  record->size = log_record_size(record->payload_bytes);
  if (load_u64(head + LOG_RECORD_AT_NUMBER) != view->number || load_u64(head + LOG_RECORD_AT_OFFSET) != offset ||
      record->payload_bytes == 0 || record->size > bytes_left) {
    return false;
  }
  record->type = head[LOG_RECORD_AT_TYPE];
  record->durable = load_u64(head + LOG_RECORD_AT_DURABLE);
  record->checksum = load_u64(head);
  return true;
}

/* Checks a record larger than the window piece by piece. */
static turb_status verify_large(struct view *view, uint64_t offset, const struct record *record, bool *whole, turb_error *err) {
  struct hash_stream hash;
  hash_stream_init(&hash, table_part_seed(view->seed, offset));
  uint64_t at = offset + 8;
  const uint64_t end = offset + LOG_RECORD_BYTES + record->payload_bytes;
  while (at < end) {
    const uint8_t *bytes = NULL;
    const size_t size = end - at < WINDOW_BYTES ? (size_t)(end - at) : WINDOW_BYTES;
    const turb_status status = view_at(view, at, size, &bytes, err);
    if (status != TURB_OK) {
      return status;
    }
    hash_stream_update(&hash, bytes, size);
    at += size;
  }
  *whole = hash_stream_digest(&hash) == record->checksum;
  return TURB_OK;
}

/* Is there a whole verifying record at offset? Where it fits the window, it is there afterwards. */
static turb_status find_record(struct view *view, uint64_t offset, struct record *record, bool *whole, turb_error *err) {
  *whole = false;
  if (view->size < offset + LOG_RECORD_BYTES) {
    return TURB_OK;
  }
  const uint8_t *bytes = NULL;
  turb_status status = view_at(view, offset, LOG_RECORD_BYTES, &bytes, err);
  if (status != TURB_OK || !parse_head(view, bytes, offset, view->size - offset, record)) {
    return status;
  }
  if (record->size > WINDOW_BYTES) {
    return verify_large(view, offset, record, whole, err);
  }
  status = view_at(view, offset, (size_t)record->size, &bytes, err);
  if (status == TURB_OK) {
    *whole = hash64(bytes + 8, LOG_RECORD_BYTES - 8 + record->payload_bytes, table_part_seed(view->seed, offset)) == record->checksum;
  }
  return status;
}

/* The whole record in memory. */
static turb_status bring_record(struct view *view, uint64_t offset, const struct record *record, const uint8_t **bytes, turb_error *err) {
  if (record->size <= WINDOW_BYTES) {
    return view_at(view, offset, (size_t)record->size, bytes, err);
  }
  if (view->large_capacity < record->size) {
    mem_free(view->options->allocator, view->large, view->large_capacity);
    view->large_capacity = 0;
    view->large = mem_alloc(view->options->allocator, (size_t)record->size);
    if (view->large == NULL) {
      return status_set_file(err, TURB_NO_MEMORY, view->path, offset, "no memory for a log record of %llu bytes",
                             (unsigned long long)record->size);
    }
    view->large_capacity = (size_t)record->size;
  }
  *bytes = view->large;
  return view_read(view, offset, view->large, (size_t)record->size, err);
}

/* Reserved bytes, padding and mark of a record that verifies. */
static bool record_conforms(const uint8_t *bytes, uint64_t offset, const struct record *record) {
  uint8_t reserved = bytes[LOG_RECORD_AT_TYPE + 1] | bytes[LOG_RECORD_AT_TYPE + 2] | bytes[LOG_RECORD_AT_TYPE + 3];
  for (uint64_t at = LOG_RECORD_BYTES + (uint64_t)record->payload_bytes; at < record->size; at++) {
    reserved |= bytes[at];
  }
  return reserved == 0 && record->durable <= offset && (record->type != LOG_END || record->payload_bytes >= LOG_END_PAYLOAD_BYTES);
}

/* ---- opening ---- */

/* True when nothing but zeros stands behind page 0. */
static turb_status only_zeros_follow(struct view *view, bool *zeros, turb_error *err) {
  *zeros = true;
  for (uint64_t at = LOG_PAGE_BYTES; at < view->file_bytes && *zeros;) {
    const uint8_t *bytes = NULL;
    const size_t size = view->file_bytes - at < WINDOW_BYTES ? (size_t)(view->file_bytes - at) : WINDOW_BYTES;
    const turb_status status = view_at(view, at, size, &bytes, err);
    if (status != TURB_OK) {
      return status;
    }
    for (size_t i = 0; i < size && *zeros; i++) {
      *zeros = bytes[i] == 0;
    }
    at += size;
  }
  return TURB_OK;
}

static bool page_is_zero(const uint8_t *page, size_t from) {
  uint8_t all = 0;
  for (size_t i = from; i < LOG_PAGE_BYTES; i++) {
    all |= page[i];
  }
  return all == 0;
}

/* Page 0 verifies; does it belong here? */
static turb_status check_header(struct view *view, const uint8_t *page, uint32_t *staging_pages, turb_error *err) {
  const uint32_t version = load_u32(page + LOG_AT_VERSION);
  if (version > LOG_FORMAT_VERSION) {
    return status_set_file(err, TURB_NEWER_FORMAT, view->path, LOG_AT_VERSION, "the log has format version %u; this library knows %u",
                           version, LOG_FORMAT_VERSION);
  }
  if (memcmp(page + LOG_AT_DATABASE_ID, view->options->database_id, LOG_DATABASE_ID_BYTES) != 0) {
    return status_set_file(err, TURB_CORRUPTION, view->path, LOG_AT_DATABASE_ID, "the log belongs to another database");
  }
  if (load_u64(page + LOG_AT_NUMBER) != view->number) {
    return status_set_file(err, TURB_CORRUPTION, view->path, LOG_AT_NUMBER, "the log is number %llu under the name of %llu",
                           (unsigned long long)load_u64(page + LOG_AT_NUMBER), (unsigned long long)view->number);
  }
  *staging_pages = load_u32(page + LOG_AT_STAGING_PAGES);
  if (version != LOG_FORMAT_VERSION || *staging_pages > LOG_MAX_STAGING_PAGES || !page_is_zero(page, LOG_AT_CHECKSUM + 8)) {
    return status_set_file(err, TURB_CORRUPTION, view->path, 0, "the header of the log does not hold");
  }
  return TURB_OK;
}

/* Reads the staging area and finds out which stretch its records lie over. */
static turb_status open_staging(struct view *view, uint32_t pages, turb_error *err) {
  if (pages == 0) {
    return TURB_OK;
  }
  view->staging_bytes = (size_t)pages * LOG_PAGE_BYTES;
  view->staging = mem_alloc(view->options->allocator, view->staging_bytes);
  if (view->staging == NULL) {
    return status_set_file(err, TURB_NO_MEMORY, view->path, STATUS_NO_OFFSET, "no memory for the staging area of a log");
  }
  const turb_status status = view_read(view, LOG_PAGE_BYTES, view->staging, view->staging_bytes, err);
  if (status != TURB_OK) {
    return status;
  }
  uint64_t place = load_u64(view->staging + LOG_RECORD_AT_OFFSET);
  if (place < view->begin || place % LOG_ALIGNMENT != 0 || place > UINT64_MAX / 2) {
    return TURB_OK;
  }
  const uint64_t first = place;
  size_t at = 0;
  struct record record;
  while (view->staging_bytes - at >= LOG_RECORD_BYTES) {
    const uint8_t *bytes = view->staging + at;
    if (!parse_head(view, bytes, place, view->staging_bytes - at, &record) ||
        hash64(bytes + 8, LOG_RECORD_BYTES - 8 + record.payload_bytes, table_part_seed(view->seed, place)) != record.checksum) {
      break;
    }
    if (record.durable <= place && record.durable > view->staged_durable) {
      view->staged_durable = record.durable;
    }
    at += (size_t)record.size;
    place += record.size;
  }
  /* The place of staged records is never behind a gap; in a log that was cut, their marks tell. */
  if (at != 0 && first <= view->size) {
    view->overlay_at = first;
    view->overlay_bytes = at;
    view->size = place > view->size ? place : view->size;
    view->window_bytes = 0; /* it shows the log without them */
  }
  return TURB_OK;
}

/* Opens and checks page 0; *unused is set for a log whose creation was cut short. */
static turb_status view_open(struct view *view, bool *unused, uint64_t *first_sequence, turb_error *err) {
  *unused = false;
  turb_status status = io_file_open(view->options->system, view->path, IO_OPEN_READ, &view->file, err);
  if (status == TURB_OK) {
    status = io_file_size(view->file, &view->file_bytes, err);
  }
  if (status != TURB_OK) {
    return status;
  }
  /* Up to a border: the last record's padding may be missing. */
  view->size =
      view->file_bytes < LOG_PAGE_BYTES ? LOG_PAGE_BYTES : (view->file_bytes + (LOG_ALIGNMENT - 1)) & ~(uint64_t)(LOG_ALIGNMENT - 1);
  view->window = mem_alloc(view->options->allocator, WINDOW_BYTES);
  if (view->window == NULL) {
    return status_set_file(err, TURB_NO_MEMORY, view->path, STATUS_NO_OFFSET, "no memory to read a log");
  }
  const uint8_t *page = NULL;
  status = view_at(view, 0, LOG_PAGE_BYTES, &page, err);
  if (status != TURB_OK) {
    return status;
  }
  if (memcmp(page, log_magic, sizeof log_magic) != 0 || load_u64(page + LOG_AT_CHECKSUM) != hash64(page, LOG_AT_CHECKSUM, 0)) {
    status = only_zeros_follow(view, unused, err);
    if (status == TURB_OK && !*unused) {
      status = status_set_file(err, TURB_CORRUPTION, view->path, 0, "the header of the log does not verify");
    }
    return status;
  }
  uint32_t staging_pages = 0;
  status = check_header(view, page, &staging_pages, err);
  if (status != TURB_OK) {
    return status;
  }
  *first_sequence = load_u64(page + LOG_AT_FIRST_SEQUENCE);
  view->seed = load_u64(page + LOG_AT_SEED);
  view->begin = log_begin(staging_pages);
  if (view->size < view->begin) {
    view->size = view->begin;
  }
  return open_staging(view, staging_pages, err);
}

static void view_close(struct view *view) {
  io_file_release(view->file);
  mem_free(view->options->allocator, view->staging, view->staging_bytes);
  mem_free(view->options->allocator, view->window, WINDOW_BYTES);
  mem_free(view->options->allocator, view->large, view->large_capacity);
}

/* ---- the walk ---- */

/*
 * Looks behind a break for records that verify: *next is the first (0: none), and the highest mark of all goes into recovery->durable.
 * With `first_only`
 * the marks of the others are not wanted.
 */
static turb_status scan(struct view *view, uint64_t from, bool first_only, struct log_recovery *recovery, uint64_t *next, turb_error *err) {
  *next = 0;
  for (uint64_t at = from; at + LOG_RECORD_BYTES <= view->size;) {
    struct record record;
    bool whole = false;
    const turb_status status = find_record(view, at, &record, &whole, err);
    if (status != TURB_OK) {
      return status;
    }
    if (!whole) {
      at += LOG_ALIGNMENT;
      continue;
    }
    if (*next == 0) {
      *next = at;
    }
    if (first_only) {
      break;
    }
    /* A mark beyond its own record says nothing. */
    if (record.durable <= at && record.durable > recovery->durable) {
      recovery->durable = record.durable;
    }
    at += record.size;
  }
  return TURB_OK;
}

/* Gives one record to the caller. */
static turb_status deliver(struct view *view, struct log_recovery *recovery, uint64_t offset, const struct record *record,
                           turb_error *err) {
  const uint8_t *bytes = NULL;
  turb_status status = bring_record(view, offset, record, &bytes, err);
  if (status != TURB_OK) {
    return status;
  }
  if (!view->options->salvage && !record_conforms(bytes, offset, record)) {
    return status_set_file(err, TURB_CORRUPTION, view->path, offset, "a log record verifies, but contradicts the format");
  }
  if (record->type != LOG_BATCH && record->type != LOG_END) {
    return status_set_file(err, TURB_NEWER_FORMAT, view->path, offset, "a log record of the unknown type %u", record->type);
  }
  if (record->durable <= offset && record->durable > recovery->durable) {
    recovery->durable = record->durable;
  }
  if (view->options->record != NULL) {
    const struct log_record out = {
        .type = (enum log_record_type)record->type,
        .log_number = view->number,
        .offset = offset,
        .payload_offset = offset + LOG_RECORD_BYTES,
        .durable = record->durable,
        .payload = {bytes + LOG_RECORD_BYTES, record->payload_bytes},
        .file = view->path,
    };
    status = view->options->record(view->options->context, &out, err);
    if (status != TURB_OK) {
      return status;
    }
  }
  if (record->type == LOG_END) {
    recovery->ended = true;
    if (record->payload_bytes >= LOG_END_PAYLOAD_BYTES) {
      recovery->next_number = load_u64(bytes + LOG_RECORD_BYTES);
    }
  } else {
    recovery->records++;
  }
  recovery->end = offset + record->size;
  return TURB_OK;
}

/* Nothing verifies at `at`: the tail (*next 0), an error, or what salvage skips to. */
static turb_status pass_break(struct view *view, struct log_recovery *recovery, uint64_t at, bool scanned, uint64_t *next,
                              turb_error *err) {
  turb_status status = scan(view, at + LOG_ALIGNMENT, scanned, recovery, next, err);
  if (status != TURB_OK) {
    return status;
  }
  if (at >= recovery->durable) {
    if (*next != 0) {
      logger_write(view->options->logger, LOGGER_WARNING, "%s: records behind a hole at %llu were never made durable, and are dropped",
                   view->path, (unsigned long long)at);
    }
    *next = 0;
    return TURB_OK;
  }
  if (!view->options->salvage) {
    return status_set_file(err, TURB_CORRUPTION, view->path, at,
                           "the log is damaged: no record verifies here, and it was durable up to %llu",
                           (unsigned long long)recovery->durable);
  }
  /* With nothing more to come, marks of staged records tell what is missing. */
  const uint64_t bytes = (*next != 0 ? *next : recovery->durable) - at;
  recovery->skipped_bytes += bytes;
  recovery->skipped_stretches++;
  logger_write(view->options->logger, LOGGER_ERROR, "%s: salvage skips %llu damaged bytes at %llu", view->path, (unsigned long long)bytes,
               (unsigned long long)at);
  if (view->options->skipped != NULL) {
    view->options->skipped(view->options->context, view->path, at, bytes);
  }
  return TURB_OK;
}

static turb_status walk(struct view *view, struct log_recovery *recovery, turb_error *err) {
  bool scanned = false; /* to the end: all marks are known */
  for (uint64_t at = view->begin; !recovery->ended;) {
    struct record record;
    bool whole = false;
    turb_status status = find_record(view, at, &record, &whole, err);
    if (status == TURB_OK && whole) {
      status = deliver(view, recovery, at, &record, err);
      at += record.size;
    } else if (status == TURB_OK) {
      uint64_t next = 0;
      status = pass_break(view, recovery, at, scanned, &next, err);
      scanned = true;
      if (status == TURB_OK && next == 0) {
        return TURB_OK;
      }
      at = next;
    }
    if (status != TURB_OK) {
      return status;
    }
  }
  return TURB_OK;
}

turb_status log_recover(const struct log_recovery_options *options, uint64_t number, struct log_recovery *recovery, turb_error *err) {
  *recovery = (struct log_recovery){.number = number};
  char *path = options->path != NULL ? mem_strdup(options->allocator, options->path)
                                     : name_path(options->allocator, options->folder, NAME_LOG, number);
  if (path == NULL) {
    return status_set(err, TURB_NO_MEMORY, "no memory to recover a log");
  }
  struct view view = {.options = options, .path = path, .number = number};
  turb_error failure = TURB_ERROR_INIT;
  turb_status status = view_open(&view, &recovery->unused, &recovery->first_sequence, &failure);
  if (status == TURB_CORRUPTION && options->salvage) {
    /* Without its seed no record can be verified. */
    logger_write(options->logger, LOGGER_ERROR, "salvage skips a whole log: %s", failure.message);
    recovery->unused = true;
    recovery->skipped_bytes = view.file_bytes;
    recovery->skipped_stretches = 1;
    if (options->skipped != NULL) {
      options->skipped(options->context, path, 0, view.file_bytes);
    }
    status = TURB_OK;
  } else if (status != TURB_OK) {
    status = status_copy(err, &failure);
  }
  recovery->file_bytes = view.file_bytes;
  recovery->begin = recovery->end = view.begin;
  recovery->durable = view.staged_durable;
  recovery->seed = view.seed;
  if (status == TURB_OK && !recovery->unused) {
    status = walk(&view, recovery, err);
    const uint64_t overlay_end = view.overlay_at + view.overlay_bytes;
    recovery->staged_bytes = overlay_end <= recovery->end ? view.overlay_bytes : 0;
  }
  view_close(&view);
  mem_free_string(options->allocator, path);
  return status;
}

/* ---- sealing ---- */

/* Brings staged records to their place and makes the log durable as recovery saw it. */
static turb_status settle(struct view *view, const struct log_recovery *recovery, turb_error *err) {
  turb_status status = TURB_OK;
  if (view->overlay_bytes != 0 && view->overlay_at < recovery->end) {
    const uint64_t until = view->overlay_at + view->overlay_bytes;
    const size_t size = (size_t)((until < recovery->end ? until : recovery->end) - view->overlay_at);
    status = io_file_write(view->file, view->staging, size, view->overlay_at, err);
  }
  return status == TURB_OK ? io_file_sync(view->file, err) : status;
}

/*
 * Cuts the tail off and ends the log behind its last good record. The staging area is cleared, since records of the tail may stand there;
 * were it to
 * survive a loss of power over the end record, that one would not verify, and the log be sealed again.
 */
static turb_status cut_and_end(struct view *view, struct log_recovery *recovery, uint64_t next_number, turb_error *err) {
  turb_status status = TURB_OK;
  if (view->staging != NULL) {
    memset(view->staging, 0, view->staging_bytes);
    status = io_file_write(view->file, view->staging, view->staging_bytes, LOG_PAGE_BYTES, err);
  }
  if (status == TURB_OK) {
    status = io_file_truncate(view->file, recovery->end, err);
  }
  uint8_t record[LOG_RECORD_BYTES + LOG_END_PAYLOAD_BYTES];
  log_record_encode(record, LOG_END, LOG_END_PAYLOAD_BYTES, view->number, recovery->end, recovery->end);
  store_u64(record + LOG_RECORD_BYTES, next_number);
  store_u64(record, hash64(record + 8, sizeof record - 8, table_part_seed(view->seed, recovery->end)));
  if (status == TURB_OK) {
    status = io_file_write(view->file, record, sizeof record, recovery->end, err);
  }
  if (status == TURB_OK) {
    status = io_file_sync(view->file, err);
  }
  if (status == TURB_OK) {
    recovery->durable = recovery->end;
    recovery->end += sizeof record;
    recovery->file_bytes = recovery->end;
    recovery->ended = true;
    recovery->next_number = next_number;
  }
  return status;
}

turb_status log_seal(const struct log_recovery_options *options, struct log_recovery *recovery, uint64_t next_number, turb_error *err) {
  char *path = name_path(options->allocator, options->folder, NAME_LOG, recovery->number);
  if (path == NULL) {
    return status_set(err, TURB_NO_MEMORY, "no memory to seal a log");
  }
  struct view view = {.options = options, .path = path, .number = recovery->number};
  bool unused = false;
  uint64_t first_sequence = 0;
  turb_status status = view_open(&view, &unused, &first_sequence, err);
  if (status == TURB_OK) {
    io_file_release(view.file);
    view.file = NULL;
    status = io_file_open(options->system, path, IO_OPEN_READ | IO_OPEN_WRITE, &view.file, err);
  }
  if (status == TURB_OK) {
    status = settle(&view, recovery, err);
  }
  if (status == TURB_OK) {
    status = cut_and_end(&view, recovery, next_number, err);
  }
  view_close(&view);
  mem_free_string(options->allocator, path);
  return status;
}
