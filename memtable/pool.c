/* The pool of chunks; see pool.h. A kept chunk's link lies in its first bytes. */
#include "memtable/pool.h"

#include <string.h>

#include "base/alloc.h"
#include "base/thread.h"

#define POISON_BYTE 0xd7

struct memtable_pool_chunk {
  struct memtable_pool_chunk *next;
};

void memtable_pool_init(struct memtable_pool *pool, const turb_allocator *allocator, struct budget *budget, size_t limit_bytes) {
  memset(pool, 0, sizeof *pool);
  pool->allocator = allocator;
  pool->budget = budget;
  pool->limit_bytes = limit_bytes;
  mutex_init(&pool->lock);
}

void memtable_pool_free(struct memtable_pool *pool) {
  (void)memtable_pool_trim(pool, UINT64_MAX);
  mutex_destroy(&pool->lock);
}

uint64_t memtable_pool_kept(struct memtable_pool *pool) {
  mutex_lock(&pool->lock);
  const uint64_t kept = pool->kept_bytes;
  mutex_unlock(&pool->lock);
  return kept;
}

/* Takes any chunk out; NULL when there is none. */
static struct memtable_pool_chunk *chunk_pop(struct memtable_pool *pool, size_t *size_bytes) {
  struct memtable_pool_chunk *chunk = NULL;
  mutex_lock(&pool->lock);
  for (unsigned i = 0; i < MEMTABLE_POOL_SIZES && chunk == NULL; i++) {
    chunk = pool->sizes[i].chunks;
    if (chunk != NULL) {
      pool->sizes[i].chunks = chunk->next;
      *size_bytes = pool->sizes[i].size_bytes;
      pool->kept_bytes -= *size_bytes;
    }
  }
  mutex_unlock(&pool->lock);
  return chunk;
}

uint64_t memtable_pool_trim(struct memtable_pool *pool, uint64_t bytes) {
  uint64_t given = 0;
  while (given < bytes) {
    size_t size_bytes = 0;
    struct memtable_pool_chunk *chunk = chunk_pop(pool, &size_bytes);
    if (chunk == NULL) {
      break;
    }
    mem_free(pool->allocator, chunk, size_bytes);
    budget_give(pool->budget, BUDGET_MEMTABLE, size_bytes);
    given += size_bytes;
  }
  return given;
}

void *memtable_pool_take(struct memtable_pool *pool, size_t size_bytes) {
  struct memtable_pool_chunk *chunk = NULL;
  mutex_lock(&pool->lock);
  for (unsigned i = 0; i < MEMTABLE_POOL_SIZES; i++) {
    if (pool->sizes[i].size_bytes == size_bytes && pool->sizes[i].chunks != NULL) {
      chunk = pool->sizes[i].chunks;
      pool->sizes[i].chunks = chunk->next;
      pool->kept_bytes -= size_bytes;
      break;
    }
  }
  mutex_unlock(&pool->lock);
  return chunk;
}

bool memtable_pool_keep(struct memtable_pool *pool, void *memory, size_t size_bytes) {
  if (size_bytes < MEMTABLE_POOL_CHUNK_BYTES) {
    return false;
  }
#ifdef TURB_DEBUG
  memset(memory, POISON_BYTE, size_bytes);
#endif
  bool kept = false;
  mutex_lock(&pool->lock);
  if (size_bytes <= pool->limit_bytes - pool->kept_bytes) {
    /* Its own size's place, else one that holds none. */
    unsigned at = MEMTABLE_POOL_SIZES;
    for (unsigned i = 0; i < MEMTABLE_POOL_SIZES; i++) {
      if (pool->sizes[i].size_bytes == size_bytes) {
        at = i;
        break;
      }
      at = at == MEMTABLE_POOL_SIZES && pool->sizes[i].chunks == NULL ? i : at;
    }
    if (at < MEMTABLE_POOL_SIZES) {
      struct memtable_pool_chunk *chunk = memory;
      chunk->next = pool->sizes[at].chunks;
      pool->sizes[at].chunks = chunk;
      pool->sizes[at].size_bytes = size_bytes;
      pool->kept_bytes += size_bytes;
      kept = true;
    }
  }
  mutex_unlock(&pool->lock);
  return kept;
}
