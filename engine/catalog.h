/*
 * The catalog: what the manifest describes (docs/format.md 5), as plain data in memory without open files; and the version edit, a list of
 * typed changes of it.
 *
 * An edit *is* its encoded payload: the builders append fields, apply and dump walk them. A catalog changes by edits alone, so what was
 * written is what is replayed.
 *
 * Invariants of a catalog (catalog_apply refuses an edit after which one would not hold, and changes nothing)
 *   1. Ids are unique within their kind, collection names among collections. Counters lie above every id and file number that was ever
 *      named; counters, flushed sequences and the oldest log never fall (a lower value changes nothing).
 *   2. Every run, partition, job belongs to a collection that is there; every table to exactly one run, of its own collection.
 *   3. The tables of a run ascend and do not overlap. The partitions of a collection do not overlap.
 *   4. The runs of one partition of one collection have disjoint sequence ranges (quarantined runs excepted).
 *   5. A range taken names a table of an upper run and a partition of the table's collection; a segment names a run that is there and, slot
 *      by slot, its tables.
 *
 * Order within an edit does not matter: removals come first, then additions, then the result is checked as a whole. Adding a run,
 * partition,
 * segment or job that is there replaces it; a collection or table cannot be replaced. The drop of a collection takes along its
 * runs, tables, partitions, segments, ranges and jobs; the removal of a table or a partition takes along the ranges taken that name it.
 *
 * Lifetimes: what a lookup returns is the catalog's and lives until an edit removes or replaces it (any other edit leaves it in place).
 * Threads: one at a time; lookups by several when no edit is being applied.
 */
#ifndef TURB_ENGINE_CATALOG_H
#define TURB_ENGINE_CATALOG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/coding.h"
#include "base/status.h"
#include "sstable/format.h"

/* ---- what it holds ---- */

struct catalog_object { /* the head of each object below; the catalog's own */
  uint64_t id;
  uint64_t second_id; /* of a codebook edition or a range taken; else 0 */
  size_t size_bytes;  /* of the allocation */
  uint8_t kind;
  uint8_t stage;
};

struct catalog_counters { /* each the next one to use, but last_sequence */
  uint64_t next_file, last_sequence, next_collection, next_job, next_run, next_partition;
};

struct catalog_compaction { /* how a collection's runs are merged; a field of 0: as the database's options say */
  turb_compaction_policy policy;
  uint32_t size_ratio, max_space_amplification_percent;
  uint64_t fifo_max_bytes, ttl_s;
};

struct catalog_collection {
  struct catalog_object object;      /* id: the collection's */
  struct catalog_object name_object; /* the index by name */
  uint32_t dimension;
  turb_type type;
  turb_metric metric;
  turb_index index;
  turb_compression compression;
  int32_t compression_level;
  uint64_t flushed_sequence; /* entries at or below are in tables */
  struct catalog_compaction compaction;
  size_t name_size;
  char name[TURB_MAX_NAME_BYTES + 1];
};

struct catalog_taken;

struct catalog_table {
  struct catalog_object object; /* id: the file number */
  struct table_record record;   /* its keys lie behind this struct */
  uint64_t run_id;
  uint64_t claimed_by; /* the catalog's own, while an edit is checked */
  struct catalog_taken *taken;
};

struct catalog_taken {          /* the partition has taken its range of this upper table */
  struct catalog_object object; /* id: the table's file number; second_id: the partition */
  struct catalog_taken *next;   /* of the same table */
};

#define CATALOG_RUN_QUARANTINED 1u

struct catalog_run {
  struct catalog_object object; /* id: the run's */
  uint64_t collection_id;
  uint64_t partition_id; /* 0: the upper tier */
  uint32_t flags;
  uint64_t smallest_sequence, largest_sequence; /* of its tables, as are the next two */
  uint64_t entries, bytes;
  size_t table_count;
  const struct catalog_table **tables; /* in key order */
  uint64_t table_numbers[];
};

struct catalog_partition {
  struct catalog_object object; /* id: the partition's */
  uint64_t collection_id;
  uint64_t codebook_id;
  bool upper_open;
  turb_bytes lower, upper; /* [lower, upper) */
};

struct catalog_segment_table {
  uint64_t file_number;
  uint64_t row_base;
  bool clip_open;
  turb_bytes clip_lower, clip_upper;
};

struct catalog_segment {
  struct catalog_object object; /* id: the segment's file number */
  uint64_t run_id;
  uint64_t codebook_id, edition;
  uint64_t first_table_slot;
  size_t table_count;
  struct catalog_segment_table tables[];
};

struct catalog_codebook {       /* one edition */
  struct catalog_object object; /* id: the codebook's; second_id: the edition */
  uint64_t file_number;
  uint64_t parent_edition;
};

enum catalog_job_kind { CATALOG_JOB_FLUSH = 1, CATALOG_JOB_MERGE = 2, CATALOG_JOB_INDEX = 3, CATALOG_JOB_IMPORT = 4 };

struct catalog_cut {
  uint64_t cut;
  uint64_t file_number;
};

struct catalog_job {
  struct catalog_object object; /* id: the job's */
  enum catalog_job_kind kind;
  uint64_t collection_id;
  size_t input_count, cut_count;
  const uint64_t *inputs;         /* run ids */
  const struct catalog_cut *cuts; /* finished outputs */
};

struct catalog_time_mark {
  uint64_t sequence;
  uint64_t unix_seconds;
};

struct catalog_map { /* a hash table of objects of one kind */
  struct catalog_object **slots;
  size_t capacity; /* 0 or a power of two */
  size_t count;
};

enum catalog_kind {
  CATALOG_COLLECTION,
  CATALOG_NAME,
  CATALOG_TABLE,
  CATALOG_TAKEN,
  CATALOG_RUN,
  CATALOG_PARTITION,
  CATALOG_SEGMENT,
  CATALOG_CODEBOOK,
  CATALOG_JOB,
  CATALOG_KINDS /* their number */
};

struct catalog {
  const turb_allocator *allocator;
  struct catalog_counters counters;
  uint64_t oldest_log; /* 0: none yet */
  struct catalog_map maps[CATALOG_KINDS];
  size_t arriving[CATALOG_KINDS];       /* objects of a staged edit in each map */
  struct catalog_time_mark *time_marks; /* ascending */
  size_t time_mark_count, time_mark_capacity;
  struct catalog_stage *stage; /* an edit that is staged, or NULL */
};

/* Takes no memory. */
void catalog_init(struct catalog *catalog, const turb_allocator *allocator);
void catalog_free(struct catalog *catalog);

/* ---- lookups: NULL when there is none ---- */

const struct catalog_collection *catalog_collection(const struct catalog *catalog, uint64_t id);
const struct catalog_collection *catalog_collection_named(const struct catalog *catalog, const char *name, size_t name_size);
const struct catalog_table *catalog_table(const struct catalog *catalog, uint64_t file_number);
const struct catalog_run *catalog_run(const struct catalog *catalog, uint64_t id);
const struct catalog_partition *catalog_partition(const struct catalog *catalog, uint64_t id);
const struct catalog_segment *catalog_segment(const struct catalog *catalog, uint64_t file_number);
const struct catalog_codebook *catalog_codebook(const struct catalog *catalog, uint64_t codebook_id, uint64_t edition);
const struct catalog_job *catalog_job(const struct catalog *catalog, uint64_t id);
bool catalog_is_taken(const struct catalog *catalog, uint64_t file_number, uint64_t partition_id);

/* Unix seconds by which every entry up to the sequence was written, at the latest: those of the first mark at or above it; 0: none is. */
uint64_t catalog_written_by_s(const struct catalog *catalog, uint64_t sequence);

/* How many of a kind. */
size_t catalog_count(const struct catalog *catalog, enum catalog_kind kind);

/*
 * Walks all of a kind in no particular order: begin with *at = 0; NULL after the last. The catalog must not change meanwhile. The object's
 * address is that of the struct which it heads:
 *   for (size_t at = 0; (o = catalog_next(c, CATALOG_TABLE, &at)) != NULL;) { const struct catalog_table *t = (const void *)o; … }
 */
const struct catalog_object *catalog_next(const struct catalog *catalog, enum catalog_kind kind, size_t *at);

/* All of a kind by ascending id (and second id). Release: mem_free(catalog->allocator, objects, count * sizeof *objects). */
TURB_MUST_CHECK turb_status catalog_sorted(const struct catalog *catalog, enum catalog_kind kind, const struct catalog_object ***objects,
                                           size_t *count, turb_error *err);
/* A collection's runs, newest first by largest sequence (of one partition, or of all with partition_id CATALOG_ALL_PARTITIONS). Released
 * likewise. */
#define CATALOG_ALL_PARTITIONS UINT64_MAX
TURB_MUST_CHECK turb_status catalog_list_runs(const struct catalog *catalog, uint64_t collection_id, uint64_t partition_id,
                                              const struct catalog_run ***runs, size_t *count, turb_error *err);

/* True for a table, segment or codebook file that the catalog or a job record names: one that must not be removed. */
bool catalog_names_file(const struct catalog *catalog, uint64_t file_number);

/* ---- version edits: building ---- */

struct version_edit {
  struct buffer payload; /* keeps the first failure: manifest_append and catalog_apply report it */
  size_t changes;
};

void edit_init(struct version_edit *edit, const turb_allocator *allocator);
void edit_free(struct version_edit *edit);
void edit_clear(struct version_edit *edit);

/* Each adds one change. A failure to take memory is kept and reported by who takes the edit. */
void edit_set_counters(struct version_edit *edit, const struct catalog_counters *counters);
void edit_set_oldest_log(struct version_edit *edit, uint64_t number);
/* name and options of `collection` (its other fields are ignored). */
void edit_add_collection(struct version_edit *edit, uint64_t id, const char *name, const struct catalog_collection *collection);
void edit_drop_collection(struct version_edit *edit, uint64_t id);
void edit_set_flushed(struct version_edit *edit, uint64_t collection_id, uint64_t sequence);
void edit_set_compaction(struct version_edit *edit, uint64_t collection_id, const struct catalog_compaction *compaction);
void edit_add_run(struct version_edit *edit, uint64_t id, uint64_t collection_id, uint64_t partition_id, uint32_t flags,
                  const uint64_t *table_numbers, size_t table_count);
void edit_remove_run(struct version_edit *edit, uint64_t id);
void edit_add_table(struct version_edit *edit, const struct table_record *record);
void edit_remove_table(struct version_edit *edit, uint64_t file_number);
void edit_add_partition(struct version_edit *edit, uint64_t id, uint64_t collection_id, turb_bytes lower, turb_bytes upper, bool upper_open,
                        uint64_t codebook_id);
void edit_remove_partition(struct version_edit *edit, uint64_t id);
void edit_add_taken(struct version_edit *edit, uint64_t file_number, uint64_t partition_id);
void edit_add_segment(struct version_edit *edit, uint64_t file_number, uint64_t run_id, uint64_t codebook_id, uint64_t edition,
                      uint64_t first_table_slot, const struct catalog_segment_table *tables, size_t table_count);
void edit_remove_segment(struct version_edit *edit, uint64_t file_number);
void edit_add_codebook(struct version_edit *edit, uint64_t codebook_id, uint64_t edition, uint64_t file_number, uint64_t parent_edition);
void edit_remove_codebook(struct version_edit *edit, uint64_t codebook_id, uint64_t edition);
/* Replaces the record of the same job. */
void edit_set_job(struct version_edit *edit, uint64_t job, enum catalog_job_kind kind, uint64_t collection_id, const uint64_t *inputs,
                  size_t input_count, const struct catalog_cut *cuts, size_t cut_count);
/* Nothing when there is no such record. */
void edit_end_job(struct version_edit *edit, uint64_t job);
/* Every entry up to the sequence was written by then. One whose sequence is not above the last one's, or whose time is before it, changes
 * nothing; one that comes less than a minute after the last but one replaces the last; old marks are thinned. */
void edit_add_time_mark(struct version_edit *edit, uint64_t sequence, uint64_t unix_seconds);

/* ---- version edits: encoding, decoding, walking ---- */

/* The payload of a manifest record, in place. */
TURB_MUST_CHECK turb_status edit_encode(const struct version_edit *edit, turb_bytes *payload, turb_error *err);
/* Copies a payload into an empty edit after a full check of its form. CORRUPTION (naming the field), NEWER_FORMAT, NO_MEMORY. */
TURB_MUST_CHECK turb_status edit_decode(struct version_edit *edit, turb_bytes payload, turb_error *err);

enum edit_tag { /* docs/format.md 5 */
                EDIT_COUNTERS = 1,
                EDIT_OLDEST_LOG = 3,
                EDIT_COLLECTION = 11,
                EDIT_COLLECTION_DROP = 13,
                EDIT_FLUSHED = 15,
                EDIT_COMPACTION = 16,
                EDIT_RUN = 21,
                EDIT_RUN_REMOVED = 23,
                EDIT_TABLE = 25,
                EDIT_TABLE_REMOVED = 27,
                EDIT_PARTITION = 31,
                EDIT_PARTITION_REMOVED = 33,
                EDIT_TAKEN = 35,
                EDIT_SEGMENT = 41,
                EDIT_SEGMENT_REMOVED = 43,
                EDIT_CODEBOOK = 51,
                EDIT_CODEBOOK_REMOVED = 53,
                EDIT_JOB = 60,
                EDIT_JOB_ENDED = 62,
                EDIT_TIME_MARK = 71
};

struct edit_change { /* one decoded change; bytes point into the payload */
  enum edit_tag tag;
  uint64_t id;            /* collection, run, partition, codebook, job; or the file number of a table or segment; or the oldest log */
  uint64_t collection_id; /* of a run, partition, job, table */
  union {
    struct catalog_counters counters;
    struct {
      turb_bytes name;
      uint32_t dimension;
      turb_type type;
      turb_metric metric;
      turb_index index;
      turb_compression compression;
      int32_t compression_level;
    } collection;
    uint64_t sequence; /* flushed */
    struct catalog_compaction compaction;
    struct {
      uint64_t partition_id;
      uint32_t flags;
      size_t table_count;
      struct reader numbers; /* that many varints: file numbers */
    } run;
    struct table_record table;
    struct {
      turb_bytes lower, upper;
      bool upper_open;
      uint64_t codebook_id;
    } partition;
    uint64_t partition_id; /* range taken */
    struct {
      uint64_t run_id, codebook_id, edition, first_table_slot;
      size_t table_count;
      struct reader tables; /* edit_next_segment_table reads them */
    } segment;
    struct {
      uint64_t edition, file_number, parent_edition;
    } codebook; /* also of its removal */
    struct {
      enum catalog_job_kind kind;
      size_t input_count, cut_count;
      struct reader inputs; /* varints */
      struct reader cuts;   /* pairs of varints: cut, file number */
    } job;
    struct catalog_time_mark time_mark;
  };
};

/* Walks the changes of a payload: begin with reader_init over it. Unknown even tags are passed over; *more is false at the end. */
TURB_MUST_CHECK turb_status edit_next(struct reader *payload, struct edit_change *change, bool *more, turb_error *err);
/* The next of change->segment.table_count tables. The form was checked by edit_next. */
void edit_next_segment_table(struct reader *tables, struct catalog_segment_table *table);

/* ---- edits and catalogs ---- */

/* Checks an edit against the catalog and carries it out as a whole, or changes nothing. INVALID names what does not fit; NO_MEMORY;
 * CORRUPTION and NEWER_FORMAT
 * as for edit_decode. */
TURB_MUST_CHECK turb_status catalog_apply(struct catalog *catalog, const struct version_edit *edit, turb_error *err);

/* The same in two steps, for what must happen between (writing the edit): all that can fail is in stage. Lookups see the old state until
 * the
 * commit. One edit at a time. */
TURB_MUST_CHECK turb_status catalog_stage(struct catalog *catalog, turb_bytes payload, turb_error *err);
void catalog_commit(struct catalog *catalog);
void catalog_rollback(struct catalog *catalog);

/* Writes the whole (committed) state as one edit, in a fixed order: applied to an empty catalog it gives this one. */
TURB_MUST_CHECK turb_status catalog_snapshot(const struct catalog *catalog, struct version_edit *edit, turb_error *err);

#endif
