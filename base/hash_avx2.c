/* The long loop with AVX2. Only called where the processor has it. */
#include "base/hash_parts.h"

uint64_t hash_long_avx2(const void *data, size_t size, uint64_t seed) {
  return XXH3_64bits_withSeed(data, size, seed);
}

void hash_stream_update_avx2(struct hash_stream *stream, const void *data, size_t size) {
  (void)XXH3_64bits_update(&stream->state, data, size);
}
