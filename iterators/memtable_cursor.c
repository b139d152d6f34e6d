/* iterators/memtable_cursor: over a memtable. Everything is in memory, so no move is ever PENDING; windows have one slot, since the order
 * of entries is that of
 * the skip list and not of the pages. */
#include "iterators/cursor_parts.h"

struct memtable_cursor {
  struct cursor head;
  const struct memtable *memtable;
  const struct memtable_node *node;
};

static turb_state place(struct memtable_cursor *self, const struct memtable_node *node) {
  struct cursor *c = &self->head;
  self->node = node;
  c->placed = true;
  if (!node)
    return c->state = TURB_END;
  c->slot = memtable_node_slot(node);
  c->window_begin = c->slot;
  c->window_end = c->slot + 1;
  return c->state = TURB_READY;
}

static turb_state memtable_advance(struct cursor *cursor) {
  struct memtable_cursor *self = (struct memtable_cursor *)cursor;
  if (cursor->state != TURB_READY)
    return cursor->state;
  return place(self, memtable_next(self->node));
}
static turb_state memtable_retreat(struct cursor *cursor) {
  struct memtable_cursor *self = (struct memtable_cursor *)cursor;
  if (cursor->state != TURB_READY)
    return cursor->state;
  return place(self, memtable_previous(self->memtable, self->node));
}
static turb_state memtable_seek(struct cursor *cursor, turb_bytes key, uint64_t sequence) {
  struct memtable_cursor *self = (struct memtable_cursor *)cursor;
  return place(self, memtable_lower_bound(self->memtable, key, sequence));
}
static turb_state memtable_seek_before(struct cursor *cursor, turb_bytes key, uint64_t sequence) {
  struct memtable_cursor *self = (struct memtable_cursor *)cursor;
  return place(self, memtable_before(self->memtable, key, sequence));
}
static turb_state memtable_first_entry(struct cursor *cursor) {
  struct memtable_cursor *self = (struct memtable_cursor *)cursor;
  return place(self, memtable_first(self->memtable));
}
static turb_state memtable_last_entry(struct cursor *cursor) {
  struct memtable_cursor *self = (struct memtable_cursor *)cursor;
  return place(self, memtable_last(self->memtable));
}
static turb_state memtable_resume(struct cursor *cursor) {
  return cursor->state;
}

static turb_state memtable_batch(struct cursor *cursor, struct cursor_batch *batch, bool backward) {
  struct memtable_cursor *self = (struct memtable_cursor *)cursor;
  if (cursor->state != TURB_READY)
    return cursor->state;
  const struct memtable_node *node = self->node;
  while (node && batch->count < batch->capacity) {
    batch->refs[batch->count++] = (struct cursor_ref){memtable_node_slot(node), cursor->source};
    node = backward ? memtable_previous(self->memtable, node) : memtable_next(node);
  }
  return place(self, node);
}

static struct window *memtable_window_of(const struct cursor *cursor, const struct slot *slot) {
  (void)cursor;
  (void)slot;
  return NULL;
}
static turb_status memtable_error(const struct cursor *cursor, turb_error *err) {
  return cursor_error_unless_failed(cursor, err);
}
static void memtable_close(struct cursor *cursor) {
  mem_free(cursor->context->allocator, cursor, sizeof(struct memtable_cursor));
}

static const struct cursor_ops memtable_cursor_ops = {
    .name = "memtable",
    .advance = memtable_advance,
    .retreat = memtable_retreat,
    .seek = memtable_seek,
    .seek_before = memtable_seek_before,
    .first = memtable_first_entry,
    .last = memtable_last_entry,
    .resume = memtable_resume,
    .batch = memtable_batch,
    .window_of = memtable_window_of,
    .error = memtable_error,
    .close = memtable_close,
};

turb_status memtable_cursor_open(struct cursor_context *context, const struct source *source, struct cursor **cursor, turb_error *err) {
  *cursor = NULL;
  struct memtable_cursor *self = mem_alloc_zeroed(context->allocator, sizeof *self);
  if (!self)
    return status_set(err, TURB_NO_MEMORY, "no memory for a cursor");
  cursor_init(&self->head, &memtable_cursor_ops, context);
  self->head.source = source;
  self->memtable = source->memtable;
  *cursor = &self->head;
  return TURB_OK;
}
