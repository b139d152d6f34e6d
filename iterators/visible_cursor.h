/* iterators/visible_cursor: what a snapshot sees: the newest version of each key at or below its sequence, puts only, range deletes
 * applied.
 *
 * Besides the contract of cursor.h (one entry at a time) it hands out what it found in stretches: the public iterator and exact scans work
 * on those.
 */
#ifndef TURB_ITERATORS_VISIBLE_CURSOR_H
#define TURB_ITERATORS_VISIBLE_CURSOR_H

#include "iterators/cursor.h"

#define VISIBLE_STRETCH 64u

/* The stretch that holds the current entry: refs in key order, all readable until the next move completes. */
struct visible_stretch {
  const struct cursor_ref *refs;
  uint32_t count;
};
struct visible_stretch visible_cursor_stretch(const struct cursor *cursor);
/* The current entry becomes that of index `index` of the stretch. */
void visible_cursor_select(struct cursor *cursor, uint32_t index);
/* The first stretch after (before) the current one; as advance from its last entry (retreat from its first). */
turb_state visible_cursor_next_stretch(struct cursor *cursor, bool backward);
/* Entries looked at so far, and those that were hidden. */
void visible_cursor_counts(const struct cursor *cursor, uint64_t *looked_at, uint64_t *hidden);

#endif
