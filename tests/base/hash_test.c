/* Hash values are part of the formats: they are pinned here. */
#include "base/hash.h"

#include "base/hash_parts.h"
#include "tests/support/test.h"

TEST(hash, values_are_pinned) {
  CHECK_EQ(hash64(NULL, 0, 0), UINT64_C(0x2d06800538d394c2));
  CHECK_EQ(hash64("turbidite", 9, 0), hash64("turbidite", 9, 0));
  CHECK_NE(hash64("turbidite", 9, 0), hash64("turbidite", 9, 1));
  CHECK_NE(hash64("turbidite", 9, 0), hash64("turbidite", 8, 0));
  uint64_t state = 0;
  CHECK_EQ(splitmix64(&state), UINT64_C(0xe220a8397b1dcdaf));
  CHECK_EQ(hash_mix64(0), 0);
}

TEST(hash, a_stream_equals_the_whole) {
  uint8_t data[5000];
  struct random random;
  random_init(&random, test_seed());
  random_fill(&random, data, sizeof data);
  for (size_t size = 0; size <= sizeof data; size = size * 2 + 1) {
    struct hash_stream stream;
    hash_stream_init(&stream, 77);
    size_t at = 0;
    while (at < size) {
      const size_t part = random_between(&random, 1, size - at);
      hash_stream_update(&stream, data + at, part);
      at += part;
    }
    CHECK_EQ(hash_stream_digest(&stream), hash64(data, size, 77));
  }
}

/* Every compiled form of the long loop gives xxhash's own value. */
TEST(hash, all_forms_of_the_long_loop_agree) {
  static uint8_t data[70000];
  struct random random;
  random_init(&random, test_seed());
  random_fill(&random, data, sizeof data);
  for (int i = 0; i < 2000; i++) {
    const size_t size = random_below(&random, i % 20 == 0 ? 65536 : 2500);
    const size_t at = random_below(&random, 64);
    const uint64_t seed = random_one_in(&random, 4) ? 0 : random_u64(&random);
    const uint64_t wanted = XXH3_64bits_withSeed(data + at, size, seed);
    CHECK_EQ(hash64(data + at, size, seed), wanted);
    CHECK_EQ(hash_long_portable(data + at, size, seed), wanted);
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) {
      CHECK_EQ(hash_long_avx2(data + at, size, seed), wanted);
    }
#endif
    struct hash_stream stream;
    hash_stream_init(&stream, seed);
    hash_stream_update_portable(&stream, data + at, size / 3);
    hash_stream_update(&stream, data + at + size / 3, size - size / 3);
    CHECK_EQ(hash_stream_digest(&stream), wanted);
  }
}

TEST(hash, mixing_is_a_bijection_that_spreads) {
  /* Each input bit flips about half of the output bits. */
  for (unsigned bit = 0; bit < 64; bit++) {
    int flipped = 0;
    for (uint64_t value = 1; value <= 64; value++) {
      flipped += __builtin_popcountll(hash_mix64(value) ^ hash_mix64(value ^ (UINT64_C(1) << bit)));
    }
    CHECK_GT(flipped, 64 * 24);
    CHECK_LT(flipped, 64 * 40);
  }
}
