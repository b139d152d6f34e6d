/* merge_tree.h has the layout and the invariants. */
#include "iterators/merge_tree.h"

#include "base/coding.h"

#define GALLOP_AFTER 6u /* entries in a row from one lane, then its next ones are compared with the runner-up alone */

/* ---- windows ---- */

/* Of a child that steps through slots, the window is known; of one with a stretch, the current entry alone. */
static const struct slot *window_first(const struct cursor *child) {
  return child->window_end ? child->window_begin : child->slot;
}
static const struct slot *window_last(const struct cursor *child) {
  return child->window_end ? child->window_end - 1 : child->slot;
}

/* ---- ranks ---- */

#define LANE_BITS  16u
#define LANE_MASK  ((UINT64_C(1) << LANE_BITS) - 1)
#define RANK_ENDED (~LANE_MASK)

/* Eight bytes of a key from `from` on, zeros past its end. */
static uint64_t key_bytes_at(const struct slot *slot, uint32_t from) {
  const uint8_t *key = slot_key(slot);
  return slot->key_size > from ? key_prefix8(key + from, slot->key_size - from) : 0;
}

static inline uint64_t slot_rank(const struct merge_lane *lane, const struct slot *slot) {
  return ((slot->prefix >> lane->shift) & lane->mask) ^ lane->fixed;
}

static uint64_t lane_rank(const struct merge_tree *tree, uint32_t i) {
  const struct merge_lane *lane = &tree->lanes[i];
  if (!lane->slot)
    return RANK_ENDED | i;
  if (!lane->from_key)
    return slot_rank(lane, lane->slot);
  const uint64_t bytes = key_bytes_at(lane->slot, tree->shared_size);
  return ((tree->backward ? ~bytes : bytes) & ~LANE_MASK) | i;
}

/* The slot after the current one, or the current one where that is the last. */
static inline const struct slot *slot_after(const struct merge_lane *lane, ptrdiff_t step) {
  return lane->slot == lane->last ? lane->slot : lane->slot + step;
}

/* Lane i enters its child's current window. */
static void enter(const struct merge_tree *tree, uint32_t i) {
  struct merge_lane *lane = &tree->lanes[i];
  const struct cursor *child = lane->child;
  if (child->state != TURB_READY) {
    lane->slot = lane->last = NULL;
    return;
  }
  const struct slot *slot = child->slot;
  const struct slot_page *page = slot_page_of(slot);
  lane->slot = slot;
  lane->source = child->source;
  lane->from_key = page->shared_prefix_size < tree->shared_size;
  lane->last = lane->from_key ? slot : tree->backward ? window_first(child) : window_last(child);
  if (lane->from_key)
    return;
  const uint32_t extra = page->shared_prefix_size - tree->shared_size;
  const uint64_t own = extra < 6 ? UINT64_MAX >> (extra * 8) & ~LANE_MASK : 0; /* bits below what the page shares */
  lane->mask = own;
  lane->shift = own ? extra * 8 : 0;
  lane->fixed = (extra ? key_bytes_at(slot, tree->shared_size) & ~own & ~LANE_MASK : 0) ^ (tree->backward ? ~LANE_MASK : 0);
  lane->fixed |= i;
  lane->next = slot_rank(lane, slot_after(lane, tree->backward ? -1 : 1));
}

static uint32_t shared_with(const struct merge_tree *tree, const struct slot *slot) {
  return (uint32_t)key_shared_prefix(tree->shared, tree->shared_size, slot_key(slot), slot->key_size);
}

/* How many of the shared bytes the child's window has. */
static uint32_t shared_with_window(const struct merge_tree *tree, const struct cursor *child) {
  const struct slot *first = window_first(child), *last = window_last(child);
  const uint32_t a = shared_with(tree, first);
  const uint32_t b = first == last ? a : shared_with(tree, last);
  return a < b ? a : b;
}

/* Finds the bytes that all current windows share. */
static void find_shared(struct merge_tree *tree) {
  bool first = true;
  tree->shared_size = 0;
  tree->growth_countdown = tree->count * 4;
  for (uint32_t i = 0; i < tree->count; i++) {
    const struct cursor *child = tree->lanes[i].child;
    if (child->state != TURB_READY)
      continue;
    if (first) {
      const struct slot *slot = child->slot;
      tree->shared_size = slot->key_size < MERGE_SHARED_MAX ? slot->key_size : MERGE_SHARED_MAX;
      memcpy(tree->shared, slot_key(slot), tree->shared_size);
      first = false;
    }
    tree->shared_size = shared_with_window(tree, child);
    if (!tree->shared_size)
      return;
  }
}

/* ---- matches ---- */

/* Whether lane a's entry comes before lane b's where the bytes in their ranks are equal. */
static __attribute__((noinline)) bool before_by_key(const struct merge_tree *tree, uint64_t a, uint64_t b) {
  const struct slot *x = tree->lanes[a].slot, *y = tree->lanes[b].slot;
  if (!x || !y)
    return x || (!y && a < b);
  const int c = slot_compare(x, y);
  if (c)
    return tree->backward ? c > 0 : c < 0;
  return tree->backward ? a > b : a < b;
}

static inline bool is_tie(uint64_t a, uint64_t b) {
  return (a ^ b) <= LANE_MASK;
}

/* Lane i's rank changed: plays its matches up to the top. */
static inline void replay(struct merge_tree *tree, uint32_t i, uint64_t rank) {
  for (uint32_t at = (tree->count + i) / 2; at; at /= 2) {
    const uint64_t other = tree->ranks[at];
    uint64_t first = rank < other ? rank : other, second = rank < other ? other : rank;
    if (__builtin_expect(is_tie(rank, other), 0) && before_by_key(tree, second & LANE_MASK, first & LANE_MASK)) {
      const uint64_t swapped = first;
      first = second;
      second = swapped;
    }
    tree->ranks[at] = second;
    rank = first;
  }
  tree->winner = (uint32_t)(rank & LANE_MASK);
}

/* Plays all matches below node `at`; returns the winner's rank. */
static uint64_t play(struct merge_tree *tree, uint32_t at) {
  if (at >= tree->count)
    return lane_rank(tree, at - tree->count);
  const uint64_t x = play(tree, 2 * at), y = play(tree, 2 * at + 1);
  const bool x_first = is_tie(x, y) ? before_by_key(tree, x & LANE_MASK, y & LANE_MASK) : x < y;
  tree->ranks[at] = x_first ? y : x;
  return x_first ? x : y;
}

void merge_tree_build(struct merge_tree *tree) {
  find_shared(tree);
  for (uint32_t i = 0; i < tree->count; i++)
    enter(tree, i);
  tree->winner = (uint32_t)(play(tree, 1) & LANE_MASK);
  tree->streak = 0;
}

void merge_tree_update(struct merge_tree *tree, uint32_t i) {
  const struct cursor *child = tree->lanes[i].child;
  const bool ready = child->state == TURB_READY;
  if (ready && (shared_with_window(tree, child) < tree->shared_size || --tree->growth_countdown == 0)) {
    for (uint32_t j = 0; j < tree->count; j++)
      if (j != i)
        merge_lane_sync(&tree->lanes[j]);
    merge_tree_build(tree);
    return;
  }
  enter(tree, i);
  replay(tree, i, lane_rank(tree, i));
}

/* ---- taking ---- */

/* The smallest rank that lane i's next entries are to be compared with. */
static uint64_t runner_up(const struct merge_tree *tree, uint32_t i) {
  uint64_t least = UINT64_MAX;
  for (uint32_t at = (tree->count + i) / 2; at; at /= 2)
    if (tree->ranks[at] < least)
      least = tree->ranks[at];
  return least;
}

/* One lane wins again and again: one comparison an entry, as long as its bytes are below the runner-up's. */
static uint32_t gallop(const struct merge_tree *tree, struct merge_lane *lane, struct cursor_ref *refs, uint32_t room, ptrdiff_t step) {
  const uint64_t bound = runner_up(tree, tree->winner) & ~LANE_MASK;
  const struct slot *slot = lane->slot;
  uint32_t n = 0;
  for (; n < room && slot != lane->last && slot_rank(lane, slot) < bound; slot += step)
    refs[n++] = (struct cursor_ref){slot, lane->source};
  lane->slot = slot;
  lane->next = slot_rank(lane, slot_after(lane, step));
  return n;
}

static inline __attribute__((always_inline)) bool take(struct merge_tree *tree, struct cursor_ref *refs, uint16_t *givers, uint32_t *count,
                                                       uint32_t capacity) {
  const ptrdiff_t step = tree->backward ? -1 : 1;
  uint32_t n = *count, streak = tree->streak;
  bool stopped = false;
  while (n < capacity) {
    const uint32_t i = tree->winner;
    struct merge_lane *lane = &tree->lanes[i];
    const struct slot *slot = lane->slot;
    if (__builtin_expect(slot == lane->last, 0)) {
      stopped = true;
      break;
    }
    refs[n] = (struct cursor_ref){slot, lane->source};
    if (givers)
      givers[n] = (uint16_t)i;
    n++;
    uint64_t rank = lane->next;
    lane->slot = slot + step;
    lane->next = slot_rank(lane, slot_after(lane, step));
    if (__builtin_expect(streak >= GALLOP_AFTER, 0)) {
      const uint32_t more = gallop(tree, lane, refs + n, capacity - n, step);
      for (uint32_t j = 0; givers && j < more; j++)
        givers[n + j] = (uint16_t)i;
      n += more;
      rank = slot_rank(lane, lane->slot);
    }
    replay(tree, i, rank);
    streak = tree->winner == i ? streak + 1 : 0;
  }
  tree->streak = streak;
  *count = n;
  return stopped;
}

bool merge_tree_take(struct merge_tree *tree, struct cursor_ref *refs, uint16_t *givers, uint32_t *count, uint32_t capacity) {
  return givers ? take(tree, refs, givers, count, capacity) : take(tree, refs, NULL, count, capacity);
}
