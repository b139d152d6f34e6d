/* engine/iterator: the public iterator: a visible cursor, parts, and an array of entries that the caller steps through inline.
 *
 *   window      entries [window_begin, window_end): a chunk of the visible cursor's stretch whose parts are in memory
 *   slow move   the next chunk of the stretch, else the next stretch; then its parts
 *
 *   phase    IDLE --move--> CURSOR (the visible cursor is on its way) --> PARTS (rows and attributes are) --> IDLE, READY
 *            IDLE --fetch--> FETCH --> IDLE
 *
 * Invariants
 *  1. While a move is under way, `entry` points at `old`: a copy of the old entry whose key is in `old_key`; its vector and attributes are
 *     kept by parts' set before.
 *  2. READY: entries[i] is stretch ref `first + i`.
 *  3. FETCH: the window is `fetched_entry` alone, so that no inline move leaves it.
 */
#ifndef TURB_ENGINE_ITERATOR_H
#define TURB_ENGINE_ITERATOR_H

#include "engine/db.h"
#include "iterators/parts.h"
#include "iterators/visible_cursor.h"

struct turb_loop;

enum iterator_phase { PHASE_IDLE, PHASE_CURSOR, PHASE_PARTS, PHASE_FETCH };

/* What every seek looks at comes first, `error` with its status at the end of that: a thousand iterators are more than caches hold. */
struct iterator {
  turb_iterator head;
  struct cursor *cursor;    /* visible */
  struct parts *parts;      /* NULL when only keys are asked for */
  struct parts *fetched[2]; /* rows, attributes: of `fetched_entry` */
  turb_state state;
  enum iterator_phase phase;
  bool backward;
  bool streaming;
  uint32_t which;
  uint32_t first; /* of the window in the stretch */
  uint32_t count;
  struct reads reads;
  turb_entry *fetched_entry; /* of the window; NULL: nothing is fetched */
  uint32_t fetch_wanted;     /* turb_parts that the fetch under way has to bring */
  uint32_t fetch_done;       /* that `fetched_entry` has */
  void *caller_context;
  struct read_view view;
  bool has_taken;     /* since the last seek */
  ptrdiff_t taken_at; /* the entry that turb_take gave last, counted from entries[0]: it may be outside of the window */
  turb_entry old;
  turb_error error;
  turb_db *db;
  struct turb_loop *loop;
  struct list link; /* in db->iterators, under its mutex */
  uint64_t created_ns;
  struct cursor_context context;
  struct arena arena; /* range deletes and bounds */
  struct range_deletes range_deletes;
  struct key_bounds bounds;
  turb_entry entries[VISIBLE_STRETCH];
  struct entry_parts resolved[VISIBLE_STRETCH];
  uint16_t target_size;
  uint8_t target[TURB_MAX_KEY_BYTES]; /* of a seek under way */
  uint8_t old_key[TURB_MAX_KEY_BYTES];
};

#endif
