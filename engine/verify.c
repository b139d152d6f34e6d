/* turb_verify: every file that the database needs, against its checksums and against what the manifest says.
 *
 *   manifest   its records are read again from the file, and must add up to the catalog in memory
 *   tables     are there, with the size that the manifest says; table_verify reads every byte
 *   logs       every record, its operations, the chain; the log that takes writes must hold all that was written to it
 *
 * Problems of files are reported and the walk goes on; trouble of ours (memory) ends it. Tables are held by their versions; logs are
 * looked at under leadership, so that
 * none is appended to or cut meanwhile (a memtable's worth of bytes). */
#include <stdarg.h>
#include <stdio.h>

#include "engine/write.h"

struct verification {
  turb_db *db;
  void (*problem)(void *context, const turb_error *problem);
  void *context;
  turb_verify_report report;
  struct version **held;
  size_t held_count, held_capacity;
  uint64_t next_log; /* that the log before names; 0: none does */
};

static void report(void *context, const turb_error *problem) {
  struct verification *v = context;
  v->report.problems++;
  if (v->problem)
    v->problem(v->context, problem);
}

/* Ours ends the walk; the file's is reported, and OK is returned. */
static turb_status sort_out(struct verification *v, const turb_error *why, turb_error *err) {
  if (why->status == TURB_NO_MEMORY || why->status == TURB_BUDGET || why->status == TURB_TOO_MANY_FILES)
    return status_copy(err, why);
  report(v, why);
  return TURB_OK;
}

__attribute__((format(printf, 4, 5))) static void report_at(struct verification *v, const char *path, uint64_t offset, const char *format,
                                                            ...) {
  char text[400];
  va_list arguments;
  va_start(arguments, format);
  (void)vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  turb_error error = TURB_ERROR_INIT;
  (void)status_set_file(&error, TURB_CORRUPTION, path, offset, "%s", text);
  report(v, &error);
}

/* ---- the manifest ---- */

static turb_status replay_edit(void *context, const struct manifest_record *record, turb_error *err) {
  struct catalog *catalog = context;
  const turb_status status = catalog_stage(catalog, record->payload, err);
  if (status == TURB_OK)
    catalog_commit(catalog);
  return status;
}

static turb_status compare_catalogs(struct verification *v, const char *path, const struct catalog *read, turb_error *err) {
  struct version_edit a, b;
  turb_bytes in_file = TURB_NONE, in_memory = TURB_NONE;
  edit_init(&a, &v->db->allocator);
  edit_init(&b, &v->db->allocator);
  turb_status status = catalog_snapshot(read, &a, err);
  if (status == TURB_OK)
    status = catalog_snapshot(manifest_catalog(v->db->manifest), &b, err);
  if (status == TURB_OK)
    status = edit_encode(&a, &in_file, err);
  if (status == TURB_OK)
    status = edit_encode(&b, &in_memory, err);
  if (status == TURB_OK && !key_equal(in_file.data, in_file.size, in_memory.data, in_memory.size))
    report_at(v, path, STATUS_NO_OFFSET, "the manifest does not say what was written to it");
  edit_free(&a);
  edit_free(&b);
  return status;
}

/* Under db->mutex. An edit whose outcome is open may or may not be in the file: then only what verifies is looked at. */
static turb_status verify_manifest(struct verification *v, turb_error *err) {
  turb_db *db = v->db;
  char *path = db_path(db, NAME_MANIFEST, 0);
  if (!path)
    return status_set(err, TURB_NO_MEMORY, "no memory for a path");
  struct catalog catalog;
  catalog_init(&catalog, &db->allocator);
  uint64_t end = 0, torn = 0;
  turb_error why = TURB_ERROR_INIT;
  turb_status status = manifest_read(db->system, &db->allocator, path, NULL, replay_edit, &catalog, &end, &torn, &why);
  v->report.files++;
  v->report.bytes += end + torn;
  const bool settled = manifest_is_settled(db->manifest) && !db->options.read_only;
  if (status != TURB_OK)
    status = sort_out(v, &why, err);
  else if (settled && (torn || end != manifest_bytes(db->manifest)))
    report_at(v, path, end, "the manifest ends here; %llu bytes were written", (unsigned long long)manifest_bytes(db->manifest));
  else if (settled)
    status = compare_catalogs(v, path, &catalog, err);
  catalog_free(&catalog);
  mem_free_string(&db->allocator, path);
  return status;
}

/* ---- tables ---- */

static turb_status hold_versions(struct verification *v, turb_error *err) {
  turb_db *db = v->db;
  v->held_capacity = db->collection_count;
  if (!v->held_capacity)
    return TURB_OK;
  v->held = mem_alloc_array(&db->allocator, v->held_capacity, sizeof *v->held);
  if (!v->held)
    return status_set(err, TURB_NO_MEMORY, "no memory for a list of versions");
  for (size_t i = 0; i < db->collection_count; i++)
    v->held[v->held_count++] = version_retain(db->collections[i]->version);
  return TURB_OK;
}

static turb_status verify_table(struct verification *v, struct table *table, turb_error *err) {
  const struct table_record *record = table_get_record(table);
  const char *path = io_file_path(table_file(table));
  uint64_t size = 0, bytes = 0, entries = 0;
  turb_error why = TURB_ERROR_INIT;
  v->report.files++;
  turb_status status = io_stat(v->db->system, path, &size, NULL, &why);
  if (status != TURB_OK)
    return sort_out(v, &why, err);
  if (size != record->size_bytes)
    report_at(v, path, size < record->size_bytes ? size : record->size_bytes, "the table has %llu bytes, the manifest says %llu",
              (unsigned long long)size, (unsigned long long)record->size_bytes);
  status = table_verify(table, report, v, &bytes, &entries, &why);
  v->report.bytes += bytes;
  v->report.entries += entries;
  return status == TURB_OK || status == TURB_CORRUPTION ? TURB_OK : sort_out(v, &why, err);
}

static turb_status verify_tables(struct verification *v, turb_error *err) {
  turb_status status = TURB_OK;
  for (size_t i = 0; i < v->held_count; i++)
    for (uint32_t r = 0; r < v->held[i]->run_count; r++)
      for (uint32_t t = 0; t < v->held[i]->runs[r].view.count && status == TURB_OK; t++)
        status = verify_table(v, v->held[i]->runs[r].view.sources[t].table, err);
  return status;
}

/* ---- logs ---- */

static turb_status check_record(void *context, const struct log_record *record, turb_error *err) {
  struct verification *v = context;
  if (record->type != LOG_BATCH)
    return TURB_OK;
  struct batch_reader reader;
  turb_status status = batch_reader_open(&reader, record->payload, record->file, record->payload_offset, err);
  for (bool more = true; status == TURB_OK && more;) {
    struct batch_operation operation;
    status = batch_reader_next(&reader, &operation, &more, err);
    v->report.entries += status == TURB_OK && more;
  }
  return status;
}

static turb_status check_log(struct verification *v, uint64_t number, turb_error *err) {
  turb_db *db = v->db;
  const bool live = db->log && log_writer_number(db->log) == number;
  const struct log_recovery_options options = {.system = db->system,
                                               .allocator = &db->allocator,
                                               .folder = db->path,
                                               .database_id = manifest_database_id(db->manifest),
                                               .record = check_record,
                                               .context = v};
  char *path = db_path(db, NAME_LOG, number);
  if (!path)
    return status_set(err, TURB_NO_MEMORY, "no memory for a path");
  struct log_recovery log;
  turb_error why = TURB_ERROR_INIT;
  v->report.files++;
  turb_status status = log_recover(&options, number, &log, &why);
  v->report.bytes += log.file_bytes;
  if (status == TURB_OK && v->next_log && v->next_log != number)
    report_at(v, path, STATUS_NO_OFFSET, "the log before it names log %llu as its next", (unsigned long long)v->next_log);
  v->next_log = status == TURB_OK && log.ended ? log.next_number : 0;
  if (status == TURB_OK && live && (log.end != log_writer_end(db->log) || log.ended))
    report_at(v, path, log.end, "the log ends here; %llu bytes were written", (unsigned long long)log_writer_end(db->log));
  else if (status == TURB_OK && !live && !log.ended && !db->options.read_only)
    report_at(v, path, log.end, "the log has no end, though another one took its place");
  else if (status == TURB_OK && log.ended && log.file_bytes > log.end)
    report_at(v, path, log.end, "the log goes on for %llu bytes behind its end", (unsigned long long)(log.file_bytes - log.end));
  mem_free_string(&db->allocator, path);
  return status == TURB_OK ? TURB_OK : sort_out(v, &why, err);
}

/* Under leadership. Logs that are not needed any more are about to go: they are left out. */
static turb_status verify_logs(void *context, turb_error *err) {
  struct verification *v = context;
  turb_db *db = v->db;
  turb_status status = TURB_OK;
  mutex_lock(&db->mutex); /* no flush takes a log away */
  for (size_t i = 0; i < db->log_count && status == TURB_OK; i++)
    if (db->log_numbers[i] >= manifest_catalog(db->manifest)->oldest_log)
      status = check_log(v, db->log_numbers[i], err);
  mutex_unlock(&db->mutex);
  return status;
}

/* ---- the call ---- */

static turb_status verify_all(struct verification *v, turb_error *err) {
  turb_db *db = v->db;
  mutex_lock(&db->mutex);
  turb_status status = verify_manifest(v, err);
  if (status == TURB_OK)
    status = hold_versions(v, err);
  mutex_unlock(&db->mutex);
  if (status == TURB_OK)
    status = verify_tables(v, err);
  struct writer writer = {.prepare = verify_logs, .context = v, .durability = TURB_UNLOGGED};
  return status == TURB_OK ? write_submit(db, &writer, err) : status;
}

turb_status turb_verify(turb_db *db, void (*problem)(void *context, const turb_error *problem), void *context,
                        turb_verify_report *report_to, turb_error *err) {
  struct verification v = {.db = db, .problem = problem, .context = context, .report = {.size = sizeof v.report}};
  turb_status status = verify_all(&v, err);
  for (size_t i = 0; i < v.held_count; i++)
    version_release(v.held[i]);
  mem_free(&db->allocator, v.held, v.held_capacity * sizeof *v.held);
  if (report_to) {
    const turb_status written = options_write(&v.report, sizeof v.report, report_to, "turb_verify_report", err);
    status = status == TURB_OK ? written : status;
  }
  if (status == TURB_OK && v.report.problems)
    status = status_set_file(err, TURB_CORRUPTION, db->path, STATUS_NO_OFFSET, "verification found %llu problems",
                             (unsigned long long)v.report.problems);
  return status;
}
