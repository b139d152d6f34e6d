/* compactor/merge_job: writes the entries of several runs (or of one memtable: a flush) as one run of new tables.
 *
 * Streaming cursors over the inputs, a merge, the rules of retention.h, table writers. It works in steps, so that a caller without threads
 * can bound its time; within a step it blocks.
 *
 *   OPEN --step--> ... --step (done)--> FINISHED --keep--> outputs are the caller's
 *     any --close--> files that were not kept are removed
 *
 * Invariants
 *  1. Inputs are only read. Whatever happens, they are as they were.
 *  2. The sum of entry hashes of the input tables equals that of the outputs and of what was dropped; otherwise the job fails with
 *     CORRUPTION and its outputs go.
 *  3. Versions of one key are never in two output tables; range deletes are clipped at the borders.
 * Threads: one at a time; progress and cancel from any.
 */
#ifndef TURB_COMPACTOR_MERGE_JOB_H
#define TURB_COMPACTOR_MERGE_JOB_H

#include <stdatomic.h>

#include "compactor/retention.h"
#include "iterators/cursor.h"
#include "sstable/writer.h"

struct merge_job;

struct merge_progress {
  _Atomic uint64_t entries_done, entries_total; /* of the inputs */
  _Atomic uint64_t bytes_done, bytes_total;     /* of the inputs */
  _Atomic uint64_t bytes_written;
  _Atomic uint64_t entries_dropped;
  _Atomic bool cancelled; /* set by anyone: the job ends with CANCELLED at its next entry batch */
};

struct merge_job_options { /* borrowed until close */
  const struct table_env *env;
  const struct table_shape *shape;
  uint64_t collection_id, job;
  const struct run_view *const *runs; /* newest first */
  uint32_t run_count;
  const struct source *memtable; /* or NULL */
  uint32_t source_runs;          /* all source->run are below it */
  const uint64_t *snapshots;     /* ascending */
  size_t snapshot_count;
  bool bottom; /* nothing older lies below the inputs */
  uint64_t table_bytes;
  uint64_t memory_bytes; /* what it may take of env's budget, about: its streams are sized by it */
  bool paged;            /* no streams: page by page, in memory that the cache can spare; for when they did not fit */
  /* Gives the number and path (the job's: mem_free_string with env's allocator) of the next output. */
  turb_status (*next_file)(void *context, uint64_t *number, char **path, turb_error *err);
  void (*pause)(void *context, uint64_t bytes); /* rate limit: called with the bytes moved since the last call; may be NULL */
  void *context;
  struct merge_progress *progress;
};

struct merge_output {
  struct table_record record; /* keys are owned by the job */
  char *path;
  uint8_t *keys;
  size_t keys_size;
};

/* What a job without runs (a flush) takes of a budget with this limit. */
uint64_t merge_job_base_bytes(const struct table_shape *shape, uint64_t budget_limit_bytes);
/* The least that each run adds. */
uint64_t merge_job_run_bytes(const struct table_shape *shape);
TURB_MUST_CHECK turb_status merge_job_open(const struct merge_job_options *options, struct merge_job **job, turb_error *err);
/* Works until done, or until the monotonic clock passes deadline_ns (UINT64_MAX: to the end). */
TURB_MUST_CHECK turb_status merge_job_step(struct merge_job *job, uint64_t deadline_ns, bool *done, turb_error *err);
/* After done: the new tables in key order; none when nothing was left. Live until close. */
const struct merge_output *merge_job_outputs(const struct merge_job *job, size_t *count);
/* The outputs are named by the manifest now: close leaves their files. */
void merge_job_keep(struct merge_job *job);
void merge_job_close(struct merge_job *job); /* NULL ok */

#endif
