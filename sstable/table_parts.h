/* sstable/table_parts: the inside of an open table, shared by the sources of the reading half and by nobody else.
 *
 * A span is an extent with the sums of what lies before it in its kind, so that an ordinal is found by a search over spans and then arithmetic:
 *
 *   kind        ordinal (format.md 3.2)   part (has a checksum record)   unit (in the cache)
 *   rows        row                       block                          frame = blocks_per_frame blocks, the extent's last shorter
 *   attributes  byte                      chunk of 64 KiB                chunk
 *   keys        4 KiB unit                                               the same
 *   index, filter, checksums: their number                               the same
 */
#ifndef TURB_SSTABLE_TABLE_PARTS_H
#define TURB_SSTABLE_TABLE_PARTS_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/arena.h"
#include "sstable/block.h"
#include "sstable/codec.h"
#include "sstable/table.h"

#define TABLE_PAGE_BYTES 4096u
#define EXTENT_KINDS     7 /* and 0, which is none */

struct span {
  uint64_t first; /* ordinal */
  uint32_t count;
  uint32_t pages;
  uint64_t offset;     /* of the first byte in the file */
  uint64_t first_part; /* block or chunk */
  uint64_t parts;
  uint32_t first_unit; /* of its kind */
  uint32_t units;
  /* Where the checksum records of its parts lie: record r of the group is in checksum page `record_page + r / 254`. */
  uint64_t record_base; /* the part that is record 0 */
  uint32_t record_page; /* ordinal of kind 6; UINT32_MAX: no checksum extent follows (refused at open) */
};

struct spans {
  struct span *at;
  uint32_t count;
  uint32_t units;
  uint64_t end; /* ordinals of the kind */
  /* Extents of a kind are mostly alike, so that these times an ordinal (unit, file offset) is mostly the right span's number. */
  double per_ordinal, per_unit, per_byte;
};

struct table {
  const struct table_env *env;
  _Atomic uint32_t references;
  _Atomic bool obsolete;
  struct io_file *file;
  char *path;
  uint8_t *tail_bytes; /* keys and separators of `tail` lie here */
  uint64_t tail_size;
  struct arena arena; /* the arrays */
  struct table_header header;
  struct table_record record;
  struct table_tail tail;
  struct codec_limits limits;
  uint64_t seed;
  struct spans spans[EXTENT_KINDS];
  /* The top index, for the search: 8 separator bytes behind what all separators share. */
  uint64_t *top_prefixes;
  uint32_t top_shared;
  struct cache_directory directory;
  uint32_t unit_base[UNIT_KINDS];
};

static inline enum extent_kind extent_of_unit(enum unit_kind kind) {
  static const uint8_t kinds[UNIT_KINDS] = {
      [UNIT_INDEX] = EXTENT_INDEX,         [UNIT_FILTER] = EXTENT_FILTER, [UNIT_KEYS] = EXTENT_KEYS,
      [UNIT_CHECKSUMS] = EXTENT_CHECKSUMS, [UNIT_ROWS] = EXTENT_ROWS,     [UNIT_ATTRIBUTES] = EXTENT_ATTRIBUTES,
  };
  return (enum extent_kind)kinds[kind];
}

/* The span that holds an ordinal, or a unit, of its kind; both below the kind's end. */
const struct span *table_span_of(const struct table *table, enum extent_kind kind, uint64_t ordinal);
const struct span *table_span_of_unit(const struct table *table, enum extent_kind kind, uint32_t unit);

/* Bytes that the file holds for a unit, and where. Key pages: of one 4 KiB unit; compressed frames: uncompressed (the offset is then unknown, 0). */
uint32_t table_unit_bytes(const struct table *table, enum unit_kind kind, uint32_t unit, uint64_t *offset);

/* Reads a range of pages and waits; *done is less than size at the end of the file. */
TURB_MUST_CHECK turb_status table_read_range(const struct table *table, void *data, uint64_t offset, uint32_t size, uint32_t *done,
                                             turb_error *err);

static inline struct codec_place table_place(const struct table *table, uint64_t offset) {
  return (struct codec_place){table->path, table->seed, offset};
}

/* Checks a unit of pages read from its place: index, filter, key and checksum units; sets a key page's sequence from the record where it was bulk-loaded. */
TURB_MUST_CHECK turb_status table_unit_check(const struct table *table, enum unit_kind kind, uint32_t unit, void *data, uint32_t size,
                                             turb_error *err);
/* A key page at a file offset. */
TURB_MUST_CHECK turb_status table_key_page_check(const struct table *table, void *page, size_t size, uint64_t offset, turb_error *err);
/* The checksum page that holds the record of a part of rows or attributes, and which record it is. */
uint32_t table_record_page(const struct span *span, uint64_t part, uint32_t *index);
/* The record of a part in its (checked) checksum page; CORRUPTION when the page describes something else. */
TURB_MUST_CHECK turb_status table_record_of(const struct table *table, const struct span *span, uint64_t part,
                                            const struct checksum_page *page, struct checksum_record *record, turb_error *err);
/* Stored bytes of an uncompressed block or a chunk, and its offset within the span. */
uint32_t table_part_bytes(const struct table *table, enum extent_kind kind, const struct span *span, uint64_t part, uint64_t *offset);
/* Compares a part with its record. */
TURB_MUST_CHECK turb_status table_part_check(const struct table *table, enum extent_kind kind, const struct span *span, uint64_t part,
                                             const struct checksum_record *record, const void *data, turb_error *err);
/* A compressed block: `stored` holds the bytes that its record names. */
TURB_MUST_CHECK turb_status table_block_unpack(struct table *table, const struct span *span, const struct checksum_record *record,
                                               const void *stored, void *out, turb_error *err);
/* Whether the record's bytes lie within the span (compressed tables). */
TURB_MUST_CHECK turb_status table_record_check(const struct table *table, const struct span *span, uint64_t part,
                                               const struct checksum_record *record, turb_error *err);

#endif
