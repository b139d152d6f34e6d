/*
 * sstable/row_writer: rows into vector blocks into vector extents (docs/format.md 3.3), written through an output.
 *
 * Uncompressed, the block that fills lies in the output's buffer already, so a row is copied once. When other parts of the table must be written
 * (a stripe ends), the extent closes at its last full block and the rows behind are parked; they begin the next extent, so that only a table's last
 * block is short. Compressed, the block fills beside and is compressed into the output when it is full.
 *
 * States: no block --add--> filling (in the output, or beside) --full--> no block; row_writer_close_extent parks what fills.
 *
 * Threads: one at a time.
 */
#ifndef TURB_SSTABLE_ROW_WRITER_H
#define TURB_SSTABLE_ROW_WRITER_H

#include "sstable/block.h"
#include "sstable/output.h"
#include "sstable/tail_builder.h"

/* Records of a checksum extent that is still to be written. */
struct checksum_list {
  struct checksum_record *records;
  uint32_t count, capacity;
  uint64_t first_ordinal; /* of records[0]: block or chunk of the table */
};

/* The list is not full. */
static inline void checksum_list_add(struct checksum_list *list, uint64_t checksum, uint64_t offset, uint32_t stored) {
  list->records[list->count++] = (struct checksum_record){checksum, (uint32_t)offset, stored};
}

struct row_writer {
  const struct table_shape *shape;
  uint64_t seed;
  struct output *output;
  struct tail_builder *tail;
  struct checksum_list *records;
  struct block_compressor *compressor; /* NULL: not compressed; owned */
  uint8_t *side;                       /* block_bytes: the block that is parked, or that is to be compressed; borrowed */
  uint8_t *block;                      /* the block that fills, in the output or in side; NULL: none */
  uint32_t block_rows;                 /* in it, or parked */
  uint32_t extent_rows;                /* in the extent's full blocks */
  uint64_t extent_offset;              /* in the file; meaningful while extent_rows > 0 */
  uint64_t rows, blocks;               /* in all */
};

/* Whether row_writer_init wants `side` memory. */
bool row_writer_needs_side(const struct table_shape *shape);

/* The next add may fail for want of checksum records when the list is full: end the stripe first. */
TURB_MUST_CHECK turb_status row_writer_add(struct row_writer *rows, const void *row, turb_error *err);

/* Closes the extent at its last full block and parks the rest: the output is then free for other parts, at a page border. */
TURB_MUST_CHECK turb_status row_writer_close_extent(struct row_writer *rows, turb_error *err);

/* Writes the last, short block and closes the extent. */
TURB_MUST_CHECK turb_status row_writer_finish(struct row_writer *rows, turb_error *err);

/* Bytes of the open extent, as written so far. */
uint64_t row_writer_extent_bytes(const struct row_writer *rows);

#endif
