/*
 * Compressing and decompressing vector blocks; see block.h.
 *
 * zstd does not say the size when it gives memory back, so each of its blocks carries it in front. A compressor compresses one block of zeros when it is
 * made: zstd takes its tables at the first use, and then never again for blocks of that size.
 */
#define ZSTD_STATIC_LINKING_ONLY /* ZSTD_createCCtx_advanced and ZSTD_createDCtx_advanced: contexts with an allocator of ours */
#include "sstable/block.h"

#include <assert.h>
#include <string.h>
#include <zstd.h>
#include <zstd_errors.h>

#include "base/alloc.h"
#include "base/thread.h"
#include "sstable/shuffle.h"

#define SIZE_HEADER_BYTES 16 /* keeps zstd's memory aligned */

struct block_codec { /* the common part */
  struct block_memory memory;
  turb_status failure; /* of the last allocation that zstd was refused */
  uint32_t block_bytes;
  unsigned width;
  uint8_t *scratch; /* a shuffled block */
};

struct block_compressor {
  struct block_codec codec;
  ZSTD_CCtx *context;
};

struct block_decompressor {
  struct block_codec codec;
  ZSTD_DCtx *context;
};

/* ---- memory ---- */

static void *take(struct block_codec *codec, size_t size) {
  const struct block_memory *memory = &codec->memory;
  if (memory->budget != NULL && !budget_take(memory->budget, memory->use, size)) {
    codec->failure = TURB_BUDGET;
    return NULL;
  }
  void *block = mem_alloc(memory->allocator, size);
  if (block == NULL) {
    codec->failure = TURB_NO_MEMORY;
    if (memory->budget != NULL) {
      budget_give(memory->budget, memory->use, size);
    }
  }
  return block;
}

static void give(const struct block_memory *memory, void *block, size_t size) {
  if (block == NULL) {
    return;
  }
  mem_free(memory->allocator, block, size);
  if (memory->budget != NULL) {
    budget_give(memory->budget, memory->use, size);
  }
}

static void *zstd_allocate(void *opaque, size_t size) {
  struct block_codec *codec = opaque;
  const size_t total = size + SIZE_HEADER_BYTES;
  uint8_t *block = take(codec, total);
  if (block == NULL) {
    return NULL;
  }
  memcpy(block, &total, sizeof total);
  return block + SIZE_HEADER_BYTES;
}

static void zstd_release(void *opaque, void *address) {
  const struct block_codec *codec = opaque;
  if (address == NULL) {
    return;
  }
  uint8_t *block = (uint8_t *)address - SIZE_HEADER_BYTES;
  size_t total = 0;
  memcpy(&total, block, sizeof total);
  give(&codec->memory, block, total);
}

static ZSTD_customMem zstd_memory(struct block_codec *codec) {
  return (ZSTD_customMem){zstd_allocate, zstd_release, codec};
}

static turb_status no_memory(const struct block_codec *codec, turb_error *err) {
  const turb_status status = codec->failure != TURB_OK ? codec->failure : TURB_NO_MEMORY;
  return status_set(err, status, "no memory for the codec of blocks of %u bytes", codec->block_bytes);
}

/* A codec of `size` bytes (a compressor or decompressor) with its scratch block. */
static turb_status codec_create(const struct block_memory *memory, size_t size, turb_type type, uint32_t block_bytes, void **codec,
                                turb_error *err) {
  struct block_codec start = {.memory = *memory, .block_bytes = block_bytes, .width = block_element_bytes(type)};
  struct block_codec *made = take(&start, size);
  if (made == NULL) {
    return no_memory(&start, err);
  }
  memset(made, 0, size);
  *made = start;
  made->scratch = take(made, block_bytes);
  if (made->scratch == NULL) {
    const turb_status status = no_memory(made, err);
    give(memory, made, size);
    return status;
  }
  *codec = made;
  return TURB_OK;
}

static void codec_destroy(struct block_codec *codec, size_t size) {
  const struct block_memory memory = codec->memory;
  give(&memory, codec->scratch, codec->block_bytes);
  give(&memory, codec, size);
}

unsigned block_element_bytes(turb_type type) {
  switch (type) {
  case TURB_F32: return 4;
  case TURB_F16:
  case TURB_BF16: return 2;
  case TURB_I8:
  case TURB_U8:
  case TURB_BITS: break;
  }
  return 1;
}

/* ---- compression ---- */

static turb_status zstd_failed(const struct block_codec *codec, size_t result, turb_error *err) {
  if (ZSTD_getErrorCode(result) == ZSTD_error_memory_allocation) {
    return no_memory(codec, err);
  }
  return status_set(err, TURB_INVALID, "compressing a block of %u bytes: %s", codec->block_bytes, ZSTD_getErrorName(result));
}

/* The context, and all memory that it will ever want for blocks of this size. */
static turb_status compressor_prepare(struct block_compressor *compressor, int level, turb_error *err) {
  struct block_codec *codec = &compressor->codec;
  compressor->context = ZSTD_createCCtx_advanced(zstd_memory(codec));
  if (compressor->context == NULL) {
    return no_memory(codec, err);
  }
  const size_t result = ZSTD_CCtx_setParameter(compressor->context, ZSTD_c_compressionLevel, level);
  if (ZSTD_isError(result)) {
    return zstd_failed(codec, result, err);
  }
  memset(codec->scratch, 0, codec->block_bytes);
  uint8_t frame[256]; /* plenty for zeros: one repeated byte for each 128 KiB */
  const size_t size = ZSTD_compress2(compressor->context, frame, sizeof frame, codec->scratch, codec->block_bytes);
  return ZSTD_isError(size) ? zstd_failed(codec, size, err) : TURB_OK;
}

turb_status block_compressor_create(const struct block_memory *memory, turb_type type, uint32_t block_bytes, int level,
                                    struct block_compressor **compressor, turb_error *err) {
  *compressor = NULL;
  void *made = NULL;
  turb_status status = codec_create(memory, sizeof **compressor, type, block_bytes, &made, err);
  if (status != TURB_OK) {
    return status;
  }
  assert(made != NULL);
  status = compressor_prepare(made, level, err);
  if (status != TURB_OK) {
    block_compressor_destroy(made);
    return status;
  }
  *compressor = made;
  return TURB_OK;
}

void block_compressor_destroy(struct block_compressor *compressor) {
  if (compressor != NULL) {
    (void)ZSTD_freeCCtx(compressor->context);
    codec_destroy(&compressor->codec, sizeof *compressor);
  }
}

turb_status block_compress(struct block_compressor *compressor, const void *block, void *out, uint32_t *stored, turb_error *err) {
  const struct block_codec *codec = &compressor->codec;
  *stored = 0;
  const void *source = block;
  if (codec->width > 1) {
    shuffle_bytes(block, codec->scratch, codec->block_bytes, codec->width);
    source = codec->scratch;
  }
  const size_t size = ZSTD_compress2(compressor->context, out, codec->block_bytes - 1, source, codec->block_bytes);
  if (!ZSTD_isError(size)) {
    *stored = (uint32_t)size;
    return TURB_OK;
  }
  if (ZSTD_getErrorCode(size) != ZSTD_error_dstSize_tooSmall) {
    return zstd_failed(codec, size, err);
  }
  memcpy(out, block, codec->block_bytes);
  *stored = codec->block_bytes | CODEC_STORED_PLAINLY;
  return TURB_OK;
}

uint64_t block_compressor_bytes(uint32_t block_bytes, int level) {
  const ZSTD_compressionParameters parameters = ZSTD_getCParams(level, block_bytes, 0);
  return sizeof(struct block_compressor) + block_bytes + ZSTD_estimateCCtxSize_usingCParams(parameters);
}

/* ---- decompression ---- */

uint64_t block_decompressor_bytes(uint32_t block_bytes) {
  return sizeof(struct block_decompressor) + block_bytes + ZSTD_estimateDCtxSize();
}

turb_status block_decompressor_create(const struct block_memory *memory, turb_type type, uint32_t block_bytes,
                                      struct block_decompressor **decompressor, turb_error *err) {
  *decompressor = NULL;
  void *made = NULL;
  const turb_status status = codec_create(memory, sizeof **decompressor, type, block_bytes, &made, err);
  if (status != TURB_OK) {
    return status;
  }
  struct block_decompressor *created = made;
  assert(created != NULL);
  created->context = ZSTD_createDCtx_advanced(zstd_memory(&created->codec));
  if (created->context == NULL) {
    const turb_status refused = no_memory(&created->codec, err);
    block_decompressor_destroy(created);
    return refused;
  }
  *decompressor = created;
  return TURB_OK;
}

void block_decompressor_destroy(struct block_decompressor *decompressor) {
  if (decompressor != NULL) {
    (void)ZSTD_freeDCtx(decompressor->context);
    codec_destroy(&decompressor->codec, sizeof *decompressor);
  }
}

static turb_status bad_block(const struct codec_place *place, const char *what, turb_error *err) {
  return status_set_file(err, TURB_CORRUPTION, place->file, place->offset, "compressed block: %s", what);
}

turb_status block_decompress(struct block_decompressor *decompressor, const void *data, uint32_t stored, void *out,
                             const struct codec_place *place, turb_error *err) {
  const struct block_codec *codec = &decompressor->codec;
  const uint32_t size = CODEC_STORED_BYTES(stored);
  if ((stored & CODEC_STORED_PLAINLY) != 0) {
    if (size != codec->block_bytes) {
      return bad_block(place, "stored plainly with another size than the table's blocks", err);
    }
    memcpy(out, data, size);
    return TURB_OK;
  }
  if (ZSTD_getFrameContentSize(data, size) != codec->block_bytes || ZSTD_findFrameCompressedSize(data, size) != size) {
    return bad_block(place, "not one zstd frame of the table's block size", err);
  }
  uint8_t *target = codec->width > 1 ? codec->scratch : out;
  const size_t result = ZSTD_decompressDCtx(decompressor->context, target, codec->block_bytes, data, size);
  if (ZSTD_isError(result) || result != codec->block_bytes) {
    return bad_block(place, ZSTD_isError(result) ? ZSTD_getErrorName(result) : "wrong size", err);
  }
  if (codec->width > 1) {
    unshuffle_bytes(target, out, codec->block_bytes, codec->width);
  }
  return TURB_OK;
}

/* ---- the pool ---- */

void block_pool_init(struct block_pool *pool) {
  *pool = (struct block_pool){0};
  mutex_init(&pool->lock);
}

void block_pool_free(struct block_pool *pool) {
  for (uint32_t i = 0; i < pool->count; i++) {
    block_decompressor_destroy(pool->spares[i]);
  }
  mutex_destroy(&pool->lock);
}

/* Takes the spare at `at` out of the list; under the lock. */
static struct block_decompressor *pool_remove(struct block_pool *pool, uint32_t at) {
  struct block_decompressor *spare = pool->spares[at];
  memmove(pool->spares + at, pool->spares + at + 1, (--pool->count - at) * sizeof(struct block_decompressor *));
  return spare;
}

turb_status block_pool_take(struct block_pool *pool, const struct block_memory *memory, turb_type type, uint32_t block_bytes,
                            struct block_decompressor **decompressor, turb_error *err) {
  *decompressor = NULL;
  if (pool != NULL) {
    mutex_lock(&pool->lock);
    for (uint32_t i = pool->count; i-- > 0 && *decompressor == NULL;) {
      const struct block_codec *codec = &pool->spares[i]->codec;
      if (codec->block_bytes == block_bytes && codec->width == block_element_bytes(type)) {
        *decompressor = pool_remove(pool, i);
      }
    }
    mutex_unlock(&pool->lock);
  }
  return *decompressor != NULL ? TURB_OK : block_decompressor_create(memory, type, block_bytes, decompressor, err);
}

void block_pool_give(struct block_pool *pool, struct block_decompressor *decompressor) {
  struct block_decompressor *oldest = decompressor;
  if (pool != NULL) {
    mutex_lock(&pool->lock);
    oldest = pool->count == BLOCK_POOL_MAX ? pool_remove(pool, 0) : NULL;
    pool->spares[pool->count++] = decompressor;
    mutex_unlock(&pool->lock);
  }
  block_decompressor_destroy(oldest);
}
