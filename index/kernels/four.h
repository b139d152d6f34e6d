/*
 * Four components at a time, in the 16-byte vectors that every target has (or the compiler makes up). A comparison of two
 * gives lanes of all ones or zeros.
 *
 * Threads: pure functions.
 */
#ifndef TURB_INDEX_KERNELS_FOUR_H
#define TURB_INDEX_KERNELS_FOUR_H

#include <stdint.h>
#include <string.h>

#include "turbidite/turbidite.h"

enum { FOUR = 4 };
typedef float floats __attribute__((vector_size(16)));
typedef int32_t ints __attribute__((vector_size(16)));
typedef uint32_t uints __attribute__((vector_size(16)));
typedef uint16_t halves __attribute__((vector_size(8)));
typedef uint8_t octets __attribute__((vector_size(4)));
typedef int8_t signed_octets __attribute__((vector_size(4)));

/* As f16_to_f32. */
static inline floats four_from_f16(halves from) {
  uints whole = __builtin_convertvector(from, uints);
  ints bits = (ints)whole;
  floats scaled = (floats)((bits & 0x7fff) << 13) * 0x1p112f;
  ints special = ((bits & 0x7c00) == 0x7c00) & 0x7f800000;
  return (floats)((ints)scaled | special | (ints)((whole & 0x8000u) << 16));
}

/* Four components of any type but TURB_BITS, as f32. */
static inline floats four_load(turb_type type, const unsigned char *from) {
  halves half;
  octets octet;
  floats values;
  if (type == TURB_F32) {
    memcpy(&values, from, sizeof values);
    return values;
  }
  if (type == TURB_F16 || type == TURB_BF16) {
    memcpy(&half, from, sizeof half);
    return type == TURB_F16 ? four_from_f16(half) : (floats)(__builtin_convertvector(half, uints) << 16);
  }
  memcpy(&octet, from, sizeof octet);
  ints integers = type == TURB_U8 ? __builtin_convertvector(octet, ints) : __builtin_convertvector((signed_octets)octet, ints);
  return __builtin_convertvector(integers, floats);
}

#endif
