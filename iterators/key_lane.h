/* iterators/key_lane: the key pages of one table in file order, streamed past the cache, for the forward moves of a streaming table cursor.
 *
 * Pieces of a lane are handed out page by page; a piece is a window that stays readable while the cursor or a batch holds it. Pieces go
 * back to the lane in order.
 * Invariant: a key_lane lives until it was closed and the last window on one of its pieces was let go.
 * Threads: one, the cursor's.
 */
#ifndef TURB_ITERATORS_KEY_LANE_H
#define TURB_ITERATORS_KEY_LANE_H

#include "iterators/cursor.h"
#include "sstable/stream.h"

struct key_lane;

/* Streams key pages from the unit `first_unit` to the table's last. */
TURB_MUST_CHECK turb_status key_lane_open(struct cursor_context *context, struct table *table, uint32_t first_unit, struct key_lane **lane,
                                          turb_error *err);
/* NULL ok; never waits. */
void key_lane_close(struct key_lane *lane);
/* The next page. READY: *page, kept by *window, on which the caller has one more reference. PENDING, YIELD (all pieces are held), END,
 * FAILED. */
turb_state key_lane_next(struct key_lane *lane, const struct slot_page **page, struct window **window);
turb_status key_lane_error(const struct key_lane *lane, turb_error *err);

#endif
