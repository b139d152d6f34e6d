/* The order of keys, shared prefixes, successors. */
#include "base/key.h"

#include "tests/support/test.h"

static size_t random_key(struct random *random, uint8_t *key, size_t capacity) {
  static const uint8_t letters[] = {0x00, 0x01, 0x7f, 0x80, 0xff};
  const size_t size = random_below(random, capacity + 1);
  for (size_t i = 0; i < size; i++) {
    key[i] = letters[random_below(random, sizeof letters)];
  }
  return size;
}

TEST(key, order_is_by_bytes_and_shorter_first) {
  CHECK_LT(key_compare("a", 1, "b", 1), 0);
  CHECK_LT(key_compare("a", 1, "aa", 2), 0);
  CHECK_GT(key_compare("\x80", 1, "\x7f", 1), 0);
  CHECK_LT(key_compare("", 0, "\0", 1), 0);
  CHECK_EQ(key_compare("", 0, "", 0), 0);
  CHECK_EQ(key_compare(NULL, 0, NULL, 0), 0);
  CHECK(key_equal("ab", 2, "ab", 2));
  CHECK(!key_equal("ab", 2, "ab", 1));
  CHECK(key_has_prefix("abc", 3, "ab", 2));
  CHECK(key_has_prefix("abc", 3, NULL, 0));
  CHECK(!key_has_prefix("a", 1, "ab", 2));
}

TEST(key, order_is_total) {
  struct random random;
  random_init(&random, test_seed());
  for (uint64_t i = 0; i < test_scale(20000, 10000, 300000); i++) {
    uint8_t a[24] = "abcdefghijklmnopqrst";
    uint8_t b[24] = "abcdefghijklmnopqrst";
    uint8_t c[24] = "abcdefghijklmnopqrst";
    const size_t same = random_below(&random, 20); /* bytes; words of eight and what is left of them */
    const size_t a_size = same + random_key(&random, a + same, 4);
    const size_t b_size = same + random_key(&random, b + same, 4);
    const size_t c_size = same + random_key(&random, c + same, 4);
    const int ab = key_compare(a, a_size, b, b_size);
    CHECK_EQ(ab<0, key_compare(b, b_size, a, a_size)> 0);
    CHECK_EQ(ab == 0, key_equal(a, a_size, b, b_size));
    if (ab < 0 && key_compare(b, b_size, c, c_size) < 0) {
      CHECK_LT(key_compare(a, a_size, c, c_size), 0);
    }
    const size_t shared = key_shared_prefix(a, a_size, b, b_size);
    CHECK(key_has_prefix(a, a_size, b, shared));
    CHECK(shared == a_size || shared == b_size || a[shared] != b[shared]);
    for (size_t from = 0; from <= shared + 8; from += 1 + random_below(&random, 6)) {
      if (from > shared && shared < a_size && shared < b_size) {
        break; /* beyond what they share only where one of them ends there */
      }
      const int beyond = key_compare_beyond(a, a_size, b, b_size, from);
      CHECK_EQ(beyond < 0, ab < 0);
      CHECK_EQ(beyond > 0, ab > 0);
    }
  }
}

/* One byte of a key of any size, wherever it lies in a word, makes another key. */
TEST(key, every_byte_counts) {
  uint8_t a[41], b[41];
  memset(a, 0x70, sizeof a);
  memset(b, 0x70, sizeof b);
  for (size_t size = 0; size <= 40; size++) {
    CHECK(key_equal(a, size, b, size));
    CHECK_EQ(key_compare_beyond(a, size, b, size, 0), 0);
    for (size_t at = 0; at < size; at++) {
      b[at] = 0x90;
      CHECK(!key_equal(a, size, b, size));
      CHECK_EQ(key_shared_prefix(a, size, b, size), at);
      CHECK_LT(key_compare(a, size, b, size), 0);
      CHECK_LT(key_compare_beyond(a, size, b, size, 0), 0);
      CHECK_GT(key_compare_beyond(b, size, a, size, at), 0);
      b[at] = 0x70;
    }
  }
}

TEST(key, successor_is_the_smallest_above_the_prefix) {
  uint8_t out[8];
  size_t size = 9;
  CHECK(!key_successor("", 0, out, &size));
  CHECK_EQ(size, 0);
  CHECK(!key_successor("\xff\xff", 2, out, &size));
  CHECK(key_successor("ab", 2, out, &size));
  CHECK(key_equal(out, size, "ac", 2));
  CHECK(key_successor("a\xff\xff", 3, out, &size));
  CHECK(key_equal(out, size, "b", 1));

  struct random random;
  random_init(&random, test_seed());
  for (uint64_t i = 0; i < test_scale(20000, 10000, 300000); i++) {
    uint8_t prefix[3];
    uint8_t key[6];
    const size_t prefix_size = random_key(&random, prefix, sizeof prefix);
    const size_t key_size = random_key(&random, key, sizeof key);
    if (key_successor(prefix, prefix_size, out, &size)) {
      /* A key at or above the prefix has it exactly when it is below the successor. */
      if (key_compare(key, key_size, prefix, prefix_size) >= 0) {
        CHECK_EQ(key_has_prefix(key, key_size, prefix, prefix_size), key_compare(key, key_size, out, size) < 0);
      }
    } else if (key_compare(key, key_size, prefix, prefix_size) >= 0) {
      CHECK(key_has_prefix(key, key_size, prefix, prefix_size));
    }
  }
}
