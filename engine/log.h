/*
 * The log (docs/format.md 4): its writer, the recovery of one log, and that of all logs of a database.
 *
 * A writer appends records to one file and makes them durable:
 *
 *   OPEN --append--> OPEN --sync--> OPEN --finish--> FINISHED
 *     |                |
 *     |                +-- a sync fails --> FAILED: every later call gives TURB_UNKNOWN_OUTCOME
 *     +-- a write fails --> OPEN: the record is not there, the next append takes its place
 *
 * The staging area is a small stretch at the begin of the file, mapped into memory and shared with the page cache: what is stored there
 * survives the process. Appends that need no sync are stored in it (a copy instead of a system call) and written to their place when it is
 * full or a sync comes. Where the system has no such mapping (see io_file_map) there is none, and each append is a write.
 *
 * Invariants of a writer
 *   1. A record is whole with the operating system before log_writer_append returns OK (it survives a killed process).
 *   2. log_writer_durable never passes what a sync that went well covered; each record carries its value at the time of writing.
 *   3. A failed sync is final: what the log holds beyond the durable mark is unknown, and the writer takes nothing more.
 *
 * Rules for who writes logs (recovery of the set relies on them)
 *   1. A log is created (durable, with its name) before another log names it as the next.
 *   2. The old log is finished before the first append to the next one: records of a newer log imply all of the older.
 *   3. After recovery, writing goes on in a new log, and the recovered ones are sealed (log_set_seal) before its first append.
 *
 * Threads: appends by one thread at a time, syncs by one thread at a time; an append may run while a sync does (it is covered by the next
 * one). log_writer_end, _durable and _bytes from any thread.
 */
#ifndef TURB_ENGINE_LOG_H
#define TURB_ENGINE_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/alloc.h"
#include "base/logger.h"
#include "base/status.h"
#include "io/io.h"

#define LOG_DATABASE_ID_BYTES 16u
#define LOG_HEADER_BYTES      4096u
#define LOG_RECORD_BYTES      40u /* in front of the payload */
#define LOG_MAX_PAYLOAD       UINT32_MAX

enum log_record_type { LOG_BATCH = 1, LOG_END = 2 };

/* ---- writing ---- */

struct log_writer;

struct log_writer_options {
  struct io_system *system;
  const turb_allocator *allocator;
  const char *folder;
  const uint8_t *database_id; /* LOG_DATABASE_ID_BYTES */
  uint64_t number;
  uint64_t first_sequence; /* that it may hold */
};

/* Makes the file (EXISTS when there), durable with its name. */
TURB_MUST_CHECK turb_status log_writer_create(const struct log_writer_options *options, struct log_writer **writer, turb_error *err);

enum log_append_mode {
  LOG_APPEND_LOGGED = 1, /* not synced at once: goes through the staging area where there is one, without a system call */
  LOG_APPEND_SYNCED = 2  /* log_writer_sync follows: written straight to its place */
};

/*
 * Appends one record of type LOG_BATCH whose payload is the pieces put together (1 to LOG_MAX_PAYLOAD bytes, else TOO_LARGE). *end (may be
 * NULL) is the offset behind it: the record is durable once log_writer_durable reaches it. In both modes the record survives a killed
 * process
 * when this returns OK; the mode decides what is cheaper. NO_SPACE, IO: nothing was appended, and it may be tried again. UNKNOWN_OUTCOME:
 * an
 * earlier sync failed.
 */
TURB_MUST_CHECK turb_status log_writer_append(struct log_writer *writer, enum log_append_mode mode, const turb_bytes *pieces, size_t count,
                                              uint64_t *end, turb_error *err);

/*
 * Makes durable what was appended before the call; without a system call when it already is. UNKNOWN_OUTCOME: this or an earlier sync
 * failed.
 */
TURB_MUST_CHECK turb_status log_writer_sync(struct log_writer *writer, turb_error *err);

/* Appends the end-of-log record naming the next log, gives reserved space back and syncs. Nothing can be appended afterwards. */
TURB_MUST_CHECK turb_status log_writer_finish(struct log_writer *writer, uint64_t next_number, turb_error *err);

/* Releases the writer; does not sync (what was appended stays with the operating system). NULL ok. */
void log_writer_close(struct log_writer *writer);

uint64_t log_writer_number(const struct log_writer *writer);
uint64_t log_writer_end(const struct log_writer *writer);     /* behind the last record */
uint64_t log_writer_durable(const struct log_writer *writer); /* the durable mark */
uint64_t log_writer_bytes(const struct log_writer *writer);   /* of the file, with space reserved ahead */
const char *log_writer_path(const struct log_writer *writer);

/* ---- recovery of one log ---- */

struct log_record {
  enum log_record_type type;
  uint64_t log_number;
  uint64_t offset;         /* of the record in the log */
  uint64_t payload_offset; /* in the file, for errors about the payload */
  uint64_t durable;        /* its mark */
  turb_bytes payload;      /* lives during the call only */
  const char *file;        /* the log's path */
};

/* Takes one record; a status other than TURB_OK ends the recovery with it. */
typedef turb_status (*log_record_fn)(void *context, const struct log_record *record, turb_error *err);

struct log_recovery_options {
  struct io_system *system;
  const turb_allocator *allocator;
  const struct logger *logger; /* may be NULL */
  const char *folder;
  const char *path; /* of log_recover: the file, instead of its name in the folder; or NULL */
  const uint8_t *database_id;
  bool salvage;         /* damage is skipped to the next record that verifies, and reported */
  log_record_fn record; /* may be NULL: only checks */
  void *context;
  /* Told about each stretch that salvage skips; may be NULL. */
  void (*skipped)(void *context, const char *file, uint64_t offset, uint64_t bytes);
};

struct log_recovery {
  uint64_t number;
  uint64_t first_sequence; /* from the header */
  uint64_t begin;          /* of the first record */
  uint64_t end;            /* behind the last good record (begin when there is none) */
  uint64_t durable;        /* the highest mark */
  uint64_t records;        /* batches */
  uint64_t staged_bytes;   /* of records that were still in the staging area */
  uint64_t skipped_bytes, skipped_stretches;
  uint64_t file_bytes;
  uint64_t seed;
  uint64_t next_number; /* when ended */
  bool ended;           /* by an end-of-log record */
  bool unused;          /* its creation was cut short: it never held a record */
};

/*
 * Walks one log under the rule of docs/format.md 4. Memory: a window of 256 KiB and the largest record. NOT_FOUND: no such file. CORRUPTION
 * with file and offset: damage below the highest durable mark, a damaged header, a log of another database or number. NEWER_FORMAT.
 */
TURB_MUST_CHECK turb_status log_recover(const struct log_recovery_options *options, uint64_t number, struct log_recovery *recovery,
                                        turb_error *err);

/*
 * Ends a recovered log that has no end: brings staged records to their place, syncs, cuts the tail off and writes the end-of-log record
 * behind the last
 * good one, durably. May be repeated after a failure.
 */
TURB_MUST_CHECK turb_status log_seal(const struct log_recovery_options *options, struct log_recovery *recovery, uint64_t next_number,
                                     turb_error *err);

/* ---- recovery of all logs ---- */

struct log_set {
  const turb_allocator *allocator;
  struct log_recovery *logs; /* ascending by number */
  size_t count;
  size_t capacity;
};

/*
 * Recovers every log of the folder with a number of at least oldest (the manifest's oldest log still needed; 0: whatever is there), in
 * order,
 * and checks the chain: `oldest` is there (unless 0), each log that another one with records follows ends with an end-of-log record, and
 * each end
 * names the next log that is there. A break of the chain is CORRUPTION; with salvage it is logged. Release: log_set_free, also after a
 * failure.
 */
TURB_MUST_CHECK turb_status log_set_recover(const struct log_recovery_options *options, uint64_t oldest, struct log_set *set,
                                            turb_error *err);

/*
 * Before the first append to the new log `next_number`: makes what was recovered durable and ends each log that has no end yet with an
 * end-of-log record in place of its tail. May be repeated after a failure.
 */
TURB_MUST_CHECK turb_status log_set_seal(const struct log_recovery_options *options, struct log_set *set, uint64_t next_number,
                                         turb_error *err);
void log_set_free(struct log_set *set);

#endif
