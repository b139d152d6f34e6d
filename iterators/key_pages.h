/* iterators/key_pages: brings the key pages of one table through its index pages, and reads ahead of a walk.
 *
 * A seek brings its page alone. A walk that has to wait for a page reads more and more ahead: one page, then two, four, up to
 * KEY_PAGES_AHEAD - 1, over the borders of index pages, in either direction; all cursors of a tree together at most a sixty-fourth of the
 * budget. When that is short, what is read ahead gives way to what is wanted now, and the depth is halved; it grows again with the pages that
 * came.
 *
 * Invariants
 *  1. `index` holds the index page `index_page` when that is not KEY_PAGES_NONE; `next_index` holds or brings `next_index_page`.
 *  2. What is read ahead is only that: a load that failed is tried again when its page is wanted.
 * Threads: one, that of the cursor that has them.
 */
#ifndef TURB_ITERATORS_KEY_PAGES_H
#define TURB_ITERATORS_KEY_PAGES_H

#include "iterators/cursor.h"

#define KEY_PAGES_AHEAD 8u /* loads of key pages, the one that is wanted among them */
#define KEY_PAGES_NONE  UINT32_MAX

enum key_walk { KEY_WALK_NONE = 0, KEY_WALK_FORWARD = 1, KEY_WALK_BACKWARD = -1 };

struct key_page_load {
  struct load *load; /* made when it is needed first */
  uint32_t ordinal;  /* key unit */
  bool wanted;       /* the move under way waits for it */
};

struct key_pages {
  struct cursor_context *context;
  struct table *table;
  struct load *index;
  uint32_t index_page;
  uint32_t depth;     /* key pages to read ahead: none after a seek, doubled whenever a walk has to wait */
  uint32_t depth_max; /* halved when the budget is short */
  uint32_t busy;      /* bit i: loads[i] is reading or has read its page */
  uint32_t next_index_page;
  struct load *next_index; /* of the walk's direction, once it comes near the end of the one at hand; made when it is needed first */
  struct key_page_load loads[KEY_PAGES_AHEAD];
};

TURB_MUST_CHECK turb_status key_pages_open(struct key_pages *pages, struct cursor_context *context, turb_error *err);
void key_pages_close(struct key_pages *pages); /* never waits; also after an open that failed */
/* Another table: what was there is forgotten, reads in flight become orphans. */
void key_pages_retarget(struct key_pages *pages, struct table *table);
/* A seek begins: what was read ahead is dropped. */
void key_pages_stop(struct key_pages *pages);

/* Brings index page `page`. READY: *index is it, until another is asked for. FAILED: *err says why. */
turb_state key_pages_index(struct key_pages *pages, uint32_t page, const struct slot_page **index, turb_error *err);
/* Brings the key page at `slot` of the index page at hand into *pin (load_pin_release gives it back), and reads ahead of a walk. */
turb_state key_pages_get(struct key_pages *pages, uint16_t slot, enum key_walk walk, struct cache_pin *pin, turb_error *err);
/* A walk entered `page`, that of `slot`: the one that comes next is asked for (of memory, not of the device) while this one is walked, what
 * pinning it touches and the lines where the walk enters it. From there on the processor sees the stream by itself, which it does not over
 * the border of a page. */
void key_pages_warm_next(const struct key_pages *pages, uint16_t slot, enum key_walk walk, const struct slot_page *page);

/* The index page at hand, or NULL. */
static inline const struct slot_page *key_pages_at_hand(const struct key_pages *pages) {
  return pages->index_page == KEY_PAGES_NONE ? NULL : load_data(pages->index, NULL);
}

#endif
