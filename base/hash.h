/*
 * Hashing: XXH3 with 64 bits, and a mixer for integers.
 *
 * hash64 is part of the file formats (checksums, row hashes, filters): its values never change. Up to 240
 * bytes it is compiled inline, so that keys cost a few instructions; longer ones go to code chosen for the
 * processor (hash.c). No symbol of xxhash is exported.
 *
 * Threads: pure functions; a struct hash_stream belongs to one thread at a time.
 */
#ifndef TURB_BASE_HASH_H
#define TURB_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

#ifndef XXH_INLINE_ALL
#define XXH_INLINE_ALL
#endif
#include <xxhash.h>

/* hash64 of more than HASH_INLINE_BYTES bytes. */
#define HASH_INLINE_BYTES 240
uint64_t hash_long(const void *data, size_t size, uint64_t seed);

/* XXH3-64 of size bytes (data may be NULL when size is 0). */
static inline uint64_t hash64(const void *data, size_t size, uint64_t seed) {
  return size <= HASH_INLINE_BYTES ? XXH3_64bits_withSeed(data, size, seed) : hash_long(data, size, seed);
}

/* A bijection of 64 bits that spreads every input bit (the finaliser of splitmix64). */
static inline uint64_t hash_mix64(uint64_t value) {
  value ^= value >> 30;
  value *= UINT64_C(0xbf58476d1ce4e5b9);
  value ^= value >> 27;
  value *= UINT64_C(0x94d049bb133111eb);
  value ^= value >> 31;
  return value;
}

/* hash64 over parts: the digest equals hash64 of the parts put together. Owns no memory. */
struct hash_stream {
  XXH3_state_t state;
};

static inline void hash_stream_init(struct hash_stream *stream, uint64_t seed) {
  XXH3_INITSTATE(&stream->state);
  (void)XXH3_64bits_reset_withSeed(&stream->state, seed);
}

void hash_stream_update(struct hash_stream *stream, const void *data, size_t size);

static inline uint64_t hash_stream_digest(const struct hash_stream *stream) {
  return XXH3_64bits_digest(&stream->state);
}

#endif
