/* engine/db: the open database: what its parts share.
 *
 *   write.c       the group commit: log, memtables, the step of the visible sequence
 *   open.c        options, recovery, close
 *   version.c     what readers see of a collection
 *   collection.c  create, open, drop, list
 *   background.c  which job next; workers; turb_maintain; waiting and cancelling
 *   compaction.c  how a collection's runs are merged: options, and the pick of the policy
 *   job.c         a flush or merge from its inputs to the new version, driven by compactor/; a drop of runs
 *   get.c, iterator.c, loop.c, search.c, snapshot.c  reads
 *   stats.c, event.c, verify.c, dump.c, checkpoint.c
 *
 * Locks, in the order in which they may be taken
 *   write_mutex     the queue of writers; who leads
 *   mutex           collections, memtable lists, versions being built, jobs, the manifest and its catalog
 *   collection->version_mutex   the pointer to the current version and the reading of visible_sequence beside it (short)
 *   snapshot_mutex  the list of snapshots (short)
 * No lock but write_mutex's leadership (not the mutex itself) is held over an I/O, except `mutex` over a manifest append: edits come in
 * one order.
 *
 * Invariants
 *   1. visible_sequence: every entry at or below it is in a memtable or table of the current version of its collection, and none of those
 *      is half of a batch.
 *   2. A reader takes version and visible_sequence together under version_mutex: a merge that is installed later dropped only what neither
 *      a snapshot nor a sequence at or above the visible one at its start can see; a run that is dropped was seen by no snapshot.
 *   3. The jobs' reservations are within their share, but for a job that runs alone.
 *   4. A collection's memtables are newest first: [0] takes writes, the others wait for their flush, oldest first.
 */
#ifndef TURB_ENGINE_DB_H
#define TURB_ENGINE_DB_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/alloc.h"
#include "base/list.h"
#include "base/logger.h"
#include "base/thread.h"
#include "engine/catalog.h"
#include "engine/log.h"
#include "engine/manifest.h"
#include "engine/name.h"
#include "engine/options.h"
#include "engine/version.h"
#include "io/io.h"
#include "memtable/pool.h"
#include "sstable/block.h"
#include "sstable/table.h"

struct job;

struct turb_collection {
  turb_db *db;
  uint64_t id;
  char name[TURB_MAX_NAME_BYTES + 1];
  turb_index index;
  struct table_shape shape;
  _Atomic bool dropped;
  /* under db->mutex */
  struct memtable_slot *memtables; /* newest first; owned */
  struct catalog_compaction compaction;
  bool flushing, merging; /* at most one job of each kind a collection */
  bool merge_requested;   /* everything into one run (turb_compact) */
  bool merge_blocked;     /* a merge met corruption: not tried again until the next open */
  bool merge_held;        /* a merge was cancelled: none by itself until the next flush */
  bool version_stale;     /* the catalog went on, but there was no memory for the version: tried again */
  uint32_t failures;      /* of jobs in a row */
  /* Runs that a merge may take: halved when one met a short budget (1: two, without streams), doubled when one did well. */
  uint32_t fan_in_bound;
  uint64_t retry_at_ns; /* no job before */
  uint64_t merges_ended;
  turb_error merge_error; /* of the last merge */
  /* the current version */
  pthread_mutex_t version_mutex;
  struct version *version;
};

struct memtable_slot {
  struct memtable *memtable;
  uint64_t first_log; /* the oldest log that may hold its entries */
  struct memtable_slot *older;
  bool sealed;  /* takes no more writes */
  bool flushed; /* its entries are in tables: leaves with the next version */
};

struct turb_snapshot {
  turb_db *db;
  struct list link; /* ascending by sequence */
  uint64_t sequence;
  uint64_t created_ns;
};

struct db_options { /* checked, defaults filled in */
  turb_backend backend;
  uint64_t memory_budget_bytes, memtable_bytes, table_bytes, rate_limit_bytes_per_s, registered_buffer_bytes;
  turb_durability durability;
  uint32_t worker_threads; /* 0: none */
  uint32_t size_ratio, max_space_amplification_percent, ring_entries;
  bool create_if_missing, error_if_exists, read_only, salvage, buffered_io;
  void *callback_context;
  void (*on_event)(void *context, const turb_event *event);
  void (*on_log)(void *context, turb_log_level level, const char *text);
  turb_log_level log_level;
  turb_simulation *simulation;
};

struct db_counters { /* for statistics; relaxed */
  _Atomic uint64_t user_bytes_written, log_bytes_written, flush_bytes_written, merge_bytes_read, merge_bytes_written;
  _Atomic uint64_t log_syncs, write_groups, flushes, merges, merges_failed, entries_dropped, stall_us, stalls, runs_dropped,
      run_bytes_dropped;
};

struct turb_db {
  turb_allocator allocator;
  struct db_options options;
  struct logger logger;
  struct budget budget;
  /* Shares of it, so that none leaves nothing to the others or to readers by pages. */
  struct budget memtable_budget, job_budget, stream_budget;
  budget_reclaim_fn reclaim_cache; /* the cache's way of giving memory up, behind the pool's */
  void *reclaim_cache_context;
  struct memtable_pool memtable_pool; /* chunks of released memtables, for the next ones */
  char *path;
  struct io_system *system;
  struct io_lock *lock;
  struct cache *cache;
  struct block_pool block_pool;
  struct table_env table_env;
  struct table_env job_env;  /* the same for jobs: their budget is the jobs' share */
  struct manifest *manifest; /* under mutex */

  pthread_mutex_t mutex;
  pthread_cond_t work_changed;   /* a job may be due, or ended; memtables went */
  turb_collection **collections; /* by rising id; handles live until close */
  size_t collection_count, collection_capacity;
  uint64_t next_file, next_job; /* counters run ahead of the catalog's, which every edit brings up to date */
  uint64_t *log_numbers;        /* logs that are there, ascending */
  size_t log_count, log_capacity;
  struct list jobs;                           /* running */
  uint64_t reserved_bytes;                    /* of the jobs' share, by them */
  struct job *maintained[TURB_JOB_MERGE + 1]; /* begun by turb_maintain, not done yet; by kind */
  bool maintaining;                           /* a thread is at it */
  struct thread *workers;
  uint32_t workers_started;
  bool closing;
  bool paused; /* full disk */
  uint64_t pause_until_ns;
  turb_error pause_error;

  /* writing */
  pthread_mutex_t write_mutex;
  struct list writers;    /* of struct writer, in order of arrival; the first leads */
  uint32_t writer_count;  /* in the list */
  uint32_t company;       /* writers that were there when the last group ended, its own included: mostly they come again */
  uint32_t awaited;       /* the first waits until so many are in the list; 0: it does not */
  uint64_t sync_ns;       /* about how long a sync of the log takes; the leader's */
  struct log_writer *log; /* the leader's, and of who holds leadership; NULL when read-only */
  uint64_t last_sequence; /* the leader's: the last one given out */
  _Atomic uint64_t visible_sequence;
  _Atomic uint64_t durable_sequence;
  _Atomic bool log_failed; /* a sync failed: read-only from then on */

  pthread_mutex_t snapshot_mutex;
  struct list snapshots;
  bool dropping; /* runs are being dropped, by who holds mutex: no new snapshot until then; under snapshot_mutex */

  /* what keeps the database from closing */
  _Atomic uint64_t live_iterators, live_loops, live_pins, live_results, live_batches;
  pthread_mutex_t iterator_mutex; /* the list of iterators, for their ages */
  struct list iterators;

  struct db_counters counters;
  _Atomic uint64_t obsolete_tables; /* open for readers only */
  _Atomic bool has_dropped;         /* dropped collections may have memtables, which the next leader lets go */
  _Atomic bool has_fifo;            /* a collection had the policy once: the release of a snapshot may make a drop due */
  _Atomic uint64_t fixed_unix_s;    /* for tests: the time of day, when not 0 */
  _Atomic bool has_unlogged;        /* memtables may hold entries that no log has */
};

/* Lock rules as above. */

/* The collection with an id, or NULL; under db->mutex or by the leader. */
turb_collection *db_collection(turb_db *db, uint64_t id);
/* NOT_FOUND for a dropped one, READ_ONLY for a database that takes no writes. */
TURB_MUST_CHECK turb_status db_check_readable(turb_collection *collection, turb_error *err);
TURB_MUST_CHECK turb_status db_check_writable(turb_db *db, turb_error *err);

/* The time of day in unix seconds: marks and TTLs go by it. */
uint64_t db_unix_s(const turb_db *db);

/* Sends an event (under no lock). `event` has its size set here. */
void db_send_event(turb_db *db, turb_event event);

/* A path of a file of the database; release with mem_free_string(&db->allocator, path). NULL: no memory. */
TURB_MUST_CHECK char *db_path(const turb_db *db, enum name_kind kind, uint64_t number);

#endif
