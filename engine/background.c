/* background.h has the contract, the states and the invariants. */
#include "engine/background.h"

#include "base/clock.h"
#include "engine/compaction.h"
#include "engine/job.h"
#include "engine/write.h"

#define RETRY_FIRST_NS (50 * CLOCK_NS_PER_MS)
#define RETRY_LAST_NS  (10 * CLOCK_NS_PER_SECOND)
#define PAUSE_NS       CLOCK_NS_PER_SECOND
#define MERGE_SLICE_NS (20 * CLOCK_NS_PER_MS) /* how long a merge works before its thread looks for flushes that are due */
#define FAN_IN_MAX     128u

/* ---- which job next (under db->mutex) ---- */

uint32_t background_sealed_count(const turb_collection *collection) {
  uint32_t count = 0;
  for (const struct memtable_slot *m = collection->memtables; m; m = m->older)
    count += m->sealed && !m->flushed;
  return count;
}

/* What a flush of the collection takes of the jobs' share. */
static uint64_t flush_bytes(const turb_collection *collection) {
  return merge_job_base_bytes(&collection->shape, budget_limit(&collection->db->job_budget));
}

/* What a merge may take: what all flushes leave, in equal parts, but enough for two runs. */
static uint64_t merge_bytes(const turb_collection *collection) {
  const turb_db *db = collection->db;
  const uint64_t limit = budget_limit(&db->job_budget), base = flush_bytes(collection);
  const uint64_t threads = db->options.worker_threads ? db->options.worker_threads : 1;
  const uint64_t part = limit > base ? (limit - base) / threads : 0;
  const uint64_t least = base + 2 * merge_job_run_bytes(&collection->shape);
  return part > least ? part : least;
}

/* How many runs a merge may take at once. */
static uint32_t merge_fan_in(const turb_collection *collection) {
  const uint64_t runs = (merge_bytes(collection) - flush_bytes(collection)) / merge_job_run_bytes(&collection->shape);
  const uint64_t most = runs < FAN_IN_MAX ? runs : FAN_IN_MAX;
  const uint32_t bound = collection->fan_in_bound < 2 ? 2 : collection->fan_in_bound;
  return most < bound ? (uint32_t)most : bound;
}

static struct policy_pick pick_merge(const turb_collection *collection) {
  return compaction_pick(collection, merge_fan_in(collection));
}

/* Whether the jobs' share has room for another, or nobody else to make room. */
static bool may_reserve(const turb_db *db, uint64_t bytes) {
  return list_is_empty(&db->jobs) || db->reserved_bytes + bytes <= budget_limit(&db->job_budget);
}

/* The collection's job of the kind, when one is due and has room; NULL with err->status TURB_OK when not. */
static struct job *begin_one(turb_collection *c, turb_job_kind kind, turb_error *err) {
  turb_db *db = c->db;
  struct job *job = NULL;
  const uint64_t bytes = kind == TURB_JOB_FLUSH ? flush_bytes(c) : merge_bytes(c);
  if (!may_reserve(db, bytes))
    return NULL;
  if (kind == TURB_JOB_FLUSH) {
    if (!c->flushing && background_sealed_count(c))
      (void)!job_create_flush(c, &job, err);
  } else {
    const struct policy_pick pick = pick_merge(c);
    if (pick.reason != POLICY_NOTHING)
      (void)!job_create_merge(c, &pick, &job, err);
  }
  if (job) {
    job->memory_bytes = bytes;
    job->paged = kind == TURB_JOB_MERGE && c->fan_in_bound < 2;
    db->reserved_bytes += bytes;
  }
  return job;
}

/* Whether jobs may begin at all; if not, *when_ns is when they may again. */
static bool may_begin(const turb_db *db, uint64_t now_ns, uint64_t *when_ns) {
  *when_ns = UINT64_MAX;
  if (db->options.read_only || atomic_load(&db->log_failed))
    return false;
  if (!db->paused || now_ns >= db->pause_until_ns)
    return true;
  *when_ns = db->pause_until_ns;
  return false;
}

/* A job could not begin: it is tried again a little later. */
static void put_off(turb_collection *c, uint64_t now_ns, const turb_error *why) {
  c->retry_at_ns = now_ns + RETRY_FIRST_NS;
  logger_write(&c->db->logger, LOGGER_WARNING, "%s: a job could not begin: %s", c->name, why->message);
}

/* A drop of runs that is due, begun, or NULL. Drops go before everything else: on a full disk they make the room that flushes wait for. */
static struct job *begin_drop(turb_db *db) {
  const uint64_t now = clock_monotonic_ns();
  uint64_t when_ns;
  if (!atomic_load(&db->has_fifo) || !may_begin(db, now, &when_ns))
    return NULL;
  for (size_t i = 0; i < db->collection_count; i++) {
    turb_collection *c = db->collections[i];
    if (atomic_load(&c->dropped) || now < c->retry_at_ns || c->compaction.policy != TURB_COMPACTION_FIFO)
      continue;
    const struct policy_pick pick = pick_merge(c);
    if (!policy_drops(pick.reason))
      continue;
    struct job *job;
    turb_error why = TURB_ERROR_INIT;
    if (job_create_merge(c, &pick, &job, &why) == TURB_OK)
      return job;
    put_off(c, now, &why);
  }
  return NULL;
}

/* The next job that is due and of one of the kinds from `first` to `last`, begun; NULL when none is. *when_ns: when one may be due by time alone. */
static struct job *begin_job(turb_db *db, turb_job_kind first, turb_job_kind last, uint64_t *when_ns) {
  const uint64_t now = clock_monotonic_ns();
  if (!may_begin(db, now, when_ns))
    return NULL;
  for (turb_job_kind kind = first; kind <= last; kind++) {
    for (size_t i = 0; i < db->collection_count; i++) {
      turb_collection *c = db->collections[i];
      if (atomic_load(&c->dropped))
        continue;
      if (now < c->retry_at_ns) {
        if (c->retry_at_ns < *when_ns)
          *when_ns = c->retry_at_ns;
        continue;
      }
      if (c->version_stale)
        job_refresh_version(c);
      turb_error why = TURB_ERROR_INIT;
      struct job *job = begin_one(c, kind, &why);
      if (job)
        return job;
      const uint64_t drop_ns = kind == TURB_JOB_MERGE ? compaction_next_drop_ns(c) : UINT64_MAX;
      if (drop_ns < *when_ns)
        *when_ns = drop_ns;
      if (why.status != TURB_OK) {
        put_off(c, now, &why);
        *when_ns = c->retry_at_ns;
      }
    }
  }
  return NULL;
}

/* ---- how a job ended ---- */

/* Takes the job off the list and decides what its outcome means. True: an event about pausing is due. */
static turb_event_kind settle(struct job *job) {
  turb_db *db = job->db;
  turb_collection *c = job->collection;
  turb_event_kind event = (turb_event_kind)0;
  const bool narrower = job->kind == TURB_JOB_MERGE && job->status == TURB_BUDGET && !job->paged;
  mutex_lock(&db->mutex);
  list_remove(&job->link);
  db->reserved_bytes -= job->memory_bytes;
  if (job->kind == TURB_JOB_FLUSH) {
    c->flushing = false;
    if (job->status == TURB_OK)
      c->merge_held = false;
  } else {
    c->merging = false;
    c->merges_ended++;
    c->merge_error = job->error;
    c->merge_requested = c->merge_requested && (job->status == TURB_OK || narrower) && c->version->run_count > 1;
    if (narrower)
      c->fan_in_bound = job->run_count / 2; /* and at once: it is another job */
    else if (job->status == TURB_OK && c->fan_in_bound < FAN_IN_MAX)
      c->fan_in_bound *= 2;
  }
  if (job->status == TURB_OK) {
    c->failures = 0;
    c->retry_at_ns = 0;
    if (db->paused)
      event = TURB_EVENT_RESUMED;
    db->paused = false;
  } else if (job->status == TURB_NO_SPACE) {
    if (!db->paused)
      event = TURB_EVENT_PAUSED;
    db->paused = true;
    db->pause_until_ns = clock_monotonic_ns() + PAUSE_NS;
    db->pause_error = job->error;
  } else if (job->status == TURB_CANCELLED) {
    if (job->kind == TURB_JOB_MERGE)
      c->merge_held = true;
  } else if (job->status == TURB_CORRUPTION && job->kind == TURB_JOB_MERGE) {
    c->merge_blocked = true;
    event = TURB_EVENT_CORRUPTION;
  } else if (!narrower) {
    const uint64_t wait = c->failures < 8 ? RETRY_FIRST_NS << c->failures : RETRY_LAST_NS;
    c->failures++;
    c->retry_at_ns = clock_monotonic_ns() + (wait < RETRY_LAST_NS ? wait : RETRY_LAST_NS);
    db->pause_error = job->error;
  }
  cond_broadcast(&db->work_changed);
  mutex_unlock(&db->mutex);
  return event;
}

static void end_job(struct job *job) {
  job_end(job);
  const turb_event_kind event = settle(job);
  if (job->status != TURB_OK && job->status != TURB_CANCELLED)
    logger_write(&job->db->logger, LOGGER_ERROR, "%s: a %s failed: %s", job->collection->name,
                 job->kind == TURB_JOB_FLUSH ? "flush"
                 : job->drops                ? "drop of runs"
                                             : "merge",
                 job->error.message);
  if (event)
    db_send_event(job->db, (turb_event){.kind = event,
                                        .job_kind = job->kind,
                                        .job = job->id,
                                        .collection = job->collection->name,
                                        .status = job->status,
                                        .text = job->error.message});
  job_free(job);
}

/* Takes a begun job to its end. A merge lets flushes that are due go before it: writers may wait for them. */
static void do_job(struct job *job) {
  turb_db *db = job->db;
  const bool is_merge = job->kind == TURB_JOB_MERGE;
  while (!job_step(job, is_merge ? clock_monotonic_ns() + MERGE_SLICE_NS : UINT64_MAX)) {
    uint64_t when_ns;
    mutex_lock(&db->mutex);
    struct job *flush = db->closing ? NULL : begin_job(db, TURB_JOB_FLUSH, TURB_JOB_FLUSH, &when_ns);
    mutex_unlock(&db->mutex);
    if (flush)
      do_job(flush);
  }
  end_job(job);
}

/* ---- workers ---- */

/* What a worker does next: what is due, or what turb_maintain began and left. Under db->mutex. */
static struct job *next_for_worker(turb_db *db, uint64_t *when_ns) {
  struct job *job = begin_drop(db);
  if (!job)
    job = begin_job(db, TURB_JOB_FLUSH, TURB_JOB_MERGE, when_ns);
  for (turb_job_kind kind = TURB_JOB_FLUSH; kind <= TURB_JOB_MERGE && !job && !db->maintaining; kind++) {
    job = db->maintained[kind];
    db->maintained[kind] = NULL;
  }
  return job;
}

static void work(void *context) {
  turb_db *db = context;
  mutex_lock(&db->mutex);
  while (!db->closing) {
    uint64_t when_ns;
    struct job *job = next_for_worker(db, &when_ns);
    if (job) {
      mutex_unlock(&db->mutex);
      do_job(job);
      mutex_lock(&db->mutex);
      continue;
    }
    cond_broadcast(&db->work_changed); /* who waits for idleness looks */
    if (when_ns == UINT64_MAX)
      cond_wait(&db->work_changed, &db->mutex);
    else
      (void)cond_wait_until(&db->work_changed, &db->mutex, when_ns);
  }
  mutex_unlock(&db->mutex);
}

turb_status background_start(turb_db *db, turb_error *err) {
  const uint32_t count = db->options.read_only ? 0 : db->options.worker_threads;
  if (!count)
    return TURB_OK;
  db->workers = mem_alloc_array(&db->allocator, count, sizeof *db->workers);
  if (!db->workers)
    return status_set(err, TURB_NO_MEMORY, "no memory for %u workers", count);
  for (uint32_t i = 0; i < count; i++) {
    const turb_status status = thread_start(&db->workers[i], "turb-worker", work, db, err);
    if (status != TURB_OK)
      return status;
    db->workers_started++;
  }
  return TURB_OK;
}

void background_stop(turb_db *db) {
  mutex_lock(&db->mutex);
  db->closing = true;
  for (struct list *l = list_first(&db->jobs); l; l = list_next(&db->jobs, l))
    atomic_store(&LIST_ENTRY(l, struct job, link)->progress.cancelled, true);
  cond_broadcast(&db->work_changed);
  struct job *begun[TURB_JOB_MERGE + 1];
  memcpy(begun, db->maintained, sizeof begun);
  memset(db->maintained, 0, sizeof db->maintained);
  mutex_unlock(&db->mutex);
  for (turb_job_kind kind = TURB_JOB_FLUSH; kind <= TURB_JOB_MERGE; kind++) {
    if (begun[kind]) {
      begun[kind]->status = TURB_CANCELLED;
      end_job(begun[kind]);
    }
  }
  for (uint32_t i = 0; i < db->workers_started; i++)
    thread_join(&db->workers[i]);
  mem_free(&db->allocator, db->workers, db->options.worker_threads * sizeof *db->workers);
  db->workers = NULL;
}

void background_wake(turb_db *db) {
  mutex_lock(&db->mutex);
  cond_broadcast(&db->work_changed);
  mutex_unlock(&db->mutex);
}

void background_log_failed(turb_db *db, const turb_error *why) {
  if (atomic_exchange(&db->log_failed, true))
    return;
  background_wake(db);
  db_send_event(db, (turb_event){.kind = TURB_EVENT_READ_ONLY, .status = why ? why->status : TURB_IO, .text = why ? why->message : ""});
}

/* ---- waiting ---- */

static void count_stall(turb_db *db, turb_collection *collection, uint64_t begin_ns, const char *text) {
  const uint64_t us = (clock_monotonic_ns() - begin_ns) / 1000;
  atomic_fetch_add(&db->counters.stall_us, us);
  atomic_fetch_add(&db->counters.stalls, 1);
  db_send_event(db, (turb_event){.kind = TURB_EVENT_STALL, .collection = collection->name, .value = us, .text = text});
}

/* The job that turb_maintain goes on with: a drop that is due, a begun flush, a flush that is due, a begun merge, a merge that is due. Under
 * db->mutex. */
static struct job *next_maintained(turb_db *db) {
  uint64_t when_ns;
  struct job *drop = db->maintained[TURB_JOB_MERGE] ? NULL : begin_drop(db);
  if (drop) {
    db->maintained[TURB_JOB_MERGE] = drop;
    return drop;
  }
  for (turb_job_kind kind = TURB_JOB_FLUSH; kind <= TURB_JOB_MERGE; kind++) {
    struct job *job = db->maintained[kind];
    if (!job)
      job = db->maintained[kind] = begin_job(db, kind, kind, &when_ns);
    if (job)
      return job;
  }
  return NULL;
}

/* Works on what is due until the deadline has passed or, with `one`, a job was done. True when one was. */
static bool maintain(turb_db *db, uint64_t deadline_ns, bool one) {
  bool any = false;
  mutex_lock(&db->mutex);
  while (db->maintaining)
    cond_wait(&db->work_changed, &db->mutex);
  db->maintaining = true;
  for (struct job *job = next_maintained(db); job; job = next_maintained(db)) {
    mutex_unlock(&db->mutex);
    const uint64_t slice_ns = clock_monotonic_ns() + MERGE_SLICE_NS;
    const bool done = job_step(job, job->kind == TURB_JOB_MERGE && slice_ns < deadline_ns ? slice_ns : deadline_ns);
    if (done) {
      mutex_lock(&db->mutex);
      db->maintained[job->kind] = NULL;
      mutex_unlock(&db->mutex);
      end_job(job);
    }
    mutex_lock(&db->mutex);
    any |= done;
    if ((one && done) || clock_monotonic_ns() >= deadline_ns)
      break;
  }
  db->maintaining = false;
  cond_broadcast(&db->work_changed);
  mutex_unlock(&db->mutex);
  return any;
}

/* Without workers, under db->mutex, which it lets go meanwhile: goes on with a begun job or does the next, but not beyond the deadline; when
 * none is due yet (one failed), sleeps a little. False: none was done. */
static bool work_here(turb_db *db, uint64_t deadline_ns) {
  mutex_unlock(&db->mutex);
  const bool did = db_check_writable(db, NULL) == TURB_OK && maintain(db, deadline_ns, true);
  mutex_lock(&db->mutex);
  const uint64_t look_ns = clock_monotonic_ns() + 10 * CLOCK_NS_PER_MS;
  if (!did)
    (void)cond_wait_until(&db->work_changed, &db->mutex, look_ns < deadline_ns ? look_ns : deadline_ns);
  return did;
}

/* Whether who waits for a flush is told why none succeeds: nobody tries it just now. Under db->mutex. */
static bool flushes_rest(const turb_collection *collection) {
  const turb_db *db = collection->db;
  if (!db->paused && collection->failures <= 3)
    return false;
  return db->workers_started || clock_monotonic_ns() < (db->paused ? db->pause_until_ns : collection->retry_at_ns);
}

turb_status background_wait_for_flush(turb_collection *collection, uint32_t sealed, turb_error *err) {
  turb_db *db = collection->db;
  const uint64_t begin_ns = clock_monotonic_ns();
  bool waited = false;
  turb_status status = TURB_OK;
  mutex_lock(&db->mutex);
  while (background_sealed_count(collection) > sealed && status == TURB_OK && !atomic_load(&collection->dropped)) {
    if (atomic_load(&db->log_failed)) {
      status = status_set(err, TURB_READ_ONLY, "the log failed: the database takes no more writes");
    } else if (flushes_rest(collection)) {
      status = status_copy(err, &db->pause_error);
    } else if (!db->workers_started) {
      (void)work_here(db, UINT64_MAX);
    } else {
      waited = true;
      (void)cond_wait_until(&db->work_changed, &db->mutex, clock_monotonic_ns() + CLOCK_NS_PER_SECOND / 10);
    }
  }
  mutex_unlock(&db->mutex);
  if (waited)
    count_stall(db, collection, begin_ns, "writers waited for a flush");
  return status;
}

/* More of them than a merge policy that keeps up lets stand. */
static uint32_t runs_max(const turb_collection *collection) {
  const struct policy_options options = compaction_options(collection);
  return policy_runs_max(&options);
}

void background_wait_for_merges(turb_collection *collection) {
  turb_db *db = collection->db;
  const uint64_t begin_ns = clock_monotonic_ns();
  bool waited = false;
  mutex_lock(&db->mutex);
  while (collection->version->run_count > runs_max(collection) && !db->paused && !collection->failures && !atomic_load(&db->log_failed) &&
         (collection->merging || pick_merge(collection).reason != POLICY_NOTHING)) {
    waited = true;
    if (!db->workers_started) {
      if (!work_here(db, UINT64_MAX))
        break;
    } else {
      (void)cond_wait_until(&db->work_changed, &db->mutex, clock_monotonic_ns() + CLOCK_NS_PER_SECOND / 10);
    }
  }
  mutex_unlock(&db->mutex);
  if (waited)
    count_stall(db, collection, begin_ns, "writers waited for a merge");
}

turb_status background_free_memory(turb_db *db, bool *more, turb_error *err) {
  *more = false;
  turb_collection *flushed = NULL, *largest = NULL;
  uint64_t largest_bytes = 0;
  mutex_lock(&db->mutex);
  for (size_t i = 0; i < db->collection_count; i++) {
    turb_collection *c = db->collections[i];
    if (atomic_load(&c->dropped) || !c->memtables)
      continue;
    if (background_sealed_count(c))
      flushed = c;
    const struct memtable *memtable = c->memtables->memtable;
    if (!memtable_entries(memtable) || memtable_bytes(memtable) <= largest_bytes)
      continue;
    largest = c;
    largest_bytes = memtable_bytes(memtable);
  }
  const uint32_t left = flushed ? background_sealed_count(flushed) - 1 : 0;
  mutex_unlock(&db->mutex);
  turb_status status = TURB_OK;
  if (!flushed && largest) {
    status = write_switch_memtable(largest, err);
    flushed = largest;
  }
  if (!flushed || status != TURB_OK)
    return status;
  *more = true;
  return background_wait_for_flush(flushed, left, err);
}

/* ---- the public calls ---- */

/* Whether a flush or merge is due. Under db->mutex. */
static bool is_due(turb_db *db) {
  for (size_t i = 0; i < db->collection_count; i++) {
    turb_collection *c = db->collections[i];
    if (!atomic_load(&c->dropped) && (background_sealed_count(c) || pick_merge(c).reason != POLICY_NOTHING))
      return true;
  }
  return false;
}

turb_status turb_maintain(turb_db *db, uint32_t budget_ms, bool *more, turb_error *err) {
  *more = false;
  const turb_status writable = db_check_writable(db, err);
  if (writable != TURB_OK)
    return writable;
  (void)maintain(db, clock_monotonic_ns() + budget_ms * CLOCK_NS_PER_MS, false);
  mutex_lock(&db->mutex);
  *more = !db->paused && (db->maintained[TURB_JOB_FLUSH] || db->maintained[TURB_JOB_MERGE] || is_due(db));
  mutex_unlock(&db->mutex);
  return TURB_OK;
}

/* Whether a job runs or is due. Under db->mutex. */
static bool is_busy(turb_db *db) {
  if (!list_is_empty(&db->jobs))
    return true;
  return !db->options.read_only && !atomic_load(&db->log_failed) && is_due(db);
}

turb_status turb_wait_idle(turb_db *db, int timeout_ms, turb_error *err) {
  const uint64_t deadline_ns = timeout_ms < 0 ? UINT64_MAX : clock_monotonic_ns() + (uint64_t)timeout_ms * CLOCK_NS_PER_MS;
  turb_status status = TURB_OK;
  mutex_lock(&db->mutex);
  while (is_busy(db) && status == TURB_OK) {
    if (clock_monotonic_ns() >= deadline_ns) {
      status = status_set(err, TURB_TIMED_OUT, "background work goes on after %d ms", timeout_ms);
    } else if (!db->workers_started) {
      (void)work_here(db, deadline_ns);
    } else {
      const uint64_t look_ns = clock_monotonic_ns() + CLOCK_NS_PER_SECOND / 10;
      (void)cond_wait_until(&db->work_changed, &db->mutex, look_ns < deadline_ns ? look_ns : deadline_ns);
    }
  }
  mutex_unlock(&db->mutex);
  return status;
}

turb_status turb_cancel(turb_db *db, uint64_t job, turb_error *err) {
  bool found = false;
  mutex_lock(&db->mutex);
  for (struct list *l = list_first(&db->jobs); l; l = list_next(&db->jobs, l)) {
    struct job *running = LIST_ENTRY(l, struct job, link);
    if (job ? running->id != job : running->kind != TURB_JOB_MERGE)
      continue;
    atomic_store(&running->progress.cancelled, true);
    found = true;
  }
  mutex_unlock(&db->mutex);
  return found || !job ? TURB_OK : status_set(err, TURB_NOT_FOUND, "no job %llu is running", (unsigned long long)job);
}

static turb_status flush_one(turb_collection *collection, turb_error *err) {
  turb_status status = write_seal(collection, err);
  return status == TURB_OK ? background_wait_for_flush(collection, 0, err) : status;
}

/* Calls `each` for one collection or all. */
static turb_status for_each(turb_db *db, turb_collection *collection, turb_status (*each)(turb_collection *, turb_error *),
                            turb_error *err) {
  turb_status status = db_check_writable(db, err);
  if (status != TURB_OK)
    return status;
  if (collection) {
    status = db_check_readable(collection, err);
    if (status == TURB_OK)
      status = each(collection, err);
    return status == TURB_OK ? db_check_readable(collection, err) : status; /* it may have been dropped meanwhile */
  }
  for (size_t i = 0; status == TURB_OK; i++) {
    mutex_lock(&db->mutex);
    collection = i < db->collection_count ? db->collections[i] : NULL;
    mutex_unlock(&db->mutex);
    if (!collection)
      break;
    turb_error why = TURB_ERROR_INIT;
    if (!atomic_load(&collection->dropped) && each(collection, &why) != TURB_OK && !atomic_load(&collection->dropped))
      status = status_copy(err, &why);
  }
  return status;
}

turb_status turb_flush(turb_db *db, turb_collection *collection, turb_error *err) {
  return for_each(db, collection, flush_one, err);
}

static turb_status compact_one(turb_collection *collection, turb_error *err) {
  turb_db *db = collection->db;
  turb_status status = flush_one(collection, err);
  mutex_lock(&db->mutex);
  while (status == TURB_OK && !atomic_load(&collection->dropped) && (collection->merging || collection->version->run_count > 1)) {
    if (collection->merge_blocked) {
      status = status_copy(err, &collection->merge_error);
      break;
    }
    if (!collection->merging && !collection->merge_requested) {
      collection->merge_requested = true;
      cond_broadcast(&db->work_changed); /* once: an idle worker that looks wakes who waits here in turn */
    }
    const uint64_t ended = collection->merges_ended;
    if (!db->workers_started) {
      (void)work_here(db, UINT64_MAX);
    } else {
      (void)cond_wait_until(&db->work_changed, &db->mutex, clock_monotonic_ns() + CLOCK_NS_PER_SECOND / 10);
    }
    if (db->paused)
      status = status_copy(err, &db->pause_error);
    else if (collection->merges_ended != ended && collection->merge_error.status != TURB_OK && !collection->merge_requested)
      status = status_copy(err, &collection->merge_error);
    else if (atomic_load(&db->log_failed))
      status = status_set(err, TURB_READ_ONLY, "the log failed: the database takes no more writes");
  }
  collection->merge_requested = false;
  mutex_unlock(&db->mutex);
  return status;
}

turb_status turb_compact(turb_db *db, turb_collection *collection, turb_error *err) {
  return for_each(db, collection, compact_one, err);
}
