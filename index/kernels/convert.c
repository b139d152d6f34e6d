/*
 * Conversions between element types and checks of single vectors; see convert.h.
 *
 * Written so that a compiler vectorises the loops for any target: no branches in them, and the first offender is looked for
 * in a second pass that only runs when the first one saw any.
 *
 * Threads: pure functions.
 */
#include "index/kernels/convert.h"

#include <float.h>
#include <math.h>

#include "index/kernels/four.h"

static inline ints choose(ints mask, ints yes, ints no) {
  return (yes & mask) | (no & ~mask);
}

static inline const unsigned char *component(const void *vector, size_t index, size_t bytes) {
  return (const unsigned char *)vector + index * bytes;
}

/* ---- f32 → narrow: each converts a group and adds to *outside where a component is out of range ---- */

/* As f16_from_f32. */
static inline halves narrow_f16(floats from, ints *outside) {
  ints magnitude = (ints)from & 0x7fffffff;
  ints small = (ints)((floats)magnitude + 0.5f) - 0x3f000000;
  ints normal = (magnitude - 0x38000000 + 0xfff + ((magnitude >> 13) & 1)) >> 13;
  ints half = choose(magnitude < 0x38800000, small, normal);
  ints infinite = magnitude >= 0x477ff000;
  ints nan = magnitude > 0x7f800000;
  half = choose(infinite, (ints){0x7c00, 0x7c00, 0x7c00, 0x7c00}, half) | (nan & 0x0200);
  *outside |= infinite;
  return __builtin_convertvector((uints)(half | (((ints)from >> 16) & 0x8000)), halves);
}

/* As bf16_from_f32. */
static inline halves narrow_bf16(floats from, ints *outside) {
  uints bits = (uints)from;
  ints magnitude = (ints)from & 0x7fffffff;
  ints rounded = (ints)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
  ints quiet = (ints)((bits >> 16) | 0x40);
  *outside |= magnitude >= 0x7f7f8000;
  return __builtin_convertvector((uints)choose(magnitude > 0x7f800000, quiet, rounded), halves);
}

static inline floats choose_floats(ints mask, floats yes, floats no) {
  return (floats)choose(mask, (ints)yes, (ints)no);
}

/* Adding 1.5 * 2^23 pushes the fraction out, rounding it to nearest even. */
static inline octets narrow_integers(floats from, float lowest, float highest, ints *outside) {
  floats low = {lowest, lowest, lowest, lowest}, high = {highest, highest, highest, highest};
  floats clamped = choose_floats(from > low - 1, from, low - 1); /* NaN is low too */
  clamped = choose_floats(clamped < high + 1, clamped, high + 1);
  floats rounded = (clamped + 0x1.8p23f) - 0x1.8p23f;
  *outside |= (rounded < low) | (rounded > high);
  rounded = choose_floats(rounded < low, low, rounded);
  rounded = choose_floats(rounded > high, high, rounded);
  return __builtin_convertvector(__builtin_convertvector(rounded, ints), octets);
}

static inline void narrow_group(turb_type type, floats from, unsigned char *to, ints *outside) {
  halves half;
  octets octet;
  switch (type) {
  case TURB_F16: half = narrow_f16(from, outside), memcpy(to, &half, sizeof half); break;
  case TURB_BF16: half = narrow_bf16(from, outside), memcpy(to, &half, sizeof half); break;
  case TURB_I8: octet = narrow_integers(from, -128, 127, outside), memcpy(to, &octet, sizeof octet); break;
  default: octet = narrow_integers(from, 0, 255, outside), memcpy(to, &octet, sizeof octet); break;
  }
}

/* Whether any component was out of range. `type` is a constant where this is called. */
static inline __attribute__((always_inline)) bool narrow(turb_type type, const float *from, size_t dimension, unsigned char *to) {
  size_t bytes = vector_component_bytes(type), i = 0;
  ints outside = {0};
  floats group = {0};
  for (; i + FOUR <= dimension; i += FOUR) {
    memcpy(&group, component(from, i, sizeof *from), sizeof group);
    narrow_group(type, group, to + i * bytes, &outside);
  }
  if (i < dimension) {
    unsigned char last[2 * FOUR];
    group = (floats){0};
    memcpy(&group, component(from, i, sizeof *from), (dimension - i) * sizeof *from);
    narrow_group(type, group, last, &outside);
    memcpy(to + i * bytes, last, (dimension - i) * bytes);
  }
  return (outside[0] | outside[1] | outside[2] | outside[3]) != 0;
}

static size_t first_outside(turb_type type, const float *from, size_t dimension) {
  for (size_t i = 0; i < dimension; i++) {
    unsigned char narrowed[2 * FOUR];
    floats group = {0};
    ints outside = {0};
    memcpy(&group, component(from, i, sizeof *from), sizeof *from);
    narrow_group(type, group, narrowed, &outside);
    if (outside[0])
      return i;
  }
  return SIZE_MAX;
}

size_t vector_from_f32(turb_type type, const float *from, size_t dimension, void *to) {
  bool outside = false;
  switch (type) {
  case TURB_F32: memcpy(to, from, dimension * sizeof *from); return vector_first_nonfinite(TURB_F32, from, dimension);
  case TURB_F16: outside = narrow(TURB_F16, from, dimension, to); break;
  case TURB_BF16: outside = narrow(TURB_BF16, from, dimension, to); break;
  case TURB_I8: outside = narrow(TURB_I8, from, dimension, to); break;
  case TURB_U8: outside = narrow(TURB_U8, from, dimension, to); break;
  case TURB_BITS: return 0;
  }
  return outside ? first_outside(type, from, dimension) : SIZE_MAX;
}

/* ---- narrow → f32 ---- */

/* `type` is a constant where this is called. */
static inline __attribute__((always_inline)) void widen(turb_type type, const void *from, size_t dimension, float *to) {
  size_t bytes = vector_component_bytes(type), i = 0;
  floats group;
  for (; i + FOUR <= dimension; i += FOUR) {
    group = four_load(type, component(from, i, bytes));
    memcpy(to + i, &group, sizeof group);
  }
  if (i < dimension) {
    unsigned char last[2 * FOUR] = {0};
    memcpy(last, component(from, i, bytes), (dimension - i) * bytes);
    group = four_load(type, last);
    memcpy(to + i, &group, (dimension - i) * sizeof *to);
  }
}

void vector_to_f32(turb_type type, const void *from, size_t dimension, float *to) {
  switch (type) {
  case TURB_F32: memcpy(to, from, dimension * sizeof *to); break;
  case TURB_F16: widen(TURB_F16, from, dimension, to); break;
  case TURB_BF16: widen(TURB_BF16, from, dimension, to); break;
  case TURB_I8: widen(TURB_I8, from, dimension, to); break;
  case TURB_U8: widen(TURB_U8, from, dimension, to); break;
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
typedef uint16_t words16 __attribute__((vector_size(16)));

static inline words load_words(const unsigned char *from) {
  words value;
  memcpy(&value, from, sizeof value);
  return value;
}

static inline words carry_words(words value, int component_bytes, uint32_t exponent, uint32_t one) {
  if (component_bytes == 4) {
    uints field = (uints)value & exponent;
    return (words)(field + one);
  }
  words16 field = (words16)value & (uint16_t)exponent;
  return (words)(field + (uint16_t)one);
}

/* Whether any component of a whole number of 16-byte words, at least one, has its exponent all ones. */
static inline bool any_special(const unsigned char *from, size_t bytes, int component_bytes, uint32_t exponent, uint32_t one) {
  words a = {0}, b = {0}, c = {0}, d = {0};
  size_t i = 0;
  for (; i + 64 <= bytes; i += 64) {
    a |= carry_words(load_words(from + i), component_bytes, exponent, one);
    b |= carry_words(load_words(from + i + 16), component_bytes, exponent, one);
    c |= carry_words(load_words(from + i + 32), component_bytes, exponent, one);
    d |= carry_words(load_words(from + i + 48), component_bytes, exponent, one);
  }
  for (; i + 16 <= bytes; i += 16)
    a |= carry_words(load_words(from + i), component_bytes, exponent, one);
  /* The last word may overlap the one before. */
  b |= carry_words(load_words(from + bytes - 16), component_bytes, exponent, one);
  words all = (a | b) | (c | d);
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

typedef double doubles __attribute__((vector_size(32)));

/* `type` is a constant where this is called. */
static inline __attribute__((always_inline)) double square_sum(turb_type type, const void *vector, size_t dimension) {
  size_t bytes = vector_component_bytes(type), i = 0;
  doubles even = {0}, odd = {0}, wide;
  for (; i + 2 * FOUR <= dimension; i += 2 * FOUR) {
    wide = __builtin_convertvector(four_load(type, component(vector, i, bytes)), doubles);
    even += wide * wide;
    wide = __builtin_convertvector(four_load(type, component(vector, i + FOUR, bytes)), doubles);
    odd += wide * wide;
  }
  for (; i < dimension; i += FOUR) {
    unsigned char last[FOUR * sizeof(float)] = {0};
    memcpy(last, component(vector, i, bytes), (dimension - i < FOUR ? dimension - i : FOUR) * bytes);
    wide = __builtin_convertvector(four_load(type, last), doubles);
    even += wide * wide;
  }
  even += odd;
  return (even[0] + even[2]) + (even[1] + even[3]);
}

float vector_norm(turb_type type, const void *vector, size_t dimension) {
  double sum = 0;
  switch (type) {
  case TURB_F32: sum = square_sum(TURB_F32, vector, dimension); break;
  case TURB_F16: sum = square_sum(TURB_F16, vector, dimension); break;
  case TURB_BF16: sum = square_sum(TURB_BF16, vector, dimension); break;
  case TURB_I8: sum = square_sum(TURB_I8, vector, dimension); break;
  case TURB_U8: sum = square_sum(TURB_U8, vector, dimension); break;
  case TURB_BITS: break;
  }
  double length = sqrt(sum);
  return length > (double)FLT_MAX ? INFINITY : (float)length;
}
