/*
 * The batch: what a log record of type 1 holds (docs/format.md 4), built and read.
 *
 *   payload = header (u64 first sequence, u32 operation count), operations
 *
 * Operations do not know their sequence number (it is the first one plus their place), so that a group of batches becomes one record
 * without coding again: one header for the sum of the counts, then each batch's operation bytes in turn:
 *
 *   uint8_t header[BATCH_HEADER_BYTES];
 *   batch_write_header(header, first_sequence, count_a + count_b);
 *   turb_bytes pieces[] = {{header, sizeof header}, batch_operations(a), batch_operations(b)};
 *   log_writer_append(log, LOG_APPEND_SYNCED, pieces, 3, …);
 *
 * Invariants
 *   1. A batch holds whole operations: an append that fails leaves it as it was.
 *   2. bytes.data is empty, or a header (count 0 and sequence 0 until batch_payload) and batch->count operations.
 *   3. A reader hands out nothing that it has not bounded: keys of 1 to TURB_MAX_KEY_BYTES, rows of 1 to BATCH_MAX_ROW_BYTES, attributes to
 *      TURB_MAX_ATTRIBUTE_BYTES, range ends to TURB_MAX_KEY_BYTES, sequence numbers from 1 to SLOT_SEQUENCE_MAX, exactly `count`
 *      operations.
 *
 * Whether a vector fits its collection is the caller's to check: the batch knows ids alone. Threads: one at a time.
 */
#ifndef TURB_ENGINE_BATCH_H
#define TURB_ENGINE_BATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/coding.h"
#include "base/status.h"

#define BATCH_HEADER_BYTES  12u
#define BATCH_MAX_BYTES     (UINT64_C(1) << 30) /* of one batch's payload */
#define BATCH_MAX_ROW_BYTES (TURB_MAX_DIMENSION * 4u)

enum batch_kind { BATCH_PUT = 1, BATCH_DELETE = 2, BATCH_DELETE_RANGE = 3 };

/* ---- building ---- */

struct batch {
  struct buffer bytes;
  uint32_t count;
};

/* Takes no memory. */
void batch_init(struct batch *batch, const turb_allocator *allocator);
void batch_free(struct batch *batch);
/* Empties it and keeps the memory. */
void batch_clear(struct batch *batch);
/* The same, but gives memory beyond keep_bytes back. */
void batch_trim(struct batch *batch, size_t keep_bytes);

/* INVALID: empty key or row. TOO_LARGE: a key, row or attributes beyond their bounds, or the batch beyond BATCH_MAX_BYTES. NO_MEMORY. */
TURB_MUST_CHECK turb_status batch_put(struct batch *batch, uint64_t collection_id, turb_bytes key, turb_bytes row, turb_bytes attributes,
                                      turb_error *err);
TURB_MUST_CHECK turb_status batch_delete(struct batch *batch, uint64_t collection_id, turb_bytes key, turb_error *err);
/* An empty begin is before every key; an empty end is open. */
TURB_MUST_CHECK turb_status batch_delete_range(struct batch *batch, uint64_t collection_id, turb_bytes begin, turb_bytes end,
                                               turb_error *err);
/* Appends all operations of another batch. */
TURB_MUST_CHECK turb_status batch_append(struct batch *batch, const struct batch *other, turb_error *err);

/* Operations so far, and the bytes of the payload (BATCH_HEADER_BYTES when empty). */
static inline uint32_t batch_count(const struct batch *batch) {
  return batch->count;
}
static inline size_t batch_bytes(const struct batch *batch) {
  return batch->count != 0 ? batch->bytes.size : BATCH_HEADER_BYTES;
}

/* The operation bytes alone; they live until the batch changes. */
static inline turb_bytes batch_operations(const struct batch *batch) {
  return batch->count != 0 ? (turb_bytes){batch->bytes.data + BATCH_HEADER_BYTES, batch->bytes.size - BATCH_HEADER_BYTES} : TURB_NONE;
}

/* Writes first sequence and count into the header in place and returns the whole payload; the batch is not empty. */
turb_bytes batch_payload(struct batch *batch, uint64_t first_sequence);

/* A header by itself, for a group. */
void batch_write_header(uint8_t header[BATCH_HEADER_BYTES], uint64_t first_sequence, uint32_t count);

/* ---- reading ---- */

struct batch_operation {
  uint64_t collection_id;
  uint64_t sequence;
  enum batch_kind kind;
  turb_bytes key;        /* of a put or delete; the begin of a range delete */
  turb_bytes end;        /* of a range delete; size 0: open */
  turb_bytes row;        /* of a put */
  turb_bytes attributes; /* of a put */
};

struct batch_reader {
  struct reader bytes;
  const uint8_t *begin;
  const char *file;     /* for errors; may be NULL */
  uint64_t file_offset; /* of the payload in the file */
  uint64_t first_sequence;
  uint32_t count; /* operations in all */
  uint32_t next;  /* index of the next */
};

/*
 * Begins to read a payload, which must stay in place. file (may be NULL, borrowed) and file_offset say where it stood, for errors.
 * CORRUPTION: no header, no operations, or sequence numbers out of bounds.
 */
TURB_MUST_CHECK turb_status batch_reader_open(struct batch_reader *reader, turb_bytes payload, const char *file, uint64_t file_offset,
                                              turb_error *err);
/* The same over the operation bytes of a batch that has no header yet. */
void batch_reader_open_operations(struct batch_reader *reader, turb_bytes operations, uint32_t count, uint64_t first_sequence);

/*
 * The next operation, in place; *more is false (and the operation cleared) after the last. CORRUPTION names the file and the offset of the
 * operation that does not hold; also when bytes follow the last one.
 */
TURB_MUST_CHECK turb_status batch_reader_next(struct batch_reader *reader, struct batch_operation *operation, bool *more, turb_error *err);

#endif
