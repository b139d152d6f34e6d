/* engine/job: one flush or merge, from its inputs to the new version; or the drop of the oldest runs, which has nothing to write.
 *
 *   job_create (under db->mutex) -> job_step ... -> job_end (installs, or leaves everything as it was) -> job_free
 *
 * Invariants
 *  1. From job_create to job_end the collection's `flushing` or `merging` is set.
 *  2. A drop is a job of kind MERGE to everybody but its events. It happens only when no snapshot sees the runs at that moment.
 *  3. New tables are synced, and their folder is, before the edit that names them; inputs leave after it.
 * Threads: one at a time; progress from any.
 */
#ifndef TURB_ENGINE_JOB_H
#define TURB_ENGINE_JOB_H

#include "compactor/merge_job.h"
#include "compactor/policy.h"
#include "engine/db.h"

struct job {
  struct list link; /* in db->jobs, under db->mutex */
  turb_db *db;
  turb_collection *collection;
  turb_job_kind kind;
  uint64_t id;
  struct merge_progress progress;
  struct merge_job *merge;
  bool drops;                 /* its runs are dropped, not merged */
  struct version *version;    /* keeps the inputs */
  struct memtable_slot *slot; /* of a flush */
  struct source memtable;
  const struct run_view **runs; /* of a merge, newest first */
  uint64_t *run_ids;
  uint32_t run_count;
  uint64_t *snapshots;
  size_t snapshot_count;
  bool bottom;
  enum policy_reason reason;
  uint64_t oldest_sequence;      /* of a drop: the smallest in its runs */
  uint32_t dropped_runs;         /* by it */
  uint64_t memory_bytes;         /* reserved of the jobs' share */
  bool paged;                    /* a merge without streams */
  uint64_t begin_ns, paid_bytes; /* rate limit */
  uint64_t event_at_ns;
  turb_status status;
  turb_error error;
};

/* A flush of the collection's oldest sealed memtable, or a merge or drop as picked. Under db->mutex. */
TURB_MUST_CHECK turb_status job_create_flush(turb_collection *collection, struct job **job, turb_error *err);
TURB_MUST_CHECK turb_status job_create_merge(turb_collection *collection, const struct policy_pick *pick, struct job **job,
                                             turb_error *err);
/* Works until done or the deadline; failures end it too (job->status). True when it is done. No lock held. */
bool job_step(struct job *job, uint64_t deadline_ns);
/* Installs the result of a job that did well; takes db->mutex. Sets job->status. */
void job_end(struct job *job);
void job_free(struct job *job);

/* Builds and installs the collection's version as the catalog and memtables are now; when there is no memory for it, the old one stays and
 * the collection is `version_stale`. Under db->mutex. */
void job_refresh_version(turb_collection *collection);
/* The oldest log that a memtable needs. Under db->mutex. */
uint64_t job_oldest_log(const turb_db *db);
/* Fills an edit with the counters as they are. Under db->mutex. */
void job_edit_counters(turb_db *db, struct version_edit *edit);

#endif
