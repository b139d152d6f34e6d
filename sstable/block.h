/*
 * sstable/block: vector blocks, compressed and back (docs/format.md 3.3): byte-shuffled, then one zstd frame with its content size.
 *
 * A compressor or decompressor owns a zstd context and a scratch block. All memory, zstd's own included, comes from the caller's allocator and is
 * charged to the budget before it is taken; after create, compressing and decompressing take none.
 *
 * Threads: an object belongs to one thread at a time.
 */
#ifndef TURB_SSTABLE_BLOCK_H
#define TURB_SSTABLE_BLOCK_H

#include <stdint.h>

#include <pthread.h>

#include "base/budget.h"
#include "base/status.h"
#include "sstable/codec.h"

struct block_compressor;
struct block_decompressor;

struct block_memory {
  const turb_allocator *allocator;
  struct budget *budget; /* NULL: not charged */
  enum budget_use use;
};

/* Bytes of an element that a block is shuffled by: 4, 2, or 1 (not shuffled). */
unsigned block_element_bytes(turb_type type);

/* For blocks of block_bytes of this type; level as zstd counts them (0: its default). */
TURB_MUST_CHECK turb_status block_compressor_create(const struct block_memory *memory, turb_type type, uint32_t block_bytes, int level,
                                                    struct block_compressor **compressor, turb_error *err);
void block_compressor_destroy(struct block_compressor *compressor); /* NULL ok */
/*
 * Compresses one block into out (room for block_bytes). *stored becomes what the checksum record says: the bytes, with CODEC_STORED_PLAINLY when
 * the block did not get smaller and out holds it as it is (not shuffled). The same block and level always give the same bytes.
 */
TURB_MUST_CHECK turb_status block_compress(struct block_compressor *compressor, const void *block, void *out, uint32_t *stored,
                                           turb_error *err);

/* About what the two charge. */
uint64_t block_compressor_bytes(uint32_t block_bytes, int level);
uint64_t block_decompressor_bytes(uint32_t block_bytes);

TURB_MUST_CHECK turb_status block_decompressor_create(const struct block_memory *memory, turb_type type, uint32_t block_bytes,
                                                      struct block_decompressor **decompressor, turb_error *err);
void block_decompressor_destroy(struct block_decompressor *decompressor); /* NULL ok */
/* `data` holds what `stored` (of the checksum record) says; out has room for block_bytes. CORRUPTION with the place when it is no such block. */
TURB_MUST_CHECK turb_status block_decompress(struct block_decompressor *decompressor, const void *data, uint32_t stored, void *out,
                                             const struct codec_place *place, turb_error *err);

/*
 * Decompressors that wait for their next use, of all tables together: a few, whatever the number of tables. The one that waited longest goes
 * first. Any thread.
 */
#define BLOCK_POOL_MAX 4u

struct block_pool {
  pthread_mutex_t lock;
  struct block_decompressor *spares[BLOCK_POOL_MAX]; /* oldest first */
  uint32_t count;
};

void block_pool_init(struct block_pool *pool);
void block_pool_free(struct block_pool *pool);
/* A spare one for such blocks, or a new one. NULL as pool: a new one. */
TURB_MUST_CHECK turb_status block_pool_take(struct block_pool *pool, const struct block_memory *memory, turb_type type,
                                            uint32_t block_bytes, struct block_decompressor **decompressor, turb_error *err);
void block_pool_give(struct block_pool *pool, struct block_decompressor *decompressor);

#endif
