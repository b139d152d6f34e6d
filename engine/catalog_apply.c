/*
 * Changing the catalog: an edit is staged, checked as a whole, and committed or rolled back; see catalog.h and catalog_parts.h.
 *
 * Staging takes all the memory that the commit needs. Its steps: what the edit removes (or replaces) becomes LEAVING, what it adds is made
 * and
 * becomes ARRIVING, then the staged state is checked where the edit touched it. Every step leaves lists of both, so that a rollback undoes
 * as much as was done.
 */
#include <assert.h>
#include <stdlib.h>

#include "base/key.h"
#include "engine/catalog_parts.h"

/* Above so many new runs or partitions, neighbours are compared in sorted order instead of each with all others. */
#define PAIRWISE_MOST 8u

#define THIN_LEAST      1024u
#define SECONDS_MINUTE  60u
#define SECONDS_HOUR    3600u
#define SECONDS_DAY     86400u
#define THIN_FULL_DAYS  2u
#define THIN_HOURS_DAYS 60u

struct object_list {
  struct catalog_object **objects;
  size_t count, capacity;
};

struct collection_update { /* of what changes in place when the edit is committed */
  struct catalog_collection *collection;
  enum edit_tag tag; /* EDIT_FLUSHED or EDIT_COMPACTION */
  uint64_t flushed_sequence;
  struct catalog_compaction compaction;
};

struct catalog_stage {
  struct object_list arriving, leaving;
  struct catalog_counters counters;
  uint64_t oldest_log;
  struct collection_update *updates;
  size_t update_count;
  struct catalog_time_mark *marks;
  size_t mark_count;
  size_t changes; /* the capacity of updates and marks */
  bool kinds_leaving[CATALOG_KINDS];
};

static turb_status no_memory(turb_error *err) {
  return status_set(err, TURB_NO_MEMORY, "no memory to apply a version edit");
}

static turb_status refuse(turb_error *err, const char *what, uint64_t id) {
  return status_set(err, TURB_INVALID, "a version edit does not fit: %s %llu", what, (unsigned long long)id);
}

static void *staged(const struct catalog *catalog, enum catalog_kind kind, uint64_t id, uint64_t second_id) {
  return catalog_map_find(&catalog->maps[kind], id, second_id, true);
}

/* Walks the staged state of a kind. */
static void *staged_next(const struct catalog *catalog, enum catalog_kind kind, size_t *at) {
  const struct catalog_map *map = &catalog->maps[kind];
  while (*at < map->capacity) {
    struct catalog_object *object = map->slots[(*at)++];
    if (object != NULL && catalog_is_in(object, true)) {
      return object;
    }
  }
  return NULL;
}

static bool list_reserve(struct object_list *list, const turb_allocator *allocator, size_t more) {
  if (list->capacity - list->count >= more) {
    return true;
  }
  const size_t capacity = list->count + more > 2 * list->capacity ? list->count + more : 2 * list->capacity;
  struct catalog_object **objects = mem_resize(allocator, list->objects, list->capacity * sizeof *objects, capacity * sizeof *objects);
  if (objects == NULL) {
    return false;
  }
  list->objects = objects;
  list->capacity = capacity;
  return true;
}

/* ---- removals ---- */

static turb_status leave(struct catalog *catalog, struct catalog_object *object, turb_error *err) {
  assert(object->stage == CATALOG_SETTLED);
  struct catalog_stage *stage = catalog->stage;
  if (!list_reserve(&stage->leaving, catalog->allocator, 1)) {
    return no_memory(err);
  }
  stage->leaving.objects[stage->leaving.count++] = object;
  object->stage = CATALOG_LEAVING;
  stage->kinds_leaving[object->kind] = true;
  if (object->kind == CATALOG_COLLECTION) {
    ((struct catalog_collection *)(void *)object)->name_object.stage = CATALOG_LEAVING;
  }
  return TURB_OK;
}

/* The ranges taken of a table go with it. */
static turb_status leave_table(struct catalog *catalog, struct catalog_object *object, turb_error *err) {
  struct catalog_table *table = (void *)object;
  for (struct catalog_taken *taken = table->taken; taken != NULL; taken = taken->next) {
    const turb_status status = taken->object.stage == CATALOG_SETTLED ? leave(catalog, &taken->object, err) : TURB_OK;
    if (status != TURB_OK) {
      return status;
    }
  }
  return leave(catalog, object, err);
}

/* Takes along all of a kind that `belongs`. */
static turb_status leave_with(struct catalog *catalog, enum catalog_kind kind,
                              bool (*belongs)(const struct catalog *, const struct catalog_object *, uint64_t), uint64_t id,
                              turb_error *err) {
  const struct catalog_map *map = &catalog->maps[kind];
  for (size_t slot = 0; slot < map->capacity; slot++) {
    struct catalog_object *object = map->slots[slot];
    if (object == NULL || object->stage != CATALOG_SETTLED || !belongs(catalog, object, id)) {
      continue;
    }
    const turb_status status = kind == CATALOG_TABLE ? leave_table(catalog, object, err) : leave(catalog, object, err);
    if (status != TURB_OK) {
      return status;
    }
  }
  return TURB_OK;
}

static bool taken_by(const struct catalog *catalog, const struct catalog_object *object, uint64_t partition_id) {
  (void)catalog;
  return object->second_id == partition_id;
}

static bool is_of_collection(const struct catalog *catalog, const struct catalog_object *object, uint64_t collection_id) {
  switch (object->kind) {
  case CATALOG_TABLE: return ((const struct catalog_table *)(const void *)object)->record.collection_id == collection_id;
  case CATALOG_RUN: return ((const struct catalog_run *)(const void *)object)->collection_id == collection_id;
  case CATALOG_PARTITION: return ((const struct catalog_partition *)(const void *)object)->collection_id == collection_id;
  case CATALOG_JOB: return ((const struct catalog_job *)(const void *)object)->collection_id == collection_id;
  case CATALOG_SEGMENT: {
    const struct catalog_run *run = catalog_run(catalog, ((const struct catalog_segment *)(const void *)object)->run_id);
    return run != NULL && run->collection_id == collection_id;
  }
  default: return false;
  }
}

static turb_status leave_collection(struct catalog *catalog, struct catalog_object *object, turb_error *err) {
  static const enum catalog_kind kinds[] = {CATALOG_SEGMENT, CATALOG_TABLE, CATALOG_RUN, CATALOG_PARTITION, CATALOG_JOB};
  turb_status status = leave(catalog, object, err);
  for (size_t i = 0; i < sizeof kinds / sizeof kinds[0] && status == TURB_OK; i++) {
    status = leave_with(catalog, kinds[i], is_of_collection, object->id, err);
  }
  return status;
}

/* Carries out a change that removes; others are passed over. */
static turb_status stage_removal(struct catalog *catalog, const struct edit_change *change, turb_error *err) {
  enum catalog_kind kind = CATALOG_KINDS;
  const char *what = "";
  uint64_t second_id = 0;
  switch (change->tag) {
  case EDIT_COLLECTION_DROP: kind = CATALOG_COLLECTION, what = "it drops the unknown collection"; break;
  case EDIT_RUN_REMOVED: kind = CATALOG_RUN, what = "it removes the unknown run"; break;
  case EDIT_TABLE_REMOVED: kind = CATALOG_TABLE, what = "it removes the unknown table"; break;
  case EDIT_PARTITION_REMOVED: kind = CATALOG_PARTITION, what = "it removes the unknown partition"; break;
  case EDIT_SEGMENT_REMOVED: kind = CATALOG_SEGMENT, what = "it removes the unknown segment"; break;
  case EDIT_JOB_ENDED: kind = CATALOG_JOB; break;
  case EDIT_CODEBOOK_REMOVED:
    kind = CATALOG_CODEBOOK, what = "it removes an unknown edition of codebook";
    second_id = change->codebook.edition;
    break;
  default: return TURB_OK;
  }
  struct catalog_object *object = staged(catalog, kind, change->id, second_id);
  if (object == NULL) {
    /* What something else has taken along already may be named too. */
    const bool leaves = catalog_map_find(&catalog->maps[kind], change->id, second_id, false) != NULL;
    return leaves || kind == CATALOG_JOB ? TURB_OK : refuse(err, what, change->id);
  }
  switch (kind) {
  case CATALOG_COLLECTION: return leave_collection(catalog, object, err);
  case CATALOG_TABLE: return leave_table(catalog, object, err);
  case CATALOG_PARTITION: {
    const turb_status status = leave_with(catalog, CATALOG_TAKEN, taken_by, change->id, err);
    return status == TURB_OK ? leave(catalog, object, err) : status;
  }
  default: return leave(catalog, object, err);
  }
}

/* ---- additions ---- */

static void raise(uint64_t *counter, uint64_t value) {
  if (*counter < value) {
    *counter = value;
  }
}

/* A zeroed object in no table yet. */
static void *make_object(const struct catalog *catalog, enum catalog_kind kind, uint64_t id, uint64_t second_id, size_t size_bytes) {
  struct catalog_object *object = mem_alloc_zeroed(catalog->allocator, size_bytes);
  if (object != NULL) {
    *object = (struct catalog_object){
        .id = id, .second_id = second_id, .size_bytes = size_bytes, .kind = (uint8_t)kind, .stage = CATALOG_ARRIVING};
  }
  return object;
}

/* Puts a new object into its table and the stage's list; on failure it is released. */
static turb_status arrive(struct catalog *catalog, struct catalog_object *object, turb_error *err) {
  if (object == NULL) {
    return no_memory(err);
  }
  struct catalog_stage *stage = catalog->stage;
  const bool named = object->kind == CATALOG_COLLECTION;
  if (!list_reserve(&stage->arriving, catalog->allocator, 1) || !catalog_map_reserve(&catalog->maps[object->kind], catalog->allocator, 1) ||
      (named && !catalog_map_reserve(&catalog->maps[CATALOG_NAME], catalog->allocator, 1))) {
    mem_free(catalog->allocator, object, object->size_bytes);
    return no_memory(err);
  }
  stage->arriving.objects[stage->arriving.count++] = object;
  catalog_map_insert(&catalog->maps[object->kind], object);
  catalog->arriving[object->kind]++;
  if (named) {
    catalog_map_insert(&catalog->maps[CATALOG_NAME], &((struct catalog_collection *)(void *)object)->name_object);
    catalog->arriving[CATALOG_NAME]++;
  }
  return TURB_OK;
}

/* Makes way for a new object of an id: one that is there leaves when the kind can be replaced, else it is an error. */
static turb_status make_way(struct catalog *catalog, enum catalog_kind kind, uint64_t id, uint64_t second_id, bool replaces,
                            const char *what, turb_error *err) {
  struct catalog_object *object = staged(catalog, kind, id, second_id);
  if (object == NULL) {
    return TURB_OK;
  }
  if (!replaces || object->stage == CATALOG_ARRIVING) {
    return refuse(err, what, id);
  }
  return leave(catalog, object, err);
}

static turb_status add_collection(struct catalog *catalog, const struct edit_change *change, turb_error *err) {
  const turb_status status = make_way(catalog, CATALOG_COLLECTION, change->id, 0, false, "it adds once more collection", err);
  if (status != TURB_OK) {
    return status;
  }
  const turb_bytes name = change->collection.name;
  if (catalog_find_name(catalog, name.data, name.size, true) != NULL) {
    return refuse(err, "another collection has the name of collection", change->id);
  }
  struct catalog_collection *collection = make_object(catalog, CATALOG_COLLECTION, change->id, 0, sizeof *collection);
  if (collection != NULL) {
    collection->name_object =
        (struct catalog_object){.id = catalog_name_hash(name.data, name.size), .kind = CATALOG_NAME, .stage = CATALOG_ARRIVING};
    collection->dimension = change->collection.dimension;
    collection->type = change->collection.type;
    collection->metric = change->collection.metric;
    collection->index = change->collection.index;
    collection->compression = change->collection.compression;
    collection->compression_level = change->collection.compression_level;
    collection->name_size = name.size;
    memcpy(collection->name, name.data, name.size);
  }
  return arrive(catalog, collection != NULL ? &collection->object : NULL, err);
}

/* Copies bytes to *to, which moves on, and returns the copy. */
static turb_bytes take_bytes(uint8_t **to, turb_bytes bytes) {
  const turb_bytes copy = {*to, bytes.size};
  if (bytes.size != 0) {
    memcpy(*to, bytes.data, bytes.size);
    *to += bytes.size;
  }
  return copy;
}

static turb_status add_table(struct catalog *catalog, const struct edit_change *change, turb_error *err) {
  const turb_status status = make_way(catalog, CATALOG_TABLE, change->id, 0, false, "it adds once more table", err);
  if (status != TURB_OK) {
    return status;
  }
  const struct table_record *record = &change->table;
  const int order = key_compare(record->lower.data, record->lower.size, record->upper.data, record->upper.size);
  if (!record->upper_open && (record->upper_inclusive ? order > 0 : order >= 0)) {
    return refuse(err, "the bounds are in the wrong order of table", change->id);
  }
  struct catalog_table *table = make_object(catalog, CATALOG_TABLE, change->id, 0, sizeof *table + record->lower.size + record->upper.size);
  if (table != NULL) {
    uint8_t *keys = (uint8_t *)(table + 1);
    table->record = *record;
    table->record.lower = take_bytes(&keys, record->lower);
    table->record.upper = take_bytes(&keys, record->upper);
  }
  return arrive(catalog, table != NULL ? &table->object : NULL, err);
}

static turb_status add_run(struct catalog *catalog, const struct edit_change *change, turb_error *err) {
  const turb_status status = make_way(catalog, CATALOG_RUN, change->id, 0, true, "it adds twice run", err);
  if (status != TURB_OK) {
    return status;
  }
  const size_t count = change->run.table_count;
  if (count == 0) {
    return refuse(err, "there are no tables in run", change->id);
  }
  struct catalog_run *run =
      make_object(catalog, CATALOG_RUN, change->id, 0, sizeof *run + count * (sizeof run->table_numbers[0] + sizeof run->tables[0]));
  if (run != NULL) {
    run->collection_id = change->collection_id;
    run->partition_id = change->run.partition_id;
    run->flags = change->run.flags;
    run->table_count = count;
    run->tables = (const struct catalog_table **)(void *)(run->table_numbers + count);
    struct reader numbers = change->run.numbers;
    for (size_t i = 0; i < count; i++) {
      run->table_numbers[i] = reader_varint(&numbers);
    }
  }
  return arrive(catalog, run != NULL ? &run->object : NULL, err);
}

static turb_status add_partition(struct catalog *catalog, const struct edit_change *change, turb_error *err) {
  const turb_status status = make_way(catalog, CATALOG_PARTITION, change->id, 0, true, "it adds twice partition", err);
  if (status != TURB_OK) {
    return status;
  }
  const turb_bytes lower = change->partition.lower;
  const turb_bytes upper = change->partition.upper;
  if (!change->partition.upper_open && key_compare(lower.data, lower.size, upper.data, upper.size) >= 0) {
    return refuse(err, "the bounds are in the wrong order of partition", change->id);
  }
  struct catalog_partition *partition = make_object(catalog, CATALOG_PARTITION, change->id, 0, sizeof *partition + lower.size + upper.size);
  if (partition != NULL) {
    uint8_t *keys = (uint8_t *)(partition + 1);
    partition->collection_id = change->collection_id;
    partition->codebook_id = change->partition.codebook_id;
    partition->upper_open = change->partition.upper_open;
    partition->lower = take_bytes(&keys, lower);
    partition->upper = take_bytes(&keys, upper);
  }
  return arrive(catalog, partition != NULL ? &partition->object : NULL, err);
}

static turb_status add_segment(struct catalog *catalog, const struct edit_change *change, turb_error *err) {
  const turb_status status = make_way(catalog, CATALOG_SEGMENT, change->id, 0, true, "it adds twice segment", err);
  if (status != TURB_OK) {
    return status;
  }
  const size_t count = change->segment.table_count;
  struct catalog_segment *segment = NULL;
  struct reader tables = change->segment.tables;
  size_t size = sizeof *segment + count * sizeof segment->tables[0];
  for (size_t i = 0; i < count; i++) {
    struct catalog_segment_table table;
    edit_next_segment_table(&tables, &table);
    size += table.clip_lower.size + table.clip_upper.size;
  }
  segment = make_object(catalog, CATALOG_SEGMENT, change->id, 0, size);
  if (segment != NULL) {
    segment->run_id = change->segment.run_id;
    segment->codebook_id = change->segment.codebook_id;
    segment->edition = change->segment.edition;
    segment->first_table_slot = change->segment.first_table_slot;
    segment->table_count = count;
    uint8_t *keys = (uint8_t *)(segment->tables + count);
    tables = change->segment.tables;
    for (size_t i = 0; i < count; i++) {
      edit_next_segment_table(&tables, &segment->tables[i]);
      segment->tables[i].clip_lower = take_bytes(&keys, segment->tables[i].clip_lower);
      segment->tables[i].clip_upper = take_bytes(&keys, segment->tables[i].clip_upper);
    }
  }
  return arrive(catalog, segment != NULL ? &segment->object : NULL, err);
}

static turb_status add_codebook(struct catalog *catalog, const struct edit_change *change, turb_error *err) {
  const uint64_t edition = change->codebook.edition;
  const turb_status status =
      make_way(catalog, CATALOG_CODEBOOK, change->id, edition, false, "it adds once more an edition of codebook", err);
  if (status != TURB_OK) {
    return status;
  }
  struct catalog_codebook *codebook = make_object(catalog, CATALOG_CODEBOOK, change->id, edition, sizeof *codebook);
  if (codebook != NULL) {
    codebook->file_number = change->codebook.file_number;
    codebook->parent_edition = change->codebook.parent_edition;
  }
  return arrive(catalog, codebook != NULL ? &codebook->object : NULL, err);
}

static turb_status add_taken(struct catalog *catalog, const struct edit_change *change, turb_error *err) {
  const turb_status status =
      make_way(catalog, CATALOG_TAKEN, change->id, change->partition_id, false, "a range is taken once more from table", err);
  if (status != TURB_OK) {
    return status;
  }
  struct catalog_taken *taken = make_object(catalog, CATALOG_TAKEN, change->id, change->partition_id, sizeof *taken);
  return arrive(catalog, taken != NULL ? &taken->object : NULL, err);
}

static turb_status add_job(struct catalog *catalog, const struct edit_change *change, turb_error *err) {
  const turb_status status = make_way(catalog, CATALOG_JOB, change->id, 0, true, "it adds twice job", err);
  if (status != TURB_OK) {
    return status;
  }
  const size_t inputs_size = change->job.input_count * sizeof(uint64_t);
  struct catalog_job *job =
      make_object(catalog, CATALOG_JOB, change->id, 0, sizeof *job + inputs_size + change->job.cut_count * sizeof(struct catalog_cut));
  if (job != NULL) {
    uint64_t *inputs = (uint64_t *)(job + 1);
    struct catalog_cut *cuts = (struct catalog_cut *)(inputs + change->job.input_count);
    struct reader reader = change->job.inputs;
    for (size_t i = 0; i < change->job.input_count; i++) {
      inputs[i] = reader_varint(&reader);
    }
    reader = change->job.cuts;
    for (size_t i = 0; i < change->job.cut_count; i++) {
      cuts[i].cut = reader_varint(&reader);
      cuts[i].file_number = reader_varint(&reader);
      raise(&catalog->stage->counters.next_file, cuts[i].file_number + 1);
    }
    job->kind = change->job.kind;
    job->collection_id = change->collection_id;
    job->input_count = change->job.input_count;
    job->cut_count = change->job.cut_count;
    job->inputs = inputs;
    job->cuts = cuts;
  }
  return arrive(catalog, job != NULL ? &job->object : NULL, err);
}

static void raise_counters(struct catalog_counters *counters, const struct catalog_counters *to) {
  raise(&counters->next_file, to->next_file);
  raise(&counters->last_sequence, to->last_sequence);
  raise(&counters->next_collection, to->next_collection);
  raise(&counters->next_job, to->next_job);
  raise(&counters->next_run, to->next_run);
  raise(&counters->next_partition, to->next_partition);
}

/* Carries out a change that adds or sets; others are passed over. */
static turb_status stage_addition(struct catalog *catalog, const struct edit_change *change, turb_error *err) {
  struct catalog_stage *stage = catalog->stage;
  struct catalog_counters *counters = &stage->counters;
  switch (change->tag) {
  case EDIT_COUNTERS: raise_counters(counters, &change->counters); return TURB_OK;
  case EDIT_OLDEST_LOG:
    raise(&counters->next_file, change->id + 1);
    raise(&stage->oldest_log, change->id);
    return TURB_OK;
  case EDIT_COLLECTION: raise(&counters->next_collection, change->id + 1); return add_collection(catalog, change, err);
  case EDIT_RUN: raise(&counters->next_run, change->id + 1); return add_run(catalog, change, err);
  case EDIT_TABLE:
    raise(&counters->next_file, change->id + 1);
    raise(&counters->last_sequence, change->table.largest_sequence);
    return add_table(catalog, change, err);
  case EDIT_PARTITION: raise(&counters->next_partition, change->id + 1); return add_partition(catalog, change, err);
  case EDIT_TAKEN: return add_taken(catalog, change, err);
  case EDIT_SEGMENT: raise(&counters->next_file, change->id + 1); return add_segment(catalog, change, err);
  case EDIT_CODEBOOK: raise(&counters->next_file, change->codebook.file_number + 1); return add_codebook(catalog, change, err);
  case EDIT_JOB: raise(&counters->next_job, change->id + 1); return add_job(catalog, change, err);
  case EDIT_TIME_MARK: stage->marks[stage->mark_count++] = change->time_mark; return TURB_OK;
  default: return TURB_OK; /* removals; updates of collections come last */
  }
}

static turb_status stage_update(struct catalog *catalog, const struct edit_change *change, turb_error *err) {
  if (change->tag != EDIT_FLUSHED && change->tag != EDIT_COMPACTION) {
    return TURB_OK;
  }
  struct catalog_collection *collection = staged(catalog, CATALOG_COLLECTION, change->id, 0);
  if (collection == NULL) {
    return refuse(err, change->tag == EDIT_FLUSHED ? "entries are flushed of the unknown collection" : "it tunes the unknown collection",
                  change->id);
  }
  struct catalog_stage *stage = catalog->stage;
  struct collection_update *update = &stage->updates[stage->update_count++];
  *update = (struct collection_update){.collection = collection, .tag = change->tag};
  if (change->tag == EDIT_FLUSHED) {
    update->flushed_sequence = change->sequence;
  } else {
    update->compaction = change->compaction;
  }
  return TURB_OK;
}

/* ---- checks of the staged state ---- */

/* Whether `left` ends before `right` begins. */
static bool tables_ascend(const struct table_record *left, const struct table_record *right) {
  if (left->upper_open) {
    return false;
  }
  const int order = key_compare(left->upper.data, left->upper.size, right->lower.data, right->lower.size);
  return left->upper_inclusive ? order < 0 : order <= 0;
}

/* Finds and claims the tables of a new run, and adds them up. */
static turb_status check_run(struct catalog *catalog, struct catalog_run *run, turb_error *err) {
  const uint64_t id = run->object.id;
  if (staged(catalog, CATALOG_COLLECTION, run->collection_id, 0) == NULL) {
    return refuse(err, "the collection is unknown of run", id);
  }
  if (run->partition_id != 0) {
    const struct catalog_partition *partition = staged(catalog, CATALOG_PARTITION, run->partition_id, 0);
    if (partition == NULL || partition->collection_id != run->collection_id) {
      return refuse(err, "the partition is unknown of run", id);
    }
  }
  run->smallest_sequence = UINT64_MAX;
  for (size_t i = 0; i < run->table_count; i++) {
    struct catalog_table *table = staged(catalog, CATALOG_TABLE, run->table_numbers[i], 0);
    if (table == NULL || table->record.collection_id != run->collection_id) {
      return refuse(err, "a table is unknown of run", id);
    }
    const struct catalog_object *owner = table->run_id != 0 ? staged(catalog, CATALOG_RUN, table->run_id, 0) : NULL;
    if (table->claimed_by != 0 || (owner != NULL && owner->stage == CATALOG_SETTLED)) {
      return refuse(err, "two runs hold table", table->object.id);
    }
    if (i > 0 && !tables_ascend(&run->tables[i - 1]->record, &table->record)) {
      return refuse(err, "the tables overlap or do not ascend of run", id);
    }
    table->claimed_by = id;
    run->tables[i] = table;
    run->entries += table->record.entries;
    run->bytes += table->record.size_bytes;
    if (table->record.smallest_sequence < run->smallest_sequence) {
      run->smallest_sequence = table->record.smallest_sequence;
    }
    if (table->record.largest_sequence > run->largest_sequence) {
      run->largest_sequence = table->record.largest_sequence;
    }
  }
  return TURB_OK;
}

/* Two runs of the same partition of the same collection whose sequence ranges meet. */
static bool runs_collide(const struct catalog_run *a, const struct catalog_run *b) {
  return a != b && a->collection_id == b->collection_id && a->partition_id == b->partition_id &&
         ((a->flags | b->flags) & CATALOG_RUN_QUARANTINED) == 0 && a->smallest_sequence <= b->largest_sequence &&
         b->smallest_sequence <= a->largest_sequence;
}

/* By collection, partition, and smallest sequence; quarantined ones last. */
static int compare_for_collision(const void *a, const void *b) {
  const struct catalog_run *left = *(const struct catalog_run *const *)a;
  const struct catalog_run *right = *(const struct catalog_run *const *)b;
  const uint64_t keys[][2] = {
      {left->flags & CATALOG_RUN_QUARANTINED, right->flags & CATALOG_RUN_QUARANTINED},
      {left->collection_id, right->collection_id},
      {left->partition_id, right->partition_id},
      {left->smallest_sequence, right->smallest_sequence},
  };
  for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
    if (keys[i][0] != keys[i][1]) {
      return keys[i][0] < keys[i][1] ? -1 : 1;
    }
  }
  return 0;
}

static bool partitions_collide(const struct catalog_partition *a, const struct catalog_partition *b) {
  return a != b && a->collection_id == b->collection_id &&
         (a->upper_open || key_compare(b->lower.data, b->lower.size, a->upper.data, a->upper.size) < 0) &&
         (b->upper_open || key_compare(a->lower.data, a->lower.size, b->upper.data, b->upper.size) < 0);
}

static int compare_partitions(const void *a, const void *b) {
  const struct catalog_partition *left = *(const struct catalog_partition *const *)a;
  const struct catalog_partition *right = *(const struct catalog_partition *const *)b;
  if (left->collection_id != right->collection_id) {
    return left->collection_id < right->collection_id ? -1 : 1;
  }
  return key_compare(left->lower.data, left->lower.size, right->lower.data, right->lower.size);
}

static bool collide(enum catalog_kind kind, const void *a, const void *b) {
  return kind == CATALOG_RUN ? runs_collide(a, b) : partitions_collide(a, b);
}

/* Of many new ones: all of the staged state in order, neighbours compared. */
static turb_status check_collisions_sorted(const struct catalog *catalog, enum catalog_kind kind, const char *what, turb_error *err) {
  const size_t most = catalog->maps[kind].count;
  const struct catalog_object **objects = mem_alloc(catalog->allocator, most * sizeof *objects);
  if (objects == NULL) {
    return no_memory(err);
  }
  size_t count = 0;
  const void *object = NULL;
  for (size_t at = 0; (object = staged_next(catalog, kind, &at)) != NULL;) {
    objects[count++] = object;
  }
  if (count > 1) {
    qsort(objects, count, sizeof *objects, kind == CATALOG_RUN ? compare_for_collision : compare_partitions);
  }
  turb_status status = TURB_OK;
  for (size_t i = 1; i < count && status == TURB_OK; i++) {
    if (collide(kind, objects[i - 1], objects[i])) {
      status = refuse(err, what, objects[i]->id);
    }
  }
  mem_free(catalog->allocator, objects, most * sizeof *objects);
  return status;
}

/* New runs against the others by sequence numbers, new partitions by key ranges. */
static turb_status check_collisions(const struct catalog *catalog, enum catalog_kind kind, const char *what, turb_error *err) {
  const struct object_list *arriving = &catalog->stage->arriving;
  if (catalog->arriving[kind] > PAIRWISE_MOST) {
    return check_collisions_sorted(catalog, kind, what, err);
  }
  for (size_t i = 0; i < arriving->count; i++) {
    if (arriving->objects[i]->kind != kind) {
      continue;
    }
    const void *other = NULL;
    for (size_t at = 0; (other = staged_next(catalog, kind, &at)) != NULL;) {
      if (collide(kind, arriving->objects[i], other)) {
        return refuse(err, what, arriving->objects[i]->id);
      }
    }
  }
  return TURB_OK;
}

static turb_status check_segment(const struct catalog *catalog, const struct catalog_segment *segment, turb_error *err) {
  const uint64_t id = segment->object.id;
  const struct catalog_run *run = staged(catalog, CATALOG_RUN, segment->run_id, 0);
  if (run == NULL) {
    return refuse(err, "the run is unknown of segment", id);
  }
  if (segment->first_table_slot > run->table_count || segment->table_count > run->table_count - segment->first_table_slot) {
    return refuse(err, "the tables reach beyond the run's of segment", id);
  }
  for (size_t i = 0; i < segment->table_count; i++) {
    if (segment->tables[i].file_number != run->table_numbers[segment->first_table_slot + i]) {
      return refuse(err, "the tables are not the run's of segment", id);
    }
  }
  if (segment->codebook_id != 0 && staged(catalog, CATALOG_CODEBOOK, segment->codebook_id, segment->edition) == NULL) {
    return refuse(err, "the codebook edition is unknown of segment", id);
  }
  return TURB_OK;
}

static turb_status check_taken(const struct catalog *catalog, const struct catalog_taken *taken, turb_error *err) {
  const struct catalog_table *table = staged(catalog, CATALOG_TABLE, taken->object.id, 0);
  const struct catalog_partition *partition = staged(catalog, CATALOG_PARTITION, taken->object.second_id, 0);
  if (table == NULL || partition == NULL || table->record.collection_id != partition->collection_id) {
    return refuse(err, "a partition has taken from the unknown table", taken->object.id);
  }
  const struct catalog_run *run = staged(catalog, CATALOG_RUN, table->claimed_by != 0 ? table->claimed_by : table->run_id, 0);
  if (run == NULL || run->partition_id != 0) {
    return refuse(err, "a partition has taken from what is no upper table:", taken->object.id);
  }
  return TURB_OK;
}

/* One new object, once all runs have claimed their tables. */
static turb_status check_arriving(const struct catalog *catalog, const struct catalog_object *object, turb_error *err) {
  switch (object->kind) {
  case CATALOG_TABLE:
    return ((const struct catalog_table *)(const void *)object)->claimed_by != 0 ? TURB_OK
                                                                                 : refuse(err, "no run holds the new table", object->id);
  case CATALOG_PARTITION:
    return staged(catalog, CATALOG_COLLECTION, ((const struct catalog_partition *)(const void *)object)->collection_id, 0) != NULL
               ? TURB_OK
               : refuse(err, "the collection is unknown of partition", object->id);
  case CATALOG_JOB:
    return staged(catalog, CATALOG_COLLECTION, ((const struct catalog_job *)(const void *)object)->collection_id, 0) != NULL
               ? TURB_OK
               : refuse(err, "the collection is unknown of job", object->id);
  case CATALOG_TAKEN: return check_taken(catalog, (const struct catalog_taken *)(const void *)object, err);
  case CATALOG_SEGMENT: return check_segment(catalog, (const struct catalog_segment *)(const void *)object, err);
  default: return TURB_OK;
  }
}

/* What leaves must not be missed by what stays. */
static turb_status check_leaving(const struct catalog *catalog, const struct catalog_object *object, turb_error *err) {
  if (object->kind == CATALOG_TABLE) {
    const struct catalog_run *run = staged(catalog, CATALOG_RUN, ((const struct catalog_table *)(const void *)object)->run_id, 0);
    if (run != NULL && run->object.stage == CATALOG_SETTLED) {
      return refuse(err, "a run still holds the removed table", object->id);
    }
  } else if (object->kind == CATALOG_RUN) {
    const struct catalog_run *run = (const void *)object;
    for (size_t i = 0; i < run->table_count; i++) {
      const struct catalog_table *table = run->tables[i];
      if (table->object.stage == CATALOG_SETTLED && table->claimed_by == 0) {
        return refuse(err, "no run holds any more table", table->object.id);
      }
    }
  }
  return TURB_OK;
}

/* References of what stays to kinds of which something leaves. */
static turb_status check_references(const struct catalog *catalog, turb_error *err) {
  const bool *leaving = catalog->stage->kinds_leaving;
  const void *object = NULL;
  if (leaving[CATALOG_RUN] || leaving[CATALOG_CODEBOOK]) {
    for (size_t at = 0; (object = staged_next(catalog, CATALOG_SEGMENT, &at)) != NULL;) {
      const turb_status status = check_segment(catalog, object, err);
      if (status != TURB_OK) {
        return status;
      }
    }
  }
  if (leaving[CATALOG_PARTITION]) {
    for (size_t at = 0; (object = staged_next(catalog, CATALOG_RUN, &at)) != NULL;) {
      const struct catalog_run *run = object;
      if (run->partition_id != 0 && staged(catalog, CATALOG_PARTITION, run->partition_id, 0) == NULL) {
        return refuse(err, "the partition is gone of run", run->object.id);
      }
    }
  }
  return TURB_OK;
}

static turb_status check_stage(struct catalog *catalog, turb_error *err) {
  struct catalog_stage *stage = catalog->stage;
  turb_status status = TURB_OK;
  for (size_t i = 0; i < stage->arriving.count && status == TURB_OK; i++) {
    if (stage->arriving.objects[i]->kind == CATALOG_RUN) {
      status = check_run(catalog, (struct catalog_run *)(void *)stage->arriving.objects[i], err);
    }
  }
  for (size_t i = 0; i < stage->arriving.count && status == TURB_OK; i++) {
    status = check_arriving(catalog, stage->arriving.objects[i], err);
  }
  for (size_t i = 0; i < stage->leaving.count && status == TURB_OK; i++) {
    status = check_leaving(catalog, stage->leaving.objects[i], err);
  }
  if (status == TURB_OK) {
    status = check_references(catalog, err);
  }
  if (status == TURB_OK) {
    status = check_collisions(catalog, CATALOG_RUN, "another run of the partition has sequence numbers in the range of run", err);
  }
  if (status == TURB_OK) {
    status = check_collisions(catalog, CATALOG_PARTITION, "another partition overlaps partition", err);
  }
  return status;
}

/* ---- marks of sequence against time ---- */

/* The distance that a mark of an age keeps between those beside it. */
static uint64_t mark_distance(uint64_t age_seconds) {
  return age_seconds < THIN_FULL_DAYS * SECONDS_DAY    ? SECONDS_MINUTE
         : age_seconds < THIN_HOURS_DAYS * SECONDS_DAY ? SECONDS_HOUR
                                                       : SECONDS_DAY;
}

/* Whether the mark between two others may go: what was written up to it is then taken for younger, but by less than the distance. */
static bool is_dispensable(const struct catalog_time_mark *before, const struct catalog_time_mark *after, uint64_t distance_seconds) {
  return after->unix_seconds - before->unix_seconds < distance_seconds;
}

static void thin_marks(struct catalog *catalog) {
  struct catalog_time_mark *marks = catalog->time_marks;
  const uint64_t now = marks[catalog->time_mark_count - 1].unix_seconds;
  size_t kept = 1;
  for (size_t i = 1; i < catalog->time_mark_count; i++) {
    const bool last = i + 1 == catalog->time_mark_count;
    if (last || !is_dispensable(&marks[kept - 1], &marks[i + 1], mark_distance(now - marks[i].unix_seconds))) {
      marks[kept++] = marks[i];
    }
  }
  catalog->time_mark_count = kept;
}

static void add_mark(struct catalog *catalog, const struct catalog_time_mark *mark) {
  const size_t count = catalog->time_mark_count;
  if (count != 0) {
    struct catalog_time_mark *last = &catalog->time_marks[count - 1];
    if (mark->sequence <= last->sequence || mark->unix_seconds < last->unix_seconds) {
      return;
    }
    if (count > 1 && is_dispensable(last - 1, mark, SECONDS_MINUTE)) {
      *last = *mark;
      return;
    }
  }
  catalog->time_marks[catalog->time_mark_count++] = *mark;
  if (catalog->time_mark_count % THIN_LEAST == 0) {
    thin_marks(catalog);
  }
}

static bool reserve_marks(struct catalog *catalog, size_t more) {
  const size_t needed = catalog->time_mark_count + more;
  if (needed <= catalog->time_mark_capacity) {
    return true;
  }
  const size_t capacity = needed > 2 * catalog->time_mark_capacity ? needed : 2 * catalog->time_mark_capacity;
  struct catalog_time_mark *marks =
      mem_resize(catalog->allocator, catalog->time_marks, catalog->time_mark_capacity * sizeof *marks, capacity * sizeof *marks);
  if (marks == NULL) {
    return false;
  }
  catalog->time_marks = marks;
  catalog->time_mark_capacity = capacity;
  return true;
}

/* ---- stage, commit, rollback ---- */

static void free_stage(struct catalog *catalog) {
  struct catalog_stage *stage = catalog->stage;
  const turb_allocator *allocator = catalog->allocator;
  mem_free(allocator, stage->arriving.objects, stage->arriving.capacity * sizeof *stage->arriving.objects);
  mem_free(allocator, stage->leaving.objects, stage->leaving.capacity * sizeof *stage->leaving.objects);
  mem_free(allocator, stage->updates, stage->changes * sizeof *stage->updates);
  mem_free(allocator, stage->marks, stage->changes * sizeof *stage->marks);
  mem_free(allocator, stage, sizeof *stage);
  catalog->stage = NULL;
  memset(catalog->arriving, 0, sizeof catalog->arriving);
}

/* Walks the payload with one of the three steps above; counts changes. */
static turb_status each_change(struct catalog *catalog, turb_bytes payload,
                               turb_status (*step)(struct catalog *catalog, const struct edit_change *change, turb_error *err),
                               size_t *changes, turb_error *err) {
  struct reader reader;
  reader_init(&reader, payload.data, payload.size);
  *changes = 0;
  for (;;) {
    struct edit_change change;
    bool more = false;
    turb_status status = edit_next(&reader, &change, &more, err);
    if (status == TURB_OK && more && step != NULL) {
      status = step(catalog, &change, err);
    }
    if (status != TURB_OK || !more) {
      return status;
    }
    (*changes)++;
  }
}

turb_status catalog_stage(struct catalog *catalog, turb_bytes payload, turb_error *err) {
  assert(catalog->stage == NULL);
  size_t changes = 0;
  turb_status status = each_change(catalog, payload, NULL, &changes, err);
  if (status != TURB_OK) {
    return status;
  }
  struct catalog_stage *stage = mem_alloc_zeroed(catalog->allocator, sizeof *stage);
  if (stage == NULL) {
    return no_memory(err);
  }
  catalog->stage = stage;
  stage->counters = catalog->counters;
  stage->oldest_log = catalog->oldest_log;
  stage->changes = changes;
  stage->updates = mem_alloc(catalog->allocator, changes * sizeof *stage->updates);
  stage->marks = mem_alloc(catalog->allocator, changes * sizeof *stage->marks);
  if (stage->updates == NULL || stage->marks == NULL) {
    status = no_memory(err);
  }
  if (status == TURB_OK) {
    status = each_change(catalog, payload, stage_removal, &changes, err);
  }
  if (status == TURB_OK) {
    status = each_change(catalog, payload, stage_addition, &changes, err);
  }
  if (status == TURB_OK) {
    status = each_change(catalog, payload, stage_update, &changes, err);
  }
  if (status == TURB_OK) {
    status = check_stage(catalog, err);
  }
  if (status == TURB_OK && !reserve_marks(catalog, stage->mark_count)) {
    status = no_memory(err);
  }
  if (status != TURB_OK) {
    catalog_rollback(catalog);
  }
  return status;
}

/* Takes an object out of its table and releases it. */
static void drop_object(struct catalog *catalog, struct catalog_object *object) {
  catalog_map_remove(&catalog->maps[object->kind], object);
  if (object->kind == CATALOG_COLLECTION) {
    catalog_map_remove(&catalog->maps[CATALOG_NAME], &((struct catalog_collection *)(void *)object)->name_object);
  }
  mem_free(catalog->allocator, object, object->size_bytes);
}

/* Tables learn which run holds them; ranges taken hang on their tables. */
static void settle(struct catalog *catalog, struct catalog_object *object) {
  object->stage = CATALOG_SETTLED;
  switch (object->kind) {
  case CATALOG_COLLECTION: ((struct catalog_collection *)(void *)object)->name_object.stage = CATALOG_SETTLED; break;
  case CATALOG_RUN: {
    const struct catalog_run *run = (const void *)object;
    for (size_t i = 0; i < run->table_count; i++) {
      struct catalog_table *table = (void *)catalog_map_find(&catalog->maps[CATALOG_TABLE], run->table_numbers[i], 0, true);
      table->run_id = object->id;
      table->claimed_by = 0;
    }
    break;
  }
  case CATALOG_TAKEN: {
    struct catalog_taken *taken = (void *)object;
    struct catalog_table *table = (void *)catalog_map_find(&catalog->maps[CATALOG_TABLE], object->id, 0, true);
    taken->next = table->taken;
    table->taken = taken;
    break;
  }
  default: break;
  }
}

/* A range that leaves is taken off its table, which may leave too. */
static void unlink_taken(struct catalog *catalog, const struct catalog_taken *taken) {
  struct catalog_table *table = (void *)catalog_map_find(&catalog->maps[CATALOG_TABLE], taken->object.id, 0, false);
  struct catalog_taken **link = &table->taken;
  while (*link != taken) {
    link = &(*link)->next;
  }
  *link = taken->next;
}

void catalog_commit(struct catalog *catalog) {
  struct catalog_stage *stage = catalog->stage;
  assert(stage != NULL);
  for (size_t i = 0; i < stage->leaving.count; i++) {
    if (stage->leaving.objects[i]->kind == CATALOG_TAKEN) {
      unlink_taken(catalog, (const struct catalog_taken *)(const void *)stage->leaving.objects[i]);
    }
  }
  for (size_t i = 0; i < stage->arriving.count; i++) {
    settle(catalog, stage->arriving.objects[i]);
  }
  for (size_t i = 0; i < stage->leaving.count; i++) {
    drop_object(catalog, stage->leaving.objects[i]);
  }
  for (size_t i = 0; i < stage->update_count; i++) {
    const struct collection_update *update = &stage->updates[i];
    if (update->tag == EDIT_FLUSHED) {
      raise(&update->collection->flushed_sequence, update->flushed_sequence);
    } else {
      update->collection->compaction = update->compaction;
    }
  }
  for (size_t i = 0; i < stage->mark_count; i++) {
    add_mark(catalog, &stage->marks[i]);
  }
  catalog->counters = stage->counters;
  catalog->oldest_log = stage->oldest_log;
  free_stage(catalog);
}

void catalog_rollback(struct catalog *catalog) {
  struct catalog_stage *stage = catalog->stage;
  assert(stage != NULL);
  for (size_t i = 0; i < stage->arriving.count; i++) {
    if (stage->arriving.objects[i]->kind != CATALOG_RUN) {
      continue;
    }
    const struct catalog_run *run = (const void *)stage->arriving.objects[i];
    for (size_t at = 0; at < run->table_count && run->tables[at] != NULL; at++) {
      struct catalog_table *table = (void *)catalog_map_find(&catalog->maps[CATALOG_TABLE], run->table_numbers[at], 0, true);
      table->claimed_by = 0;
    }
  }
  for (size_t i = 0; i < stage->arriving.count; i++) {
    drop_object(catalog, stage->arriving.objects[i]);
  }
  for (size_t i = 0; i < stage->leaving.count; i++) {
    struct catalog_object *object = stage->leaving.objects[i];
    object->stage = CATALOG_SETTLED;
    if (object->kind == CATALOG_COLLECTION) {
      ((struct catalog_collection *)(void *)object)->name_object.stage = CATALOG_SETTLED;
    }
  }
  free_stage(catalog);
}

turb_status catalog_apply(struct catalog *catalog, const struct version_edit *edit, turb_error *err) {
  turb_bytes payload;
  turb_status status = edit_encode(edit, &payload, err);
  if (status == TURB_OK) {
    status = catalog_stage(catalog, payload, err);
  }
  if (status == TURB_OK) {
    catalog_commit(catalog);
  }
  return status;
}
