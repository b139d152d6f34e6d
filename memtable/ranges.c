/* Levels of range deletes; see ranges.h for the picture and the invariants. */
#include "memtable/ranges.h"

#include <string.h>

#include "base/arena.h"
#include "base/coding.h"
#include "base/range_borders.h"

#define LEVEL_RADIX_BITS 2u
#define LEVELS_KEPT      ((1u << LEVEL_RADIX_BITS) - 1)
#define OWN_CHUNK_BYTES  (64u << 10)
#define RETRY_SHARE      4u /* after a failed merge, a quarter more ranges come before the next attempt */

struct level_border {
  uint64_t prefix;
  const uint8_t *key;
  size_t size;
};

struct memtable_range_level {
  const struct memtable_range_level *below;
  const struct memtable_range *newest; /* of the `count` records that this level covers */
  uint64_t total;                      /* records here and below */
  uint32_t count;
  uint32_t border_count;              /* 0: one range, looked at in its record */
  const struct level_border *borders; /* stretch i lies between borders i and i + 1, the last one is open */
  const uint32_t *offsets;            /* of tree node i's sequences: [offsets[i], offsets[i + 1]); leaves at border_count + stretch */
  const uint64_t *sequences;          /* highest first within a node */
};

void memtable_ranges_init(struct memtable_ranges *ranges, struct memtable_memory *memory, struct memtable_memory *level_memory) {
  ranges->memory = memory;
  ranges->level_memory = level_memory;
  ranges->retry_at = 0;
  atomic_init(&ranges->top, NULL);
}

static const struct memtable_range_level *ranges_top(const struct memtable_ranges *ranges) {
  return atomic_load_explicit(&ranges->top, memory_order_acquire);
}

uint64_t memtable_ranges_count(const struct memtable_ranges *ranges) {
  const struct memtable_range_level *top = ranges_top(ranges);
  return top != NULL ? top->total : 0;
}

const struct memtable_range *memtable_ranges_newest(const struct memtable_ranges *ranges) {
  const struct memtable_range_level *top = ranges_top(ranges);
  return top != NULL ? top->newest : NULL;
}

/* ---- looking up ---- */

static uint64_t range_sequence(const struct range_delete *range, turb_bytes key, uint64_t snapshot) {
  if (range->sequence > snapshot || key_compare(range->begin.data, range->begin.size, key.data, key.size) > 0) {
    return 0;
  }
  const bool covers = range->end.size == 0 || key_compare(range->end.data, range->end.size, key.data, key.size) > 0;
  return covers ? range->sequence : 0;
}

/* The number of borders at or below key. */
static uint32_t borders_reached(const struct memtable_range_level *level, turb_bytes key) {
  const uint64_t prefix = key_prefix8(key.data, key.size);
  uint32_t low = 0;
  uint32_t high = level->border_count;
  while (low < high) {
    const uint32_t middle = low + (high - low) / 2;
    const struct level_border *border = &level->borders[middle];
    const bool reached =
        border->prefix != prefix ? border->prefix < prefix : key_compare(border->key, border->size, key.data, key.size) <= 0;
    if (reached) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

static uint64_t level_cover(const struct memtable_range_level *level, turb_bytes key, uint64_t snapshot) {
  const uint32_t reached = borders_reached(level, key);
  uint64_t best = 0;
  if (reached == 0) {
    return 0;
  }
  for (size_t node = (size_t)level->border_count + reached - 1; node != 0; node /= 2) {
    const struct range_fragment list = {.sequence_count = level->offsets[node + 1] - level->offsets[node],
                                        .sequences = level->sequences + level->offsets[node]};
    if (list.sequence_count != 0 && list.sequences[0] > best) {
      const uint64_t sequence = range_fragment_sequence(&list, snapshot);
      best = sequence > best ? sequence : best;
    }
  }
  return best;
}

uint64_t memtable_ranges_cover(const struct memtable_ranges *ranges, turb_bytes key, uint64_t snapshot) {
  uint64_t best = 0;
  for (const struct memtable_range_level *level = ranges_top(ranges); level != NULL; level = level->below) {
    const uint64_t sequence =
        level->border_count == 0 ? range_sequence(&level->newest->range, key, snapshot) : level_cover(level, key, snapshot);
    best = sequence > best ? sequence : best;
  }
  return best;
}

/* ---- making levels one ---- */

static unsigned level_order(uint32_t count) {
  return (31u - (unsigned)__builtin_clz(count)) / LEVEL_RADIX_BITS;
}

#define TREE_NODES_MOST 64u

/* The tree nodes that make up stretches [begin, end) of count; returns their number. */
static uint32_t tree_nodes(uint32_t begin, uint32_t end, uint32_t count, uint32_t nodes[TREE_NODES_MOST]) {
  uint32_t number = 0;
  uint32_t left = begin + count;
  uint32_t right = end + count;
  for (; left < right; left /= 2, right /= 2) {
    if ((left & 1) != 0) {
      nodes[number++] = left++;
    }
    if ((right & 1) != 0) {
      nodes[number++] = --right;
    }
  }
  return number;
}

/* Where one level's arrays go, in one piece. */
static void *level_memory(struct memtable_memory *memory, size_t bytes) {
  struct memtable_region own;
  struct memtable_region *region = &memory->current;
  turb_status status = TURB_OK;
  if (bytes >= OWN_CHUNK_BYTES) {
    region = &own;
    status = memtable_memory_own(memory, 0, bytes + 8, region, NULL);
  } else {
    status = memtable_memory_ensure(memory, 0, bytes + 8, NULL);
  }
  return status == TURB_OK ? memtable_region_bytes(region, bytes, 8) : NULL;
}

/* Puts a sequence into a descending list whose end is free; ranges come newest first, so that it is nearly always the last. */
static void list_insert(uint64_t *list, uint32_t count, uint64_t sequence) {
  while (count != 0 && list[count - 1] < sequence) {
    list[count] = list[count - 1];
    count--;
  }
  list[count] = sequence;
}

/* Fills a level of `count` records from the newest on; NULL without memory. */
static struct memtable_range_level *level_build(struct memtable_memory *memory, const struct range_delete *const *list, uint32_t count,
                                                struct arena *scratch) {
  struct range_borders ranks;
  if (!range_borders_rank(list, count, scratch, &ranks)) {
    return NULL;
  }
  const uint32_t node_count = 2 * ranks.count;
  uint32_t nodes[TREE_NODES_MOST];
  uint32_t *ends = arena_alloc_zeroed(scratch, ((size_t)node_count + 1) * sizeof *ends, _Alignof(uint32_t));
  if (ends == NULL) {
    return NULL;
  }
  uint64_t total = 0;
  for (uint32_t i = 0; i < count; i++) {
    const uint32_t number = tree_nodes(ranks.begins[i], ranks.ends[i], ranks.count, nodes);
    for (uint32_t n = 0; n < number; n++) {
      ends[nodes[n]]++;
    }
    total += number;
  }
  const size_t border_bytes = ranks.count * sizeof(struct level_border);
  const size_t offset_bytes = ((size_t)node_count + 2) * sizeof(uint32_t); /* even: keeps 8-byte alignment */
  const size_t bytes = sizeof(struct memtable_range_level) + border_bytes + total * sizeof(uint64_t) + offset_bytes;
  uint8_t *at = total <= UINT32_MAX ? level_memory(memory, bytes) : NULL;
  if (at == NULL) {
    return NULL;
  }
  struct memtable_range_level *level = (struct memtable_range_level *)(void *)at;
  struct level_border *borders = (struct level_border *)(void *)(level + 1);
  uint64_t *sequences = (uint64_t *)(void *)(borders + ranks.count);
  uint32_t *offsets = (uint32_t *)(void *)(sequences + total);
  for (uint32_t i = 0; i < ranks.count; i++) {
    borders[i] = (struct level_border){ranks.borders[i].prefix, ranks.borders[i].key.data, ranks.borders[i].key.size};
  }
  uint32_t offset = 0;
  for (uint32_t node = 0; node < node_count; node++) {
    offsets[node] = offset;
    offset += ends[node];
    ends[node] = offsets[node];
  }
  offsets[node_count] = offset;
  for (uint32_t i = 0; i < count; i++) {
    const uint32_t number = tree_nodes(ranks.begins[i], ranks.ends[i], ranks.count, nodes);
    for (uint32_t n = 0; n < number; n++) {
      const uint32_t node = nodes[n];
      list_insert(sequences + offsets[node], ends[node]++ - offsets[node], list[i]->sequence);
    }
  }
  *level = (struct memtable_range_level){
      .count = count, .border_count = ranks.count, .borders = borders, .offsets = offsets, .sequences = sequences};
  return level;
}

/* One level for the newest `count` records, above `below`. */
static const struct memtable_range_level *level_merge(struct memtable_ranges *ranges, const struct memtable_range_level *top,
                                                      uint32_t count, const struct memtable_range_level *below) {
  struct arena scratch;
  arena_init(&scratch, ranges->level_memory->allocator, ranges->level_memory->budget, BUDGET_MEMTABLE, 0);
  const struct range_delete **list = arena_alloc(&scratch, count * sizeof *list, _Alignof(const struct range_delete *));
  struct memtable_range_level *level = NULL;
  if (list != NULL) {
    const struct memtable_range *record = top->newest;
    for (uint32_t i = 0; i < count; i++) {
      list[i] = &record->range;
      record = record->older;
    }
    level = level_build(ranges->level_memory, list, count, &scratch);
  }
  arena_free(&scratch);
  if (level != NULL) {
    level->below = below;
    level->newest = top->newest;
    level->total = top->total;
  }
  return level;
}

static void levels_merge(struct memtable_ranges *ranges) {
  const struct memtable_range_level *top = ranges_top(ranges);
  const struct memtable_range_level *below = top->below;
  uint64_t count = top->count;
  for (;;) {
    const unsigned order = level_order((uint32_t)count);
    const struct memtable_range_level *level = below;
    uint64_t sum = count;
    unsigned alike = 0;
    while (level != NULL && level_order(level->count) <= order) {
      sum += level->count;
      alike++;
      level = level->below;
    }
    if (alike < LEVELS_KEPT || sum > RANGE_BORDERS_MAX) {
      break;
    }
    count = sum;
    below = level;
  }
  if (below == top->below || top->total < ranges->retry_at) {
    return;
  }
  const struct memtable_range_level *merged = level_merge(ranges, top, (uint32_t)count, below);
  if (merged == NULL) {
    ranges->retry_at = top->total + top->total / RETRY_SHARE;
    return;
  }
  atomic_store_explicit(&ranges->top, merged, memory_order_release);
}

size_t memtable_ranges_need(size_t begin_size, size_t end_size) {
  return sizeof(struct memtable_range) + sizeof(struct memtable_range_level) + begin_size + end_size + 16;
}

turb_status memtable_ranges_add(struct memtable_ranges *ranges, turb_bytes begin, turb_bytes end, uint64_t sequence, turb_error *err) {
  const turb_status status = memtable_memory_ensure(ranges->memory, 0, memtable_ranges_need(begin.size, end.size), err);
  if (status != TURB_OK) {
    return status;
  }
  struct memtable_region *region = &ranges->memory->current;
  struct memtable_range *record = memtable_region_bytes(region, sizeof *record, 8);
  struct memtable_range_level *level = memtable_region_bytes(region, sizeof *level, 8);
  uint8_t *keys = memtable_region_bytes(region, begin.size + end.size, 1);
  if (begin.size != 0) {
    memcpy(keys, begin.data, begin.size);
  }
  if (end.size != 0) {
    memcpy(keys + begin.size, end.data, end.size);
  }
  const struct memtable_range_level *top = ranges_top(ranges);
  record->older = top != NULL ? top->newest : NULL;
  record->range =
      (struct range_delete){.begin = {keys, begin.size}, .end = {end.size != 0 ? keys + begin.size : NULL, end.size}, .sequence = sequence};
  *level = (struct memtable_range_level){.below = top, .newest = record, .total = (top != NULL ? top->total : 0) + 1, .count = 1};
  atomic_store_explicit(&ranges->top, level, memory_order_release);
  levels_merge(ranges);
  return TURB_OK;
}
