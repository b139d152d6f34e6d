/* Chunks for a memtable; see memory.h for the layout and the invariants. */
#include "memtable/memory.h"

struct memtable_chunk { /* the last bytes of its allocation */
  struct memtable_chunk *next;
  size_t size_bytes;
  void *base;
};

void memtable_memory_init(struct memtable_memory *memory, const turb_allocator *allocator, struct budget *budget,
                          struct memtable_pool *pool, size_t first_chunk_bytes, size_t largest_chunk_bytes) {
  *memory = (struct memtable_memory){.allocator = allocator,
                                     .budget = budget,
                                     .pool = pool,
                                     .next_chunk_bytes = first_chunk_bytes,
                                     .largest_chunk_bytes = largest_chunk_bytes};
  atomic_init(&memory->charged_bytes, 0);
}

static void chunk_release(struct memtable_memory *memory, struct memtable_chunk *chunk) {
  const size_t size_bytes = chunk->size_bytes;
  void *base = chunk->base; /* the chunk's head lies within: gone as soon as the pool has looked at it */
  if (memory->pool == NULL || !memtable_pool_keep(memory->pool, base, size_bytes)) {
    mem_free(memory->allocator, base, size_bytes);
    budget_give(memory->budget, BUDGET_MEMTABLE, size_bytes);
  }
  atomic_fetch_sub_explicit(&memory->charged_bytes, size_bytes, memory_order_relaxed);
}

void memtable_memory_free(struct memtable_memory *memory) {
  struct memtable_chunk *chunk = memory->chunks;
  while (chunk != NULL) {
    struct memtable_chunk *next = chunk->next;
    chunk_release(memory, chunk);
    chunk = next;
  }
  memory->chunks = NULL;
  memory->current = (struct memtable_region){NULL, NULL, NULL};
  memory->spare = memory->current;
}

/* The size of a chunk with that room, at least `least`; 0 when it overflows. */
static size_t chunk_size(size_t room, size_t least) {
  size_t size = 0;
  if (__builtin_add_overflow(room, sizeof(struct memtable_chunk) + MEMTABLE_UNIT_BYTES - 1, &size)) {
    return 0;
  }
  size -= size % MEMTABLE_UNIT_BYTES;
  return size > least ? size : least;
}

static turb_status chunk_open(struct memtable_memory *memory, size_t size_bytes, struct memtable_region *region, turb_error *err) {
  uint8_t *base = memory->pool != NULL ? memtable_pool_take(memory->pool, size_bytes) : NULL;
  if (base == NULL) {
    if (size_bytes == 0 || !budget_take(memory->budget, BUDGET_MEMTABLE, size_bytes)) {
      return status_set(err, TURB_BUDGET, "the memory budget has no %zu bytes for a memtable (used %llu of %llu)", size_bytes,
                        (unsigned long long)budget_used(memory->budget), (unsigned long long)budget_limit(memory->budget));
    }
    base = mem_alloc_aligned(memory->allocator, size_bytes, MEMTABLE_UNIT_BYTES);
    if (base == NULL) {
      budget_give(memory->budget, BUDGET_MEMTABLE, size_bytes);
      return status_set(err, TURB_NO_MEMORY, "no memory for a memtable's chunk of %zu bytes", size_bytes);
    }
  }
  atomic_fetch_add_explicit(&memory->charged_bytes, size_bytes, memory_order_relaxed);
  struct memtable_chunk *chunk = (struct memtable_chunk *)(void *)(base + size_bytes) - 1;
  *chunk = (struct memtable_chunk){.next = memory->chunks, .size_bytes = size_bytes, .base = base};
  memory->chunks = chunk;
  *region = (struct memtable_region){.base = base, .front = base, .back = (uint8_t *)chunk};
  return TURB_OK;
}

/* A chunk of the size that is due, or larger where room asks for it. */
static turb_status chunk_grow(struct memtable_memory *memory, size_t room, struct memtable_region *region, turb_error *err) {
  const turb_status status = chunk_open(memory, chunk_size(room, memory->next_chunk_bytes), region, err);
  if (status == TURB_OK) {
    const size_t doubled = memory->next_chunk_bytes * 2;
    memory->next_chunk_bytes = doubled < memory->largest_chunk_bytes ? doubled : memory->largest_chunk_bytes;
  }
  return status;
}

turb_status memtable_memory_ensure(struct memtable_memory *memory, size_t front, size_t back, turb_error *err) {
  const size_t room = front + back;
  assert(room >= front);
  if (memory->current.base != NULL && memtable_region_room(&memory->current) >= room) {
    return TURB_OK;
  }
  if (memory->spare.base != NULL && memtable_region_room(&memory->spare) >= room) {
    memory->current = memory->spare;
    memory->spare.base = NULL;
    return TURB_OK;
  }
  return chunk_grow(memory, room, &memory->current, err);
}

turb_status memtable_memory_own(struct memtable_memory *memory, size_t front, size_t back, struct memtable_region *region,
                                turb_error *err) {
  return chunk_open(memory, chunk_size(front + back, 0), region, err);
}

turb_status memtable_memory_reserve(struct memtable_memory *memory, size_t bytes, turb_error *err) {
  if (memtable_memory_holds(memory, bytes)) {
    return TURB_OK;
  }
  struct memtable_region grown;
  const turb_status status = chunk_grow(memory, bytes, &grown, err);
  if (status != TURB_OK) {
    return status;
  }
  if (memory->current.base == NULL) {
    memory->current = grown;
    return TURB_OK;
  }
  if (memory->spare.base != NULL) { /* untouched and too small: it goes */
    struct memtable_chunk **link = &memory->chunks;
    while ((*link)->base != memory->spare.base) {
      link = &(*link)->next;
    }
    struct memtable_chunk *old = *link;
    *link = old->next;
    chunk_release(memory, old);
  }
  memory->spare = grown;
  return TURB_OK;
}
