/* sstable/stream: lanes, the streaming way through a table: past the cache, forward, a fixed number of large reads in flight, in buffers
 * of the lane's own.
 *
 * A lane walks the extents of one kind (keys, rows, attributes, checksums) from an ordinal on. It hands out pieces: contiguous stretches
 * within one
 * extent, whole units, page-aligned, already read. A piece stays valid until it is released, in any order; a lane has `depth` of them, in
 * flight or
 * handed out.
 *
 *   lane_piece: READY (a piece) | PENDING (queued on the reads) | END | FAILED
 */
#ifndef TURB_SSTABLE_STREAM_H
#define TURB_SSTABLE_STREAM_H

#include "sstable/table.h"

struct lane;

struct lane_options {
  enum extent_kind kind;
  uint64_t first_ordinal, last_ordinal; /* half-open, in the kind's own count (key units, rows, bytes, pages) */
  uint32_t piece_bytes;                 /* wish: rounded to whole units; default 256 KiB for keys, 1 MiB for rows */
  uint32_t depth; /* pieces in flight or held; at least 3 (an old one held, a current one, one on its way); default 4 */
  enum budget_use use;
  struct budget *budget; /* what pays for the pieces; NULL: the table's */
  bool verify; /* rows and attributes: compare blocks and chunks with their checksums before a piece is handed out */
  bool
      eager; /* lane_piece submits the reads that it queues: for callers that may make system calls and want the device busy while they work on a piece */
};
/* The first piece begins with the block (attributes: the chunk) that holds first_ordinal; the last one's count ends at last_ordinal, or
 * with the extent. */
struct piece {
  const uint8_t *data;
  uint32_t size;          /* whole blocks, pages or chunks */
  uint64_t first_ordinal; /* key unit, row, byte, page */
  uint64_t file_offset;   /* of data; compressed rows: of the page where the first block begins */
  uint32_t count;         /* units (keys), rows, bytes, pages */
};
/* A row of a piece of rows. */
static inline const uint8_t *piece_row(const struct piece *piece, const struct table_shape *shape, uint64_t row) {
  const uint32_t n = (uint32_t)(row - piece->first_ordinal);
  return piece->data + (size_t)(n / shape->rows_per_block) * shape->block_bytes + (size_t)(n % shape->rows_per_block) * shape->stride;
}

/* The least that a lane charges, whatever was wished for. */
uint64_t lane_least_bytes(const struct table_shape *shape, enum extent_kind kind);
TURB_MUST_CHECK turb_status lane_open(struct table *table, struct reads *reads, const struct lane_options *options, struct lane **lane,
                                      turb_error *err);
void lane_close(struct lane *lane); /* never waits; NULL ok */
/* The next piece that was not handed out yet; LOAD_READY with *end set: there is none. LOAD_IDLE: all pieces are handed out, release one
 * first.
 * Starts further reads as buffers allow. READY pieces of compressed row extents are decompressed. Key pages of a piece are verified
 * (checksums,
 * bounds of slots) when handed out. Row pieces are verified by their checksum pages when `verify` was asked for at open, else by row
 * hashes by
 * whoever consumes them. */
enum load_state lane_piece(struct lane *lane, struct piece *piece, bool *end);
/* Gives a piece that was handed out (named by its data) back to be read into again; any order. */
void lane_release(struct lane *lane, const void *data);
/* How many pieces the lane got at opening: what was wished for, or fewer (never below 3) under a short budget. */
uint32_t lane_depth(const struct lane *lane);
turb_status lane_error(const struct lane *lane, turb_error *err);

#endif
