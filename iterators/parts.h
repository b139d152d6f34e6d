/* iterators/parts: brings rows and attributes for entries that a cursor found, at the top of a tree of cursors.
 *
 * Entries come as refs, in the order of the walk; parts resolves as many of the leading ones as it can without waiting, and starts reads
 * for those behind them. What it resolved is a
 * *set*: its bytes stay in place until the next set is READY, so that the old entry stays readable while a move is PENDING.
 *
 * Cached: frames of rows and chunks of attributes are pinned, one pin for all entries of a set that share it. Streaming: rows come from a
 * lane for each run, in row order, and are verified
 * by their slots' hashes.
 *
 * The first set after a seek is one entry when its frame or chunk is not resident: its row and attributes are read by their own pages, which
 * costs the device no more than a point read. Who goes on gets frames, and read-ahead.
 *
 * Invariants
 *  1. A pointer of the current set points into memory held by a run's current frame (or piece), or by the set's hold list.
 *  2. A frame that a run leaves goes to the hold list of the set being resolved when that or the set before has entries in it; the list of
 *     the set before is let go when that one is READY. When a set is dropped half way, what the one before needs goes to its list.
 *  3. A set leaves so few pieces of a lane behind that the next one can move on, however few the lane has.
 * Threads: one, the tree's.
 */
#ifndef TURB_ITERATORS_PARTS_H
#define TURB_ITERATORS_PARTS_H

#include "iterators/cursor.h"

struct parts;

struct parts_options {
  uint32_t which;     /* TURB_VECTOR, TURB_ATTRIBUTES or-ed */
  uint32_t run_count; /* source->run is below it */
  uint32_t row_bytes;
  bool streaming;
};
struct entry_parts {
  const void *vector;
  const void *attributes;
  uint32_t attribute_size;
};

TURB_MUST_CHECK turb_status parts_open(struct cursor_context *context, const struct parts_options *options, struct parts **parts,
                                       turb_error *err);
void parts_close(struct parts *parts); /* never waits; NULL ok */

/* Begins a new set (also drops one that was being resolved). */
void parts_begin(struct parts *parts);
/* Goes on with the set: out[i] for refs[i] (walked from the last to the first when backward: out and refs keep their places), *resolved
 * counts them in walking order. READY when at least
 * one is resolved; then no more are added to this set. PENDING: call again with the same arguments. */
turb_state parts_resolve(struct parts *parts, const struct cursor_ref *refs, uint32_t count, bool backward, struct entry_parts *out,
                         uint32_t *resolved);
/* A seek: streaming lanes begin anew where the next set does, and reads ahead that failed are forgotten. */
void parts_reset(struct parts *parts);
/* As cursor_prefetch. */
void parts_prefetch(const struct parts *parts, uint32_t depth);
turb_status parts_error(const struct parts *parts, turb_error *err);

#endif
