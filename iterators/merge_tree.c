/* merge_tree.h has the layout and the invariants. */
#include "iterators/merge_tree.h"

#include "base/coding.h"

#define GALLOP_AFTER 6u /* entries in a row from one lane, then its next ones are compared with the runner-up alone */
#define AHEAD        8  /* slots of a lane that are asked for before it comes to them */

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
#define RANK_BYTES 6u
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
  const struct cursor *child = tree->children[i];
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
  const uint64_t own = extra < RANK_BYTES ? UINT64_MAX >> (extra * 8) & ~LANE_MASK : 0; /* bits below what the page shares */
  lane->mask = own;
  lane->shift = own ? extra * 8 : 0;
  lane->fixed = (extra ? key_bytes_at(slot, tree->shared_size) & ~own & ~LANE_MASK : 0) ^ (tree->backward ? ~LANE_MASK : 0);
  lane->fixed |= i;
  lane->next = slot_rank(lane, slot_after(lane, tree->backward ? -1 : 1));
}

static uint32_t shared_with(const struct merge_tree *tree, const struct slot *slot) {
  return (uint32_t)key_shared_prefix(tree->shared, tree->shared_size, slot_key(slot), slot->key_size);
}

/* How many of the shared bytes all keys of the child's window have. Its last key, which lies in memory that nobody else touches yet, is only
 * looked at where the page's own word is too short. */
static uint32_t shared_with_window(const struct merge_tree *tree, const struct cursor *child) {
  const struct slot *first = window_first(child), *last = window_last(child);
  const uint32_t a = shared_with(tree, first);
  if (first == last || a <= slot_page_of(first)->shared_prefix_size)
    return a;
  const uint32_t b = shared_with(tree, last);
  return a < b ? a : b;
}

/* Finds the bytes that all current windows share. */
static void find_shared(struct merge_tree *tree) {
  bool first = true;
  tree->shared_size = 0;
  tree->growth_countdown = tree->count * 4;
  for (uint32_t i = 0; i < tree->count; i++) {
    const struct cursor *child = tree->children[i];
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
  struct merge_lane *x = &tree->lanes[a], *y = &tree->lanes[b];
  if (!x->slot || !y->slot)
    return x->slot || (!y->slot && a < b);
  const int c =
      key_compare_beyond(slot_key(x->slot), x->slot->key_size, slot_key(y->slot), y->slot->key_size, tree->shared_size + RANK_BYTES);
  if (c)
    return (c < 0) != tree->backward;
  const uint64_t m = slot_sequence(x->slot), n = slot_sequence(y->slot);
  const bool before = (m != n ? m > n : a < b) != tree->backward;
  struct merge_lane *second = before ? y : x;
  second->repeat = second->slot;
  return before;
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

/* All children's windows are entered anew. What is known of repeats stays. */
static void rebuild(struct merge_tree *tree) {
  find_shared(tree);
  for (uint32_t i = 0; i < tree->count; i++)
    enter(tree, i);
  tree->winner = (uint32_t)(play(tree, 1) & LANE_MASK);
  tree->streak = 0;
}

void merge_tree_build(struct merge_tree *tree) {
  for (uint32_t i = 0; i < tree->count; i++)
    tree->lanes[i].repeat = NULL;
  tree->giver = MERGE_NO_GIVER;
  rebuild(tree);
}

void merge_tree_update(struct merge_tree *tree, uint32_t i) {
  const struct cursor *child = tree->children[i];
  const bool ready = child->state == TURB_READY;
  tree->lanes[i].repeat = NULL; /* another page may come to lie where the one before did */
  if (ready && (shared_with_window(tree, child) < tree->shared_size || --tree->growth_countdown == 0)) {
    for (uint32_t j = 0; j < tree->count; j++)
      if (j != i)
        merge_lane_sync(tree, j);
    rebuild(tree);
    return;
  }
  enter(tree, i);
  replay(tree, i, lane_rank(tree, i));
}

/* ---- taking ---- */

/* What is known of the key of lane i's entry beside the one of the entry that was taken before it. */
static inline uint8_t key_change(const struct slot *slot, const struct slot *repeat, uint32_t i, uint32_t giver) {
  if (i == giver || giver == MERGE_NO_GIVER)
    return KEY_CHANGE_UNKNOWN;
  return slot == repeat ? KEY_REPEATED : KEY_CHANGED;
}

/* Lane i's entry; its slot is not moved. */
static inline __attribute__((always_inline)) void give(const struct merge_lane *lane, uint32_t i, uint32_t giver, struct merge_taken *to) {
  const uint32_t n = to->count++;
  to->refs[n] = (struct cursor_ref){lane->slot, lane->source};
  if (to->givers)
    to->givers[n] = (uint16_t)i;
  if (to->changes)
    to->changes[n] = key_change(lane->slot, lane->repeat, i, giver);
}

void merge_tree_take_winner(struct merge_tree *tree, struct merge_taken *taken) {
  give(&tree->lanes[tree->winner], tree->winner, tree->giver, taken);
  tree->giver = tree->winner;
}

/* The smallest rank that lane i's next entries are to be compared with. */
static uint64_t runner_up(const struct merge_tree *tree, uint32_t i) {
  uint64_t least = UINT64_MAX;
  for (uint32_t at = (tree->count + i) / 2; at; at /= 2)
    if (tree->ranks[at] < least)
      least = tree->ranks[at];
  return least;
}

/* One lane wins again and again: one comparison an entry, as long as its bytes are below the runner-up's. */
static inline __attribute__((always_inline)) void gallop(const struct merge_tree *tree, struct merge_lane *lane, struct merge_taken *to,
                                                         ptrdiff_t step) {
  const uint32_t i = tree->winner;
  const uint64_t bound = runner_up(tree, i) & ~LANE_MASK;
  for (; to->count < to->capacity && lane->slot != lane->last && slot_rank(lane, lane->slot) < bound; lane->slot += step)
    give(lane, i, i, to);
  lane->next = slot_rank(lane, slot_after(lane, step));
}

/* Of any number of lanes. */
static bool take(struct merge_tree *tree, struct merge_taken *taken) {
  struct merge_taken copy = *taken, *to = &copy; /* in registers */
  const ptrdiff_t step = tree->backward ? -1 : 1;
  uint32_t streak = tree->streak, giver = tree->giver;
  bool stopped = false;
  while (to->count < to->capacity) {
    const uint32_t i = tree->winner;
    struct merge_lane *lane = &tree->lanes[i];
    const struct slot *slot = lane->slot;
    if (__builtin_expect(slot == lane->last, 0)) {
      stopped = true;
      break;
    }
    give(lane, i, giver, to);
    giver = i;
    uint64_t rank = lane->next;
    __builtin_prefetch(slot + AHEAD * step);
    lane->slot = slot + step;
    lane->next = slot_rank(lane, slot_after(lane, step));
    if (__builtin_expect(streak >= GALLOP_AFTER, 0)) {
      gallop(tree, lane, to, step);
      rank = slot_rank(lane, lane->slot);
    }
    replay(tree, i, rank);
    streak = tree->winner == i ? streak + 1 : 0;
  }
  tree->streak = streak;
  tree->giver = giver;
  taken->count = to->count;
  return stopped;
}

/* ---- two lanes ---- */

static inline const struct slot *moved(const struct slot *slot, ptrdiff_t bytes) {
  return (const struct slot *)((uintptr_t)slot + (uintptr_t)bytes);
}

static inline uint64_t chosen(uint64_t mask, uint64_t zero, uint64_t one) {
  return zero ^ ((zero ^ one) & mask);
}

/* Takes `room` entries of two lanes neither of which comes to its last slot meanwhile. No branch depends on who wins. */
static void interleave(struct merge_tree *tree, struct merge_taken *taken, uint32_t room) {
  const struct merge_taken to = *taken; /* in registers */
  struct merge_lane *zero = &tree->lanes[0], *one = &tree->lanes[1];
  const ptrdiff_t step = tree->backward ? -1 : 1, bytes = step * (ptrdiff_t)sizeof(struct slot);
  const struct slot *slot_zero = zero->slot, *slot_one = one->slot;
  uint64_t rank_zero = slot_rank(zero, slot_zero), rank_one = slot_rank(one, slot_one), mask = -(uint64_t)tree->winner;
  const uintptr_t source_zero = (uintptr_t)zero->source, source_one = (uintptr_t)one->source;
  uint32_t giver = tree->giver;
  for (uint32_t n = to.count; n < to.count + room; n++) {
    const uint32_t i = (uint32_t)(mask & 1);
    const struct slot *slot = (const struct slot *)chosen(mask, (uintptr_t)slot_zero, (uintptr_t)slot_one);
    to.refs[n] = (struct cursor_ref){slot, (const struct source *)chosen(mask, source_zero, source_one)};
    if (to.givers)
      to.givers[n] = (uint16_t)i;
    if (to.changes)
      to.changes[n] = key_change(slot, tree->lanes[i].repeat, i, giver);
    giver = i;
    __builtin_prefetch(slot + AHEAD * step);
    slot_zero = moved(slot_zero, bytes & (ptrdiff_t)~mask);
    slot_one = moved(slot_one, bytes & (ptrdiff_t)mask);
    rank_zero = slot_rank(zero, slot_zero);
    rank_one = slot_rank(one, slot_one);
    mask = -(uint64_t)(rank_one < rank_zero);
    if (__builtin_expect(is_tie(rank_zero, rank_one), 0)) {
      zero->slot = slot_zero;
      one->slot = slot_one;
      mask = -(uint64_t)!before_by_key(tree, 0, 1);
    }
  }
  zero->slot = slot_zero;
  one->slot = slot_one;
  zero->next = slot_rank(zero, slot_after(zero, step));
  one->next = slot_rank(one, slot_after(one, step));
  tree->winner = (uint32_t)(mask & 1);
  tree->ranks[1] = chosen(mask, rank_one, rank_zero);
  tree->giver = giver;
  tree->streak = 0;
  taken->count += room;
}

static uint32_t slots_before_last(const struct merge_tree *tree, const struct merge_lane *lane) {
  return (uint32_t)(tree->backward ? lane->slot - lane->last : lane->last - lane->slot);
}

/* One lane has come to its last slot, or has ended: the other one's entries up to that. */
static void catch_up(struct merge_tree *tree, struct merge_taken *taken) {
  struct merge_taken copy = *taken, *to = &copy; /* in registers */
  const uint32_t i = tree->winner;
  struct merge_lane *lane = &tree->lanes[i];
  merge_tree_take_winner(tree, to);
  const ptrdiff_t step = tree->backward ? -1 : 1;
  lane->slot += step;
  gallop(tree, lane, to, step);
  taken->count = to->count;
  replay(tree, i, slot_rank(lane, lane->slot));
}

static bool take_two(struct merge_tree *tree, struct merge_taken *to) {
  while (to->count < to->capacity) {
    const struct merge_lane *lanes = tree->lanes;
    const uint32_t a = slots_before_last(tree, &lanes[0]), b = slots_before_last(tree, &lanes[1]);
    const uint32_t most = to->capacity - to->count, least = a < b ? a : b;
    if (least)
      interleave(tree, to, least < most ? least : most);
    else if (lanes[tree->winner].slot == lanes[tree->winner].last)
      return true;
    else
      catch_up(tree, to);
  }
  return false;
}

bool merge_tree_take(struct merge_tree *tree, struct merge_taken *taken) {
  if (tree->count == 2)
    return take_two(tree, taken);
  return take(tree, taken);
}
