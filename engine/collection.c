/* collection.h has the contract, the states and the invariants. */
#include "engine/collection.h"

#include <stdlib.h>

#include "engine/background.h"
#include "engine/compaction.h"
#include "engine/job.h"
#include "engine/write.h"

/* ---- handles ---- */

void collection_free(turb_collection *collection) {
  if (!collection)
    return;
  turb_db *db = collection->db;
  version_release(collection->version);
  for (struct memtable_slot *slot = collection->memtables; slot;) {
    struct memtable_slot *older = slot->older;
    collection_free_memtable(db, slot);
    slot = older;
  }
  mutex_destroy(&collection->version_mutex);
  mem_free(&db->allocator, collection, sizeof *collection);
}

static turb_status reserve_handle(turb_db *db, turb_error *err) {
  if (db->collection_count < db->collection_capacity)
    return TURB_OK;
  const size_t capacity = db->collection_capacity ? db->collection_capacity * 2 : 8;
  turb_collection **collections =
      mem_resize(&db->allocator, db->collections, db->collection_capacity * sizeof *collections, capacity * sizeof *collections);
  if (!collections)
    return status_set(err, TURB_NO_MEMORY, "no memory for %zu collections", capacity);
  db->collections = collections;
  db->collection_capacity = capacity;
  return TURB_OK;
}

static turb_status new_handle(turb_db *db, const struct catalog_collection *from, turb_collection **out, turb_error *err) {
  turb_collection *c = mem_alloc_zeroed(&db->allocator, sizeof *c);
  if (!c)
    return status_set(err, TURB_NO_MEMORY, "no memory for a collection");
  c->db = db;
  c->id = from->object.id;
  memcpy(c->name, from->name, sizeof c->name);
  c->index = from->index;
  c->shape = (struct table_shape){.dimension = from->dimension,
                                  .type = from->type,
                                  .metric = from->metric,
                                  .compression = from->compression == TURB_COMPRESSION_ZSTD,
                                  .compression_level = from->compression_level};
  table_shape_derive(&c->shape);
  compaction_set(c, &from->compaction);
  c->fan_in_bound = UINT32_MAX;
  mutex_init(&c->version_mutex);
  *out = c;
  return TURB_OK;
}

turb_status collection_new_memtable(turb_collection *c, uint64_t first_log, struct memtable_slot **slot, turb_error *err) {
  turb_db *db = c->db;
  *slot = mem_alloc_zeroed(&db->allocator, sizeof **slot);
  if (!*slot)
    return status_set(err, TURB_NO_MEMORY, "no memory for a memtable");
  const struct memtable_options options = {.allocator = &db->allocator,
                                           .budget = &db->memtable_budget,
                                           .pool = &db->memtable_pool,
                                           .row_bytes = c->shape.row_bytes,
                                           .stride = c->shape.stride};
  const turb_status status = memtable_create(&options, &(*slot)->memtable, err);
  if (status != TURB_OK) {
    mem_free(&db->allocator, *slot, sizeof **slot);
    *slot = NULL;
    return status;
  }
  (*slot)->first_log = first_log;
  return TURB_OK;
}

void collection_free_memtable(turb_db *db, struct memtable_slot *slot) {
  memtable_release(slot->memtable);
  mem_free(&db->allocator, slot, sizeof *slot);
}

static turb_status first_version(turb_collection *c, turb_error *err) {
  const turb_status status = collection_new_memtable(c, 0, &c->memtables, err);
  return status == TURB_OK ? version_build(c, NULL, &c->version, err) : status;
}

turb_status collection_add(turb_db *db, const struct catalog_collection *from, turb_collection **out, turb_error *err) {
  *out = NULL;
  turb_status status = reserve_handle(db, err);
  turb_collection *c = NULL;
  if (status == TURB_OK)
    status = new_handle(db, from, &c, err);
  if (status == TURB_OK)
    status = first_version(c, err);
  if (status != TURB_OK) {
    collection_free(c);
    return status;
  }
  db->collections[db->collection_count++] = c; /* ids rise */
  *out = c;
  return TURB_OK;
}

/* The live handle with this name, or NULL. Under db->mutex. */
static turb_collection *find(turb_db *db, const char *name) {
  for (size_t i = 0; i < db->collection_count; i++)
    if (!atomic_load(&db->collections[i]->dropped) && !strcmp(db->collections[i]->name, name))
      return db->collections[i];
  return NULL;
}

/* ---- checks ---- */

static turb_status check_name(const char *name, turb_error *err) {
  const size_t size = name ? strlen(name) : 0;
  if (!size || size > TURB_MAX_NAME_BYTES)
    return status_set(err, TURB_INVALID, "a collection's name has 1 to %d bytes, this one %zu", TURB_MAX_NAME_BYTES, size);
  for (size_t i = 0; i < size; i++)
    if ((uint8_t)name[i] < 0x20 || name[i] == 0x7f)
      return status_set(err, TURB_INVALID, "a collection's name has a control character at byte %zu", i);
  return TURB_OK;
}

static turb_status check_shape(turb_collection_options *o, turb_error *err) {
  if (!o->type)
    o->type = TURB_F32;
  if (o->type < TURB_F32 || o->type > TURB_BITS)
    return status_set(err, TURB_INVALID, "type is %d, and must be from %d to %d", (int)o->type, TURB_F32, TURB_BITS);
  if (!o->metric)
    o->metric = o->type == TURB_BITS ? TURB_HAMMING : TURB_L2;
  if (o->metric < TURB_L2 || o->metric > TURB_HAMMING)
    return status_set(err, TURB_INVALID, "metric is %d, and must be from %d to %d", (int)o->metric, TURB_L2, TURB_HAMMING);
  if ((o->type == TURB_BITS) != (o->metric == TURB_HAMMING))
    return status_set(err, TURB_INVALID, "metric TURB_HAMMING goes with type TURB_BITS, and TURB_BITS with no other metric");
  if (o->dimension < 1 || o->dimension > TURB_MAX_DIMENSION)
    return status_set(err, TURB_INVALID, "dimension is %u, and must be from 1 to %d", o->dimension, TURB_MAX_DIMENSION);
  return TURB_OK;
}

static turb_status check_options(turb_collection_options *o, struct catalog_compaction *compaction, turb_error *err) {
  const turb_status status = check_shape(o, err);
  if (status != TURB_OK)
    return status;
  if (!o->index)
    o->index = TURB_INDEX_EXACT;
  if (o->index != TURB_INDEX_EXACT)
    return status_set(err, TURB_INVALID, "index is %d, and must be %d", (int)o->index, TURB_INDEX_EXACT);
  if (!o->compression)
    o->compression = TURB_COMPRESSION_NONE;
  if (o->compression != TURB_COMPRESSION_NONE && o->compression != TURB_COMPRESSION_ZSTD)
    return status_set(err, TURB_INVALID, "compression is %d, and must be %d or %d", (int)o->compression, TURB_COMPRESSION_NONE,
                      TURB_COMPRESSION_ZSTD);
  if (!o->compression_level)
    o->compression_level = 3;
  if (o->compression_level < -7 || o->compression_level > 19)
    return status_set(err, TURB_INVALID, "compression_level is %d, and must be from -7 to 19", o->compression_level);
  return compaction_check(o->compaction, compaction, err);
}

/* ---- the public calls ---- */

static turb_status create(turb_db *db, const char *name, const turb_collection_options *o, const struct catalog_compaction *compaction,
                          turb_collection **collection, turb_error *err) {
  if (find(db, name))
    return status_set(err, TURB_EXISTS, "there is a collection %s", name);
  struct catalog_collection described = {.dimension = o->dimension,
                                         .type = o->type,
                                         .metric = o->metric,
                                         .index = o->index,
                                         .compression = o->compression,
                                         .compression_level = o->compression_level,
                                         .compaction = *compaction,
                                         .name_size = strlen(name)};
  memcpy(described.name, name, described.name_size);
  struct catalog_counters counters = manifest_catalog(db->manifest)->counters;
  described.object.id = counters.next_collection;
  /* The handle first: what it needs may be missing, and the manifest must not go ahead of it. */
  turb_status status = collection_add(db, &described, collection, err);
  if (status != TURB_OK)
    return status;
  struct version_edit edit;
  edit_init(&edit, &db->allocator);
  edit_add_collection(&edit, described.object.id, name, &described);
  if (o->compaction)
    edit_set_compaction(&edit, described.object.id, compaction);
  /* What was written before it, to a collection of the same name say, is not this one's. */
  counters.next_collection++;
  counters.next_file = db->next_file;
  edit_set_counters(&edit, &counters);
  status = manifest_append(db->manifest, &edit, err);
  edit_free(&edit);
  if (status != TURB_OK) {
    db->collection_count--;
    collection_free(*collection);
    *collection = NULL;
  }
  return status;
}

turb_status turb_collection_create(turb_db *db, const char *name, const turb_collection_options *options, turb_collection **collection,
                                   turb_error *err) {
  *collection = NULL;
  turb_collection_options o;
  struct catalog_compaction compaction;
  turb_status status = options_read(options, &o, sizeof o, "turb_collection_options", err);
  if (status == TURB_OK)
    status = check_name(name, err);
  if (status == TURB_OK)
    status = check_options(&o, &compaction, err);
  if (status == TURB_OK)
    status = db_check_writable(db, err);
  if (status != TURB_OK)
    return status;
  mutex_lock(&db->mutex);
  status = create(db, name, &o, &compaction, collection, err);
  mutex_unlock(&db->mutex);
  return status;
}

turb_status turb_collection_open(turb_db *db, const char *name, turb_collection **collection, turb_error *err) {
  *collection = NULL;
  const turb_status status = check_name(name, err);
  if (status != TURB_OK)
    return status;
  mutex_lock(&db->mutex);
  *collection = find(db, name);
  mutex_unlock(&db->mutex);
  return *collection ? TURB_OK : status_set(err, TURB_NOT_FOUND, "there is no collection %s", name);
}

turb_status turb_collection_drop(turb_db *db, const char *name, turb_error *err) {
  turb_status status = db_check_writable(db, err);
  if (status != TURB_OK)
    return status;
  mutex_lock(&db->mutex);
  turb_collection *c = name ? find(db, name) : NULL;
  if (!c) {
    mutex_unlock(&db->mutex);
    return status_set(err, TURB_NOT_FOUND, "there is no collection %s", name ? name : "");
  }
  struct version_edit edit;
  edit_init(&edit, &db->allocator);
  edit_drop_collection(&edit, c->id);
  job_edit_counters(db, &edit);
  status = manifest_append(db->manifest, &edit, err);
  edit_free(&edit);
  if (status == TURB_OK) {
    atomic_store(&c->dropped, true);
    atomic_store(&db->has_dropped, true);
    for (struct list *l = list_first(&db->jobs); l; l = list_next(&db->jobs, l)) {
      struct job *job = LIST_ENTRY(l, struct job, link);
      if (job->collection == c)
        atomic_store(&job->progress.cancelled, true);
    }
    const struct version *version = c->version;
    for (uint32_t r = 0; r < version->run_count; r++)
      for (uint32_t t = 0; t < version->runs[r].view.count; t++)
        table_make_obsolete(version->runs[r].view.sources[t].table);
    job_refresh_version(c); /* an empty one: tables go with their last reader */
    cond_broadcast(&db->work_changed);
  }
  mutex_unlock(&db->mutex);
  return status;
}

/* Under db->mutex. */
static void describe(const turb_collection *c, turb_collection_info *info) {
  *info = (turb_collection_info){.size = sizeof *info,
                                 .id = c->id,
                                 .dimension = c->shape.dimension,
                                 .row_bytes = c->shape.row_bytes,
                                 .type = c->shape.type,
                                 .metric = c->shape.metric,
                                 .index = c->index,
                                 .compression = c->shape.compression ? TURB_COMPRESSION_ZSTD : TURB_COMPRESSION_NONE};
  memcpy(info->name, c->name, sizeof info->name);
  compaction_describe(&c->compaction, info);
}

turb_status turb_collection_describe(turb_collection *collection, turb_collection_info *info, turb_error *err) {
  const turb_status status = db_check_readable(collection, err);
  if (status != TURB_OK)
    return status;
  turb_collection_info full;
  mutex_lock(&collection->db->mutex);
  describe(collection, &full);
  mutex_unlock(&collection->db->mutex);
  return options_write(&full, sizeof full, info, "turb_collection_info", err);
}

static int by_name(const void *a, const void *b) {
  return strcmp(((const turb_collection_info *)a)->name, ((const turb_collection_info *)b)->name);
}

turb_status turb_collection_list(turb_db *db, bool (*each)(void *context, const turb_collection_info *info), void *context,
                                 turb_error *err) {
  mutex_lock(&db->mutex);
  const size_t capacity = db->collection_count;
  turb_collection_info *infos = mem_alloc_array(&db->allocator, capacity, sizeof *infos);
  size_t count = 0;
  for (size_t i = 0; infos && i < capacity; i++)
    if (!atomic_load(&db->collections[i]->dropped))
      describe(db->collections[i], &infos[count++]);
  mutex_unlock(&db->mutex);
  if (!infos)
    return status_set(err, TURB_NO_MEMORY, "no memory for a list of %zu collections", capacity);
  qsort(infos, count, sizeof *infos, by_name);
  for (size_t i = 0; i < count && each(context, &infos[i]); i++) {}
  mem_free(&db->allocator, infos, capacity * sizeof *infos);
  return TURB_OK;
}
