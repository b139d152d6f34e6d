/*
 * Version edits: building, decoding and walking the payload of a manifest record (docs/format.md 5); see catalog.h.
 *
 * A decoder hands out a change only after every part of its field was bounded and every value that has bounds of its own was within them.
 * Whether ids exist is the catalog's to say.
 */
#include <assert.h>

#include "engine/catalog.h"

/* A bound may be the successor of the largest key. */
#define EDIT_MAX_BOUND_BYTES (TURB_MAX_KEY_BYTES + 1)
#define EDIT_MAX_SIZE_RATIO  64

/* ---- building ---- */

void edit_init(struct version_edit *edit, const turb_allocator *allocator) {
  buffer_init(&edit->payload, allocator);
  edit->changes = 0;
}

void edit_free(struct version_edit *edit) {
  buffer_free(&edit->payload);
  edit->changes = 0;
}

void edit_clear(struct version_edit *edit) {
  buffer_clear(&edit->payload);
  edit->changes = 0;
}

/* Begins a field and returns where its content begins. */
static size_t field_begin(struct version_edit *edit, enum edit_tag tag) {
  (void)buffer_append_varint(&edit->payload, tag);
  edit->changes++;
  return edit->payload.size;
}

/* Puts the content's length in front of it. */
static void field_end(struct version_edit *edit, size_t begin) {
  if (buffer_status(&edit->payload) != TURB_OK) {
    return;
  }
  const size_t size = edit->payload.size - begin;
  const size_t length_size = varint_size(size);
  if (buffer_extend(&edit->payload, length_size) == NULL) {
    return;
  }
  uint8_t *at = edit->payload.data + begin;
  memmove(at + length_size, at, size);
  (void)varint_put(at, size);
}

static void put_number(struct version_edit *edit, uint64_t number) {
  (void)buffer_append_varint(&edit->payload, number);
}

static void put_bytes(struct version_edit *edit, turb_bytes bytes) {
  (void)buffer_append_sized(&edit->payload, bytes.data, bytes.size);
}

/* A field that holds up to three numbers. */
static void put_numbers(struct version_edit *edit, enum edit_tag tag, size_t count, uint64_t first, uint64_t second) {
  const size_t begin = field_begin(edit, tag);
  put_number(edit, first);
  if (count > 1) {
    put_number(edit, second);
  }
  field_end(edit, begin);
}

void edit_set_counters(struct version_edit *edit, const struct catalog_counters *counters) {
  const size_t begin = field_begin(edit, EDIT_COUNTERS);
  put_number(edit, counters->next_file);
  put_number(edit, counters->last_sequence);
  put_number(edit, counters->next_collection);
  put_number(edit, counters->next_job);
  put_number(edit, counters->next_run);
  put_number(edit, counters->next_partition);
  field_end(edit, begin);
}

void edit_set_oldest_log(struct version_edit *edit, uint64_t number) {
  put_numbers(edit, EDIT_OLDEST_LOG, 1, number, 0);
}

void edit_add_collection(struct version_edit *edit, uint64_t id, const char *name, const struct catalog_collection *collection) {
  const int64_t level = collection->compression_level;
  const size_t begin = field_begin(edit, EDIT_COLLECTION);
  put_number(edit, id);
  put_bytes(edit, (turb_bytes){name, strlen(name)});
  put_number(edit, collection->dimension);
  put_number(edit, collection->type);
  put_number(edit, collection->metric);
  put_number(edit, collection->index);
  put_number(edit, collection->compression);
  put_number(edit, ((uint64_t)level << 1) ^ (level < 0 ? UINT64_MAX : 0));
  field_end(edit, begin);
}

void edit_drop_collection(struct version_edit *edit, uint64_t id) {
  put_numbers(edit, EDIT_COLLECTION_DROP, 1, id, 0);
}

void edit_set_flushed(struct version_edit *edit, uint64_t collection_id, uint64_t sequence) {
  put_numbers(edit, EDIT_FLUSHED, 2, collection_id, sequence);
}

void edit_set_compaction(struct version_edit *edit, uint64_t collection_id, const struct catalog_compaction *compaction) {
  const size_t begin = field_begin(edit, EDIT_COMPACTION);
  put_number(edit, collection_id);
  put_number(edit, compaction->policy);
  put_number(edit, compaction->size_ratio);
  put_number(edit, compaction->max_space_amplification_percent);
  put_number(edit, compaction->fifo_max_bytes);
  put_number(edit, compaction->ttl_s);
  field_end(edit, begin);
}

void edit_add_run(struct version_edit *edit, uint64_t id, uint64_t collection_id, uint64_t partition_id, uint32_t flags,
                  const uint64_t *table_numbers, size_t table_count) {
  const size_t begin = field_begin(edit, EDIT_RUN);
  put_number(edit, id);
  put_number(edit, collection_id);
  put_number(edit, partition_id);
  put_number(edit, flags);
  put_number(edit, table_count);
  for (size_t i = 0; i < table_count; i++) {
    put_number(edit, table_numbers[i]);
  }
  field_end(edit, begin);
}

void edit_remove_run(struct version_edit *edit, uint64_t id) {
  put_numbers(edit, EDIT_RUN_REMOVED, 1, id, 0);
}

void edit_add_table(struct version_edit *edit, const struct table_record *record) {
  const size_t begin = field_begin(edit, EDIT_TABLE);
  put_number(edit, record->file_number);
  put_number(edit, record->collection_id);
  put_number(edit, record->size_bytes);
  put_number(edit, record->tail_offset);
  (void)buffer_append_u64(&edit->payload, record->seed);
  put_bytes(edit, record->lower);
  put_bytes(edit, record->upper_open ? TURB_NONE : record->upper);
  put_number(edit, record->upper_open ? 2 : record->upper_inclusive ? 1 : 0);
  put_number(edit, record->entries);
  put_number(edit, record->puts);
  put_number(edit, record->deletes);
  put_number(edit, record->range_fragments);
  put_number(edit, record->smallest_sequence);
  put_number(edit, record->largest_sequence);
  put_number(edit, record->bulk_sequence);
  (void)buffer_append_u64(&edit->payload, record->hash_sum);
  field_end(edit, begin);
}

void edit_remove_table(struct version_edit *edit, uint64_t file_number) {
  put_numbers(edit, EDIT_TABLE_REMOVED, 1, file_number, 0);
}

void edit_add_partition(struct version_edit *edit, uint64_t id, uint64_t collection_id, turb_bytes lower, turb_bytes upper, bool upper_open,
                        uint64_t codebook_id) {
  const size_t begin = field_begin(edit, EDIT_PARTITION);
  put_number(edit, id);
  put_number(edit, collection_id);
  put_bytes(edit, lower);
  put_bytes(edit, upper_open ? TURB_NONE : upper);
  put_number(edit, upper_open);
  put_number(edit, codebook_id);
  field_end(edit, begin);
}

void edit_remove_partition(struct version_edit *edit, uint64_t id) {
  put_numbers(edit, EDIT_PARTITION_REMOVED, 1, id, 0);
}

void edit_add_taken(struct version_edit *edit, uint64_t file_number, uint64_t partition_id) {
  put_numbers(edit, EDIT_TAKEN, 2, file_number, partition_id);
}

void edit_add_segment(struct version_edit *edit, uint64_t file_number, uint64_t run_id, uint64_t codebook_id, uint64_t edition,
                      uint64_t first_table_slot, const struct catalog_segment_table *tables, size_t table_count) {
  const size_t begin = field_begin(edit, EDIT_SEGMENT);
  put_number(edit, file_number);
  put_number(edit, run_id);
  put_number(edit, codebook_id);
  put_number(edit, edition);
  put_number(edit, first_table_slot);
  put_number(edit, table_count);
  for (size_t i = 0; i < table_count; i++) {
    put_number(edit, tables[i].file_number);
    put_number(edit, tables[i].row_base);
    put_bytes(edit, tables[i].clip_lower);
    put_bytes(edit, tables[i].clip_open ? TURB_NONE : tables[i].clip_upper);
    put_number(edit, tables[i].clip_open);
  }
  field_end(edit, begin);
}

void edit_remove_segment(struct version_edit *edit, uint64_t file_number) {
  put_numbers(edit, EDIT_SEGMENT_REMOVED, 1, file_number, 0);
}

void edit_add_codebook(struct version_edit *edit, uint64_t codebook_id, uint64_t edition, uint64_t file_number, uint64_t parent_edition) {
  const size_t begin = field_begin(edit, EDIT_CODEBOOK);
  put_number(edit, codebook_id);
  put_number(edit, edition);
  put_number(edit, file_number);
  put_number(edit, parent_edition);
  field_end(edit, begin);
}

void edit_remove_codebook(struct version_edit *edit, uint64_t codebook_id, uint64_t edition) {
  put_numbers(edit, EDIT_CODEBOOK_REMOVED, 2, codebook_id, edition);
}

void edit_set_job(struct version_edit *edit, uint64_t job, enum catalog_job_kind kind, uint64_t collection_id, const uint64_t *inputs,
                  size_t input_count, const struct catalog_cut *cuts, size_t cut_count) {
  const size_t begin = field_begin(edit, EDIT_JOB);
  put_number(edit, job);
  put_number(edit, kind);
  put_number(edit, collection_id);
  put_number(edit, input_count);
  for (size_t i = 0; i < input_count; i++) {
    put_number(edit, inputs[i]);
  }
  put_number(edit, cut_count);
  for (size_t i = 0; i < cut_count; i++) {
    put_number(edit, cuts[i].cut);
    put_number(edit, cuts[i].file_number);
  }
  field_end(edit, begin);
}

void edit_end_job(struct version_edit *edit, uint64_t job) {
  put_numbers(edit, EDIT_JOB_ENDED, 1, job, 0);
}

void edit_add_time_mark(struct version_edit *edit, uint64_t sequence, uint64_t unix_seconds) {
  put_numbers(edit, EDIT_TIME_MARK, 2, sequence, unix_seconds);
}

/* ---- decoding ---- */

/* A number that must fit `most`; else the reader fails. */
static uint64_t get_bounded(struct reader *field, uint64_t most) {
  const uint64_t value = reader_varint(field);
  if (value > most) {
    field->failed = true;
    return 0;
  }
  return value;
}

/* An id or file number: not 0. */
static uint64_t get_id(struct reader *field) {
  const uint64_t value = get_bounded(field, UINT64_MAX / 2);
  if (value == 0) {
    field->failed = true;
  }
  return value;
}

static bool get_bool(struct reader *field) {
  return get_bounded(field, 1) != 0;
}

static turb_bytes get_bytes(struct reader *field, size_t most) {
  size_t size = 0;
  const uint8_t *data = reader_sized(field, &size);
  if (data == NULL || size > most) {
    field->failed = true;
    return TURB_NONE;
  }
  return (turb_bytes){data, size};
}

/* A count of things of at least `least_bytes` bytes each: no more than the field can hold. */
static size_t get_count(struct reader *field, size_t least_bytes) {
  return (size_t)get_bounded(field, reader_left(field) / least_bytes);
}

/* Passes over `count` numbers, each not 0, and returns a reader of them. */
static struct reader get_ids(struct reader *field, size_t count) {
  struct reader ids = *field;
  for (size_t i = 0; i < count; i++) {
    (void)get_id(field);
  }
  ids.end = field->at;
  return ids;
}

static turb_status get_collection(struct reader *field, struct edit_change *change, turb_error *err) {
  change->id = get_id(field);
  change->collection_id = change->id;
  change->collection.name = get_bytes(field, TURB_MAX_NAME_BYTES);
  change->collection.dimension = (uint32_t)get_bounded(field, TURB_MAX_DIMENSION);
  const uint64_t type = get_bounded(field, UINT32_MAX);
  const uint64_t metric = get_bounded(field, UINT32_MAX);
  const uint64_t index = get_bounded(field, UINT32_MAX);
  const uint64_t compression = get_bounded(field, UINT32_MAX);
  const uint64_t level = get_bounded(field, UINT32_MAX);
  change->collection.compression_level = (int32_t)((int64_t)(level >> 1) ^ -(int64_t)(level & 1));
  if (field->failed || change->collection.name.size == 0 || change->collection.dimension == 0 || type == 0 || metric == 0) {
    field->failed = true;
    return TURB_OK;
  }
  if (type > TURB_BITS || metric > TURB_HAMMING || index > TURB_INDEX_EXACT || compression > TURB_COMPRESSION_ZSTD) {
    return status_set(err, TURB_NEWER_FORMAT, "collection %llu has a type, metric, index or compression that this library does not know",
                      (unsigned long long)change->id);
  }
  change->collection.type = (turb_type)type;
  change->collection.metric = (turb_metric)metric;
  change->collection.index = (turb_index)index;
  change->collection.compression = (turb_compression)compression;
  field->failed = (type == TURB_BITS) != (metric == TURB_HAMMING);
  return TURB_OK;
}

static turb_status get_compaction(struct reader *field, struct edit_change *change, turb_error *err) {
  change->id = change->collection_id = get_id(field);
  const uint64_t policy = get_bounded(field, UINT32_MAX);
  change->compaction.size_ratio = (uint32_t)get_bounded(field, EDIT_MAX_SIZE_RATIO);
  change->compaction.max_space_amplification_percent = (uint32_t)get_bounded(field, UINT32_MAX);
  change->compaction.fifo_max_bytes = reader_varint(field);
  change->compaction.ttl_s = reader_varint(field);
  if (field->failed || change->compaction.size_ratio == 1) {
    field->failed = true;
    return TURB_OK;
  }
  if (policy > TURB_COMPACTION_FIFO) {
    return status_set(err, TURB_NEWER_FORMAT, "collection %llu has a compaction policy that this library does not know",
                      (unsigned long long)change->id);
  }
  change->compaction.policy = (turb_compaction_policy)policy;
  return TURB_OK;
}

static void get_run(struct reader *field, struct edit_change *change) {
  change->id = get_id(field);
  change->collection_id = get_id(field);
  change->run.partition_id = reader_varint(field);
  change->run.flags = (uint32_t)get_bounded(field, UINT32_MAX);
  change->run.table_count = get_count(field, 1);
  change->run.numbers = get_ids(field, change->run.table_count);
}

static void get_table(struct reader *field, struct edit_change *change) {
  struct table_record *table = &change->table;
  change->id = table->file_number = get_id(field);
  change->collection_id = table->collection_id = get_id(field);
  table->size_bytes = reader_varint(field);
  table->tail_offset = reader_varint(field);
  table->seed = reader_u64(field);
  table->lower = get_bytes(field, EDIT_MAX_BOUND_BYTES);
  table->upper = get_bytes(field, EDIT_MAX_BOUND_BYTES);
  const uint64_t upper_kind = get_bounded(field, 2);
  table->upper_inclusive = upper_kind == 1;
  table->upper_open = upper_kind == 2;
  table->entries = reader_varint(field);
  table->puts = reader_varint(field);
  table->deletes = reader_varint(field);
  table->range_fragments = reader_varint(field);
  table->smallest_sequence = reader_varint(field);
  table->largest_sequence = reader_varint(field);
  table->bulk_sequence = reader_varint(field);
  table->hash_sum = reader_u64(field);
  if (table->smallest_sequence > table->largest_sequence || table->tail_offset > table->size_bytes) {
    field->failed = true;
  }
}

static void get_partition(struct reader *field, struct edit_change *change) {
  change->id = get_id(field);
  change->collection_id = get_id(field);
  change->partition.lower = get_bytes(field, EDIT_MAX_BOUND_BYTES);
  change->partition.upper = get_bytes(field, EDIT_MAX_BOUND_BYTES);
  change->partition.upper_open = get_bool(field);
  change->partition.codebook_id = reader_varint(field);
}

static void get_segment_table(struct reader *field, struct catalog_segment_table *table) {
  table->file_number = get_id(field);
  table->row_base = reader_varint(field);
  table->clip_lower = get_bytes(field, EDIT_MAX_BOUND_BYTES);
  table->clip_upper = get_bytes(field, EDIT_MAX_BOUND_BYTES);
  table->clip_open = get_bool(field);
}

void edit_next_segment_table(struct reader *tables, struct catalog_segment_table *table) {
  get_segment_table(tables, table);
  assert(!tables->failed);
}

static void get_segment(struct reader *field, struct edit_change *change) {
  change->id = get_id(field);
  change->segment.run_id = get_id(field);
  change->segment.codebook_id = reader_varint(field);
  change->segment.edition = reader_varint(field);
  change->segment.first_table_slot = reader_varint(field);
  change->segment.table_count = get_count(field, 5);
  change->segment.tables = *field;
  struct catalog_segment_table table;
  for (size_t i = 0; i < change->segment.table_count && !field->failed; i++) {
    get_segment_table(field, &table);
  }
  change->segment.tables.end = field->at;
}

static void get_job(struct reader *field, struct edit_change *change) {
  change->id = get_id(field);
  change->job.kind = (enum catalog_job_kind)get_bounded(field, UINT32_MAX);
  change->collection_id = get_id(field);
  change->job.input_count = get_count(field, 1);
  change->job.inputs = get_ids(field, change->job.input_count);
  change->job.cut_count = get_count(field, 2);
  change->job.cuts = *field;
  for (size_t i = 0; i < change->job.cut_count && !field->failed; i++) {
    (void)reader_varint(field);
    (void)get_id(field);
  }
  change->job.cuts.end = field->at;
}

/* Decodes the field of a known tag; *known is false for any other. What does not hold fails the field. */
static turb_status get_change(uint64_t tag, struct reader *field, struct edit_change *change, bool *known, turb_error *err) {
  *known = true;
  change->tag = (enum edit_tag)tag;
  switch (tag) {
  case EDIT_COUNTERS:
    change->counters.next_file = reader_varint(field);
    change->counters.last_sequence = reader_varint(field);
    change->counters.next_collection = reader_varint(field);
    change->counters.next_job = reader_varint(field);
    change->counters.next_run = reader_varint(field);
    change->counters.next_partition = reader_varint(field);
    break;
  case EDIT_OLDEST_LOG: change->id = get_bounded(field, UINT64_MAX / 2); break;
  case EDIT_COLLECTION: return get_collection(field, change, err);
  case EDIT_COLLECTION_DROP:
  case EDIT_RUN_REMOVED:
  case EDIT_TABLE_REMOVED:
  case EDIT_PARTITION_REMOVED:
  case EDIT_SEGMENT_REMOVED:
  case EDIT_JOB_ENDED: change->id = get_id(field); break;
  case EDIT_FLUSHED:
    change->id = change->collection_id = get_id(field);
    change->sequence = reader_varint(field);
    break;
  case EDIT_COMPACTION: return get_compaction(field, change, err);
  case EDIT_RUN: get_run(field, change); break;
  case EDIT_TABLE: get_table(field, change); break;
  case EDIT_PARTITION: get_partition(field, change); break;
  case EDIT_TAKEN:
    change->id = get_id(field);
    change->partition_id = get_id(field);
    break;
  case EDIT_SEGMENT: get_segment(field, change); break;
  case EDIT_CODEBOOK:
    change->id = get_id(field);
    change->codebook.edition = reader_varint(field);
    change->codebook.file_number = get_id(field);
    change->codebook.parent_edition = reader_varint(field);
    break;
  case EDIT_CODEBOOK_REMOVED:
    change->id = get_id(field);
    change->codebook.edition = reader_varint(field);
    break;
  case EDIT_JOB: get_job(field, change); break;
  case EDIT_TIME_MARK:
    change->time_mark.sequence = reader_varint(field);
    change->time_mark.unix_seconds = reader_varint(field);
    break;
  default: *known = false; break;
  }
  return TURB_OK;
}

turb_status edit_next(struct reader *payload, struct edit_change *change, bool *more, turb_error *err) {
  *more = false;
  while (reader_left(payload) != 0) {
    *change = (struct edit_change){.tag = (enum edit_tag)0};
    const uint64_t tag = reader_varint(payload);
    size_t size = 0;
    const uint8_t *bytes = reader_sized(payload, &size);
    if (bytes == NULL) {
      return status_set(err, TURB_CORRUPTION, "a version edit is cut short in its field with tag %llu", (unsigned long long)tag);
    }
    struct reader field;
    reader_init(&field, bytes, size);
    bool known = false;
    const turb_status status = get_change(tag, &field, change, &known, err);
    if (status != TURB_OK) {
      return status;
    }
    if (field.failed) {
      return status_set(err, TURB_CORRUPTION, "a version edit's field with tag %llu does not hold", (unsigned long long)tag);
    }
    if (known) {
      *more = true;
      return TURB_OK;
    }
    if (tag % 2 != 0) {
      return status_set(err, TURB_NEWER_FORMAT, "a version edit has a field with the unknown tag %llu", (unsigned long long)tag);
    }
  }
  return TURB_OK;
}

turb_status edit_encode(const struct version_edit *edit, turb_bytes *payload, turb_error *err) {
  *payload = TURB_NONE;
  if (buffer_status(&edit->payload) != TURB_OK) {
    return status_set(err, TURB_NO_MEMORY, "no memory for a version edit");
  }
  *payload = (turb_bytes){edit->payload.data, edit->payload.size};
  return TURB_OK;
}

turb_status edit_decode(struct version_edit *edit, turb_bytes payload, turb_error *err) {
  struct reader reader;
  reader_init(&reader, payload.data, payload.size);
  for (;;) {
    struct edit_change change;
    bool more = false;
    const turb_status status = edit_next(&reader, &change, &more, err);
    if (status != TURB_OK) {
      return status;
    }
    if (!more) {
      break;
    }
    edit->changes++;
  }
  if (buffer_append(&edit->payload, payload.data, payload.size) != TURB_OK) {
    return status_set(err, TURB_NO_MEMORY, "no memory for a version edit");
  }
  return TURB_OK;
}
