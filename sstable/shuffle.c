/*
 * Shuffling. SSE2 is part of every x86-64 and Advanced SIMD of every aarch64, so nothing is chosen at run time; the plain loops serve other
 * machines, the last few elements, and tests.
 */
#include "sstable/shuffle.h"

#include <stdint.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#elif defined(__ARM_NEON) && defined(__aarch64__)
#include <arm_neon.h>
#endif

/* Elements [begin, end) of count. */
static void shuffle_some(const uint8_t *from, uint8_t *to, size_t begin, size_t end, size_t count, unsigned width) {
  for (size_t i = begin; i < end; i++) {
    for (unsigned b = 0; b < width; b++) {
      to[b * count + i] = from[i * width + b];
    }
  }
}

static void unshuffle_some(const uint8_t *from, uint8_t *to, size_t begin, size_t end, size_t count, unsigned width) {
  for (size_t i = begin; i < end; i++) {
    for (unsigned b = 0; b < width; b++) {
      to[i * width + b] = from[b * count + i];
    }
  }
}

void shuffle_bytes_portable(const void *from, void *to, size_t size, unsigned width) {
  shuffle_some(from, to, 0, size / width, size / width, width);
}

void unshuffle_bytes_portable(const void *from, void *to, size_t size, unsigned width) {
  unshuffle_some(from, to, 0, size / width, size / width, width);
}

/* Each of these does whole groups of 16 elements and returns how many elements it did. */
#if defined(__SSE2__)

static inline __m128i load(const uint8_t *from) {
  return _mm_loadu_si128((const __m128i *)(const void *)from);
}
static inline void store(uint8_t *to, __m128i value) {
  _mm_storeu_si128((__m128i *)(void *)to, value);
}
/* The even (low) and odd (high) bytes of 32. */
static inline __m128i even_bytes(__m128i a, __m128i b) {
  const __m128i mask = _mm_set1_epi16(0x00ff);
  return _mm_packus_epi16(_mm_and_si128(a, mask), _mm_and_si128(b, mask));
}
static inline __m128i odd_bytes(__m128i a, __m128i b) {
  return _mm_packus_epi16(_mm_srli_epi16(a, 8), _mm_srli_epi16(b, 8));
}

static size_t shuffle_2(const uint8_t *from, uint8_t *to, size_t count) {
  size_t i = 0;
  for (; i + 16 <= count; i += 16) {
    const __m128i a = load(from + 2 * i), b = load(from + 2 * i + 16);
    store(to + i, even_bytes(a, b));
    store(to + count + i, odd_bytes(a, b));
  }
  return i;
}

static size_t shuffle_4(const uint8_t *from, uint8_t *to, size_t count) {
  size_t i = 0;
  for (; i + 16 <= count; i += 16) {
    const __m128i a = load(from + 4 * i), b = load(from + 4 * i + 16), c = load(from + 4 * i + 32), d = load(from + 4 * i + 48);
    const __m128i even_ab = even_bytes(a, b), even_cd = even_bytes(c, d), odd_ab = odd_bytes(a, b), odd_cd = odd_bytes(c, d);
    store(to + i, even_bytes(even_ab, even_cd));
    store(to + count + i, even_bytes(odd_ab, odd_cd));
    store(to + 2 * count + i, odd_bytes(even_ab, even_cd));
    store(to + 3 * count + i, odd_bytes(odd_ab, odd_cd));
  }
  return i;
}

static size_t unshuffle_2(const uint8_t *from, uint8_t *to, size_t count) {
  size_t i = 0;
  for (; i + 16 <= count; i += 16) {
    const __m128i a = load(from + i), b = load(from + count + i);
    store(to + 2 * i, _mm_unpacklo_epi8(a, b));
    store(to + 2 * i + 16, _mm_unpackhi_epi8(a, b));
  }
  return i;
}

static size_t unshuffle_4(const uint8_t *from, uint8_t *to, size_t count) {
  size_t i = 0;
  for (; i + 16 <= count; i += 16) {
    const __m128i a = load(from + i), b = load(from + count + i), c = load(from + 2 * count + i), d = load(from + 3 * count + i);
    const __m128i low_ab = _mm_unpacklo_epi8(a, b), high_ab = _mm_unpackhi_epi8(a, b);
    const __m128i low_cd = _mm_unpacklo_epi8(c, d), high_cd = _mm_unpackhi_epi8(c, d);
    store(to + 4 * i, _mm_unpacklo_epi16(low_ab, low_cd));
    store(to + 4 * i + 16, _mm_unpackhi_epi16(low_ab, low_cd));
    store(to + 4 * i + 32, _mm_unpacklo_epi16(high_ab, high_cd));
    store(to + 4 * i + 48, _mm_unpackhi_epi16(high_ab, high_cd));
  }
  return i;
}

#elif defined(__ARM_NEON) && defined(__aarch64__)

static size_t shuffle_2(const uint8_t *from, uint8_t *to, size_t count) {
  size_t i = 0;
  for (; i + 16 <= count; i += 16) {
    const uint8x16x2_t v = vld2q_u8(from + 2 * i);
    vst1q_u8(to + i, v.val[0]);
    vst1q_u8(to + count + i, v.val[1]);
  }
  return i;
}

static size_t shuffle_4(const uint8_t *from, uint8_t *to, size_t count) {
  size_t i = 0;
  for (; i + 16 <= count; i += 16) {
    const uint8x16x4_t v = vld4q_u8(from + 4 * i);
    for (unsigned b = 0; b < 4; b++) {
      vst1q_u8(to + b * count + i, v.val[b]);
    }
  }
  return i;
}

static size_t unshuffle_2(const uint8_t *from, uint8_t *to, size_t count) {
  size_t i = 0;
  for (; i + 16 <= count; i += 16) {
    const uint8x16x2_t v = {{vld1q_u8(from + i), vld1q_u8(from + count + i)}};
    vst2q_u8(to + 2 * i, v);
  }
  return i;
}

static size_t unshuffle_4(const uint8_t *from, uint8_t *to, size_t count) {
  size_t i = 0;
  for (; i + 16 <= count; i += 16) {
    const uint8x16x4_t v = {
        {vld1q_u8(from + i), vld1q_u8(from + count + i), vld1q_u8(from + 2 * count + i), vld1q_u8(from + 3 * count + i)}};
    vst4q_u8(to + 4 * i, v);
  }
  return i;
}

#else

static size_t do_none(const uint8_t *from, uint8_t *to, size_t count) {
  (void)from;
  (void)to;
  (void)count;
  return 0;
}
#define shuffle_2   do_none
#define shuffle_4   do_none
#define unshuffle_2 do_none
#define unshuffle_4 do_none

#endif

void shuffle_bytes(const void *from, void *to, size_t size, unsigned width) {
  const size_t count = size / width;
  const size_t done = width == 4 ? shuffle_4(from, to, count) : width == 2 ? shuffle_2(from, to, count) : 0;
  shuffle_some(from, to, done, count, count, width);
}

void unshuffle_bytes(const void *from, void *to, size_t size, unsigned width) {
  const size_t count = size / width;
  const size_t done = width == 4 ? unshuffle_4(from, to, count) : width == 2 ? unshuffle_2(from, to, count) : 0;
  unshuffle_some(from, to, done, count, count, width);
}
