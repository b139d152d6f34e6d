/* Building and reading batch payloads; see batch.h for the form and the rules. */
#include "engine/batch.h"

#include <assert.h>

#include "base/slot.h"

/* ---- building ---- */

void batch_init(struct batch *batch, const turb_allocator *allocator) {
  buffer_init(&batch->bytes, allocator);
  batch->count = 0;
}

void batch_free(struct batch *batch) {
  buffer_free(&batch->bytes);
  batch->count = 0;
}

void batch_clear(struct batch *batch) {
  buffer_clear(&batch->bytes);
  batch->count = 0;
}

void batch_trim(struct batch *batch, size_t keep_bytes) {
  if (batch->bytes.capacity > keep_bytes) {
    batch_free(batch);
  } else {
    batch_clear(batch);
  }
}

/*
 * Makes room for an operation of at most `bytes`, with the header in front of the first one, and returns where it begins; NULL with
 * *status set when it
 * cannot be had. Nothing of the batch changes before batch_commit.
 */
static uint8_t *batch_begin(struct batch *batch, size_t bytes, turb_status *status, turb_error *err) {
  const size_t used = batch_bytes(batch);
  if (batch->count == UINT32_MAX || bytes > BATCH_MAX_BYTES - used) {
    *status = status_set(err, TURB_TOO_LARGE, "a batch would pass its bound of %llu bytes", (unsigned long long)BATCH_MAX_BYTES);
    return NULL;
  }
  if (buffer_reserve(&batch->bytes, bytes + (used - batch->bytes.size)) != TURB_OK) {
    batch->bytes.status = TURB_OK; /* the batch is whole without the operation, and usable */
    *status = status_set(err, TURB_NO_MEMORY, "no memory for a batch of %zu bytes", used + bytes);
    return NULL;
  }
  *status = TURB_OK;
  return batch->bytes.data + used;
}

/* Takes in what was written up to `end`. */
static void batch_commit(struct batch *batch, const uint8_t *end, uint32_t count) {
  if (batch->count == 0) {
    memset(batch->bytes.data, 0, BATCH_HEADER_BYTES);
  }
  batch->bytes.size = (size_t)(end - batch->bytes.data);
  batch->count += count;
}

static uint8_t *put_sized(uint8_t *at, turb_bytes bytes) {
  at = varint_put(at, bytes.size);
  if (bytes.size != 0) {
    memcpy(at, bytes.data, bytes.size);
  }
  return at + bytes.size;
}

static turb_status check_key(turb_bytes key, turb_error *err) {
  if (key.size == 0) {
    return status_set(err, TURB_INVALID, "a key must not be empty");
  }
  if (key.size > TURB_MAX_KEY_BYTES) {
    return status_set(err, TURB_TOO_LARGE, "a key of %zu bytes is beyond the bound of %d", key.size, TURB_MAX_KEY_BYTES);
  }
  return TURB_OK;
}

static turb_status check_bound(turb_bytes key, turb_error *err) {
  return key.size == 0 ? TURB_OK : check_key(key, err);
}

turb_status batch_put(struct batch *batch, uint64_t collection_id, turb_bytes key, turb_bytes row, turb_bytes attributes, turb_error *err) {
  turb_status status = check_key(key, err);
  if (status != TURB_OK) {
    return status;
  }
  if (row.size == 0) {
    return status_set(err, TURB_INVALID, "a vector must not be empty");
  }
  if (row.size > BATCH_MAX_ROW_BYTES) {
    return status_set(err, TURB_TOO_LARGE, "a vector of %zu bytes is beyond the bound of %u", row.size, BATCH_MAX_ROW_BYTES);
  }
  if (attributes.size > TURB_MAX_ATTRIBUTE_BYTES) {
    return status_set(err, TURB_TOO_LARGE, "attributes of %zu bytes are beyond the bound of %u", attributes.size, TURB_MAX_ATTRIBUTE_BYTES);
  }
  const size_t most = 4 * VARINT_MAX_BYTES + 1 + key.size + row.size + attributes.size;
  uint8_t *at = batch_begin(batch, most, &status, err);
  if (at == NULL) {
    return status;
  }
  at = varint_put(at, collection_id);
  *at++ = BATCH_PUT;
  at = put_sized(at, key);
  at = put_sized(at, row);
  at = put_sized(at, attributes);
  batch_commit(batch, at, 1);
  return TURB_OK;
}

turb_status batch_delete(struct batch *batch, uint64_t collection_id, turb_bytes key, turb_error *err) {
  turb_status status = check_key(key, err);
  if (status != TURB_OK) {
    return status;
  }
  uint8_t *at = batch_begin(batch, 2 * VARINT_MAX_BYTES + 1 + key.size, &status, err);
  if (at == NULL) {
    return status;
  }
  at = varint_put(at, collection_id);
  *at++ = BATCH_DELETE;
  at = put_sized(at, key);
  batch_commit(batch, at, 1);
  return TURB_OK;
}

turb_status batch_delete_range(struct batch *batch, uint64_t collection_id, turb_bytes begin, turb_bytes end, turb_error *err) {
  turb_status status = check_bound(begin, err);
  if (status == TURB_OK) {
    status = check_bound(end, err);
  }
  if (status != TURB_OK) {
    return status;
  }
  uint8_t *at = batch_begin(batch, 3 * VARINT_MAX_BYTES + 1 + begin.size + end.size, &status, err);
  if (at == NULL) {
    return status;
  }
  at = varint_put(at, collection_id);
  *at++ = BATCH_DELETE_RANGE;
  at = put_sized(at, begin);
  at = put_sized(at, end);
  batch_commit(batch, at, 1);
  return TURB_OK;
}

turb_status batch_append(struct batch *batch, const struct batch *other, turb_error *err) {
  const turb_bytes operations = batch_operations(other);
  if (operations.size == 0) {
    return TURB_OK;
  }
  if (other->count > UINT32_MAX - batch->count) {
    return status_set(err, TURB_TOO_LARGE, "a batch would pass its bound of %u operations", UINT32_MAX);
  }
  turb_status status = TURB_OK;
  uint8_t *at = batch_begin(batch, operations.size, &status, err);
  if (at == NULL) {
    return status;
  }
  /* After batch_begin: a batch may be appended to itself, and its bytes may have moved. */
  memcpy(at, batch_operations(other).data, operations.size);
  batch_commit(batch, at + operations.size, other->count);
  return TURB_OK;
}

void batch_write_header(uint8_t header[BATCH_HEADER_BYTES], uint64_t first_sequence, uint32_t count) {
  store_u64(header, first_sequence);
  store_u32(header + 8, count);
}

turb_bytes batch_payload(struct batch *batch, uint64_t first_sequence) {
  assert(batch->count != 0);
  batch_write_header(batch->bytes.data, first_sequence, batch->count);
  return (turb_bytes){batch->bytes.data, batch->bytes.size};
}

/* ---- reading ---- */

turb_status batch_reader_open(struct batch_reader *reader, turb_bytes payload, const char *file, uint64_t file_offset, turb_error *err) {
  reader_init(&reader->bytes, payload.data, payload.size);
  reader->begin = payload.data;
  reader->file = file;
  reader->file_offset = file_offset;
  reader->first_sequence = reader_u64(&reader->bytes);
  reader->count = reader_u32(&reader->bytes);
  reader->next = 0;
  if (reader->bytes.failed) {
    return status_set_file(err, TURB_CORRUPTION, file, file_offset, "a batch of %zu bytes is too short for its header", payload.size);
  }
  if (reader->count == 0) {
    return status_set_file(err, TURB_CORRUPTION, file, file_offset, "a batch without operations");
  }
  if (reader->first_sequence == 0 || reader->first_sequence > SLOT_SEQUENCE_MAX ||
      reader->count - 1 > SLOT_SEQUENCE_MAX - reader->first_sequence) {
    return status_set_file(err, TURB_CORRUPTION, file, file_offset, "a batch with sequence numbers out of bounds");
  }
  return TURB_OK;
}

void batch_reader_open_operations(struct batch_reader *reader, turb_bytes operations, uint32_t count, uint64_t first_sequence) {
  reader_init(&reader->bytes, operations.data, operations.size);
  reader->begin = operations.data;
  reader->file = NULL;
  reader->file_offset = 0;
  reader->first_sequence = first_sequence;
  reader->count = count;
  reader->next = 0;
}

/* Reads a varint length within [least, most] and as many bytes; false when they are not there. */
static bool get_bounded(struct reader *bytes, size_t least, size_t most, turb_bytes *out) {
  size_t size = 0;
  const uint8_t *data = reader_sized(bytes, &size);
  if (bytes->failed || size < least || size > most) {
    return false;
  }
  *out = (turb_bytes){data, size};
  return true;
}

static bool get_operation(struct reader *bytes, struct batch_operation *operation) {
  operation->collection_id = reader_varint(bytes);
  const uint8_t kind = reader_u8(bytes);
  if (bytes->failed) {
    return false;
  }
  operation->kind = (enum batch_kind)kind;
  switch (kind) {
  case BATCH_PUT:
    return get_bounded(bytes, 1, TURB_MAX_KEY_BYTES, &operation->key) && get_bounded(bytes, 1, BATCH_MAX_ROW_BYTES, &operation->row) &&
           get_bounded(bytes, 0, TURB_MAX_ATTRIBUTE_BYTES, &operation->attributes);
  case BATCH_DELETE: return get_bounded(bytes, 1, TURB_MAX_KEY_BYTES, &operation->key);
  case BATCH_DELETE_RANGE:
    return get_bounded(bytes, 0, TURB_MAX_KEY_BYTES, &operation->key) && get_bounded(bytes, 0, TURB_MAX_KEY_BYTES, &operation->end);
  default: return false;
  }
}

turb_status batch_reader_next(struct batch_reader *reader, struct batch_operation *operation, bool *more, turb_error *err) {
  *operation = (struct batch_operation){.kind = (enum batch_kind)0};
  *more = false;
  const uint64_t offset = reader->file_offset + (uint64_t)(reader->bytes.at - reader->begin);
  if (reader->next == reader->count) {
    if (reader_left(&reader->bytes) != 0) {
      return status_set_file(err, TURB_CORRUPTION, reader->file, offset, "%zu bytes behind the last operation of a batch",
                             reader_left(&reader->bytes));
    }
    return TURB_OK;
  }
  if (reader->bytes.failed || !get_operation(&reader->bytes, operation)) {
    *operation = (struct batch_operation){.kind = (enum batch_kind)0};
    return status_set_file(err, TURB_CORRUPTION, reader->file, offset, "operation %u of a batch does not hold", reader->next);
  }
  operation->sequence = reader->first_sequence + reader->next;
  reader->next++;
  *more = true;
  return TURB_OK;
}
