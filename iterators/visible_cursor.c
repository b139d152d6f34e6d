/* Works on raw stretches taken from the child: drops what the snapshot does not see and keeps the refs of the rest.
 *
 * Forward, the first version of a key at or below the snapshot decides, older ones are skipped. Backward, versions of a key come oldest
 * first: the last one at or below the
 * snapshot before the key changes decides.
 *
 * Invariants
 *  1. Found entries are readable: their windows are held by `raw`, by the child (its current windows), or by `candidate_window`.
 *  2. While a move is under way, `old_window` holds the page of the old entry.
 *  3. `decided` is the key that was decided last in the forward direction, when the raw stretch it came from is gone.
 */
#include "iterators/visible_cursor.h"

#include "iterators/cursor_parts.h"

#define RAW_HELD   64u
#define HELD_PAGES 16u

/* What the first raw stretch after a seek takes, and how much more each further one: who looks one entry up does not have the next key page
 * read. */
#define FIRST_ROOM  1u
#define ROOM_GROWTH 8u

struct decided_key {
  bool valid;
  uint16_t size;
  uint8_t bytes[TURB_MAX_KEY_BYTES];
};

struct visible_cursor {
  struct cursor head;
  struct cursor *child;
  struct visible_options options;
  bool backward;      /* of the move under way, and of the child's position */
  bool positioned;    /* the child stands where the next stretch begins */
  uint32_t looked_at; /* in this call */
  uint64_t total_looked_at, total_hidden;
  uint32_t begin, end; /* found: refs[begin..end) in key order; backward stretches fill from the end */
  uint32_t room;       /* entries that the next raw stretch takes */
  struct cursor_batch raw;
  struct window *old_window;
  /* backward: the newest version seen so far of the key being walked */
  struct cursor_ref candidate;
  struct window *candidate_window;
  bool candidate_hidden;       /* its key was seen, but no version at or below the snapshot yet */
  struct window *found_window; /* of the one found ref that came from an earlier raw stretch */
  bool one_cover;              /* `cover` is that of all keys of the raw stretch */
  uint64_t cover;
  struct decided_key decided;
  struct cursor_ref refs[VISIBLE_STRETCH];
  struct cursor_ref raw_refs[VISIBLE_STRETCH];
  uint8_t raw_changes[VISIBLE_STRETCH]; /* enum key_change */
  struct window *raw_held[RAW_HELD];
};

/* ---- what is hidden ---- */

/* The highest sequence at or below the snapshot of a range delete over the key. */
static inline uint64_t cover(const struct visible_cursor *self, const struct slot *slot) {
  if (self->one_cover)
    return self->cover;
  return range_deletes_cover(self->options.range_deletes, slot_key_bytes(slot), self->options.snapshot);
}

/* Mostly one range delete, or none, lies over all keys of a raw stretch and of the candidate that was carried into it: then it is looked up once for all. */
static void cover_stretch(struct visible_cursor *self) {
  const struct range_deletes *deletes = self->options.range_deletes;
  self->cover = 0;
  self->one_cover = !deletes || !deletes->count;
  if (self->one_cover || !self->raw.count)
    return;
  const turb_bytes low = slot_key_bytes(self->raw_refs[self->backward ? self->raw.count - 1 : 0].slot);
  const struct slot *highest = self->raw_refs[self->backward ? 0 : self->raw.count - 1].slot;
  if (self->backward && self->candidate.slot) /* carried over from the stretch before */
    highest = self->candidate.slot;
  const turb_bytes high = slot_key_bytes(highest);
  const size_t at = range_deletes_find(deletes, low);
  if (at < deletes->count) {
    const struct range_fragment *fragment = &deletes->fragments[at];
    const bool begins_above_low = key_compare(fragment->begin.data, fragment->begin.size, low.data, low.size) > 0;
    const bool begins_above_high = key_compare(fragment->begin.data, fragment->begin.size, high.data, high.size) > 0;
    self->one_cover = begins_above_low ? begins_above_high : range_fragment_ends_after(fragment, high);
    self->cover = begins_above_low ? 0 : range_fragment_sequence(fragment, self->options.snapshot);
  } else {
    self->one_cover = true;
  }
}

static inline bool is_visible_put(const struct visible_cursor *self, const struct slot *slot) {
  if (slot_kind(slot) != SLOT_PUT)
    return false;
  if (cover(self, slot) > slot_sequence(slot))
    return false;
  return !self->options.wanted || self->options.wanted(self->options.wanted_context, slot_key_bytes(slot), slot_sequence(slot));
}

/* Within a page the bytes after what it shares tell most keys apart without a look at them. */
static inline bool same_key(const struct slot *a, const struct slot *b) {
  if (a->prefix != b->prefix && slot_page_of(a) == slot_page_of(b))
    return false;
  return key_equal(slot_key(a), a->key_size, slot_key(b), b->key_size);
}

/* ---- forward ---- */

static void filter_forward(struct visible_cursor *self) {
  const struct slot *last = NULL; /* decided in this stretch */
  const uint64_t snapshot = self->options.snapshot;
  enum key_change since = KEY_CHANGE_UNKNOWN; /* of the key at hand beside the one that was decided last */
  for (uint32_t i = 0; i < self->raw.count; i++) {
    const struct slot *slot = self->raw_refs[i].slot;
    if (self->raw_changes[i] != KEY_REPEATED)
      since = self->raw_changes[i];
    if (slot_sequence(slot) > snapshot)
      continue;
    if (since == KEY_CHANGE_UNKNOWN) {
      const bool same = last ? same_key(last, slot)
                             : self->decided.valid && key_equal(self->decided.bytes, self->decided.size, slot_key(slot), slot->key_size);
      since = same ? KEY_REPEATED : KEY_CHANGED;
    }
    if (since == KEY_REPEATED)
      continue;
    last = slot;
    since = KEY_REPEATED;
    if (is_visible_put(self, slot))
      self->refs[self->end++] = self->raw_refs[i];
  }
  if (last) {
    self->decided.valid = true;
    self->decided.size = last->key_size;
    memcpy(self->decided.bytes, slot_key(last), last->key_size);
  }
}

/* ---- backward ---- */

/* The key of the candidate is complete: it is found, or hidden. */
static void decide_candidate(struct visible_cursor *self) {
  if (!self->candidate.slot)
    return;
  if (!self->candidate_hidden && is_visible_put(self, self->candidate.slot)) {
    self->refs[--self->begin] = self->candidate;
    if (self->candidate_window) { /* it came from an earlier stretch, so it is the first found of this one */
      window_release(self->found_window);
      self->found_window = self->candidate_window;
      self->candidate_window = NULL;
    }
  }
  window_release(self->candidate_window);
  self->candidate_window = NULL;
  self->candidate.slot = NULL;
}

static void filter_backward(struct visible_cursor *self) {
  for (uint32_t i = 0; i < self->raw.count; i++) {
    const struct slot *slot = self->raw_refs[i].slot;
    const bool within = slot_sequence(slot) <= self->options.snapshot;
    const enum key_change change = self->raw_changes[i];
    if (self->candidate.slot && (change == KEY_CHANGED || (change == KEY_CHANGE_UNKNOWN && !same_key(self->candidate.slot, slot))))
      decide_candidate(self);
    if (!self->candidate.slot || within) {
      window_release(self->candidate_window);
      self->candidate_window = NULL;
      self->candidate = self->raw_refs[i];
      self->candidate_hidden = !within;
    }
  }
  if (self->child->state == TURB_END)
    decide_candidate(self);
}

/* The raw stretch goes, the candidate stays. */
static void keep_candidate(struct visible_cursor *self) {
  if (!self->candidate.slot || self->candidate_window)
    return;
  for (uint32_t i = 0; i < self->raw.held_count && !self->candidate_window; i++)
    if (window_covers(self->raw.held[i], self->candidate.slot))
      self->candidate_window = window_retain(self->raw.held[i]);
  if (!self->candidate_window)
    self->candidate_window = window_retain(cursor_window_of(self->child, self->candidate.slot));
}

/* ---- moves ---- */

static void release_old(struct visible_cursor *self) {
  window_release(self->old_window);
  self->old_window = NULL;
}

/* A move begins: of all that was found only the current entry is kept. */
static void leave(struct visible_cursor *self) {
  struct cursor *c = &self->head;
  if (c->state != TURB_READY)
    return;
  const struct slot *slot = c->slot;
  struct window *window = window_covers(self->found_window, slot) ? self->found_window : NULL;
  for (uint32_t i = 0; i < self->raw.held_count && !window; i++)
    if (window_covers(self->raw.held[i], slot))
      window = self->raw.held[i];
  if (!window) /* mostly the child's current one, which takes no call */
    window = window_covers(self->child->window, slot) ? self->child->window : cursor_window_of(self->child, slot);
  self->old_window = window_retain(window);
}

static void forget_found(struct visible_cursor *self, bool backward) {
  cursor_batch_release(&self->raw);
  window_release(self->found_window);
  self->found_window = NULL;
  self->begin = self->end = backward ? VISIBLE_STRETCH : 0;
}

static void forget_candidate(struct visible_cursor *self) {
  window_release(self->candidate_window);
  self->candidate_window = NULL;
  self->candidate.slot = NULL;
}

static turb_state show(struct visible_cursor *self, uint32_t index) {
  cursor_show_stretch(&self->head, &self->refs[index], &self->refs[self->begin], &self->refs[self->end - 1]);
  self->head.placed = true;
  return self->head.state = TURB_READY;
}

static turb_state found(struct visible_cursor *self) {
  release_old(self);
  return show(self, self->backward ? self->end - 1 : self->begin);
}

static turb_state stop(struct visible_cursor *self, turb_state state) {
  if (state == TURB_END || state == TURB_FAILED) {
    release_old(self);
    forget_candidate(self);
    cursor_show_none(&self->head);
  }
  return self->head.state = state;
}

/* Takes raw stretches until something is found or the child stops. */
static turb_state fill(struct visible_cursor *self) {
  self->looked_at = 0;
  for (;;) {
    const turb_state before = self->child->state;
    if (before == TURB_PENDING || before == TURB_YIELD) {
      const turb_state now = cursor_resume(self->child);
      if (now == TURB_PENDING || now == TURB_YIELD)
        return stop(self, now);
    }
    if (self->child->state == TURB_FAILED)
      return stop(self, TURB_FAILED);
    if (self->child->state == TURB_END) {
      if (self->backward)
        decide_candidate(self); /* within the stretch that one_cover is of */
      return self->begin < self->end ? found(self) : stop(self, TURB_END);
    }
    const uint32_t budget = self->options.work_budget;
    if (budget && self->looked_at >= budget)
      return stop(self, TURB_YIELD);
    /* Backward, the candidate of the stretch before may be found besides all of this one. */
    const uint32_t most = self->backward ? VISIBLE_STRETCH - 1 : VISIBLE_STRETCH;
    const uint32_t room = self->room < most ? self->room : most;
    self->room = room * ROOM_GROWTH < VISIBLE_STRETCH ? room * ROOM_GROWTH : VISIBLE_STRETCH;
    self->raw.capacity = budget && budget - self->looked_at < room ? budget - self->looked_at : room;
    memset(self->raw_changes, KEY_CHANGE_UNKNOWN, sizeof self->raw_changes);
    (void)cursor_take(self->child, &self->raw, self->backward);
    self->looked_at += self->raw.count;
    self->total_looked_at += self->raw.count;
    cover_stretch(self);
    if (self->backward)
      filter_backward(self);
    else
      filter_forward(self);
    self->total_hidden += self->raw.count - (self->end - self->begin);
    if (self->begin < self->end) {
      keep_candidate(self);
      return found(self);
    }
    if (self->backward)
      keep_candidate(self);
    cursor_batch_release(&self->raw);
  }
}

static void begin(struct visible_cursor *self, bool backward) {
  leave(self);
  forget_found(self, backward);
  forget_candidate(self);
  self->decided.valid = false;
  self->room = FIRST_ROOM;
  self->one_cover = false;
  self->backward = backward;
  self->head.placed = true;
}

/* The neighbour stretch: goes on where the child stands, or turns it around by a seek from the current entry. */
turb_state visible_cursor_next_stretch(struct cursor *cursor, bool backward) {
  struct visible_cursor *self = (struct visible_cursor *)cursor;
  if (cursor->state == TURB_PENDING || cursor->state == TURB_YIELD)
    return fill(self);
  if (cursor->state != TURB_READY)
    return cursor->state;
  const bool turn = backward != self->backward;
  if (!turn) {
    leave(self);
    forget_found(self, backward);
    return fill(self);
  }
  const turb_bytes key = slot_key_bytes(cursor->slot); /* stays readable until the move completes */
  begin(self, backward);
  (void)(backward ? cursor_seek_before(self->child, key, SLOT_SEQUENCE_MAX) : cursor_seek(self->child, key, 0));
  return fill(self);
}

static turb_state visible_resume(struct cursor *cursor) {
  return fill((struct visible_cursor *)cursor);
}

static turb_state visible_advance(struct cursor *cursor) {
  return visible_cursor_next_stretch(cursor, false);
}
static turb_state visible_retreat(struct cursor *cursor) {
  return visible_cursor_next_stretch(cursor, true);
}

static turb_state visible_seek(struct cursor *cursor, turb_bytes key, uint64_t sequence) {
  struct visible_cursor *self = (struct visible_cursor *)cursor;
  begin(self, false);
  (void)cursor_seek(self->child, key, sequence);
  return fill(self);
}
static turb_state visible_seek_before(struct cursor *cursor, turb_bytes key, uint64_t sequence) {
  struct visible_cursor *self = (struct visible_cursor *)cursor;
  begin(self, true);
  (void)cursor_seek_before(self->child, key, sequence);
  return fill(self);
}
static turb_state visible_first(struct cursor *cursor) {
  struct visible_cursor *self = (struct visible_cursor *)cursor;
  begin(self, false);
  (void)cursor_first(self->child);
  return fill(self);
}
static turb_state visible_last(struct cursor *cursor) {
  struct visible_cursor *self = (struct visible_cursor *)cursor;
  begin(self, true);
  (void)cursor_last(self->child);
  return fill(self);
}

static turb_state visible_batch(struct cursor *cursor, struct cursor_batch *batch, bool backward) {
  const struct slot_page *held[HELD_PAGES] = {NULL}; /* of entries that this call took */
  if (cursor->state == TURB_PENDING || cursor->state == TURB_YIELD)
    (void)visible_resume(cursor);
  while (cursor->state == TURB_READY && batch->count < batch->capacity) {
    const struct slot_page *page = slot_page_of(cursor->slot), **place = &held[(uintptr_t)page / SLOT_PAGE_BYTES % HELD_PAGES];
    if (*place != page && !cursor_batch_hold_current(batch, cursor))
      break;
    *place = page;
    batch->refs[batch->count++] = *cursor->ref;
    (void)(backward ? cursor_retreat(cursor) : cursor_advance(cursor));
  }
  return cursor->state;
}

struct visible_stretch visible_cursor_stretch(const struct cursor *cursor) {
  const struct visible_cursor *self = (const struct visible_cursor *)cursor;
  return (struct visible_stretch){self->refs + self->begin, self->end - self->begin};
}

void visible_cursor_select(struct cursor *cursor, uint32_t index) {
  struct visible_cursor *self = (struct visible_cursor *)cursor;
  if (cursor->state == TURB_READY)
    (void)show(self, self->begin + index);
}

void visible_cursor_counts(const struct cursor *cursor, uint64_t *looked_at, uint64_t *hidden) {
  const struct visible_cursor *self = (const struct visible_cursor *)cursor;
  *looked_at = self->total_looked_at;
  *hidden = self->total_hidden;
}

static struct window *visible_window_of(const struct cursor *cursor, const struct slot *slot) {
  const struct visible_cursor *self = (const struct visible_cursor *)cursor;
  if (window_covers(self->old_window, slot))
    return self->old_window;
  if (window_covers(self->found_window, slot))
    return self->found_window;
  for (uint32_t i = 0; i < self->raw.held_count; i++)
    if (window_covers(self->raw.held[i], slot))
      return self->raw.held[i];
  return cursor_window_of(self->child, slot);
}

static void visible_prefetch(const struct cursor *cursor, uint32_t depth) {
  const struct visible_cursor *self = (const struct visible_cursor *)cursor;
  if (depth == 1) {
    __builtin_prefetch(&self->decided);
    __builtin_prefetch(&self->refs[0]);
    __builtin_prefetch(&self->raw_refs[0]);
    __builtin_prefetch(&self->raw_held[0]);
  }
  if (depth == 2 && self->begin < self->end) {
    __builtin_prefetch(self->refs[self->begin].slot);
    __builtin_prefetch(self->refs[self->begin].source);
  }
  cursor_prefetch(self->child, depth - 1);
}

static turb_status visible_error(const struct cursor *cursor, turb_error *err) {
  return cursor_error(((const struct visible_cursor *)cursor)->child, err);
}

static void visible_close(struct cursor *cursor) {
  struct visible_cursor *self = (struct visible_cursor *)cursor;
  release_old(self);
  forget_candidate(self);
  forget_found(self, false);
  cursor_close(self->child);
  mem_free(cursor->context->allocator, self, sizeof *self);
}

static const struct cursor_ops visible_cursor_ops = {
    .name = "visible",
    .advance = visible_advance,
    .retreat = visible_retreat,
    .seek = visible_seek,
    .seek_before = visible_seek_before,
    .first = visible_first,
    .last = visible_last,
    .resume = visible_resume,
    .batch = visible_batch,
    .window_of = visible_window_of,
    .prefetch = visible_prefetch,
    .error = visible_error,
    .close = visible_close,
};

turb_status visible_cursor_open(struct cursor_context *context, struct cursor *child, const struct visible_options *options,
                                struct cursor **cursor, turb_error *err) {
  *cursor = NULL;
  struct visible_cursor *self = mem_alloc_zeroed(context->allocator, sizeof *self);
  if (!self) {
    cursor_close(child);
    return status_set(err, TURB_NO_MEMORY, "no memory for a cursor");
  }
  cursor_init(&self->head, &visible_cursor_ops, context);
  self->child = child;
  self->options = *options;
  self->raw = (struct cursor_batch){
      .refs = self->raw_refs, .changes = self->raw_changes, .capacity = VISIBLE_STRETCH, .held = self->raw_held, .held_capacity = RAW_HELD};
  *cursor = &self->head;
  return TURB_OK;
}
