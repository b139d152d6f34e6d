/* Opening and closing tables, and where things lie in them (table.h, table_parts.h). The page index is in table_index.c, checks of units in table_check.c.
 *
 * Opening: with a record, header page and tail are read together; without one the header and the file's last page first, whose footer then says
 * where the tail is.
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/thread.h"
#include "sstable/table_parts.h"

/* ---- spans --------------------------------------------------------------------------------------------- */

static turb_status no_memory(const struct table *table, turb_error *err) {
  return status_set_file(err, table->arena.failure != TURB_OK ? table->arena.failure : TURB_NO_MEMORY, table->path, STATUS_NO_OFFSET,
                         "no memory to open the table");
}

/* Parts and cache units of an extent. */
static void span_measure(const struct table *table, enum extent_kind kind, struct span *span) {
  const struct table_shape *shape = &table->header.shape;
  switch (kind) {
  case EXTENT_ROWS:
    span->parts = codec_blocks_of_rows(shape, span->count);
    span->units = (uint32_t)((span->parts + shape->blocks_per_frame - 1) / shape->blocks_per_frame);
    break;
  case EXTENT_ATTRIBUTES:
    span->parts = (span->count + (uint64_t)TABLE_ATTRIBUTE_CHUNK_BYTES - 1) / TABLE_ATTRIBUTE_CHUNK_BYTES;
    span->units = (uint32_t)span->parts;
    break;
  default: span->units = span->count; break;
  }
}

/* A checksum extent: the records of the parts gathered since the last one. */
static void spans_name_records(struct spans *spans, uint32_t begin, uint32_t page) {
  for (uint32_t i = begin; i < spans->count; i++) {
    spans->at[i].record_base = spans->at[begin].first_part;
    spans->at[i].record_page = page;
  }
}

/* For span_search's guesses. */
static void spans_measure(struct spans *spans) {
  if (spans->count != 0) {
    const struct span *last = &spans->at[spans->count - 1];
    spans->per_ordinal = (double)spans->count / (double)spans->end;
    spans->per_unit = (double)spans->count / (double)spans->units;
    spans->per_byte = (double)spans->count / (double)(last->offset + last->pages * (uint64_t)TABLE_PAGE_BYTES - spans->at[0].offset);
  }
}

static turb_status make_spans(struct table *table, turb_error *err) {
  const struct table_tail *tail = &table->tail;
  uint32_t counts[EXTENT_KINDS] = {0};
  for (uint32_t i = 0; i < tail->extent_count; i++) {
    counts[tail->extents[i].kind]++;
  }
  for (int kind = EXTENT_ROWS; kind < EXTENT_KINDS; kind++) {
    table->spans[kind].at = arena_alloc_zeroed(&table->arena, counts[kind] * sizeof(struct span), _Alignof(struct span));
    if (table->spans[kind].at == NULL) {
      return no_memory(table, err);
    }
  }
  uint64_t parts[EXTENT_KINDS] = {0};
  uint32_t rows_begin = 0, attributes_begin = 0;
  for (uint32_t i = 0; i < tail->extent_count; i++) {
    const struct extent *extent = &tail->extents[i];
    struct spans *spans = &table->spans[extent->kind];
    struct span *span = &spans->at[spans->count];
    *span = (struct span){.first = extent->first_ordinal,
                          .count = extent->count,
                          .pages = extent->pages,
                          .offset = extent->first_page * TABLE_PAGE_BYTES,
                          .first_part = parts[extent->kind],
                          .first_unit = spans->units,
                          .record_page = UINT32_MAX};
    span_measure(table, (enum extent_kind)extent->kind, span);
    parts[extent->kind] += span->parts;
    if (spans->units + (uint64_t)span->units > UINT32_MAX / 8) {
      return status_set_file(err, TURB_CORRUPTION, table->path, span->offset, "more units than a table can have");
    }
    spans->units += span->units;
    spans->end = span->first + span->count;
    spans->count++;
    if (extent->kind == EXTENT_CHECKSUMS) {
      struct spans *rows = &table->spans[EXTENT_ROWS];
      struct spans *attributes = &table->spans[EXTENT_ATTRIBUTES];
      uint64_t blocks = 0;
      for (uint32_t r = rows_begin; r < rows->count; r++) {
        blocks += rows->at[r].parts;
      }
      const uint32_t row_pages = (uint32_t)((blocks + TABLE_CHECKSUMS_PER_PAGE - 1) / TABLE_CHECKSUMS_PER_PAGE);
      spans_name_records(rows, rows_begin, (uint32_t)span->first);
      spans_name_records(attributes, attributes_begin, (uint32_t)span->first + row_pages);
      rows_begin = rows->count;
      attributes_begin = attributes->count;
    }
  }
  for (int kind = EXTENT_ROWS; kind < EXTENT_KINDS; kind++) {
    spans_measure(&table->spans[kind]);
  }
  return TURB_OK;
}

/* What a span begins with, of the three ways to name a place. */
enum span_key { BY_ORDINAL, BY_UNIT, BY_BYTE };

static inline uint64_t span_begin(const struct span *span, enum span_key key) {
  return key == BY_ORDINAL ? span->first : key == BY_UNIT ? span->first_unit : span->offset;
}

/* The last span that begins at or before the place, given a guess; the first one begins at or before it. */
static inline const struct span *span_search(const struct spans *spans, uint64_t place, enum span_key key, double guessed) {
  uint32_t low = 0, high = spans->count; /* begin(low) <= place < begin(high) */
  const uint32_t guess = guessed < (double)spans->count - 1 ? (uint32_t)guessed : spans->count - 1;
  if (span_begin(&spans->at[guess], key) <= place) {
    if (guess + 1 == spans->count || place < span_begin(&spans->at[guess + 1], key)) {
      return &spans->at[guess];
    }
    low = guess + 1;
  } else {
    high = guess;
  }
  while (high - low > 1) {
    const uint32_t middle = low + (high - low) / 2;
    if (span_begin(&spans->at[middle], key) <= place) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return &spans->at[low];
}

const struct span *table_span_of(const struct table *table, enum extent_kind kind, uint64_t ordinal) {
  const struct spans *spans = &table->spans[kind];
  assert(ordinal < spans->end);
  return span_search(spans, ordinal, BY_ORDINAL, (double)ordinal * spans->per_ordinal);
}

const struct span *table_span_of_unit(const struct table *table, enum extent_kind kind, uint32_t unit) {
  const struct spans *spans = &table->spans[kind];
  assert(unit < spans->units);
  return span_search(spans, unit, BY_UNIT, (double)unit * spans->per_unit);
}

/* ---- opening: reading ---------------------------------------------------------------------------------- */

struct part_read {
  struct io_op op;
  bool done;
};

static void part_done(struct io_op *op) {
  struct part_read *read = op->owner;
  read->done = true;
}

/* Reads `count` parts in one submission and waits for them. */
static turb_status read_parts(const struct table *table, struct part_read *reads, size_t count, turb_error *err) {
  struct io_ring *ring;
  turb_status status = io_ring_lease(table->env->system, &ring, err);
  if (status != TURB_OK) {
    return status;
  }
  size_t queued = 0;
  for (size_t i = 0; i < count; i++) {
    reads[i].op.kind = IO_READ;
    reads[i].op.file = table->file;
    reads[i].op.complete = part_done;
    reads[i].op.owner = &reads[i];
  }
  for (;;) {
    while (queued < count && status == TURB_OK && io_ring_queue(ring, &reads[queued].op)) {
      queued++;
    }
    size_t done = 0;
    for (size_t i = 0; i < queued; i++) {
      done += reads[i].done;
    }
    if (done == queued && (queued == count || status != TURB_OK)) {
      break;
    }
    const turb_status waited = io_ring_wait(ring, 1, IO_NO_TIMEOUT, status == TURB_OK ? err : NULL);
    if (waited != TURB_OK) { /* the operations are on the caller's stack: take them back before giving up */
      status = status == TURB_OK ? waited : status;
      for (size_t i = 0; i < queued; i++) {
        io_ring_cancel(ring, &reads[i].op);
      }
      (void)io_ring_poll(ring);
    }
  }
  io_ring_return(ring);
  for (size_t i = 0; i < count && status == TURB_OK; i++) {
    status = io_op_status(&reads[i].op, err);
  }
  return status;
}

turb_status table_read_range(const struct table *table, void *data, uint64_t offset, uint32_t size, uint32_t *done, turb_error *err) {
  struct part_read read = {.op = {.data = data, .size = size, .offset = offset}};
  const turb_status status = read_parts(table, &read, 1, err);
  *done = read.op.done;
  return status;
}

static uint64_t page_floor(uint64_t bytes) {
  return bytes / TABLE_PAGE_BYTES * TABLE_PAGE_BYTES;
}

static uint64_t page_ceil(uint64_t bytes) {
  return page_floor(bytes + TABLE_PAGE_BYTES - 1);
}

static turb_status truncated(const struct table *table, uint64_t offset, uint64_t wanted, turb_error *err) {
  return status_set_file(err, TURB_CORRUPTION, table->path, offset, "the table is cut short: it should have %" PRIu64 " bytes", wanted);
}

/* Memory for the tail, with the pages that its footer's last part needs: BUDGET_METADATA. */
static turb_status tail_take(struct table *table, uint64_t size, turb_error *err) {
  if (!budget_take(table->env->budget, BUDGET_METADATA, size)) {
    return status_set_file(err, TURB_BUDGET, table->path, STATUS_NO_OFFSET,
                           "the memory budget does not hold the table's tail of %" PRIu64 " bytes", size);
  }
  table->tail_bytes = mem_alloc_aligned(table->env->allocator, size, TABLE_PAGE_BYTES);
  if (table->tail_bytes == NULL) {
    budget_give(table->env->budget, BUDGET_METADATA, size);
    return no_memory(table, err);
  }
  table->tail_size = size;
  return TURB_OK;
}

static turb_status header_check(struct table *table, const uint8_t *page, uint32_t done, const struct table_record *record,
                                turb_error *err) {
  turb_status status = codec_header_decode(page, done, table->path, table->env->database_id, &table->header, err);
  if (status != TURB_OK) {
    return status;
  }
  table->seed = table->header.seed;
  const struct table_shape *shape = &table->header.shape;
  if ((uint64_t)shape->block_bytes * shape->blocks_per_frame > CACHE_UNIT_MAX_BYTES - 2 * TABLE_PAGE_BYTES) {
    return status_set_file(err, TURB_CORRUPTION, table->path, 80, "table header: frames of %" PRIu64 " bytes",
                           (uint64_t)shape->block_bytes * shape->blocks_per_frame);
  }
  if (record != NULL && (record->seed != table->header.seed || record->file_number != table->header.file_number ||
                         record->collection_id != table->header.collection_id)) {
    return status_set_file(err, TURB_CORRUPTION, table->path, 32,
                           "not the table that the manifest names: its header says file %" PRIu64 " of collection %" PRIu64,
                           table->header.file_number, table->header.collection_id);
  }
  return TURB_OK;
}

/* The footer is the last 64 bytes of the file's `size`, of which [base, base + done) are at hand. */
static turb_status footer_check(struct table *table, const uint8_t *bytes, uint64_t base, uint64_t done, uint64_t size,
                                struct table_footer *footer, turb_error *err) {
  if (base + done < size) {
    return truncated(table, base + done, size, err);
  }
  const uint64_t at = size - TABLE_FOOTER_BYTES;
  const struct codec_place place = table_place(table, at);
  return codec_footer_decode(bytes + (at - base), TABLE_FOOTER_BYTES, &place, footer, err);
}

/* With a record: header and tail together. */
static turb_status read_by_record(struct table *table, const struct table_record *record, uint8_t *page, struct table_footer *footer,
                                  turb_error *err) {
  if (record->tail_offset % TABLE_PAGE_BYTES != 0 || record->tail_offset < TABLE_PAGE_BYTES ||
      record->size_bytes < record->tail_offset + TABLE_FOOTER_BYTES ||
      record->size_bytes - record->tail_offset > UINT32_MAX - TABLE_PAGE_BYTES) {
    return status_set_file(err, TURB_CORRUPTION, table->path, record->tail_offset, "the manifest's record places the tail out of bounds");
  }
  const uint64_t size = page_ceil(record->size_bytes - record->tail_offset);
  turb_status status = tail_take(table, size, err);
  if (status != TURB_OK) {
    return status;
  }
  struct part_read reads[2] = {{.op = {.data = page, .size = TABLE_PAGE_BYTES}},
                               {.op = {.data = table->tail_bytes, .size = (uint32_t)size, .offset = record->tail_offset}}};
  status = read_parts(table, reads, 2, err);
  if (status == TURB_OK) {
    status = header_check(table, page, reads[0].op.done, record, err);
  }
  if (status == TURB_OK) {
    status = footer_check(table, table->tail_bytes, record->tail_offset, reads[1].op.done, record->size_bytes, footer, err);
  }
  if (status == TURB_OK && footer->tail_offset != record->tail_offset) {
    status = status_set_file(err, TURB_CORRUPTION, table->path, record->size_bytes - TABLE_FOOTER_BYTES + 16,
                             "table footer: the tail is not where the manifest says");
  }
  return status;
}

/* Without one: header and last pages, then the tail. */
static turb_status read_by_footer(struct table *table, uint8_t *page, struct table_footer *footer, uint64_t *file_size, turb_error *err) {
  uint64_t size;
  turb_status status = io_file_size(table->file, &size, err);
  if (status != TURB_OK) {
    return status;
  }
  if (size < TABLE_PAGE_BYTES + TABLE_FOOTER_BYTES) {
    return status_set_file(err, TURB_CORRUPTION, table->path, size, "the table is cut short: %" PRIu64 " bytes", size);
  }
  *file_size = size;
  uint8_t *last = page + TABLE_PAGE_BYTES;
  const uint64_t last_offset = page_floor(size - TABLE_FOOTER_BYTES);
  struct part_read reads[2] = {{.op = {.data = page, .size = TABLE_PAGE_BYTES}},
                               {.op = {.data = last, .size = (uint32_t)(page_ceil(size) - last_offset), .offset = last_offset}}};
  status = read_parts(table, reads, 2, err);
  if (status == TURB_OK) {
    status = header_check(table, page, reads[0].op.done, NULL, err);
  }
  if (status == TURB_OK) {
    status = footer_check(table, last, last_offset, reads[1].op.done, size, footer, err);
  }
  if (status != TURB_OK) {
    return status;
  }
  const uint64_t tail_size = page_ceil(size - footer->tail_offset);
  if (tail_size > UINT32_MAX) {
    return status_set_file(err, TURB_CORRUPTION, table->path, footer->tail_offset, "a tail of %" PRIu64 " bytes", tail_size);
  }
  status = tail_take(table, tail_size, err);
  if (status != TURB_OK) {
    return status;
  }
  struct part_read tail = {.op = {.data = table->tail_bytes, .size = (uint32_t)tail_size, .offset = footer->tail_offset}};
  status = read_parts(table, &tail, 1, err);
  if (status == TURB_OK && footer->tail_offset + tail.op.done < size) {
    status = truncated(table, footer->tail_offset + tail.op.done, size, err);
  }
  return status;
}

/* ---- opening: what was read ---------------------------------------------------------------------------- */

static turb_status copy_bytes(struct table *table, turb_bytes *bytes, turb_error *err) {
  if (bytes->size != 0) {
    void *copy = arena_copy(&table->arena, bytes->data, bytes->size);
    if (copy == NULL) {
      return no_memory(table, err);
    }
    bytes->data = copy;
  }
  return TURB_OK;
}

static turb_status record_mismatch(const struct table *table, const char *what, uint64_t in_record, uint64_t in_table, turb_error *err) {
  return status_set_file(err, TURB_CORRUPTION, table->path, table->record.tail_offset,
                         "not the table that the manifest names: %s is %" PRIu64 " there and %" PRIu64 " here", what, in_record, in_table);
}

/* The record as given, or made from the properties. */
static turb_status take_record(struct table *table, const struct table_record *record, const struct table_footer *footer, uint64_t size,
                               turb_error *err) {
  const struct table_properties *p = &table->tail.properties;
  struct table_record *own = &table->record;
  if (record == NULL) {
    *own = (struct table_record){.file_number = table->header.file_number,
                                 .collection_id = table->header.collection_id,
                                 .size_bytes = size,
                                 .tail_offset = footer->tail_offset,
                                 .seed = table->seed,
                                 .lower = p->lower,
                                 .upper = p->upper,
                                 .upper_open = p->upper_kind == TABLE_UPPER_OPEN,
                                 .upper_inclusive = p->upper_kind == TABLE_UPPER_INCLUSIVE,
                                 .entries = p->entries,
                                 .puts = p->puts,
                                 .deletes = p->deletes,
                                 .range_fragments = p->range_fragments,
                                 .smallest_sequence = p->smallest_sequence,
                                 .largest_sequence = p->largest_sequence,
                                 .bulk_sequence = p->bulk_sequence,
                                 .hash_sum = p->hash_sum};
    return TURB_OK; /* its bytes lie in the tail */
  }
  *own = *record;
  const struct {
    const char *what;
    uint64_t in_record, in_table;
  } pairs[] = {{"the number of entries", record->entries, p->entries},
               {"the number of puts", record->puts, p->puts},
               {"the number of deletes", record->deletes, p->deletes},
               {"the number of range-delete fragments", record->range_fragments, p->range_fragments},
               {"the sum of entry hashes", record->hash_sum, p->hash_sum}};
  for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
    if (pairs[i].in_record != pairs[i].in_table) {
      return record_mismatch(table, pairs[i].what, pairs[i].in_record, pairs[i].in_table, err);
    }
  }
  const turb_status status = copy_bytes(table, &own->lower, err);
  return status == TURB_OK ? copy_bytes(table, &own->upper, err) : status;
}

/* The search array over the top index. */
static turb_status make_top(struct table *table, turb_error *err) {
  const uint32_t count = table->tail.top_count;
  if (count == 0) {
    return TURB_OK;
  }
  const turb_bytes first = table->tail.top[0].separator, last = table->tail.top[count - 1].separator;
  const size_t shared = key_shared_prefix(first.data, first.size, last.data, last.size);
  table->top_prefixes = arena_alloc(&table->arena, count * sizeof(uint64_t), 64);
  if (table->top_prefixes == NULL) {
    return no_memory(table, err);
  }
  table->top_shared = (uint32_t)shared;
  for (uint32_t i = 0; i < count; i++) {
    const turb_bytes separator = table->tail.top[i].separator;
    table->top_prefixes[i] = key_prefix8((const uint8_t *)separator.data + shared, separator.size - shared);
  }
  return TURB_OK;
}

static turb_status make_directory(struct table *table, turb_error *err) {
  uint64_t units = 0;
  for (int kind = 0; kind < UNIT_KINDS; kind++) {
    table->unit_base[kind] = (uint32_t)units;
    units += table->spans[extent_of_unit((enum unit_kind)kind)].units;
  }
  return cache_directory_open(table->env->cache, (uint32_t)units, &table->directory, err);
}

static turb_status table_read(struct table *table, const struct table_record *record, turb_error *err) {
  struct table_footer footer;
  uint64_t size = record != NULL ? record->size_bytes : 0;
  uint8_t *pages = mem_alloc_aligned(table->env->allocator, 3 * TABLE_PAGE_BYTES, TABLE_PAGE_BYTES);
  if (pages == NULL) {
    return no_memory(table, err);
  }
  turb_status status =
      record != NULL ? read_by_record(table, record, pages, &footer, err) : read_by_footer(table, pages, &footer, &size, err);
  mem_free(table->env->allocator, pages, 3 * TABLE_PAGE_BYTES);
  if (status != TURB_OK) {
    return status;
  }
  const struct codec_place place = table_place(table, footer.tail_offset);
  status = codec_tail_decode(table->tail_bytes, size - TABLE_FOOTER_BYTES - footer.tail_offset, &place, footer.tail_checksum,
                             &table->header.shape, &table->arena, &table->tail, err);
  if (status == TURB_OK) {
    status = take_record(table, record, &footer, size, err);
  }
  if (status == TURB_OK) {
    table->limits = codec_limits_of(&table->tail.properties, footer.tail_offset);
    status = make_spans(table, err);
  }
  if (status == TURB_OK) {
    status = make_top(table, err);
  }
  return status == TURB_OK ? make_directory(table, err) : status;
}

turb_status table_open(const struct table_env *env, const char *path, const struct table_record *record, struct table **out,
                       turb_error *err) {
  *out = NULL;
  struct table *table = mem_alloc_zeroed(env->allocator, sizeof *table);
  if (table == NULL) {
    return status_set(err, TURB_NO_MEMORY, "no memory to open a table");
  }
  table->env = env;
  atomic_init(&table->references, 1);
  atomic_init(&table->obsolete, false);
  arena_init(&table->arena, env->allocator, env->budget, BUDGET_METADATA, 4096);
  turb_status status = TURB_OK;
  table->path = mem_strdup(env->allocator, path);
  if (table->path == NULL) {
    status = no_memory(table, err);
  }
  if (status == TURB_OK) {
    status = io_file_open(env->system, path, IO_OPEN_READ | (env->buffered ? 0u : (unsigned)IO_OPEN_DIRECT), &table->file, err);
  }
  if (status == TURB_OK) {
    status = table_read(table, record, err);
  }
  if (status != TURB_OK) {
    table_release(table);
    return status;
  }
  *out = table;
  return TURB_OK;
}

/* ---- life ---------------------------------------------------------------------------------------------- */

struct table *table_retain(struct table *table) {
  atomic_fetch_add_explicit(&table->references, 1, memory_order_relaxed);
  return table;
}

void table_release(struct table *table) {
  if (table == NULL || atomic_fetch_sub_explicit(&table->references, 1, memory_order_acq_rel) != 1) {
    return;
  }
  const struct table_env *env = table->env;
  cache_directory_close(&table->directory);
  io_file_release(table->file);
  if (atomic_load_explicit(&table->obsolete, memory_order_relaxed)) {
    if (env->obsolete_tables != NULL) {
      atomic_fetch_sub_explicit(env->obsolete_tables, 1, memory_order_relaxed);
    }
    turb_error error = TURB_ERROR_INIT;
    /* What stays behind is removed at the next open, which no record names it. */
    if (io_unlink(env->system, table->path, &error) != TURB_OK) {
      logger_write(env->logger, LOGGER_WARNING, "%s", error.message);
    }
  }
  if (table->tail_bytes != NULL) {
    mem_free(env->allocator, table->tail_bytes, table->tail_size);
    budget_give(env->budget, BUDGET_METADATA, table->tail_size);
  }
  arena_free(&table->arena);
  mem_free_string(env->allocator, table->path);
  mem_free(env->allocator, table, sizeof *table);
}

void table_make_obsolete(struct table *table) {
  if (!atomic_exchange_explicit(&table->obsolete, true, memory_order_relaxed) && table->env->obsolete_tables != NULL) {
    atomic_fetch_add_explicit(table->env->obsolete_tables, 1, memory_order_relaxed);
  }
}

const struct table_record *table_get_record(const struct table *table) {
  return &table->record;
}

const struct table_shape *table_get_shape(const struct table *table) {
  return &table->header.shape;
}

const struct range_deletes *table_range_deletes(const struct table *table) {
  return &table->tail.deletes;
}

const struct table_env *table_get_env(const struct table *table) {
  return table->env;
}

struct io_file *table_file(const struct table *table) {
  return table->file;
}

struct cache_directory *table_directory(struct table *table) {
  return &table->directory;
}

turb_bytes table_smallest_key(const struct table *table) {
  return table->tail.properties.smallest_key;
}

turb_bytes table_largest_key(const struct table *table) {
  return table->tail.properties.largest_key;
}

/* ---- addresses ----------------------------------------------------------------------------------------- */

uint32_t table_unit(const struct table *table, enum unit_kind kind, uint32_t ordinal) {
  assert(ordinal < table->spans[extent_of_unit(kind)].units);
  return table->unit_base[kind] + ordinal;
}

uint32_t table_unit_count(const struct table *table, enum unit_kind kind) {
  return table->spans[extent_of_unit(kind)].units;
}

void table_locate_row(const struct table *table, uint64_t row, uint32_t *frame, uint32_t *offset) {
  const struct table_shape *shape = &table->header.shape;
  const struct span *span = table_span_of(table, EXTENT_ROWS, row);
  const uint32_t within = (uint32_t)(row - span->first);
  const uint32_t block = within / shape->rows_per_block;
  const uint32_t in_block = within - block * shape->rows_per_block;
  const uint32_t frame_within = block / shape->blocks_per_frame;
  *frame = span->first_unit + frame_within;
  *offset = (block - frame_within * shape->blocks_per_frame) * shape->block_bytes + in_block * shape->stride;
}

uint64_t table_row_offset(const struct table *table, uint64_t row) {
  uint32_t frame, within;
  uint64_t offset;
  if (table->header.shape.compression != 0) {
    return UINT64_MAX;
  }
  table_locate_row(table, row, &frame, &within);
  (void)table_unit_bytes(table, UNIT_ROWS, frame, &offset);
  return offset + within;
}

void table_frame_rows(const struct table *table, uint32_t frame, uint64_t *first, uint32_t *count) {
  const struct table_shape *shape = &table->header.shape;
  const struct span *span = table_span_of_unit(table, EXTENT_ROWS, frame);
  const uint64_t rows_per_frame = (uint64_t)shape->rows_per_block * shape->blocks_per_frame;
  const uint64_t before = (frame - span->first_unit) * rows_per_frame;
  *first = span->first + before;
  *count = (uint32_t)(span->count - before < rows_per_frame ? span->count - before : rows_per_frame);
}

bool table_locate_attribute(const struct table *table, uint64_t offset, uint32_t size, uint32_t *chunk, uint32_t *within,
                            uint32_t *chunk_bytes) {
  *chunk = *within = *chunk_bytes = 0;
  const struct spans *spans = &table->spans[EXTENT_ATTRIBUTES];
  if (offset >= spans->end) {
    return false;
  }
  const struct span *span = table_span_of(table, EXTENT_ATTRIBUTES, offset);
  const uint64_t in_span = offset - span->first;
  const uint64_t part = in_span / TABLE_ATTRIBUTE_CHUNK_BYTES;
  uint64_t begin;
  *chunk = span->first_unit + (uint32_t)part;
  *within = (uint32_t)(in_span % TABLE_ATTRIBUTE_CHUNK_BYTES);
  *chunk_bytes = table_part_bytes(table, EXTENT_ATTRIBUTES, span, span->first_part + part, &begin);
  return *within + (uint64_t)size <= *chunk_bytes;
}

uint32_t table_key_ordinal(const struct table *table, uint32_t file_page) {
  const struct spans *spans = &table->spans[EXTENT_KEYS];
  const uint64_t offset = (uint64_t)file_page * TABLE_PAGE_BYTES;
  if (spans->count == 0 || offset < spans->at[0].offset) {
    return UINT32_MAX;
  }
  const struct span *span = span_search(spans, offset, BY_BYTE, (double)(offset - spans->at[0].offset) * spans->per_byte);
  const uint64_t page = (offset - span->offset) / TABLE_PAGE_BYTES;
  return page < span->pages ? span->first_unit + (uint32_t)page : UINT32_MAX;
}
