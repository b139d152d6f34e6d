/* The generators: pinned numbers, bounds, evenness. */
#include "base/random.h"

#include "tests/support/test.h"

TEST(random, numbers_are_pinned) {
  /* Index builds must give the same bytes for ever: these values never change. */
  uint64_t state = 1234567;
  CHECK_EQ(splitmix64(&state), UINT64_C(6457827717110365317));
  CHECK_EQ(splitmix64(&state), UINT64_C(3203168211198807973));
  struct random random = {{1, 2, 3, 4}};
  CHECK_EQ(random_u64(&random), 11520);
  CHECK_EQ(random_u64(&random), 0);
  CHECK_EQ(random_u64(&random), 1509978240);
  CHECK_EQ(random_u64(&random), UINT64_C(1215971899390074240));
}

TEST(random, the_same_seed_gives_the_same_numbers) {
  struct random a;
  struct random b;
  struct random other;
  random_init(&a, 5);
  random_init(&b, 5);
  random_init(&other, 6);
  for (int i = 0; i < 100; i++) {
    const uint64_t value = random_u64(&a);
    CHECK_EQ(value, random_u64(&b));
    CHECK_NE(value, random_u64(&other));
  }
  uint8_t a_bytes[21];
  uint8_t b_bytes[21];
  random_fill(&a, a_bytes, sizeof a_bytes);
  random_fill(&b, b_bytes, sizeof b_bytes);
  CHECK_MEM_EQ(a_bytes, b_bytes, sizeof a_bytes);
}

TEST(random, draws_keep_their_bounds_and_are_even) {
  struct random random;
  random_init(&random, test_seed());
  unsigned counts[10] = {0};
  for (int i = 0; i < 100000; i++) {
    counts[random_below(&random, 10)]++;
    const uint64_t between = random_between(&random, 5, 7);
    CHECK(between >= 5 && between <= 7);
    const double real = random_double(&random);
    CHECK(real >= 0.0 && real < 1.0);
    const float small = random_float(&random);
    CHECK(small >= -1.0f && small < 1.0f);
    CHECK_EQ(random_below(&random, 1), 0);
  }
  for (int i = 0; i < 10; i++) {
    CHECK_GT(counts[i], 9400);
    CHECK_LT(counts[i], 10600);
  }
}
