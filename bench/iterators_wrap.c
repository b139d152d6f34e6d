/* Pass-through cursors (iterators.h): the same tree as it would be if it were not split.
 *
 *   boxed         every next allocates an operation, runs it through a function pointer, completes it through a callback and frees it:
 *                 what a boxed future costs
 *   always-await  every next is a call that enters the slow path's state machine
 *
 * Each shows a window of one entry, so that no parent's inline move ever succeeds.
 */
#include <stdlib.h>

#include "base/alloc.h"
#include "bench/iterators.h"
#include "iterators/cursor_parts.h"

enum await_step { STEP_BEGIN, STEP_MOVING, STEP_DONE };

struct wrap_cursor {
  struct cursor head;
  struct cursor *child;
  enum await_step step;
};

static struct cursor *child_of(const struct cursor *cursor) {
  return ((const struct wrap_cursor *)cursor)->child;
}

static turb_state show(struct wrap_cursor *self) {
  struct cursor *c = &self->head;
  cursor_mirror(c, self->child);
  if (c->state == TURB_READY && c->ref) {
    c->ref_first = c->ref_last = c->ref;
  } else if (c->state == TURB_READY) {
    c->window_begin = c->slot;
    c->window_end = c->slot + 1;
  }
  return c->state;
}

/* ---- boxed ---- */

struct operation {
  turb_state (*run)(struct operation *operation);
  void (*complete)(struct operation *operation, turb_state state);
  struct wrap_cursor *owner;
};

static void completed(struct operation *operation, turb_state state) {
  (void)state;
  (void)show(operation->owner);
}

static turb_state run_advance(struct operation *operation) {
  return cursor_advance(operation->owner->child);
}

/* Calls whose targets the compiler must not see through, as it cannot see through a boxed future's. */
static turb_state (*volatile advance_operation)(struct operation *operation) = run_advance;
static void (*volatile advance_completed)(struct operation *operation, turb_state state) = completed;

static turb_state boxed_advance(struct cursor *cursor) {
  struct operation *operation = malloc(sizeof *operation);
  if (!operation)
    bench_fail("no memory for an operation");
  *operation = (struct operation){advance_operation, advance_completed, (struct wrap_cursor *)cursor};
  const turb_state state = operation->run(operation);
  operation->complete(operation, state);
  free(operation);
  return cursor->state;
}

/* ---- always-await ---- */

static turb_state run_steps(struct wrap_cursor *self) {
  for (;;)
    switch (self->step) {
    case STEP_BEGIN: self->step = STEP_MOVING; break;
    case STEP_MOVING: {
      const turb_state state =
          self->child->state == TURB_PENDING || self->child->state == TURB_YIELD ? cursor_resume(self->child) : cursor_advance(self->child);
      if (state == TURB_PENDING || state == TURB_YIELD)
        return self->head.state = state;
      self->step = STEP_DONE;
      break;
    }
    case STEP_DONE: self->step = STEP_BEGIN; return show(self);
    }
}

static __attribute__((noinline)) turb_state await_advance(struct cursor *cursor) {
  return run_steps((struct wrap_cursor *)cursor);
}

/* ---- what both share ---- */

static turb_state wrap_retreat(struct cursor *cursor) {
  (void)cursor_retreat(child_of(cursor));
  return show((struct wrap_cursor *)cursor);
}
static turb_state wrap_seek(struct cursor *cursor, turb_bytes key, uint64_t sequence) {
  (void)cursor_seek(child_of(cursor), key, sequence);
  return show((struct wrap_cursor *)cursor);
}
static turb_state wrap_seek_before(struct cursor *cursor, turb_bytes key, uint64_t sequence) {
  (void)cursor_seek_before(child_of(cursor), key, sequence);
  return show((struct wrap_cursor *)cursor);
}
static turb_state wrap_first(struct cursor *cursor) {
  (void)cursor_first(child_of(cursor));
  return show((struct wrap_cursor *)cursor);
}
static turb_state wrap_last(struct cursor *cursor) {
  (void)cursor_last(child_of(cursor));
  return show((struct wrap_cursor *)cursor);
}
static turb_state wrap_resume(struct cursor *cursor) {
  (void)cursor_resume(child_of(cursor));
  ((struct wrap_cursor *)cursor)->step = STEP_BEGIN;
  return show((struct wrap_cursor *)cursor);
}

/* The page of the current entry is among those held last, mostly. */
static bool hold(const struct cursor *cursor, struct cursor_batch *batch) {
  if (!cursor->ref)
    return cursor_batch_hold(batch, cursor->window);
  for (uint32_t i = batch->held_count; i > 0 && i + 4 > batch->held_count; i--)
    if (window_covers(batch->held[i - 1], cursor->slot))
      return true;
  return cursor_batch_hold(batch, cursor_window_of(cursor, cursor->slot));
}

/* Entry by entry: a parent that asks for many still gets each by its own next. */
static turb_state wrap_batch(struct cursor *cursor, struct cursor_batch *batch, bool backward) {
  if (cursor->state == TURB_PENDING || cursor->state == TURB_YIELD)
    (void)wrap_resume(cursor);
  while (cursor->state == TURB_READY && batch->count < batch->capacity && hold(cursor, batch)) {
    batch->refs[batch->count++] = (struct cursor_ref){cursor->slot, cursor->source};
    (void)(backward ? cursor_retreat(cursor) : cursor_advance(cursor));
  }
  return cursor->state;
}
static struct window *wrap_window_of(const struct cursor *cursor, const struct slot *slot) {
  return cursor_window_of(child_of(cursor), slot);
}
static turb_status wrap_error(const struct cursor *cursor, turb_error *err) {
  return cursor_error(child_of(cursor), err);
}
static void wrap_close(struct cursor *cursor) {
  cursor_close(child_of(cursor));
  mem_free(cursor->context->allocator, cursor, sizeof(struct wrap_cursor));
}

#define WRAP_OPS(kind, move)                                                                                                               \
  {                                                                                                                                        \
    .name = (kind), .advance = (move), .retreat = wrap_retreat, .seek = wrap_seek, .seek_before = wrap_seek_before, .first = wrap_first,   \
    .last = wrap_last, .resume = wrap_resume, .batch = wrap_batch, .window_of = wrap_window_of, .error = wrap_error, .close = wrap_close   \
  }
static const struct cursor_ops boxed_ops = WRAP_OPS("boxed", boxed_advance);
static const struct cursor_ops await_ops = WRAP_OPS("always-await", await_advance);

static struct cursor *wrap(struct cursor_context *context, struct cursor *child, const struct cursor_ops *ops) {
  struct wrap_cursor *self = mem_alloc_zeroed(context->allocator, sizeof *self);
  if (!self)
    bench_fail("no memory for a cursor");
  cursor_init(&self->head, ops, context);
  self->child = child;
  return &self->head;
}
struct cursor *boxed_cursor_open(struct cursor_context *context, struct cursor *child) {
  return wrap(context, child, &boxed_ops);
}
struct cursor *await_cursor_open(struct cursor_context *context, struct cursor *child) {
  return wrap(context, child, &await_ops);
}
