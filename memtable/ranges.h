/*
 * The range deletes of a memtable: any number, added one at a time, asked for a key's cover at any time.
 *
 * Every range delete is a record in a list, newest first. Beside it lie levels, newest first, each covering a stretch of that list. A new
 * range delete is a level of its own; when a level has three neighbours of its order of size, the four are made one (a counter of base
 * four), so that there are O(log n) levels and a range delete is copied O(log n) times. Old levels stay until the memtable goes.
 *
 *   top -> level (1) -> level (1) -> level (4) -> level (16) -> level (64) ...
 *            |            |            |
 *   records  r74 -> r73 -> r72 ... r69 -> r68 ...
 *
 * A level of more than one range has its distinct borders in order, and a segment tree over the stretches between them: each range
 * stands, with its sequence, at the O(log n) tree nodes that make it up, so that deeply nested ranges do not cost their square. A look-up
 * is one search among the borders and one way from a leaf to the root, per level.
 *
 * Invariants
 *   1. Levels and records never change once `top` points to them (release).
 *   2. The levels below top cover all records, each once.
 *   3. Making levels one is an option: without memory for it the small ones stay, and look-ups are slower.
 *
 * Threads: one writer; cover and list from any thread.
 */
#ifndef TURB_MEMTABLE_RANGES_H
#define TURB_MEMTABLE_RANGES_H

#include <stdatomic.h>

#include "base/range_deletes.h"
#include "memtable/memory.h"

struct memtable_range {
  const struct memtable_range *older;
  struct range_delete range;
};

struct memtable_range_level;

struct memtable_ranges {
  struct memtable_memory *memory;       /* of the records */
  struct memtable_memory *level_memory; /* of merged levels, so that they never use what was reserved for entries */
  _Atomic(const struct memtable_range_level *) top;
  uint64_t retry_at; /* no merging before there are as many, since the last one found no memory */
};

void memtable_ranges_init(struct memtable_ranges *ranges, struct memtable_memory *memory, struct memtable_memory *level_memory);

/* Bytes that adding a range takes from `memory`, at most. */
size_t memtable_ranges_need(size_t begin_size, size_t end_size);

/* Keys are copied. end.size 0: open. On failure nothing changed. */
TURB_MUST_CHECK turb_status memtable_ranges_add(struct memtable_ranges *ranges, turb_bytes begin, turb_bytes end, uint64_t sequence,
                                                turb_error *err);

uint64_t memtable_ranges_count(const struct memtable_ranges *ranges);

/* The highest sequence <= snapshot of a range that covers key, or 0. */
uint64_t memtable_ranges_cover(const struct memtable_ranges *ranges, turb_bytes key, uint64_t snapshot);

/* The newest record; the others follow as `older`. NULL when there is none. */
const struct memtable_range *memtable_ranges_newest(const struct memtable_ranges *ranges);

#endif
