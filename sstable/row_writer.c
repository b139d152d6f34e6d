/* Rows into blocks into extents; states in row_writer.h. */
#include "sstable/row_writer.h"

#include <assert.h>
#include <string.h>

bool row_writer_needs_side(const struct table_shape *shape) {
  return shape->compression != 0 || shape->rows_per_block > 1;
}

/* Room for a block: beside when it is to be compressed, else in the output, with the rows that were parked. */
static turb_status begin_block(struct row_writer *rows, turb_error *err) {
  const struct table_shape *shape = rows->shape;
  if (rows->compressor != NULL) {
    rows->block = rows->side;
    return TURB_OK;
  }
  uint8_t *block = NULL;
  const turb_status status = output_reserve(rows->output, shape->block_bytes, &block, err);
  if (status != TURB_OK) {
    return status;
  }
  if (rows->block_rows != 0) {
    memcpy(block, rows->side, (size_t)rows->block_rows * shape->stride);
  }
  rows->block = block;
  return TURB_OK;
}

static turb_status store_compressed(struct row_writer *rows, uint32_t *stored, const uint8_t **bytes, turb_error *err) {
  uint8_t *at = NULL;
  const turb_status status = output_reserve(rows->output, rows->shape->block_bytes, &at, err);
  if (status != TURB_OK) {
    return status;
  }
  *bytes = at;
  return block_compress(rows->compressor, rows->block, at, stored, err);
}

/* Zeroes what is behind the rows, checksums the block and makes it part of the file. */
static turb_status end_block(struct row_writer *rows, turb_error *err) {
  const struct table_shape *shape = rows->shape;
  const size_t used = (size_t)rows->block_rows * shape->stride;
  if (used != shape->block_bytes) {
    memset(rows->block + used, 0, shape->block_bytes - used);
  }
  const uint8_t *bytes = rows->block;
  uint32_t stored = shape->block_bytes;
  if (rows->compressor != NULL) {
    const turb_status status = store_compressed(rows, &stored, &bytes, err);
    if (status != TURB_OK) {
      return status;
    }
  }
  const uint64_t offset = output_position(rows->output);
  if (rows->extent_rows == 0) {
    rows->extent_offset = offset;
  }
  const uint32_t size = CODEC_STORED_BYTES(stored);
  checksum_list_add(rows->records, codec_part_checksum(bytes, size, rows->seed, offset), offset - rows->extent_offset, stored);
  output_advance(rows->output, size);
  rows->extent_rows += rows->block_rows;
  rows->blocks++;
  rows->block = NULL;
  rows->block_rows = 0;
  return TURB_OK;
}

turb_status row_writer_add(struct row_writer *rows, const void *row, turb_error *err) {
  const struct table_shape *shape = rows->shape;
  if (rows->block == NULL) {
    const turb_status status = begin_block(rows, err);
    if (status != TURB_OK) {
      return status;
    }
  }
  uint8_t *to = rows->block + (size_t)rows->block_rows * shape->stride;
  memcpy(to, row, shape->row_bytes);
  if (shape->stride != shape->row_bytes) {
    memset(to + shape->row_bytes, 0, shape->stride - shape->row_bytes);
  }
  rows->rows++;
  rows->block_rows++;
  return rows->block_rows == shape->rows_per_block ? end_block(rows, err) : TURB_OK;
}

turb_status row_writer_close_extent(struct row_writer *rows, turb_error *err) {
  if (rows->block != NULL && rows->block != rows->side) {
    memcpy(rows->side, rows->block, (size_t)rows->block_rows * rows->shape->stride);
    rows->block = NULL;
  }
  turb_status status = output_align(rows->output, err);
  if (status != TURB_OK || rows->extent_rows == 0) {
    return status;
  }
  const uint64_t bytes = output_position(rows->output) - rows->extent_offset;
  status = tail_add_extent(rows->tail, EXTENT_ROWS, rows->extent_offset, bytes / CODEC_PAGE_BYTES, rows->extent_rows, err);
  rows->extent_rows = 0;
  return status;
}

turb_status row_writer_finish(struct row_writer *rows, turb_error *err) {
  if (rows->block_rows != 0) {
    turb_status status = rows->block == NULL ? begin_block(rows, err) : TURB_OK;
    if (status == TURB_OK) {
      status = end_block(rows, err);
    }
    if (status != TURB_OK) {
      return status;
    }
  }
  return row_writer_close_extent(rows, err);
}

uint64_t row_writer_extent_bytes(const struct row_writer *rows) {
  return rows->extent_rows != 0 ? output_position(rows->output) - rows->extent_offset : 0;
}
