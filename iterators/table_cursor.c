/* iterators/table_cursor: over one table, page by page.
 *
 * A move beyond the window walks a small state machine: the index page, then the key page, then the place in it.
 *
 *   move            goal                                       place in the key page
 *   FIRST           index page 0, slot 0                       slot 0
 *   LAST            last index page, last slot                 last slot
 *   NEXT_PAGE       the index slot after the current           slot 0
 *   PREVIOUS_PAGE   the one before                             last slot
 *   SEEK            first separator >= key                     first slot not before the target, else NEXT_PAGE
 *   SEEK_BEFORE     the same                                   the slot before that, else PREVIOUS_PAGE
 *
 * A streaming cursor takes its key pages from a key_lane after FIRST and SEEK; a backward move leaves the lane for good (until the next
 * FIRST or SEEK).
 *
 * Invariants
 *  1. head.window is referenced once by the cursor; it is let go only when the next page is in place (the old entry stays readable while
 *     PENDING).
 *  2. (index_page, index_slot) is the goal, or the current place when READY in page mode; `pages` has that index page at hand or brings it.
 */
#include <assert.h>

#include "iterators/cursor_parts.h"
#include "iterators/key_lane.h"
#include "iterators/key_pages.h"

#define WINDOWS   8u /* one current, one of the old entry, the rest for batches */
#define SLOT_FIND UINT16_MAX
#define SLOT_LAST (UINT16_MAX - 1)

enum move { MOVE_NONE, MOVE_FIRST, MOVE_LAST, MOVE_NEXT_PAGE, MOVE_PREVIOUS_PAGE, MOVE_SEEK, MOVE_SEEK_BEFORE };

/* What every seek looks at comes first and together, `error` with its status at the end of that: a thousand cursors are more than caches
 * hold. */
struct table_cursor {
  struct cursor head;
  struct table *table;
  bool wants_streams; /* was opened so */
  bool streams;       /* for the table at hand; false also after the budget was too short */
  bool walks;         /* the move under way, or the last one, is to a neighbour: worth reading ahead for */
  enum move move;     /* under way while PENDING or YIELD */
  turb_bytes key;     /* of SEEK and SEEK_BEFORE; the caller's */
  uint64_t sequence;
  uint32_t index_page;
  uint16_t index_slot;
  uint16_t guess; /* SEEK: about the place in the key page */
  struct key_lane *lane;
  struct key_pages pages;
  turb_error error;
  struct window windows[WINDOWS];
};

static void window_unused(struct window *window) {
  load_pin_release(window->owner, &window->pin);
}

static struct window *free_window(struct table_cursor *self) {
  for (uint32_t i = 0; i < WINDOWS; i++)
    if (!self->windows[i].references)
      return &self->windows[i];
  return NULL;
}

/* ---- outcomes of a move ---- */

static turb_state fail(struct table_cursor *self) {
  self->move = MOVE_NONE;
  return self->head.state = TURB_FAILED;
}

static void let_go(struct table_cursor *self) {
  window_release(self->head.window);
  self->head.window = NULL;
  self->head.slot = self->head.window_begin = self->head.window_end = NULL;
}

static turb_state end(struct table_cursor *self) {
  let_go(self);
  self->move = MOVE_NONE;
  return self->head.state = TURB_END;
}

static turb_state wait_for(struct table_cursor *self, turb_state state) {
  return self->head.state = state;
}

/* The page is the current window from now on; `window` comes with a reference. */
static turb_state arrive(struct table_cursor *self, const struct slot_page *page, struct window *window, uint16_t slot) {
  let_go(self);
  struct cursor *c = &self->head;
  c->window = window;
  c->window_begin = slot_at(page, 0);
  c->window_end = slot_at(page, page->slot_count);
  c->slot = slot_at(page, slot);
  self->move = MOVE_NONE;
  return c->state = TURB_READY;
}

/* ---- page mode ---- */

/* The goal moves one key page on or back; false at the table's end. */
static bool step_page(struct table_cursor *self, bool backward) {
  if (backward) {
    if (self->index_slot) {
      self->index_slot--;
      return true;
    }
    if (!self->index_page)
      return false;
    self->index_page--;
    self->index_slot = SLOT_LAST;
    return true;
  }
  const struct slot_page *index = self->pages.index_page == self->index_page ? key_pages_at_hand(&self->pages) : NULL;
  if (index && self->index_slot + 1 < index->slot_count) {
    self->index_slot++;
    return true;
  }
  if (self->index_page + 1 >= table_index_page_count(self->table))
    return false;
  self->index_page++;
  self->index_slot = 0;
  return true;
}

/* The place in a key page that has arrived; false: not in this page, and the goal was moved (or `*at_end` set). */
static bool place_in_page(struct table_cursor *self, const struct slot_page *page, uint16_t *slot, bool *at_end) {
  *at_end = false;
  switch (self->move) {
  case MOVE_FIRST:
  case MOVE_NEXT_PAGE: *slot = 0; return true;
  case MOVE_LAST:
  case MOVE_PREVIOUS_PAGE: *slot = (uint16_t)(page->slot_count - 1); return true;
  case MOVE_SEEK:
    *slot = slot_page_lower_bound_near(page, self->guess, self->key, self->sequence);
    if (*slot < page->slot_count)
      return true;
    *at_end = !step_page(self, false); /* still SEEK: versions of one key may fill several pages */
    return false;
  case MOVE_SEEK_BEFORE:
    *slot = slot_page_lower_bound_near(page, self->guess, self->key, self->sequence);
    if (*slot == page->slot_count && step_page(self, false))
      return false;
    if (*slot > 0) {
      --*slot;
      return true;
    }
    self->move = MOVE_PREVIOUS_PAGE;
    *at_end = !step_page(self, true);
    return false;
  case MOVE_NONE: break;
  }
  assert(false);
  return false;
}

static enum key_walk walk_of(const struct table_cursor *self) {
  if (!self->walks)
    return KEY_WALK_NONE;
  return self->move == MOVE_NEXT_PAGE ? KEY_WALK_FORWARD : self->move == MOVE_PREVIOUS_PAGE ? KEY_WALK_BACKWARD : KEY_WALK_NONE;
}

/* The index slot of a seek is known: what the search in its key page will look at is asked for at once. */
static void guess_place(struct table_cursor *self, const struct slot_page *index) {
  const struct index_slot *slot = index_slot_at(index, self->index_slot);
  const uint32_t ordinal = table_key_ordinal(self->table, slot->page);
  self->guess = index_page_guess(index, self->index_slot, self->key);
  if (ordinal != UINT32_MAX)
    table_prefetch_keys(self->table, slot, table_unit(self->table, UNIT_KEYS, ordinal), self->guess, self->key.size);
}

/* Goes on with the move until it is done or must wait. */
static turb_state run_pages(struct table_cursor *self) {
  for (;;) {
    const struct slot_page *index;
    turb_state state = key_pages_index(&self->pages, self->index_page, &index, &self->error);
    if (state != TURB_READY)
      return state == TURB_FAILED ? fail(self) : wait_for(self, state);
    if (self->index_slot == SLOT_LAST)
      self->index_slot = (uint16_t)(index->slot_count - 1);
    const bool finds = self->index_slot == SLOT_FIND;
    if (finds)
      self->index_slot = index_page_find(index, self->key);
    if (self->index_slot >= index->slot_count) { /* cannot be by the top index; a table that says otherwise is damaged */
      status_forget(&self->error);
      (void)status_set_file(&self->error, TURB_CORRUPTION, io_file_path(table_file(self->table)), UINT64_MAX,
                            "index page %u contradicts the top index", self->index_page);
      return fail(self);
    }
    if (finds)
      guess_place(self, index);
    struct window *window = free_window(self);
    if (!window)
      return wait_for(self, TURB_YIELD);
    struct cache_pin pin = {0};
    state = key_pages_get(&self->pages, self->index_slot, walk_of(self), &pin, &self->error);
    if (state != TURB_READY)
      return state == TURB_FAILED ? fail(self) : wait_for(self, state);
    uint16_t slot;
    bool at_end;
    const struct slot_page *page = pin.data;
    if (place_in_page(self, page, &slot, &at_end)) {
      key_pages_warm_next(&self->pages, self->index_slot, walk_of(self), page);
      *window = (struct window){.references = 1, .release = window_unused, .pin = pin, .owner = self->table};
      return arrive(self, page, window, slot);
    }
    load_pin_release(self->table, &pin);
    if (at_end)
      return end(self);
  }
}

/* ---- streaming ---- */

static turb_state run_lane(struct table_cursor *self) {
  for (;;) {
    const struct slot_page *page;
    struct window *window;
    const turb_state state = key_lane_next(self->lane, &page, &window);
    if (state == TURB_END)
      return end(self);
    if (state == TURB_FAILED) {
      status_forget(&self->error);
      (void)key_lane_error(self->lane, &self->error);
      return fail(self);
    }
    if (state != TURB_READY)
      return wait_for(self, state);
    const uint16_t slot = self->move == MOVE_SEEK ? slot_page_lower_bound(page, self->key, self->sequence) : 0;
    if (slot < page->slot_count)
      return arrive(self, page, window, slot);
    window_release(window);
  }
}

/* Leaves a lane: its pieces that are held live on by themselves. */
static void leave_lane(struct table_cursor *self) {
  key_lane_close(self->lane);
  self->lane = NULL;
}

/* Opens the lane at the goal; for SEEK the index page is needed first. */
static turb_state enter_lane(struct table_cursor *self) {
  uint32_t unit = 0;
  if (self->move == MOVE_SEEK) {
    const struct slot_page *index;
    const turb_state state = key_pages_index(&self->pages, self->index_page, &index, &self->error);
    if (state != TURB_READY)
      return state == TURB_FAILED ? fail(self) : wait_for(self, state);
    const uint16_t slot = index_page_find(index, self->key);
    if (slot < index->slot_count)
      unit = table_key_ordinal(self->table, index_slot_at(index, slot)->page);
    if (slot >= index->slot_count || unit == UINT32_MAX)
      return run_pages(self); /* which reports the damage */
  }
  status_forget(&self->error);
  const turb_status status = key_lane_open(self->head.context, self->table, unit, &self->lane, &self->error);
  if (status == TURB_OK)
    return run_lane(self);
  if (status == TURB_BUDGET) { /* there is no room for large reads: page by page, then */
    self->streams = false;
    return run_pages(self);
  }
  return fail(self);
}

/* ---- operations ---- */

static turb_state go_on(struct table_cursor *self) {
  if (self->lane)
    return run_lane(self);
  if (self->streams && (self->move == MOVE_FIRST || self->move == MOVE_SEEK))
    return enter_lane(self);
  return run_pages(self);
}

static turb_state begin(struct table_cursor *self, enum move move, uint32_t page, uint16_t slot) {
  const bool seek = move != MOVE_NEXT_PAGE && move != MOVE_PREVIOUS_PAGE;
  if (seek) {
    leave_lane(self);
    key_pages_stop(&self->pages);
  }
  status_forget(&self->error);
  self->head.placed = true;
  self->walks = !seek;
  self->move = move;
  self->index_page = page;
  self->index_slot = slot;
  if (page >= table_index_page_count(self->table))
    return end(self);
  return go_on(self);
}

static turb_state table_advance(struct cursor *cursor) {
  struct table_cursor *self = (struct table_cursor *)cursor;
  if (cursor->state == TURB_PENDING || cursor->state == TURB_YIELD)
    return go_on(self);
  if (cursor->state != TURB_READY)
    return cursor->state;
  if (self->lane) {
    self->move = MOVE_NEXT_PAGE;
    return run_lane(self);
  }
  if (!step_page(self, false))
    return end(self);
  return begin(self, MOVE_NEXT_PAGE, self->index_page, self->index_slot);
}

static turb_state table_seek(struct cursor *cursor, turb_bytes key, uint64_t sequence) {
  struct table_cursor *self = (struct table_cursor *)cursor;
  self->key = key;
  self->sequence = sequence;
  return begin(self, MOVE_SEEK, table_find_index_page(self->table, key), SLOT_FIND);
}

static turb_state table_first_entry(struct cursor *cursor) {
  return begin((struct table_cursor *)cursor, MOVE_FIRST, 0, 0);
}

static turb_state table_last_entry(struct cursor *cursor) {
  struct table_cursor *self = (struct table_cursor *)cursor;
  const uint32_t pages = table_index_page_count(self->table);
  return begin(self, MOVE_LAST, pages ? pages - 1 : 0, SLOT_LAST);
}

static turb_state table_seek_before(struct cursor *cursor, turb_bytes key, uint64_t sequence) {
  struct table_cursor *self = (struct table_cursor *)cursor;
  const uint32_t page = table_find_index_page(self->table, key);
  if (page >= table_index_page_count(self->table))
    return table_last_entry(cursor);
  self->key = key;
  self->sequence = sequence;
  return begin(self, MOVE_SEEK_BEFORE, page, SLOT_FIND);
}

static turb_state table_retreat(struct cursor *cursor) {
  struct table_cursor *self = (struct table_cursor *)cursor;
  if (cursor->state == TURB_PENDING || cursor->state == TURB_YIELD)
    return go_on(self);
  if (cursor->state != TURB_READY)
    return cursor->state;
  if (self->lane) /* the place in the page index is not known: the current entry, which stays readable, is the target */
    return table_seek_before(cursor, slot_key_bytes(cursor->slot), slot_sequence(cursor->slot));
  if (!step_page(self, true))
    return end(self);
  return begin(self, MOVE_PREVIOUS_PAGE, self->index_page, self->index_slot);
}

static turb_state table_resume(struct cursor *cursor) {
  return go_on((struct table_cursor *)cursor);
}

/* Moves beyond the window on behalf of a batch, which keeps the page that is left. */
static bool batch_leaves_window(struct cursor *cursor, struct cursor_batch *batch, bool backward) {
  if (!cursor_batch_hold(batch, cursor->window))
    return false;
  const turb_state state = backward ? table_retreat(cursor) : table_advance(cursor);
  return state == TURB_READY;
}

static turb_state table_batch(struct cursor *cursor, struct cursor_batch *batch, bool backward) {
  const ptrdiff_t step = backward ? -1 : 1;
  if (cursor->state == TURB_PENDING || cursor->state == TURB_YIELD)
    (void)go_on((struct table_cursor *)cursor);
  while (cursor->state == TURB_READY && batch->count < batch->capacity) {
    const uint32_t room = batch->capacity - batch->count;
    const size_t left = backward ? (size_t)(cursor->slot - cursor->window_begin) + 1 : (size_t)(cursor->window_end - cursor->slot);
    const uint32_t n = left < room ? (uint32_t)left : room;
    if (n == left && batch->held_count == batch->held_capacity)
      break;
    struct cursor_ref *refs = batch->refs + batch->count;
    const struct slot *slot = cursor->slot;
    const struct source *source = cursor->source;
    for (uint32_t i = 0; i < n; i++, slot += step)
      refs[i] = (struct cursor_ref){slot, source};
    batch->count += n;
    if (n < left) {
      cursor->slot = slot;
      break;
    }
    cursor->slot = backward ? cursor->window_begin : cursor->window_end - 1; /* the last that was taken: the move goes on from it */
    if (!batch_leaves_window(cursor, batch, backward))
      break;
  }
  return cursor->state;
}

static struct window *table_window_of(const struct cursor *cursor, const struct slot *slot) {
  return window_covers(cursor->window, slot) ? cursor->window : NULL;
}

static void table_prefetch(const struct cursor *cursor, uint32_t depth) {
  const struct table_cursor *self = (const struct table_cursor *)cursor;
  if (depth == 1) {
    __builtin_prefetch(self->pages.index);
    prefetch_lines(self->windows, 2);
  }
}

static turb_status table_error(const struct cursor *cursor, turb_error *err) {
  const struct table_cursor *self = (const struct table_cursor *)cursor;
  if (cursor->state == TURB_FAILED && self->error.status != TURB_OK)
    return status_copy(err, &self->error);
  return cursor_error_unless_failed(cursor, err);
}

static void table_close(struct cursor *cursor) {
  struct table_cursor *self = (struct table_cursor *)cursor;
  let_go(self);
  leave_lane(self);
  key_pages_close(&self->pages);
  mem_free(cursor->context->allocator, self, sizeof *self);
}

static const struct cursor_ops table_cursor_ops = {
    .name = "table",
    .advance = table_advance,
    .retreat = table_retreat,
    .seek = table_seek,
    .seek_before = table_seek_before,
    .first = table_first_entry,
    .last = table_last_entry,
    .resume = table_resume,
    .batch = table_batch,
    .window_of = table_window_of,
    .prefetch = table_prefetch,
    .error = table_error,
    .close = table_close,
};

turb_status table_cursor_open(struct cursor_context *context, const struct source *source, bool streaming, struct cursor **cursor,
                              turb_error *err) {
  *cursor = NULL;
  struct table_cursor *self = mem_alloc_zeroed(context->allocator, sizeof *self);
  if (!self)
    return status_set(err, TURB_NO_MEMORY, "no memory for a cursor");
  cursor_init(&self->head, &table_cursor_ops, context);
  self->wants_streams = streaming;
  const turb_status status = key_pages_open(&self->pages, context, err);
  if (status != TURB_OK) {
    table_close(&self->head);
    return status;
  }
  table_cursor_retarget(&self->head, source);
  *cursor = &self->head;
  return TURB_OK;
}

void table_cursor_retarget(struct cursor *cursor, const struct source *source) {
  struct table_cursor *self = (struct table_cursor *)cursor;
  let_go(self);
  leave_lane(self);
  key_pages_retarget(&self->pages, source->table);
  self->index_page = 0;
  self->index_slot = 0;
  self->move = MOVE_NONE;
  self->streams = self->wants_streams;
  self->table = source->table;
  cursor->source = source;
  cursor->state = TURB_FAILED;
  cursor->placed = false;
}
