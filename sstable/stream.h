/* sstable/stream: lanes, the streaming way through a table: past the cache, forward, a fixed number of large reads in flight, in buffers of the lane's own.
 *
 * A lane walks the extents of one kind (keys, rows, attributes, checksums) from an ordinal on. It hands out pieces: contiguous stretches within one extent, whole
 * units, page-aligned, already read. A piece stays valid until it is released; pieces are released in order, and a lane has `depth` of them.
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
  uint32_t depth;                       /* pieces in flight or held; at least 2; default 3 */
  enum budget_use use;
};
struct piece {
  const uint8_t *data;
  uint32_t size;
  uint64_t first_ordinal; /* key unit, row, byte, page */
  uint64_t file_offset;
  uint32_t count;         /* units (keys), rows, bytes, pages */
};

TURB_MUST_CHECK turb_status lane_open(struct table *table, struct reads *reads, const struct lane_options *options, struct lane **lane, turb_error *err);
void lane_close(struct lane *lane); /* never waits; NULL ok */
/* The next piece that was not handed out yet. Starts further reads as buffers allow. READY pieces of compressed row extents are decompressed. Key pages of a piece are
 * verified (checksums, bounds of slots) when handed out. Row pieces are verified by their checksum pages when `verify` was asked for at open, else by
 * row hashes by whoever consumes them. */
enum load_state lane_piece(struct lane *lane, struct piece *piece, bool *end);
/* Gives the oldest piece that was handed out back to be read into again. */
void lane_release(struct lane *lane);
turb_status lane_error(const struct lane *lane, turb_error *err);

#endif
