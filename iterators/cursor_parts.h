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

/* A parent that passes its child's window on. */
static inline void cursor_mirror(struct cursor *parent, const struct cursor *child) {
  parent->slot = child->slot;
  parent->window_begin = child->window_begin;
  parent->window_end = child->window_end;
  parent->source = child->source;
  parent->window = child->window;
  parent->state = child->state;
  parent->placed = true;
}

#endif
