/* version.h has the contract, the states and the invariants. */
#include "engine/version.h"

#include "base/arena.h"
#include "engine/db.h"

/* ---- life ---- */

static void version_free(struct version *version) {
  for (uint32_t i = 0; i < version->memtable_count; i++)
    memtable_release(version->memtables[i].memtable);
  for (uint32_t r = 0; r < version->run_count; r++) {
    const struct run_view *view = &version->runs[r].view;
    for (uint32_t t = 0; t < view->count; t++)
      table_release(view->sources[t].table);
  }
  arena_free(&version->arena);
  mem_free(&version->db->allocator, version, sizeof *version);
}

struct version *version_retain(struct version *version) {
  atomic_fetch_add_explicit(&version->references, 1, memory_order_relaxed);
  return version;
}

void version_release(struct version *version) {
  if (!version || atomic_fetch_sub_explicit(&version->references, 1, memory_order_acq_rel) != 1)
    return;
  version_free(version);
}

turb_status read_view_open(turb_collection *collection, const turb_snapshot *snapshot, struct read_view *view, turb_error *err) {
  *view = (struct read_view){0};
  const turb_status status = db_check_readable(collection, err);
  if (status != TURB_OK)
    return status;
  if (snapshot && snapshot->db != collection->db)
    return status_set(err, TURB_INVALID, "the snapshot is another database's");
  mutex_lock(&collection->version_mutex);
  view->version = version_retain(collection->version);
  view->sequence = atomic_load_explicit(&collection->db->visible_sequence, memory_order_acquire);
  mutex_unlock(&collection->version_mutex);
  if (snapshot)
    view->sequence = snapshot->sequence;
  return TURB_OK;
}

void read_view_release(struct read_view *view) {
  version_release(view->version);
  view->version = NULL;
}

/* ---- building ---- */

static const struct version_run *find_run(const struct version *version, uint64_t id) {
  for (uint32_t r = 0; version && r < version->run_count; r++)
    if (version->runs[r].id == id)
      return &version->runs[r];
  return NULL;
}

static turb_status open_run(struct version *version, const struct catalog_run *from, const struct version_run *before, uint32_t number,
                            struct version_run *run, turb_error *err) {
  turb_db *db = version->db;
  *run = (struct version_run){.id = from->object.id,
                              .entries = from->entries,
                              .bytes = from->bytes,
                              .smallest_sequence = from->smallest_sequence,
                              .largest_sequence = from->largest_sequence};
  run->view.sources = arena_alloc_zeroed(&version->arena, from->table_count * sizeof *run->view.sources, _Alignof(struct source));
  if (!run->view.sources)
    return status_set(err, version->arena.failure, "no memory for a run of %zu tables", from->table_count);
  for (size_t t = 0; t < from->table_count; t++) {
    struct source *source = &run->view.sources[t];
    source->run = number;
    if (before) {
      source->table = table_retain(before->view.sources[t].table);
    } else {
      char *path = db_path(db, NAME_TABLE, from->tables[t]->object.id);
      if (!path)
        return status_set(err, TURB_NO_MEMORY, "no memory for a path");
      const turb_status status = table_open(&db->table_env, path, &from->tables[t]->record, &source->table, err);
      mem_free_string(&db->allocator, path);
      if (status != TURB_OK)
        return status;
    }
    run->view.count++;
  }
  return TURB_OK;
}

static turb_status open_runs(struct version *version, const struct version *before, turb_error *err) {
  const struct catalog_run **runs = NULL;
  size_t count = 0;
  turb_db *db = version->db;
  turb_status status =
      catalog_list_runs(manifest_catalog(db->manifest), version->collection->id, CATALOG_ALL_PARTITIONS, &runs, &count, err);
  if (status != TURB_OK)
    return status;
  version->runs = arena_alloc_zeroed(&version->arena, (count ? count : 1) * sizeof *version->runs, _Alignof(struct version_run));
  if (!version->runs)
    status = status_set(err, version->arena.failure, "no memory for %zu runs", count);
  for (size_t r = 0; r < count && status == TURB_OK; r++) {
    status =
        open_run(version, runs[r], find_run(before, runs[r]->object.id), version->memtable_count + (uint32_t)r, &version->runs[r], err);
    version->run_count++; /* also a half-opened one: what it has is released with the version */
  }
  mem_free(&db->allocator, runs, count * sizeof *runs);
  return status;
}

static turb_status add_memtables(struct version *version, turb_error *err) {
  uint32_t count = 0;
  for (const struct memtable_slot *m = version->collection->memtables; m; m = m->older)
    count += !m->flushed;
  version->memtables = arena_alloc_zeroed(&version->arena, (count ? count : 1) * sizeof *version->memtables, _Alignof(struct source));
  if (!version->memtables)
    return status_set(err, version->arena.failure, "no memory for a version");
  for (const struct memtable_slot *m = version->collection->memtables; m; m = m->older) {
    if (m->flushed)
      continue;
    version->memtables[version->memtable_count] = (struct source){.memtable = memtable_retain(m->memtable), .run = version->memtable_count};
    version->memtable_count++;
  }
  return TURB_OK;
}

/* All tables' range deletes in one set. */
static turb_status join_ranges(struct version *version, turb_error *err) {
  size_t sets = 0;
  for (uint32_t r = 0; r < version->run_count; r++)
    for (uint32_t t = 0; t < version->runs[r].view.count; t++)
      sets += table_range_deletes(version->runs[r].view.sources[t].table)->count != 0;
  if (!sets)
    return TURB_OK;
  const struct range_deletes **list = mem_alloc_array(&version->db->allocator, sets, sizeof *list);
  if (!list)
    return status_set(err, TURB_NO_MEMORY, "no memory for the range deletes of %zu tables", sets);
  size_t n = 0;
  for (uint32_t r = 0; r < version->run_count; r++)
    for (uint32_t t = 0; t < version->runs[r].view.count; t++) {
      const struct range_deletes *deletes = table_range_deletes(version->runs[r].view.sources[t].table);
      if (deletes->count)
        list[n++] = deletes;
    }
  const turb_status status = range_deletes_merge(list, sets, NULL, &version->arena, &version->table_ranges, err);
  mem_free(&version->db->allocator, list, sets * sizeof *list);
  return status;
}

turb_status version_build(turb_collection *collection, const struct version *before, struct version **out, turb_error *err) {
  *out = NULL;
  turb_db *db = collection->db;
  struct version *version = mem_alloc_zeroed(&db->allocator, sizeof *version);
  if (!version)
    return status_set(err, TURB_NO_MEMORY, "no memory for a version");
  atomic_init(&version->references, 1);
  version->db = db;
  version->collection = collection;
  version->shape = &collection->shape;
  arena_init(&version->arena, &db->allocator, &db->budget, BUDGET_METADATA, 1024);
  turb_status status = add_memtables(version, err);
  if (status == TURB_OK)
    status = open_runs(version, before, err);
  if (status == TURB_OK)
    status = join_ranges(version, err);
  if (status != TURB_OK) {
    version_free(version);
    return status;
  }
  version->source_runs = version->memtable_count + version->run_count;
  *out = version;
  return TURB_OK;
}

void version_install(turb_collection *collection, struct version *version) {
  mutex_lock(&collection->version_mutex);
  struct version *before = collection->version;
  collection->version = version;
  mutex_unlock(&collection->version_mutex);
  version_release(before);
}

/* ---- reading ---- */

turb_status read_view_range_deletes(const struct read_view *view, struct arena *arena, struct range_deletes *deletes, turb_error *err) {
  *deletes = (struct range_deletes){0};
  const struct version *version = view->version;
  uint32_t with_ranges = 0;
  for (uint32_t i = 0; i < version->memtable_count; i++)
    with_ranges += memtable_range_delete_count(version->memtables[i].memtable) != 0;
  if (!with_ranges) { /* constant as long as the version: no copy */
    *deletes = version->table_ranges;
    return TURB_OK;
  }
  struct range_deletes *sets = arena_alloc_zeroed(arena, with_ranges * sizeof *sets, _Alignof(struct range_deletes));
  const struct range_deletes **list = arena_alloc_zeroed(arena, (with_ranges + 1u) * sizeof *list, _Alignof(void *));
  if (!sets || !list)
    return status_set(err, arena->failure, "no memory for range deletes");
  size_t count = 0;
  for (uint32_t i = 0; i < version->memtable_count && count < with_ranges; i++) {
    const struct memtable *memtable = version->memtables[i].memtable;
    if (!memtable_range_delete_count(memtable))
      continue;
    const turb_status status =
        memtable_range_deletes_seen(memtable, view->sequence, &(struct range_snapshots){0}, arena, &sets[count], err);
    if (status != TURB_OK)
      return status;
    list[count] = &sets[count];
    count++;
  }
  list[count++] = &version->table_ranges;
  return range_deletes_merge(list, count, NULL, arena, deletes, err);
}

uint64_t read_view_cover(const struct read_view *view, turb_bytes key) {
  const struct version *version = view->version;
  uint64_t highest = version->table_ranges.count ? range_deletes_cover(&version->table_ranges, key, view->sequence) : 0;
  for (uint32_t i = 0; i < version->memtable_count; i++) {
    const struct memtable *memtable = version->memtables[i].memtable;
    if (!memtable_range_delete_count(memtable))
      continue;
    const uint64_t sequence = memtable_range_cover(memtable, key, view->sequence);
    if (sequence > highest)
      highest = sequence;
  }
  return highest;
}

turb_status read_view_cursor(const struct read_view *view, struct cursor_context *context, bool streaming, struct cursor **cursor,
                             turb_error *err) {
  *cursor = NULL;
  const struct version *version = view->version;
  struct cursor **children = mem_alloc_array(context->allocator, version->source_runs, sizeof *children);
  if (!children)
    return status_set(err, TURB_NO_MEMORY, "no memory for a merge of %u runs", version->source_runs);
  uint32_t count = 0;
  turb_status status = TURB_OK;
  for (uint32_t i = 0; i < version->memtable_count && status == TURB_OK; i++) {
    if ((i || version->run_count) && !memtable_entries(version->memtables[i].memtable))
      continue; /* what it still takes lies beyond the view's sequence; a merge of one run is that run's cursor */
    status = memtable_cursor_open(context, &version->memtables[i], &children[count], err);
    count += status == TURB_OK;
  }
  for (uint32_t r = 0; r < version->run_count && status == TURB_OK; r++) {
    status = concat_cursor_open(context, &version->runs[r].view, streaming, &children[count], err);
    count += status == TURB_OK;
  }
  if (status == TURB_OK)
    status = merge_cursor_open(context, children, count, cursor, err);
  else
    for (uint32_t i = 0; i < count; i++)
      cursor_close(children[i]);
  mem_free(context->allocator, children, version->source_runs * sizeof *children);
  return status;
}
