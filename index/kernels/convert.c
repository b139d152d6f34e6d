/*
 * Conversions between element types and checks of single vectors; see convert.h.
 *
 * Written so that a compiler vectorises the loops for any target: no branches in them, the first offender is
 * looked for in a second pass that only runs when the first one saw any.
 *
 * Threads: pure functions.
 */
#include "index/kernels/convert.h"

#include <float.h>
#include <math.h>

/* ---- f32 → narrow ---- */

static const unsigned char *component(const void *vector, size_t index, size_t bytes) {
  return (const unsigned char *)vector + index * bytes;
}

static float f32_at(const float *from, size_t i) {
  float value;
  memcpy(&value, component(from, i, sizeof value), sizeof value);
  return value;
}

/* Smallest magnitude that rounds to infinity, as f32 bits; everything from there up is out of range. */
static uint32_t overflow_bits(turb_type type) {
  switch (type) {
  case TURB_F16: return 0x477ff000;  /* 65520 */
  case TURB_BF16: return 0x7f7f8000; /* halfway between the largest bf16 and 2^128 */
  default: return 0x7f800000;
  }
}

static uint32_t narrow_f16(const float *from, size_t dimension, unsigned char *to) {
  uint32_t outside = 0;
  for (size_t i = 0; i < dimension; i++) {
    float value = f32_at(from, i);
    uint16_t half = f16_from_f32(value);
    outside |= (half & 0x7c00) == 0x7c00;
    memcpy(to + 2 * i, &half, sizeof half);
  }
  return outside;
}

static uint32_t narrow_bf16(const float *from, size_t dimension, unsigned char *to) {
  uint32_t outside = 0;
  for (size_t i = 0; i < dimension; i++) {
    float value = f32_at(from, i);
    uint16_t half = bf16_from_f32(value);
    outside |= (half & 0x7f80) == 0x7f80;
    memcpy(to + 2 * i, &half, sizeof half);
  }
  return outside;
}

/* Adding 1.5 * 2^23 pushes the fraction out, rounding it to nearest even. */
static float round_even(float value) {
  return (value + 0x1.8p23f) - 0x1.8p23f;
}

static uint32_t narrow_integer(const float *from, size_t dimension, float low, float high, unsigned char *to) {
  uint32_t outside = 0;
  for (size_t i = 0; i < dimension; i++) {
    float value = f32_at(from, i);
    float clamped = value > low - 1 ? value : low - 1;
    clamped = clamped < high + 1 ? clamped : high + 1;
    float rounded = round_even(clamped);
    int inside = (rounded >= low) & (rounded <= high) & (value == value);
    outside |= (uint32_t)!inside;
    rounded = rounded < low ? low : rounded;
    rounded = rounded > high ? high : rounded;
    rounded = value == value ? rounded : 0;
    to[i] = (unsigned char)(int)rounded;
  }
  return outside;
}

static size_t first_outside(turb_type type, const float *from, size_t dimension) {
  float low = type == TURB_I8 ? -128.0f : 0.0f;
  float high = type == TURB_I8 ? 127.0f : 255.0f;
  for (size_t i = 0; i < dimension; i++) {
    float value = f32_at(from, i);
    if (type == TURB_I8 || type == TURB_U8) {
      if (!(value > low - 1 && value < high + 1) || round_even(value) < low || round_even(value) > high)
        return i;
    } else if ((f32_to_bits(value) & 0x7fffffff) >= overflow_bits(type)) {
      return i;
    }
  }
  return SIZE_MAX;
}

size_t vector_from_f32(turb_type type, const float *from, size_t dimension, void *to) {
  uint32_t outside = 0;
  switch (type) {
  case TURB_F32: memcpy(to, from, dimension * sizeof *from); return vector_first_nonfinite(TURB_F32, from, dimension);
  case TURB_F16: outside = narrow_f16(from, dimension, to); break;
  case TURB_BF16: outside = narrow_bf16(from, dimension, to); break;
  case TURB_I8: outside = narrow_integer(from, dimension, -128, 127, to); break;
  case TURB_U8: outside = narrow_integer(from, dimension, 0, 255, to); break;
  case TURB_BITS: return 0;
  }
  return outside ? first_outside(type, from, dimension) : SIZE_MAX;
}

/* ---- narrow → f32 ---- */

void vector_to_f32(turb_type type, const void *from, size_t dimension, float *to) {
  const unsigned char *bytes = from;
  uint16_t half;
  switch (type) {
  case TURB_F32: memcpy(to, from, dimension * sizeof *to); break;
  case TURB_F16:
    for (size_t i = 0; i < dimension; i++) {
      memcpy(&half, bytes + 2 * i, sizeof half);
      to[i] = f16_to_f32(half);
    }
    break;
  case TURB_BF16:
    for (size_t i = 0; i < dimension; i++) {
      memcpy(&half, bytes + 2 * i, sizeof half);
      to[i] = bf16_to_f32(half);
    }
    break;
  case TURB_I8:
    for (size_t i = 0; i < dimension; i++)
      to[i] = (float)(int8_t)bytes[i];
    break;
  case TURB_U8:
    for (size_t i = 0; i < dimension; i++)
      to[i] = (float)bytes[i];
    break;
  case TURB_BITS: break;
  }
}

/* ---- checks ---- */

/*
 * A component is not finite when its exponent is all ones, and only then does adding one to the exponent
 * reach the sign bit of the masked word: and, add, or, and one test at the end. It costs no floating-point
 * exception, which a trap of the embedding program could be waiting for.
 */
typedef uint64_t words __attribute__((vector_size(16)));
typedef uint32_t words32 __attribute__((vector_size(16)));
typedef uint16_t words16 __attribute__((vector_size(16)));

static inline words load_words(const unsigned char *from) {
  words value;
  memcpy(&value, from, sizeof value);
  return value;
}

static inline words carry_words(words value, int component_bytes, uint32_t exponent, uint32_t one) {
  if (component_bytes == 4) {
    words32 field = (words32)value & exponent;
    return (words)(field + one);
  }
  words16 field = (words16)value & (uint16_t)exponent;
  return (words)(field + (uint16_t)one);
}

/* Whether any component of a whole number of 16-byte words, at least one, has its exponent all ones. */
static inline bool any_special(const unsigned char *from, size_t bytes, int component_bytes, uint32_t exponent, uint32_t one) {
  words seen[4] = {{0}};
  size_t i = 0;
  for (; i + 64 <= bytes; i += 64) {
    for (size_t j = 0; j < 4; j++)
      seen[j] |= carry_words(load_words(from + i + 16 * j), component_bytes, exponent, one);
  }
  for (; i + 16 <= bytes; i += 16)
    seen[0] |= carry_words(load_words(from + i), component_bytes, exponent, one);
  /* The last word may overlap the one before. */
  seen[1] |= carry_words(load_words(from + bytes - 16), component_bytes, exponent, one);
  words all = (seen[0] | seen[1]) | (seen[2] | seen[3]);
  uint64_t signs = component_bytes == 4 ? 0x8000000080000000u : 0x8000800080008000u;
  return ((all[0] | all[1]) & signs) != 0;
}

static bool is_special(const unsigned char *at, turb_type type) {
  uint32_t word = 0;
  uint16_t half = 0;
  switch (type) {
  case TURB_F32: memcpy(&word, at, sizeof word); return (word & 0x7f800000) == 0x7f800000;
  case TURB_F16: memcpy(&half, at, sizeof half); return (half & 0x7c00) == 0x7c00;
  case TURB_BF16: memcpy(&half, at, sizeof half); return (half & 0x7f80) == 0x7f80;
  default: return false;
  }
}

size_t vector_first_nonfinite(turb_type type, const void *vector, size_t dimension) {
  size_t component_bytes = vector_component_bytes(type);
  if (component_bytes < 2)
    return SIZE_MAX;
  size_t bytes = dimension * component_bytes;
  if (bytes >= 16) {
    bool special = false;
    if (type == TURB_F32)
      special = any_special(vector, bytes, 4, 0x7f800000, 0x00800000);
    if (type == TURB_F16)
      special = any_special(vector, bytes, 2, 0x7c00, 0x0400);
    if (type == TURB_BF16)
      special = any_special(vector, bytes, 2, 0x7f80, 0x0080);
    if (!special)
      return SIZE_MAX;
  }
  for (size_t i = 0; i < dimension; i++) {
    if (is_special(component(vector, i, component_bytes), type))
      return i;
  }
  return SIZE_MAX;
}

/* ---- norm ---- */

enum { NORM_BLOCK = 64 };

float vector_norm(turb_type type, const void *vector, size_t dimension) {
  if (type == TURB_BITS)
    return 0;
  size_t component_bytes = vector_component_bytes(type);
  double sums[4] = {0, 0, 0, 0};
  float block[NORM_BLOCK];
  for (size_t i = 0; i < dimension; i += NORM_BLOCK) {
    size_t count = dimension - i < NORM_BLOCK ? dimension - i : NORM_BLOCK;
    vector_to_f32(type, component(vector, i, component_bytes), count, block);
    for (size_t j = count; j < NORM_BLOCK; j++)
      block[j] = 0;
    for (size_t j = 0; j < NORM_BLOCK; j += 4) {
      for (size_t lane = 0; lane < 4; lane++)
        sums[lane] += (double)block[j + lane] * (double)block[j + lane];
    }
  }
  double length = sqrt((sums[0] + sums[2]) + (sums[1] + sums[3]));
  return length > (double)FLT_MAX ? INFINITY : (float)length;
}
