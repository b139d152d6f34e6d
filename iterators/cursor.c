/* iterators/cursor: what all kinds share: awaiting, and the windows that a batch holds. */
#include "iterators/cursor.h"

#include <assert.h>

turb_state cursor_await(struct cursor *cursor) {
  turb_state state = cursor->state;
  while (state == TURB_PENDING || state == TURB_YIELD) {
    if (state == TURB_PENDING) {
      turb_error ignored = TURB_ERROR_INIT; /* a failed submission fails the loads, and so the cursor that needs them */
      if (reads_wait(cursor->context->reads, &ignored) != TURB_OK && cursor_resume(cursor) == TURB_PENDING)
        return TURB_PENDING;
    }
    state = cursor_resume(cursor);
  }
  reads_submit_ahead(cursor->context->reads);
  return state;
}

bool cursor_batch_hold(struct cursor_batch *batch, struct window *window) {
  if (!window)
    return true;
  if (batch->held_count && batch->held[batch->held_count - 1] == window)
    return true;
  if (batch->held_count == batch->held_capacity)
    return false;
  batch->held[batch->held_count++] = window_retain(window);
  return true;
}

bool cursor_batch_hold_current(struct cursor_batch *batch, const struct cursor *cursor) {
  if (cursor->source->memtable)
    return true;
  for (uint32_t i = batch->held_count; i-- > 0;)
    if (window_covers(batch->held[i], cursor->slot))
      return true;
  return cursor_batch_hold(batch, cursor_window_of(cursor, cursor->slot));
}

void cursor_batch_release(struct cursor_batch *batch) {
  for (uint32_t i = 0; i < batch->held_count; i++)
    window_release(batch->held[i]);
  batch->held_count = 0;
  batch->count = 0;
}

void key_bounds_prefix(struct key_bounds *bounds, turb_bytes prefix, uint8_t *scratch) {
  if (!prefix.size)
    return;
  if (!bounds->lower.size || key_compare(bounds->lower.data, bounds->lower.size, prefix.data, prefix.size) < 0)
    bounds->lower = prefix;
  size_t size = 0;
  if (!key_successor(prefix.data, prefix.size, scratch, &size))
    return; /* all 0xff: no key is above all that begin so */
  if (!bounds->upper.size || key_compare(bounds->upper.data, bounds->upper.size, scratch, size) > 0)
    bounds->upper = (turb_bytes){scratch, size};
}
