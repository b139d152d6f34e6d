/* The catalog's tables, lookups, listings and its snapshot; see catalog.h for what holds, catalog_apply.c for changes. */
#include "engine/catalog.h"

#include <assert.h>
#include <stdlib.h>

#include "base/hash.h"
#include "engine/catalog_parts.h"

#define MAP_LEAST_CAPACITY 16

/* ---- hash tables: linear probing, at most three quarters full, holes closed at once ---- */

static size_t map_home(const struct catalog_map *map, uint64_t id, uint64_t second_id) {
  return (size_t)hash_mix64(id ^ hash_mix64(second_id)) & (map->capacity - 1);
}

static size_t map_next(const struct catalog_map *map, size_t slot) {
  return (slot + 1) & (map->capacity - 1);
}

static void map_place(struct catalog_map *map, struct catalog_object *object) {
  size_t slot = map_home(map, object->id, object->second_id);
  while (map->slots[slot] != NULL) {
    slot = map_next(map, slot);
  }
  map->slots[slot] = object;
}

bool catalog_map_reserve(struct catalog_map *map, const turb_allocator *allocator, size_t more) {
  const size_t needed = map->count + more;
  size_t capacity = map->capacity != 0 ? map->capacity : MAP_LEAST_CAPACITY;
  while (needed > capacity - capacity / 4) {
    capacity *= 2;
  }
  if (more == 0 || capacity == map->capacity) {
    return true;
  }
  struct catalog_map larger = {.capacity = capacity, .count = map->count};
  larger.slots = mem_alloc_array(allocator, capacity, sizeof *larger.slots);
  if (larger.slots == NULL) {
    return false;
  }
  for (size_t slot = 0; slot < map->capacity; slot++) {
    if (map->slots[slot] != NULL) {
      map_place(&larger, map->slots[slot]);
    }
  }
  mem_free(allocator, map->slots, map->capacity * sizeof *map->slots);
  *map = larger;
  return true;
}

void catalog_map_insert(struct catalog_map *map, struct catalog_object *object) {
  assert(map->count < map->capacity - map->capacity / 4);
  map_place(map, object);
  map->count++;
}

void catalog_map_remove(struct catalog_map *map, const struct catalog_object *object) {
  size_t hole = map_home(map, object->id, object->second_id);
  while (map->slots[hole] != object) {
    assert(map->slots[hole] != NULL);
    hole = map_next(map, hole);
  }
  map->slots[hole] = NULL;
  map->count--;
  for (size_t slot = map_next(map, hole); map->slots[slot] != NULL; slot = map_next(map, slot)) {
    struct catalog_object *moved = map->slots[slot];
    const size_t home = map_home(map, moved->id, moved->second_id);
    /* It may go to the hole unless its home lies behind the hole on the way to where it is. */
    if (((slot - home) & (map->capacity - 1)) >= ((slot - hole) & (map->capacity - 1))) {
      map->slots[hole] = moved;
      map->slots[slot] = NULL;
      hole = slot;
    }
  }
}

struct catalog_object *catalog_map_find(const struct catalog_map *map, uint64_t id, uint64_t second_id, bool staged) {
  if (map->capacity == 0) {
    return NULL;
  }
  for (size_t slot = map_home(map, id, second_id); map->slots[slot] != NULL; slot = map_next(map, slot)) {
    struct catalog_object *object = map->slots[slot];
    if (object->id == id && object->second_id == second_id && catalog_is_in(object, staged)) {
      return object;
    }
  }
  return NULL;
}

uint64_t catalog_name_hash(const char *name, size_t name_size) {
  return hash64(name, name_size, 0);
}

struct catalog_collection *catalog_find_name(const struct catalog *catalog, const char *name, size_t name_size, bool staged) {
  const struct catalog_map *map = &catalog->maps[CATALOG_NAME];
  if (map->capacity == 0) {
    return NULL;
  }
  const uint64_t id = catalog_name_hash(name, name_size);
  for (size_t slot = map_home(map, id, 0); map->slots[slot] != NULL; slot = map_next(map, slot)) {
    struct catalog_object *object = map->slots[slot];
    if (object->id != id || !catalog_is_in(object, staged)) {
      continue;
    }
    struct catalog_collection *collection = catalog_collection_of_name(object);
    if (collection->name_size == name_size && memcmp(collection->name, name, name_size) == 0) {
      return collection;
    }
  }
  return NULL;
}

/* ---- the catalog ---- */

void catalog_init(struct catalog *catalog, const turb_allocator *allocator) {
  *catalog = (struct catalog){
      .allocator = allocator,
      .counters = {.next_file = 1, .next_collection = 1, .next_job = 1, .next_run = 1, .next_partition = 1},
  };
}

void catalog_free(struct catalog *catalog) {
  if (catalog->stage != NULL) {
    catalog_rollback(catalog);
  }
  for (int kind = 0; kind < CATALOG_KINDS; kind++) {
    struct catalog_map *map = &catalog->maps[kind];
    for (size_t slot = 0; slot < map->capacity; slot++) {
      if (map->slots[slot] != NULL && kind != CATALOG_NAME) {
        mem_free(catalog->allocator, map->slots[slot], map->slots[slot]->size_bytes);
      }
    }
    mem_free(catalog->allocator, map->slots, map->capacity * sizeof *map->slots);
  }
  mem_free(catalog->allocator, catalog->time_marks, catalog->time_mark_capacity * sizeof *catalog->time_marks);
  catalog_init(catalog, catalog->allocator);
}

static const void *find(const struct catalog *catalog, enum catalog_kind kind, uint64_t id, uint64_t second_id) {
  return catalog_map_find(&catalog->maps[kind], id, second_id, false);
}

const struct catalog_collection *catalog_collection(const struct catalog *catalog, uint64_t id) {
  return find(catalog, CATALOG_COLLECTION, id, 0);
}

const struct catalog_collection *catalog_collection_named(const struct catalog *catalog, const char *name, size_t name_size) {
  return catalog_find_name(catalog, name, name_size, false);
}

const struct catalog_table *catalog_table(const struct catalog *catalog, uint64_t file_number) {
  return find(catalog, CATALOG_TABLE, file_number, 0);
}

const struct catalog_run *catalog_run(const struct catalog *catalog, uint64_t id) {
  return find(catalog, CATALOG_RUN, id, 0);
}

const struct catalog_partition *catalog_partition(const struct catalog *catalog, uint64_t id) {
  return find(catalog, CATALOG_PARTITION, id, 0);
}

const struct catalog_segment *catalog_segment(const struct catalog *catalog, uint64_t file_number) {
  return find(catalog, CATALOG_SEGMENT, file_number, 0);
}

const struct catalog_codebook *catalog_codebook(const struct catalog *catalog, uint64_t codebook_id, uint64_t edition) {
  return find(catalog, CATALOG_CODEBOOK, codebook_id, edition);
}

const struct catalog_job *catalog_job(const struct catalog *catalog, uint64_t id) {
  return find(catalog, CATALOG_JOB, id, 0);
}

bool catalog_is_taken(const struct catalog *catalog, uint64_t file_number, uint64_t partition_id) {
  return find(catalog, CATALOG_TAKEN, file_number, partition_id) != NULL;
}

size_t catalog_count(const struct catalog *catalog, enum catalog_kind kind) {
  return catalog->maps[kind].count - catalog->arriving[kind];
}

const struct catalog_object *catalog_next(const struct catalog *catalog, enum catalog_kind kind, size_t *at) {
  const struct catalog_map *map = &catalog->maps[kind];
  while (*at < map->capacity) {
    const struct catalog_object *object = map->slots[(*at)++];
    if (object != NULL && catalog_is_in(object, false)) {
      return object;
    }
  }
  return NULL;
}

static int compare_objects(const void *a, const void *b) {
  const struct catalog_object *left = *(const struct catalog_object *const *)a;
  const struct catalog_object *right = *(const struct catalog_object *const *)b;
  if (left->id != right->id) {
    return left->id < right->id ? -1 : 1;
  }
  return (left->second_id > right->second_id) - (left->second_id < right->second_id);
}

turb_status catalog_sorted(const struct catalog *catalog, enum catalog_kind kind, const struct catalog_object ***objects, size_t *count,
                           turb_error *err) {
  *objects = NULL;
  *count = 0;
  const size_t expected = catalog_count(catalog, kind);
  const struct catalog_object **sorted = mem_alloc(catalog->allocator, expected * sizeof *sorted);
  if (sorted == NULL) {
    return status_set(err, TURB_NO_MEMORY, "no memory to list the catalog");
  }
  const struct catalog_object *object = NULL;
  size_t found = 0;
  for (size_t at = 0; (object = catalog_next(catalog, kind, &at)) != NULL;) {
    sorted[found++] = object;
  }
  assert(found == expected);
  if (found > 1) {
    qsort(sorted, found, sizeof *sorted, compare_objects);
  }
  *objects = sorted;
  *count = found;
  return TURB_OK;
}

/* Newest first; ties, which quarantined runs may have, by id. */
static int compare_runs(const void *a, const void *b) {
  const struct catalog_run *left = *(const struct catalog_run *const *)a;
  const struct catalog_run *right = *(const struct catalog_run *const *)b;
  if (left->largest_sequence != right->largest_sequence) {
    return left->largest_sequence > right->largest_sequence ? -1 : 1;
  }
  return (left->object.id < right->object.id) - (left->object.id > right->object.id);
}

static bool run_is_of(const struct catalog_run *run, uint64_t collection_id, uint64_t partition_id) {
  return run->collection_id == collection_id && (partition_id == CATALOG_ALL_PARTITIONS || run->partition_id == partition_id);
}

turb_status catalog_list_runs(const struct catalog *catalog, uint64_t collection_id, uint64_t partition_id,
                              const struct catalog_run ***runs, size_t *count, turb_error *err) {
  *runs = NULL;
  *count = 0;
  size_t found = 0;
  const struct catalog_object *object = NULL;
  for (size_t at = 0; (object = catalog_next(catalog, CATALOG_RUN, &at)) != NULL;) {
    found += run_is_of((const struct catalog_run *)object, collection_id, partition_id);
  }
  const struct catalog_run **sorted = mem_alloc(catalog->allocator, found * sizeof *sorted);
  if (sorted == NULL) {
    return status_set(err, TURB_NO_MEMORY, "no memory to list runs");
  }
  found = 0;
  for (size_t at = 0; (object = catalog_next(catalog, CATALOG_RUN, &at)) != NULL;) {
    if (run_is_of((const struct catalog_run *)object, collection_id, partition_id)) {
      sorted[found++] = (const struct catalog_run *)object;
    }
  }
  if (found > 1) {
    qsort(sorted, found, sizeof *sorted, compare_runs);
  }
  *runs = sorted;
  *count = found;
  return TURB_OK;
}

bool catalog_names_file(const struct catalog *catalog, uint64_t file_number) {
  if (catalog_table(catalog, file_number) != NULL || catalog_segment(catalog, file_number) != NULL) {
    return true;
  }
  const struct catalog_object *object = NULL;
  for (size_t at = 0; (object = catalog_next(catalog, CATALOG_CODEBOOK, &at)) != NULL;) {
    if (((const struct catalog_codebook *)object)->file_number == file_number) {
      return true;
    }
  }
  for (size_t at = 0; (object = catalog_next(catalog, CATALOG_JOB, &at)) != NULL;) {
    const struct catalog_job *job = (const struct catalog_job *)object;
    for (size_t i = 0; i < job->cut_count; i++) {
      if (job->cuts[i].file_number == file_number) {
        return true;
      }
    }
  }
  return false;
}

uint64_t catalog_written_by_s(const struct catalog *catalog, uint64_t sequence) {
  size_t begin = 0;
  for (size_t end = catalog->time_mark_count; begin < end;) {
    const size_t middle = begin + (end - begin) / 2;
    if (catalog->time_marks[middle].sequence < sequence) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  return begin < catalog->time_mark_count ? catalog->time_marks[begin].unix_seconds : 0;
}

/* ---- the snapshot ---- */

static bool is_default(const struct catalog_compaction *c) {
  return c->policy == TURB_COMPACTION_DEFAULT && c->size_ratio == 0 && c->max_space_amplification_percent == 0 && c->fifo_max_bytes == 0 &&
         c->ttl_s == 0;
}

/* Adds what recreates one object. */
static void snapshot_object(struct version_edit *edit, enum catalog_kind kind, const struct catalog_object *object) {
  switch (kind) {
  case CATALOG_COLLECTION: {
    const struct catalog_collection *collection = (const void *)object;
    edit_add_collection(edit, object->id, collection->name, collection);
    if (collection->flushed_sequence != 0) {
      edit_set_flushed(edit, object->id, collection->flushed_sequence);
    }
    if (!is_default(&collection->compaction)) {
      edit_set_compaction(edit, object->id, &collection->compaction);
    }
    break;
  }
  case CATALOG_TABLE: edit_add_table(edit, &((const struct catalog_table *)(const void *)object)->record); break;
  case CATALOG_TAKEN: edit_add_taken(edit, object->id, object->second_id); break;
  case CATALOG_RUN: {
    const struct catalog_run *run = (const void *)object;
    edit_add_run(edit, object->id, run->collection_id, run->partition_id, run->flags, run->table_numbers, run->table_count);
    break;
  }
  case CATALOG_PARTITION: {
    const struct catalog_partition *partition = (const void *)object;
    edit_add_partition(edit, object->id, partition->collection_id, partition->lower, partition->upper, partition->upper_open,
                       partition->codebook_id);
    break;
  }
  case CATALOG_SEGMENT: {
    const struct catalog_segment *segment = (const void *)object;
    edit_add_segment(edit, object->id, segment->run_id, segment->codebook_id, segment->edition, segment->first_table_slot, segment->tables,
                     segment->table_count);
    break;
  }
  case CATALOG_CODEBOOK: {
    const struct catalog_codebook *codebook = (const void *)object;
    edit_add_codebook(edit, object->id, object->second_id, codebook->file_number, codebook->parent_edition);
    break;
  }
  case CATALOG_JOB: {
    const struct catalog_job *job = (const void *)object;
    edit_set_job(edit, object->id, job->kind, job->collection_id, job->inputs, job->input_count, job->cuts, job->cut_count);
    break;
  }
  case CATALOG_NAME:
  case CATALOG_KINDS: break;
  }
}

turb_status catalog_snapshot(const struct catalog *catalog, struct version_edit *edit, turb_error *err) {
  static const enum catalog_kind order[] = {CATALOG_COLLECTION, CATALOG_PARTITION, CATALOG_TABLE,   CATALOG_RUN,
                                            CATALOG_TAKEN,      CATALOG_CODEBOOK,  CATALOG_SEGMENT, CATALOG_JOB};
  edit_set_counters(edit, &catalog->counters);
  if (catalog->oldest_log != 0) {
    edit_set_oldest_log(edit, catalog->oldest_log);
  }
  for (size_t i = 0; i < sizeof order / sizeof order[0]; i++) {
    const struct catalog_object **objects = NULL;
    size_t count = 0;
    const turb_status status = catalog_sorted(catalog, order[i], &objects, &count, err);
    if (status != TURB_OK) {
      return status;
    }
    for (size_t at = 0; at < count; at++) {
      snapshot_object(edit, order[i], objects[at]);
    }
    mem_free(catalog->allocator, objects, count * sizeof *objects);
  }
  for (size_t at = 0; at < catalog->time_mark_count; at++) {
    edit_add_time_mark(edit, catalog->time_marks[at].sequence, catalog->time_marks[at].unix_seconds);
  }
  turb_bytes payload;
  return edit_encode(edit, &payload, err);
}
