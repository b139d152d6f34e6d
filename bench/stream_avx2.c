/* Memory read by 32-byte loads (stream.h). */
#include <immintrin.h>

#include "bench/stream.h"

uint64_t stream_read_avx2(const void *data, size_t bytes) {
  const __m256i *at = data;
  __m256i sums[8];
  for (int j = 0; j < 8; j++)
    sums[j] = _mm256_setzero_si256();
  for (size_t i = 0; i < bytes / sizeof *at; i += 8)
    for (int j = 0; j < 8; j++)
      sums[j] = _mm256_add_epi64(sums[j], _mm256_load_si256(at + i + j));
  uint64_t sum = 0;
  for (int j = 0; j < 8; j++) {
    uint64_t words[4];
    _mm256_storeu_si256((__m256i *)words, sums[j]);
    sum += words[0] + words[1] + words[2] + words[3];
  }
  return sum;
}
