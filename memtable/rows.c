/* Memory for rows, piece by piece; see rows.h for the geometry. */
#include "memtable/rows.h"

#include <string.h>

#include "memtable/memtable.h"

#define FIRST_PIECE_BYTES   4096u
#define LARGEST_PIECE_BYTES (1u << 20)
#define OWN_CHUNK_BYTES     (64u << 10) /* pieces from here on do not share a chunk */
#define ROW_ALIGNMENT       64u

/* log2 of the rows of that stride which fit in bytes, at most MEMTABLE_CHUNK_ROWS, at least one. */
static uint8_t rows_bits(uint32_t stride, uint32_t bytes) {
  uint8_t bits = 0;
  while ((2u << bits) <= MEMTABLE_CHUNK_ROWS && ((uint64_t)stride << (bits + 1)) <= bytes) {
    bits++;
  }
  return bits;
}

void memtable_rows_init(struct memtable_rows *rows, struct memtable_memory *memory, uint32_t row_bytes, uint32_t stride) {
  memset(rows, 0, sizeof *rows);
  rows->memory = memory;
  rows->row_bytes = row_bytes;
  rows->stride = stride;
  rows->first_bits = rows_bits(stride, FIRST_PIECE_BYTES);
  rows->piece_bits = rows_bits(stride, LARGEST_PIECE_BYTES);
  atomic_init(&rows->count, 0);
}

/* The directory's entry for the next piece. */
static turb_status segment_ensure(struct memtable_rows *rows, turb_error *err) {
  const unsigned segment = memtable_log2(rows->piece_count / MEMTABLE_ROW_SEGMENT_PIECES + 1);
  if (segment >= MEMTABLE_ROW_SEGMENTS) {
    return status_set(err, TURB_TOO_LARGE, "a memtable cannot hold more than %llu rows", (unsigned long long)rows->ready);
  }
  if (rows->segments[segment] != NULL) {
    return TURB_OK;
  }
  const size_t size = ((size_t)MEMTABLE_ROW_SEGMENT_PIECES << segment) * sizeof(struct memtable_piece);
  const turb_status status = memtable_memory_ensure(rows->memory, 0, size + _Alignof(struct memtable_piece), err);
  if (status == TURB_OK) {
    rows->segments[segment] = memtable_region_bytes(&rows->memory->current, size, _Alignof(struct memtable_piece));
  }
  return status;
}

static turb_status piece_open(struct memtable_rows *rows, turb_error *err) {
  turb_status status = segment_ensure(rows, err);
  if (status != TURB_OK) {
    return status;
  }
  const uint64_t count = memtable_rows_in_piece(rows, rows->ready);
  const size_t bytes = (size_t)count * rows->stride;
  const size_t slot_bytes = (size_t)count * sizeof(const struct slot *);
  const size_t units = (bytes + MEMTABLE_UNIT_BYTES - 1) / MEMTABLE_UNIT_BYTES * MEMTABLE_UNIT_BYTES;
  const bool small = bytes < MEMTABLE_UNIT_BYTES;
  const size_t front = small ? 0 : units;
  const size_t back = slot_bytes + ROW_ALIGNMENT + (small ? bytes + ROW_ALIGNMENT : 0);
  struct memtable_region own;
  struct memtable_region *region = &rows->memory->current;
  if (front + back >= OWN_CHUNK_BYTES) {
    region = &own;
    status = memtable_memory_own(rows->memory, front, back, region, err);
  } else {
    status = memtable_memory_ensure(rows->memory, front, back, err);
  }
  if (status != TURB_OK) {
    return status;
  }
  struct memtable_piece *piece = memtable_rows_entry(rows, rows->piece_count);
  piece->rows = small ? memtable_region_bytes(region, bytes, ROW_ALIGNMENT) : memtable_region_units(region, units);
  piece->slots = memtable_region_bytes(region, slot_bytes, _Alignof(const struct slot *));
  rows->piece_count++;
  rows->ready += count;
  return TURB_OK;
}

turb_status memtable_rows_ensure(struct memtable_rows *rows, uint64_t count, turb_error *err) {
  turb_status status = TURB_OK;
  while (status == TURB_OK && rows->ready < count) {
    status = piece_open(rows, err);
  }
  return status;
}
