/*
 * Parsing and printing of values; see value.h.
 *
 * The command sees the public header alone, so half-precision numbers are converted here, by the rule of
 * any binary format with m bits of mantissa and not for speed.
 */
#include "value.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TEXT_FILE_BYTES (8u << 20) /* 65,536 components of 128 characters */

__attribute__((format(printf, 2, 3))) static bool refuse(struct problem *problem, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  (void)vsnprintf(problem->text, sizeof problem->text, format, arguments);
  va_end(arguments);
  return false;
}

/* ---- bytes ---- */

static bool value_take(struct value *value, size_t size, struct problem *problem) {
  value->size = size;
  value->data = malloc(size != 0 ? size : 1);
  return value->data != NULL || refuse(problem, "out of memory");
}

static int hex_digit(char character) {
  if (character >= '0' && character <= '9') {
    return character - '0';
  }
  const char lower = (char)(character | 0x20);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

static bool parse_hexadecimal(const char *text, struct value *value, struct problem *problem) {
  const char *digits = text + 2;
  const size_t count = strlen(digits);
  if (count == 0 || count % 2 != 0) {
    return refuse(problem, "'%.80s': an even number of hexadecimal digits must follow 0x", text);
  }
  if (!value_take(value, count / 2, problem)) {
    return false;
  }
  for (size_t i = 0; i < count; i += 2) {
    const int high = hex_digit(digits[i]);
    const int low = hex_digit(digits[i + 1]);
    if (high < 0 || low < 0) {
      free(value->data);
      value->data = NULL;
      return refuse(problem, "'%.80s': '%c' is not a hexadecimal digit", text, high < 0 ? digits[i] : digits[i + 1]);
    }
    ((uint8_t *)value->data)[i / 2] = (uint8_t)(high << 4 | low);
  }
  return true;
}

/* The bytes of a file, at most `limit`. */
static bool read_file(const char *path, size_t limit, struct value *value, struct problem *problem) {
  const bool standard = strcmp(path, "-") == 0;
  const int fd = standard ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    return refuse(problem, "%s: %s", path, strerror(errno));
  }
  size_t capacity = 0;
  bool good = true;
  value->data = NULL;
  value->size = 0;
  for (ssize_t got = 1; got != 0 && good;) {
    if (value->size == capacity) {
      capacity = capacity == 0 ? 64u << 10 : 2 * capacity;
      void *grown = realloc(value->data, capacity);
      good = grown != NULL || refuse(problem, "out of memory");
      value->data = grown != NULL ? grown : value->data;
    }
    got = good ? read(fd, (uint8_t *)value->data + value->size, capacity - value->size) : 0;
    if (got < 0 && errno != EINTR) {
      good = refuse(problem, "%s: %s", path, strerror(errno));
    }
    value->size += got > 0 ? (size_t)got : 0;
    good = good && (value->size <= limit || refuse(problem, "%s: more than %zu bytes", path, limit));
  }
  if (!standard) {
    (void)close(fd);
  }
  if (!good) {
    free(value->data);
    *value = (struct value){NULL, 0};
  }
  return good;
}

static bool parse_text(const char *text, struct value *value, struct problem *problem) {
  const size_t size = strlen(text);
  if (!value_take(value, size, problem)) {
    return false;
  }
  memcpy(value->data, text, size);
  return true;
}

bool value_parse_key(const char *text, bool numbers, struct value *value, struct problem *problem) {
  *value = (struct value){NULL, 0};
  if (strncmp(text, "0x", 2) == 0) {
    if (!parse_hexadecimal(text, value, problem)) {
      return false;
    }
  } else if (numbers) {
    char *end = NULL;
    errno = 0;
    const uint64_t number = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end != '\0' || errno != 0) {
      return refuse(problem, "key '%.80s' is not a number below 2^64", text);
    }
    const uint64_t big = htobe64(number);
    if (!value_take(value, sizeof big, problem)) {
      return false;
    }
    memcpy(value->data, &big, sizeof big);
  } else if (!parse_text(text, value, problem)) {
    return false;
  }
  if (value->size >= 1 && value->size <= TURB_MAX_KEY_BYTES) {
    return true;
  }
  const size_t size = value->size;
  free(value->data);
  *value = (struct value){NULL, 0};
  return refuse(problem, "a key of %zu bytes; 1 to %d are possible", size, TURB_MAX_KEY_BYTES);
}

bool value_parse_attributes(const char *text, struct value *value, struct problem *problem) {
  *value = (struct value){NULL, 0};
  if (text[0] == '@') {
    return read_file(text + 1, TURB_MAX_ATTRIBUTE_BYTES, value, problem);
  }
  return strncmp(text, "0x", 2) == 0 ? parse_hexadecimal(text, value, problem) : parse_text(text, value, problem);
}

/* ---- numbers ---- */

/* A binary format of 16 bits: sign, exponent, m bits of mantissa. */
struct half_format {
  int mantissa_bits;
  int lowest_exponent; /* of normal numbers */
  int highest_exponent;
};
static const struct half_format half_f16 = {10, -14, 15};
static const struct half_format half_bf16 = {7, -126, 127};

static bool half_encode(const struct half_format *format, double value, uint16_t *bits) {
  const uint16_t sign = signbit(value) ? 0x8000 : 0;
  const double magnitude = fabs(value);
  if (magnitude == 0) {
    *bits = sign;
    return true;
  }
  int exponent = 0;
  (void)frexp(magnitude, &exponent); /* magnitude = f × 2^exponent, f in [0.5, 1) */
  int unit = exponent - 1 - format->mantissa_bits;
  const int lowest_unit = format->lowest_exponent - format->mantissa_bits;
  unit = unit < lowest_unit ? lowest_unit : unit;
  /* The default rounding mode: to nearest, ties to even. A carry into the next power of two is right as it is. */
  const double rounded = nearbyint(ldexp(magnitude, -unit));
  if (ldexp(rounded, unit) >= ldexp(1, format->highest_exponent + 1)) {
    return false;
  }
  /* Units above 2^m are normal numbers: the implicit bit adds the first exponent step by itself. */
  const int steps = unit - lowest_unit;
  *bits = (uint16_t)(sign | (uint16_t)((uint32_t)rounded + ((uint32_t)steps << format->mantissa_bits)));
  return true;
}

static double half_decode(const struct half_format *format, uint16_t bits) {
  const int field = (bits & 0x7fff) >> format->mantissa_bits;
  const int mantissa = bits & ((1 << format->mantissa_bits) - 1);
  const int unit = format->lowest_exponent - format->mantissa_bits;
  const double magnitude = field == 0 ? ldexp(mantissa, unit) : ldexp(mantissa + (1 << format->mantissa_bits), unit + field - 1);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

static bool integer_encode(double value, double low, double high, uint8_t *byte) {
  const double rounded = nearbyint(value);
  if (!(rounded >= low && rounded <= high)) {
    return false;
  }
  *byte = (uint8_t)(int)rounded;
  return true;
}

/* Puts component `index` into a zeroed row; false where the type cannot hold it. */
static bool component_encode(turb_type type, double value, void *row, size_t index) {
  uint8_t *bytes = row;
  const float single = (float)value;
  uint16_t half = 0;
  bool good = false;
  switch (type) {
  case TURB_F32: memcpy(bytes + 4 * index, &single, sizeof single); return isfinite(single);
  case TURB_F16:
  case TURB_BF16:
    good = isfinite(value) && half_encode(type == TURB_F16 ? &half_f16 : &half_bf16, value, &half);
    memcpy(bytes + 2 * index, &half, sizeof half);
    return good;
  case TURB_I8: return integer_encode(value, -128, 127, bytes + index);
  case TURB_U8: return integer_encode(value, 0, 255, bytes + index);
  case TURB_BITS:
    if (value != 0 && value != 1) {
      return false;
    }
    bytes[index / 8] = (uint8_t)(bytes[index / 8] | (value != 0 ? 1u << (index % 8) : 0));
    return true;
  }
  return false;
}

/* ---- vectors ---- */

static const char *skip_blanks(const char *at) {
  return at + strspn(at, " \t\r\n");
}

/* Parses numbers separated by commas or blanks, perhaps in brackets, into a zeroed row. */
static bool parse_list(const char *text, const turb_collection_info *info, void *row, struct problem *problem) {
  const char *at = skip_blanks(text);
  const bool bracket = *at == '[';
  uint64_t count = 0;
  at = skip_blanks(at + bracket);
  while (*at != '\0' && *at != ']') {
    char *end = NULL;
    const double value = strtod(at, &end);
    if (end == at) {
      return refuse(problem, "component %" PRIu64 ": '%.20s' is not a number", count, at);
    }
    if (count < info->dimension && !component_encode(info->type, value, row, count)) {
      return refuse(problem, "component %" PRIu64 ": %.*s is outside what the collection's type can hold", count, (int)(end - at), at);
    }
    count++;
    at = skip_blanks(end);
    if (*at == ',') {
      at = skip_blanks(at + 1);
      if (*at == '\0' || *at == ']' || *at == ',') {
        return refuse(problem, "component %" PRIu64 ": no number stands behind the comma", count);
      }
    }
  }
  if (bracket != (*at == ']')) {
    return refuse(problem, "the list's brackets do not match");
  }
  if (*at == ']' && *skip_blanks(at + 1) != '\0') {
    return refuse(problem, "'%.20s' stands behind the list", skip_blanks(at + 1));
  }
  if (count != info->dimension) {
    return refuse(problem, "the vector has %" PRIu64 " components; collection %s has dimension %" PRIu32, count, info->name,
                  info->dimension);
  }
  return true;
}

static bool check_row(const char *what, const turb_collection_info *info, struct value *value, struct problem *problem) {
  if (value->size == info->row_bytes) {
    return true;
  }
  const size_t size = value->size;
  free(value->data);
  *value = (struct value){NULL, 0};
  return refuse(problem, "%.80s has %zu bytes; a vector of collection %s has %" PRIu32, what, size, info->name, info->row_bytes);
}

static bool parse_list_value(const char *text, const turb_collection_info *info, struct value *value, struct problem *problem) {
  value->size = info->row_bytes;
  value->data = calloc(1, info->row_bytes);
  if (value->data == NULL) {
    return refuse(problem, "out of memory");
  }
  if (parse_list(text, info, value->data, problem)) {
    return true;
  }
  free(value->data);
  *value = (struct value){NULL, 0};
  return false;
}

bool value_parse_vector(const char *text, const turb_collection_info *info, struct value *value, struct problem *problem) {
  *value = (struct value){NULL, 0};
  if (text[0] == '@') {
    return read_file(text + 1, info->row_bytes + (1u << 16), value, problem) && check_row(text + 1, info, value, problem);
  }
  if (strncmp(text, "0x", 2) == 0) {
    return parse_hexadecimal(text, value, problem) && check_row("the vector", info, value, problem);
  }
  return parse_list_value(text, info, value, problem);
}

bool value_read_vector(const char *path, const turb_collection_info *info, struct value *value, struct problem *problem) {
  *value = (struct value){NULL, 0};
  struct value text = {NULL, 0};
  if (!read_file(path, TEXT_FILE_BYTES, &text, problem)) {
    return false;
  }
  char *terminated = realloc(text.data, text.size + 1);
  if (terminated == NULL) {
    free(text.data);
    return refuse(problem, "out of memory");
  }
  terminated[text.size] = '\0';
  const bool good = strlen(terminated) == text.size ? parse_list_value(terminated, info, value, problem)
                                                    : refuse(problem, "%s: not text (raw bytes are given as @FILE)", path);
  free(terminated);
  return good;
}

/* ---- printing ---- */

/* The fewest digits that read back as the same bytes. */
static void print_component(struct output *out, turb_type type, const uint8_t *row, size_t index) {
  float single = 0;
  uint16_t half = 0;
  double value = 0;
  size_t width = 1;
  if (type == TURB_I8 || type == TURB_U8) {
    output_format(out, "%d", type == TURB_I8 ? (int)(int8_t)row[index] : (int)row[index]);
    return;
  }
  if (type == TURB_F32) {
    width = sizeof single;
    memcpy(&single, row + width * index, width);
    value = (double)single;
  } else {
    width = sizeof half;
    memcpy(&half, row + width * index, width);
    value = half_decode(type == TURB_F16 ? &half_f16 : &half_bf16, half);
  }
  char text[32] = "";
  for (int digits = type == TURB_F32 ? 6 : 3; digits <= 9; digits++) {
    uint8_t back[8] = {0};
    (void)snprintf(text, sizeof text, "%.*g", digits, value);
    if (component_encode(type, strtod(text, NULL), back, 0) && memcmp(back, row + width * index, width) == 0) {
      break;
    }
  }
  output_text(out, text);
}

void value_print_vector(struct output *out, const turb_collection_info *info, turb_bytes vector, unsigned limit) {
  const uint8_t *row = vector.data;
  if (info->type == TURB_BITS) {
    const size_t shown = limit != 0 && vector.size > limit ? limit : vector.size;
    output_text(out, out->json ? "\"0x" : "0x");
    for (size_t i = 0; i < shown; i++) {
      output_format(out, "%02x", row[i]);
    }
    output_text(out, out->json ? "\"" : shown < vector.size ? "…" : "");
    return;
  }
  const uint32_t shown = limit != 0 && info->dimension > limit ? limit : info->dimension;
  output_text(out, "[");
  for (uint32_t i = 0; i < shown; i++) {
    output_text(out, i == 0 ? "" : out->json ? "," : ", ");
    print_component(out, info->type, row, i);
  }
  output_text(out, shown < info->dimension ? ", …]" : "]");
}

static bool is_number_key(turb_bytes key, bool numbers, uint64_t *number) {
  if (!numbers || key.size != sizeof *number) {
    return false;
  }
  memcpy(number, key.data, sizeof *number);
  *number = be64toh(*number);
  return true;
}

void value_print_key(struct output *out, turb_bytes key, bool numbers) {
  uint64_t number = 0;
  if (is_number_key(key, numbers, &number)) {
    output_format(out, "%" PRIu64, number);
  } else {
    output_printable(out, key);
  }
}

void value_json_key(struct output *out, const char *name, turb_bytes key, bool numbers) {
  uint64_t number = 0;
  if (is_number_key(key, numbers, &number)) {
    output_json_number(out, name, number);
  } else {
    output_json_key(out, name, key);
  }
}
