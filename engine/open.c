/* engine/open: a database comes up, and goes down.
 *
 *   options -> ring -> folder, lock -> manifest -> collections and their tables -> logs replayed into memtables -> a new log -> workers
 *
 * Closing undoes it in reverse order; an open that fails half way is a close of what is there. */
#include <stdio.h>

#include "base/clock.h"
#include "engine/background.h"
#include "engine/batch.h"
#include "engine/collection.h"
#include "engine/job.h"
#include "engine/write.h"

/* ---- going down ---- */

static void free_collections(turb_db *db) {
  for (size_t i = 0; i < db->collection_count; i++)
    collection_free(db->collections[i]);
  mem_free(&db->allocator, db->collections, db->collection_capacity * sizeof *db->collections);
}

static void destroy(turb_db *db) {
  background_stop(db);
  if (db->system)
    io_system_drain(db->system); /* reads of closed cursors hold tables and frames */
  free_collections(db);
  log_writer_close(db->log);
  mem_free(&db->allocator, db->log_numbers, db->log_capacity * sizeof *db->log_numbers);
  manifest_close(db->manifest);
  budget_set_reclaimer(&db->budget, NULL, NULL);
  memtable_pool_free(&db->memtable_pool);
  block_pool_free(&db->block_pool);
  if (db->cache)
    cache_destroy(db->cache);
  if (db->lock)
    io_unlock(db->lock);
  if (db->system)
    io_system_close(db->system);
  mem_free_string(&db->allocator, db->path);
  mutex_destroy(&db->mutex);
  mutex_destroy(&db->write_mutex);
  mutex_destroy(&db->snapshot_mutex);
  mutex_destroy(&db->iterator_mutex);
  cond_destroy(&db->work_changed);
  const turb_allocator allocator = db->allocator;
  mem_free(&allocator, db, sizeof *db);
}

static turb_status check_unused(turb_db *db, turb_error *err) {
  const struct {
    const _Atomic uint64_t *count;
    const char *what;
  } users[] = {{&db->live_iterators, "iterators"},
               {&db->live_loops, "loops"},
               {&db->live_pins, "pinned entries"},
               {&db->live_results, "search results"},
               {&db->live_batches, "batches"}};
  for (size_t i = 0; i < sizeof users / sizeof *users; i++) {
    const uint64_t count = atomic_load(users[i].count);
    if (count)
      return status_set(err, TURB_BUSY, "%llu %s are alive", (unsigned long long)count, users[i].what);
  }
  mutex_lock(&db->snapshot_mutex);
  const bool any = !list_is_empty(&db->snapshots);
  mutex_unlock(&db->snapshot_mutex);
  return any ? status_set(err, TURB_BUSY, "snapshots are alive") : TURB_OK;
}

turb_status turb_close(turb_db *db, turb_error *err) {
  if (!db)
    return TURB_OK;
  turb_status status = check_unused(db, err);
  if (status != TURB_OK)
    return status;
  if (db->log && !atomic_load(&db->log_failed))
    status = log_writer_sync(db->log, err);
  destroy(db);
  return status;
}

/* ---- coming up ---- */

static void write_log_line(void *context, enum logger_level level, const char *message) {
  const turb_db *db = context;
  db->options.on_log(db->options.callback_context, (turb_log_level)level, message);
}

static turb_status new_db(const char *path, const turb_options *given, turb_db **out, turb_error *err) {
  struct db_options options;
  turb_allocator allocator;
  const turb_status status = options_check(given, &options, &allocator, err);
  if (status != TURB_OK)
    return status;
  turb_db *db = mem_alloc_zeroed(&allocator, sizeof *db);
  if (!db)
    return status_set(err, TURB_NO_MEMORY, "no memory for a database");
  db->allocator = allocator;
  db->options = options;
  if (options.on_log)
    db->logger = (struct logger){write_log_line, db, (enum logger_level)options.log_level};
  budget_init(&db->budget, options.memory_budget_bytes);
  budget_init_share(&db->memtable_budget, &db->budget,
                    options.read_only ? UINT64_MAX : options_memtable_share(options.memory_budget_bytes));
  budget_init_share(&db->job_budget, &db->budget, options_job_share(options.memory_budget_bytes));
  budget_init_share(&db->stream_budget, &db->budget, options_stream_share(options.memory_budget_bytes));
  block_pool_init(&db->block_pool);
  memtable_pool_init(&db->memtable_pool, &db->allocator, &db->memtable_budget, options.memtable_bytes);
  mutex_init(&db->mutex);
  mutex_init(&db->write_mutex);
  mutex_init(&db->snapshot_mutex);
  mutex_init(&db->iterator_mutex);
  cond_init(&db->work_changed);
  list_init(&db->jobs);
  list_init(&db->writers);
  list_init(&db->snapshots);
  list_init(&db->iterators);
  db->path = mem_strdup(&db->allocator, path);
  if (!db->path) {
    destroy(db);
    return status_set(err, TURB_NO_MEMORY, "no memory for a path");
  }
  *out = db;
  return TURB_OK;
}

static turb_status open_system(turb_db *db, turb_error *err) {
  const struct io_system_options options = {.backend = db->options.backend,
                                            .simulation = db->options.simulation,
                                            .allocator = &db->allocator,
                                            .logger = &db->logger,
                                            .budget = &db->budget,
                                            .ring_entries = db->options.ring_entries,
                                            .registered_buffer_bytes = db->options.registered_buffer_bytes};
  return io_system_open(&options, &db->system, err);
}

/* Whether the folder has a manifest; its other trouble is the manifest's to tell. */
static bool has_manifest(turb_db *db) {
  char *path = db_path(db, NAME_MANIFEST, 0);
  const bool found = path && io_stat(db->system, path, NULL, NULL, NULL) == TURB_OK;
  mem_free_string(&db->allocator, path);
  return found;
}

/* Makes the folder, durably: its name is its parent's to keep. */
static turb_status make_folder(turb_db *db, turb_error *err) {
  turb_error why = TURB_ERROR_INIT;
  turb_status status = io_make_folder(db->system, db->path, &why);
  if (status == TURB_EXISTS)
    return TURB_OK;
  if (status != TURB_OK)
    return status_copy(err, &why);
  char *parent = mem_strdup(&db->allocator, db->path);
  if (!parent)
    return status_set(err, TURB_NO_MEMORY, "no memory for a path");
  const size_t size = strlen(parent) + 1;
  size_t end = size - 1;
  while (end > 1 && parent[end - 1] == '/')
    end--; /* a name may end with slashes */
  while (end && parent[end - 1] != '/')
    end--;
  while (end > 1 && parent[end - 1] == '/')
    end--;
  parent[end] = 0;
  status = io_sync_folder(db->system, end ? parent : ".", err);
  mem_free(&db->allocator, parent, size);
  return status;
}

static turb_status open_folder(turb_db *db, turb_error *err) {
  turb_status status;
  if (db->options.create_if_missing && !db->options.read_only) {
    status = make_folder(db, err);
    if (status != TURB_OK)
      return status;
  } else if (!has_manifest(db)) {
    return status_set_file(err, TURB_NOT_FOUND, db->path, UINT64_MAX, "there is no database");
  }
  char *path = db_path(db, NAME_LOCK, 0);
  if (!path)
    return status_set(err, TURB_NO_MEMORY, "no memory for a path");
  status = io_lock(db->system, path, db->options.read_only, &db->lock, err);
  mem_free_string(&db->allocator, path);
  return status;
}

static turb_status open_manifest(turb_db *db, turb_error *err) {
  const struct manifest_options options = {
      .system = db->system, .allocator = &db->allocator, .logger = &db->logger, .folder = db->path, .read_only = db->options.read_only};
  turb_error why = TURB_ERROR_INIT;
  turb_status status = manifest_open(&options, &db->manifest, &why);
  if (status == TURB_OK && db->options.error_if_exists)
    return status_set_file(err, TURB_EXISTS, db->path, UINT64_MAX, "there is a database");
  if (status == TURB_NOT_FOUND && db->options.create_if_missing && !db->options.read_only)
    return manifest_create(&options, &db->manifest, err);
  return status == TURB_OK ? TURB_OK : status_copy(err, &why);
}

/* Who is short of memory gets what is kept for later memtables first, then what the cache gives up. */
static uint64_t reclaim(void *context, uint64_t bytes) {
  turb_db *db = context;
  const uint64_t trimmed = memtable_pool_trim(&db->memtable_pool, bytes);
  return trimmed < bytes ? trimmed + db->reclaim_cache(db->reclaim_cache_context, bytes - trimmed) : trimmed;
}

static turb_status open_cache(turb_db *db, turb_error *err) {
  const turb_status status = cache_create(&db->allocator, &db->budget, &db->cache, err);
  if (status == TURB_OK) {
    db->reclaim_cache = db->budget.reclaim;
    db->reclaim_cache_context = db->budget.reclaim_context;
    budget_set_reclaimer(&db->budget, reclaim, db);
  }
  db->table_env = (struct table_env){.system = db->system,
                                     .allocator = &db->allocator,
                                     .budget = &db->budget,
                                     .cache = db->cache,
                                     .block_pool = &db->block_pool,
                                     .logger = &db->logger,
                                     .buffered = db->options.buffered_io,
                                     .obsolete_tables = &db->obsolete_tables};
  memcpy(db->table_env.database_id, manifest_database_id(db->manifest), sizeof db->table_env.database_id);
  db->job_env = db->table_env;
  db->job_env.budget = &db->job_budget;
  return status;
}

static turb_status open_collections(turb_db *db, turb_error *err) {
  const struct catalog *catalog = manifest_catalog(db->manifest);
  const struct catalog_object **objects = NULL;
  size_t count = 0;
  turb_status status = catalog_sorted(catalog, CATALOG_COLLECTION, &objects, &count, err);
  for (size_t i = 0; i < count && status == TURB_OK; i++) {
    turb_collection *collection;
    status = collection_add(db, (const struct catalog_collection *)objects[i], &collection, err);
  }
  if (objects)
    mem_free(&db->allocator, objects, count * sizeof *objects);
  return status;
}

/* ---- recovery ---- */

struct replay {
  turb_db *db;
  uint64_t last_sequence;
};

/* The collection whose memtable in use is the largest; NULL when all are empty. */
static turb_collection *largest_memtable(const turb_db *db) {
  turb_collection *largest = NULL;
  for (size_t i = 0; i < db->collection_count; i++) {
    turb_collection *c = db->collections[i];
    if (!memtable_entries(c->memtables->memtable))
      continue;
    if (!largest || memtable_bytes(c->memtables->memtable) > memtable_bytes(largest->memtables->memtable))
      largest = c;
  }
  return largest;
}

/* Makes room for one operation; what is full is flushed on the spot, and so is the largest when the budget is short. */
static turb_status replay_room(turb_collection *collection, const struct batch_operation *operation, turb_error *err) {
  turb_db *db = collection->db;
  const size_t need = memtable_need(operation->key.size + operation->end.size, operation->attributes.size);
  for (;;) {
    struct memtable *memtable = collection->memtables->memtable;
    turb_error why = TURB_ERROR_INIT;
    const bool full = memtable_bytes(memtable) >= db->options.memtable_bytes && memtable_entries(memtable);
    if ((db->options.read_only || !full) && memtable_reserve(memtable, 1, need, &why) == TURB_OK)
      return TURB_OK;
    turb_collection *flushed = full ? collection : largest_memtable(db);
    if (db->options.read_only || !flushed || (!full && why.status != TURB_BUDGET))
      return status_copy(err, &why);
    turb_status status = write_push_memtable(flushed, flushed->memtables->first_log, err);
    if (status == TURB_OK)
      status = background_wait_for_flush(flushed, 0, err);
    if (status != TURB_OK)
      return status;
  }
}

static turb_status replay_record(void *context, const struct log_record *record, turb_error *err) {
  struct replay *replay = context;
  if (record->type != LOG_BATCH)
    return TURB_OK;
  struct batch_reader reader;
  turb_status status = batch_reader_open(&reader, record->payload, record->file, record->payload_offset, err);
  while (status == TURB_OK) {
    struct batch_operation operation;
    bool more;
    status = batch_reader_next(&reader, &operation, &more, err);
    if (status != TURB_OK || !more)
      break;
    if (operation.sequence > replay->last_sequence)
      replay->last_sequence = operation.sequence;
    turb_collection *collection = db_collection(replay->db, operation.collection_id);
    if (!collection)
      continue; /* dropped later */
    const struct catalog_collection *known = catalog_collection(manifest_catalog(replay->db->manifest), collection->id);
    if (operation.sequence <= known->flushed_sequence)
      continue;
    if (operation.kind == BATCH_PUT && operation.row.size != collection->shape.row_bytes)
      return status_set_file(err, TURB_CORRUPTION, record->file, record->payload_offset, "a vector of %zu bytes for %s, whose rows have %u",
                             operation.row.size, collection->name, collection->shape.row_bytes);
    status = replay_room(collection, &operation, err);
    if (status != TURB_OK)
      break;
    struct memtable_slot *slot = collection->memtables;
    if (!memtable_entries(slot->memtable) && !memtable_range_delete_count(slot->memtable))
      slot->first_log = record->log_number;
    status = write_apply(collection, &operation, err);
  }
  return status;
}

static void report_skipped(void *context, const char *file, uint64_t offset, uint64_t bytes) {
  struct replay *replay = context;
  char text[512];
  (void)snprintf(text, sizeof text, "salvage skipped %llu damaged bytes at offset %llu of %s", (unsigned long long)bytes,
                 (unsigned long long)offset, file);
  logger_write(&replay->db->logger, LOGGER_WARNING, "%s", text);
  db_send_event(replay->db, (turb_event){.kind = TURB_EVENT_SALVAGED, .value = bytes, .text = text});
}

static turb_status note_logs(turb_db *db, const struct log_set *set, turb_error *err) {
  db->log_capacity = set->count + 16;
  db->log_numbers = mem_alloc_array(&db->allocator, db->log_capacity, sizeof *db->log_numbers);
  if (!db->log_numbers)
    return status_set(err, TURB_NO_MEMORY, "no memory for the list of logs");
  for (size_t i = 0; i < set->count; i++) {
    db->log_numbers[db->log_count++] = set->logs[i].number;
    if (set->logs[i].number >= db->next_file)
      db->next_file = set->logs[i].number + 1;
  }
  return TURB_OK;
}

/* A new log behind the recovered ones, which are ended by it. */
static turb_status begin_log(turb_db *db, const struct log_recovery_options *recovery, struct log_set *set, turb_error *err) {
  const struct log_writer_options options = {.system = db->system,
                                             .allocator = &db->allocator,
                                             .folder = db->path,
                                             .database_id = manifest_database_id(db->manifest),
                                             .number = db->next_file++,
                                             .first_sequence = db->last_sequence + 1};
  turb_status status = log_writer_create(&options, &db->log, err);
  if (status != TURB_OK)
    return status;
  db->log_numbers[db->log_count++] = options.number;
  status = log_set_seal(recovery, set, options.number, err);
  if (status != TURB_OK)
    return status;
  struct version_edit edit;
  edit_init(&edit, &db->allocator);
  job_edit_counters(db, &edit);
  edit_set_oldest_log(&edit, job_oldest_log(db));
  status = manifest_append(db->manifest, &edit, err);
  edit_free(&edit);
  return status;
}

static turb_status recover(turb_db *db, turb_error *err) {
  struct replay replay = {.db = db, .last_sequence = manifest_catalog(db->manifest)->counters.last_sequence};
  const struct log_recovery_options options = {.system = db->system,
                                               .allocator = &db->allocator,
                                               .logger = &db->logger,
                                               .folder = db->path,
                                               .database_id = manifest_database_id(db->manifest),
                                               .salvage = db->options.salvage,
                                               .record = replay_record,
                                               .context = &replay,
                                               .skipped = report_skipped};
  struct log_set set = {0};
  turb_status status = log_set_recover(&options, manifest_catalog(db->manifest)->oldest_log, &set, err);
  db->last_sequence = replay.last_sequence;
  atomic_store(&db->visible_sequence, replay.last_sequence);
  atomic_store(&db->durable_sequence, replay.last_sequence);
  if (status == TURB_OK)
    status = note_logs(db, &set, err);
  if (status == TURB_OK && !db->options.read_only)
    status = begin_log(db, &options, &set, err);
  log_set_free(&set);
  return status;
}

/* ---- strangers ---- */

struct strangers {
  turb_db *db;
  uint64_t highest; /* file number seen */
  bool remove;
};

static bool is_obsolete(const turb_db *db, enum name_kind kind, uint64_t number) {
  const struct catalog *catalog = manifest_catalog(db->manifest);
  if (kind == NAME_LOG)
    return number < catalog->oldest_log;
  return (kind == NAME_TABLE || kind == NAME_SEGMENT || kind == NAME_CODEBOOK) && !catalog_names_file(catalog, number);
}

static void meet_file(void *context, const char *name) {
  struct strangers *strangers = context;
  turb_db *db = strangers->db;
  uint64_t number = 0;
  const enum name_kind kind = name_parse(name, &number);
  if (number > strangers->highest)
    strangers->highest = number;
  if (!strangers->remove || !is_obsolete(db, kind, number))
    return;
  char *path = db_path(db, kind, number);
  turb_error why = TURB_ERROR_INIT;
  if (path && io_unlink(db->system, path, &why) != TURB_OK)
    logger_write(&db->logger, LOGGER_WARNING, "%s", why.message);
  mem_free_string(&db->allocator, path);
}

/* Walks the folder: first for the highest file number, later to remove what nothing names. */
static turb_status walk_folder(turb_db *db, bool remove, turb_error *err) {
  struct strangers strangers = {.db = db, .remove = remove};
  const turb_status status = io_list_folder(db->system, db->path, meet_file, &strangers, err);
  if (db->next_file <= strangers.highest)
    db->next_file = strangers.highest + 1;
  return status;
}

static turb_status open_all(turb_db *db, turb_error *err) {
  turb_status status = open_system(db, err);
  if (status == TURB_OK)
    status = open_folder(db, err);
  if (status == TURB_OK)
    status = open_manifest(db, err);
  if (status != TURB_OK)
    return status;
  db->next_file = manifest_catalog(db->manifest)->counters.next_file;
  db->next_job = manifest_catalog(db->manifest)->counters.next_job;
  status = walk_folder(db, false, err);
  if (status == TURB_OK)
    status = open_cache(db, err);
  if (status == TURB_OK)
    status = open_collections(db, err);
  if (status == TURB_OK)
    status = recover(db, err);
  if (status == TURB_OK && !db->options.read_only)
    status = walk_folder(db, true, err);
  if (status == TURB_OK)
    status = background_start(db, err);
  return status;
}

turb_status turb_open(const char *path, const turb_options *options, turb_db **out, turb_error *err) {
  *out = NULL;
  if (!path || !*path)
    return status_set(err, TURB_INVALID, "no path is given");
  turb_db *db = NULL;
  turb_status status = new_db(path, options, &db, err);
  if (status != TURB_OK)
    return status;
  status = open_all(db, err);
  if (status != TURB_OK) {
    destroy(db);
    return status;
  }
  *out = db;
  return TURB_OK;
}
