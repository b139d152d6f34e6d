/* Header page and footer of tables: docs/format.md 3.1 and 3.10. The tail is in codec_tail.c, pages are in codec_page.c. */
#include "sstable/codec.h"

#include <inttypes.h>
#include <string.h>

#define HEADER_MAGIC UINT64_C(0x0A4C425442525554) /* "TURBTBL\n" */
#define FOOTER_MAGIC UINT64_C(0x0A444E4542525554) /* "TURBEND\n" */

enum { HEADER_CHECKSUM_AT = 4088, FOOTER_CHECKSUM_AT = 56, MAX_BLOCK_BYTES = 1 << 20 };

uint64_t codec_table_seed(const uint8_t database_id[16], uint64_t job, uint32_t cut) {
  uint8_t bytes[28];
  memcpy(bytes, database_id, 16);
  store_u64(bytes + 16, job);
  store_u32(bytes + 24, cut);
  return hash64(bytes, sizeof bytes, 0);
}

/* ---- header ---- */

void codec_header_encode(const struct table_header *header, uint8_t *page) {
  const struct table_shape *shape = &header->shape;
  memset(page, 0, CODEC_PAGE_BYTES);
  store_u64(page, HEADER_MAGIC);
  store_u32(page + 8, TABLE_FORMAT_VERSION);
  memcpy(page + 16, header->database_id, 16);
  store_u64(page + 32, header->seed);
  store_u64(page + 40, header->collection_id);
  store_u64(page + 48, header->file_number);
  store_u32(page + 56, shape->dimension);
  page[60] = (uint8_t)shape->type;
  page[61] = (uint8_t)shape->metric;
  page[62] = shape->compression;
  store_u32(page + 64, shape->row_bytes);
  store_u32(page + 68, shape->stride);
  store_u32(page + 72, shape->rows_per_block);
  store_u32(page + 76, shape->block_bytes);
  store_u32(page + 80, shape->blocks_per_frame);
  store_u32(page + 84, TABLE_ATTRIBUTE_CHUNK_BYTES);
  store_u32(page + 88, TABLE_FILTER_SECTION_ENTRIES);
  store_u64(page + HEADER_CHECKSUM_AT, hash64(page, HEADER_CHECKSUM_AT, 0));
}

static turb_status bad_header(const char *file, uint64_t offset, const char *what, turb_error *err) {
  return status_set_file(err, TURB_CORRUPTION, file, offset, "table header: %s", what);
}

static bool all_zero(const uint8_t *bytes, size_t size) {
  for (size_t i = 0; i < size; i++) {
    if (bytes[i] != 0) {
      return false;
    }
  }
  return true;
}

/* The geometry as stored: another version may choose other blocks, but they must hold together. */
static turb_status check_geometry(const struct table_shape *shape, const char *file, turb_error *err) {
  if (shape->dimension == 0 || shape->dimension > CODEC_MAX_DIMENSION) {
    return bad_header(file, 56, "dimension out of bounds", err);
  }
  if (shape->type < TURB_F32 || shape->type > TURB_BITS) {
    return bad_header(file, 60, "unknown element type", err);
  }
  if (shape->metric < TURB_L2 || shape->metric > TURB_HAMMING) {
    return bad_header(file, 61, "unknown metric", err);
  }
  if (shape->compression > 1) {
    return bad_header(file, 62, "unknown compression", err);
  }
  if (shape->row_bytes != table_row_bytes(shape->type, shape->dimension)) {
    return bad_header(file, 64, "row bytes do not match dimension and type", err);
  }
  if (shape->stride < shape->row_bytes || shape->stride > shape->row_bytes + CODEC_PAGE_BYTES) {
    return bad_header(file, 68, "stride out of bounds", err);
  }
  if (shape->block_bytes == 0 || shape->block_bytes % CODEC_PAGE_BYTES != 0 || shape->block_bytes > MAX_BLOCK_BYTES) {
    return bad_header(file, 76, "block bytes out of bounds", err);
  }
  if (shape->rows_per_block == 0 || shape->rows_per_block > shape->block_bytes / shape->stride) {
    return bad_header(file, 72, "rows a block out of bounds", err);
  }
  if (shape->blocks_per_frame == 0 || shape->blocks_per_frame > MAX_BLOCK_BYTES / shape->block_bytes) {
    return bad_header(file, 80, "blocks a frame out of bounds", err);
  }
  return TURB_OK;
}

turb_status codec_header_decode(const uint8_t *page, size_t size, const char *file, const uint8_t *database_id, struct table_header *header,
                                turb_error *err) {
  memset(header, 0, sizeof *header);
  if (size < CODEC_PAGE_BYTES) {
    return bad_header(file, size, "the file is cut short", err);
  }
  if (load_u64(page) != HEADER_MAGIC) {
    return bad_header(file, 0, "not a table", err);
  }
  if (load_u64(page + HEADER_CHECKSUM_AT) != hash64(page, HEADER_CHECKSUM_AT, 0)) {
    return bad_header(file, 0, "does not match its checksum", err);
  }
  const uint32_t version = load_u32(page + 8);
  if (version > TABLE_FORMAT_VERSION) {
    return status_set_file(err, TURB_NEWER_FORMAT, file, 8, "table of format version %" PRIu32 ", this library knows %u", version,
                           TABLE_FORMAT_VERSION);
  }
  if (version == 0 || load_u32(page + 12) != 0 || page[63] != 0 || !all_zero(page + 92, HEADER_CHECKSUM_AT - 92)) {
    return bad_header(file, 8, "version or reserved bytes", err);
  }
  memcpy(header->database_id, page + 16, 16);
  if (database_id != NULL && memcmp(database_id, header->database_id, 16) != 0) {
    return status_set_file(err, TURB_NOT_A_DATABASE, file, 16, "table of another database");
  }
  header->seed = load_u64(page + 32);
  header->collection_id = load_u64(page + 40);
  header->file_number = load_u64(page + 48);
  header->shape = (struct table_shape){.dimension = load_u32(page + 56),
                                       .type = (turb_type)page[60],
                                       .metric = (turb_metric)page[61],
                                       .compression = page[62],
                                       .row_bytes = load_u32(page + 64),
                                       .stride = load_u32(page + 68),
                                       .rows_per_block = load_u32(page + 72),
                                       .block_bytes = load_u32(page + 76),
                                       .blocks_per_frame = load_u32(page + 80)};
  if (load_u32(page + 84) != TABLE_ATTRIBUTE_CHUNK_BYTES || load_u32(page + 88) != TABLE_FILTER_SECTION_ENTRIES) {
    return bad_header(file, 84, "bytes of an attribute chunk or entries a filter section", err);
  }
  return check_geometry(&header->shape, file, err);
}

/* ---- footer ---- */

void codec_footer_encode(const struct table_footer *value, uint64_t seed, uint8_t *footer) {
  memset(footer, 0, TABLE_FOOTER_BYTES);
  store_u64(footer, FOOTER_MAGIC);
  store_u32(footer + 8, TABLE_FORMAT_VERSION);
  store_u64(footer + 16, value->tail_offset);
  store_u64(footer + 24, value->tail_checksum);
  store_u64(footer + FOOTER_CHECKSUM_AT, hash64(footer, FOOTER_CHECKSUM_AT, seed));
}

turb_status codec_footer_decode(const uint8_t *footer, size_t size, const struct codec_place *place, struct table_footer *value,
                                turb_error *err) {
  memset(value, 0, sizeof *value);
  const char *file = place->file;
  if (size < TABLE_FOOTER_BYTES) {
    return status_set_file(err, TURB_CORRUPTION, file, place->offset, "table footer: the file is cut short");
  }
  if (load_u64(footer) != FOOTER_MAGIC) {
    return status_set_file(err, TURB_CORRUPTION, file, place->offset, "table footer: not one (the file is cut short, or not finished)");
  }
  if (load_u64(footer + FOOTER_CHECKSUM_AT) != hash64(footer, FOOTER_CHECKSUM_AT, place->seed)) {
    return status_set_file(err, TURB_CORRUPTION, file, place->offset, "table footer: does not match its checksum");
  }
  const uint32_t version = load_u32(footer + 8);
  if (version > TABLE_FORMAT_VERSION) {
    return status_set_file(err, TURB_NEWER_FORMAT, file, place->offset + 8, "table of format version %" PRIu32 ", this library knows %u",
                           version, TABLE_FORMAT_VERSION);
  }
  const uint64_t tail_offset = load_u64(footer + 16);
  if (version == 0 || load_u32(footer + 12) != 0 || !all_zero(footer + 32, FOOTER_CHECKSUM_AT - 32)) {
    return status_set_file(err, TURB_CORRUPTION, file, place->offset + 8, "table footer: version or reserved bytes");
  }
  if (tail_offset < CODEC_PAGE_BYTES || tail_offset % CODEC_PAGE_BYTES != 0 || tail_offset > place->offset) {
    return status_set_file(err, TURB_CORRUPTION, file, place->offset + 16, "table footer: tail at %" PRIu64 ", out of bounds", tail_offset);
  }
  value->tail_offset = tail_offset;
  value->tail_checksum = load_u64(footer + 24);
  return TURB_OK;
}
