/* iterators/cursor_parts: small pieces that the kinds of cursors are made of; for iterators/ alone. */
#ifndef TURB_ITERATORS_CURSOR_PARTS_H
#define TURB_ITERATORS_CURSOR_PARTS_H

#include "base/alloc.h"
#include "iterators/cursor.h"

static inline void cursor_init(struct cursor *cursor, const struct cursor_ops *ops, struct cursor_context *context) {
  cursor->ops = ops;
  cursor->context = context;
  cursor->state = TURB_FAILED; /* FRESH: a relative move before the first seek is our caller's mistake */
}

/* For kinds that never fail by themselves: FRESH is the only way to FAILED. */
static inline turb_status cursor_error_unless_failed(const struct cursor *cursor, turb_error *err) {
  return cursor->state == TURB_FAILED ? status_set(err, TURB_INVALID, "a %s cursor was moved before its first seek", cursor->ops->name)
                                      : TURB_OK;
}

static inline struct budget *cursor_stream_budget(const struct cursor_context *context) {
  return context->stream_budget ? context->stream_budget : context->budget;
}

/* The current entry is alone in its window: what is beside it takes a call. */
static inline void cursor_show_one(struct cursor *cursor, const struct slot *slot, const struct source *source) {
  cursor->slot = slot;
  cursor->source = source;
  cursor->window_begin = cursor->window_end = NULL;
  cursor->ref = cursor->ref_first = cursor->ref_last = NULL;
}
/* The window is a stretch; `ref` the current entry's. */
static inline void cursor_show_stretch(struct cursor *cursor, const struct cursor_ref *ref, const struct cursor_ref *first,
                                       const struct cursor_ref *last) {
  cursor_show_one(cursor, ref->slot, ref->source);
  cursor->ref = ref;
  cursor->ref_first = first;
  cursor->ref_last = last;
}
static inline void cursor_show_none(struct cursor *cursor) {
  cursor_show_one(cursor, NULL, NULL);
}

/* A parent that passes its child's window on. */
static inline void cursor_mirror(struct cursor *parent, const struct cursor *child) {
  parent->slot = child->slot;
  parent->window_begin = child->window_begin;
  parent->window_end = child->window_end;
  parent->ref = child->ref;
  parent->ref_first = child->ref_first;
  parent->ref_last = child->ref_last;
  parent->source = child->source;
  parent->window = child->window;
  parent->state = child->state;
  parent->placed = true;
}
/* The child learns of inline moves on the mirror. */
static inline void cursor_follow(struct cursor *child, const struct cursor *parent) {
  child->slot = parent->slot;
  child->ref = parent->ref;
  child->source = parent->source;
}

/* What keeps the current entry readable, whatever kind of window it is in. */
static inline struct window *cursor_current_window(const struct cursor *cursor) {
  return cursor->window || !cursor->ref ? cursor->window : cursor_window_of(cursor, cursor->slot);
}

#endif
