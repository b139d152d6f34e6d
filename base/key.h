/*
 * The order of keys: by unsigned bytes, a shorter key before its extensions. There are no comparators.
 *
 * Threads: pure functions.
 */
#ifndef TURB_BASE_KEY_H
#define TURB_BASE_KEY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Below, equal to or above 0 as a comes before, equals or comes after b. */
static inline int key_compare(const void *a, size_t a_size, const void *b, size_t b_size) {
  const size_t shared = a_size < b_size ? a_size : b_size;
  const int order = shared != 0 ? memcmp(a, b, shared) : 0;
  if (order != 0) {
    return order;
  }
  return (a_size > b_size) - (a_size < b_size);
}

static inline bool key_equal(const void *a, size_t a_size, const void *b, size_t b_size) {
  return a_size == b_size && (a_size == 0 || memcmp(a, b, a_size) == 0);
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
  while (shared < limit && a_bytes[shared] == b_bytes[shared]) {
    shared++;
  }
  return shared;
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
