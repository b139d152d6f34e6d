/* Compressed blocks and the byte shuffle below them. */
#include "sstable/block.h"

#include <stdlib.h>

#include "sstable/shuffle.h"
#include "tests/support/allocator.h"
#include "tests/support/test.h"

TEST(shuffle, every_form_agrees_and_comes_back) {
  static uint8_t from[4 * 1000 + 8], to[sizeof from], plain[sizeof from], back[sizeof from];
  struct random random;
  random_init(&random, test_seed());
  random_fill(&random, from, sizeof from);
  for (unsigned width = 2; width <= 4; width += 2) {
    for (size_t count = 0; count <= 1000; count += count < 70 ? 1 : 31) {
      const size_t size = count * width;
      memset(to, 0xee, sizeof to);
      shuffle_bytes(from + 1, to, size, width);
      shuffle_bytes_portable(from + 1, plain, size, width);
      CHECK_MEM_EQ(to, plain, size);
      CHECK_EQ(to[size], 0xee);
      memset(back, 0xee, sizeof back);
      unshuffle_bytes(to, back, size, width);
      CHECK_MEM_EQ(back, from + 1, size);
      CHECK_EQ(back[size], 0xee);
      unshuffle_bytes_portable(to, back, size, width);
      CHECK_MEM_EQ(back, from + 1, size);
    }
  }
}

TEST(shuffle, planes_by_hand) {
  const uint8_t from[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  uint8_t to[8];
  shuffle_bytes(from, to, 8, 4);
  CHECK_MEM_EQ(to, ((const uint8_t[]){1, 5, 2, 6, 3, 7, 4, 8}), 8);
  shuffle_bytes(from, to, 8, 2);
  CHECK_MEM_EQ(to, ((const uint8_t[]){1, 3, 5, 7, 2, 4, 6, 8}), 8);
}

static const struct codec_place place = {"blocks", 1, 4096};
static const turb_type types[] = {TURB_F32, TURB_F16, TURB_BF16, TURB_I8, TURB_U8, TURB_BITS};
enum { TYPE_COUNT = 6, MOST = 262144 };
static uint8_t block[MOST], stored[MOST], back[MOST];

/* Values as vectors have them: near each other, so that high bytes repeat. */
static void fill_block(struct random *random, turb_type type, size_t size) {
  if (type == TURB_F32) {
    for (size_t i = 0; i < size; i += 4) {
      const float value = random_float(random);
      memcpy(block + i, &value, 4);
    }
  } else {
    for (size_t i = 0; i < size; i++) {
      block[i] = (uint8_t)(i % 2 == 0 ? random_below(random, 256) : 0x3c + random_below(random, 2));
    }
  }
}

TEST(block, round_trip_of_every_type) {
  struct random random;
  random_init(&random, test_seed());
  struct test_allocator allocator;
  test_allocator_init(&allocator);
  struct budget budget;
  budget_init(&budget, UINT64_MAX);
  const struct block_memory memory = {&allocator.base, &budget, BUDGET_JOB};
  static const uint32_t sizes[] = {4096, 32768, 65536, 262144};
  for (size_t t = 0; t < TYPE_COUNT; t++) {
    for (size_t s = 0; s < 4; s++) {
      struct block_compressor *compressor = NULL;
      struct block_decompressor *decompressor = NULL;
      turb_error err = TURB_ERROR_INIT;
      CHECK_OK_ERR(block_compressor_create(&memory, types[t], sizes[s], 1 + (int)s, &compressor, &err), &err);
      CHECK_OK_ERR(block_decompressor_create(&memory, types[t], sizes[s], &decompressor, &err), &err);
      CHECK_EQ(allocator.live_bytes, budget_used_for(&budget, BUDGET_JOB));
      const uint64_t taken = allocator.count;
      for (int round = 0; round < 4; round++) {
        fill_block(&random, types[t], sizes[s]);
        memset(block + sizes[s] - (size_t)round * 1000, 0, (size_t)round * 1000);
        uint32_t word = 0, again = 0;
        CHECK_OK_ERR(block_compress(compressor, block, stored, &word, &err), &err);
        CHECK_EQ(word & CODEC_STORED_PLAINLY, 0);
        CHECK_LT(word, sizes[s]);
        CHECK_OK_ERR(block_decompress(decompressor, stored, word, back, &place, &err), &err);
        CHECK_MEM_EQ(back, block, sizes[s]);
        CHECK_OK_ERR(block_compress(compressor, block, back, &again, &err), &err);
        CHECK_EQ(again, word);
        CHECK_MEM_EQ(back, stored, word); /* the same bytes again */
      }
      CHECK_EQ(allocator.count, taken); /* nothing is taken after create */
      block_compressor_destroy(compressor);
      block_decompressor_destroy(decompressor);
      test_allocator_check_empty(&allocator);
      CHECK_EQ(budget_used(&budget), 0);
    }
  }
}

TEST(block, what_does_not_compress_is_stored_plainly) {
  struct random random;
  random_init(&random, test_seed());
  const struct block_memory memory = {alloc_default(), NULL, BUDGET_JOB};
  struct block_compressor *compressor = NULL;
  struct block_decompressor *decompressor = NULL;
  CHECK_OK(block_compressor_create(&memory, TURB_F32, 32768, 3, &compressor, NULL));
  CHECK_OK(block_decompressor_create(&memory, TURB_F32, 32768, &decompressor, NULL));
  random_fill(&random, block, 32768);
  uint32_t word = 0;
  CHECK_OK(block_compress(compressor, block, stored, &word, NULL));
  CHECK_EQ(word, 32768 | CODEC_STORED_PLAINLY);
  CHECK_MEM_EQ(stored, block, 32768);
  CHECK_OK(block_decompress(decompressor, stored, word, back, &place, NULL));
  CHECK_MEM_EQ(back, block, 32768);
  CHECK_STATUS(block_decompress(decompressor, stored, 4096 | CODEC_STORED_PLAINLY, back, &place, NULL), TURB_CORRUPTION);
  block_compressor_destroy(compressor);
  block_decompressor_destroy(decompressor);
}

TEST(block, damage_is_an_error) {
  struct random random;
  random_init(&random, test_seed());
  const struct block_memory memory = {alloc_default(), NULL, BUDGET_JOB};
  struct block_compressor *compressor = NULL;
  struct block_decompressor *decompressor = NULL;
  CHECK_OK(block_compressor_create(&memory, TURB_F16, 32768, 3, &compressor, NULL));
  CHECK_OK(block_decompressor_create(&memory, TURB_F16, 32768, &decompressor, NULL));
  fill_block(&random, TURB_F16, 32768);
  uint32_t word = 0;
  CHECK_OK(block_compress(compressor, block, stored, &word, NULL));
  turb_error err = TURB_ERROR_INIT;
  CHECK_STATUS_ERR(block_decompress(decompressor, stored, word - 1, back, &place, &err), TURB_CORRUPTION, &err);
  CHECK_EQ(err.offset, 4096);
  CHECK_STR_EQ(err.file, "blocks");
  CHECK_STATUS(block_decompress(decompressor, stored, word + 1, back, &place, NULL), TURB_CORRUPTION);
  CHECK_STATUS(block_decompress(decompressor, stored, 0, back, &place, NULL), TURB_CORRUPTION);
  for (uint64_t i = 0; i < test_scale(2000, 2000, 50000); i++) {
    uint8_t *exact = malloc(word); /* so that asan sees a read behind it */
    CHECK(exact != NULL);
    memcpy(exact, stored, word);
    const size_t at = random_one_in(&random, 3) ? random_below(&random, 24) : random_below(&random, word);
    exact[at] ^= (uint8_t)(1u << random_below(&random, 8));
    /* zstd frames without a checksum may decode to other bytes: those are the block checksum's to find. */
    const turb_status status = block_decompress(decompressor, exact, word, back, &place, NULL);
    CHECK(status == TURB_OK || status == TURB_CORRUPTION);
    free(exact);
  }
  block_compressor_destroy(compressor);
  block_decompressor_destroy(decompressor);
}

/* Whatever is refused, by the allocator or the budget, the answer is clean and nothing is kept. */
TEST(block, every_allocation_may_fail) {
  struct test_allocator allocator;
  test_allocator_init(&allocator);
  struct budget budget;
  budget_init(&budget, UINT64_MAX);
  const struct block_memory memory = {&allocator.base, &budget, BUDGET_JOB};
  for (uint64_t n = 1;; n++) {
    test_allocator_fail_at(&allocator, n);
    struct block_compressor *compressor = NULL;
    struct block_decompressor *decompressor = NULL;
    turb_status status = block_compressor_create(&memory, TURB_F32, 32768, 1, &compressor, NULL);
    if (status == TURB_OK) {
      status = block_decompressor_create(&memory, TURB_F32, 32768, &decompressor, NULL);
    }
    block_compressor_destroy(compressor);
    block_decompressor_destroy(decompressor);
    test_allocator_check_empty(&allocator);
    CHECK_EQ(budget_used(&budget), 0);
    if (!allocator.failed) {
      CHECK_OK(status);
      CHECK_GT(n, 5);
      break;
    }
    CHECK_STATUS(status, TURB_NO_MEMORY);
  }
  test_allocator_fail_at(&allocator, 0);
  const uint64_t needed = budget_peak(&budget);
  for (uint64_t limit = 0; limit < needed; limit += needed / 50 + 1) {
    struct block_compressor *compressor = NULL;
    budget_set_limit(&budget, limit);
    if (block_compressor_create(&memory, TURB_F32, 32768, 1, &compressor, NULL) != TURB_OK) {
      CHECK(compressor == NULL);
      CHECK_STATUS(block_compressor_create(&memory, TURB_F32, 32768, 1, &compressor, NULL), TURB_BUDGET);
    }
    CHECK_LE(budget_used(&budget), limit);
    block_compressor_destroy(compressor);
    CHECK_EQ(budget_used(&budget), 0);
  }
}
