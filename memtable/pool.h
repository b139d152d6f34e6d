/*
 * Chunks of memtables that went, kept for those to come.
 *
 * Memory that the system gives for the first time costs a page fault a page, which is most of what filling a memtable would cost. The
 * memtables of a database replace each other with chunks of the same few sizes: so these are kept, still charged, up to a bound.
 *
 * Invariants
 *   1. A kept chunk is charged to BUDGET_MEMTABLE; taking it charges nothing, trimming it gives it back.
 *   2. kept_bytes <= limit_bytes.
 *
 * Threads: any, under the pool's own lock; no call of the budget is made under it.
 */
#ifndef TURB_MEMTABLE_POOL_H
#define TURB_MEMTABLE_POOL_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/budget.h"
#include "turbidite/turbidite.h"

#define MEMTABLE_POOL_SIZES       16u
#define MEMTABLE_POOL_CHUNK_BYTES (32u << 10) /* smaller ones are not kept */

struct memtable_pool_chunk;

struct memtable_pool {
  const turb_allocator *allocator;
  struct budget *budget;
  pthread_mutex_t lock;
  size_t limit_bytes;
  size_t kept_bytes;
  struct {
    size_t size_bytes;
    struct memtable_pool_chunk *chunks;
  } sizes[MEMTABLE_POOL_SIZES];
};

/* Takes no memory. allocator and budget outlive the pool; the pool outlives the memtables made with it. */
void memtable_pool_init(struct memtable_pool *pool, const turb_allocator *allocator, struct budget *budget, size_t limit_bytes);
void memtable_pool_free(struct memtable_pool *pool);

/* Releases kept chunks of at least `bytes` in all, where there are as many; returns what the budget got back. Good for its reclaimer. */
uint64_t memtable_pool_trim(struct memtable_pool *pool, uint64_t bytes);

uint64_t memtable_pool_kept(struct memtable_pool *pool);

/* For memory.c: a kept chunk of exactly that size, or NULL; and the way back, false when the pool does not want it. */
void *memtable_pool_take(struct memtable_pool *pool, size_t size_bytes);
bool memtable_pool_keep(struct memtable_pool *pool, void *chunk, size_t size_bytes);

#endif
