/* iterators/bounded_cursor: a child within [lower, upper). Windows are clipped when they are entered, so moves within them cost nothing.
 *
 * Invariant: READY means that the window lies within the bounds. The child may stand beyond them when this cursor is at
 * END. */
#include "iterators/cursor_parts.h"

struct bounded_cursor {
  struct cursor head;
  struct cursor *child;
  struct key_bounds bounds;
};

static int compare_key(const struct slot *slot, turb_bytes key) {
  return key_compare(slot_key(slot), slot->key_size, key.data, key.size);
}

/* The first slot of [begin, end) whose key is not below `key`. */
static const struct slot *first_not_below(const struct slot *begin, const struct slot *end, turb_bytes key) {
  while (begin < end) {
    const struct slot *middle = begin + (end - begin) / 2;
    if (compare_key(middle, key) < 0)
      begin = middle + 1;
    else
      end = middle;
  }
  return begin;
}

/* The same among refs [begin, end), which are in key order. */
static const struct cursor_ref *first_ref_not_below(const struct cursor_ref *begin, const struct cursor_ref *end, turb_bytes key) {
  while (begin < end) {
    const struct cursor_ref *middle = begin + (end - begin) / 2;
    if (compare_key(middle->slot, key) < 0)
      begin = middle + 1;
    else
      end = middle;
  }
  return begin;
}

/* Clips the window; false when the current entry is out of it. */
static bool clip_slots(struct bounded_cursor *self) {
  struct cursor *c = &self->head;
  const struct key_bounds *b = &self->bounds;
  if (b->upper.size && compare_key(c->window_end - 1, b->upper) >= 0)
    c->window_end = first_not_below(c->window_begin, c->window_end, b->upper);
  if (b->lower.size && compare_key(c->window_begin, b->lower) < 0)
    c->window_begin = first_not_below(c->window_begin, c->window_end, b->lower);
  return c->slot < c->window_end && c->slot >= c->window_begin;
}

static bool clip_stretch(struct bounded_cursor *self) {
  struct cursor *c = &self->head;
  const struct key_bounds *b = &self->bounds;
  if (b->upper.size && compare_key(c->ref_last->slot, b->upper) >= 0)
    c->ref_last = first_ref_not_below(c->ref_first, c->ref_last, b->upper) - 1;
  if (c->ref > c->ref_last)
    return false;
  if (b->lower.size && compare_key(c->ref_first->slot, b->lower) < 0)
    c->ref_first = first_ref_not_below(c->ref_first, c->ref_last + 1, b->lower);
  return c->ref >= c->ref_first;
}

static bool is_within(const struct bounded_cursor *self) {
  const struct key_bounds *b = &self->bounds;
  const struct slot *slot = self->head.slot;
  return !(b->upper.size && compare_key(slot, b->upper) >= 0) && !(b->lower.size && compare_key(slot, b->lower) < 0);
}

static turb_state show(struct bounded_cursor *self) {
  struct cursor *c = &self->head;
  const struct cursor *child = self->child;
  if (child->state != TURB_READY) {
    c->placed = true;
    if (child->state == TURB_END || child->state == TURB_FAILED)
      cursor_show_none(c);
    return c->state = child->state;
  }
  cursor_mirror(c, child);
  if (c->ref ? clip_stretch(self) : c->window_end ? clip_slots(self) : is_within(self))
    return TURB_READY;
  cursor_show_none(c);
  return c->state = TURB_END;
}

static turb_state bounded_resume(struct cursor *cursor) {
  struct bounded_cursor *self = (struct bounded_cursor *)cursor;
  (void)cursor_resume(self->child);
  return show(self);
}

static turb_state relative(struct bounded_cursor *self, bool backward) {
  struct cursor *c = &self->head;
  if (c->state == TURB_PENDING || c->state == TURB_YIELD)
    return bounded_resume(c);
  if (c->state != TURB_READY)
    return c->state;
  cursor_follow(self->child, c);
  (void)(backward ? cursor_retreat(self->child) : cursor_advance(self->child));
  return show(self);
}
static turb_state bounded_advance(struct cursor *cursor) {
  return relative((struct bounded_cursor *)cursor, false);
}
static turb_state bounded_retreat(struct cursor *cursor) {
  return relative((struct bounded_cursor *)cursor, true);
}

static void sync_down(struct bounded_cursor *self) {
  if (self->head.state == TURB_READY)
    cursor_follow(self->child, &self->head);
}

static turb_state bounded_seek(struct cursor *cursor, turb_bytes key, uint64_t sequence) {
  struct bounded_cursor *self = (struct bounded_cursor *)cursor;
  sync_down(self);
  const turb_bytes lower = self->bounds.lower;
  if (lower.size && key_compare(key.data, key.size, lower.data, lower.size) < 0)
    (void)cursor_seek(self->child, lower, SLOT_SEQUENCE_MAX);
  else
    (void)cursor_seek(self->child, key, sequence);
  return show(self);
}

static turb_state bounded_seek_before(struct cursor *cursor, turb_bytes key, uint64_t sequence) {
  struct bounded_cursor *self = (struct bounded_cursor *)cursor;
  sync_down(self);
  const turb_bytes upper = self->bounds.upper;
  if (upper.size && key_compare(key.data, key.size, upper.data, upper.size) >= 0)
    (void)cursor_seek_before(self->child, upper, SLOT_SEQUENCE_MAX);
  else
    (void)cursor_seek_before(self->child, key, sequence);
  return show(self);
}

static turb_state bounded_first(struct cursor *cursor) {
  struct bounded_cursor *self = (struct bounded_cursor *)cursor;
  sync_down(self);
  (void)(self->bounds.lower.size ? cursor_seek(self->child, self->bounds.lower, SLOT_SEQUENCE_MAX) : cursor_first(self->child));
  return show(self);
}

static turb_state bounded_last(struct cursor *cursor) {
  struct bounded_cursor *self = (struct bounded_cursor *)cursor;
  sync_down(self);
  (void)(self->bounds.upper.size ? cursor_seek_before(self->child, self->bounds.upper, SLOT_SEQUENCE_MAX) : cursor_last(self->child));
  return show(self);
}

/* Entries of the batch from `from` on that lie beyond the bound of the direction are taken off. */
static bool clip(const struct bounded_cursor *self, struct cursor_batch *batch, uint32_t from, bool backward) {
  const turb_bytes bound = backward ? self->bounds.lower : self->bounds.upper;
  if (!bound.size || batch->count == from)
    return false;
  if (backward ? compare_key(batch->refs[batch->count - 1].slot, bound) >= 0 : compare_key(batch->refs[batch->count - 1].slot, bound) < 0)
    return false;
  uint32_t low = from, high = batch->count;
  while (low < high) {
    const uint32_t middle = low + (high - low) / 2;
    const int c = compare_key(batch->refs[middle].slot, bound);
    if (backward ? c >= 0 : c < 0)
      low = middle + 1;
    else
      high = middle;
  }
  batch->count = low;
  return true;
}

static turb_state bounded_batch(struct cursor *cursor, struct cursor_batch *batch, bool backward) {
  struct bounded_cursor *self = (struct bounded_cursor *)cursor;
  if (cursor->state == TURB_PENDING || cursor->state == TURB_YIELD)
    (void)bounded_resume(cursor);
  if (cursor->state != TURB_READY)
    return cursor->state;
  sync_down(self);
  const uint32_t from = batch->count;
  (void)cursor_take(self->child, batch, backward);
  if (clip(self, batch, from, backward)) {
    cursor_show_none(cursor);
    return cursor->state = TURB_END;
  }
  return show(self);
}

static struct window *bounded_window_of(const struct cursor *cursor, const struct slot *slot) {
  return cursor_window_of(((const struct bounded_cursor *)cursor)->child, slot);
}
static turb_status bounded_error(const struct cursor *cursor, turb_error *err) {
  return cursor_error(((const struct bounded_cursor *)cursor)->child, err);
}
static void bounded_close(struct cursor *cursor) {
  struct bounded_cursor *self = (struct bounded_cursor *)cursor;
  cursor_close(self->child);
  mem_free(cursor->context->allocator, self, sizeof *self);
}

static const struct cursor_ops bounded_cursor_ops = {
    .name = "bounded",
    .advance = bounded_advance,
    .retreat = bounded_retreat,
    .seek = bounded_seek,
    .seek_before = bounded_seek_before,
    .first = bounded_first,
    .last = bounded_last,
    .resume = bounded_resume,
    .batch = bounded_batch,
    .window_of = bounded_window_of,
    .error = bounded_error,
    .close = bounded_close,
};

turb_status bounded_cursor_open(struct cursor_context *context, struct cursor *child, const struct key_bounds *bounds,
                                struct cursor **cursor, turb_error *err) {
  *cursor = NULL;
  struct bounded_cursor *self = mem_alloc_zeroed(context->allocator, sizeof *self);
  if (!self) {
    cursor_close(child);
    return status_set(err, TURB_NO_MEMORY, "no memory for a cursor");
  }
  cursor_init(&self->head, &bounded_cursor_ops, context);
  self->child = child;
  self->bounds = *bounds;
  *cursor = &self->head;
  return TURB_OK;
}
