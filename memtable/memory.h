/*
 * The memory of a memtable: chunks that live as long as it does.
 *
 * A chunk is one allocation aligned to 4 KiB and used from both ends: whole 4 KiB units (pages, rows) from the front, so that they
 * stay aligned without waste, and small things (attributes, row slots, blocks of the index) from the back. Its header is its last bytes:
 *
 *   base | units ->            free            <- small things | header
 *
 * One region is current. Chunks grow geometrically from the first size to the largest, so that an idle memtable is small; a large request
 * gets a chunk of its own.
 *
 * Invariants
 *   1. A chunk is charged to BUDGET_MEMTABLE before it is taken, and given back after its release.
 *   2. What was handed out neither moves nor is released before memtable_memory_free.
 *   3. At most one chunk is spare: reserved whole, nothing of it handed out. It becomes current when the current region is too small.
 *   4. A failed call changes nothing.
 *
 * Threads: the writer's alone; memtable_memory_charged from any.
 */
#ifndef TURB_MEMTABLE_MEMORY_H
#define TURB_MEMTABLE_MEMORY_H

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/alloc.h"
#include "base/budget.h"
#include "base/status.h"
#include "memtable/pool.h"

#define MEMTABLE_UNIT_BYTES 4096u

struct memtable_chunk;

/* What is free of a chunk. */
struct memtable_region {
  uint8_t *base; /* of the chunk: says which one it is */
  uint8_t *front;
  uint8_t *back;
};

struct memtable_memory {
  const turb_allocator *allocator;
  struct budget *budget;
  struct memtable_pool *pool; /* or NULL */
  struct memtable_chunk *chunks;
  struct memtable_region current;
  struct memtable_region spare; /* base NULL: none */
  size_t next_chunk_bytes;
  size_t largest_chunk_bytes;
  _Atomic uint64_t charged_bytes;
};

/* Takes no memory. A pool has the same allocator and budget. */
void memtable_memory_init(struct memtable_memory *memory, const turb_allocator *allocator, struct budget *budget,
                          struct memtable_pool *pool, size_t first_chunk_bytes, size_t largest_chunk_bytes);
void memtable_memory_free(struct memtable_memory *memory);

/* Makes the current region hold front bytes (whole units) and back bytes (with what aligning them may cost). */
TURB_MUST_CHECK turb_status memtable_memory_ensure(struct memtable_memory *memory, size_t front, size_t back, turb_error *err);

/* A chunk of its own with that much room; the current region stays. */
TURB_MUST_CHECK turb_status memtable_memory_own(struct memtable_memory *memory, size_t front, size_t back, struct memtable_region *region,
                                                turb_error *err);

/* Makes the current region or the spare hold bytes, so that following calls of ensure for as much in all succeed. */
TURB_MUST_CHECK turb_status memtable_memory_reserve(struct memtable_memory *memory, size_t bytes, turb_error *err);

static inline size_t memtable_region_room(const struct memtable_region *region) {
  return (size_t)(region->back - region->front);
}

/* Whether ensure for room would take no new chunk. */
static inline bool memtable_memory_holds(const struct memtable_memory *memory, size_t room) {
  return (memory->current.base != NULL && memtable_region_room(&memory->current) >= room) ||
         (memory->spare.base != NULL && memtable_region_room(&memory->spare) >= room);
}

/* Whole units; the room was ensured. */
static inline void *memtable_region_units(struct memtable_region *region, size_t bytes) {
  assert(bytes % MEMTABLE_UNIT_BYTES == 0 && bytes <= memtable_region_room(region));
  uint8_t *memory = region->front;
  region->front += bytes;
  return memory;
}

/* Bytes aligned to a power of two up to 64; the room was ensured. */
static inline void *memtable_region_bytes(struct memtable_region *region, size_t bytes, size_t alignment) {
  assert(bytes + alignment - 1 <= memtable_region_room(region));
  region->back = (uint8_t *)((uintptr_t)(region->back - bytes) & ~(uintptr_t)(alignment - 1));
  return region->back;
}

static inline uint64_t memtable_memory_charged(const struct memtable_memory *memory) {
  return atomic_load_explicit(&memory->charged_bytes, memory_order_relaxed);
}

#endif
