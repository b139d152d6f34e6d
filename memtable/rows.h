/*
 * The rows of a memtable, numbered in order of arrival, at a fixed stride.
 *
 * Rows lie in pieces. Pieces double from about one page to the largest (at most MEMTABLE_CHUNK_ROWS rows and about 1 MiB) while rows are
 * few; from then on all are largest. A piece holds a power of two of rows and begins at a multiple of the number that it holds (the first at
 * 0), so that row -> piece is arithmetic, and no piece crosses a multiple of MEMTABLE_CHUNK_ROWS. Beside each piece are its rows' slots.
 *
 *   rows a piece, 512-byte stride:   8 | 8 | 16 | 32 | 64 | 128 | 256 | 512 | 512 | ...
 *
 * Invariants
 *   1. Row bytes and slot of a row are written before memtable_rows_publish makes the row readable; neither changes after it.
 *   2. The directory grows by segments that double; a published entry never moves.
 *
 * Threads: ensure, store and publish are the writer's; the rest from any thread, for published rows and for the row of a slot that was
 * found through the index.
 */
#ifndef TURB_MEMTABLE_ROWS_H
#define TURB_MEMTABLE_ROWS_H

#include "base/slot.h"
#include "memtable/memory.h"

#define MEMTABLE_ROW_SEGMENTS       28u
#define MEMTABLE_ROW_SEGMENT_PIECES 16u /* in the first; each next has twice as many */

struct memtable_piece {
  uint8_t *rows;
  const struct slot **slots;
};

struct memtable_rows {
  struct memtable_memory *memory;
  struct memtable_piece *segments[MEMTABLE_ROW_SEGMENTS];
  uint32_t row_bytes;
  uint32_t stride;
  uint8_t first_bits; /* log2 of the rows in the first piece */
  uint8_t piece_bits; /* of the largest */
  uint64_t ready;     /* rows that there is memory for */
  uint32_t piece_count;
  _Atomic uint64_t count;
};

void memtable_rows_init(struct memtable_rows *rows, struct memtable_memory *memory, uint32_t row_bytes, uint32_t stride);

/* Memory for rows up to and without `count`. What was made before a failure stays. */
TURB_MUST_CHECK turb_status memtable_rows_ensure(struct memtable_rows *rows, uint64_t count, turb_error *err);

static inline uint64_t memtable_rows_count(const struct memtable_rows *rows) {
  return atomic_load_explicit(&rows->count, memory_order_acquire);
}

static inline unsigned memtable_log2(uint64_t value) {
  return 63u - (unsigned)__builtin_clzll(value);
}

/* The piece of a row, and the number of its first row. */
static inline uint32_t memtable_rows_piece(const struct memtable_rows *rows, uint64_t row, uint64_t *first) {
  if (row >> rows->piece_bits != 0) {
    *first = row >> rows->piece_bits << rows->piece_bits;
    return (uint32_t)(rows->piece_bits - rows->first_bits + (row >> rows->piece_bits));
  }
  if (row >> rows->first_bits == 0) {
    *first = 0;
    return 0;
  }
  const unsigned bits = memtable_log2(row);
  *first = UINT64_C(1) << bits;
  return bits - rows->first_bits + 1;
}

static inline uint64_t memtable_rows_in_piece(const struct memtable_rows *rows, uint64_t first) {
  if (first == 0) {
    return UINT64_C(1) << rows->first_bits;
  }
  return first >> rows->piece_bits != 0 ? UINT64_C(1) << rows->piece_bits : first;
}

static inline struct memtable_piece *memtable_rows_entry(const struct memtable_rows *rows, uint32_t piece) {
  const unsigned segment = memtable_log2(piece / MEMTABLE_ROW_SEGMENT_PIECES + 1);
  return &rows->segments[segment][piece - MEMTABLE_ROW_SEGMENT_PIECES * ((UINT32_C(1) << segment) - 1)];
}

static inline uint8_t *memtable_rows_at(const struct memtable_rows *rows, uint64_t row) {
  uint64_t first;
  const struct memtable_piece *piece = memtable_rows_entry(rows, memtable_rows_piece(rows, row, &first));
  return piece->rows + (size_t)(row - first) * rows->stride;
}

static inline const struct slot **memtable_rows_slot(const struct memtable_rows *rows, uint64_t row) {
  uint64_t first;
  const struct memtable_piece *piece = memtable_rows_entry(rows, memtable_rows_piece(rows, row, &first));
  return &piece->slots[row - first];
}

/* The next row's bytes are in place: its slot is recorded, and it becomes readable. */
static inline void memtable_rows_publish(struct memtable_rows *rows, const struct slot *slot) {
  const uint64_t row = atomic_load_explicit(&rows->count, memory_order_relaxed);
  *memtable_rows_slot(rows, row) = slot;
  atomic_store_explicit(&rows->count, row + 1, memory_order_release);
}

#endif
