/* key_lane.h has the contract, the states and the invariants. */
#include "iterators/key_lane.h"

#include "iterators/cursor_parts.h"

#define KEY_LANE_DEPTH 4u /* one held by the old entry, one current, two on their way */

struct key_lane {
  struct cursor_context *context;
  struct lane *lane;
  struct window pieces[KEY_LANE_DEPTH];
  struct window *current; /* the lane's own reference: pages are handed out from it */
  uint32_t at;            /* bytes of it that were handed out */
  uint32_t held;          /* pieces with references */
  bool closed;
};

static void free_if_unused(struct key_lane *self) {
  if (!self->closed || self->held)
    return;
  lane_close(self->lane);
  mem_free(self->context->allocator, self, sizeof *self);
}

static void piece_unused(struct window *window) {
  struct key_lane *self = window->owner;
  lane_release(self->lane, window->pin.data);
  self->held--;
  free_if_unused(self);
}

turb_status key_lane_open(struct cursor_context *context, struct table *table, uint32_t first_unit, struct key_lane **lane,
                          turb_error *err) {
  *lane = NULL;
  struct key_lane *self = mem_alloc_zeroed(context->allocator, sizeof *self);
  if (!self)
    return status_set(err, TURB_NO_MEMORY, "no memory for a streaming cursor");
  self->context = context;
  const struct lane_options options = {
      .kind = EXTENT_KEYS,
      .first_ordinal = first_unit,
      .last_ordinal = table_unit_count(table, UNIT_KEYS),
      .piece_bytes = context->stream_piece_bytes / 4,
      .depth = KEY_LANE_DEPTH,
      .use = BUDGET_CURSOR,
      .budget = cursor_stream_budget(context),
      .eager = context->eager,
  };
  const turb_status status = lane_open(table, context->reads, &options, &self->lane, err);
  if (status != TURB_OK) {
    mem_free(context->allocator, self, sizeof *self);
    return status;
  }
  *lane = self;
  return TURB_OK;
}

void key_lane_close(struct key_lane *lane) {
  if (!lane)
    return;
  lane->closed = true;
  if (lane->current)
    window_release(lane->current); /* may be the last */
  else
    free_if_unused(lane);
}

/* Takes the next piece from the lane; the current one stays until it is there. */
static turb_state next_piece(struct key_lane *self) {
  if (self->held == lane_depth(self->lane))
    return TURB_YIELD;
  struct piece piece;
  bool at_end = false;
  const enum load_state state = lane_piece(self->lane, &piece, &at_end);
  if (state == LOAD_FAILED)
    return TURB_FAILED;
  if (at_end)
    return TURB_END;
  if (state == LOAD_WAITING)
    return TURB_PENDING;
  struct window *window = self->pieces;
  while (window->references)
    window++;
  *window = (struct window){.references = 1, .release = piece_unused, .pin = {.data = piece.data, .size = piece.size}, .owner = self};
  self->held++;
  window_release(self->current);
  self->current = window;
  self->at = 0;
  return TURB_READY;
}

turb_state key_lane_next(struct key_lane *self, const struct slot_page **page, struct window **window) {
  if (!self->current || self->at == self->current->pin.size) {
    const turb_state state = next_piece(self);
    if (state != TURB_READY)
      return state;
  }
  *page = (const struct slot_page *)((const uint8_t *)self->current->pin.data + self->at);
  self->at += (*page)->units * SLOT_PAGE_BYTES;
  *window = window_retain(self->current);
  return TURB_READY;
}

turb_status key_lane_error(const struct key_lane *lane, turb_error *err) {
  return lane_error(lane->lane, err);
}
