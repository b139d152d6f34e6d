/* Where units and parts of a table lie in the file, and whether what was read from there is what was written: checks that loads, lanes and verify share. */
#include <assert.h>
#include <inttypes.h>

#include "base/thread.h"
#include "sstable/filter.h"
#include "sstable/table_parts.h"

/* ---- places -------------------------------------------------------------------------------------------- */

uint32_t table_unit_bytes(const struct table *table, enum unit_kind kind, uint32_t unit, uint64_t *offset) {
  const struct table_shape *shape = &table->header.shape;
  const struct span *span = table_span_of_unit(table, extent_of_unit(kind), unit);
  const uint32_t within = unit - span->first_unit;
  uint32_t size = TABLE_PAGE_BYTES;
  switch (kind) {
  case UNIT_ROWS: {
    const uint64_t frame_bytes = (uint64_t)shape->blocks_per_frame * shape->block_bytes;
    const uint64_t left = span->parts - (uint64_t)within * shape->blocks_per_frame;
    size = (uint32_t)((left < shape->blocks_per_frame ? left : shape->blocks_per_frame) * shape->block_bytes);
    *offset = shape->compression == 0 ? span->offset + within * frame_bytes : 0;
    return size;
  }
  case UNIT_ATTRIBUTES: {
    const uint64_t begin = (uint64_t)within * TABLE_ATTRIBUTE_CHUNK_BYTES;
    *offset = span->offset + begin;
    return (uint32_t)(span->count - begin < TABLE_ATTRIBUTE_CHUNK_BYTES ? span->count - begin : TABLE_ATTRIBUTE_CHUNK_BYTES);
  }
  case UNIT_FILTER: {
    /* All sections of a table have the same number of pages but the last, which may be alone in its extent. */
    const uint32_t full = codec_filter_pages(TABLE_FILTER_SECTION_ENTRIES);
    *offset = span->offset + (uint64_t)within * full * TABLE_PAGE_BYTES;
    const uint32_t pages = span->pages - within * full;
    return (pages < full ? pages : full) * TABLE_PAGE_BYTES;
  }
  case UNIT_INDEX: size = span->pages / span->count * TABLE_PAGE_BYTES; break;
  case UNIT_KEYS:
  case UNIT_CHECKSUMS:
  case UNIT_KINDS: break;
  }
  *offset = span->offset + (uint64_t)within * size;
  return size;
}

uint32_t table_part_bytes(const struct table *table, enum extent_kind kind, const struct span *span, uint64_t part, uint64_t *offset) {
  const uint64_t within = part - span->first_part;
  assert(within < span->parts);
  if (kind == EXTENT_ROWS) {
    *offset = within * table->header.shape.block_bytes;
    return table->header.shape.block_bytes;
  }
  *offset = within * TABLE_ATTRIBUTE_CHUNK_BYTES;
  return (uint32_t)(span->count - *offset < TABLE_ATTRIBUTE_CHUNK_BYTES ? span->count - *offset : TABLE_ATTRIBUTE_CHUNK_BYTES);
}

uint32_t table_record_page(const struct span *span, uint64_t part, uint32_t *index) {
  const uint64_t record = part - span->record_base;
  *index = (uint32_t)(record % TABLE_CHECKSUMS_PER_PAGE);
  return span->record_page + (uint32_t)(record / TABLE_CHECKSUMS_PER_PAGE);
}

/* ---- pages --------------------------------------------------------------------------------------------- */

turb_status table_key_page_check(const struct table *table, void *data, size_t size, uint64_t offset, turb_error *err) {
  struct slot_page *page = data;
  const struct codec_place place = table_place(table, offset);
  const turb_status status = codec_key_page_check(page, size, &place, &table->limits, err);
  if (status == TURB_OK && page->sequence == 0 && table->record.bulk_sequence != 0) {
    page->sequence = table->record.bulk_sequence; /* given at install: after the bytes were written */
  }
  return status;
}

/* An index page against what the top index says of it: searches rely on both. */
static turb_status index_page_check(const struct table *table, uint32_t unit, const void *data, uint32_t size,
                                    const struct codec_place *place, turb_error *err) {
  const turb_status status = codec_index_page_check(data, size, place, &table->limits, err);
  if (status != TURB_OK) {
    return status;
  }
  const struct slot_page *page = data;
  const struct top_entry *top = &table->tail.top[unit];
  const struct index_slot *first = codec_index_slot(page, 0), *last = codec_index_slot(page, page->slot_count - 1u);
  const turb_bytes separator = codec_index_separator(page, page->slot_count - 1u);
  uint64_t entries_end, rows_end;
  table_index_page_base(table, unit + 1, &entries_end, &rows_end);
  if (first->first_entry != top->first_entry || first->base_row != top->first_row || last->first_entry + last->slots != entries_end ||
      last->base_row + last->puts != rows_end || !key_equal(separator.data, separator.size, top->separator.data, top->separator.size)) {
    return status_set_file(err, TURB_CORRUPTION, table->path, place->offset, "index page %" PRIu32 " is not as the top index says", unit);
  }
  return TURB_OK;
}

turb_status table_unit_check(const struct table *table, enum unit_kind kind, uint32_t unit, void *data, uint32_t size, turb_error *err) {
  uint64_t offset;
  (void)table_unit_bytes(table, kind, unit, &offset);
  const struct codec_place place = table_place(table, offset);
  switch (kind) {
  case UNIT_INDEX: return index_page_check(table, unit, data, size, &place, err);
  case UNIT_KEYS: return table_key_page_check(table, data, size, offset, err);
  case UNIT_CHECKSUMS: return codec_checksum_page_check(data, size, &place, err);
  case UNIT_FILTER: {
    const uint64_t first = (uint64_t)unit * TABLE_FILTER_SECTION_ENTRIES;
    const uint64_t left = table->tail.properties.entries - first;
    return filter_section_check(data, size, &place, (uint32_t)(left < TABLE_FILTER_SECTION_ENTRIES ? left : TABLE_FILTER_SECTION_ENTRIES),
                                err);
  }
  case UNIT_ROWS:
  case UNIT_ATTRIBUTES:
  case UNIT_KINDS: break;
  }
  assert(false); /* verified by their checksum pages */
  return TURB_OK;
}

/* ---- parts --------------------------------------------------------------------------------------------- */

turb_status table_record_of(const struct table *table, const struct span *span, uint64_t part, const struct checksum_page *page,
                            struct checksum_record *record, turb_error *err) {
  uint32_t index;
  const uint32_t ordinal = table_record_page(span, part, &index);
  const bool rows = span >= table->spans[EXTENT_ROWS].at && span < table->spans[EXTENT_ROWS].at + table->spans[EXTENT_ROWS].count;
  *record = (struct checksum_record){0};
  if (page->kind != (rows ? EXTENT_ROWS : EXTENT_ATTRIBUTES) || index >= page->count || page->first_ordinal != part - index) {
    uint64_t offset;
    (void)table_unit_bytes(table, UNIT_CHECKSUMS, ordinal, &offset);
    return status_set_file(err, TURB_CORRUPTION, table->path, offset, "checksum page: does not describe %s %" PRIu64,
                           rows ? "block" : "chunk", part);
  }
  *record = *codec_checksum_record(page, index);
  return TURB_OK;
}

turb_status table_record_check(const struct table *table, const struct span *span, uint64_t part, const struct checksum_record *record,
                               turb_error *err) {
  const uint64_t stored = CODEC_STORED_BYTES(record->stored);
  if (stored == 0 || stored > table->header.shape.block_bytes || record->offset + stored > (uint64_t)span->pages * TABLE_PAGE_BYTES) {
    return status_set_file(err, TURB_CORRUPTION, table->path, span->offset,
                           "checksum record of block %" PRIu64 ": %" PRIu64 " bytes at %" PRIu32 " of the extent", part, stored,
                           record->offset);
  }
  return TURB_OK;
}

turb_status table_part_check(const struct table *table, enum extent_kind kind, const struct span *span, uint64_t part,
                             const struct checksum_record *record, const void *data, turb_error *err) {
  uint64_t within;
  uint64_t size = table_part_bytes(table, kind, span, part, &within);
  const char *what = kind == EXTENT_ROWS ? "vector block" : "attribute chunk";
  if (kind == EXTENT_ROWS && table->header.shape.compression != 0) {
    within = record->offset;
    size = CODEC_STORED_BYTES(record->stored);
  } else if (record->offset != within || record->stored != size) {
    return status_set_file(err, TURB_CORRUPTION, table->path, span->offset + within,
                           "%s %" PRIu64 ": its checksum record says %" PRIu32 " bytes at %" PRIu32 " of the extent", what, part,
                           record->stored, record->offset);
  }
  if (codec_part_checksum(data, size, table->seed, span->offset + within) != record->checksum) {
    return status_set_file(err, TURB_CORRUPTION, table->path, span->offset + within, "%s %" PRIu64 " does not match its checksum", what,
                           part);
  }
  return TURB_OK;
}

/* ---- compressed blocks --------------------------------------------------------------------------------- */

turb_status table_block_unpack(struct table *table, const struct span *span, const struct checksum_record *record, const void *stored,
                               void *out, turb_error *err) {
  const struct table_env *env = table->env;
  const struct table_shape *shape = &table->header.shape;
  const struct block_memory memory = {env->allocator, env->budget, BUDGET_CURSOR};
  struct block_decompressor *decompressor;
  turb_status status = block_pool_take(env->block_pool, &memory, shape->type, shape->block_bytes, &decompressor, err);
  if (status != TURB_OK) {
    return status;
  }
  const struct codec_place place = table_place(table, span->offset + record->offset);
  status = block_decompress(decompressor, stored, record->stored, out, &place, err);
  block_pool_give(env->block_pool, decompressor);
  return status;
}
