/* The list of entries and the tree over it; see index.h for the picture and the invariants. */
#include "memtable/index.h"

#include <string.h>

#include "base/coding.h"

/* A test that includes this file pauses the writer here, in the midst of shifting a block. */
#ifndef MEMTABLE_INDEX_PAUSE
#define MEMTABLE_INDEX_PAUSE() ((void)0)
#endif

/* Of 16 to 64 the largest was the fastest, most of all where caches are shared with others: fewer blocks on the way. */
#define BLOCK_KEYS 64u
/* A shorter shared prefix costs a full comparison a block; a longer one pays when it takes that many bytes out of the prefixes. */
#define SHARED_GAIN 4u

struct memtable_block {
  _Atomic uint16_t count;
  _Atomic uint16_t shared;
  uint16_t level; /* 0: leaf */
  bool leftmost;
  _Atomic uint64_t prefixes[BLOCK_KEYS];
  _Atomic(struct memtable_node *) keys[BLOCK_KEYS];
  _Atomic(struct memtable_block *) children[]; /* BLOCK_KEYS + 1, but for leaves */
};

#define BLOCK_ALIGNMENT 64u

static size_t block_bytes(unsigned level) {
  return sizeof(struct memtable_block) + (level != 0 ? (BLOCK_KEYS + 1) * sizeof(struct memtable_block *) : 0);
}

/* ---- loads and stores; the writer's own loads need no order ---- */

#define RELAXED memory_order_relaxed
#define ACQUIRE memory_order_acquire
#define RELEASE memory_order_release

static inline struct memtable_node *key_at(const struct memtable_block *block, size_t i) {
  return atomic_load_explicit(&block->keys[i], ACQUIRE);
}

static inline uint64_t prefix_at(const struct memtable_block *block, size_t i) {
  return atomic_load_explicit(&block->prefixes[i], RELAXED);
}

static inline uint32_t block_count(const struct memtable_block *block) {
  return atomic_load_explicit(&block->count, ACQUIRE);
}

static inline uint32_t block_shared(const struct memtable_block *block) {
  return atomic_load_explicit(&block->shared, RELAXED);
}

static inline uint64_t prefix_of(const uint8_t *key, size_t key_size, size_t shared) {
  return key_size > shared ? key_prefix8(key + shared, key_size - shared) : 0;
}

/* A node against a target in entry order. */
static inline int node_compare(const struct memtable_node *node, turb_bytes key, uint64_t sequence) {
  const int order = key_compare(memtable_node_key(node), node->key_size, key.data, key.size);
  if (order != 0) {
    return order;
  }
  const uint64_t own = memtable_index_slot(node)->sequence_kind >> 8;
  return own > sequence ? -1 : own < sequence;
}

/* ---- searching ---- */

/* The first of count prefixes at or above prefix. No branch depends on the data. */
static inline uint32_t prefixes_below(const struct memtable_block *block, uint32_t count, uint64_t prefix) {
  uint32_t base = 0;
  while (count > 1) {
    const uint32_t half = count / 2;
    base += prefix_at(block, base + half - 1) < prefix ? half : 0;
    count -= half;
  }
  return base + (count != 0 && prefix_at(block, base) < prefix);
}

/* Among keys [low, count) with the target's prefix, the first that is not before the target. */
static uint32_t rank_among_equal(const struct memtable_block *block, uint32_t low, uint32_t count, uint64_t prefix, turb_bytes key,
                                 uint64_t sequence) {
  uint32_t high = low + 1;
  while (high < count && prefix_at(block, high) == prefix) {
    high++;
  }
  while (low < high) {
    const uint32_t middle = low + (high - low) / 2;
    if (node_compare(key_at(block, middle), key, sequence) < 0) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

/* Below, at or above 0 as the target's first bytes are below, equal to or above the block's shared ones. */
static int compare_shared(const struct memtable_block *block, uint32_t shared, turb_bytes key) {
  const struct memtable_node *node = key_at(block, 0);
  const size_t compared = key.size < shared ? key.size : shared;
  const size_t bounded = compared < node->key_size ? compared : node->key_size;
  const int order = bounded != 0 ? memcmp(key.data, memtable_node_key(node), bounded) : 0;
  return order != 0 || key.size >= shared ? order : -1;
}

/*
 * The number of the block's keys before the target. *known comes with the bytes that the target is known to share with all keys of the
 * block, and leaves with those that it shares with all keys of the child that the rank chooses.
 */
static inline uint32_t block_rank(const struct memtable_block *block, turb_bytes key, uint64_t sequence, uint32_t *known) {
  const uint32_t count = block_count(block);
  const uint32_t shared = block_shared(block);
  if (count == 0) {
    *known = 0;
    return 0;
  }
  if (shared > *known) {
    const int order = compare_shared(block, shared, key);
    if (order != 0) {
      *known = 0;
      return order < 0 ? 0 : count;
    }
  }
  const uint64_t prefix = prefix_of(key.data, key.size, shared);
  uint32_t rank = prefixes_below(block, count, prefix);
  if (rank < count && prefix_at(block, rank) == prefix) {
    rank = rank_among_equal(block, rank, count, prefix, key, sequence);
  }
  *known = 0;
  if (rank != 0 && rank != count) {
    const uint64_t differing = prefix_at(block, rank - 1) ^ prefix_at(block, rank);
    *known = shared + (differing == 0 ? 8 : (uint32_t)__builtin_clzll(differing) / 8);
  }
  return rank;
}

static inline void block_prefetch(const struct memtable_block *block) {
  for (size_t at = 0; at < offsetof(struct memtable_block, keys); at += 64) {
    __builtin_prefetch((const uint8_t *)block + at);
  }
}

struct memtable_node *memtable_index_search(const struct memtable_index *index, turb_bytes key, uint64_t sequence,
                                            struct memtable_node **after) {
  struct memtable_node *node = NULL;
  do {
    const struct memtable_block *block = atomic_load_explicit(&index->root, ACQUIRE);
    if (block == NULL) {
      node = (struct memtable_node *)(uintptr_t)&index->head;
      break;
    }
    uint32_t known = 0;
    while (block->level != 0) {
      const uint32_t rank = block_rank(block, key, sequence, &known);
      block = atomic_load_explicit(&block->children[rank], ACQUIRE);
      block_prefetch(block);
    }
    const uint32_t rank = block_rank(block, key, sequence, &known);
    if (rank != 0) {
      node = key_at(block, rank - 1);
    } else if (block->leftmost) {
      node = (struct memtable_node *)(uintptr_t)&index->head;
      break;
    }
    /* Rank 0 elsewhere, or a node that is not before the target: the writer is at work in these blocks. */
  } while (node == NULL || node_compare(node, key, sequence) >= 0);
  for (;;) {
    struct memtable_node *next = atomic_load_explicit(&node->next, ACQUIRE);
    if (next == NULL || node_compare(next, key, sequence) >= 0) {
      *after = next;
      return node;
    }
    node = next;
  }
}

/* ---- the writer ---- */

void memtable_index_init(struct memtable_index *index, struct memtable_memory *memory) {
  index->memory = memory;
  atomic_init(&index->head.next, NULL);
  atomic_init(&index->head.prev, NULL);
  index->head.slot_distance = 0;
  index->head.key_size = 0;
  atomic_init(&index->tail, &index->head);
  atomic_init(&index->root, NULL);
  index->right_leaf = NULL;
  index->unindexed = 0;
}

/* Walks on where the tree may have missed entries. */
static struct memtable_node *walk_to(struct memtable_node *node, turb_bytes key, uint64_t sequence) {
  struct memtable_node *next;
  while ((next = atomic_load_explicit(&node->next, RELAXED)) != NULL && node_compare(next, key, sequence) < 0) {
    node = next;
  }
  return node;
}

void memtable_index_find(struct memtable_index *index, turb_bytes key, uint64_t sequence, struct memtable_place *place) {
  struct memtable_block *block = atomic_load_explicit(&index->root, RELAXED);
  struct memtable_node *tail = atomic_load_explicit(&index->tail, RELAXED);
  place->levels = 0;
  if (block == NULL) {
    place->before = index->unindexed != 0 ? walk_to(&index->head, key, sequence) : &index->head;
    return;
  }
  if (block_count(index->right_leaf) < BLOCK_KEYS && node_compare(tail, key, sequence) < 0) {
    place->before = tail;
    return;
  }
  struct memtable_node *lower = NULL;
  struct memtable_node *upper = NULL;
  uint32_t known = 0;
  place->levels = block->level + 1u;
  for (;;) {
    struct memtable_step *step = &place->steps[block->level];
    *step = (struct memtable_step){.block = block, .lower = lower, .upper = upper, .known = known};
    step->rank = block_rank(block, key, sequence, &known);
    if (block->level == 0) {
      break;
    }
    lower = step->rank != 0 ? key_at(block, step->rank - 1) : lower;
    upper = step->rank != block_count(block) ? key_at(block, step->rank) : upper;
    block = atomic_load_explicit(&block->children[step->rank], RELAXED);
    block_prefetch(block);
  }
  const uint32_t rank = place->steps[0].rank;
  assert(rank != 0 || block->leftmost);
  place->before = rank != 0 ? key_at(block, rank - 1) : &index->head;
  /* Both neighbours will be linked anew, after the row was copied. */
  __builtin_prefetch(place->before, 1);
  if (rank != block_count(block)) {
    __builtin_prefetch(key_at(block, rank), 1);
  }
  if (index->unindexed != 0) {
    place->before = walk_to(place->before, key, sequence);
  }
}

/* Makes the block's keys known to share `shared` bytes, and computes their prefixes anew. */
static void block_share(struct memtable_block *block, uint32_t shared) {
  const uint32_t count = block_count(block);
  atomic_store_explicit(&block->shared, (uint16_t)shared, RELAXED);
  for (uint32_t i = 0; i < count; i++) {
    const struct memtable_node *node = key_at(block, i);
    MEMTABLE_INDEX_PAUSE();
    atomic_store_explicit(&block->prefixes[i], prefix_of(memtable_node_key(node), node->key_size, shared), RELAXED);
  }
}

static uint32_t nodes_share(const struct memtable_node *a, const struct memtable_node *b) {
  assert(a != NULL && b != NULL);
  return (uint32_t)key_shared_prefix(memtable_node_key(a), a->key_size, memtable_node_key(b), b->key_size);
}

/* Puts a node at rank (and child behind it) into a block with room. known: bytes that it surely shares with the block's keys. */
static void block_insert(struct memtable_block *block, uint32_t rank, struct memtable_node *node, struct memtable_block *child,
                         uint32_t known) {
  const uint32_t count = block_count(block);
  uint32_t shared = block_shared(block);
  assert(count < BLOCK_KEYS && rank <= count);
  if (count == 0) {
    shared = node->key_size;
    atomic_store_explicit(&block->shared, (uint16_t)shared, RELAXED);
  } else if (shared > known) {
    const uint32_t common = nodes_share(node, key_at(block, 0));
    if (common < shared) {
      shared = common;
      block_share(block, shared);
    }
  }
  for (uint32_t i = count; i > rank; i--) {
    atomic_store_explicit(&block->keys[i], atomic_load_explicit(&block->keys[i - 1], RELAXED), RELEASE);
    MEMTABLE_INDEX_PAUSE();
    atomic_store_explicit(&block->prefixes[i], prefix_at(block, i - 1), RELAXED);
  }
  if (block->level != 0) {
    for (uint32_t i = count + 1; i > rank + 1; i--) {
      atomic_store_explicit(&block->children[i], atomic_load_explicit(&block->children[i - 1], RELAXED), RELEASE);
      MEMTABLE_INDEX_PAUSE();
    }
    atomic_store_explicit(&block->children[rank + 1], child, RELEASE);
  }
  atomic_store_explicit(&block->keys[rank], node, RELEASE);
  atomic_store_explicit(&block->prefixes[rank], prefix_of(memtable_node_key(node), node->key_size, shared), RELAXED);
  atomic_store_explicit(&block->count, (uint16_t)(count + 1), RELEASE);
}

/* The bytes that all keys between the bounds share; where a bound is missing, those that the keys there are share. */
static uint32_t bounds_share(const struct memtable_block *block, const struct memtable_node *lower, const struct memtable_node *upper) {
  if (lower != NULL && upper != NULL) {
    return nodes_share(lower, upper);
  }
  const uint32_t count = block_count(block);
  return count != 0 ? nodes_share(key_at(block, 0), key_at(block, count - 1)) : 0;
}

static struct memtable_block *block_make(struct memtable_index *index, unsigned level, bool leftmost) {
  struct memtable_block *block = memtable_region_bytes(&index->memory->current, block_bytes(level), BLOCK_ALIGNMENT);
  memset((void *)block, 0, block_bytes(level));
  block->level = (uint16_t)level;
  block->leftmost = leftmost;
  return block;
}

/*
 * Splits a full block and puts (node, child) into the half where it belongs. *separator, taken as the node, becomes the right half's first
 * entry. An insertion at the end leaves the left half full, so that ascending keys fill their blocks.
 */
static struct memtable_block *block_split(struct memtable_index *index, const struct memtable_step *step, struct memtable_node **separator,
                                          struct memtable_block *child) {
  struct memtable_block *left = step->block;
  struct memtable_block *right = block_make(index, left->level, false);
  struct memtable_node *node = *separator;
  const uint32_t count = block_count(left);
  const uint32_t inner = left->level != 0; /* there the middle separator moves up */
  const uint32_t middle = step->rank == count ? count - inner : count / 2;
  for (uint32_t i = middle + inner; i < count; i++) {
    atomic_store_explicit(&right->keys[i - middle - inner], key_at(left, i), RELAXED);
  }
  for (uint32_t i = middle + 1; inner != 0 && i <= count; i++) {
    atomic_store_explicit(&right->children[i - middle - 1], atomic_load_explicit(&left->children[i], RELAXED), RELAXED);
  }
  atomic_store_explicit(&right->count, (uint16_t)(count - middle - inner), RELAXED);
  struct memtable_node *first = middle < count ? key_at(left, middle) : node;
  struct memtable_node *last = key_at(left, count - 1);
  atomic_store_explicit(&left->count, (uint16_t)middle, RELEASE);
  MEMTABLE_INDEX_PAUSE();
  const bool goes_left = step->rank <= middle && step->rank != count;
  *separator = first;
  const uint32_t left_shares = bounds_share(left, step->lower, first);
  if (left_shares < block_shared(left) || left_shares >= block_shared(left) + SHARED_GAIN) {
    block_share(left, left_shares);
  }
  block_share(right, bounds_share(right, first, step->upper));
  if (goes_left) {
    block_insert(left, step->rank, node, child, 0);
  } else {
    block_insert(right, step->rank - middle - inner, node, child, 0);
    if (block_count(right) == 1) { /* what the next ones will probably share */
      block_share(right, step->upper != NULL ? nodes_share(first, step->upper) : nodes_share(last, node));
    }
  }
  return right;
}

/* Room for the blocks that an insertion along the steps may need. */
static bool blocks_ensure(struct memtable_index *index, const struct memtable_place *place) {
  size_t bytes = 0;
  uint32_t level = 0;
  while (level < place->levels && block_count(place->steps[level].block) == BLOCK_KEYS) {
    bytes += block_bytes(level++) + BLOCK_ALIGNMENT;
  }
  if (level == place->levels) {
    bytes += block_bytes(level) + BLOCK_ALIGNMENT;
  }
  return level < MEMTABLE_INDEX_LEVELS && memtable_memory_ensure(index->memory, 0, bytes, NULL) == TURB_OK;
}

static void root_make(struct memtable_index *index, uint32_t level, struct memtable_node *separator, struct memtable_block *right) {
  struct memtable_block *root = block_make(index, level, true);
  atomic_store_explicit(&root->children[0], atomic_load_explicit(&index->root, RELAXED), RELAXED);
  block_insert(root, 0, separator, right, 0);
  atomic_store_explicit(&index->root, root, RELEASE);
}

/* Puts a node that is in the list into the tree, too; without memory for a block it stays out. */
static void tree_insert(struct memtable_index *index, const struct memtable_place *place, struct memtable_node *node) {
  struct memtable_block *root = atomic_load_explicit(&index->root, RELAXED);
  if (root != NULL && place->levels == 0) {
    block_insert(index->right_leaf, block_count(index->right_leaf), node, NULL, 0);
    return;
  }
  if (root != NULL && block_count(place->steps[0].block) < BLOCK_KEYS) {
    block_insert(place->steps[0].block, place->steps[0].rank, node, NULL, place->steps[0].known);
    return;
  }
  if (!blocks_ensure(index, place)) {
    index->unindexed++;
    return;
  }
  if (root == NULL) {
    struct memtable_block *leaf = block_make(index, 0, true);
    block_insert(leaf, 0, node, NULL, 0);
    index->right_leaf = leaf;
    atomic_store_explicit(&index->root, leaf, RELEASE);
    return;
  }
  struct memtable_block *child = NULL;
  uint32_t level = 0;
  for (; level < place->levels; level++) {
    const struct memtable_step *step = &place->steps[level];
    if (block_count(step->block) < BLOCK_KEYS) {
      block_insert(step->block, step->rank, node, child, 0);
      return;
    }
    const bool was_right = step->block == index->right_leaf;
    child = block_split(index, step, &node, child);
    index->right_leaf = was_right ? child : index->right_leaf;
  }
  root_make(index, level, node, child);
}

void memtable_index_insert(struct memtable_index *index, const struct memtable_place *place, struct memtable_node *node) {
  struct memtable_node *before = place->before;
  struct memtable_node *next = atomic_load_explicit(&before->next, RELAXED);
  atomic_store_explicit(&node->next, next, RELAXED);
  atomic_store_explicit(&node->prev, before, RELAXED);
  atomic_store_explicit(&before->next, node, RELEASE);
  if (next != NULL) {
    atomic_store_explicit(&next->prev, node, RELEASE);
  } else {
    atomic_store_explicit(&index->tail, node, RELEASE);
  }
  tree_insert(index, place, node);
}

/* ---- checking ---- */

/* A subtree: its keys lie in [lower, upper) and share what their blocks say; *previous is the last entry met. */
static bool block_valid(const struct memtable_block *block, const struct memtable_node *lower, const struct memtable_node *upper,
                        const struct memtable_node **previous) {
  const uint32_t count = block_count(block);
  const uint32_t shared = block_shared(block);
  for (uint32_t i = 0; i <= count; i++) {
    const struct memtable_node *node = i < count ? key_at(block, i) : NULL;
    if (block->level != 0) {
      const struct memtable_block *child = atomic_load_explicit(&block->children[i], ACQUIRE);
      const struct memtable_node *from = i != 0 ? key_at(block, i - 1) : lower;
      if (child->level + 1 != block->level || child->leftmost != (block->leftmost && i == 0) ||
          !block_valid(child, from, node != NULL ? node : upper, previous)) {
        return false;
      }
    }
    if (node == NULL) {
      break;
    }
    const uint64_t sequence = memtable_index_slot(node)->sequence_kind >> 8;
    const turb_bytes key = {memtable_node_key(node), node->key_size};
    const bool ascends = *previous == NULL || node_compare(*previous, key, sequence) < 0;
    const bool bounded = upper == NULL || node_compare(upper, key, sequence) > 0;
    if (!bounded || node->key_size < shared || nodes_share(node, key_at(block, 0)) < shared ||
        prefix_at(block, i) != prefix_of(memtable_node_key(node), node->key_size, shared)) {
      return false;
    }
    if (block->level == 0) {
      if (!ascends || (i == 0 && !block->leftmost && node != lower)) {
        return false;
      }
      *previous = node;
    }
  }
  return true;
}

bool memtable_index_valid(const struct memtable_index *index) {
  const struct memtable_node *node = &index->head;
  for (;;) {
    const struct memtable_node *next = atomic_load_explicit(&node->next, ACQUIRE);
    if (next == NULL) {
      break;
    }
    const turb_bytes key = {memtable_node_key(next), next->key_size};
    if (atomic_load_explicit(&next->prev, RELAXED) != node ||
        (node != &index->head && node_compare(node, key, memtable_index_slot(next)->sequence_kind >> 8) >= 0)) {
      return false;
    }
    node = next;
  }
  if (atomic_load_explicit(&index->tail, RELAXED) != node) {
    return false;
  }
  const struct memtable_block *root = atomic_load_explicit(&index->root, RELAXED);
  const struct memtable_node *previous = NULL;
  return root == NULL || (root->leftmost && block_valid(root, NULL, NULL, &previous));
}
