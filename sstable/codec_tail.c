/*
 * The tail of a table: docs/format.md 3.2 (extents), 3.6 (top index), 3.9 (range deletes), 3.10 (sections, properties).
 *
 * Decoding goes: checksum, section table, properties, extents, range deletes, top index. Each step uses only what the steps before have bounded.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "sstable/codec.h"

enum {
  EXTENT_BYTES = 32,
  SECTION_ENTRY_BYTES = 24,
  MAX_SECTIONS = 64,
  FRAGMENT_MIN_BYTES = 4, /* two lengths, a count, a sequence */
  TOP_MIN_BYTES = 3,
  MAX_TABLE_ENTRIES_BITS = 40
};

enum property {
  P_ENTRIES = 1,
  P_PUTS,
  P_DELETES,
  P_RANGE_FRAGMENTS,
  P_SMALLEST_SEQUENCE,
  P_LARGEST_SEQUENCE,
  P_SMALLEST_KEY,
  P_LARGEST_KEY,
  P_LOWER,
  P_UPPER,
  P_UPPER_KIND,
  P_KEY_BYTES,
  P_ATTRIBUTE_BYTES,
  P_HASH_SUM,
  P_VECTOR_BLOCKS,
  P_ATTRIBUTE_CHUNKS,
  P_JOB,
  P_CUT,
  P_BULK_SEQUENCE,
  P_LARGEST_KEY_BYTES,
  P_LARGEST_ATTRIBUTE_BYTES,
  P_MARK, /* the only one that may be missing */
  P_REQUIRED = (1 << P_MARK) - 2
};

/* ---- encoding ---- */

void codec_range_append(struct buffer *section, const struct range_fragment *fragment) {
  (void)buffer_append_sized(section, fragment->begin.data, fragment->begin.size);
  (void)buffer_append_sized(section, fragment->end.data, fragment->end.data != NULL ? fragment->end.size : 0);
  (void)buffer_append_varint(section, fragment->sequence_count);
  for (uint32_t i = 0; i < fragment->sequence_count; i++) {
    (void)buffer_append_varint(section, fragment->sequences[i]);
  }
}

void codec_extent_append(struct buffer *section, const struct extent *extent) {
  uint8_t record[EXTENT_BYTES] = {extent->kind};
  store_u32(record + 4, extent->pages);
  store_u64(record + 8, extent->first_page);
  store_u64(record + 16, extent->first_ordinal);
  store_u32(record + 24, extent->count);
  (void)buffer_append(section, record, sizeof record);
}

void codec_top_append(struct buffer *section, turb_bytes separator, uint64_t first_entry, uint64_t first_row) {
  (void)buffer_append_sized(section, separator.data, separator.size);
  (void)buffer_append_varint(section, first_entry);
  (void)buffer_append_varint(section, first_row);
}

static void append_bytes(struct buffer *section, enum property tag, turb_bytes bytes) {
  (void)buffer_append_varint(section, tag);
  (void)buffer_append_sized(section, bytes.data, bytes.size);
}

static void append_number(struct buffer *section, enum property tag, uint64_t value) {
  (void)buffer_append_varint(section, tag);
  (void)buffer_append_varint(section, varint_size(value));
  (void)buffer_append_varint(section, value);
}

void codec_properties_append(struct buffer *section, const struct table_properties *p) {
  append_number(section, P_ENTRIES, p->entries);
  append_number(section, P_PUTS, p->puts);
  append_number(section, P_DELETES, p->deletes);
  append_number(section, P_RANGE_FRAGMENTS, p->range_fragments);
  append_number(section, P_SMALLEST_SEQUENCE, p->smallest_sequence);
  append_number(section, P_LARGEST_SEQUENCE, p->largest_sequence);
  append_bytes(section, P_SMALLEST_KEY, p->smallest_key);
  append_bytes(section, P_LARGEST_KEY, p->largest_key);
  append_bytes(section, P_LOWER, p->lower);
  append_bytes(section, P_UPPER, p->upper);
  append_number(section, P_UPPER_KIND, p->upper_kind);
  append_number(section, P_KEY_BYTES, p->key_bytes);
  append_number(section, P_ATTRIBUTE_BYTES, p->attribute_bytes);
  append_number(section, P_HASH_SUM, p->hash_sum);
  append_number(section, P_VECTOR_BLOCKS, p->vector_blocks);
  append_number(section, P_ATTRIBUTE_CHUNKS, p->attribute_chunks);
  append_number(section, P_JOB, p->job);
  append_number(section, P_CUT, p->cut);
  append_number(section, P_BULK_SEQUENCE, p->bulk_sequence);
  append_number(section, P_LARGEST_KEY_BYTES, p->largest_key_bytes);
  append_number(section, P_LARGEST_ATTRIBUTE_BYTES, p->largest_attribute_bytes);
  if (p->mark_sequence != 0) {
    (void)buffer_append_varint(section, P_MARK);
    (void)buffer_append_varint(section, varint_size(p->mark_sequence) + varint_size(p->mark_seconds));
    (void)buffer_append_varint(section, p->mark_sequence);
    (void)buffer_append_varint(section, p->mark_seconds);
  }
}

void codec_tail_table_encode(const uint64_t sizes[CODEC_SECTIONS], uint8_t *table) {
  store_u32(table, CODEC_SECTIONS);
  uint64_t offset = CODEC_TAIL_TABLE_BYTES;
  for (uint32_t i = 0; i < CODEC_SECTIONS; i++) {
    uint8_t *entry = table + 4 + (size_t)i * SECTION_ENTRY_BYTES;
    store_u32(entry, i + 1);
    store_u32(entry + 4, 0);
    store_u64(entry + 8, offset);
    store_u64(entry + 16, sizes[i]);
    offset += sizes[i];
  }
}

/* ---- decoding ---- */

struct decode {
  const uint8_t *tail;
  size_t size;
  const struct codec_place *place;
  const struct table_shape *shape;
  struct arena *arena;
  struct table_tail *out;
  turb_error *err;
  struct reader sections[CODEC_SECTIONS + 1]; /* by tag */
};

__attribute__((format(printf, 3, 4))) static turb_status bad(const struct decode *d, const uint8_t *at, const char *format, ...) {
  char detail[160];
  va_list arguments;
  va_start(arguments, format);
  (void)vsnprintf(detail, sizeof detail, format, arguments);
  va_end(arguments);
  return status_set_file(d->err, TURB_CORRUPTION, d->place->file, d->place->offset + (uint64_t)(at - d->tail), "table tail: %s", detail);
}

static void *take_array(struct decode *d, uint64_t count, size_t size, size_t alignment, turb_status *status) {
  void *array = arena_alloc(d->arena, (size_t)count * size, alignment);
  if (array == NULL) {
    *status = status_set_file(d->err, d->arena->failure, d->place->file, d->place->offset, "no memory for the tail of a table");
  }
  return array;
}

static turb_status decode_section_table(struct decode *d) {
  struct reader reader;
  reader_init(&reader, d->tail, d->size);
  const uint32_t count = reader_u32(&reader);
  if (reader.failed || count > MAX_SECTIONS || count * (uint64_t)SECTION_ENTRY_BYTES > reader_left(&reader)) {
    return bad(d, d->tail, "%" PRIu32 " sections", count);
  }
  for (uint32_t i = 0; i < count; i++) {
    const uint8_t *at = reader.at;
    const uint32_t tag = reader_u32(&reader);
    const uint32_t reserved = reader_u32(&reader);
    const uint64_t offset = reader_u64(&reader);
    const uint64_t size = reader_u64(&reader);
    if (reserved != 0 || offset > d->size || size > d->size - offset) {
      return bad(d, at, "section %" PRIu32 " of %" PRIu64 " bytes at %" PRIu64, tag, size, offset);
    }
    if (tag == 0 || tag > CODEC_SECTIONS) {
      if (tag < UINT32_C(0x80000000)) {
        return status_set_file(d->err, TURB_NEWER_FORMAT, d->place->file, d->place->offset + (uint64_t)(at - d->tail),
                               "table tail: section %" PRIu32 " of a newer version", tag);
      }
      continue;
    }
    if (d->sections[tag].at != NULL) {
      return bad(d, at, "section %" PRIu32 " twice", tag);
    }
    reader_init(&d->sections[tag], d->tail + offset, (size_t)size);
  }
  for (uint32_t tag = 1; tag <= CODEC_SECTIONS; tag++) {
    if (d->sections[tag].at == NULL) {
      return bad(d, d->tail, "section %" PRIu32 " is missing", tag);
    }
  }
  return TURB_OK;
}

/* ---- properties ---- */

static void set_property(struct table_properties *p, uint64_t tag, struct reader *field, uint64_t *upper_kind) {
  const turb_bytes bytes = {field->at, reader_left(field)};
  switch (tag) {
  case P_ENTRIES: p->entries = reader_varint(field); break;
  case P_PUTS: p->puts = reader_varint(field); break;
  case P_DELETES: p->deletes = reader_varint(field); break;
  case P_RANGE_FRAGMENTS: p->range_fragments = reader_varint(field); break;
  case P_SMALLEST_SEQUENCE: p->smallest_sequence = reader_varint(field); break;
  case P_LARGEST_SEQUENCE: p->largest_sequence = reader_varint(field); break;
  case P_SMALLEST_KEY: p->smallest_key = bytes; break;
  case P_LARGEST_KEY: p->largest_key = bytes; break;
  case P_LOWER: p->lower = bytes; break;
  case P_UPPER: p->upper = bytes; break;
  case P_UPPER_KIND: *upper_kind = reader_varint(field); break;
  case P_KEY_BYTES: p->key_bytes = reader_varint(field); break;
  case P_ATTRIBUTE_BYTES: p->attribute_bytes = reader_varint(field); break;
  case P_HASH_SUM: p->hash_sum = reader_varint(field); break;
  case P_VECTOR_BLOCKS: p->vector_blocks = reader_varint(field); break;
  case P_ATTRIBUTE_CHUNKS: p->attribute_chunks = reader_varint(field); break;
  case P_JOB: p->job = reader_varint(field); break;
  case P_CUT: p->cut = reader_varint(field); break;
  case P_BULK_SEQUENCE: p->bulk_sequence = reader_varint(field); break;
  case P_LARGEST_KEY_BYTES: p->largest_key_bytes = reader_varint(field); break;
  case P_LARGEST_ATTRIBUTE_BYTES: p->largest_attribute_bytes = reader_varint(field); break;
  case P_MARK:
    p->mark_sequence = reader_varint(field);
    p->mark_seconds = reader_varint(field);
    break;
  default: break;
  }
}

static int compare(turb_bytes a, turb_bytes b) {
  return key_compare(a.data, a.size, b.data, b.size);
}

/* Keys against bounds; numbers against each other. */
static turb_status check_properties(const struct decode *d, const uint8_t *at, uint64_t upper_kind) {
  struct table_properties *p = &d->out->properties;
  if (p->entries >> MAX_TABLE_ENTRIES_BITS != 0 || p->puts > p->entries || p->deletes != p->entries - p->puts) {
    return bad(d, at, "%" PRIu64 " entries, %" PRIu64 " puts, %" PRIu64 " deletes", p->entries, p->puts, p->deletes);
  }
  if (p->smallest_sequence > p->largest_sequence || p->largest_sequence > SLOT_SEQUENCE_MAX || p->bulk_sequence > SLOT_SEQUENCE_MAX) {
    return bad(d, at, "sequences out of bounds");
  }
  if (upper_kind > TABLE_UPPER_OPEN) {
    return bad(d, at, "upper bound of kind %" PRIu64, upper_kind);
  }
  p->upper_kind = (enum table_upper_kind)upper_kind;
  const size_t sizes[] = {p->smallest_key.size, p->largest_key.size, p->lower.size, p->upper.size};
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
    if (sizes[i] > CODEC_KEY_MAX_BYTES) {
      return bad(d, at, "a key of %zu bytes", sizes[i]);
    }
  }
  if ((p->entries == 0) != (p->smallest_key.size == 0) || (p->entries == 0) != (p->largest_key.size == 0)) {
    return bad(d, at, "smallest and largest key do not match the number of entries");
  }
  if (upper_kind != TABLE_UPPER_OPEN && compare(p->lower, p->upper) >= (upper_kind == TABLE_UPPER_INCLUSIVE ? 1 : 0)) {
    return bad(d, at, "declared bounds out of order");
  }
  if (p->entries == 0) {
    return TURB_OK;
  }
  const int above = upper_kind == TABLE_UPPER_OPEN ? -1 : compare(p->largest_key, p->upper);
  if (compare(p->smallest_key, p->largest_key) > 0 || compare(p->smallest_key, p->lower) < 0 ||
      above >= (upper_kind == TABLE_UPPER_EXCLUSIVE ? 0 : 1)) {
    return bad(d, at, "keys outside the declared bounds");
  }
  return TURB_OK;
}

static turb_status decode_properties(struct decode *d) {
  struct reader *reader = &d->sections[CODEC_SECTION_PROPERTIES];
  const uint8_t *begin = reader->at;
  uint64_t seen = 0;
  uint64_t upper_kind = 0;
  while (reader_left(reader) != 0) {
    const uint8_t *at = reader->at;
    const uint64_t tag = reader_varint(reader);
    size_t size = 0;
    const uint8_t *bytes = reader_sized(reader, &size);
    if (reader->failed) {
      return bad(d, at, "a property is cut short");
    }
    if (tag >= 1001 && tag % 2 == 1) {
      return status_set_file(d->err, TURB_NEWER_FORMAT, d->place->file, d->place->offset + (uint64_t)(at - d->tail),
                             "table tail: property %" PRIu64 " of a newer version", tag);
    }
    if (tag == 0 || tag > P_MARK) {
      continue;
    }
    struct reader field;
    reader_init(&field, bytes, size);
    set_property(&d->out->properties, tag, &field, &upper_kind);
    if (field.failed || (seen >> tag & 1) != 0) {
      return bad(d, at, "property %" PRIu64 " is cut short or there twice", tag);
    }
    seen |= UINT64_C(1) << tag;
  }
  if ((seen & P_REQUIRED) != P_REQUIRED) {
    return bad(d, begin, "a property is missing");
  }
  return check_properties(d, begin, upper_kind);
}

/* ---- extents ---- */

struct extent_walk {
  uint64_t next_page;
  uint64_t next_ordinal[EXTENT_CHECKSUMS + 1];
  uint64_t blocks, chunks;                 /* in all */
  uint64_t pending_blocks, pending_chunks; /* since the last checksum extent */
};

static uint64_t records_pages(uint64_t records) {
  return (records + TABLE_CHECKSUMS_PER_PAGE - 1) / TABLE_CHECKSUMS_PER_PAGE;
}

/* Whether an extent's pages are those that its count needs; counts blocks and chunks. */
static bool extent_pages_fit(const struct decode *d, struct extent_walk *walk, const struct extent *extent) {
  const struct table_properties *p = &d->out->properties;
  switch (extent->kind) {
  case EXTENT_ROWS: {
    const uint64_t blocks = codec_blocks_of_rows(d->shape, extent->count);
    const uint64_t pages = blocks * (d->shape->block_bytes / CODEC_PAGE_BYTES);
    walk->blocks += blocks;
    walk->pending_blocks += blocks;
    return d->shape->compression != 0 ? extent->pages <= pages : extent->pages == pages;
  }
  case EXTENT_KEYS: return extent->pages == extent->count;
  case EXTENT_INDEX: return extent->pages == extent->count || extent->pages == 2 * (uint64_t)extent->count;
  case EXTENT_ATTRIBUTES: {
    const uint64_t chunks = (extent->count + (uint64_t)TABLE_ATTRIBUTE_CHUNK_BYTES - 1) / TABLE_ATTRIBUTE_CHUNK_BYTES;
    walk->chunks += chunks;
    walk->pending_chunks += chunks;
    return extent->pages == codec_pages_of_bytes(extent->count);
  }
  case EXTENT_FILTER: {
    const uint64_t sections = (p->entries + TABLE_FILTER_SECTION_ENTRIES - 1) / TABLE_FILTER_SECTION_ENTRIES;
    const uint64_t last = extent->first_ordinal + extent->count;
    if (last > sections) {
      return false;
    }
    const uint32_t full = codec_filter_pages(TABLE_FILTER_SECTION_ENTRIES);
    const uint64_t rest = p->entries - (sections - 1) * TABLE_FILTER_SECTION_ENTRIES;
    return extent->pages ==
           (last == sections ? (extent->count - 1) * (uint64_t)full + codec_filter_pages((uint32_t)rest) : extent->count * (uint64_t)full);
  }
  case EXTENT_CHECKSUMS: {
    const uint64_t pages = records_pages(walk->pending_blocks) + records_pages(walk->pending_chunks);
    walk->pending_blocks = walk->pending_chunks = 0;
    return extent->pages == extent->count && extent->count == pages;
  }
  default: return false;
  }
}

static turb_status check_extent_totals(const struct decode *d, const struct extent_walk *walk, const uint8_t *at) {
  const struct table_properties *p = &d->out->properties;
  const uint64_t sections = (p->entries + TABLE_FILTER_SECTION_ENTRIES - 1) / TABLE_FILTER_SECTION_ENTRIES;
  if (walk->next_ordinal[EXTENT_ROWS] != p->puts || walk->next_ordinal[EXTENT_ATTRIBUTES] != p->attribute_bytes ||
      walk->next_ordinal[EXTENT_FILTER] != sections) {
    return bad(d, at, "extents do not hold the table's rows, attributes or filter sections");
  }
  if (walk->blocks != p->vector_blocks || walk->chunks != p->attribute_chunks || walk->pending_blocks != 0 || walk->pending_chunks != 0) {
    return bad(d, at, "extents do not match the number of blocks, chunks or their checksums");
  }
  if ((walk->next_ordinal[EXTENT_KEYS] == 0) != (p->entries == 0) || (walk->next_ordinal[EXTENT_INDEX] == 0) != (p->entries == 0)) {
    return bad(d, at, "entries without key or index pages");
  }
  return TURB_OK;
}

static turb_status decode_extents(struct decode *d, uint64_t *index_pages) {
  struct reader *reader = &d->sections[CODEC_SECTION_EXTENTS];
  const uint8_t *begin = reader->at;
  const size_t count = reader_left(reader) / EXTENT_BYTES;
  if (reader_left(reader) % EXTENT_BYTES != 0 || count > UINT32_MAX) {
    return bad(d, begin, "extents are cut short");
  }
  turb_status status = TURB_OK;
  struct extent *extents = take_array(d, count, sizeof *extents, _Alignof(struct extent), &status);
  if (extents == NULL) {
    return status;
  }
  struct extent_walk walk = {.next_page = 1};
  const uint64_t end_page = d->place->offset / CODEC_PAGE_BYTES;
  for (size_t i = 0; i < count; i++) {
    const uint8_t *record = reader_bytes(reader, EXTENT_BYTES);
    const struct extent extent = {.kind = record[0],
                                  .pages = load_u32(record + 4),
                                  .first_page = load_u64(record + 8),
                                  .first_ordinal = load_u64(record + 16),
                                  .count = load_u32(record + 24)};
    if (extent.kind < EXTENT_ROWS || extent.kind > EXTENT_CHECKSUMS || record[1] != 0 || record[2] != 0 || record[3] != 0 ||
        load_u32(record + 28) != 0) {
      return bad(d, record, "extent %zu: kind %u or reserved bytes", i, extent.kind);
    }
    if (extent.pages == 0 || extent.count == 0 || extent.first_page < walk.next_page || extent.first_page > end_page ||
        extent.pages > end_page - extent.first_page) {
      return bad(d, record, "extent %zu: %" PRIu32 " pages from page %" PRIu64 " on", i, extent.pages, extent.first_page);
    }
    if (extent.first_ordinal != walk.next_ordinal[extent.kind] || !extent_pages_fit(d, &walk, &extent)) {
      return bad(d, record, "extent %zu: count %" PRIu32 " from %" PRIu64 " on", i, extent.count, extent.first_ordinal);
    }
    walk.next_page = extent.first_page + extent.pages;
    walk.next_ordinal[extent.kind] += extent.count;
    extents[i] = extent;
  }
  d->out->extents = extents;
  d->out->extent_count = (uint32_t)count;
  *index_pages = walk.next_ordinal[EXTENT_INDEX];
  return check_extent_totals(d, &walk, begin);
}

/* ---- range deletes ---- */

static turb_status decode_fragment(struct decode *d, struct reader *reader, struct range_fragment *fragment) {
  const uint8_t *at = reader->at;
  const struct table_properties *p = &d->out->properties;
  fragment->begin.data = reader_sized(reader, &fragment->begin.size);
  fragment->end.data = reader_sized(reader, &fragment->end.size);
  const uint64_t count = reader_varint(reader);
  if (reader->failed || count == 0 || count > reader_left(reader) || fragment->begin.size > CODEC_KEY_MAX_BYTES ||
      fragment->end.size > CODEC_KEY_MAX_BYTES) {
    return bad(d, at, "a range delete is cut short or out of bounds");
  }
  turb_status status = TURB_OK;
  uint64_t *sequences = take_array(d, count, sizeof *sequences, _Alignof(uint64_t), &status);
  if (sequences == NULL) {
    return status;
  }
  for (uint64_t i = 0; i < count; i++) {
    sequences[i] = reader_varint(reader);
    if (reader->failed || sequences[i] < p->smallest_sequence || sequences[i] > p->largest_sequence ||
        (i != 0 && sequences[i] >= sequences[i - 1])) {
      return bad(d, at, "sequences of a range delete");
    }
  }
  fragment->sequences = sequences;
  fragment->sequence_count = (uint32_t)count;
  if (fragment->end.size == 0) {
    fragment->end = (turb_bytes){NULL, 0};
    if (p->upper_kind != TABLE_UPPER_OPEN) {
      return bad(d, at, "an open range delete in a table with an upper bound");
    }
  } else if (compare(fragment->begin, fragment->end) >= 0) {
    return bad(d, at, "a range delete ends before it begins");
  }
  if (compare(fragment->begin, p->lower) < 0 || (p->upper_kind != TABLE_UPPER_OPEN && compare(fragment->end, p->upper) > 0)) {
    return bad(d, at, "a range delete outside the declared bounds");
  }
  return TURB_OK;
}

static turb_status decode_ranges(struct decode *d) {
  struct reader *reader = &d->sections[CODEC_SECTION_RANGES];
  const uint8_t *begin = reader->at;
  const uint32_t count = reader_u32(reader);
  if (reader->failed || count > reader_left(reader) / FRAGMENT_MIN_BYTES || count != d->out->properties.range_fragments) {
    return bad(d, begin, "%" PRIu32 " range deletes", count);
  }
  turb_status status = TURB_OK;
  struct range_fragment *fragments = take_array(d, count, sizeof *fragments, _Alignof(struct range_fragment), &status);
  if (fragments == NULL) {
    return status;
  }
  for (uint32_t i = 0; i < count; i++) {
    const uint8_t *at = reader->at;
    fragments[i] = (struct range_fragment){.sequence_count = 0};
    status = decode_fragment(d, reader, &fragments[i]);
    if (status != TURB_OK) {
      return status;
    }
    if (i != 0 && (fragments[i - 1].end.data == NULL || compare(fragments[i - 1].end, fragments[i].begin) > 0)) {
      return bad(d, at, "range deletes out of order");
    }
  }
  if (reader_left(reader) != 0) {
    return bad(d, reader->at, "bytes behind the range deletes");
  }
  d->out->deletes = (struct range_deletes){fragments, count};
  return TURB_OK;
}

/* ---- top index ---- */

static turb_status decode_top(struct decode *d, uint64_t count) {
  struct reader *reader = &d->sections[CODEC_SECTION_TOP];
  const struct table_properties *p = &d->out->properties;
  if (count > reader_left(reader) / TOP_MIN_BYTES || count > UINT32_MAX) {
    return bad(d, reader->at, "the top index is too short for %" PRIu64 " index pages", count);
  }
  turb_status status = TURB_OK;
  struct top_entry *top = take_array(d, count, sizeof *top, _Alignof(struct top_entry), &status);
  if (top == NULL) {
    return status;
  }
  for (uint64_t i = 0; i < count; i++) {
    const uint8_t *at = reader->at;
    struct top_entry entry = {{NULL, 0}, 0, 0};
    entry.separator.data = reader_sized(reader, &entry.separator.size);
    entry.first_entry = reader_varint(reader);
    entry.first_row = reader_varint(reader);
    if (reader->failed || entry.separator.size == 0 || entry.separator.size > CODEC_KEY_MAX_BYTES) {
      return bad(d, at, "entry %" PRIu64 " of the top index is cut short", i);
    }
    const bool begins = i == 0 && entry.first_entry == 0 && entry.first_row == 0;
    const bool follows = i != 0 && compare(top[i - 1].separator, entry.separator) <= 0 && entry.first_entry > top[i - 1].first_entry &&
                         entry.first_row >= top[i - 1].first_row;
    if (!(begins || follows) || entry.first_entry >= p->entries || entry.first_row > p->puts) {
      return bad(d, at, "entry %" PRIu64 " of the top index is out of order", i);
    }
    top[i] = entry;
  }
  if (reader_left(reader) != 0 || (count != 0 && compare(top[count - 1].separator, p->largest_key) != 0)) {
    return bad(d, reader->at, "the top index does not end with the largest key");
  }
  d->out->top = top;
  d->out->top_count = (uint32_t)count;
  return TURB_OK;
}

turb_status codec_tail_decode(const uint8_t *tail, size_t size, const struct codec_place *place, uint64_t checksum,
                              const struct table_shape *shape, struct arena *arena, struct table_tail *out, turb_error *err) {
  memset(out, 0, sizeof *out);
  struct decode d = {.tail = tail, .size = size, .place = place, .shape = shape, .arena = arena, .out = out, .err = err};
  if (codec_part_checksum(tail, size, place->seed, place->offset) != checksum) {
    return bad(&d, tail, "does not match its checksum");
  }
  turb_status status = decode_section_table(&d);
  if (status != TURB_OK) {
    return status;
  }
  status = decode_properties(&d);
  if (status != TURB_OK) {
    return status;
  }
  uint64_t index_pages = 0;
  status = decode_extents(&d, &index_pages);
  if (status != TURB_OK) {
    return status;
  }
  status = decode_ranges(&d);
  if (status != TURB_OK) {
    return status;
  }
  return decode_top(&d, index_pages);
}
