/* iterators/concat_cursor: over a run, one table at a time.
 *
 * Two table cursors take turns: one is current, the other is sent ahead to the next table of the walk when the current one comes near its
 * end, so that crossing the border does not wait. A seek sends nobody ahead: a walk does, from its second page on.
 *
 * Invariants
 *  1. `table` is the current child's table; when `ahead`, the other child stands on (or is on its way to) the entry of `ahead_table` that is
 *     next to it.
 *  2. `old` holds the window of the old entry during a move: it stays readable over a border.
 */
#include "iterators/cursor_parts.h"
#include "iterators/key_pages.h"

struct concat_cursor {
  struct cursor head;
  const struct run_view *run;
  struct cursor *children[2];
  uint32_t current; /* which child */
  uint32_t table;   /* index in the run */
  bool ahead;       /* the other child was sent to ahead_table */
  bool sought;      /* the move under way is a seek */
  bool streaming;
  bool backward;    /* direction of the move under way */
  bool crossing;    /* the other child is on its way to be current */
  uint32_t target;  /* its table, while crossing */
  uint32_t ahead_table;
  const struct slot *sought_window; /* where the last seek ended */
  struct window *old;
};

static struct cursor *current(const struct concat_cursor *self) {
  return self->children[self->current];
}
static struct cursor *other(const struct concat_cursor *self) {
  return self->children[self->current ^ 1];
}

static void release_old(struct concat_cursor *self) {
  window_release(self->old);
  self->old = NULL;
}

/* A move begins: the child learns of inline moves on the mirror, and the old entry's window is held. */
static void leave(struct concat_cursor *self) {
  if (self->head.state != TURB_READY)
    return;
  current(self)->slot = self->head.slot;
  self->old = window_retain(self->head.window);
}

static turb_state at_end(struct concat_cursor *self) {
  struct cursor *c = &self->head;
  release_old(self);
  self->crossing = false;
  c->placed = true;
  c->slot = c->window_begin = c->window_end = NULL;
  c->window = NULL;
  return c->state = TURB_END;
}

/* The table after the current one in the walk; not below run->count when there is none. */
static uint32_t next_table(const struct concat_cursor *self, uint32_t table) {
  return self->backward ? table - 1 : table + 1;
}

/* Sends the other child to the next table when the current one is some pages from its end, and on when it waits there: nothing blocks. */
static void send_ahead(struct concat_cursor *self) {
  const uint32_t next = next_table(self, self->table);
  if (next >= self->run->count)
    return;
  if (self->ahead && self->ahead_table == next) {
    (void)cursor_resume(other(self));
    return;
  }
  const struct cursor *child = current(self);
  const uint64_t puts = table_get_record(child->source->table)->puts;
  const struct slot_page *page = slot_page_of(child->slot);
  /* A child that streams takes memory for large pieces when it is sent. */
  const uint64_t near = (uint64_t)(self->streaming ? 2 : KEY_PAGES_AHEAD) * page->slot_count;
  if (self->backward ? page->base_row > near : page->base_row + near < puts)
    return;
  table_cursor_retarget(other(self), &self->run->sources[next]);
  (void)(self->backward ? cursor_last(other(self)) : cursor_first(other(self)));
  self->ahead = true;
  self->ahead_table = next;
}

/* The child is where the caller wants to be, or there is no such place in its table: then on to the neighbour. */
static turb_state settle(struct concat_cursor *self) {
  for (;;) {
    struct cursor *child = self->crossing ? other(self) : current(self);
    const turb_state state = child->state;
    if (state == TURB_READY) {
      if (self->crossing) {
        const uint32_t table = self->target;
        self->current ^= 1;
        self->table = table;
        self->crossing = false;
        self->ahead = false;
      }
      release_old(self);
      cursor_mirror(&self->head, child);
      if (self->sought)
        self->sought_window = child->window_begin;
      else if (child->window_begin != self->sought_window)
        send_ahead(self);
      self->sought = false;
      return TURB_READY;
    }
    if (state == TURB_FAILED)
      release_old(self);
    if (state != TURB_END)
      return self->head.state = state; /* PENDING, YIELD, FAILED */
    const uint32_t from = self->crossing ? self->target : self->table;
    if (self->backward ? from == 0 : from + 1 >= self->run->count) {
      self->ahead = false;
      return at_end(self);
    }
    const uint32_t next = next_table(self, from);
    if (!self->crossing && self->ahead && self->ahead_table == next && other(self)->state != TURB_FAILED) {
      self->ahead = false; /* it is on its way already; one that failed ahead of time gets another try */
    } else {
      /* The child that ended in a table without entries of interest is sent on itself. */
      self->ahead = false;
      table_cursor_retarget(other(self), &self->run->sources[next]);
      (void)(self->backward ? cursor_last(other(self)) : cursor_first(other(self)));
    }
    self->crossing = true;
    self->target = next;
    if (other(self)->state == TURB_PENDING)
      (void)cursor_resume(other(self));
  }
}

static turb_state concat_resume(struct cursor *cursor) {
  struct concat_cursor *self = (struct concat_cursor *)cursor;
  (void)cursor_resume(self->crossing ? other(self) : current(self));
  return settle(self);
}

static turb_state relative(struct concat_cursor *self, bool backward) {
  struct cursor *c = &self->head;
  if (c->state == TURB_PENDING || c->state == TURB_YIELD)
    return concat_resume(c);
  if (c->state != TURB_READY)
    return c->state;
  leave(self);
  self->backward = backward;
  (void)(backward ? cursor_retreat(current(self)) : cursor_advance(current(self)));
  return settle(self);
}
static turb_state concat_advance(struct cursor *cursor) {
  return relative((struct concat_cursor *)cursor, false);
}
static turb_state concat_retreat(struct cursor *cursor) {
  return relative((struct concat_cursor *)cursor, true);
}

uint32_t run_view_find(const struct run_view *run, turb_bytes key) {
  uint32_t low = 0, high = run->count;
  while (low < high) {
    const uint32_t middle = low + (high - low) / 2;
    const struct table_record *record = table_get_record(run->sources[middle].table);
    const int c = record->upper_open ? 1 : key_compare(record->upper.data, record->upper.size, key.data, key.size);
    if (c < 0 || (c == 0 && !record->upper_inclusive))
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/* Begins an absolute move in table `table` of the run. */
static struct cursor *enter(struct concat_cursor *self, uint32_t table, bool backward) {
  self->ahead = false;
  self->crossing = false;
  self->sought = true;
  self->backward = backward;
  self->head.placed = true;
  if (self->table != table)
    table_cursor_retarget(current(self), &self->run->sources[table]);
  self->table = table;
  return current(self);
}

static turb_state concat_seek(struct cursor *cursor, turb_bytes key, uint64_t sequence) {
  struct concat_cursor *self = (struct concat_cursor *)cursor;
  leave(self);
  const uint32_t table = run_view_find(self->run, key);
  if (table >= self->run->count)
    return at_end(self);
  (void)cursor_seek(enter(self, table, false), key, sequence);
  return settle(self);
}

static turb_state concat_seek_before(struct cursor *cursor, turb_bytes key, uint64_t sequence) {
  struct concat_cursor *self = (struct concat_cursor *)cursor;
  if (!self->run->count)
    return at_end(self);
  leave(self);
  uint32_t table = run_view_find(self->run, key);
  if (table >= self->run->count)
    table = self->run->count - 1;
  (void)cursor_seek_before(enter(self, table, true), key, sequence);
  return settle(self);
}

static turb_state concat_first(struct cursor *cursor) {
  struct concat_cursor *self = (struct concat_cursor *)cursor;
  if (!self->run->count)
    return at_end(self);
  leave(self);
  (void)cursor_first(enter(self, 0, false));
  return settle(self);
}

static turb_state concat_last(struct cursor *cursor) {
  struct concat_cursor *self = (struct concat_cursor *)cursor;
  if (!self->run->count)
    return at_end(self);
  leave(self);
  (void)cursor_last(enter(self, self->run->count - 1, true));
  return settle(self);
}

static turb_state concat_batch(struct cursor *cursor, struct cursor_batch *batch, bool backward) {
  struct concat_cursor *self = (struct concat_cursor *)cursor;
  if (cursor->state == TURB_PENDING || cursor->state == TURB_YIELD)
    (void)concat_resume(cursor);
  while (cursor->state == TURB_READY && batch->count < batch->capacity) {
    leave(self);
    const uint32_t before = batch->count;
    self->backward = backward;
    (void)cursor_take(current(self), batch, backward);
    if (settle(self) != TURB_READY || batch->count == before)
      break;
  }
  return cursor->state;
}

static struct window *concat_window_of(const struct cursor *cursor, const struct slot *slot) {
  const struct concat_cursor *self = (const struct concat_cursor *)cursor;
  if (window_covers(self->old, slot))
    return self->old;
  struct window *window = NULL;
  for (int i = 0; i < 2 && self->run->count && !window; i++) /* over an empty run there are no children */
    window = cursor_window_of(self->children[i], slot);
  return window;
}

static void concat_prefetch(const struct cursor *cursor, uint32_t depth) {
  const struct concat_cursor *self = (const struct concat_cursor *)cursor;
  if (self->run->count)
    cursor_prefetch(current(self), depth - 1);
}

static turb_status concat_error(const struct cursor *cursor, turb_error *err) {
  const struct concat_cursor *self = (const struct concat_cursor *)cursor;
  if (!cursor->placed)
    return cursor_error_unless_failed(cursor, err);
  if (!self->run->count)
    return TURB_OK;
  return cursor_error(self->crossing ? other(self) : current(self), err);
}

static void concat_close(struct cursor *cursor) {
  struct concat_cursor *self = (struct concat_cursor *)cursor;
  release_old(self);
  cursor_close(self->children[0]);
  cursor_close(self->children[1]);
  mem_free(cursor->context->allocator, self, sizeof *self);
}

static const struct cursor_ops concat_cursor_ops = {
    .name = "concat",
    .advance = concat_advance,
    .retreat = concat_retreat,
    .seek = concat_seek,
    .seek_before = concat_seek_before,
    .first = concat_first,
    .last = concat_last,
    .resume = concat_resume,
    .batch = concat_batch,
    .window_of = concat_window_of,
    .prefetch = concat_prefetch,
    .error = concat_error,
    .close = concat_close,
};

turb_status concat_cursor_open(struct cursor_context *context, const struct run_view *run, bool streaming, struct cursor **cursor,
                               turb_error *err) {
  *cursor = NULL;
  struct concat_cursor *self = mem_alloc_zeroed(context->allocator, sizeof *self);
  if (!self)
    return status_set(err, TURB_NO_MEMORY, "no memory for a cursor");
  cursor_init(&self->head, &concat_cursor_ops, context);
  self->run = run;
  self->streaming = streaming;
  turb_status status = TURB_OK;
  for (int i = 0; i < 2 && run->count && status == TURB_OK; i++)
    status = table_cursor_open(context, &run->sources[0], streaming, &self->children[i], err);
  if (status != TURB_OK) {
    concat_close(&self->head);
    return status;
  }
  *cursor = &self->head;
  return TURB_OK;
}
