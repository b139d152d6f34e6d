/* iterators/cursor: the contract that every cursor obeys.
 *
 * A cursor walks entries in entry order (key ascending, sequence descending), forward and backward, without ever blocking: where the next
 * entry needs a read, the read is queued on
 * the `reads` that a whole tree of cursors shares, and the move is PENDING. The owner of the tree submits and waits (await); nobody else
 * does.
 *
 *   READY    positioned: `slot` is the current entry
 *   PENDING  the move needs a read, which is queued: cursor_resume goes on with it once completions were taken
 *   YIELD    no window is free, since a batch holds them all, or the work budget is spent: let go of the batch, then cursor_resume
 *   END      no more entries in that direction
 *   FAILED   cursor_error says why; stays so until a seek
 *
 * What each call does in each state (the legal ones; a debug assertion checks them):
 *
 *   state     advance / retreat        seek, first, last        resume                   batch                     close
 *   FRESH     FAILED (invalid)         moves                    FRESH                    FAILED (invalid)          frees
 *   READY     moves                    moves                    READY                    takes entries             frees
 *   PENDING   as resume                drops the move, moves    goes on with the move    as resume, then takes     frees; reads in flight
 *   become orphans
 *   YIELD     as resume                drops the move, moves    goes on with the move    as resume, then takes     frees
 *   END       END                      moves                    END                      takes none, END           frees
 *   FAILED    FAILED                   moves, error cleared     FAILED                   takes none, FAILED        frees
 *
 * Rules
 *  1. A window is what advance and retreat step through inline, calling nothing. Leaves have slots that lie side by side in one page:
 *     `window_begin <= slot < window_end`. Kinds that choose among entries have a *stretch* of refs that they found ahead: `ref` is the
 *     current entry's, [ref_first, ref_last] the window (both ends in it). Whichever a kind does not have is NULL.
 *  2. The old entry stays readable until the move completes (READY, END or FAILED): a leaf keeps its page pinned until then. A parent that
 *     steps a child several
 *     times during one of its own moves holds the pages it leaves in a batch.
 *  3. A seek's key is borrowed until the seek completes or is replaced.
 *  4. A parent owns its children in every state. An error or a dropped move loses no child; the next seek yields what a fresh cursor would.
 *  5. After END of a forward move, retreat is not defined for internal cursors: seek (`last`) instead. (The public iterator stays at END.)
 *  6. Entries are named by slots; rows and attributes come through iterators/parts.h at the top of the tree.
 * Threads: a tree of cursors belongs to one thread at a time.
 */
#ifndef TURB_ITERATORS_CURSOR_H
#define TURB_ITERATORS_CURSOR_H

#include <assert.h>
#include <stdbool.h>

#include "base/prefetch.h"
#include "base/slot.h"
#include "memtable/memtable.h"
#include "sstable/load.h"
#include "sstable/table.h"

/* Where a slot's row and attributes are. Sources live with the version that the cursors read. */
struct source {
  struct table *table;       /* or NULL */
  struct memtable *memtable; /* or NULL */
  uint32_t run;              /* dense number of its run (or memtable) within the version */
};

/* A run: tables with disjoint, ascending key ranges. */
struct run_view {
  struct source *sources;
  uint32_t count;
};

/* The first table that may hold entries not before key: its declared upper bound is not below key. count when none. */
uint32_t run_view_find(const struct run_view *run, turb_bytes key);

/* An entry in a batch. */
struct cursor_ref {
  const struct slot *slot;
  const struct source *source;
};

/* What keeps a page readable. Owned by a leaf cursor, counted without atomics; NULL for memory that lives as long as the tree (memtables).
 * */
struct window {
  uint32_t references;
  void (*release)(struct window *window); /* the count reached 0 */
  struct cache_pin pin;
  void *owner;
};
static inline struct window *window_retain(struct window *window) {
  if (window)
    window->references++;
  return window;
}
static inline void window_release(struct window *window) {
  if (window && --window->references == 0)
    window->release(window);
}
static inline bool window_covers(const struct window *window, const struct slot *slot) {
  return window && (uintptr_t)slot - (uintptr_t)window->pin.data < window->pin.size;
}

/* What is known of an entry's key beside that of the entry before it in the walk. */
enum key_change { KEY_CHANGE_UNKNOWN, KEY_REPEATED, KEY_CHANGED };

/* Entries taken from a cursor, with the pages that the cursor left meanwhile. The arrays are the caller's. */
struct cursor_batch {
  struct cursor_ref *refs;
  uint8_t *changes; /* enum key_change of refs, or NULL: not asked for; unknown before, and written only where it is known */
  uint32_t count, capacity;
  struct window **held;
  uint32_t held_count, held_capacity;
};

/* Shared by a tree of cursors; outlives it. */
struct cursor_context {
  struct reads *reads;
  const turb_allocator *allocator;
  struct budget *budget;
  struct budget *stream_budget; /* of streaming cursors' lanes: a share that leaves room for what is read by pages; NULL: budget */
  bool fill_cache;
  uint32_t pages_ahead; /* key pages that cursors of the tree hold or read ahead of their walks; they keep it low beside the budget */
  bool eager;           /* streaming cursors submit their reads at once: for callers that may make system calls */
  uint32_t stream_piece_bytes; /* of streaming cursors; 0: the lanes' defaults */
};

#define CURSOR_LINES 4u /* of a cursor, that every seek looks at */

struct cursor;
struct cursor_ops {
  const char *name;
  turb_state (*advance)(struct cursor *cursor);
  turb_state (*retreat)(struct cursor *cursor);
  turb_state (*seek)(struct cursor *cursor, turb_bytes key, uint64_t sequence);
  turb_state (*seek_before)(struct cursor *cursor, turb_bytes key, uint64_t sequence);
  turb_state (*first)(struct cursor *cursor);
  turb_state (*last)(struct cursor *cursor);
  turb_state (*resume)(struct cursor *cursor);
  turb_state (*batch)(struct cursor *cursor, struct cursor_batch *batch, bool backward);
  struct window *(*window_of)(const struct cursor *cursor, const struct slot *slot);
  void (*prefetch)(const struct cursor *cursor, uint32_t depth); /* optional; see cursor_prefetch */
  turb_status (*error)(const struct cursor *cursor, turb_error *err);
  void (*close)(struct cursor *cursor);
};

struct cursor { /* the head of every kind */
  const struct cursor_ops *ops;
  const struct slot *slot; /* the current entry; meaningful while READY, and while PENDING or YIELD the old one (or NULL) */
  const struct slot *window_begin, *window_end;
  const struct cursor_ref *ref, *ref_first, *ref_last;
  const struct source *source; /* of `slot` */
  struct window *window;       /* what keeps a window of slots readable, or NULL (of a stretch: ask cursor_window_of) */
  struct cursor_context *context;
  turb_state state;
  bool placed; /* false: FRESH */
};

static inline turb_state cursor_advance(struct cursor *cursor) {
  if (cursor->state == TURB_READY) {
    if (cursor->ref != cursor->ref_last) {
      assert(cursor->ref); /* all of the three are NULL, or none */
      cursor->slot = (++cursor->ref)->slot;
      cursor->source = cursor->ref->source;
      return TURB_READY;
    }
    if (cursor->slot + 1 < cursor->window_end) {
      cursor->slot++;
      return TURB_READY;
    }
  }
  return cursor->ops->advance(cursor);
}
static inline turb_state cursor_retreat(struct cursor *cursor) {
  if (cursor->state == TURB_READY) {
    if (cursor->ref != cursor->ref_first) {
      assert(cursor->ref);
      cursor->slot = (--cursor->ref)->slot;
      cursor->source = cursor->ref->source;
      return TURB_READY;
    }
    if (cursor->window_end && cursor->slot > cursor->window_begin) {
      cursor->slot--;
      return TURB_READY;
    }
  }
  return cursor->ops->retreat(cursor);
}
/* First entry not before (key, sequence) in entry order. With SLOT_SEQUENCE_MAX: the newest version of the first key >= key. */
static inline turb_state cursor_seek(struct cursor *cursor, turb_bytes key, uint64_t sequence) {
  return cursor->ops->seek(cursor, key, sequence);
}
/* Last entry before (key, sequence). With sequence 0: the oldest version of the last key <= key; with SLOT_SEQUENCE_MAX: of the last key <
 * key. */
static inline turb_state cursor_seek_before(struct cursor *cursor, turb_bytes key, uint64_t sequence) {
  return cursor->ops->seek_before(cursor, key, sequence);
}
static inline turb_state cursor_first(struct cursor *cursor) {
  return cursor->ops->first(cursor);
}
static inline turb_state cursor_last(struct cursor *cursor) {
  return cursor->ops->last(cursor);
}
static inline turb_state cursor_resume(struct cursor *cursor) {
  return cursor->state == TURB_PENDING || cursor->state == TURB_YIELD ? cursor->ops->resume(cursor) : cursor->state;
}
/* Appends the current entry and those after it (before it, when backward), until the batch is full or a move is not READY; the cursor then
 * stands on the first entry that
 * was not taken, and the state is of that move. Pages that the cursor left are held by the batch. */
static inline turb_state cursor_take(struct cursor *cursor, struct cursor_batch *batch, bool backward) {
  return cursor->ops->batch(cursor, batch, backward);
}
/* The current window below that holds `slot`, or NULL: for a parent that wants to retain it over a move. */
static inline struct window *cursor_window_of(const struct cursor *cursor, const struct slot *slot) {
  return cursor->ops->window_of(cursor, slot);
}
/* Asks for the lines that a resumed move and the seek after it look at: of the cursor itself at depth 0, of what it points to at depth 1, and so on.
 * Each depth reads what the one before asked for, so that of many cursors all are asked for one depth before the next. */
#define CURSOR_PREFETCH_DEPTHS 4u
static inline void cursor_prefetch(const struct cursor *cursor, uint32_t depth) {
  if (depth == 0) {
    prefetch_lines(cursor, CURSOR_LINES);
  } else if (cursor->ops->prefetch) {
    cursor->ops->prefetch(cursor, depth);
  }
}
/* Why the cursor is FAILED. */
static inline turb_status cursor_error(const struct cursor *cursor, turb_error *err) {
  return cursor->ops->error(cursor, err);
}
/* Frees the cursor and its children; never waits. Batches taken from it are released before. NULL ok. */
static inline void cursor_close(struct cursor *cursor) {
  if (cursor)
    cursor->ops->close(cursor);
}
/* Runs the tree's reads until the cursor is READY, END or FAILED. */
turb_state cursor_await(struct cursor *cursor);

/* Lets go of held pages and forgets the refs. */
void cursor_batch_release(struct cursor_batch *batch);
/* Adds a window to what the batch holds (NULL is nothing to hold). False when it has no room. */
bool cursor_batch_hold(struct cursor_batch *batch, struct window *window);
/* The batch keeps the cursor's current entry readable, whichever cursor below holds its page now. False when it has no room. */
bool cursor_batch_hold_current(struct cursor_batch *batch, const struct cursor *cursor);

/* ---- kinds ---- each `open` gives a FRESH cursor; children given to it are its own from then on, also when it fails */

TURB_MUST_CHECK turb_status memtable_cursor_open(struct cursor_context *context, const struct source *source, struct cursor **cursor,
                                                 turb_error *err);

/* Over a run: one table open at a time, reading ahead over borders. `streaming`: forward moves after `first` or a seek read large pieces
 * past the cache. */
TURB_MUST_CHECK turb_status concat_cursor_open(struct cursor_context *context, const struct run_view *run, bool streaming,
                                               struct cursor **cursor, turb_error *err);
/* Over one table. */
TURB_MUST_CHECK turb_status table_cursor_open(struct cursor_context *context, const struct source *source, bool streaming,
                                              struct cursor **cursor, turb_error *err);
/* Another table for the same cursor, which is FRESH then; windows held from the old one stay good. */
void table_cursor_retarget(struct cursor *cursor, const struct source *source);

/* Merges `count` children (1 to 65,535). With 1 it is that child. Equal (key, sequence) pairs come in the order of children. */
TURB_MUST_CHECK turb_status merge_cursor_open(struct cursor_context *context, struct cursor **children, uint32_t count,
                                              struct cursor **cursor, turb_error *err);

struct key_bounds { /* lower inclusive, upper exclusive; size 0: open */
  turb_bytes lower, upper;
};
/* Narrows bounds to a prefix. `scratch` (TURB_MAX_KEY_BYTES) may be pointed to by the result. */
void key_bounds_prefix(struct key_bounds *bounds, turb_bytes prefix, uint8_t *scratch);
/* The bounds' bytes are borrowed for the cursor's life. */
TURB_MUST_CHECK turb_status bounded_cursor_open(struct cursor_context *context, struct cursor *child, const struct key_bounds *bounds,
                                                struct cursor **cursor, turb_error *err);

struct visible_options {
  uint64_t snapshot;                         /* sequence */
  const struct range_deletes *range_deletes; /* of all sources, or NULL; borrowed for the cursor's life */
  uint32_t work_budget;                      /* entries looked at in a move before YIELD; 0: no bound */
  turb_key_filter wanted;                    /* or NULL: visible entries that it does not want are skipped */
  void *wanted_context;
};
/* The newest version of each key at the snapshot, puts only, range deletes applied, those that the filter wants. */
TURB_MUST_CHECK turb_status visible_cursor_open(struct cursor_context *context, struct cursor *child, const struct visible_options *options,
                                                struct cursor **cursor, turb_error *err);

#endif
