/* turb_dump_file: what one file says, in lines. It needs no database: it has an io system, a budget and a cache of its own. A damaged file
 * is described as far as it verifies, then the error
 * is returned.
 *
 *   table      header, properties, extents, index pages, range deletes, entries
 *   log        header, records with their operations, end
 *   manifest   header, records with their changes, end */
#include <string.h>

#include "engine/batch.h"
#include "engine/dump_line.h"
#include "engine/log_format.h"
#include "engine/manifest.h"
#include "iterators/cursor.h"
#include "sstable/codec.h"

#define HEAD_BYTES 4096u

struct dump {
  const char *path;
  const turb_allocator *allocator;
  struct io_system *system;
  struct budget budget;
  struct cache *cache;
  struct io_file *file;
  uint64_t size;
  _Alignas(8) uint8_t head[HEAD_BYTES];
  struct dump_lines lines;
};

/* A status that ends a walk because no more lines are wanted. */
static turb_status stop(const struct dump *dump, turb_error *err) {
  if (dump->lines.failure != TURB_OK)
    return status_set(err, dump->lines.failure, "no memory for a line");
  return TURB_CANCELLED;
}

static const char *type_name(turb_type type) {
  static const char *const names[] = {"?", "f32", "f16", "bf16", "i8", "u8", "bits"};
  return type >= TURB_F32 && type <= TURB_BITS ? names[type] : names[0];
}

static const char *metric_name(turb_metric metric) {
  static const char *const names[] = {"?", "l2", "inner_product", "cosine", "manhattan", "hamming"};
  return metric >= TURB_L2 && metric <= TURB_HAMMING ? names[metric] : names[0];
}

/* ---- tables ---- */

static bool table_header_line(struct dump *d, const struct table_header *header) {
  dump_line_begin(&d->lines, "table");
  dump_line_number(&d->lines, "file", header->file_number);
  dump_line_number(&d->lines, "collection", header->collection_id);
  dump_line_hexadecimal(&d->lines, "database", (turb_bytes){header->database_id, sizeof header->database_id});
  dump_line_number(&d->lines, "bytes", d->size);
  dump_line_word(&d->lines, "type", type_name(header->shape.type));
  dump_line_word(&d->lines, "metric", metric_name(header->shape.metric));
  dump_line_number(&d->lines, "dimension", header->shape.dimension);
  dump_line_word(&d->lines, "compression", header->shape.compression ? "zstd" : "none");
  dump_line_number(&d->lines, "stride", header->shape.stride);
  dump_line_number(&d->lines, "block_bytes", header->shape.block_bytes);
  dump_line_number(&d->lines, "rows_per_block", header->shape.rows_per_block);
  return dump_line_end(&d->lines);
}

static bool properties_line(struct dump *d, const struct table_properties *p) {
  static const char *const kinds[] = {"exclusive", "inclusive", "open"};
  dump_line_begin(&d->lines, "properties");
  dump_line_number(&d->lines, "entries", p->entries);
  dump_line_number(&d->lines, "puts", p->puts);
  dump_line_number(&d->lines, "deletes", p->deletes);
  dump_line_number(&d->lines, "range_fragments", p->range_fragments);
  dump_line_number(&d->lines, "smallest_sequence", p->smallest_sequence);
  dump_line_number(&d->lines, "largest_sequence", p->largest_sequence);
  dump_line_bytes(&d->lines, "smallest_key", p->smallest_key);
  dump_line_bytes(&d->lines, "largest_key", p->largest_key);
  dump_line_bytes(&d->lines, "lower", p->lower);
  dump_line_bytes(&d->lines, "upper", p->upper);
  dump_line_word(&d->lines, "upper_kind", kinds[p->upper_kind]);
  dump_line_number(&d->lines, "key_bytes", p->key_bytes);
  dump_line_number(&d->lines, "attribute_bytes", p->attribute_bytes);
  dump_line_number(&d->lines, "vector_blocks", p->vector_blocks);
  dump_line_number(&d->lines, "attribute_chunks", p->attribute_chunks);
  dump_line_number(&d->lines, "hash_sum", p->hash_sum);
  dump_line_number(&d->lines, "job", p->job);
  dump_line_number(&d->lines, "cut", p->cut);
  return dump_line_end(&d->lines);
}

static bool range_lines(struct dump *d, const struct range_deletes *deletes) {
  for (size_t i = 0; i < deletes->count; i++) {
    const struct range_fragment *fragment = &deletes->fragments[i];
    for (uint32_t s = 0; s < fragment->sequence_count; s++) {
      dump_line_begin(&d->lines, "range_delete");
      dump_line_bytes(&d->lines, "begin", fragment->begin);
      dump_line_bytes(&d->lines, "end", fragment->end);
      dump_line_number(&d->lines, "sequence", fragment->sequences[s]);
      if (!dump_line_end(&d->lines))
        return false;
    }
  }
  return true;
}

static bool tail_lines(struct dump *d, const struct table_tail *tail) {
  static const char *const kinds[] = {"?", "rows", "keys", "index", "attributes", "filter", "checksums"};
  if (!properties_line(d, &tail->properties))
    return false;
  for (uint32_t i = 0; i < tail->extent_count; i++) {
    const struct extent *extent = &tail->extents[i];
    dump_line_begin(&d->lines, "extent");
    dump_line_word(&d->lines, "kind", kinds[extent->kind < 7 ? extent->kind : 0]);
    dump_line_number(&d->lines, "first_page", extent->first_page);
    dump_line_number(&d->lines, "pages", extent->pages);
    dump_line_number(&d->lines, "first", extent->first_ordinal);
    dump_line_number(&d->lines, "count", extent->count);
    if (!dump_line_end(&d->lines))
      return false;
  }
  for (uint32_t i = 0; i < tail->top_count; i++) {
    dump_line_begin(&d->lines, "index_page");
    dump_line_bytes(&d->lines, "separator", tail->top[i].separator);
    dump_line_number(&d->lines, "first_entry", tail->top[i].first_entry);
    dump_line_number(&d->lines, "first_row", tail->top[i].first_row);
    if (!dump_line_end(&d->lines))
      return false;
  }
  return range_lines(d, &tail->deletes);
}

static turb_status dump_tail(struct dump *d, const struct table_header *header, turb_error *err) {
  uint8_t footer_bytes[TABLE_FOOTER_BYTES];
  if (d->size < HEAD_BYTES + sizeof footer_bytes)
    return status_set_file(err, TURB_CORRUPTION, d->path, d->size, "the table is cut short: %llu bytes", (unsigned long long)d->size);
  const uint64_t footer_at = d->size - sizeof footer_bytes;
  struct codec_place place = {d->path, header->seed, footer_at};
  struct table_footer footer;
  turb_status status = io_file_read(d->file, footer_bytes, sizeof footer_bytes, footer_at, err);
  if (status == TURB_OK)
    status = codec_footer_decode(footer_bytes, sizeof footer_bytes, &place, &footer, err);
  if (status != TURB_OK)
    return status;
  const size_t bytes = (size_t)(footer_at - footer.tail_offset);
  uint8_t *tail_bytes = mem_alloc(d->allocator, bytes);
  if (!tail_bytes)
    return status_set(err, TURB_NO_MEMORY, "no memory for a tail of %zu bytes", bytes);
  struct arena arena;
  struct table_tail tail;
  arena_init(&arena, d->allocator, NULL, BUDGET_METADATA, 0);
  status = io_file_read(d->file, tail_bytes, bytes, footer.tail_offset, err);
  place.offset = footer.tail_offset;
  if (status == TURB_OK)
    status = codec_tail_decode(tail_bytes, bytes, &place, footer.tail_checksum, &header->shape, &arena, &tail, err);
  if (status == TURB_OK && !tail_lines(d, &tail))
    status = stop(d, err);
  arena_free(&arena);
  mem_free(d->allocator, tail_bytes, bytes);
  return status;
}

static bool entry_line(struct dump *d, const struct slot *slot) {
  const bool put = slot_kind(slot) == SLOT_PUT;
  dump_line_begin(&d->lines, put ? "put" : "delete");
  dump_line_bytes(&d->lines, "key", slot_key_bytes(slot));
  dump_line_number(&d->lines, "sequence", slot_sequence(slot));
  if (put) {
    dump_line_number(&d->lines, "row", slot_row(slot));
    dump_line_number(&d->lines, "attribute_bytes", slot_attribute_size(slot));
  }
  return dump_line_end(&d->lines);
}

static turb_status walk_entries(struct dump *d, struct cursor_context *context, struct table *table, turb_error *err) {
  const struct source source = {.table = table};
  struct cursor *cursor;
  turb_status status = table_cursor_open(context, &source, false, &cursor, err);
  if (status != TURB_OK)
    return status;
  turb_state state = cursor_first(cursor);
  for (;;) {
    while (state == TURB_PENDING || state == TURB_YIELD)
      state = cursor_await(cursor);
    if (state != TURB_READY)
      break;
    if (!entry_line(d, cursor->slot)) {
      status = stop(d, err);
      break;
    }
    state = cursor_advance(cursor);
  }
  if (state == TURB_FAILED)
    status = cursor_error(cursor, err);
  cursor_close(cursor);
  return status;
}

static turb_status dump_entries(struct dump *d, const struct table_header *header, turb_error *err) {
  struct table_env env = {.system = d->system, .allocator = d->allocator, .budget = &d->budget, .cache = d->cache, .buffered = true};
  memcpy(env.database_id, header->database_id, sizeof env.database_id);
  struct table *table;
  turb_status status = table_open(&env, d->path, NULL, &table, err);
  if (status != TURB_OK)
    return status;
  struct reads reads;
  reads_init(&reads, d->system, NULL);
  struct cursor_context context = {.reads = &reads, .allocator = d->allocator, .budget = &d->budget, .fill_cache = true};
  status = walk_entries(d, &context, table, err);
  reads_close(&reads);
  io_system_drain(d->system);
  table_release(table);
  return status;
}

static turb_status dump_table(struct dump *d, turb_error *err) {
  struct table_header header;
  turb_status status = codec_header_decode(d->head, d->size < HEAD_BYTES ? (size_t)d->size : HEAD_BYTES, d->path, NULL, &header, err);
  if (status == TURB_OK && !table_header_line(d, &header))
    status = stop(d, err);
  if (status == TURB_OK)
    status = dump_tail(d, &header, err);
  return status == TURB_OK ? dump_entries(d, &header, err) : status;
}

/* ---- logs ---- */

static bool operation_line(struct dump *d, const struct batch_operation *operation) {
  static const char *const names[] = {"?", "put", "delete", "delete_range"};
  dump_line_begin(&d->lines, names[operation->kind]);
  dump_line_number(&d->lines, "collection", operation->collection_id);
  dump_line_bytes(&d->lines, operation->kind == BATCH_DELETE_RANGE ? "begin" : "key", operation->key);
  if (operation->kind == BATCH_DELETE_RANGE)
    dump_line_bytes(&d->lines, "end", operation->end);
  dump_line_number(&d->lines, "sequence", operation->sequence);
  if (operation->kind == BATCH_PUT) {
    dump_line_number(&d->lines, "row_bytes", operation->row.size);
    dump_line_number(&d->lines, "attribute_bytes", operation->attributes.size);
  }
  return dump_line_end(&d->lines);
}

static turb_status log_record_lines(void *context, const struct log_record *record, turb_error *err) {
  struct dump *d = context;
  dump_line_begin(&d->lines, record->type == LOG_BATCH ? "record" : "end");
  dump_line_number(&d->lines, "offset", record->offset);
  dump_line_number(&d->lines, "payload_bytes", record->payload.size);
  dump_line_number(&d->lines, "durable", record->durable);
  if (record->type == LOG_END)
    dump_line_number(&d->lines, "next_log", load_u64(record->payload.data));
  if (!dump_line_end(&d->lines))
    return stop(d, err);
  if (record->type != LOG_BATCH)
    return TURB_OK;
  struct batch_reader reader;
  turb_status status = batch_reader_open(&reader, record->payload, record->file, record->payload_offset, err);
  for (bool more = true; status == TURB_OK && more;) {
    struct batch_operation operation;
    status = batch_reader_next(&reader, &operation, &more, err);
    if (status == TURB_OK && more && !operation_line(d, &operation))
      status = stop(d, err);
  }
  return status;
}

static turb_status dump_log(struct dump *d, turb_error *err) {
  const uint64_t number = load_u64(d->head + LOG_AT_NUMBER);
  dump_line_begin(&d->lines, "log");
  dump_line_number(&d->lines, "number", number);
  dump_line_number(&d->lines, "version", load_u32(d->head + LOG_AT_VERSION));
  dump_line_hexadecimal(&d->lines, "database", (turb_bytes){d->head + LOG_AT_DATABASE_ID, LOG_DATABASE_ID_BYTES});
  dump_line_number(&d->lines, "first_sequence", load_u64(d->head + LOG_AT_FIRST_SEQUENCE));
  dump_line_number(&d->lines, "staging_pages", load_u32(d->head + LOG_AT_STAGING_PAGES));
  dump_line_number(&d->lines, "bytes", d->size);
  if (!dump_line_end(&d->lines))
    return stop(d, err);
  const struct log_recovery_options options = {.system = d->system,
                                               .allocator = d->allocator,
                                               .folder = "",
                                               .path = d->path,
                                               .database_id = d->head + LOG_AT_DATABASE_ID,
                                               .record = log_record_lines,
                                               .context = d};
  struct log_recovery log;
  const turb_status status = log_recover(&options, number, &log, err);
  if (status != TURB_OK)
    return status;
  dump_line_begin(&d->lines, "recovered");
  dump_line_number(&d->lines, "records", log.records);
  dump_line_number(&d->lines, "end", log.end);
  dump_line_number(&d->lines, "durable", log.durable);
  dump_line_number(&d->lines, "staged_bytes", log.staged_bytes);
  dump_line_word(&d->lines, "state", log.ended ? "ended" : log.unused ? "unused" : "open");
  return dump_line_end(&d->lines) ? TURB_OK : stop(d, err);
}

/* ---- manifests ---- */

static void counters_fields(struct dump_lines *lines, const struct catalog_counters *counters) {
  dump_line_number(lines, "next_file", counters->next_file);
  dump_line_number(lines, "last_sequence", counters->last_sequence);
  dump_line_number(lines, "next_collection", counters->next_collection);
  dump_line_number(lines, "next_job", counters->next_job);
  dump_line_number(lines, "next_run", counters->next_run);
  dump_line_number(lines, "next_partition", counters->next_partition);
}

static void collection_fields(struct dump_lines *lines, const struct edit_change *change) {
  dump_line_number(lines, "id", change->id);
  dump_line_bytes(lines, "name", change->collection.name);
  dump_line_number(lines, "dimension", change->collection.dimension);
  dump_line_word(lines, "type", type_name(change->collection.type));
  dump_line_word(lines, "metric", metric_name(change->collection.metric));
  dump_line_word(lines, "compression", change->collection.compression == TURB_COMPRESSION_ZSTD ? "zstd" : "none");
  dump_line_signed(lines, "compression_level", change->collection.compression_level);
}

static void table_fields(struct dump_lines *lines, const struct table_record *table) {
  dump_line_number(lines, "file", table->file_number);
  dump_line_number(lines, "collection", table->collection_id);
  dump_line_number(lines, "bytes", table->size_bytes);
  dump_line_number(lines, "tail_offset", table->tail_offset);
  dump_line_bytes(lines, "lower", table->lower);
  dump_line_bytes(lines, "upper", table->upper);
  dump_line_word(lines, "upper_kind", table->upper_open ? "open" : table->upper_inclusive ? "inclusive" : "exclusive");
  dump_line_number(lines, "entries", table->entries);
  dump_line_number(lines, "puts", table->puts);
  dump_line_number(lines, "deletes", table->deletes);
  dump_line_number(lines, "range_fragments", table->range_fragments);
  dump_line_number(lines, "smallest_sequence", table->smallest_sequence);
  dump_line_number(lines, "largest_sequence", table->largest_sequence);
  dump_line_number(lines, "bulk_sequence", table->bulk_sequence);
  dump_line_number(lines, "hash_sum", table->hash_sum);
}

static void run_fields(struct dump_lines *lines, const struct edit_change *change) {
  dump_line_number(lines, "id", change->id);
  dump_line_number(lines, "collection", change->collection_id);
  dump_line_number(lines, "partition", change->run.partition_id);
  dump_line_number(lines, "flags", change->run.flags);
  dump_line_number(lines, "tables", change->run.table_count);
  struct reader numbers = change->run.numbers;
  if (change->run.table_count)
    dump_line_number(lines, "first_table", reader_varint(&numbers));
}

static const char *change_name(enum edit_tag tag) {
  switch (tag) {
  case EDIT_COUNTERS: return "counters";
  case EDIT_OLDEST_LOG: return "oldest_log";
  case EDIT_COLLECTION: return "collection";
  case EDIT_COLLECTION_DROP: return "collection_dropped";
  case EDIT_FLUSHED: return "flushed";
  case EDIT_COMPACTION: return "compaction";
  case EDIT_RUN: return "run";
  case EDIT_RUN_REMOVED: return "run_removed";
  case EDIT_TABLE: return "table";
  case EDIT_TABLE_REMOVED: return "table_removed";
  case EDIT_PARTITION: return "partition";
  case EDIT_PARTITION_REMOVED: return "partition_removed";
  case EDIT_TAKEN: return "range_taken";
  case EDIT_SEGMENT: return "segment";
  case EDIT_SEGMENT_REMOVED: return "segment_removed";
  case EDIT_CODEBOOK: return "codebook";
  case EDIT_CODEBOOK_REMOVED: return "codebook_removed";
  case EDIT_JOB: return "job";
  case EDIT_JOB_ENDED: return "job_ended";
  case EDIT_TIME_MARK: return "time_mark";
  }
  return "change";
}

static void compaction_fields(struct dump_lines *lines, const struct edit_change *change) {
  dump_line_number(lines, "collection", change->id);
  dump_line_number(lines, "policy", (uint64_t)change->compaction.policy);
  dump_line_number(lines, "size_ratio", change->compaction.size_ratio);
  dump_line_number(lines, "max_space_amplification_percent", change->compaction.max_space_amplification_percent);
  dump_line_number(lines, "fifo_max_bytes", change->compaction.fifo_max_bytes);
  dump_line_number(lines, "ttl_s", change->compaction.ttl_s);
}

static bool change_line(struct dump *d, const struct edit_change *change) {
  struct dump_lines *lines = &d->lines;
  dump_line_begin(lines, change_name(change->tag));
  switch (change->tag) {
  case EDIT_COUNTERS: counters_fields(lines, &change->counters); break;
  case EDIT_COLLECTION: collection_fields(lines, change); break;
  case EDIT_TABLE: table_fields(lines, &change->table); break;
  case EDIT_RUN: run_fields(lines, change); break;
  case EDIT_COMPACTION: compaction_fields(lines, change); break;
  case EDIT_FLUSHED:
    dump_line_number(lines, "collection", change->id);
    dump_line_number(lines, "sequence", change->sequence);
    break;
  case EDIT_PARTITION:
    dump_line_number(lines, "id", change->id);
    dump_line_number(lines, "collection", change->collection_id);
    dump_line_bytes(lines, "lower", change->partition.lower);
    dump_line_bytes(lines, "upper", change->partition.upper);
    dump_line_number(lines, "codebook", change->partition.codebook_id);
    break;
  case EDIT_TAKEN:
    dump_line_number(lines, "file", change->id);
    dump_line_number(lines, "partition", change->partition_id);
    break;
  case EDIT_SEGMENT:
    dump_line_number(lines, "file", change->id);
    dump_line_number(lines, "run", change->segment.run_id);
    dump_line_number(lines, "codebook", change->segment.codebook_id);
    dump_line_number(lines, "edition", change->segment.edition);
    dump_line_number(lines, "tables", change->segment.table_count);
    break;
  case EDIT_CODEBOOK:
  case EDIT_CODEBOOK_REMOVED:
    dump_line_number(lines, "id", change->id);
    dump_line_number(lines, "edition", change->codebook.edition);
    break;
  case EDIT_JOB:
    dump_line_number(lines, "id", change->id);
    dump_line_number(lines, "collection", change->collection_id);
    dump_line_number(lines, "kind", (uint64_t)change->job.kind);
    break;
  case EDIT_TIME_MARK:
    dump_line_number(lines, "sequence", change->time_mark.sequence);
    dump_line_number(lines, "unix_seconds", change->time_mark.unix_seconds);
    break;
  default: dump_line_number(lines, "id", change->id); break;
  }
  return dump_line_end(lines);
}

static turb_status manifest_header_line(void *context, const struct manifest_header *header, turb_error *err) {
  struct dump *d = context;
  dump_line_begin(&d->lines, "manifest");
  dump_line_number(&d->lines, "version", header->version);
  dump_line_hexadecimal(&d->lines, "database", (turb_bytes){header->database_id, sizeof header->database_id});
  dump_line_number(&d->lines, "edition", header->edition);
  dump_line_number(&d->lines, "created_unix_seconds", header->creation_seconds);
  dump_line_number(&d->lines, "bytes", d->size);
  return dump_line_end(&d->lines) ? TURB_OK : stop(d, err);
}

static turb_status manifest_record_lines(void *context, const struct manifest_record *record, turb_error *err) {
  struct dump *d = context;
  dump_line_begin(&d->lines, "edit");
  dump_line_number(&d->lines, "offset", record->offset);
  dump_line_number(&d->lines, "payload_bytes", record->payload.size);
  if (!dump_line_end(&d->lines))
    return stop(d, err);
  struct reader payload;
  reader_init(&payload, record->payload.data, record->payload.size);
  for (;;) {
    struct edit_change change;
    bool more;
    turb_error why = TURB_ERROR_INIT;
    const turb_status status = edit_next(&payload, &change, &more, &why);
    if (status != TURB_OK)
      return status_set_file(err, status, d->path, record->offset, "%s", why.message);
    if (!more)
      return TURB_OK;
    if (!change_line(d, &change))
      return stop(d, err);
  }
}

static turb_status dump_manifest(struct dump *d, turb_error *err) {
  uint64_t end, torn;
  const turb_status status =
      manifest_read(d->system, d->allocator, d->path, manifest_header_line, manifest_record_lines, d, &end, &torn, err);
  if (status != TURB_OK)
    return status;
  dump_line_begin(&d->lines, "end");
  dump_line_number(&d->lines, "offset", end);
  dump_line_number(&d->lines, "torn_bytes", torn);
  return dump_line_end(&d->lines) ? TURB_OK : stop(d, err);
}

/* ---- the call ---- */

static turb_status open_file(struct dump *d, turb_error *err) {
  const struct io_system_options options = {.allocator = d->allocator, .budget = &d->budget};
  turb_status status = io_system_open(&options, &d->system, err);
  if (status == TURB_OK)
    status = cache_create(d->allocator, &d->budget, &d->cache, err);
  if (status == TURB_OK)
    status = io_file_open(d->system, d->path, IO_OPEN_READ, &d->file, err);
  if (status == TURB_OK)
    status = io_file_size(d->file, &d->size, err);
  const size_t there = d->size < HEAD_BYTES ? (size_t)d->size : HEAD_BYTES;
  return status == TURB_OK && there ? io_file_read(d->file, d->head, there, 0, err) : status;
}

static turb_status dump_file(struct dump *d, turb_error *err) {
  static const struct {
    const char *magic;
    turb_status (*dump)(struct dump *d, turb_error *err);
  } kinds[] = {{"TURBTBL\n", dump_table}, {"TURBLOG\n", dump_log}, {"TURBMAN\n", dump_manifest}};
  const turb_status status = open_file(d, err);
  if (status != TURB_OK)
    return status;
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (d->size >= 8 && !memcmp(d->head, kinds[i].magic, 8))
      return kinds[i].dump(d, err);
  return status_set_file(err, TURB_NOT_A_DATABASE, d->path, 0, "this is no table, log or manifest");
}

turb_status turb_dump_file(const char *path, turb_dump_format format, bool (*line)(void *context, const char *text), void *context,
                           turb_error *err) {
  if (!path || !*path || !line)
    return status_set(err, TURB_INVALID, "no path, or nobody to take the lines, is given");
  if (format != TURB_DUMP_TEXT && format != TURB_DUMP_JSON)
    return status_set(err, TURB_INVALID, "format is %d, and must be %d or %d", (int)format, TURB_DUMP_TEXT, TURB_DUMP_JSON);
  const turb_allocator *allocator = alloc_default();
  struct dump *d = mem_alloc_zeroed(allocator, sizeof *d);
  if (!d)
    return status_set(err, TURB_NO_MEMORY, "no memory for a dump");
  d->path = path;
  d->allocator = allocator;
  budget_init(&d->budget, 64u << 20);
  dump_lines_init(&d->lines, format, line, context, allocator);
  const turb_status status = dump_file(d, err);
  io_file_release(d->file);
  if (d->cache)
    cache_destroy(d->cache);
  if (d->system)
    io_system_close(d->system);
  dump_lines_free(&d->lines);
  const bool stopped = d->lines.stopped;
  mem_free(allocator, d, sizeof *d);
  return stopped ? TURB_OK : status;
}
