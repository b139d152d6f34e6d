/* The long loop for any processor; -O2 leaves its inner loop rolled in gcc, which costs five sixths of its speed. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")
#endif
#include "base/hash_parts.h"

uint64_t hash_long_portable(const void *data, size_t size, uint64_t seed) {
  return XXH3_64bits_withSeed(data, size, seed);
}

void hash_stream_update_portable(struct hash_stream *stream, const void *data, size_t size) {
  (void)XXH3_64bits_update(&stream->state, data, size);
}
