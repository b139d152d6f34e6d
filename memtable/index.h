/*
 * The order of a memtable's entries: a linked list that is the truth, and a tree over it that finds places in it.
 *
 *   root     prefixes | separators | children          prefixes: 8 key bytes behind the block's shared prefix, as numbers:
 *              |             |                          one or two cache lines tell where to go, and keys are looked at
 *   leaves   prefixes | nodes    prefixes | nodes       only where prefixes are equal
 *                         |  |        |  |
 *   list     head <-> node <-> node <-> node <-> node   each node lies beside its key in the entry's page
 *
 * The tree is a B+-tree whose blocks are never released. A reader goes through it without locks while the writer shifts arrays under it:
 * all it wants is some node before its target, preferably the last. It checks the one that it found against the target itself (and
 * starts again where that check fails), then walks forward along the list. So a stale or half-shifted block costs a few steps, never a
 * wrong answer, and an entry that the tree does not know (there was no memory for a block) is found all the same.
 *
 * Invariants
 *   1. The list holds every entry once, in entry order; `next` is stored with release after the entry is complete. A node's `prev` is at
 *      or before its predecessor (it may miss nodes that are being inserted).
 *   2. A block's elements below `count` are valid pointers at every moment; keys ascend, but for a reader during a shift.
 *   3. Separator i of a block is the first entry of the subtree of child i + 1, so that a target lies behind some entry of the leaf that it
 *      is led to (the leftmost leaf apart, where the list's head takes that place).
 *   4. Every key of a block begins with the same `shared` bytes.
 *
 * Threads: one writer (find, insert); any number of readers of all else.
 */
#ifndef TURB_MEMTABLE_INDEX_H
#define TURB_MEMTABLE_INDEX_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/slot.h"
#include "memtable/memory.h"

/* Beside its key in a page; the entry's slot lies slot_distance bytes before it. */
struct memtable_node {
  _Atomic(struct memtable_node *) next;
  _Atomic(struct memtable_node *) prev;
  uint16_t slot_distance;
  uint16_t key_size; /* the key follows at once, over the structure's padding */
};
#define MEMTABLE_NODE_BYTES (offsetof(struct memtable_node, key_size) + sizeof(uint16_t))

#define MEMTABLE_INDEX_LEVELS 16u

struct memtable_block;

struct memtable_index {
  struct memtable_memory *memory;        /* not that of the entries, so that blocks never use what was reserved for those */
  struct memtable_node head;             /* before all entries */
  _Atomic(struct memtable_node *) tail;  /* the last entry, or the head */
  _Atomic(struct memtable_block *) root; /* NULL before the first insertion */
  /* The writer's: */
  struct memtable_block *right_leaf;
  uint64_t unindexed; /* entries that the tree does not hold */
};

/* A step of the writer's way down: the block, and how many of its keys lie before the target. */
struct memtable_step {
  struct memtable_block *block;
  struct memtable_node *lower, *upper; /* all keys of the block lie in [lower, upper); NULL: unbounded */
  uint32_t rank;
  uint32_t known; /* bytes that the target shares with all keys of the block, as far as its parents say */
};

/* Where a new entry goes. */
struct memtable_place {
  struct memtable_node *before;
  uint32_t levels;                                   /* steps taken; 0: at the end of the right leaf, which has room */
  struct memtable_step steps[MEMTABLE_INDEX_LEVELS]; /* leaf first */
};

void memtable_index_init(struct memtable_index *index, struct memtable_memory *memory);

/* Writer: the place of an entry that is not there yet. */
void memtable_index_find(struct memtable_index *index, turb_bytes key, uint64_t sequence, struct memtable_place *place);
/* Writer: publishes a complete entry there. Cannot fail. */
void memtable_index_insert(struct memtable_index *index, const struct memtable_place *place, struct memtable_node *node);

/* The last node before (key, sequence) in entry order, or the head; *after is the one behind it, or NULL: both as they were at one moment. */
struct memtable_node *memtable_index_search(const struct memtable_index *index, turb_bytes key, uint64_t sequence,
                                            struct memtable_node **after);

/* Whether the invariants hold; for tests and assertions, by the writer. */
bool memtable_index_valid(const struct memtable_index *index);

static inline uint8_t *memtable_node_key(const struct memtable_node *node) {
  return (uint8_t *)(uintptr_t)node + MEMTABLE_NODE_BYTES;
}

static inline const struct slot *memtable_index_slot(const struct memtable_node *node) {
  return (const struct slot *)(const void *)((const uint8_t *)node - node->slot_distance);
}

#endif
