/*
 * The manifest: writing editions and appending edits; see manifest.h for states and invariants, manifest_read.c for reading.
 *
 * How each failure is met (the state after it, and what the next append does):
 *
 *   making, writing or syncing MANIFEST.tmp    as before: the edition in place was not touched
 *   renaming it, syncing the folder            UNSETTLED: either edition may be in place after a power loss
 *   writing or syncing an appended record      a new edition with the edit in it is tried at once; when that fails: UNSETTLED
 *   UNSETTLED                                  a new edition first, then the append
 */
#include <errno.h>
#include <sys/random.h>

#include "base/clock.h"
#include "engine/manifest_format.h"
#include "engine/name.h"

#define GROWTH_LEAST (UINT64_C(4) << 20)
#define RETRY_GROWTH (UINT64_C(1) << 20)

struct manifest {
  struct io_system *system;
  const turb_allocator *allocator;
  const struct logger *logger;
  char *folder;
  char *path;
  struct io_file *file; /* NULL: read-only */
  struct catalog catalog;
  struct manifest_header header;
  bool read_only;
  bool settled;
  uint64_t end;            /* behind the last record */
  uint64_t snapshot_bytes; /* of the edition's first record */
  uint64_t next_rewrite;   /* not before this size, after a rewrite that failed */
};

/* ---- small parts ---- */

static turb_status draw(void *to, size_t size, turb_error *err) {
  ssize_t got = 0;
  do {
    got = getrandom(to, size, 0);
  } while (got < 0 && errno == EINTR);
  return got == (ssize_t)size ? TURB_OK : status_from_errno(err, errno, "draw random bytes", NULL, STATUS_NO_OFFSET);
}

/* Appends one record that will stand at `offset` to bytes. */
static void put_record(struct buffer *bytes, uint64_t seed, uint64_t offset, turb_bytes payload) {
  const size_t size = (size_t)manifest_record_size(payload.size);
  uint8_t *record = buffer_extend(bytes, size);
  if (record == NULL) {
    return;
  }
  memset(record, 0, MANIFEST_RECORD_BYTES);
  store_u32(record + MANIFEST_RECORD_AT_SIZE, (uint32_t)payload.size);
  memcpy(record + MANIFEST_RECORD_BYTES, payload.data, payload.size);
  memset(record + MANIFEST_RECORD_BYTES + payload.size, 0, size - MANIFEST_RECORD_BYTES - payload.size);
  store_u64(record, hash64(record + 8, MANIFEST_RECORD_BYTES - 8 + payload.size, table_part_seed(seed, offset)));
}

static turb_status check_payload(turb_bytes payload, turb_error *err) {
  return payload.size <= UINT32_MAX ? TURB_OK
                                    : status_set(err, TURB_TOO_LARGE, "a version edit is beyond its bound of %u bytes", UINT32_MAX);
}

/* ---- editions ---- */

/* The bytes of an edition: header page, snapshot, and the edit that comes on top when there is one. */
static turb_status build_edition(const struct manifest_header *header, const struct catalog *catalog, turb_bytes edit, struct buffer *bytes,
                                 uint64_t *snapshot_bytes, turb_error *err) {
  struct version_edit snapshot;
  edit_init(&snapshot, bytes->allocator);
  turb_bytes payload = TURB_NONE;
  turb_status status = catalog_snapshot(catalog, &snapshot, err);
  if (status == TURB_OK) {
    status = edit_encode(&snapshot, &payload, err);
  }
  if (status == TURB_OK) {
    status = check_payload(payload, err);
  }
  if (status == TURB_OK) {
    uint8_t *page = buffer_extend(bytes, MANIFEST_HEADER_BYTES);
    if (page != NULL) {
      manifest_header_encode(page, header);
    }
    put_record(bytes, header->seed, MANIFEST_HEADER_BYTES, payload);
    *snapshot_bytes = bytes->size - MANIFEST_HEADER_BYTES;
    if (edit.size != 0) {
      put_record(bytes, header->seed, bytes->size, edit);
    }
    if (buffer_status(bytes) != TURB_OK) {
      status = status_set(err, TURB_NO_MEMORY, "no memory for a new edition of the manifest");
    }
  }
  edit_free(&snapshot);
  return status;
}

/* Writes the bytes to a new file at path, durably but for its name. On failure the file is removed as far as possible. */
static turb_status write_file(struct io_system *system, const char *path, const struct buffer *bytes, struct io_file **file,
                              turb_error *err) {
  turb_status status = io_file_open(system, path, IO_OPEN_READ | IO_OPEN_WRITE | IO_OPEN_CREATE | IO_OPEN_TRUNCATE, file, err);
  if (status != TURB_OK) {
    return status;
  }
  status = io_file_write(*file, bytes->data, bytes->size, 0, err);
  if (status == TURB_OK) {
    status = io_file_sync(*file, err);
  }
  if (status != TURB_OK) {
    io_file_release(*file);
    *file = NULL;
    if (io_unlink(system, path, NULL) != TURB_OK) {
      return status; /* removed at the next open */
    }
  }
  return status;
}

/* Puts a written MANIFEST.tmp in place. A failure leaves open which edition a power loss would bring back. */
static turb_status put_in_place(struct io_system *system, const char *folder, const char *from, const char *to, turb_error *err) {
  const turb_status status = io_rename(system, from, to, err);
  return status == TURB_OK ? io_sync_folder(system, folder, err) : status;
}

/*
 * Replaces the edition by one with the catalog's committed state and, on top, an edit (may be empty). An attempt that fails before the
 * rename leaves
 * the manifest as settled as it was.
 */
static turb_status write_edition(struct manifest *manifest, turb_bytes edit, turb_error *err) {
  struct manifest_header header = manifest->header;
  header.edition++;
  turb_status status = draw(&header.seed, sizeof header.seed, err);
  struct buffer bytes;
  buffer_init(&bytes, manifest->allocator);
  uint64_t snapshot_bytes = 0;
  if (status == TURB_OK) {
    status = build_edition(&header, &manifest->catalog, edit, &bytes, &snapshot_bytes, err);
  }
  char *temporary = name_path(manifest->allocator, manifest->folder, NAME_MANIFEST_TEMPORARY, 0);
  if (status == TURB_OK && temporary == NULL) {
    status = status_set(err, TURB_NO_MEMORY, "no memory for a new edition of the manifest");
  }
  struct io_file *file = NULL;
  if (status == TURB_OK) {
    status = write_file(manifest->system, temporary, &bytes, &file, err);
  }
  if (status == TURB_OK) {
    status = put_in_place(manifest->system, manifest->folder, temporary, manifest->path, err);
    manifest->settled = status == TURB_OK;
  }
  if (status == TURB_OK) {
    io_file_release(manifest->file);
    manifest->file = file;
    file = NULL;
    manifest->header = header;
    manifest->end = bytes.size;
    manifest->snapshot_bytes = snapshot_bytes;
    manifest->next_rewrite = 0;
  }
  io_file_release(file);
  mem_free_string(manifest->allocator, temporary);
  buffer_free(&bytes);
  return status;
}

turb_status manifest_rewrite(struct manifest *manifest, turb_error *err) {
  if (manifest->read_only) {
    return status_set_file(err, TURB_READ_ONLY, manifest->path, STATUS_NO_OFFSET, "the manifest is open for reading alone");
  }
  return write_edition(manifest, TURB_NONE, err);
}

/* ---- appending ---- */

/* Writes and syncs one record at the end. */
static turb_status append_record(struct manifest *manifest, turb_bytes payload, turb_error *err) {
  struct buffer bytes;
  buffer_init(&bytes, manifest->allocator);
  put_record(&bytes, manifest->header.seed, manifest->end, payload);
  turb_status status = buffer_status(&bytes);
  if (status != TURB_OK) {
    return status_set(err, status, "no memory for a record of the manifest");
  }
  manifest->settled = false; /* until it is durable as a whole */
  status = io_file_write(manifest->file, bytes.data, bytes.size, manifest->end, err);
  if (status == TURB_OK) {
    status = io_file_sync(manifest->file, err);
  }
  if (status == TURB_OK) {
    manifest->settled = true;
    manifest->end += bytes.size;
  }
  buffer_free(&bytes);
  return status;
}

/* A new edition once this one has grown; a failure is made up for later. */
static void rewrite_when_grown(struct manifest *manifest) {
  if (manifest->end <= GROWTH_LEAST || manifest->end <= 2 * manifest->snapshot_bytes || manifest->end < manifest->next_rewrite) {
    return;
  }
  turb_error failure = TURB_ERROR_INIT;
  if (manifest_rewrite(manifest, &failure) != TURB_OK) {
    manifest->next_rewrite = manifest->end + RETRY_GROWTH;
    logger_write(manifest->logger, LOGGER_WARNING, "a new edition of the manifest could not be written: %s", failure.message);
  }
}

/* Writes the staged edit: a record, and should that fail, a whole edition. */
static turb_status write_staged(struct manifest *manifest, turb_bytes payload, turb_error *err) {
  turb_error failure = TURB_ERROR_INIT;
  turb_status status = append_record(manifest, payload, &failure);
  if (status == TURB_OK || manifest->settled) {
    return status == TURB_OK ? TURB_OK : status_copy(err, &failure);
  }
  logger_write(manifest->logger, LOGGER_WARNING, "an append to the manifest failed, a new edition is tried: %s", failure.message);
  status = write_edition(manifest, payload, NULL);
  return status == TURB_OK ? TURB_OK : status_copy(err, &failure);
}

turb_status manifest_append(struct manifest *manifest, const struct version_edit *edit, turb_error *err) {
  if (manifest->read_only) {
    return status_set_file(err, TURB_READ_ONLY, manifest->path, STATUS_NO_OFFSET, "the manifest is open for reading alone");
  }
  turb_bytes payload;
  turb_status status = edit_encode(edit, &payload, err);
  if (status == TURB_OK) {
    status = check_payload(payload, err);
  }
  if (status != TURB_OK || payload.size == 0) {
    return status;
  }
  status = catalog_stage(&manifest->catalog, payload, err);
  if (status != TURB_OK) {
    return status;
  }
  if (!manifest->settled) {
    status = write_edition(manifest, payload, err);
  } else {
    status = write_staged(manifest, payload, err);
  }
  if (status != TURB_OK) {
    catalog_rollback(&manifest->catalog);
    return status;
  }
  catalog_commit(&manifest->catalog);
  rewrite_when_grown(manifest);
  return TURB_OK;
}

/* ---- creating and opening ---- */

static turb_status make(const struct manifest_options *options, struct manifest **out, turb_error *err) {
  struct manifest *manifest = mem_alloc_zeroed(options->allocator, sizeof *manifest);
  if (manifest == NULL) {
    return status_set(err, TURB_NO_MEMORY, "no memory for the manifest");
  }
  manifest->system = options->system;
  manifest->allocator = options->allocator;
  manifest->logger = options->logger;
  manifest->read_only = options->read_only;
  catalog_init(&manifest->catalog, options->allocator);
  manifest->folder = mem_strdup(options->allocator, options->folder);
  manifest->path = name_path(options->allocator, options->folder, NAME_MANIFEST, 0);
  if (manifest->folder == NULL || manifest->path == NULL) {
    manifest_close(manifest);
    return status_set(err, TURB_NO_MEMORY, "no memory for the manifest");
  }
  *out = manifest;
  return TURB_OK;
}

struct folder_look {
  bool manifest, temporary, others; /* other files of a database */
};

static void look_at(void *context, const char *name) {
  struct folder_look *look = context;
  uint64_t number = 0;
  switch (name_parse(name, &number)) {
  case NAME_MANIFEST: look->manifest = true; break;
  case NAME_MANIFEST_TEMPORARY: look->temporary = true; break;
  case NAME_LOG:
  case NAME_TABLE:
  case NAME_SEGMENT:
  case NAME_CODEBOOK: look->others = true; break;
  case NAME_LOCK:
  case NAME_OTHER: break;
  }
}

/* OK when the folder may take a new database. */
static turb_status check_folder_is_free(const struct manifest_options *options, const struct folder_look *look, turb_error *err) {
  if (look->manifest) {
    return status_set_file(err, TURB_EXISTS, options->folder, STATUS_NO_OFFSET, "the folder holds a database");
  }
  if (look->others) {
    return status_set_file(err, TURB_NOT_A_DATABASE, options->folder, STATUS_NO_OFFSET, "the folder holds logs or tables, but no MANIFEST");
  }
  return TURB_OK;
}

turb_status manifest_create(const struct manifest_options *options, struct manifest **out, turb_error *err) {
  *out = NULL;
  struct folder_look look = {.manifest = false};
  turb_status status = io_list_folder(options->system, options->folder, look_at, &look, err);
  if (status == TURB_OK) {
    status = check_folder_is_free(options, &look, err);
  }
  struct manifest *manifest = NULL;
  if (status == TURB_OK) {
    status = make(options, &manifest, err);
  }
  if (status == TURB_OK) {
    manifest->header.version = MANIFEST_FORMAT_VERSION;
    manifest->header.creation_seconds = clock_realtime_ns() / CLOCK_NS_PER_SECOND;
    status = draw(manifest->header.database_id, MANIFEST_DATABASE_ID_BYTES, err);
  }
  if (status == TURB_OK) {
    status = manifest_rewrite(manifest, err);
  }
  if (status != TURB_OK) {
    manifest_close(manifest);
    return status;
  }
  *out = manifest;
  return TURB_OK;
}

/* Why there is no manifest. */
static turb_status explain_missing(const struct manifest_options *options, turb_error *err) {
  struct folder_look look = {.manifest = false};
  turb_status status = io_list_folder(options->system, options->folder, look_at, &look, err);
  if (status == TURB_OK) {
    look.manifest = false;
    status = check_folder_is_free(options, &look, err);
  }
  return status == TURB_OK ? status_set_file(err, TURB_NOT_FOUND, options->folder, STATUS_NO_OFFSET, "there is no database in the folder")
                           : status;
}

static turb_status take_header(void *context, const struct manifest_header *header, turb_error *err) {
  (void)err;
  struct manifest *manifest = context;
  manifest->header = *header;
  return TURB_OK;
}

static turb_status take_record(void *context, const struct manifest_record *record, turb_error *err) {
  struct manifest *manifest = context;
  turb_error failure = TURB_ERROR_INIT;
  const turb_status status = catalog_stage(&manifest->catalog, record->payload, &failure);
  if (status == TURB_OK) {
    catalog_commit(&manifest->catalog);
    if (record->offset == MANIFEST_HEADER_BYTES) {
      manifest->snapshot_bytes = manifest_record_size(record->payload.size);
    }
    return TURB_OK;
  }
  /* An edit that verifies and does not fit was never written by this library. */
  return status_set_file(err, status == TURB_INVALID ? TURB_CORRUPTION : status, manifest->path, record->offset, "%s", failure.message);
}

/* After reading: a new edition in place of what was read. A disk that takes none does not keep the database from being read. */
static turb_status renew(struct manifest *manifest, bool was_torn, turb_error *err) {
  turb_error failure = TURB_ERROR_INIT;
  turb_status status = manifest_rewrite(manifest, &failure);
  if (status == TURB_NO_MEMORY) {
    return status_copy(err, &failure);
  }
  if (status == TURB_OK) {
    return TURB_OK;
  }
  logger_write(manifest->logger, LOGGER_WARNING, "a new edition of the manifest could not be written: %s", failure.message);
  /* What was read can be appended to as it is, unless the rename was tried or there is a torn record behind it. */
  if (!was_torn && manifest->settled) {
    status = io_file_open(manifest->system, manifest->path, IO_OPEN_READ | IO_OPEN_WRITE, &manifest->file, NULL);
  }
  if (was_torn || status != TURB_OK) {
    manifest->settled = false;
  }
  return TURB_OK;
}

turb_status manifest_open(const struct manifest_options *options, struct manifest **out, turb_error *err) {
  *out = NULL;
  struct manifest *manifest = NULL;
  turb_status status = make(options, &manifest, err);
  if (status != TURB_OK) {
    return status;
  }
  uint64_t torn_bytes = 0;
  turb_error failure = TURB_ERROR_INIT;
  status = manifest_read(options->system, options->allocator, manifest->path, take_header, take_record, manifest, &manifest->end,
                         &torn_bytes, &failure);
  manifest->settled = true;
  if (status == TURB_NOT_FOUND) {
    status = explain_missing(options, err);
  } else if (status != TURB_OK) {
    status = status_copy(err, &failure);
  } else {
    if (torn_bytes != 0) {
      logger_write(options->logger, LOGGER_WARNING, "%s: a torn last record of %llu bytes was dropped", manifest->path,
                   (unsigned long long)torn_bytes);
    }
    if (!options->read_only) {
      status = renew(manifest, torn_bytes != 0, err);
    }
  }
  if (status != TURB_OK) {
    manifest_close(manifest);
    return status;
  }
  *out = manifest;
  return TURB_OK;
}

turb_status manifest_copy(const struct manifest *manifest, const struct catalog *catalog, const char *folder, turb_error *err) {
  struct manifest_header header = manifest->header;
  struct buffer bytes;
  buffer_init(&bytes, manifest->allocator);
  char *temporary = name_path(manifest->allocator, folder, NAME_MANIFEST_TEMPORARY, 0);
  char *path = name_path(manifest->allocator, folder, NAME_MANIFEST, 0);
  struct io_file *file = NULL;
  uint64_t snapshot_bytes = 0;
  turb_status status = TURB_OK;
  if (temporary == NULL || path == NULL) {
    status = status_set(err, TURB_NO_MEMORY, "no memory to copy the manifest");
  }
  if (status == TURB_OK) {
    status = draw(&header.seed, sizeof header.seed, err);
  }
  if (status == TURB_OK) {
    status = build_edition(&header, catalog, TURB_NONE, &bytes, &snapshot_bytes, err);
  }
  if (status == TURB_OK) {
    status = write_file(manifest->system, temporary, &bytes, &file, err);
  }
  if (status == TURB_OK) {
    status = put_in_place(manifest->system, folder, temporary, path, err);
  }
  io_file_release(file);
  mem_free_string(manifest->allocator, temporary);
  mem_free_string(manifest->allocator, path);
  buffer_free(&bytes);
  return status;
}

void manifest_close(struct manifest *manifest) {
  if (manifest == NULL) {
    return;
  }
  io_file_release(manifest->file);
  catalog_free(&manifest->catalog);
  mem_free_string(manifest->allocator, manifest->folder);
  mem_free_string(manifest->allocator, manifest->path);
  mem_free(manifest->allocator, manifest, sizeof *manifest);
}

/* ---- what it says ---- */

const struct catalog *manifest_catalog(const struct manifest *manifest) {
  return &manifest->catalog;
}

const uint8_t *manifest_database_id(const struct manifest *manifest) {
  return manifest->header.database_id;
}

uint64_t manifest_edition(const struct manifest *manifest) {
  return manifest->header.edition;
}

uint64_t manifest_creation_seconds(const struct manifest *manifest) {
  return manifest->header.creation_seconds;
}

uint64_t manifest_bytes(const struct manifest *manifest) {
  return manifest->end;
}

bool manifest_is_settled(const struct manifest *manifest) {
  return manifest->settled;
}
