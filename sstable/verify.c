/* table_verify (table.h): every byte of a table against every checksum and invariant of docs/format.md 3.
 *
 * Units are read one behind the other by loads that look past the cache, a few ahead (unit_stream). The walk follows the index: index pages, the key
 * pages that they name, and beside them the rows, attributes and filter sections of their entries, each stream in its own order. Then what is left of
 * each stream, the checksum pages, header, tail and the totals.
 *
 * Problems of the file (CORRUPTION, I/O) are reported and the walk goes on behind them; what depended on a unit that cannot be read is left out, and
 * sums that would be wrong because of it are not compared. Problems of ours (memory, budget) end the call.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "sstable/filter.h"
#include "sstable/table_parts.h"

#define STREAM_DEPTH_MAX 16u
#define STREAM_BYTES     (1u << 20) /* about what a stream holds in flight */

struct verify;

/* The units of one kind, in order. */
struct unit_stream {
  struct verify *verify;
  enum unit_kind kind;
  uint32_t count, depth;
  uint32_t started; /* loads were started for units below */
  uint32_t taken;   /* units below were looked at */
  struct load *loads[STREAM_DEPTH_MAX];
  const uint8_t *data; /* of unit taken - 1; NULL when it is damaged, or no unit but the second half of a key page */
  bool half_next;      /* key pages: the next unit is such a half */
  bool maybe_half;     /* key pages: or may be, since the one before it is damaged */
};

struct verify {
  struct table *table;
  struct reads reads;
  void (*problem)(void *context, const turb_error *problem);
  void *context;
  turb_error *err;
  turb_status status; /* of ours */
  uint64_t bytes;
  bool incomplete; /* entries were left out: totals are not compared */
  struct unit_stream streams[UNIT_KINDS];
  uint8_t used[2 * TABLE_PAGE_BYTES]; /* bytes of a page that belong to something */
  /* what the walk has counted */
  struct table_properties seen;
  uint64_t hash_sum;
  uint8_t last_key[CODEC_KEY_MAX_BYTES]; /* of the entry before */
  size_t last_key_size;
  uint64_t last_sequence;
  uint32_t next_key_unit;
};

/* ---- reporting ----------------------------------------------------------------------------------------- */

__attribute__((format(printf, 3, 4))) static void report(struct verify *v, uint64_t offset, const char *format, ...) {
  char text[400];
  va_list arguments;
  va_start(arguments, format);
  (void)vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  turb_error error = TURB_ERROR_INIT;
  status_set_file(&error, TURB_CORRUPTION, v->table->path, offset, "%s", text);
  v->problem(v->context, &error);
}

/* A failed read: the file's problem, or ours. */
static void report_error(struct verify *v, const turb_error *error) {
  if (error->status == TURB_CORRUPTION || error->status == TURB_IO || error->status == TURB_NEWER_FORMAT ||
      error->status == TURB_NOT_A_DATABASE) {
    v->problem(v->context, error);
  } else if (v->status == TURB_OK) {
    v->status = status_copy(v->err, error);
  }
}

static bool all_zero(const uint8_t *bytes, size_t size) {
  return size == 0 || (bytes[0] == 0 && memcmp(bytes, bytes + 1, size - 1) == 0);
}

static void check_zero(struct verify *v, const uint8_t *bytes, size_t size, uint64_t offset, const char *what) {
  if (!all_zero(bytes, size)) {
    size_t at = 0;
    while (bytes[at] == 0) {
      at++;
    }
    report(v, offset + at, "%s is not zero", what);
  }
}

/* ---- streams ------------------------------------------------------------------------------------------- */

static turb_status stream_open(struct verify *v, enum unit_kind kind) {
  struct unit_stream *s = &v->streams[kind];
  const struct table_shape *shape = &v->table->header.shape;
  *s = (struct unit_stream){.verify = v, .kind = kind, .count = table_unit_count(v->table, kind)};
  const uint32_t unit = kind == UNIT_ROWS         ? shape->block_bytes * shape->blocks_per_frame
                        : kind == UNIT_ATTRIBUTES ? TABLE_ATTRIBUTE_CHUNK_BYTES
                                                  : 4096u;
  s->depth = STREAM_BYTES / unit < 2 ? 2 : STREAM_BYTES / unit > STREAM_DEPTH_MAX ? STREAM_DEPTH_MAX : STREAM_BYTES / unit;
  for (uint32_t i = 0; i < s->depth; i++) {
    const turb_status status = load_create(&v->reads, v->table->env->allocator, &s->loads[i], v->err);
    if (status != TURB_OK) {
      return status;
    }
  }
  return TURB_OK;
}

static void check_arrived(struct unit_stream *s, uint32_t unit);

/* Reads ahead as far as loads reach. */
static void stream_fill(struct unit_stream *s) {
  for (; s->started < s->count && s->started < s->taken + s->depth; s->started++) {
    (void)load_unit(s->loads[s->started % s->depth], s->verify->table, s->kind, s->started, LOAD_ABSENT);
  }
}

/* Looks at the next unit: s->data, or NULL after a report. */
static void stream_take(struct unit_stream *s) {
  struct verify *v = s->verify;
  if (s->taken != 0) {
    load_reset(s->loads[(s->taken - 1) % s->depth]);
  }
  s->data = NULL;
  stream_fill(s);
  struct load *load = s->loads[s->taken % s->depth];
  while (v->status == TURB_OK && load_state(load) == LOAD_WAITING) {
    v->status = reads_wait(&v->reads, v->err);
  }
  s->taken++;
  if (v->status != TURB_OK) {
    return;
  }
  if (s->half_next) {
    s->half_next = false;
    return;
  }
  if (load_state(load) == LOAD_READY) {
    s->data = load_data(load, NULL);
    check_arrived(s, s->taken - 1);
  } else if (!s->maybe_half) {
    turb_error error = TURB_ERROR_INIT;
    (void)load_error(load, &error);
    report_error(v, &error);
  }
  s->maybe_half = s->kind == UNIT_KEYS && s->data == NULL;
  s->half_next = s->kind == UNIT_KEYS && s->data != NULL && ((const struct slot_page *)(const void *)s->data)->units == 2;
}

/* The unit with this ordinal; those before it are looked at on the way. NULL when it is damaged, or long past because numbers before it were wrong. */
static const uint8_t *stream_unit(struct unit_stream *s, uint32_t ordinal) {
  assert(ordinal < s->count);
  if (ordinal + 1 < s->taken) {
    return NULL;
  }
  while (s->verify->status == TURB_OK && s->taken <= ordinal) {
    stream_take(s);
  }
  return s->verify->status == TURB_OK ? s->data : NULL;
}

static void stream_close(struct unit_stream *s) {
  for (uint32_t i = 0; i < STREAM_DEPTH_MAX; i++) {
    load_destroy(s->loads[i]);
  }
}

/* ---- units by themselves ------------------------------------------------------------------------------- */

/* Padding of rows, of blocks and of the rows that a short extent does not have. */
static void check_rows(struct verify *v, uint32_t frame, const uint8_t *data) {
  const struct table_shape *shape = &v->table->header.shape;
  const struct span *span = table_span_of_unit(v->table, EXTENT_ROWS, frame);
  uint64_t first, offset;
  uint32_t count;
  const uint32_t size = table_unit_bytes(v->table, UNIT_ROWS, frame, &offset);
  table_frame_rows(v->table, frame, &first, &count);
  offset = offset != 0 ? offset : span->offset;
  uint32_t row = 0;
  for (uint32_t block = 0; block < size; block += shape->block_bytes) {
    uint32_t at = 0;
    for (uint32_t i = 0; i < shape->rows_per_block && row < count; i++, row++) {
      check_zero(v, data + block + at + shape->row_bytes, shape->stride - shape->row_bytes, offset + block + at + shape->row_bytes,
                 "padding of a row");
      at += shape->stride;
    }
    check_zero(v, data + block + at, shape->block_bytes - at, offset + block + at, "the rest of a vector block");
  }
}

static void check_filter(struct verify *v, uint32_t section, const uint8_t *data) {
  uint64_t offset;
  const uint32_t size = table_unit_bytes(v->table, UNIT_FILTER, section, &offset);
  const struct filter_section *header = (const struct filter_section *)(const void *)data;
  const uint32_t used = CODEC_FILTER_HEADER_BYTES + header->blocks * CODEC_FILTER_BLOCK_BYTES;
  check_zero(v, data + used, size - used, offset + used, "the rest of a filter section");
}

/* Records say what the extents say, and behind them is nothing. What they describe is compared with them when it is read. */
static void check_checksum_page(struct verify *v, uint32_t unit, const uint8_t *data) {
  const struct checksum_page *page = (const struct checksum_page *)(const void *)data;
  uint64_t offset;
  (void)table_unit_bytes(v->table, UNIT_CHECKSUMS, unit, &offset);
  const size_t used = sizeof *page + page->count * sizeof(struct checksum_record);
  check_zero(v, data + used, TABLE_PAGE_BYTES - used, offset + used, "the rest of a checksum page");
}

static void mark(struct verify *v, size_t at, size_t size) {
  memset(v->used + at, 1, size);
}

/* Bytes of a page that belong to nothing are 0. */
static void check_unused(struct verify *v, const uint8_t *page, size_t size, uint64_t offset, const char *what) {
  for (size_t i = 0; i < size; i++) {
    if (page[i] != 0 && v->used[i] == 0) {
      report(v, offset + i, "%s is not zero", what);
      return;
    }
  }
}

static void check_index_page(struct verify *v, uint32_t unit, const uint8_t *data) {
  const struct slot_page *page = (const struct slot_page *)(const void *)data;
  uint64_t offset;
  const uint32_t size = table_unit_bytes(v->table, UNIT_INDEX, unit, &offset);
  memset(v->used, 0, sizeof v->used);
  mark(v, 0, sizeof *page + page->slot_count * sizeof(struct index_slot));
  for (size_t i = 0; i < page->slot_count; i++) {
    mark(v, index_slot_at(page, i)->separator_offset, index_slot_at(page, i)->separator_size);
  }
  check_unused(v, data, size, offset, "the room between slots and separators of an index page");
}

static void check_key_page(struct verify *v, const struct slot_page *page, uint64_t offset) {
  memset(v->used, 0, sizeof v->used);
  mark(v, 0, sizeof *page + page->slot_count * sizeof(struct slot));
  for (size_t i = 0; i < page->slot_count; i++) {
    mark(v, slot_at(page, i)->key_offset, slot_at(page, i)->key_size);
  }
  check_unused(v, (const uint8_t *)page, page->units * (size_t)TABLE_PAGE_BYTES, offset, "the room between slots and keys of a key page");
}

static void check_arrived(struct unit_stream *s, uint32_t unit) {
  struct verify *v = s->verify;
  uint64_t offset;
  const uint32_t size = table_unit_bytes(v->table, s->kind, unit, &offset);
  const uint32_t in_pages = (size + TABLE_PAGE_BYTES - 1) / TABLE_PAGE_BYTES * TABLE_PAGE_BYTES;
  v->bytes += s->kind == UNIT_ROWS && v->table->header.shape.compression != 0 ? 0 : in_pages;
  switch (s->kind) {
  case UNIT_ROWS: check_rows(v, unit, s->data); break;
  case UNIT_ATTRIBUTES: check_zero(v, s->data + size, in_pages - size, offset + size, "the rest of an attribute extent"); break;
  case UNIT_FILTER: check_filter(v, unit, s->data); break;
  case UNIT_CHECKSUMS: check_checksum_page(v, unit, s->data); break;
  case UNIT_INDEX: check_index_page(v, unit, s->data); break;
  case UNIT_KEYS: {
    const struct slot_page *page = (const struct slot_page *)(const void *)s->data;
    check_key_page(v, page, offset);
    v->bytes += (page->units - 1u) * (uint64_t)TABLE_PAGE_BYTES;
    break;
  }
  case UNIT_KINDS: break;
  }
}

/* ---- entries ------------------------------------------------------------------------------------------- */

static void check_row(struct verify *v, const struct slot *slot) {
  const uint64_t row = slot_row(slot);
  if (row != v->seen.puts) {
    report(v, STATUS_NO_OFFSET, "a slot names row %" PRIu64 " where row %" PRIu64 " is next", row, v->seen.puts);
    v->incomplete = true;
    return;
  }
  uint32_t frame, offset;
  table_locate_row(v->table, row, &frame, &offset);
  const uint8_t *data = stream_unit(&v->streams[UNIT_ROWS], frame);
  if (data != NULL && hash64(data + offset, v->table->header.shape.row_bytes, 0) != slot->row_hash) {
    uint64_t frame_offset;
    (void)table_unit_bytes(v->table, UNIT_ROWS, frame, &frame_offset);
    report(v, frame_offset + offset, "row %" PRIu64 " does not match the hash in its slot", row);
  }
}

static void check_attribute(struct verify *v, const struct slot *slot) {
  const uint64_t begin = slot_attribute_offset(slot);
  const uint64_t end = begin + slot_attribute_size(slot);
  const struct span *span = table_span_of(v->table, EXTENT_ATTRIBUTES, begin);
  if (begin < v->seen.attribute_bytes || end > span->first + span->count) {
    report(v, STATUS_NO_OFFSET, "attributes at %" PRIu64 " overlap others or cross extents", begin);
    return;
  }
  v->seen.attribute_bytes = end;
  struct hash_stream hash;
  hash_stream_init(&hash, 0);
  for (uint64_t at = begin; at < end;) {
    const uint32_t chunk = span->first_unit + (uint32_t)((at - span->first) / TABLE_ATTRIBUTE_CHUNK_BYTES);
    const uint64_t within = (at - span->first) % TABLE_ATTRIBUTE_CHUNK_BYTES;
    const uint64_t part = end - at < TABLE_ATTRIBUTE_CHUNK_BYTES - within ? end - at : TABLE_ATTRIBUTE_CHUNK_BYTES - within;
    const uint8_t *data = stream_unit(&v->streams[UNIT_ATTRIBUTES], chunk);
    if (data == NULL) {
      return; /* reported with its chunk */
    }
    hash_stream_update(&hash, data + within, part);
    at += part;
  }
  if ((uint32_t)hash_stream_digest(&hash) != slot->attribute_hash) {
    report(v, span->offset + (begin - span->first), "attributes of %" PRIu64 " bytes do not match the hash in their slot", end - begin);
  }
}

static void check_in_filter(struct verify *v, const struct slot *slot) {
  const uint32_t section = (uint32_t)(v->seen.entries / TABLE_FILTER_SECTION_ENTRIES);
  if (section + 1 < v->streams[UNIT_FILTER].taken || section >= v->streams[UNIT_FILTER].count) {
    return; /* entries were counted wrongly, which is reported */
  }
  const uint8_t *data = stream_unit(&v->streams[UNIT_FILTER], section);
  if (data != NULL && !filter_section_may_contain(data, hash64(slot_key(slot), slot->key_size, 0))) {
    uint64_t offset;
    (void)table_unit_bytes(v->table, UNIT_FILTER, section, &offset);
    report(v, offset, "filter section %" PRIu32 " does not have the key of entry %" PRIu64, section, v->seen.entries);
  }
}

/* Entry order across pages, and the sums. */
static void check_entry(struct verify *v, const struct slot *slot, uint64_t page_offset) {
  struct table_properties *seen = &v->seen;
  /* A bulk-loaded entry has none in the file: the record gave it to its page. */
  const bool given = slot->sequence_kind >> 8 == 0 && v->table->record.bulk_sequence != 0;
  const uint64_t sequence = given ? 0 : slot_sequence(slot);
  if (seen->entries != 0) {
    const int order = key_compare(v->last_key, v->last_key_size, slot_key(slot), slot->key_size);
    if (order > 0 || (order == 0 && v->last_sequence <= sequence)) {
      report(v, page_offset, "entries are out of order across key pages");
    }
  }
  memcpy(v->last_key, slot_key(slot), slot->key_size);
  v->last_key_size = slot->key_size;
  v->last_sequence = sequence;
  check_in_filter(v, slot);
  seen->smallest_sequence = sequence < seen->smallest_sequence ? sequence : seen->smallest_sequence;
  seen->largest_sequence = sequence > seen->largest_sequence ? sequence : seen->largest_sequence;
  seen->key_bytes += slot->key_size;
  seen->largest_key_bytes = slot->key_size > seen->largest_key_bytes ? slot->key_size : seen->largest_key_bytes;
  if (slot_attribute_size(slot) != 0) {
    const uint64_t size = slot_attribute_size(slot);
    seen->largest_attribute_bytes = size > seen->largest_attribute_bytes ? size : seen->largest_attribute_bytes;
    check_attribute(v, slot);
  }
  if (slot_kind(slot) == SLOT_PUT) {
    check_row(v, slot);
    seen->puts++;
  }
  seen->entries++;
}

/* A key page against the slot of the index page that names it. */
static void check_named_page(struct verify *v, const struct index_slot *index, turb_bytes separator, const struct slot_page *page) {
  const uint64_t offset = (uint64_t)index->page * TABLE_PAGE_BYTES;
  const struct slot *first = slot_at(page, 0), *last = slot_at(page, page->slot_count - 1u);
  if (page->units != index->units || page->slot_count != index->slots || page->base_row != index->base_row ||
      page->base_attribute != index->base_attribute || index->first_entry != v->seen.entries || index->base_row != v->seen.puts) {
    report(v, offset, "a key page is not as its index slot says");
    v->incomplete = true;
  }
  if (key_compare(slot_key(last), last->key_size, separator.data, separator.size) > 0) {
    report(v, offset, "the last key of a key page is above its separator");
  }
  const turb_bytes lower = v->table->record.lower, upper = v->table->record.upper;
  const int above = v->table->record.upper_open ? -1 : key_compare(slot_key(last), last->key_size, upper.data, upper.size);
  if (key_compare(slot_key(first), first->key_size, lower.data, lower.size) < 0 || above > 0 ||
      (above == 0 && !v->table->record.upper_inclusive)) {
    report(v, offset, "keys outside the declared bounds");
  }
  uint64_t sum = 0;
  const uint64_t puts = v->seen.puts;
  for (size_t i = 0; i < page->slot_count && v->status == TURB_OK; i++) {
    sum += slot_entry_hash(slot_at(page, i));
    check_entry(v, slot_at(page, i), offset);
  }
  v->hash_sum += sum;
  if (v->status == TURB_OK && sum != index->hash_sum) {
    report(v, offset, "the sum of a key page's entry hashes is not its index slot's");
  }
  if (v->status == TURB_OK && v->seen.puts - puts != index->puts) {
    report(v, offset, "a key page has %" PRIu64 " puts, its index slot says %" PRIu32, v->seen.puts - puts, index->puts);
  }
}

/* Goes on behind entries that cannot be read. */
static void skip_to(struct verify *v, uint64_t entries, uint64_t rows) {
  v->incomplete = true;
  v->seen.entries = entries;
  v->seen.puts = rows;
}

/* The key pages that an index page names. `separator_before`: of the key page before the first, empty at the table's begin. */
static void walk_index_page(struct verify *v, const struct slot_page *index_page, turb_bytes before) {
  struct unit_stream *keys = &v->streams[UNIT_KEYS];
  for (size_t i = 0; i < index_page->slot_count && v->status == TURB_OK; i++) {
    const struct index_slot *index = index_slot_at(index_page, i);
    const turb_bytes separator = codec_index_separator(index_page, i);
    const uint32_t ordinal = table_key_ordinal(v->table, index->page);
    if (ordinal != v->next_key_unit) {
      report(v, (uint64_t)index->page * TABLE_PAGE_BYTES, "an index slot does not name the key page that is next");
    }
    if (ordinal == UINT32_MAX || ordinal + 1 < keys->taken || (ordinal < keys->taken && ordinal != v->next_key_unit)) {
      skip_to(v, index->first_entry + index->slots, index->base_row + index->puts);
      continue;
    }
    const uint8_t *data = stream_unit(keys, ordinal);
    v->next_key_unit = ordinal + index->units;
    if (data == NULL) {
      skip_to(v, index->first_entry + index->slots, index->base_row + index->puts);
    } else {
      const struct slot_page *page = (const struct slot_page *)(const void *)data;
      const struct slot *first = slot_at(page, 0);
      if (before.size != 0 && key_compare(slot_key(first), first->key_size, before.data, before.size) < 0) {
        report(v, (uint64_t)index->page * TABLE_PAGE_BYTES, "the first key of a key page is below the separator before it");
      }
      check_named_page(v, index, separator, page);
    }
    before = separator;
  }
}

static void walk_entries(struct verify *v) {
  turb_bytes before = TURB_NONE;
  for (uint32_t i = 0; i < table_index_page_count(v->table) && v->status == TURB_OK; i++) {
    uint64_t entries, rows;
    const uint8_t *data = stream_unit(&v->streams[UNIT_INDEX], i);
    if (data != NULL) {
      walk_index_page(v, (const struct slot_page *)(const void *)data, before);
    } else if (v->status == TURB_OK) {
      table_index_page_base(v->table, i + 1, &entries, &rows);
      skip_to(v, entries, rows);
      v->next_key_unit = UINT32_MAX; /* found again by the next index page */
    }
    before = v->table->tail.top[i].separator;
  }
}

/* ---- the rest of the file ------------------------------------------------------------------------------ */

/* Units that no entry led to. */
static void walk_rest(struct verify *v) {
  for (int kind = 0; kind < UNIT_KINDS; kind++) {
    struct unit_stream *s = &v->streams[kind];
    while (v->status == TURB_OK && s->taken < s->count) {
      stream_take(s);
    }
  }
}

/* Reads [offset, offset + size) of the file; fewer bytes at its end. False after a report. */
static bool read_at(struct verify *v, void *data, uint64_t offset, uint64_t size, uint32_t *done) {
  turb_error error = TURB_ERROR_INIT;
  const turb_status status = table_read_range(v->table, data, offset, (uint32_t)size, done, &error);
  if (status != TURB_OK) {
    report_error(v, &error);
  }
  return status == TURB_OK;
}

/* Compressed blocks lie back to back in their extent, and behind them is nothing. */
static void check_packed(struct verify *v, const struct span *span, struct load *load, uint8_t *page) {
  uint64_t end = 0;
  uint32_t at = UINT32_MAX;
  for (uint64_t part = span->first_part; part < span->first_part + span->parts; part++) {
    uint32_t index;
    struct checksum_record record;
    const uint32_t ordinal = table_record_page(span, part, &index);
    if (ordinal != at) {
      enum load_state state = load_unit(load, v->table, UNIT_CHECKSUMS, ordinal, 0);
      while (state == LOAD_WAITING && v->status == TURB_OK) {
        v->status = reads_wait(&v->reads, v->err);
        state = load_state(load);
      }
      at = ordinal;
    }
    if (load_state(load) != LOAD_READY || table_record_of(v->table, span, part, load_data(load, NULL), &record, NULL) != TURB_OK) {
      return; /* reported with its page */
    }
    if (record.offset != end) {
      report(v, span->offset + end, "block %" PRIu64 " does not lie behind the one before", part);
    }
    end = record.offset + CODEC_STORED_BYTES(record.stored);
  }
  const uint64_t bytes = span->pages * (uint64_t)TABLE_PAGE_BYTES;
  uint32_t done;
  if (end >= bytes || bytes - end >= TABLE_PAGE_BYTES) {
    if (end != bytes) {
      report(v, span->offset + end, "an extent has more pages than its blocks need, or fewer");
    }
  } else if (read_at(v, page, span->offset + bytes - TABLE_PAGE_BYTES, TABLE_PAGE_BYTES, &done) && done == TABLE_PAGE_BYTES) {
    const size_t used = end % TABLE_PAGE_BYTES;
    check_zero(v, page + used, TABLE_PAGE_BYTES - used, span->offset + end, "the rest of an extent of blocks");
  }
}

static void walk_packed(struct verify *v) {
  const struct spans *spans = &v->table->spans[EXTENT_ROWS];
  const turb_allocator *allocator = v->table->env->allocator;
  if (v->table->header.shape.compression == 0 || spans->count == 0 || v->status != TURB_OK) {
    return;
  }
  struct load *load = NULL;
  uint8_t *page = mem_alloc_aligned(allocator, TABLE_PAGE_BYTES, TABLE_PAGE_BYTES);
  v->status =
      page != NULL ? load_create(&v->reads, allocator, &load, v->err) : status_set(v->err, TURB_NO_MEMORY, "no memory to verify a table");
  for (uint32_t i = 0; i < spans->count && v->status == TURB_OK; i++) {
    check_packed(v, &spans->at[i], load, page);
  }
  load_destroy(load);
  mem_free(allocator, page, TABLE_PAGE_BYTES);
}

static void check_extents(struct verify *v) {
  uint64_t next = 1;
  const struct table_tail *tail = &v->table->tail;
  for (uint32_t i = 0; i < tail->extent_count; i++) {
    const struct extent *extent = &tail->extents[i];
    if (extent->first_page != next) {
      report(v, next * TABLE_PAGE_BYTES, "%" PRIu64 " pages belong to no extent", extent->first_page - next);
    }
    next = extent->first_page + extent->pages;
    if (extent->kind == EXTENT_ROWS && v->table->header.shape.compression != 0) {
      v->bytes += extent->pages * (uint64_t)TABLE_PAGE_BYTES;
    }
  }
  if (next * TABLE_PAGE_BYTES != v->table->record.tail_offset) {
    report(v, next * TABLE_PAGE_BYTES, "pages before the tail belong to no extent");
  }
}

/* Header and tail as they are on the disk now. */
static void check_ends(struct verify *v) {
  struct table *table = v->table;
  const struct table_env *env = table->env;
  const uint64_t file_bytes = table->record.size_bytes - table->record.tail_offset;
  const uint64_t size = table->tail_size;
  if (!budget_take(env->budget, BUDGET_METADATA, size)) {
    v->status = status_set_file(v->err, TURB_BUDGET, table->path, STATUS_NO_OFFSET,
                                "the memory budget does not hold another tail to verify a table");
    return;
  }
  uint8_t *data = mem_alloc_aligned(env->allocator, size, TABLE_PAGE_BYTES);
  uint32_t done;
  if (data == NULL) {
    v->status = status_set(v->err, TURB_NO_MEMORY, "no memory to verify a table");
  } else if (read_at(v, data, 0, TABLE_PAGE_BYTES, &done)) {
    struct table_header header;
    turb_error error = TURB_ERROR_INIT;
    if (codec_header_decode(data, done, table->path, env->database_id, &header, &error) != TURB_OK) {
      report_error(v, &error);
    } else {
      v->bytes += TABLE_PAGE_BYTES;
    }
  }
  if (data != NULL && v->status == TURB_OK && read_at(v, data, table->record.tail_offset, table->tail_size, &done)) {
    if (done < file_bytes) {
      report(v, table->record.tail_offset + done, "the table is cut short");
    } else if (memcmp(data, table->tail_bytes, file_bytes) != 0) {
      report(v, table->record.tail_offset, "tail or footer is not what was read when the table was opened");
    } else {
      v->bytes += file_bytes;
    }
  }
  mem_free(env->allocator, data, size);
  budget_give(env->budget, BUDGET_METADATA, size);
  uint64_t file_size;
  if (v->status == TURB_OK && io_file_size(table->file, &file_size, NULL) == TURB_OK && file_size != table->record.size_bytes) {
    report(v, table->record.size_bytes, "the file has %" PRIu64 " bytes", file_size);
  }
}

static void compare(struct verify *v, const char *what, uint64_t seen, uint64_t stated) {
  if (seen != stated) {
    report(v, v->table->record.tail_offset, "%s: the properties say %" PRIu64 ", the entries %" PRIu64, what, stated, seen);
  }
}

static void check_totals(struct verify *v) {
  const struct table_properties *p = &v->table->tail.properties;
  struct table_properties *seen = &v->seen;
  const struct range_deletes *deletes = &v->table->tail.deletes;
  for (size_t i = 0; i < deletes->count; i++) {
    const struct range_fragment *fragment = &deletes->fragments[i];
    const uint64_t newest = fragment->sequences[0], oldest = fragment->sequences[fragment->sequence_count - 1];
    seen->smallest_sequence = oldest < seen->smallest_sequence ? oldest : seen->smallest_sequence;
    seen->largest_sequence = newest > seen->largest_sequence ? newest : seen->largest_sequence;
  }
  compare(v, "range-delete fragments", deletes->count, p->range_fragments);
  if (v->incomplete) {
    return;
  }
  if (seen->entries != 0 || deletes->count != 0) {
    compare(v, "smallest sequence", seen->smallest_sequence, p->smallest_sequence);
    compare(v, "largest sequence", seen->largest_sequence, p->largest_sequence);
  }
  compare(v, "entries", seen->entries, p->entries);
  compare(v, "puts", seen->puts, p->puts);
  compare(v, "key bytes", seen->key_bytes, p->key_bytes);
  compare(v, "attribute bytes", seen->attribute_bytes, p->attribute_bytes);
  compare(v, "longest key", seen->largest_key_bytes, p->largest_key_bytes);
  compare(v, "largest attributes", seen->largest_attribute_bytes, p->largest_attribute_bytes);
  compare(v, "sum of entry hashes", v->hash_sum, p->hash_sum);
  if (!key_equal(v->last_key, v->last_key_size, p->largest_key.data, p->largest_key.size)) {
    report(v, v->table->record.tail_offset, "the properties' largest key is not the last entry's");
  }
  if (v->next_key_unit != table_unit_count(v->table, UNIT_KEYS)) {
    report(v, v->table->record.tail_offset, "key pages behind the last one that the index names");
  }
}

turb_status table_verify(struct table *table, void (*problem)(void *context, const turb_error *problem), void *context, uint64_t *bytes,
                         uint64_t *entries, turb_error *err) {
  *bytes = *entries = 0;
  struct verify *v = mem_alloc_zeroed(table->env->allocator, sizeof *v);
  if (v == NULL) {
    return status_set(err, TURB_NO_MEMORY, "no memory to verify a table");
  }
  v->table = table;
  v->problem = problem;
  v->context = context;
  v->err = err;
  v->seen.smallest_sequence = UINT64_MAX;
  reads_init(&v->reads, table->env->system, NULL);
  for (int kind = 0; kind < UNIT_KINDS && v->status == TURB_OK; kind++) {
    v->status = stream_open(v, (enum unit_kind)kind);
  }
  if (v->status == TURB_OK) {
    check_ends(v);
  }
  if (v->status == TURB_OK) {
    check_extents(v);
    walk_entries(v);
    walk_rest(v);
    walk_packed(v);
  }
  if (v->status == TURB_OK) {
    check_totals(v);
  }
  for (int kind = 0; kind < UNIT_KINDS; kind++) {
    stream_close(&v->streams[kind]);
  }
  reads_close(&v->reads);
  *bytes = v->bytes;
  *entries = v->seen.entries;
  const turb_status status = v->status;
  mem_free(table->env->allocator, v, sizeof *v);
  return status;
}
