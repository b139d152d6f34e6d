/* sstable/format: the constants and fixed structures of docs/format.md 3, and the geometry of vector blocks. */
#ifndef TURB_SSTABLE_FORMAT_H
#define TURB_SSTABLE_FORMAT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/slot.h"
#include "base/status.h"

#define TABLE_FORMAT_VERSION 1u
#define TABLE_ATTRIBUTE_CHUNK_BYTES 65536u
#define TABLE_INLINE_ATTRIBUTE_BYTES (1u << 20)
#define TABLE_FILTER_SECTION_ENTRIES 8192u
#define TABLE_FRAME_BYTES 32768u
#define TABLE_FOOTER_BYTES 64u
#define TABLE_CHECKSUMS_PER_PAGE 254u

enum extent_kind { EXTENT_ROWS = 1, EXTENT_KEYS = 2, EXTENT_INDEX = 3, EXTENT_ATTRIBUTES = 4, EXTENT_FILTER = 5, EXTENT_CHECKSUMS = 6 };

struct extent {
  uint8_t kind;
  uint32_t pages;
  uint64_t first_page;
  uint64_t first_ordinal;
  uint32_t count;
};

struct index_slot { /* describes one key page; 56 bytes on disk */
  uint64_t prefix;
  uint64_t hash_sum;
  uint64_t base_row;
  uint64_t base_attribute;
  uint64_t first_entry;
  uint32_t page; /* in the file */
  uint16_t separator_offset, separator_size;
  uint16_t slots;
  uint8_t units, flags;
  uint32_t puts;
};
_Static_assert(sizeof(struct index_slot) == 56, "index slots are 56 bytes on disk");

struct checksum_record {
  uint64_t checksum;
  uint32_t offset; /* from the extent's first byte */
  uint32_t stored; /* bytes; bit 31: stored plainly in a compressed table */
};

/* What the rows of a collection look like, and how blocks hold them. */
struct table_shape {
  uint32_t dimension;
  turb_type type;
  turb_metric metric;
  uint8_t compression; /* 0 none, 1 zstd */
  int32_t compression_level;
  uint32_t row_bytes;
  uint32_t stride;
  uint32_t rows_per_block;
  uint32_t block_bytes;
  uint32_t blocks_per_frame;
};
/* Row bytes of a vector. */
uint32_t table_row_bytes(turb_type type, uint32_t dimension);
/* Fills the derived fields from dimension, type, metric and compression (docs/format.md 3.1, "Geometry"). */
void table_shape_derive(struct table_shape *shape);

static inline uint64_t table_part_seed(uint64_t file_seed, uint64_t offset) { return file_seed + offset * UINT64_C(0x9E3779B97F4A7C15); }

/* What the manifest knows of a table. Key bytes are owned by whoever holds the record. */
struct table_record {
  uint64_t file_number, collection_id;
  uint64_t size_bytes, tail_offset, seed;
  turb_bytes lower, upper; /* declared bounds: lower inclusive, upper exclusive unless it is the largest key (upper_inclusive) */
  bool upper_open;         /* no upper bound (an open range delete) */
  bool upper_inclusive;
  uint64_t entries, puts, deletes, range_fragments;
  uint64_t smallest_sequence, largest_sequence, bulk_sequence;
  uint64_t hash_sum;
};

#endif
