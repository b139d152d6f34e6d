/* The bump arena; see arena.h for layout, invariants and threads. */
#include "base/arena.h"

#include <assert.h>
#include <string.h>

#define ARENA_DEFAULT_CHUNK_BYTES ((size_t)64 * 1024)

struct arena_chunk {
  struct arena_chunk *next;
  size_t size_bytes; /* with this header */
};

void arena_init(struct arena *arena, const turb_allocator *allocator, struct budget *budget, enum budget_use use, size_t chunk_size_bytes) {
  arena->allocator = allocator;
  arena->budget = budget;
  arena->use = use;
  arena->failure = TURB_OK;
  arena->chunk_size_bytes = chunk_size_bytes != 0 ? chunk_size_bytes : ARENA_DEFAULT_CHUNK_BYTES;
  arena->chunks = NULL;
  arena->at = NULL;
  arena->end = NULL;
  atomic_init(&arena->used_bytes, 0);
  atomic_init(&arena->reserved_bytes, 0);
}

static struct arena_chunk *chunk_open(struct arena *arena, size_t size_bytes) {
  if (arena->budget != NULL && !budget_take(arena->budget, arena->use, size_bytes)) {
    arena->failure = TURB_BUDGET;
    return NULL;
  }
  struct arena_chunk *chunk = mem_alloc(arena->allocator, size_bytes);
  if (chunk == NULL) {
    if (arena->budget != NULL) {
      budget_give(arena->budget, arena->use, size_bytes);
    }
    arena->failure = TURB_NO_MEMORY;
    return NULL;
  }
  chunk->size_bytes = size_bytes;
  atomic_fetch_add_explicit(&arena->reserved_bytes, size_bytes, memory_order_relaxed);
  return chunk;
}

static uint8_t *align_up(uint8_t *at, size_t alignment) {
  const size_t over = (uintptr_t)at & (alignment - 1);
  return over == 0 ? at : at + (alignment - over);
}

/* A request that the current chunk cannot hold. */
static void *arena_alloc_slow(struct arena *arena, size_t size, size_t alignment) {
  size_t needed = 0;
  if (__builtin_add_overflow(size, sizeof(struct arena_chunk) + alignment - 1, &needed)) {
    arena->failure = TURB_NO_MEMORY;
    return NULL;
  }
  const bool own_chunk = needed > arena->chunk_size_bytes / 4;
  struct arena_chunk *chunk = chunk_open(arena, own_chunk ? needed : arena->chunk_size_bytes);
  if (chunk == NULL) {
    return NULL;
  }
  uint8_t *start = (uint8_t *)(chunk + 1);
  uint8_t *memory = align_up(start, alignment);
  if (own_chunk && arena->chunks != NULL) {
    /* Behind the current chunk, whose rest stays in use. */
    chunk->next = arena->chunks->next;
    arena->chunks->next = chunk;
  } else {
    chunk->next = arena->chunks;
    arena->chunks = chunk;
    arena->at = memory + size;
    arena->end = (uint8_t *)chunk + chunk->size_bytes;
  }
  atomic_fetch_add_explicit(&arena->used_bytes, (uint64_t)(memory + size - start), memory_order_relaxed);
  return memory;
}

void *arena_alloc(struct arena *arena, size_t size, size_t alignment) {
  assert(alignment != 0 && (alignment & (alignment - 1)) == 0);
  if (arena->at != NULL) {
    uint8_t *memory = align_up(arena->at, alignment);
    if (memory <= arena->end && size <= (size_t)(arena->end - memory)) {
      atomic_fetch_add_explicit(&arena->used_bytes, (uint64_t)(memory + size - arena->at), memory_order_relaxed);
      arena->at = memory + size;
      return memory;
    }
  }
  return arena_alloc_slow(arena, size, alignment);
}

void *arena_alloc_zeroed(struct arena *arena, size_t size, size_t alignment) {
  void *memory = arena_alloc(arena, size, alignment);
  if (memory != NULL) {
    memset(memory, 0, size);
  }
  return memory;
}

void *arena_copy(struct arena *arena, const void *data, size_t size) {
  void *memory = arena_alloc(arena, size, 1);
  if (memory != NULL && size != 0) {
    memcpy(memory, data, size);
  }
  return memory;
}

uint64_t arena_used(const struct arena *arena) {
  return atomic_load_explicit(&arena->used_bytes, memory_order_relaxed);
}

uint64_t arena_reserved(const struct arena *arena) {
  return atomic_load_explicit(&arena->reserved_bytes, memory_order_relaxed);
}

void arena_reset(struct arena *arena) {
  struct arena_chunk *chunk = arena->chunks;
  while (chunk != NULL) {
    struct arena_chunk *next = chunk->next;
    const size_t size_bytes = chunk->size_bytes;
    mem_free(arena->allocator, chunk, size_bytes);
    if (arena->budget != NULL) {
      budget_give(arena->budget, arena->use, size_bytes);
    }
    chunk = next;
  }
  arena->chunks = NULL;
  arena->at = NULL;
  arena->end = NULL;
  atomic_store_explicit(&arena->used_bytes, 0, memory_order_relaxed);
  atomic_store_explicit(&arena->reserved_bytes, 0, memory_order_relaxed);
}

void arena_free(struct arena *arena) {
  arena_reset(arena);
}
