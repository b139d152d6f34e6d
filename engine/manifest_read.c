/*
 * Reading manifests; see manifest.h, and docs/format.md 5 for what a break means.
 *
 * The file is read through a buffer that holds one record at a time, the largest of which is the snapshot.
 */
#include "engine/manifest_format.h"

struct source {
  struct io_file *file;
  const char *path;
  uint64_t size;
  uint64_t seed;
  struct buffer bytes; /* [at, at + bytes.size) of the file */
  uint64_t at;
};

#define READ_AHEAD_BYTES (64u << 10)

/* Bytes [offset, offset + size) of the file, which are there. */
static turb_status source_at(struct source *source, uint64_t offset, uint64_t size, const uint8_t **bytes, turb_error *err) {
  if (offset < source->at || offset + size > source->at + source->bytes.size) {
    const uint64_t left = source->size - offset;
    uint64_t wanted = size < READ_AHEAD_BYTES ? READ_AHEAD_BYTES : size;
    wanted = wanted < left ? wanted : left;
    buffer_clear(&source->bytes);
    uint8_t *to = buffer_extend(&source->bytes, (size_t)wanted);
    if (to == NULL) {
      return status_set_file(err, TURB_NO_MEMORY, source->path, offset, "no memory to read the manifest");
    }
    const turb_status status = io_file_read(source->file, to, (size_t)wanted, offset, err);
    if (status != TURB_OK) {
      buffer_clear(&source->bytes);
      return status;
    }
    source->at = offset;
  }
  *bytes = source->bytes.data + (offset - source->at);
  return TURB_OK;
}

/* Does a record verify at offset? Then it is at *record, with its padding. */
static turb_status find_record(struct source *source, uint64_t offset, const uint8_t **record, uint64_t *size, bool *whole,
                               turb_error *err) {
  *whole = false;
  if (source->size - offset < MANIFEST_RECORD_BYTES) {
    return TURB_OK;
  }
  turb_status status = source_at(source, offset, MANIFEST_RECORD_BYTES, record, err);
  if (status != TURB_OK) {
    return status;
  }
  const uint32_t payload_bytes = load_u32(*record + MANIFEST_RECORD_AT_SIZE);
  *size = manifest_record_size(payload_bytes);
  if (payload_bytes == 0 || *size > source->size - offset) {
    return TURB_OK;
  }
  status = source_at(source, offset, *size, record, err);
  if (status == TURB_OK) {
    *whole = hash64(*record + 8, MANIFEST_RECORD_BYTES - 8 + payload_bytes, table_part_seed(source->seed, offset)) == load_u64(*record);
  }
  return status;
}

static bool all_zero(const uint8_t *bytes, size_t size) {
  uint8_t all = 0;
  for (size_t i = 0; i < size; i++) {
    all |= bytes[i];
  }
  return all == 0;
}

static turb_status read_header(struct source *source, struct manifest_header *header, turb_error *err) {
  uint8_t page[MANIFEST_HEADER_BYTES] = {0};
  const size_t there = source->size < sizeof page ? (size_t)source->size : sizeof page;
  const turb_status status = there != 0 ? io_file_read(source->file, page, there, 0, err) : TURB_OK;
  if (status != TURB_OK) {
    return status;
  }
  if (memcmp(page, manifest_magic, sizeof manifest_magic) != 0) {
    return status_set_file(err, TURB_NOT_A_DATABASE, source->path, 0, "this is no manifest of a database");
  }
  if (there < sizeof page || load_u64(page + MANIFEST_AT_CHECKSUM) != hash64(page, MANIFEST_AT_CHECKSUM, 0)) {
    return status_set_file(err, TURB_CORRUPTION, source->path, 0, "the header of the manifest does not verify");
  }
  header->version = load_u32(page + MANIFEST_AT_VERSION);
  if (header->version > MANIFEST_FORMAT_VERSION) {
    return status_set_file(err, TURB_NEWER_FORMAT, source->path, MANIFEST_AT_VERSION,
                           "the database has format version %u; this library knows %u", header->version, MANIFEST_FORMAT_VERSION);
  }
  if (header->version != MANIFEST_FORMAT_VERSION || load_u32(page + MANIFEST_AT_RESERVED) != 0 ||
      !all_zero(page + MANIFEST_AT_CHECKSUM + 8, sizeof page - MANIFEST_AT_CHECKSUM - 8)) {
    return status_set_file(err, TURB_CORRUPTION, source->path, 0, "the header of the manifest does not hold");
  }
  memcpy(header->database_id, page + MANIFEST_AT_DATABASE_ID, MANIFEST_DATABASE_ID_BYTES);
  header->edition = load_u64(page + MANIFEST_AT_EDITION);
  header->seed = load_u64(page + MANIFEST_AT_SEED);
  header->creation_seconds = load_u64(page + MANIFEST_AT_CREATION);
  return TURB_OK;
}

/* Nothing verifies at `at`: is it a torn last record? Not when it is the first one, nor when anything that verifies follows. */
static turb_status check_torn(struct source *source, uint64_t at, turb_error *err) {
  bool whole = at == MANIFEST_HEADER_BYTES;
  for (uint64_t next = at + MANIFEST_ALIGNMENT; next < source->size && !whole; next += MANIFEST_ALIGNMENT) {
    const uint8_t *record = NULL;
    uint64_t size = 0;
    const turb_status status = find_record(source, next, &record, &size, &whole, err);
    if (status != TURB_OK) {
      return status;
    }
  }
  return whole ? status_set_file(err, TURB_CORRUPTION, source->path, at, "the manifest is damaged: no record verifies here") : TURB_OK;
}

/* Gives each record away; *end is behind the last one that verifies. */
static turb_status read_records(struct source *source,
                                turb_status (*record)(void *context, const struct manifest_record *record, turb_error *err), void *context,
                                uint64_t *end, turb_error *err) {
  uint64_t at = MANIFEST_HEADER_BYTES;
  bool first = true;
  while (at < source->size || first) {
    first = false;
    const uint8_t *bytes = NULL;
    uint64_t size = 0;
    bool whole = false;
    turb_status status = find_record(source, at, &bytes, &size, &whole, err);
    if (status == TURB_OK && !whole) {
      status = check_torn(source, at, err);
      *end = at;
      return status;
    }
    if (status != TURB_OK) {
      return status;
    }
    const uint32_t payload_bytes = load_u32(bytes + MANIFEST_RECORD_AT_SIZE);
    if (load_u32(bytes + MANIFEST_RECORD_AT_RESERVED) != 0 ||
        !all_zero(bytes + MANIFEST_RECORD_BYTES + payload_bytes, (size_t)size - MANIFEST_RECORD_BYTES - payload_bytes)) {
      return status_set_file(err, TURB_CORRUPTION, source->path, at, "a record of the manifest verifies, but contradicts the format");
    }
    const struct manifest_record out = {.offset = at, .payload = {bytes + MANIFEST_RECORD_BYTES, payload_bytes}};
    status = record != NULL ? record(context, &out, err) : TURB_OK;
    if (status != TURB_OK) {
      return status;
    }
    at += size;
  }
  *end = at;
  return TURB_OK;
}

turb_status manifest_read(struct io_system *system, const turb_allocator *allocator, const char *path,
                          turb_status (*header)(void *context, const struct manifest_header *header, turb_error *err),
                          turb_status (*record)(void *context, const struct manifest_record *record, turb_error *err), void *context,
                          uint64_t *end, uint64_t *torn_bytes, turb_error *err) {
  struct source source = {.path = path};
  struct manifest_header found = {.version = 0};
  uint64_t reached = 0;
  buffer_init(&source.bytes, allocator);
  turb_status status = io_file_open(system, path, IO_OPEN_READ, &source.file, err);
  if (status == TURB_OK) {
    status = io_file_size(source.file, &source.size, err);
  }
  if (status == TURB_OK) {
    status = read_header(&source, &found, err);
  }
  if (status == TURB_OK && header != NULL) {
    status = header(context, &found, err);
  }
  if (status == TURB_OK) {
    source.seed = found.seed;
    status = read_records(&source, record, context, &reached, err);
  }
  if (end != NULL) {
    *end = reached;
  }
  if (torn_bytes != NULL) {
    *torn_bytes = status == TURB_OK ? source.size - reached : 0;
  }
  io_file_release(source.file);
  buffer_free(&source.bytes);
  return status;
}
