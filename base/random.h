/*
 * Deterministic random numbers: splitmix64 for seeding and xoshiro256** for drawing.
 *
 * The same seed gives the same numbers on every machine: index builds and tests rely on it. Not for
 * secrets.
 *
 * Threads: a generator belongs to one thread at a time.
 */
#ifndef TURB_BASE_RANDOM_H
#define TURB_BASE_RANDOM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/hash.h"

/* Steps *state and returns the next number; every seed, also 0, is good. */
static inline uint64_t splitmix64(uint64_t *state) {
  *state += UINT64_C(0x9e3779b97f4a7c15);
  return hash_mix64(*state);
}

struct random {
  uint64_t state[4];
};

static inline void random_init(struct random *random, uint64_t seed) {
  for (int i = 0; i < 4; i++) {
    random->state[i] = splitmix64(&seed);
  }
}

static inline uint64_t random_rotate(uint64_t value, unsigned bits) {
  return (value << bits) | (value >> (64 - bits));
}

static inline uint64_t random_u64(struct random *random) {
  uint64_t *s = random->state;
  const uint64_t result = random_rotate(s[1] * 5, 7) * 9;
  const uint64_t shifted = s[1] << 17;
  s[2] ^= s[0];
  s[3] ^= s[1];
  s[1] ^= s[2];
  s[0] ^= s[3];
  s[2] ^= shifted;
  s[3] = random_rotate(s[3], 45);
  return result;
}

static inline uint32_t random_u32(struct random *random) {
  return (uint32_t)(random_u64(random) >> 32);
}

/*
 * Uniform in [0, bound), bound > 0: the high half of a 128-bit product. Its bias, bound / 2^64, is far
 * below what any of our uses could tell.
 */
static inline uint64_t random_below(struct random *random, uint64_t bound) {
  return (uint64_t)(((unsigned __int128)random_u64(random) * bound) >> 64);
}

/* Uniform in [low, high], both included. */
static inline uint64_t random_between(struct random *random, uint64_t low, uint64_t high) {
  return low + random_below(random, high - low + 1);
}

/* True once in n draws. */
static inline bool random_one_in(struct random *random, uint64_t n) {
  return random_below(random, n) == 0;
}

/* Uniform in [0, 1). */
static inline double random_double(struct random *random) {
  return (double)(random_u64(random) >> 11) * 0x1.0p-53;
}

/* Uniform in [-1, 1). */
static inline float random_float(struct random *random) {
  return (float)(random_u64(random) >> 40) * 0x1.0p-23f - 1.0f;
}

static inline void random_fill(struct random *random, void *out, size_t size) {
  uint8_t *bytes = out;
  while (size != 0) {
    const uint64_t value = random_u64(random);
    const size_t part = size < sizeof value ? size : sizeof value;
    memcpy(bytes, &value, part);
    bytes += part;
    size -= part;
  }
}

#endif
