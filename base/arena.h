/*
 * A bump arena over chunks, released as a whole.
 *
 * Each chunk is one allocation: its header, then what was handed out. A request that does not fit the
 * rest of the current chunk opens a new one of at least the chunk size; a request above a quarter of the
 * chunk size gets a chunk of its own, so that it wastes no tail.
 *
 * Invariants
 *   1. What was handed out stays where it is until arena_free or arena_reset.
 *   2. Every chunk is charged to the budget (when there is one) before it is taken.
 *   3. A failed request changes nothing; failure says why.
 *
 * Threads: one thread allocates at a time; memory handed out may be read by any (publishing it is the
 * caller's); arena_used and arena_reserved may be read from any thread.
 */
#ifndef TURB_BASE_ARENA_H
#define TURB_BASE_ARENA_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/alloc.h"
#include "base/budget.h"
#include "base/status.h"

struct arena_chunk;

struct arena {
  const turb_allocator *allocator;
  struct budget *budget; /* NULL: not charged */
  enum budget_use use;
  turb_status failure; /* of the last request that returned NULL */
  size_t chunk_size_bytes;
  struct arena_chunk *chunks; /* newest first */
  uint8_t *at;                /* in the current chunk */
  uint8_t *end;
  _Atomic uint64_t used_bytes;
  _Atomic uint64_t reserved_bytes;
};

/* Takes no memory. chunk_size_bytes 0: 64 KiB. allocator and budget must outlive the arena. */
void arena_init(struct arena *arena, const turb_allocator *allocator, struct budget *budget, enum budget_use use, size_t chunk_size_bytes);

/*
 * size bytes aligned to a power of two, uninitialised; NULL with arena->failure TURB_BUDGET or
 * TURB_NO_MEMORY. The memory is the arena's.
 */
TURB_MUST_CHECK void *arena_alloc(struct arena *arena, size_t size, size_t alignment);

/* The same, filled with zeros. */
TURB_MUST_CHECK void *arena_alloc_zeroed(struct arena *arena, size_t size, size_t alignment);

/* A copy of data, unaligned. */
TURB_MUST_CHECK void *arena_copy(struct arena *arena, const void *data, size_t size);

/* Bytes handed out, with their padding. */
uint64_t arena_used(const struct arena *arena);

/* Bytes of all chunks: what the budget is charged. */
uint64_t arena_reserved(const struct arena *arena);

/* Releases everything; the arena can be used again. */
void arena_reset(struct arena *arena);

/* The same, for good. */
void arena_free(struct arena *arena);

#endif
