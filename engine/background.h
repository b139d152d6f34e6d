/* engine/background: which job next, and who does it: worker threads, or the caller of turb_maintain, or a writer that must wait and has
 * no worker to wait for.
 *
 *   flush   the oldest sealed memtable of a collection becomes a run
 *   merge   a stretch of runs, picked by compactor/policy, becomes one run; or the oldest runs, picked likewise, are dropped
 *
 * At most one job of each kind runs for a collection. Drops go first, since they make room, then flushes, also before a merge that the thread
 * has begun.
 *
 * Memory: jobs take of the budget's share for jobs. One begins when what it may take fits beside what the running ones may, or none runs;
 * how many runs a merge takes at once is bounded by it.
 *
 * When a job fails: NO_SPACE pauses all jobs, and each second one is tried; CORRUPTION blocks the merges of the collection until the next
 * open (nothing retries in a loop); everything
 * else is tried again after a wait that doubles from 50 ms to 10 s, but a merge that met a short budget
 * at once, with fewer runs. The inputs of a failed job stay in place.
 * Threads: any, unless said otherwise.
 */
#ifndef TURB_ENGINE_BACKGROUND_H
#define TURB_ENGINE_BACKGROUND_H

#include "engine/db.h"

TURB_MUST_CHECK turb_status background_start(turb_db *db, turb_error *err);
/* Ends jobs and joins workers. */
void background_stop(turb_db *db);
/* Something changed that may make a job due. */
void background_wake(turb_db *db);

/* Waits (or works, when there are no workers) until at most `sealed` memtables of the collection wait for their flush, or it is dropped.
 * NO_SPACE and others: why flushes fail. */
TURB_MUST_CHECK turb_status background_wait_for_flush(turb_collection *collection, uint32_t sealed, turb_error *err);
/* When runs pile up, waits until merges brought them down, as long as merges get on. */
void background_wait_for_merges(turb_collection *collection);
/* By the leader, short of memory: waits for a flush, after sealing the largest memtable when none is sealed. *more: memory may have become
 * free. */
TURB_MUST_CHECK turb_status background_free_memory(turb_db *db, bool *more, turb_error *err);
/* A log sync failed: the database takes no more writes. */
void background_log_failed(turb_db *db, const turb_error *why);

/* Under db->mutex. */
uint32_t background_sealed_count(const turb_collection *collection);

#endif
