/*
 * The order of keys: by unsigned bytes, a shorter key before its extensions. There are no comparators.
 *
 * Threads: pure functions.
 */
#ifndef TURB_BASE_KEY_H
#define TURB_BASE_KEY_H

#include <endian.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/*
 * The first eight bytes of a key as an integer that compares as the bytes do, padded with zeros. Equal
 * integers decide nothing: the keys may differ further on, or in trailing zero bytes.
 */
static inline uint64_t key_prefix8(const void *key, size_t size) {
  uint64_t value = 0;
  if (size >= sizeof value) {
    memcpy(&value, key, sizeof value);
  } else if (size != 0) {
    memcpy(&value, key, size);
  }
  return be64toh(value);
}

/* Below, equal to or above 0 as a comes before, equals or comes after b. */
static inline int key_compare(const void *a, size_t a_size, const void *b, size_t b_size) {
  const size_t shared = a_size < b_size ? a_size : b_size;
  const int order = shared != 0 ? memcmp(a, b, shared) : 0;
  if (order != 0) {
    return order;
  }
  return (a_size > b_size) - (a_size < b_size);
}

/* Calls nothing: mostly keys are short. */
static inline bool key_equal(const void *a, size_t a_size, const void *b, size_t b_size) {
  const uint8_t *a_bytes = a;
  const uint8_t *b_bytes = b;
  if (a_size != b_size) {
    return false;
  }
  size_t at = 0;
  if (a_size < 8) {
    while (at < a_size && a_bytes[at] == b_bytes[at]) {
      at++;
    }
    return at == a_size;
  }
  while (at + 8 < a_size && key_prefix8(a_bytes + at, 8) == key_prefix8(b_bytes + at, 8)) {
    at += 8;
  }
  return at + 8 >= a_size && key_prefix8(a_bytes + a_size - 8, 8) == key_prefix8(b_bytes + a_size - 8, 8);
}

static inline bool key_has_prefix(const void *key, size_t key_size, const void *prefix, size_t prefix_size) {
  return key_size >= prefix_size && (prefix_size == 0 || memcmp(key, prefix, prefix_size) == 0);
}

/* The number of leading bytes that a and b share. */
static inline size_t key_shared_prefix(const void *a, size_t a_size, const void *b, size_t b_size) {
  const uint8_t *a_bytes = a;
  const uint8_t *b_bytes = b;
  const size_t limit = a_size < b_size ? a_size : b_size;
  size_t shared = 0;
  while (limit - shared >= 8) {
    const uint64_t differ = key_prefix8(a_bytes + shared, 8) ^ key_prefix8(b_bytes + shared, 8);
    if (differ) {
      return shared + (size_t)__builtin_clzll(differ) / 8;
    }
    shared += 8;
  }
  while (shared < limit && a_bytes[shared] == b_bytes[shared]) {
    shared++;
  }
  return shared;
}

/* As key_compare, of keys that share their first `from` bytes (as many of them as they have); calls nothing for keys of eight bytes or more. */
static inline int key_compare_beyond(const uint8_t *a, size_t a_size, const uint8_t *b, size_t b_size, size_t from) {
  const size_t shared = a_size < b_size ? a_size : b_size;
  if (shared < 8) {
    return key_compare(a, a_size, b, b_size);
  }
  while (from < shared) {
    const size_t at = shared - from < 8 ? shared - 8 : from; /* the last eight bytes, some of which are known to be equal */
    const uint64_t x = key_prefix8(a + at, 8), y = key_prefix8(b + at, 8);
    if (x != y) {
      return x < y ? -1 : 1;
    }
    from = at + 8;
  }
  return (a_size > b_size) - (a_size < b_size);
}

/*
 * The smallest key above every key that begins with prefix, written to out (room for prefix_size bytes,
 * may be prefix itself). False, with *out_size 0, when there is none: an empty prefix, or all bytes 0xff.
 */
static inline bool key_successor(const void *prefix, size_t prefix_size, void *out, size_t *out_size) {
  *out_size = 0;
  const uint8_t *bytes = prefix;
  size_t size = prefix_size;
  while (size != 0 && bytes[size - 1] == 0xff) {
    size--;
  }
  if (size == 0) {
    return false;
  }
  memmove(out, prefix, size);
  ((uint8_t *)out)[size - 1]++;
  *out_size = size;
  return true;
}

#endif
