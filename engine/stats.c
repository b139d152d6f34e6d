/* Statistics (turb_get_stats) and the LSM tree (turb_list_runs). Numbers are read one after the other while work goes on: each is true,
 * not all are of one moment. */
#include "base/clock.h"
#include "engine/iterator.h"

/* ---- files ---- */

struct files {
  turb_db *db;
  turb_stats *stats;
  bool no_memory;
};

static void count_file(void *context, const char *name) {
  struct files *files = context;
  turb_db *db = files->db;
  uint64_t number, size, allocated;
  const enum name_kind kind = name_parse(name, &number);
  if (kind == NAME_OTHER)
    return;
  char *path = db_path(db, kind, number);
  files->no_memory |= !path;
  if (path && io_stat(db->system, path, &size, &allocated, NULL) == TURB_OK) { /* else it went meanwhile */
    files->stats->disk_bytes += allocated;
    files->stats->log_bytes += kind == NAME_LOG ? size : 0;
  }
  mem_free_string(&db->allocator, path);
}

static turb_status count_files(turb_db *db, turb_stats *stats, turb_error *err) {
  struct files files = {.db = db, .stats = stats};
  const turb_status status = io_list_folder(db->system, db->path, count_file, &files, err);
  return status == TURB_OK && files.no_memory ? status_set(err, TURB_NO_MEMORY, "no memory for a path") : status;
}

/* ---- the rest ---- */

static void count_catalog(turb_db *db, turb_stats *stats) {
  mutex_lock(&db->mutex);
  const struct catalog *catalog = manifest_catalog(db->manifest);
  const struct catalog_object *object;
  for (size_t at = 0; (object = catalog_next(catalog, CATALOG_TABLE, &at)) != NULL;)
    stats->table_bytes += ((const struct catalog_table *)(const void *)object)->record.size_bytes;
  stats->tables = catalog_count(catalog, CATALOG_TABLE);
  stats->runs = catalog_count(catalog, CATALOG_RUN);
  for (size_t i = 0; i < db->collection_count; i++)
    for (const struct memtable_slot *m = db->collections[i]->memtables; m; m = m->older) {
      stats->memtable_bytes += memtable_bytes(m->memtable);
      stats->memtables++;
    }
  stats->paused = db->paused;
  mutex_unlock(&db->mutex);
}

static uint64_t age_ms(uint64_t created_ns) {
  return (clock_monotonic_ns() - created_ns) / CLOCK_NS_PER_MS;
}

/* Both lists begin with the oldest. */
static void count_readers(turb_db *db, turb_stats *stats) {
  mutex_lock(&db->snapshot_mutex);
  struct list *oldest = list_first(&db->snapshots);
  if (oldest)
    stats->oldest_snapshot_age_ms = age_ms(LIST_ENTRY(oldest, struct turb_snapshot, link)->created_ns);
  for (const struct list *l = oldest; l; l = list_next(&db->snapshots, l))
    stats->snapshots++;
  mutex_unlock(&db->snapshot_mutex);
  mutex_lock(&db->iterator_mutex);
  oldest = list_first(&db->iterators);
  if (oldest)
    stats->oldest_iterator_age_ms = age_ms(LIST_ENTRY(oldest, struct iterator, link)->created_ns);
  for (const struct list *l = oldest; l; l = list_next(&db->iterators, l))
    stats->iterators++;
  mutex_unlock(&db->iterator_mutex);
}

static void copy_counters(turb_db *db, turb_stats *stats) {
  struct db_counters *counters = &db->counters;
  stats->user_bytes_written = atomic_load(&counters->user_bytes_written);
  stats->log_bytes_written = atomic_load(&counters->log_bytes_written);
  stats->flush_bytes_written = atomic_load(&counters->flush_bytes_written);
  stats->merge_bytes_read = atomic_load(&counters->merge_bytes_read);
  stats->merge_bytes_written = atomic_load(&counters->merge_bytes_written);
  stats->log_syncs = atomic_load(&counters->log_syncs);
  stats->write_groups = atomic_load(&counters->write_groups);
  stats->flushes = atomic_load(&counters->flushes);
  stats->merges = atomic_load(&counters->merges);
  stats->merges_failed = atomic_load(&counters->merges_failed);
  stats->entries_dropped = atomic_load(&counters->entries_dropped);
  stats->stall_us = atomic_load(&counters->stall_us);
  stats->stalls = atomic_load(&counters->stalls);
  stats->runs_dropped = atomic_load(&counters->runs_dropped);
  stats->run_bytes_dropped = atomic_load(&counters->run_bytes_dropped);
  stats->obsolete_tables = atomic_load(&db->obsolete_tables);
  stats->last_sequence = atomic_load(&db->visible_sequence);
  stats->durable_sequence = atomic_load(&db->durable_sequence);
}

static void copy_layers(turb_db *db, turb_stats *stats) {
  struct io_stats io;
  io_system_stats(db->system, &io);
  stats->backend = io.backend;
  stats->backend_fell_back = io.fell_back;
  stats->backend_os_error = io.fallback_errno;
  stats->registered_buffer_bytes = io.registered_buffer_bytes;
  stats->reads = io.reads;
  stats->read_bytes = io.read_bytes;
  stats->submissions = io.submissions;
  stats->ring_calls = io.ring_calls;
  struct cache_stats cache;
  cache_get_stats(db->cache, &cache);
  stats->cache_bytes = cache.bytes;
  stats->cache_hits = cache.hits;
  stats->cache_misses = cache.misses;
  stats->memory_budget_bytes = budget_limit(&db->budget);
  stats->memory_used_bytes = budget_used(&db->budget);
  stats->memory_peak_bytes = budget_peak(&db->budget);
  stats->read_only = db->options.read_only || atomic_load(&db->log_failed);
}

turb_status turb_get_stats(turb_db *db, turb_stats *stats, turb_error *err) {
  turb_stats full = {.size = sizeof full};
  copy_counters(db, &full);
  copy_layers(db, &full);
  count_catalog(db, &full);
  count_readers(db, &full);
  const turb_status status = count_files(db, &full, err);
  return status == TURB_OK ? options_write(&full, sizeof full, stats, "turb_stats", err) : status;
}

turb_status turb_list_runs(turb_collection *collection, bool (*each)(void *context, const turb_run_info *run), void *context,
                           turb_error *err) {
  struct read_view view;
  const turb_status status = read_view_open(collection, NULL, &view, err);
  if (status != TURB_OK)
    return status;
  for (uint32_t r = 0; r < view.version->run_count; r++) {
    const struct version_run *run = &view.version->runs[r];
    const turb_run_info info = {.collection = collection->id,
                                .tables = run->view.count,
                                .entries = run->entries,
                                .bytes = run->bytes,
                                .first_sequence = run->smallest_sequence,
                                .last_sequence = run->largest_sequence};
    if (!each(context, &info))
      break;
  }
  read_view_release(&view);
  return TURB_OK;
}
