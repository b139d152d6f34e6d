/* iterators/merge_cursor: k children, one order, by a loser tree on cached key prefixes.
 *
 * For each child the tree compares one integer: eight key bytes of its current entry after the bytes that the keys of all children's
 * current windows share. While a child
 * walks within a page, that integer comes from the slot alone (its own prefix, shifted under what the page shares); keys themselves are
 * compared only where the integers are equal.
 *
 *   tree[0] is the winner, tree[1..k-1] hold the losers of their matches; leaf i's first match is at (k + i) / 2.
 *
 * Invariants
 *  1. READY: all children are READY or END in the direction `backward`; the winner's entry is the current one.
 *  2. All keys of all current windows of live children begin with shared[0..shared_size).
 *  3. prefix[i] belongs to child i's current slot under shared_size and the direction (inverted backward, so that the smallest always
 *     wins); UINT64_MAX when the child ended.
 *  4. PENDING or YIELD: `waiting` says whether one child (`mover`) or all of them are under way; no child is ever taken out of the tree.
 *  5. Equal entries (same key, same sequence) come in the order of children forward, in the reverse order backward.
 */
#include <assert.h>

#include "base/coding.h"
#include "iterators/cursor_parts.h"

#define SHARED_MAX 256u

enum waiting { WAITING_NONE, WAITING_ONE, WAITING_ALL };

struct lane_prefix { /* how a child's slots give prefixes in its current window */
  uint64_t fixed;    /* the bytes that the page shares beyond shared_size, in place */
  uint32_t shift;    /* bits to move slot->prefix down below them; 64 and more: nothing of it is left */
  bool from_key;     /* the page shares less than shared_size: take the bytes from the key */
};

struct merge_cursor {
  struct cursor head;
  uint32_t count;
  uint32_t mover;
  enum waiting waiting;
  bool backward;
  struct cursor **children;
  uint64_t *prefix;
  uint32_t *tree;
  struct lane_prefix *lanes;
  struct window *old; /* of the old entry, while a move of all children is under way */
  uint32_t shared_size;
  uint32_t growth_countdown; /* window changes until the shared bytes are looked for anew */
  uint8_t shared[SHARED_MAX];
};

/* ---- prefixes ---- */

/* Eight bytes of a key from `from` on, zeros past its end. */
static uint64_t key_bytes_at(const struct slot *slot, uint32_t from) {
  const uint8_t *key = slot_key(slot);
  return slot->key_size > from ? key_prefix8(key + from, slot->key_size - from) : 0;
}

static inline uint64_t slot_prefix(const struct merge_cursor *self, const struct lane_prefix *lane, const struct slot *slot) {
  uint64_t prefix;
  if (__builtin_expect(lane->from_key, 0))
    prefix = key_bytes_at(slot, self->shared_size);
  else
    prefix = lane->fixed | (lane->shift < 64 ? slot->prefix >> lane->shift : 0);
  return self->backward ? ~prefix : prefix;
}

static void set_lane(struct merge_cursor *self, uint32_t i) {
  const struct slot *slot = self->children[i]->slot;
  const struct slot_page *page = slot_page_of(slot);
  struct lane_prefix *lane = &self->lanes[i];
  *lane = (struct lane_prefix){0};
  if (page->shared_prefix_size < self->shared_size) {
    lane->from_key = true;
    return;
  }
  const uint32_t extra = page->shared_prefix_size - self->shared_size;
  lane->shift = extra * 8;
  if (!extra)
    return;
  lane->fixed = key_bytes_at(slot, self->shared_size);
  if (extra < 8)
    lane->fixed &= ~(UINT64_MAX >> (extra * 8));
}

static size_t shared_with(const struct merge_cursor *self, const struct slot *slot) {
  return key_shared_prefix(self->shared, self->shared_size, slot_key(slot), slot->key_size);
}

static void set_prefix(struct merge_cursor *self, uint32_t i) {
  const struct cursor *child = self->children[i];
  self->prefix[i] = child->state == TURB_READY ? slot_prefix(self, &self->lanes[i], child->slot) : UINT64_MAX;
}

static void set_all_prefixes(struct merge_cursor *self) {
  for (uint32_t i = 0; i < self->count; i++) {
    if (self->children[i]->state == TURB_READY)
      set_lane(self, i);
    set_prefix(self, i);
  }
}

/* Finds the bytes that all current windows share. */
static void find_shared(struct merge_cursor *self) {
  bool first = true;
  self->shared_size = 0;
  for (uint32_t i = 0; i < self->count; i++) {
    const struct cursor *child = self->children[i];
    if (child->state != TURB_READY)
      continue;
    if (first) {
      const struct slot *slot = child->window_begin;
      self->shared_size = slot->key_size < SHARED_MAX ? slot->key_size : SHARED_MAX;
      memcpy(self->shared, slot_key(slot), self->shared_size);
      first = false;
    }
    self->shared_size = (uint32_t)shared_with(self, child->window_begin);
    self->shared_size = (uint32_t)shared_with(self, child->window_end - 1);
    if (!self->shared_size)
      break;
  }
  self->growth_countdown = self->count * 4;
}

/* ---- the tree ---- */

/* Whether a comes before b where their prefixes are equal. */
static __attribute__((noinline)) bool before_by_key(const struct merge_cursor *self, uint32_t a, uint32_t b) {
  const struct cursor *x = self->children[a], *y = self->children[b];
  if (x->state != TURB_READY || y->state != TURB_READY)
    return x->state == TURB_READY || (y->state != TURB_READY && a < b);
  const int c = slot_compare(x->slot, y->slot);
  if (c)
    return self->backward ? c > 0 : c < 0;
  return self->backward ? a > b : a < b;
}

static inline bool before(const struct merge_cursor *self, uint32_t a, uint32_t b) {
  const uint64_t x = self->prefix[a], y = self->prefix[b];
  return __builtin_expect(x != y, 1) ? x < y : before_by_key(self, a, b);
}

/* Child i's entry changed: plays its matches up to the top. */
static inline void replay(struct merge_cursor *self, uint32_t i) {
  uint32_t winner = i;
  for (uint32_t node = (self->count + i) / 2; node; node /= 2) {
    const uint32_t loser = self->tree[node];
    const uint64_t x = self->prefix[loser], y = self->prefix[winner];
    bool swap = x < y;
    if (__builtin_expect(x == y, 0))
      swap = before_by_key(self, loser, winner);
    self->tree[node] = swap ? winner : loser;
    winner = swap ? loser : winner;
  }
  self->tree[0] = winner;
}

/* Plays all matches below `node`; returns the winner. */
static uint32_t build_node(struct merge_cursor *self, uint32_t node) {
  if (node >= self->count)
    return node - self->count;
  const uint32_t left = build_node(self, 2 * node), right = build_node(self, 2 * node + 1);
  const bool left_first = before(self, left, right);
  self->tree[node] = left_first ? right : left;
  return left_first ? left : right;
}

static void build(struct merge_cursor *self) {
  find_shared(self);
  set_all_prefixes(self);
  self->tree[0] = self->count > 1 ? build_node(self, 1) : 0;
}

/* Child i entered another window: keeps invariant 2, then its prefix. */
static void entered_window(struct merge_cursor *self, uint32_t i) {
  const struct cursor *child = self->children[i];
  size_t shared = shared_with(self, child->window_begin);
  if (child->window_end - child->window_begin > 1) {
    const size_t last = shared_with(self, child->window_end - 1);
    if (last < shared)
      shared = last;
  }
  if (shared < self->shared_size || --self->growth_countdown == 0) {
    build(self);
    return;
  }
  set_lane(self, i);
  set_prefix(self, i);
  replay(self, i);
}

/* ---- outcomes ---- */

static void release_old(struct merge_cursor *self) {
  window_release(self->old);
  self->old = NULL;
}

static turb_state show_winner(struct merge_cursor *self) {
  struct cursor *c = &self->head;
  const struct cursor *winner = self->children[self->tree[0]];
  self->waiting = WAITING_NONE;
  release_old(self);
  if (winner->state != TURB_READY) {
    c->slot = c->window_begin = c->window_end = NULL;
    c->window = NULL;
    return c->state = TURB_END;
  }
  c->slot = winner->slot;
  c->window_begin = winner->slot;
  c->window_end = winner->slot + 1;
  c->window = winner->window;
  c->source = winner->source;
  return c->state = TURB_READY;
}

static turb_state stopped(struct merge_cursor *self, turb_state state) {
  if (state == TURB_FAILED) {
    release_old(self);
    self->head.slot = NULL;
    self->head.window = NULL;
  }
  return self->head.state = state;
}

/* All children were sent somewhere: READY or END when all have arrived. */
static turb_state settle_all(struct merge_cursor *self) {
  turb_state worst = TURB_READY;
  for (uint32_t i = 0; i < self->count; i++) {
    const turb_state state = self->children[i]->state;
    if (state == TURB_FAILED) {
      self->mover = i;
      return stopped(self, TURB_FAILED);
    }
    if (state == TURB_PENDING || (state == TURB_YIELD && worst == TURB_READY))
      worst = state;
  }
  if (worst != TURB_READY)
    return stopped(self, worst);
  build(self);
  return show_winner(self);
}

/* One child moved on. */
static turb_state settle_one(struct merge_cursor *self) {
  const uint32_t i = self->mover;
  const turb_state state = self->children[i]->state;
  if (state == TURB_READY) {
    entered_window(self, i);
  } else if (state == TURB_END) {
    self->prefix[i] = UINT64_MAX;
    replay(self, i);
  } else {
    self->waiting = WAITING_ONE;
    return stopped(self, state);
  }
  return show_winner(self);
}

/* ---- moves ---- */

static turb_state merge_resume(struct cursor *cursor) {
  struct merge_cursor *self = (struct merge_cursor *)cursor;
  if (self->waiting == WAITING_ONE) {
    (void)cursor_resume(self->children[self->mover]);
    return settle_one(self);
  }
  for (uint32_t i = 0; i < self->count; i++)
    (void)cursor_resume(self->children[i]);
  return settle_all(self);
}

static void begin_all(struct merge_cursor *self, bool backward) {
  struct cursor *c = &self->head;
  if (c->slot && !self->old)
    self->old = window_retain(c->window); /* also of a move that is dropped while PENDING */
  self->waiting = WAITING_ALL;
  self->backward = backward;
  c->placed = true;
}

/* Every child to the other side of the current entry. One that ended in the old direction begins at that end. */
static turb_state turn(struct merge_cursor *self, bool backward) {
  begin_all(self, backward);
  for (uint32_t i = 0; i < self->count; i++) {
    struct cursor *child = self->children[i];
    if (child->state == TURB_READY)
      (void)(backward ? cursor_retreat(child) : cursor_advance(child));
    else
      (void)(backward ? cursor_last(child) : cursor_first(child));
  }
  return settle_all(self);
}

static turb_state relative(struct merge_cursor *self, bool backward) {
  struct cursor *c = &self->head;
  if (c->state == TURB_PENDING || c->state == TURB_YIELD)
    return merge_resume(c);
  if (c->state != TURB_READY)
    return c->state;
  if (backward != self->backward)
    return turn(self, backward);
  const uint32_t i = self->tree[0];
  struct cursor *child = self->children[i];
  if (backward ? child->slot > child->window_begin : child->slot + 1 < child->window_end) {
    child->slot += backward ? -1 : 1;
    self->prefix[i] = slot_prefix(self, &self->lanes[i], child->slot);
    replay(self, i);
    return show_winner(self);
  }
  self->mover = i;
  (void)(backward ? cursor_retreat(child) : cursor_advance(child));
  return settle_one(self);
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
  for (uint32_t i = 0; i < self->count; i++)
    (void)cursor_seek(self->children[i], key, sequence);
  return settle_all(self);
}
static turb_state merge_seek_before(struct cursor *cursor, turb_bytes key, uint64_t sequence) {
  struct merge_cursor *self = (struct merge_cursor *)cursor;
  begin_all(self, true);
  for (uint32_t i = 0; i < self->count; i++)
    (void)cursor_seek_before(self->children[i], key, sequence);
  return settle_all(self);
}
static turb_state merge_first(struct cursor *cursor) {
  struct merge_cursor *self = (struct merge_cursor *)cursor;
  begin_all(self, false);
  for (uint32_t i = 0; i < self->count; i++)
    (void)cursor_first(self->children[i]);
  return settle_all(self);
}
static turb_state merge_last(struct cursor *cursor) {
  struct merge_cursor *self = (struct merge_cursor *)cursor;
  begin_all(self, true);
  for (uint32_t i = 0; i < self->count; i++)
    (void)cursor_last(self->children[i]);
  return settle_all(self);
}

/* The inner loop of every merge: takes the winner's entry, steps it within its window, plays its matches. */
static turb_state merge_batch(struct cursor *cursor, struct cursor_batch *batch, bool backward) {
  struct merge_cursor *self = (struct merge_cursor *)cursor;
  if (cursor->state == TURB_PENDING || cursor->state == TURB_YIELD)
    (void)merge_resume(cursor);
  if (cursor->state == TURB_READY && backward != self->backward) { /* only after a seek in the other direction */
    batch->refs[batch->count++] = (struct cursor_ref){cursor->slot, cursor->source};
    if (!cursor_batch_hold(batch, cursor->window))
      return cursor->state;
    (void)turn(self, backward);
  }
  if (cursor->state != TURB_READY)
    return cursor->state;
  const ptrdiff_t step = backward ? -1 : 1;
  uint32_t count = batch->count;
  while (count < batch->capacity) {
    const uint32_t i = self->tree[0];
    struct cursor *child = self->children[i];
    const struct slot *slot = child->slot;
    if (child->state != TURB_READY)
      break; /* all ended */
    if (__builtin_expect(backward ? slot > child->window_begin : slot + 1 < child->window_end, 1)) {
      batch->refs[count++] = (struct cursor_ref){slot, child->source};
      child->slot = slot + step;
      self->prefix[i] = slot_prefix(self, &self->lanes[i], slot + step);
      replay(self, i);
      continue;
    }
    if (!cursor_batch_hold(batch, child->window))
      break;
    batch->refs[count++] = (struct cursor_ref){slot, child->source};
    self->mover = i;
    (void)(backward ? cursor_retreat(child) : cursor_advance(child));
    if (settle_one(self) != TURB_READY) {
      batch->count = count;
      return cursor->state;
    }
  }
  batch->count = count;
  return show_winner(self);
}

static struct window *merge_window_of(const struct cursor *cursor, const struct slot *slot) {
  const struct merge_cursor *self = (const struct merge_cursor *)cursor;
  if (window_covers(self->old, slot))
    return self->old;
  for (uint32_t i = 0; i < self->count; i++) {
    struct window *window = cursor_window_of(self->children[i], slot);
    if (window)
      return window;
  }
  return NULL;
}

static turb_status merge_error(const struct cursor *cursor, turb_error *err) {
  const struct merge_cursor *self = (const struct merge_cursor *)cursor;
  if (!cursor->placed)
    return cursor_error_unless_failed(cursor, err);
  return cursor->state == TURB_FAILED ? cursor_error(self->children[self->mover], err) : TURB_OK;
}

static size_t merge_size(uint32_t count) {
  return sizeof(struct merge_cursor) + count * (sizeof(struct cursor *) + sizeof(uint64_t) + sizeof(struct lane_prefix) + sizeof(uint32_t));
}

static void merge_close(struct cursor *cursor) {
  struct merge_cursor *self = (struct merge_cursor *)cursor;
  release_old(self);
  for (uint32_t i = 0; i < self->count; i++)
    cursor_close(self->children[i]);
  mem_free(cursor->context->allocator, self, merge_size(self->count));
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
  self->count = count;
  self->children = (struct cursor **)(self + 1);
  self->prefix = (uint64_t *)(self->children + count);
  self->lanes = (struct lane_prefix *)(self->prefix + count);
  self->tree = (uint32_t *)(self->lanes + count);
  memcpy(self->children, children, count * sizeof *children);
  *cursor = &self->head;
  return TURB_OK;
}
