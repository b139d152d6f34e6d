/* iterators/merge_tree: a loser tree over the current entries of k children.
 *
 * For each child the tree compares one integer, its *rank*: six key bytes of its current entry after the bytes that the keys of all
 * children's current windows share, then the lane's number. While a child walks within a page, the bytes come from the slot alone (its own
 * prefix, moved under what the page shares); keys themselves are compared only where the bytes are equal.
 *
 *   rank             bits 63 to 16: six key bytes, big-endian; bits 15 to 0: the lane
 *   ranks[1..count)  the losers of the matches; lane i's first match is at (count + i) / 2
 *   winner           the lane whose entry comes first
 *
 * A *lane* stands within a child's current window; the child itself learns where (merge_lane_sync) only when it is to move. The lane has the
 * rank of its next entry ready, so that the way from one winner to the next is a load, and a minimum and a maximum for each level.
 *
 * Invariants
 *  1. All keys of all current windows of live lanes begin with shared[0..shared_size).
 *  2. A rank in the tree is that of its lane's current slot under shared_size and the direction (bytes inverted backward, so that the
 *     smallest always wins); RANK_ENDED | lane when the lane ended (slot NULL).
 *  3. lane.next is the rank of the slot after the current one, when that is in the window.
 *  4. Equal entries (same key, same sequence) come in the order of lanes forward, in the reverse order backward.
 *  5. lane.repeat is the current slot when its key is known to be that of the entry before it in the walk. Neighbours in the walk that come
 *     from different lanes have met in a match, so of those it is known for sure; of neighbours within a lane nothing is.
 *
 * Two lanes have one match: its two sides are kept in registers, and nothing is looked up by the number of the winner.
 * Source: D. Knuth, The Art of Computer Programming 3, 5.4.1 (tree of losers).
 */
#ifndef TURB_ITERATORS_MERGE_TREE_H
#define TURB_ITERATORS_MERGE_TREE_H

#include "iterators/cursor.h"

#define MERGE_SHARED_MAX 256u
#define MERGE_LANES_MAX  65535u
#define MERGE_NO_GIVER   UINT32_MAX

struct merge_lane {
  const struct slot *slot; /* current; NULL: the child ended */
  const struct slot *last; /* of the window in the direction of the walk: beyond it the child must move */
  uint64_t next;           /* rank of the slot after the current one */
  const struct source *source;
  uint64_t fixed; /* the bytes that the page shares beyond shared_size, in place (inverted with all below them backward), and the lane */
  uint64_t mask;  /* the bits that a slot's own prefix gives */
  const struct slot *repeat;
  uint32_t shift; /* bits to move slot->prefix down below what the page shares */
  bool from_key;  /* the page shares less than shared_size: the rank is taken from the key */
};
_Static_assert(sizeof(struct merge_lane) == 64, "a lane is a cache line");

struct merge_tree {
  struct merge_lane *lanes;
  struct cursor **children; /* of the lanes */
  uint64_t *ranks;
  uint32_t count;
  uint32_t winner;
  uint32_t giver;  /* the lane of the entry that was taken last; MERGE_NO_GIVER: none was since the tree was built */
  uint32_t streak; /* entries in a row that the winner gave */
  bool backward;
  uint32_t shared_size;
  uint32_t growth_countdown; /* window changes until the shared bytes are looked for anew */
  uint8_t shared[MERGE_SHARED_MAX];
};

/* All children are READY or END in the tree's direction: plays all matches. */
void merge_tree_build(struct merge_tree *tree);
/* The child of lane i moved, to a place that the tree did not know of, and is READY or END. */
void merge_tree_update(struct merge_tree *tree, uint32_t i);
/* The child learns where its lane stands. */
static inline void merge_lane_sync(const struct merge_tree *tree, uint32_t i) {
  if (tree->lanes[i].slot)
    tree->children[i]->slot = tree->lanes[i].slot;
}

/* Where entries go that are taken from a tree. */
struct merge_taken {
  struct cursor_ref *refs;
  uint16_t *givers; /* or NULL: each entry's lane */
  uint8_t *changes; /* or NULL: as in cursor_batch */
  uint32_t count, capacity;
};
/* Takes the winner's entry as one that the walk leaves behind; the child is the caller's to move (merge_tree_update). There is room. */
void merge_tree_take_winner(struct merge_tree *tree, struct merge_taken *taken);
/* Takes entries, in the order of the walk, until there are `capacity`, or the winner stands on the last slot of its window (or has ended):
 * then that one is not taken. True when it stopped for that. */
bool merge_tree_take(struct merge_tree *tree, struct merge_taken *taken);

#endif
