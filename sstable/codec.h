/*
 * sstable/codec: bytes of docs/format.md 3 to structures and back, shared by the writing and the reading half.
 *
 * Everything that comes from disk passes through one of the decode or check functions before it is used; after OK, the accessors below
 * need no bounds checks of their own.
 *
 * Rules
 *   1. No function trusts a length, offset or count before it has bounded it; what contradicts the format is TURB_CORRUPTION with file and
 *      offset (TURB_NEWER_FORMAT and TURB_NOT_A_DATABASE where the format says so).
 *   2. Nothing allocates but codec_tail_decode, which takes its arrays from the caller's arena; the bytes (keys, separators) stay in the tail.
 *   3. Pages are used in place, so the host is little-endian.
 *
 * Threads: pure functions.
 */
#ifndef TURB_SSTABLE_CODEC_H
#define TURB_SSTABLE_CODEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/coding.h"
#include "base/hash.h"
#include "base/slot.h"
#include "base/status.h"
#include "sstable/format.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "pages are used in place");

#define CODEC_PAGE_BYTES           4096u
#define CODEC_KEY_PAGE_MAX_UNITS   2u
#define CODEC_KEY_PAGE_MAX_SLOTS   101u /* 40 + 40 x 101 <= 4096, with the keys in the second unit */
#define CODEC_INDEX_PAGE_MAX_SLOTS 62u
#define CODEC_MAX_DIMENSION        65536u
#define CODEC_KEY_MAX_BYTES        4096u
#define CODEC_ATTRIBUTE_MAX_BYTES  (1u << 24)
#define CODEC_FILTER_HEADER_BYTES  64u
#define CODEC_FILTER_BLOCK_BYTES   32u
#define CODEC_STORED_PLAINLY       (1u << 31) /* of checksum_record.stored */
#define CODEC_STORED_BYTES(stored) ((stored) & ~CODEC_STORED_PLAINLY)

/* Where bytes stand: for errors, and for the part seed. */
struct codec_place {
  const char *file; /* for messages; may be NULL */
  uint64_t seed;    /* the table's */
  uint64_t offset;  /* of the first byte */
};

/* ---- header page ---- */

struct table_header {
  uint8_t database_id[16];
  uint64_t seed, collection_id, file_number;
  struct table_shape shape; /* compression_level is not stored: 0 after decoding */
};

/* XXH3-64 of (database id, u64 job, u32 cut), seed 0. */
uint64_t codec_table_seed(const uint8_t database_id[16], uint64_t job, uint32_t cut);

/* Fills page[4096], checksum included. */
void codec_header_encode(const struct table_header *header, uint8_t *page);

/*
 * Checks and decodes a header page; the shape's derived fields are as stored, and must agree with each other (a later version may choose
 * another geometry). size: bytes at hand. database_id NULL: any. Errors: CORRUPTION, NEWER_FORMAT, NOT_A_DATABASE (another database's file).
 */
TURB_MUST_CHECK turb_status codec_header_decode(const uint8_t *page, size_t size, const char *file, const uint8_t *database_id,
                                                struct table_header *header, turb_error *err);

/* ---- footer ---- */

struct table_footer {
  uint64_t tail_offset;
  uint64_t tail_checksum;
};

/* Fills footer[64]. */
void codec_footer_encode(const struct table_footer *value, uint64_t seed, uint8_t *footer);

/* place->offset: where the footer stands, so the file's size - 64. The tail lies between page 1 and the footer, on a page border. */
TURB_MUST_CHECK turb_status codec_footer_decode(const uint8_t *footer, size_t size, const struct codec_place *place,
                                                struct table_footer *value, turb_error *err);

/* ---- tail ---- */

enum table_upper_kind { TABLE_UPPER_EXCLUSIVE = 0, TABLE_UPPER_INCLUSIVE = 1, TABLE_UPPER_OPEN = 2 };

struct table_properties {
  uint64_t entries, puts, deletes, range_fragments;
  uint64_t smallest_sequence, largest_sequence; /* of entries and range deletes; entries of bulk tables count as 0 */
  turb_bytes smallest_key, largest_key;         /* of entries; empty when there are none */
  turb_bytes lower, upper;                      /* declared bounds */
  enum table_upper_kind upper_kind;
  uint64_t key_bytes, attribute_bytes;
  uint64_t hash_sum;
  uint64_t vector_blocks, attribute_chunks;
  uint64_t job, cut, bulk_sequence;
  uint64_t largest_key_bytes, largest_attribute_bytes;
  uint64_t mark_sequence, mark_seconds; /* 0: no mark */
};

struct top_entry { /* one index page */
  turb_bytes separator;
  uint64_t first_entry, first_row;
};

struct table_tail {
  struct range_deletes deletes;
  const struct extent *extents; /* in file order */
  uint32_t extent_count;
  const struct top_entry *top;
  uint32_t top_count;
  struct table_properties properties;
};

/*
 * Decodes and cross-checks [tail offset, footer): sections, extents (order, overlap, ordinals, pages against counts, one checksum extent for the
 * blocks and chunks before it), top index and range deletes (order, bounds), properties. `size` counts the bytes before the footer, and
 * `checksum` is the footer's. The arrays live in `arena`; keys and separators point into `tail`, which must live as long.
 */
TURB_MUST_CHECK turb_status codec_tail_decode(const uint8_t *tail, size_t size, const struct codec_place *place, uint64_t checksum,
                                              const struct table_shape *shape, struct arena *arena, struct table_tail *out,
                                              turb_error *err);

/* The writer's side: each appends to the bytes of one section (failures stay in the buffer: buffer_status). */
enum codec_section { CODEC_SECTION_RANGES = 1, CODEC_SECTION_EXTENTS = 2, CODEC_SECTION_TOP = 3, CODEC_SECTION_PROPERTIES = 4 };
#define CODEC_SECTIONS 4

void codec_range_append(struct buffer *section, const struct range_fragment *fragment);
void codec_extent_append(struct buffer *section, const struct extent *extent);
void codec_top_append(struct buffer *section, turb_bytes separator, uint64_t first_entry, uint64_t first_row);
void codec_properties_append(struct buffer *section, const struct table_properties *properties);
/* The section table (with offsets) of sections of these sizes: CODEC_TAIL_TABLE_BYTES. Tag i + 1 is the section at sizes[i]. */
#define CODEC_TAIL_TABLE_BYTES (4u + CODEC_SECTIONS * 24u)
void codec_tail_table_encode(const uint64_t sizes[CODEC_SECTIONS], uint8_t *table);

/* ---- extents ---- */

/* Blocks of a vector extent with `rows` rows. */
static inline uint64_t codec_blocks_of_rows(const struct table_shape *shape, uint64_t rows) {
  return (rows + shape->rows_per_block - 1) / shape->rows_per_block;
}
/* Pages of each index page of an index extent: 1, or 2 where a separator is above 4,000 bytes. */
static inline uint32_t codec_index_page_pages(const struct extent *extent) {
  return extent->pages / extent->count;
}
/* Bytes of a filter section, before rounding up to pages, and its blocks. */
static inline uint32_t codec_filter_blocks(uint32_t entries) {
  return entries == 0 ? 1 : (entries * 10u + 255u) / 256u;
}
static inline uint32_t codec_filter_pages(uint32_t entries) {
  return (CODEC_FILTER_HEADER_BYTES + codec_filter_blocks(entries) * CODEC_FILTER_BLOCK_BYTES + CODEC_PAGE_BYTES - 1) / CODEC_PAGE_BYTES;
}
static inline uint64_t codec_pages_of_bytes(uint64_t bytes) {
  return bytes / CODEC_PAGE_BYTES + (bytes % CODEC_PAGE_BYTES != 0);
}

/* ---- pages ---- */

/* What a page's numbers are bounded by. Taken from the properties (and the tail's place). */
struct codec_limits {
  uint64_t entries, puts, attribute_bytes;
  uint64_t pages; /* of the file before the tail */
  uint64_t smallest_sequence, largest_sequence;
};
struct codec_limits codec_limits_of(const struct table_properties *properties, uint64_t tail_offset);

/*
 * Checks the key page at `page` (aligned to 8; size: bytes at hand, at least 4,096, and 8,192 where the page has two units): checksum, slots and
 * keys within bounds, prefixes, row numbers, strict entry order. After OK page->units says how long it is.
 */
TURB_MUST_CHECK turb_status codec_key_page_check(const void *page, size_t size, const struct codec_place *place,
                                                 const struct codec_limits *limits, turb_error *err);

/* The same for an index page. Separators ascend, but equal ones may follow each other. */
TURB_MUST_CHECK turb_status codec_index_page_check(const void *page, size_t size, const struct codec_place *place,
                                                   const struct codec_limits *limits, turb_error *err);
static inline const struct index_slot *codec_index_slot(const struct slot_page *page, size_t index) {
  return (const struct index_slot *)(const void *)(page + 1) + index;
}
static inline turb_bytes codec_index_separator(const struct slot_page *page, size_t index) {
  const struct index_slot *slot = codec_index_slot(page, index);
  return (turb_bytes){(const uint8_t *)page + slot->separator_offset, slot->separator_size};
}

struct checksum_page { /* the header, as on disk; records follow */
  uint64_t checksum;
  uint8_t kind; /* EXTENT_ROWS or EXTENT_ATTRIBUTES */
  uint8_t reserved[3];
  uint32_t count;
  uint64_t first_ordinal; /* block or chunk */
};
_Static_assert(sizeof(struct checksum_page) == 24, "checksum page headers are 24 bytes on disk");
_Static_assert(sizeof(struct checksum_record) == 16, "checksum records are 16 bytes on disk");

TURB_MUST_CHECK turb_status codec_checksum_page_check(const void *page, size_t size, const struct codec_place *place, turb_error *err);
static inline const struct checksum_record *codec_checksum_record(const struct checksum_page *page, uint32_t index) {
  return (const struct checksum_record *)(const void *)(page + 1) + index;
}

/* ---- checksums ---- */

/* Of a part that begins at `offset`: hash64 with the part seed. Key, index and checksum pages: of all but their first 8 bytes. */
static inline uint64_t codec_part_checksum(const void *data, size_t size, uint64_t seed, uint64_t offset) {
  return hash64(data, size, table_part_seed(seed, offset));
}
static inline uint64_t codec_page_checksum(const void *page, size_t size, uint64_t seed, uint64_t offset) {
  return codec_part_checksum((const uint8_t *)page + 8, size - 8, seed, offset);
}

/* docs/format.md 2, "Entry hash". */
static inline uint64_t codec_entry_hash(const void *key, size_t key_size, uint64_t sequence_kind, uint64_t row_hash,
                                        uint32_t attribute_hash) {
  return hash64(key, key_size, row_hash * UINT64_C(0x9E3779B97F4A7C15) + sequence_kind + attribute_hash * UINT64_C(0xC2B2AE3D27D4EB4F));
}

#endif
