/*
 * Element types: row sizes, conversion from and to f32, the check for non-finite components, norms.
 *
 * A vector is a run of components in the host's byte order without padding; it may start at any address.
 * f16 is IEEE binary16, bf16 the upper half of an IEEE binary32. Bits are packed from bit 0 of byte 0
 * upward; the unused high bits of the last byte mean nothing.
 *
 * Invariants
 *   1. Narrowing rounds to nearest, ties to even, also into subnormals. A component that is NaN, infinite
 *      or rounds to something outside the finite range of its type is "out of range".
 *   2. Widening is exact.
 *   3. No call reads or writes past the last component.
 *
 * Threads: every function is pure. The rounding mode is taken to be the default one, subnormals on.
 */
#ifndef TURB_INDEX_KERNELS_CONVERT_H
#define TURB_INDEX_KERNELS_CONVERT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "turbidite/turbidite.h"

/* Bytes of one component; 0 for TURB_BITS, whose components share bytes. */
static inline size_t vector_component_bytes(turb_type type) {
  switch (type) {
  case TURB_F32: return 4;
  case TURB_F16:
  case TURB_BF16: return 2;
  case TURB_I8:
  case TURB_U8: return 1;
  case TURB_BITS: break;
  }
  return 0;
}

/* Bytes of a row of `dimension` components (bits for TURB_BITS), without padding. */
static inline size_t vector_row_bytes(turb_type type, size_t dimension) {
  return type == TURB_BITS ? (dimension + 7) / 8 : dimension * vector_component_bytes(type);
}

static inline float f32_from_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static inline uint32_t f32_to_bits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static inline float bf16_to_f32(uint16_t value) {
  return f32_from_bits((uint32_t)value << 16);
}

/* The exponent is moved up by a multiplication, which also makes subnormals right. */
static inline float f16_to_f32(uint16_t value) {
  uint32_t magnitude = (uint32_t)(value & 0x7fff) << 13;
  uint32_t special = (value & 0x7c00) == 0x7c00 ? 0x7f800000u : 0;
  uint32_t sign = (uint32_t)(value & 0x8000) << 16;
  float scaled = f32_from_bits(magnitude) * 0x1p112f;
  return f32_from_bits(f32_to_bits(scaled) | special | sign);
}

/* Rounds to nearest even; overflow gives infinity, NaN stays NaN. */
static inline uint16_t f16_from_f32(float value) {
  uint32_t bits = f32_to_bits(value);
  uint32_t magnitude = bits & 0x7fffffff;
  /* At 0.5 a unit in the last place is 2^-24, the smallest subnormal: the addition rounds for us. */
  uint32_t small = f32_to_bits(f32_from_bits(magnitude) + 0.5f) - 0x3f000000;
  uint32_t normal = (magnitude - 0x38000000u + 0xfff + (magnitude >> 13 & 1)) >> 13;
  uint32_t half = magnitude < 0x38800000 ? small : normal;
  half = magnitude >= 0x477ff000 ? 0x7c00 : half;
  half = magnitude > 0x7f800000 ? 0x7e00 : half;
  return (uint16_t)(half | (bits >> 16 & 0x8000));
}

/* Rounds to nearest even; overflow gives infinity, NaN stays NaN. */
static inline uint16_t bf16_from_f32(float value) {
  uint32_t bits = f32_to_bits(value);
  uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  uint32_t quiet = bits >> 16 | 0x40;
  return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? quiet : rounded);
}

/*
 * Narrows `dimension` floats to `type`, which may be any but TURB_BITS (TURB_F32 copies). Returns SIZE_MAX, or the
 * index of the first component out of range; the whole output is written in both cases, out-of-range
 * components as infinity, NaN or (integers) the nearest bound.
 */
size_t vector_from_f32(turb_type type, const float *from, size_t dimension, void *to);

/* Widens to f32. Any type but TURB_BITS; `from` and `to` do not overlap. */
void vector_to_f32(turb_type type, const void *from, size_t dimension, float *to);

/* Index of the first NaN or infinite component, or SIZE_MAX. Integers and bits have none. */
size_t vector_first_nonfinite(turb_type type, const void *vector, size_t dimension);

/* Euclidean length, summed in double and correct to a few units of the float's last place, without overflow
 * or underflow in between; +inf where it exceeds FLT_MAX. Any type but TURB_BITS. */
float vector_norm(turb_type type, const void *vector, size_t dimension);

#endif
