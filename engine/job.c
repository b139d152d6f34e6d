/* job.h has the contract, the states and the invariants. */
#include "engine/job.h"

#include "base/clock.h"
#include "engine/background.h"
#include "engine/collection.h"

#define EVENT_INTERVAL_NS (CLOCK_NS_PER_SECOND / 10)

/* ---- creating ---- */

static turb_status new_job(turb_collection *collection, turb_job_kind kind, struct job **out, turb_error *err) {
  turb_db *db = collection->db;
  struct job *job = mem_alloc_zeroed(&db->allocator, sizeof *job);
  if (!job)
    return status_set(err, TURB_NO_MEMORY, "no memory for a job");
  list_init(&job->link);
  job->db = db;
  job->collection = collection;
  job->kind = kind;
  job->id = db->next_job++;
  job->version = version_retain(collection->version);
  *out = job;
  return TURB_OK;
}

/* The snapshots that are alive: what the job must keep. */
static turb_status copy_snapshots(struct job *job, turb_error *err) {
  turb_db *db = job->db;
  mutex_lock(&db->snapshot_mutex);
  size_t count = 0;
  for (struct list *l = list_first(&db->snapshots); l; l = list_next(&db->snapshots, l))
    count++;
  turb_status status = TURB_OK;
  if (count) {
    job->snapshots = mem_alloc_array(&db->allocator, count, sizeof *job->snapshots);
    if (!job->snapshots)
      status = status_set(err, TURB_NO_MEMORY, "no memory for the list of snapshots");
  }
  for (struct list *l = list_first(&db->snapshots); l && job->snapshots; l = list_next(&db->snapshots, l))
    job->snapshots[job->snapshot_count++] = LIST_ENTRY(l, struct turb_snapshot, link)->sequence;
  mutex_unlock(&db->snapshot_mutex);
  return status;
}

turb_status job_create_flush(turb_collection *collection, struct job **out, turb_error *err) {
  *out = NULL;
  struct job *job;
  turb_status status = new_job(collection, TURB_JOB_FLUSH, &job, err);
  if (status != TURB_OK)
    return status;
  for (struct memtable_slot *m = collection->memtables; m; m = m->older)
    if (m->sealed && !m->flushed)
      job->slot = m; /* the last one is the oldest */
  const struct version *version = job->version;
  for (uint32_t i = 0; i < version->memtable_count; i++)
    if (version->memtables[i].memtable == job->slot->memtable)
      job->memtable = version->memtables[i];
  job->bottom = version->run_count == 0;
  status = copy_snapshots(job, err);
  if (status != TURB_OK) {
    job_free(job);
    return status;
  }
  collection->flushing = true;
  list_push_back(&job->db->jobs, &job->link);
  *out = job;
  return TURB_OK;
}

turb_status job_create_merge(turb_collection *collection, const struct policy_pick *pick, struct job **out, turb_error *err) {
  *out = NULL;
  struct job *job;
  turb_status status = new_job(collection, TURB_JOB_MERGE, &job, err);
  if (status != TURB_OK)
    return status;
  const turb_allocator *allocator = &job->db->allocator;
  job->run_count = (uint32_t)pick->count;
  job->runs = mem_alloc_array(allocator, pick->count, sizeof *job->runs);
  job->run_ids = mem_alloc_array(allocator, pick->count, sizeof *job->run_ids);
  status = job->runs && job->run_ids ? copy_snapshots(job, err) : status_set(err, TURB_NO_MEMORY, "no memory for a merge job");
  if (status != TURB_OK) {
    job_free(job);
    return status;
  }
  for (size_t i = 0; i < pick->count; i++) {
    const struct version_run *run = &job->version->runs[pick->first + i];
    job->runs[i] = &run->view;
    job->run_ids[i] = run->id;
    if (policy_drops(pick->reason)) {
      atomic_fetch_add(&job->progress.entries_total, run->entries);
      atomic_fetch_add(&job->progress.bytes_total, run->bytes);
    }
  }
  job->bottom = pick->bottom;
  job->reason = pick->reason;
  job->drops = policy_drops(pick->reason);
  if (job->drops)
    job->oldest_sequence = job->version->runs[pick->first + pick->count - 1].smallest_sequence;
  collection->merging = true;
  list_push_back(&job->db->jobs, &job->link);
  *out = job;
  return TURB_OK;
}

/* ---- working ---- */

static turb_status next_file(void *context, uint64_t *number, char **path, turb_error *err) {
  struct job *job = context;
  mutex_lock(&job->db->mutex);
  *number = job->db->next_file++;
  mutex_unlock(&job->db->mutex);
  *path = db_path(job->db, NAME_TABLE, *number);
  return *path ? TURB_OK : status_set(err, TURB_NO_MEMORY, "no memory for a path");
}

/* Holds a merge back to the rate limit. Sleeps in short pieces, so that a cancelled job ends soon. */
static void pay(void *context, uint64_t bytes) {
  struct job *job = context;
  const uint64_t rate = job->db->options.rate_limit_bytes_per_s;
  if (!rate || job->kind == TURB_JOB_FLUSH)
    return;
  job->paid_bytes += bytes;
  const uint64_t due_ns = job->begin_ns + (uint64_t)((double)job->paid_bytes * 1e9 / (double)rate);
  for (uint64_t now = clock_monotonic_ns(); now < due_ns && !atomic_load(&job->progress.cancelled); now = clock_monotonic_ns()) {
    const uint64_t left = due_ns - now, piece = left < 20 * CLOCK_NS_PER_MS ? left : 20 * CLOCK_NS_PER_MS;
    const struct timespec wait = {.tv_nsec = (long)piece};
    (void)nanosleep(&wait, NULL);
  }
}

static void send_event(const struct job *job, turb_event_kind kind) {
  turb_event event = {.kind = kind,
                      .job_kind = job->kind,
                      .job = job->id,
                      .collection = job->collection->name,
                      .entries_done = atomic_load(&job->progress.entries_done),
                      .entries_total = atomic_load(&job->progress.entries_total),
                      .bytes_done = atomic_load(&job->progress.bytes_done),
                      .bytes_total = atomic_load(&job->progress.bytes_total),
                      .value = atomic_load(&job->progress.bytes_written),
                      .status = job->status,
                      .text = job->status == TURB_OK ? "" : job->error.message};
  db_send_event(job->db, event);
}

static void send_drop_event(const struct job *job) {
  const char *text = job->reason == POLICY_DROP_AGE ? "the oldest runs were older than ttl_s" : "the tables had more than fifo_max_bytes";
  db_send_event(job->db, (turb_event){.kind = TURB_EVENT_DROPPED,
                                      .job_kind = job->kind,
                                      .job = job->id,
                                      .collection = job->collection->name,
                                      .entries_done = atomic_load(&job->progress.entries_total),
                                      .entries_total = atomic_load(&job->progress.entries_total),
                                      .bytes_done = atomic_load(&job->progress.bytes_total),
                                      .bytes_total = atomic_load(&job->progress.bytes_total),
                                      .value = job->dropped_runs,
                                      .text = text});
}

static turb_status open_merge(struct job *job, turb_error *err) {
  const struct merge_job_options options = {
      .env = &job->db->job_env,
      .shape = &job->collection->shape,
      .collection_id = job->collection->id,
      .job = job->id,
      .runs = job->runs,
      .run_count = job->run_count,
      .memtable = job->kind == TURB_JOB_FLUSH ? &job->memtable : NULL,
      .source_runs = job->version->source_runs,
      .snapshots = job->snapshots,
      .snapshot_count = job->snapshot_count,
      .bottom = job->bottom,
      .table_bytes = job->db->options.table_bytes,
      .memory_bytes = job->memory_bytes,
      .paged = job->paged,
      .next_file = next_file,
      .pause = pay,
      .context = job,
      .progress = &job->progress,
  };
  job->begin_ns = clock_monotonic_ns();
  const turb_status status = merge_job_open(&options, &job->merge, err);
  send_event(job, TURB_EVENT_JOB_BEGIN);
  return status;
}

bool job_step(struct job *job, uint64_t deadline_ns) {
  bool done = false;
  if (job->drops)
    return true;
  if (!job->merge)
    job->status = open_merge(job, &job->error);
  while (job->status == TURB_OK && !done) {
    /* Short steps, so that progress is told. */
    const uint64_t now = clock_monotonic_ns();
    if (now >= deadline_ns)
      return false;
    const uint64_t until = now + EVENT_INTERVAL_NS < deadline_ns ? now + EVENT_INTERVAL_NS : deadline_ns;
    job->status = merge_job_step(job->merge, until, &done, &job->error);
    if (!done && job->status == TURB_OK && clock_monotonic_ns() >= job->event_at_ns) {
      job->event_at_ns = clock_monotonic_ns() + EVENT_INTERVAL_NS;
      send_event(job, TURB_EVENT_JOB_PROGRESS);
    }
  }
  if (job->status == TURB_OK)
    job->status = io_sync_folder(job->db->system, job->db->path, &job->error);
  return true;
}

/* ---- installing ---- */

uint64_t job_oldest_log(const turb_db *db) {
  uint64_t oldest = db->log ? log_writer_number(db->log) : 0;
  for (size_t i = 0; i < db->collection_count; i++) {
    if (atomic_load(&db->collections[i]->dropped))
      continue;
    for (const struct memtable_slot *m = db->collections[i]->memtables; m; m = m->older) {
      const bool empty = !memtable_entries(m->memtable) && !memtable_range_delete_count(m->memtable);
      if (!m->flushed && (!empty || m->sealed) && m->first_log && m->first_log < oldest)
        oldest = m->first_log;
    }
  }
  return oldest;
}

void job_edit_counters(turb_db *db, struct version_edit *edit) {
  const struct catalog_counters *now = &manifest_catalog(db->manifest)->counters;
  struct catalog_counters counters = *now;
  counters.next_file = db->next_file;
  counters.next_job = db->next_job;
  const uint64_t visible = atomic_load(&db->visible_sequence);
  if (visible > counters.last_sequence)
    counters.last_sequence = visible;
  edit_set_counters(edit, &counters);
}

void job_refresh_version(turb_collection *collection) {
  turb_db *db = collection->db;
  struct version *version;
  turb_error why = TURB_ERROR_INIT;
  if (version_build(collection, collection->version, &version, &why) != TURB_OK) {
    collection->version_stale = true;
    logger_write(&db->logger, LOGGER_WARNING, "%s: the new version is tried again: %s", collection->name, why.message);
    return;
  }
  collection->version_stale = false;
  version_install(collection, version);
  for (struct memtable_slot **at = &collection->memtables; *at;) {
    struct memtable_slot *slot = *at;
    if (!slot->flushed) {
      at = &slot->older;
      continue;
    }
    *at = slot->older;
    collection_free_memtable(db, slot);
  }
}

/* Adds the outputs as one new run. */
static void edit_outputs(struct job *job, struct version_edit *edit, uint64_t run_id) {
  if (job->drops)
    return;
  size_t count;
  const struct merge_output *outputs = merge_job_outputs(job->merge, &count);
  if (!count)
    return;
  uint64_t *numbers = mem_alloc_array(&job->db->allocator, count, sizeof *numbers);
  if (!numbers) { /* the edit keeps its first failure; an append that cannot succeed makes it so */
    edit->payload.status = TURB_NO_MEMORY;
    return;
  }
  for (size_t i = 0; i < count; i++) {
    edit_add_table(edit, &outputs[i].record);
    numbers[i] = outputs[i].record.file_number;
  }
  edit_add_run(edit, run_id, job->collection->id, 0, 0, numbers, count);
  mem_free(&job->db->allocator, numbers, count * sizeof *numbers);
}

static void edit_inputs(struct job *job, struct version_edit *edit) {
  for (uint32_t r = 0; r < job->run_count; r++) {
    edit_remove_run(edit, job->run_ids[r]);
    for (uint32_t t = 0; t < job->runs[r]->count; t++)
      edit_remove_table(edit, table_get_record(job->runs[r]->sources[t].table)->file_number);
  }
}

/* What a flush says beside its table: up to where entries are in tables, the logs that are needed, and that they were written by now. */
static void edit_flush(struct job *job, struct version_edit *edit) {
  turb_db *db = job->db;
  const uint64_t last = memtable_last_sequence(job->slot->memtable), visible = atomic_load(&db->visible_sequence);
  edit_set_flushed(edit, job->collection->id, last);
  edit_add_time_mark(edit, last > visible ? last : visible, db_unix_s(db));
  job->slot->flushed = true; /* for the oldest log; taken back when the edit fails */
  if (db->log)
    edit_set_oldest_log(edit, job_oldest_log(db));
}

static turb_status install(struct job *job, turb_error *err) {
  turb_db *db = job->db;
  struct version_edit edit;
  edit_init(&edit, &db->allocator);
  const uint64_t run_id = manifest_catalog(db->manifest)->counters.next_run;
  edit_outputs(job, &edit, run_id);
  edit_inputs(job, &edit);
  if (job->slot)
    edit_flush(job, &edit);
  job_edit_counters(db, &edit);
  const turb_status status = manifest_append(db->manifest, &edit, err);
  edit_free(&edit);
  if (status != TURB_OK) {
    if (job->slot)
      job->slot->flushed = false;
    if (job->merge && !manifest_is_settled(db->manifest))
      merge_job_keep(job->merge); /* the edit may yet turn out to have happened */
    return status;
  }
  if (job->merge)
    merge_job_keep(job->merge);
  for (uint32_t r = 0; r < job->run_count; r++)
    for (uint32_t t = 0; t < job->runs[r]->count; t++)
      table_make_obsolete(job->runs[r]->sources[t].table);
  job_refresh_version(job->collection);
  return TURB_OK;
}

/* Whether no snapshot sees the runs that are to be dropped; then none is created until allow_snapshots. */
static bool fence_snapshots(const struct job *job) {
  turb_db *db = job->db;
  mutex_lock(&db->snapshot_mutex);
  struct list *last = list_last(&db->snapshots);
  db->dropping = !last || LIST_ENTRY(last, struct turb_snapshot, link)->sequence < job->oldest_sequence;
  const bool fenced = db->dropping;
  mutex_unlock(&db->snapshot_mutex);
  return fenced;
}

static void allow_snapshots(turb_db *db) {
  mutex_lock(&db->snapshot_mutex);
  db->dropping = false;
  mutex_unlock(&db->snapshot_mutex);
}

/* Drops the runs, unless a snapshot came to see them meanwhile: then nothing is done, and the policy finds them held. */
static turb_status install_drop(struct job *job, turb_error *err) {
  if (!fence_snapshots(job))
    return TURB_OK;
  const turb_status status = install(job, err);
  allow_snapshots(job->db);
  job->dropped_runs = status == TURB_OK ? job->run_count : 0;
  return status;
}

/* Takes the logs that no memtable needs any more from the list; *count of them are at its front. */
static size_t count_obsolete_logs(turb_db *db) {
  const uint64_t oldest = manifest_catalog(db->manifest)->oldest_log;
  size_t count = 0;
  while (count < db->log_count && db->log_numbers[count] < oldest)
    count++;
  return count;
}

static void remove_obsolete_logs(turb_db *db) {
  for (;;) {
    mutex_lock(&db->mutex);
    const bool any = count_obsolete_logs(db) > 0;
    const uint64_t number = any ? db->log_numbers[0] : 0;
    if (any)
      memmove(db->log_numbers, db->log_numbers + 1, --db->log_count * sizeof *db->log_numbers);
    mutex_unlock(&db->mutex);
    if (!any)
      return;
    char *path = db_path(db, NAME_LOG, number);
    turb_error why = TURB_ERROR_INIT;
    if (path && io_unlink(db->system, path, &why) != TURB_OK)
      logger_write(&db->logger, LOGGER_WARNING, "a log stays until the next open: %s", why.message);
    mem_free_string(&db->allocator, path);
  }
}

static void count_job(struct job *job) {
  struct db_counters *counters = &job->db->counters;
  if (job->drops) {
    atomic_fetch_add(&counters->runs_dropped, job->dropped_runs);
    atomic_fetch_add(&counters->run_bytes_dropped, job->dropped_runs ? atomic_load(&job->progress.bytes_total) : 0);
    return;
  }
  const uint64_t written = atomic_load(&job->progress.bytes_written);
  if (job->kind == TURB_JOB_FLUSH) {
    atomic_fetch_add(&counters->flush_bytes_written, written);
    atomic_fetch_add(&counters->flushes, job->status == TURB_OK);
  } else {
    atomic_fetch_add(&counters->merge_bytes_written, written);
    atomic_fetch_add(&counters->merge_bytes_read, atomic_load(&job->progress.bytes_done));
    atomic_fetch_add(&counters->merges, job->status == TURB_OK);
    atomic_fetch_add(&counters->merges_failed, job->status != TURB_OK);
  }
  if (job->status == TURB_OK)
    atomic_fetch_add(&counters->entries_dropped, atomic_load(&job->progress.entries_dropped));
}

void job_end(struct job *job) {
  turb_db *db = job->db;
  turb_collection *collection = job->collection;
  mutex_lock(&db->mutex);
  if (job->status == TURB_OK && atomic_load(&collection->dropped))
    job->status = status_set(&job->error, TURB_CANCELLED, "the collection was dropped");
  if (job->status == TURB_OK)
    job->status = job->drops ? install_drop(job, &job->error) : install(job, &job->error);
  mutex_unlock(&db->mutex);
  count_job(job);
  merge_job_close(job->merge);
  job->merge = NULL;
  io_system_drain(db->system); /* what it read ahead in vain would keep its tables until another ring is needed */
  version_release(job->version);
  job->version = NULL;
  if (job->status == TURB_OK && job->kind == TURB_JOB_FLUSH)
    remove_obsolete_logs(db);
  if (!job->drops)
    send_event(job, TURB_EVENT_JOB_END);
  else if (job->dropped_runs)
    send_drop_event(job);
}

void job_free(struct job *job) {
  if (!job)
    return;
  const turb_allocator *allocator = &job->db->allocator;
  merge_job_close(job->merge);
  version_release(job->version);
  mem_free(allocator, job->runs, job->run_count * sizeof *job->runs);
  mem_free(allocator, job->run_ids, job->run_count * sizeof *job->run_ids);
  mem_free(allocator, job->snapshots, job->snapshot_count * sizeof *job->snapshots);
  mem_free(allocator, job, sizeof *job);
}
