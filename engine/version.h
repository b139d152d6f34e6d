/* engine/version: what readers see of a collection: its memtables and runs. Immutable but for the entries that the newest memtable still
 * takes; reference-counted.
 *
 * A read view is a version and the sequence up to which it reads; together they answer every question about the collection at one moment.
 *
 * Sources are numbered densely: memtables newest first, then runs newest first (source->run).
 * Threads: retain and release from any thread; everything else is constant.
 */
#ifndef TURB_ENGINE_VERSION_H
#define TURB_ENGINE_VERSION_H

#include <stdatomic.h>

#include "base/arena.h"
#include "base/range_deletes.h"
#include "iterators/cursor.h"

struct version_run {
  uint64_t id;
  struct run_view view; /* tables in key order */
  uint64_t entries, bytes;
  uint64_t smallest_sequence, largest_sequence;
};

struct version {
  _Atomic uint64_t references;
  turb_db *db;
  turb_collection *collection;
  const struct table_shape *shape; /* the collection's */
  struct source *memtables;        /* [memtable_count], newest first */
  uint32_t memtable_count;
  struct version_run *runs; /* [run_count], newest first */
  uint32_t run_count;
  uint32_t source_runs;              /* memtable_count + run_count: all source->run are below it */
  struct range_deletes table_ranges; /* of all tables together, in `arena` */
  struct arena arena;
};

struct read_view {
  struct version *version;
  uint64_t sequence;
};

/* The current version with a sequence: the snapshot's, or all that is visible now. Release: read_view_release. */
TURB_MUST_CHECK turb_status read_view_open(turb_collection *collection, const turb_snapshot *snapshot, struct read_view *view,
                                           turb_error *err);
void read_view_release(struct read_view *view);

struct version *version_retain(struct version *version);
void version_release(struct version *version); /* NULL ok */

/* Range deletes of the view as sorted, disjoint fragments with sequences at or below the view's: the tables' and the memtables' together,
 * in `arena`. */
TURB_MUST_CHECK turb_status read_view_range_deletes(const struct read_view *view, struct arena *arena, struct range_deletes *deletes,
                                                    turb_error *err);
/* The highest sequence at or below the view's of a range delete over key, or 0. */
uint64_t read_view_cover(const struct read_view *view, turb_bytes key);

/* A merge over everything in the view; one cursor. */
TURB_MUST_CHECK turb_status read_view_cursor(const struct read_view *view, struct cursor_context *context, bool streaming,
                                             struct cursor **cursor, turb_error *err);

/* Builds the version of the collection as its memtables and the catalog say now; tables that `before` (may be NULL) has open are shared.
 * Under db->mutex. */
TURB_MUST_CHECK turb_status version_build(turb_collection *collection, const struct version *before, struct version **version,
                                          turb_error *err);
/* Makes it current (takes the reference over) and lets go of the one before. */
void version_install(turb_collection *collection, struct version *version);

#endif
