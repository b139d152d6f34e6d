/*
 * Conversions and vector checks (index/kernels/convert.h): every f16 and bf16 pattern, rounding against nearbyint in double,
 * offenders found at every index.
 */
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "index/kernels/convert.h"
#include "tests/support/test.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* Fraction bits and the smallest exponent of a normal number. */
struct format {
  turb_type type;
  int fraction_bits, least_exponent;
  double largest;
};

static const struct format formats[] = {{TURB_F16, 10, -14, 65504}, {TURB_BF16, 7, -126, 0x1.fep127}};

static double widen(const struct format *format, uint16_t pattern) {
  int exponent_bits = 15 - format->fraction_bits, bias = 1 - format->least_exponent;
  int exponent = pattern >> format->fraction_bits & ((1 << exponent_bits) - 1);
  int fraction = pattern & ((1 << format->fraction_bits) - 1);
  double magnitude;
  if (exponent == (1 << exponent_bits) - 1) {
    magnitude = fraction ? (double)NAN : (double)INFINITY;
  } else if (exponent == 0) {
    magnitude = ldexp(fraction, format->least_exponent - format->fraction_bits);
  } else {
    magnitude = ldexp(fraction + (1 << format->fraction_bits), exponent - bias - format->fraction_bits);
  }
  return pattern & 0x8000 ? -magnitude : magnitude;
}

/* Rounds to the format's nearest, ties to even; beyond the largest, infinity. */
static double round_to(const struct format *format, double value) {
  int exponent = value == 0 ? format->least_exponent : ilogb(value);
  if (exponent < format->least_exponent)
    exponent = format->least_exponent;
  double unit = ldexp(1, exponent - format->fraction_bits);
  double rounded = nearbyint(value / unit) * unit;
  if (fabs(rounded) <= format->largest)
    return rounded;
  return copysign((double)INFINITY, value);
}

TEST(kernels_convert, every_pattern_widens_exactly) {
  for (size_t f = 0; f < COUNT(formats); f++) {
    for (uint32_t pattern = 0; pattern < 65536; pattern++) {
      uint16_t half = (uint16_t)pattern, back;
      float value;
      vector_to_f32(formats[f].type, &half, 1, &value);
      double wanted = widen(&formats[f], half);
      if (isnan(wanted)) {
        CHECK(isnan(value));
      } else {
        CHECK((double)value == wanted && !signbit(value) == !signbit(wanted));
      }
      size_t outside = vector_from_f32(formats[f].type, &value, 1, &back);
      CHECK_EQ(outside, isfinite(wanted) ? SIZE_MAX : 0);
      if (isnan(wanted)) {
        vector_to_f32(formats[f].type, &back, 1, &value);
        CHECK(isnan(value));
      } else {
        CHECK_EQ(back, half);
      }
    }
  }
}

static void check_narrowing(const struct format *format, float value) {
  uint16_t half;
  size_t outside = vector_from_f32(format->type, &value, 1, &half);
  double wanted = round_to(format, (double)value), got = widen(format, half);
  CHECK_MSG(got == wanted && !signbit(got) == !signbit(wanted), "type %d: %a gives %a, not %a", (int)format->type, (double)value, got,
            wanted);
  CHECK_EQ(outside, isfinite(wanted) ? SIZE_MAX : 0);
}

TEST(kernels_convert, narrowing_rounds_to_nearest_even) {
  struct random random;
  random_init(&random, test_seed());
  for (size_t f = 0; f < COUNT(formats); f++) {
    /* Each value, the middle above it and both neighbours of the middle. */
    for (uint32_t pattern = 0; pattern < 65536; pattern++) {
      double here = widen(&formats[f], (uint16_t)pattern), next = widen(&formats[f], (uint16_t)(pattern + 1));
      if (!isfinite(here) || pattern == 0x7fff)
        continue;
      if (!isfinite(next))
        next = here * 2 - widen(&formats[f], (uint16_t)(pattern - 1));
      float middle = (float)((here + next) / 2);
      if (!isfinite(middle))
        continue;
      check_narrowing(&formats[f], middle);
      check_narrowing(&formats[f], nextafterf(middle, INFINITY));
      check_narrowing(&formats[f], nextafterf(middle, -INFINITY));
    }
    for (uint64_t i = 0; i < test_scale(300000, 100000, 3000000); i++) {
      float value = f32_from_bits(random_u32(&random));
      if (isfinite(value))
        check_narrowing(&formats[f], value);
    }
  }
}

TEST(kernels_convert, integers_round_and_refuse) {
  static const struct {
    float value;
    int i8, u8; /* INT_MIN: out of range */
  } cases[] = {{0, 0, 0},
               {-0.0f, 0, 0},
               {0.5f, 0, 0},
               {1.5f, 2, 2},
               {2.5f, 2, 2},
               {-0.5f, 0, 0},
               {-0.51f, -1, 1000},
               {-1.5f, -2, 1000},
               {126.5f, 126, 126},
               {127.49f, 127, 127},
               {127.5f, 1000, 128},
               {-128.5f, -128, 1000},
               {-128.51f, 1000, 1000},
               {254.5f, 1000, 254},
               {255.49f, 1000, 255},
               {255.5f, 1000, 1000},
               {1e30f, 1000, 1000},
               {-1e30f, 1000, 1000},
               {INFINITY, 1000, 1000},
               {-INFINITY, 1000, 1000},
               {NAN, 1000, 1000},
               {0x1p-149f, 0, 0}};
  for (size_t i = 0; i < COUNT(cases); i++) {
    int8_t i8;
    uint8_t u8;
    CHECK_EQ(vector_from_f32(TURB_I8, &cases[i].value, 1, &i8), cases[i].i8 == 1000 ? 0 : SIZE_MAX);
    CHECK_EQ(vector_from_f32(TURB_U8, &cases[i].value, 1, &u8), cases[i].u8 == 1000 ? 0 : SIZE_MAX);
    if (cases[i].i8 != 1000)
      CHECK_EQ(i8, cases[i].i8);
    if (cases[i].u8 != 1000)
      CHECK_EQ(u8, cases[i].u8);
  }
  float back[256];
  unsigned char all[256];
  for (int i = 0; i < 256; i++)
    all[i] = (unsigned char)i;
  vector_to_f32(TURB_U8, all, 256, back);
  for (int i = 0; i < 256; i++)
    CHECK(back[i] == (float)i);
  vector_to_f32(TURB_I8, all, 256, back);
  for (int i = 0; i < 256; i++)
    CHECK(back[i] == (float)(i < 128 ? i : i - 256));
}

TEST(kernels_convert, reports_the_first_component_out_of_range) {
  enum { LENGTH = 70 };
  static const turb_type types[] = {TURB_F32, TURB_F16, TURB_BF16, TURB_I8, TURB_U8};
  static const float offenders[] = {NAN, INFINITY, -INFINITY, FLT_MAX};
  for (size_t t = 0; t < COUNT(types); t++) {
    for (size_t o = 0; o < COUNT(offenders); o++) {
      bool fits = types[t] == TURB_F32 && offenders[o] == FLT_MAX;
      for (size_t at = 0; at < LENGTH; at++) {
        float values[LENGTH];
        unsigned char narrow[LENGTH * 4 + 1];
        for (size_t i = 0; i < LENGTH; i++)
          values[i] = (float)i;
        values[at] = offenders[o];
        values[LENGTH - 1] = offenders[o];
        CHECK_EQ(vector_from_f32(types[t], values, LENGTH, narrow + 1), fits ? SIZE_MAX : at);
      }
    }
  }
}

/* Non-finite patterns of each type, and the largest finite ones, which are none. */
TEST(kernels_convert, finds_the_first_nonfinite_component) {
  static const turb_type types[] = {TURB_F32, TURB_F16, TURB_BF16};
  static const uint32_t bad[3][4] = {
      {0x7f800000, 0xff800000, 0x7f800001, 0xffffffff}, {0x7c00, 0xfc00, 0x7c01, 0xffff}, {0x7f80, 0xff80, 0x7f81, 0xffff}};
  static const uint32_t good[3][2] = {{0x7f7fffff, 0xff7fffff}, {0x7bff, 0xfbff}, {0x7f7f, 0xff7f}};
  unsigned char buffer[4 * 140 + 8];
  for (size_t t = 0; t < COUNT(types); t++) {
    size_t bytes = vector_component_bytes(types[t]);
    for (size_t dimension = 1; dimension <= 140; dimension++) {
      unsigned char *vector = buffer + dimension % 8;
      for (size_t i = 0; i < dimension; i++)
        memcpy(vector + i * bytes, &good[t][i % 2], bytes);
      CHECK_EQ(vector_first_nonfinite(types[t], vector, dimension), SIZE_MAX);
      for (size_t at = 0; at < dimension; at++) {
        memcpy(vector + at * bytes, &bad[t][at % 4], bytes);
        if (at % 3 == 0)
          memcpy(vector + (dimension - 1) * bytes, &bad[t][1], bytes);
        CHECK_EQ(vector_first_nonfinite(types[t], vector, dimension), at);
        memcpy(vector + at * bytes, &good[t][0], bytes);
        memcpy(vector + (dimension - 1) * bytes, &good[t][0], bytes);
      }
    }
  }
  memset(buffer, 0xff, sizeof buffer);
  CHECK_EQ(vector_first_nonfinite(TURB_I8, buffer, 100), SIZE_MAX);
  CHECK_EQ(vector_first_nonfinite(TURB_U8, buffer, 100), SIZE_MAX);
  CHECK_EQ(vector_first_nonfinite(TURB_BITS, buffer, 100), SIZE_MAX);
}

TEST(kernels_convert, norms) {
  float values[131];
  struct random random;
  random_init(&random, test_seed());
  for (size_t dimension = 1; dimension <= COUNT(values); dimension++) {
    double sum = 0;
    for (size_t i = 0; i < dimension; i++) {
      values[i] = (float)(random_double(&random) - 0.5);
      sum += (double)values[i] * (double)values[i];
    }
    CHECK_NEAR((double)vector_norm(TURB_F32, values, dimension), sqrt(sum), sqrt(sum) * 0x1p-23);
  }
  CHECK(vector_norm(TURB_F32, (float[]){3e30f, 4e30f}, 2) == 5e30f);
  CHECK(vector_norm(TURB_F32, (float[]){3e-40f, 0}, 2) == 3e-40f);
  CHECK(isinf(vector_norm(TURB_F32, (float[]){FLT_MAX, FLT_MAX}, 2)));
  CHECK(vector_norm(TURB_F32, (float[]){0, 0}, 2) == 0);
  CHECK(vector_norm(TURB_I8, (signed char[]){-3, 4}, 2) == 5);
  CHECK(vector_norm(TURB_U8, (unsigned char[]){255}, 1) == 255);
  CHECK(vector_norm(TURB_BF16, (uint16_t[]){0x4040, 0xc080}, 2) == 5);
  CHECK(vector_norm(TURB_F16, (uint16_t[]){0x4200, 0xc400}, 2) == 5);
}
