/* iterators/merge_cursor: k children, one order, by a loser tree (merge_tree.h).
 *
 * A seek shows one entry. From the first relative move on, entries are found ahead: a *stretch* of refs that advance and retreat step
 * through inline, small at first and doubled up to MERGE_STRETCH. A stretch may cross windows of children; it holds those that they left.
 *
 *   state      the current entry                       the children stand
 *   peeked     the winner's (no stretch)               each on its first entry not before the current one
 *   stretched  a ref of the stretch                    each on its first entry after the stretch (`mover` may still be on its way there)
 *   moving     the old one (or none)                   `waiting` says whether one (`mover`) or all of them are under way
 *
 * Invariants
 *  1. The tree is right when `waiting` is WAITING_NONE: all children are READY or END in its direction.
 *  2. No child is ever taken out of the tree: one that waits, failed or was dropped half way is where it was, and the next seek moves all.
 *  3. Refs of the stretch are readable: their pages are held by `stretch`, or are current windows of children.
 *  4. While a move is under way, `old` holds the page of the old entry.
 */
#include <assert.h>

#include "iterators/cursor_parts.h"
#include "iterators/merge_tree.h"

#define MERGE_STRETCH     64u
#define MERGE_STRETCH_MIN 8u
#define MERGE_HELD        64u

enum waiting { WAITING_NONE, WAITING_ONE, WAITING_ALL };

struct merge_cursor {
  struct cursor head;
  struct merge_tree tree;
  enum waiting waiting;
  uint32_t mover;
  struct window *old;
  struct cursor_batch stretch;
  uint32_t wish; /* entries of the next stretch */
  struct cursor_ref refs[MERGE_STRETCH];
  uint16_t givers[MERGE_STRETCH]; /* which child each came from */
  struct window *held[MERGE_HELD];
};

static struct cursor *child_of(const struct merge_cursor *self, uint32_t i) {
  return self->tree.children[i];
}

static bool is_peeked(const struct merge_cursor *self) {
  return !self->head.ref;
}

/* ---- outcomes ---- */

static void release_old(struct merge_cursor *self) {
  window_release(self->old);
  self->old = NULL;
}

/* A move begins: the page of the current entry stays, also when that was the old one of a move that is dropped. */
static void leave(struct merge_cursor *self) {
  const struct cursor *c = &self->head;
  if (c->state == TURB_READY) {
    struct window *window = window_retain(c->window ? c->window : cursor_window_of(c, c->slot));
    release_old(self);
    self->old = window;
    cursor_batch_release(&self->stretch);
  }
}

static turb_state stopped(struct merge_cursor *self, turb_state state) {
  if (state == TURB_FAILED || state == TURB_END) {
    release_old(self);
    cursor_show_none(&self->head);
    self->head.window = NULL;
  }
  return self->head.state = state;
}

/* The winner's entry is the current one. */
static turb_state peek(struct merge_cursor *self) {
  const struct merge_lane *lane = &self->tree.lanes[self->tree.winner];
  if (!lane->slot)
    return stopped(self, TURB_END);
  release_old(self);
  merge_lane_sync(&self->tree, self->tree.winner);
  cursor_show_one(&self->head, lane->slot, lane->source);
  self->head.window = cursor_current_window(child_of(self, self->tree.winner));
  return self->head.state = TURB_READY;
}

/* ---- children under way ---- */

/* All children were sent somewhere: the tree is right when all have arrived. */
static turb_state settle_all(struct merge_cursor *self) {
  turb_state worst = TURB_READY;
  for (uint32_t i = 0; i < self->tree.count; i++) {
    const turb_state state = child_of(self, i)->state;
    if (state == TURB_FAILED) {
      self->mover = i;
      return TURB_FAILED;
    }
    if (state == TURB_PENDING || (state == TURB_YIELD && worst == TURB_READY))
      worst = state;
  }
  if (worst != TURB_READY)
    return worst;
  self->waiting = WAITING_NONE;
  merge_tree_build(&self->tree);
  return TURB_READY;
}

/* The mover was sent on. */
static turb_state settle_one(struct merge_cursor *self) {
  const turb_state state = child_of(self, self->mover)->state;
  if (state != TURB_READY && state != TURB_END) {
    self->waiting = WAITING_ONE;
    return state;
  }
  self->waiting = WAITING_NONE;
  merge_tree_update(&self->tree, self->mover);
  return TURB_READY;
}

/* Goes on with what is under way. READY: nothing is. */
static turb_state settle(struct merge_cursor *self) {
  if (self->waiting == WAITING_NONE)
    return TURB_READY;
  if (self->waiting == WAITING_ONE) {
    (void)cursor_resume(child_of(self, self->mover));
    return settle_one(self);
  }
  for (uint32_t i = 0; i < self->tree.count; i++)
    (void)cursor_resume(child_of(self, i));
  return settle_all(self);
}

/* ---- taking ---- */

/* The batch keeps the page of the lane's entry when the child is to leave it. A child with a stretch may let go of any of its pages. */
static bool hold_left(struct cursor_batch *batch, const struct cursor *child, bool backward) {
  const bool stays = child->window_end && (backward ? child->slot > child->window_begin : child->slot + 1 < child->window_end);
  return stays || cursor_batch_hold(batch, cursor_current_window(child));
}

/* The winner stands on the last slot of its window: takes it and sends the child on. False: there is no room to hold the window. */
static bool leave_window(struct merge_cursor *self, struct cursor_batch *batch, struct merge_taken *taken, turb_state *state) {
  const uint32_t i = self->tree.winner;
  struct cursor *child = child_of(self, i);
  merge_lane_sync(&self->tree, i);
  if (!hold_left(batch, child, self->tree.backward))
    return false;
  merge_tree_take_winner(&self->tree, taken);
  self->mover = i;
  (void)(self->tree.backward ? cursor_retreat(child) : cursor_advance(child));
  *state = settle_one(self);
  return true;
}

/* Appends entries from the tree on: READY when the batch is full (of refs or of windows), END, or the state of the mover. */
static turb_state take(struct merge_cursor *self, struct cursor_batch *batch, uint16_t *givers) {
  turb_state state = TURB_READY;
  struct merge_taken taken = {.refs = batch->refs, .changes = batch->changes, .count = batch->count, .capacity = batch->capacity};
  taken.givers = givers;
  while (state == TURB_READY && merge_tree_take(&self->tree, &taken)) {
    if (!self->tree.lanes[self->tree.winner].slot) {
      state = TURB_END;
      break;
    }
    if (!leave_window(self, batch, &taken, &state))
      break;
  }
  batch->count = taken.count;
  return state;
}

/* Refs of a walk in key order, whatever its direction. */
static void put_in_order(struct merge_cursor *self) {
  for (uint32_t i = 0, j = self->stretch.count - 1; self->tree.backward && i < j; i++, j--) {
    const struct cursor_ref ref = self->refs[i];
    self->refs[i] = self->refs[j];
    self->refs[j] = ref;
    const uint16_t giver = self->givers[i];
    self->givers[i] = self->givers[j];
    self->givers[j] = giver;
  }
}

/* The next stretch, of which the first `skip` entries were seen. */
static turb_state stretch_on(struct merge_cursor *self, uint32_t skip) {
  struct cursor_batch *stretch = &self->stretch;
  turb_state state = settle(self);
  while (state == TURB_READY) {
    stretch->capacity = self->wish;
    self->wish = self->wish * 2 < MERGE_STRETCH ? self->wish * 2 : MERGE_STRETCH;
    state = take(self, stretch, self->givers);
    const uint32_t count = stretch->count;
    if (count > skip) {
      put_in_order(self);
      release_old(self);
      self->head.window = NULL;
      cursor_show_stretch(&self->head, &self->refs[self->tree.backward ? count - 1 - skip : skip], self->refs, &self->refs[count - 1]);
      return self->head.state = TURB_READY;
    }
    skip -= count;
    cursor_batch_release(stretch);
  }
  return stopped(self, state);
}

/* ---- moves ---- */

static turb_state merge_resume(struct cursor *cursor) {
  struct merge_cursor *self = (struct merge_cursor *)cursor;
  const bool all = self->waiting == WAITING_ALL;
  const turb_state state = settle(self);
  if (state != TURB_READY)
    return stopped(self, state);
  return all ? peek(self) : stretch_on(self, 0);
}

static void begin_all(struct merge_cursor *self, bool backward) {
  leave(self);
  self->waiting = WAITING_ALL;
  self->tree.backward = backward;
  self->wish = MERGE_STRETCH_MIN;
  self->head.placed = true;
}

static turb_state all_sent(struct merge_cursor *self) {
  const turb_state state = settle_all(self);
  return state == TURB_READY ? peek(self) : stopped(self, state);
}

/* Peeked: a child one step to the other side. One that ended in the old direction begins at that end. */
static void turn_child(struct cursor *child, bool backward) {
  if (child->state == TURB_READY)
    (void)(backward ? cursor_retreat(child) : cursor_advance(child));
  else
    (void)(backward ? cursor_last(child) : cursor_first(child));
}

/* Stretched: child `who` to its neighbour of the current entry, with which the stretch of `count` refs ends on that side. Within its window
 * where it did not come from another one meanwhile, else by a seek; `equal_comes` says whether an equal entry of this child is beyond
 * the current one in the order of children. */
static void turn_child_over(const struct merge_cursor *self, uint32_t who, uint32_t count, bool backward, bool equal_comes) {
  struct cursor *child = child_of(self, who);
  const struct slot *at = self->head.slot;
  if (child->state == TURB_READY && child->window_end) {
    const struct slot *slot = child->slot; /* the first beyond the stretch, then the last within it */
    for (uint32_t i = 0; i < count; i++) {
      const struct slot *ref = self->refs[i].slot;
      if (self->givers[i] == who && ref >= child->window_begin && ref < child->window_end && (backward ? ref < slot : ref > slot))
        slot = ref;
    }
    if (backward ? slot > child->window_begin : slot + 1 < child->window_end) {
      child->slot = backward ? slot - 1 : slot + 1;
      return;
    }
  }
  const uint64_t sequence = slot_sequence(at);
  if (backward)
    (void)cursor_seek_before(child, slot_key_bytes(at), equal_comes ? sequence - 1 : sequence);
  else
    (void)cursor_seek(child, slot_key_bytes(at), equal_comes ? sequence : sequence - 1);
}

static turb_state turn(struct merge_cursor *self, bool backward) {
  struct cursor *c = &self->head;
  const bool peeked = is_peeked(self);
  const uint32_t count = self->stretch.count;
  const uint32_t giver = peeked ? 0 : self->givers[c->ref - self->refs];
  for (uint32_t i = 0; i < self->tree.count; i++)
    merge_lane_sync(&self->tree, i);
  begin_all(self, backward);
  for (uint32_t i = 0; i < self->tree.count; i++) {
    if (peeked)
      turn_child(child_of(self, i), backward);
    else
      turn_child_over(self, i, count, backward, backward ? i < giver : i > giver);
  }
  return all_sent(self);
}

static turb_state relative(struct merge_cursor *self, bool backward) {
  struct cursor *c = &self->head;
  if (c->state == TURB_PENDING || c->state == TURB_YIELD)
    return merge_resume(c);
  if (c->state != TURB_READY)
    return c->state;
  if (backward != self->tree.backward)
    return turn(self, backward);
  const uint32_t skip = is_peeked(self);
  leave(self);
  return stretch_on(self, skip);
}
static turb_state merge_advance(struct cursor *cursor) {
  return relative((struct merge_cursor *)cursor, false);
}
static turb_state merge_retreat(struct cursor *cursor) {
  return relative((struct merge_cursor *)cursor, true);
}

static turb_state merge_seek(struct cursor *cursor, turb_bytes key, uint64_t sequence) {
  struct merge_cursor *self = (struct merge_cursor *)cursor;
  begin_all(self, false);
  for (uint32_t i = 0; i < self->tree.count; i++)
    (void)cursor_seek(child_of(self, i), key, sequence);
  return all_sent(self);
}
static turb_state merge_seek_before(struct cursor *cursor, turb_bytes key, uint64_t sequence) {
  struct merge_cursor *self = (struct merge_cursor *)cursor;
  begin_all(self, true);
  for (uint32_t i = 0; i < self->tree.count; i++)
    (void)cursor_seek_before(child_of(self, i), key, sequence);
  return all_sent(self);
}
static turb_state merge_first(struct cursor *cursor) {
  struct merge_cursor *self = (struct merge_cursor *)cursor;
  begin_all(self, false);
  for (uint32_t i = 0; i < self->tree.count; i++)
    (void)cursor_first(child_of(self, i));
  return all_sent(self);
}
static turb_state merge_last(struct cursor *cursor) {
  struct merge_cursor *self = (struct merge_cursor *)cursor;
  begin_all(self, true);
  for (uint32_t i = 0; i < self->tree.count; i++)
    (void)cursor_last(child_of(self, i));
  return all_sent(self);
}

/* ---- batches ---- */

/* What the stretch still has goes to the batch first. False: there is no more room, and the cursor stands on what was not taken. */
static bool take_stretch(struct merge_cursor *self, struct cursor_batch *batch, bool backward) {
  struct cursor *c = &self->head;
  for (;;) {
    if (batch->count == batch->capacity || !cursor_batch_hold_current(batch, c))
      return false;
    batch->refs[batch->count++] = *c->ref;
    if (c->ref == (backward ? c->ref_first : c->ref_last))
      return true;
    (void)(backward ? cursor_retreat(c) : cursor_advance(c));
  }
}

static turb_state merge_batch(struct cursor *cursor, struct cursor_batch *batch, bool backward) {
  struct merge_cursor *self = (struct merge_cursor *)cursor;
  if (cursor->state == TURB_PENDING || cursor->state == TURB_YIELD) {
    const turb_state state = settle(self);
    (void)(state == TURB_READY ? peek(self) : stopped(self, state));
  }
  if (cursor->state != TURB_READY)
    return cursor->state;
  const bool turns = backward != self->tree.backward;
  if (!is_peeked(self)) {
    if (!take_stretch(self, batch, backward))
      return TURB_READY;
  } else if (turns) {
    if (batch->count == batch->capacity || !cursor_batch_hold(batch, cursor->window))
      return TURB_READY;
    batch->refs[batch->count++] = (struct cursor_ref){cursor->slot, cursor->source};
  }
  if (turns)
    (void)turn(self, backward);
  else
    cursor_batch_release(&self->stretch);
  turb_state state = turns ? cursor->state : settle(self);
  if (state == TURB_READY)
    state = take(self, batch, NULL);
  if (state == TURB_READY)
    return peek(self);
  if (!self->old)
    cursor_show_none(cursor); /* what was taken is the batch's */
  return stopped(self, state);
}

/* ---- the rest ---- */

static struct window *merge_window_of(const struct cursor *cursor, const struct slot *slot) {
  const struct merge_cursor *self = (const struct merge_cursor *)cursor;
  if (window_covers(self->old, slot))
    return self->old;
  for (uint32_t i = 0; i < self->stretch.held_count; i++)
    if (window_covers(self->stretch.held[i], slot))
      return self->stretch.held[i];
  for (uint32_t i = 0; i < self->tree.count; i++) /* mostly the current window of a child, which takes no call */
    if (window_covers(child_of(self, i)->window, slot))
      return child_of(self, i)->window;
  struct window *window = NULL;
  for (uint32_t i = 0; i < self->tree.count && !window; i++)
    window = cursor_window_of(child_of(self, i), slot);
  return window;
}

static turb_status merge_error(const struct cursor *cursor, turb_error *err) {
  const struct merge_cursor *self = (const struct merge_cursor *)cursor;
  if (!cursor->placed)
    return cursor_error_unless_failed(cursor, err);
  return cursor->state == TURB_FAILED ? cursor_error(child_of(self, self->mover), err) : TURB_OK;
}

static size_t merge_size(uint32_t count) {
  return sizeof(struct merge_cursor) + count * (sizeof(struct merge_lane) + sizeof(uint64_t) + sizeof(struct cursor *));
}

static void merge_close(struct cursor *cursor) {
  struct merge_cursor *self = (struct merge_cursor *)cursor;
  release_old(self);
  cursor_batch_release(&self->stretch);
  for (uint32_t i = 0; i < self->tree.count; i++)
    cursor_close(child_of(self, i));
  mem_free(cursor->context->allocator, self, merge_size(self->tree.count));
}

static const struct cursor_ops merge_cursor_ops = {
    .name = "merge",
    .advance = merge_advance,
    .retreat = merge_retreat,
    .seek = merge_seek,
    .seek_before = merge_seek_before,
    .first = merge_first,
    .last = merge_last,
    .resume = merge_resume,
    .batch = merge_batch,
    .window_of = merge_window_of,
    .error = merge_error,
    .close = merge_close,
};

turb_status merge_cursor_open(struct cursor_context *context, struct cursor **children, uint32_t count, struct cursor **cursor,
                              turb_error *err) {
  *cursor = NULL;
  assert(count && count <= MERGE_LANES_MAX);
  if (count == 1) {
    *cursor = children[0];
    return TURB_OK;
  }
  struct merge_cursor *self = mem_alloc_zeroed(context->allocator, merge_size(count));
  if (!self) {
    for (uint32_t i = 0; i < count; i++)
      cursor_close(children[i]);
    return status_set(err, TURB_NO_MEMORY, "no memory for a merge of %u cursors", count);
  }
  cursor_init(&self->head, &merge_cursor_ops, context);
  self->stretch = (struct cursor_batch){.refs = self->refs, .held = self->held, .held_capacity = MERGE_HELD};
  self->tree.count = count;
  self->tree.lanes = (struct merge_lane *)(self + 1);
  self->tree.ranks = (uint64_t *)(self->tree.lanes + count);
  self->tree.children = (struct cursor **)(self->tree.ranks + count);
  memcpy(self->tree.children, children, count * sizeof(struct cursor *));
  *cursor = &self->head;
  return TURB_OK;
}
