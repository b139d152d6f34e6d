/*
 * Conversion of rows; see convert.h for the rules.
 */
#include "ingest/convert.h"

#include <endian.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "index/kernels/convert.h"

const char *ingest_type_name(turb_type type) {
  switch (type) {
  case TURB_F32: return "f32";
  case TURB_F16: return "f16";
  case TURB_BF16: return "bf16";
  case TURB_I8: return "i8";
  case TURB_U8: return "u8";
  case TURB_BITS: return "bits";
  }
  return "unknown";
}

turb_type ingest_natural_type(enum ingest_element element) {
  switch (element) {
  case INGEST_F16: return TURB_F16;
  case INGEST_I8: return TURB_I8;
  case INGEST_U8: return TURB_U8;
  case INGEST_F64:
  case INGEST_F32:
  case INGEST_I32:
  case INGEST_I16: break;
  }
  return TURB_F32;
}

bool ingest_layout_swaps(const struct ingest_layout *layout) {
  return ingest_element_bytes(layout->element) > 1 && layout->big_endian == (__BYTE_ORDER == __LITTLE_ENDIAN);
}

static bool element_is(enum ingest_element element, turb_type type) {
  switch (element) {
  case INGEST_F32: return type == TURB_F32;
  case INGEST_F16: return type == TURB_F16;
  case INGEST_I8: return type == TURB_I8;
  case INGEST_U8: return type == TURB_U8 || type == TURB_BITS;
  case INGEST_F64:
  case INGEST_I32:
  case INGEST_I16: break;
  }
  return false;
}

size_t ingest_converter_bytes(const struct ingest_layout *layout, turb_type type) {
  return layout->dimension * (sizeof(float) + vector_component_bytes(type));
}

turb_status ingest_converter_check(const struct ingest_layout *layout, const turb_collection_info *info, const char *file,
                                   turb_error *err) {
  if (info->type == TURB_BITS && layout->element != INGEST_U8) {
    return status_set_file(err, TURB_INVALID, file, STATUS_NO_OFFSET, "elements of %s; a collection of bits takes uint8 with packed bits",
                           ingest_element_name(layout->element));
  }
  const uint32_t wanted = info->type == TURB_BITS ? info->row_bytes : info->dimension;
  if (layout->dimension != wanted) {
    return status_set_file(err, TURB_INVALID, file, STATUS_NO_OFFSET, "rows of %" PRIu32 " components; collection %s takes %" PRIu32 "%s",
                           layout->dimension, info->name, wanted, info->type == TURB_BITS ? " bytes of packed bits" : "");
  }
  return TURB_OK;
}

turb_status ingest_converter_init(const turb_allocator *allocator, const struct ingest_layout *layout, const turb_collection_info *info,
                                  struct ingest_converter *converter, turb_error *err) {
  memset(converter, 0, sizeof *converter);
  converter->allocator = allocator;
  converter->element = layout->element;
  converter->swap = ingest_layout_swaps(layout);
  converter->same = element_is(layout->element, info->type) && !converter->swap;
  converter->type = info->type;
  converter->dimension = layout->dimension;
  converter->row_bytes = info->row_bytes;
  if (converter->same) {
    return TURB_OK;
  }
  converter->row = mem_alloc(allocator, converter->row_bytes);
  converter->components = mem_alloc(allocator, converter->dimension * sizeof(float));
  if (converter->row == NULL || converter->components == NULL) {
    ingest_converter_free(converter);
    return status_set(err, TURB_NO_MEMORY, "no memory to convert rows");
  }
  return TURB_OK;
}

void ingest_converter_free(struct ingest_converter *converter) {
  if (converter->allocator != NULL) {
    mem_free(converter->allocator, converter->row, converter->row_bytes);
    mem_free(converter->allocator, converter->components, converter->dimension * sizeof(float));
  }
  memset(converter, 0, sizeof *converter);
}

/* ---- single components ---- */

static uint16_t component_u16(const uint8_t *raw, size_t index, bool swap) {
  uint16_t value;
  memcpy(&value, raw + index * sizeof value, sizeof value);
  return swap ? __builtin_bswap16(value) : value;
}

static uint32_t component_u32(const uint8_t *raw, size_t index, bool swap) {
  uint32_t value;
  memcpy(&value, raw + index * sizeof value, sizeof value);
  return swap ? __builtin_bswap32(value) : value;
}

static double component_f64(const uint8_t *raw, size_t index, bool swap) {
  uint64_t bits;
  memcpy(&bits, raw + index * sizeof bits, sizeof bits);
  bits = swap ? __builtin_bswap64(bits) : bits;
  double value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

double ingest_component(enum ingest_element element, bool swap, const uint8_t *raw, size_t index) {
  switch (element) {
  case INGEST_F64: return component_f64(raw, index, swap);
  case INGEST_F32: return (double)f32_from_bits(component_u32(raw, index, swap));
  case INGEST_F16: return (double)f16_to_f32(component_u16(raw, index, swap));
  case INGEST_I32: return (double)(int32_t)component_u32(raw, index, swap);
  case INGEST_I16: return (double)(int16_t)component_u16(raw, index, swap);
  case INGEST_I8: return (double)(int8_t)raw[index];
  case INGEST_U8: return (double)raw[index];
  }
  return 0;
}

/*
 * To float, rounded to odd: an inexact value gets the neighbour whose last bit is 1, so that rounding it once more
 * to a type with at least two bits less gives what rounding the double would. Infinite only when value is:
 * the largest float is odd.
 */
static float float_to_odd(double value) {
  const float nearest = (float)value;
  const uint32_t bits = f32_to_bits(nearest);
  if ((double)nearest == value || isnan(value) || (bits & 1) != 0) {
    return nearest;
  }
  /* The other neighbour lies across the value: away from zero when nearest is too small, else towards it. */
  return f32_from_bits(fabs((double)nearest) < fabs(value) ? bits + 1 : bits - 1);
}

/* ---- rows ---- */

static void widen_row(const struct ingest_converter *converter, const uint8_t *raw) {
  float *to = converter->components;
  const bool swap = converter->swap;
  const bool narrow = converter->type != TURB_F32;
  for (size_t i = 0; i < converter->dimension; i++) {
    switch (converter->element) {
    case INGEST_F32: to[i] = f32_from_bits(component_u32(raw, i, swap)); break;
    case INGEST_F16: to[i] = f16_to_f32(component_u16(raw, i, swap)); break;
    case INGEST_I8: to[i] = (float)(int8_t)raw[i]; break;
    case INGEST_U8: to[i] = (float)raw[i]; break;
    case INGEST_I16: to[i] = (float)(int16_t)component_u16(raw, i, swap); break;
    case INGEST_F64:
    case INGEST_I32: {
      const double value = ingest_component(converter->element, swap, raw, i);
      to[i] = narrow ? float_to_odd(value) : (float)value;
      break;
    }
    }
  }
}

const void *ingest_convert_row(struct ingest_converter *converter, const uint8_t *raw, size_t *component) {
  *component = SIZE_MAX;
  if (converter->same) {
    return raw;
  }
  widen_row(converter, raw);
  *component = vector_from_f32(converter->type, converter->components, converter->dimension, converter->row);
  return *component == SIZE_MAX ? converter->row : NULL;
}
