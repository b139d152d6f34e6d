/*
 * .npy: one numpy array a file, format versions 1 to 3.
 *
 *   0   6  magic "\x93NUMPY"
 *   6   1  major version, 7 minor version (0)
 *   8   2  header bytes (version 1), or 4 (versions 2 and 3), little-endian
 *       n  header: a Python dictionary with descr, fortran_order and shape, and blanks up to a newline
 *          elements in C order
 *
 * Read: float16, float32, float64, int8, uint8, int16, int32 of either byte order; shapes (rows, dimension) and
 * (dimension), which is one row. Fortran order is refused where it differs from C order: its bytes would be
 * taken for other rows. Other element types, structures, objects and shapes are refused by name.
 *
 * The header is parsed by a reader of that one dictionary alone; it recurses nowhere and takes no memory but the
 * header's bytes, of which there are at most MAX_HEADER_BYTES.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "base/coding.h"
#include "ingest/reader.h"

#define MAGIC_BYTES      6
#define MAX_HEADER_BYTES (64u << 10)
#define MAX_SHAPE        8
#define TEXT_BYTES       64

static const uint8_t magic[MAGIC_BYTES] = {0x93, 'N', 'U', 'M', 'P', 'Y'};

/* What the dictionary says. */
struct npy_header {
  char descr[TEXT_BYTES];
  bool has_descr;
  bool has_order;
  bool has_shape;
  bool fortran;
  unsigned shape_count;
  uint64_t shape[MAX_SHAPE];
};

/* A place in the header's text, for errors: `what` is set by the first failure. */
struct npy_text {
  struct ingest_source *source;
  const char *begin;
  const char *at;
  const char *end;
  uint64_t offset; /* of begin in the file */
  turb_error *err;
};

static turb_status npy_fail(const struct npy_text *text, turb_status code, const char *what) {
  return status_set_file(text->err, code, ingest_source_name(text->source), text->offset + (uint64_t)(text->at - text->begin),
                         "the .npy header %s", what);
}

/* ---- tokens ---- */

static void npy_skip_blanks(struct npy_text *text) {
  while (text->at < text->end && (*text->at == ' ' || *text->at == '\t' || *text->at == '\n' || *text->at == '\r')) {
    text->at++;
  }
}

/* Whether the next character that is not blank is wanted; it is then passed. */
static bool npy_take(struct npy_text *text, char wanted) {
  npy_skip_blanks(text);
  if (text->at < text->end && *text->at == wanted) {
    text->at++;
    return true;
  }
  return false;
}

static bool npy_take_word(struct npy_text *text, const char *word) {
  npy_skip_blanks(text);
  const size_t size = strlen(word);
  if ((size_t)(text->end - text->at) < size || memcmp(text->at, word, size) != 0) {
    return false;
  }
  text->at += size;
  return true;
}

/* A quoted string without escapes. */
static turb_status npy_take_string(struct npy_text *text, char to[TEXT_BYTES]) {
  npy_skip_blanks(text);
  if (text->at == text->end || (*text->at != '\'' && *text->at != '"')) {
    return npy_fail(text, TURB_CORRUPTION, "has no string where one must be");
  }
  const char quote = *text->at;
  const char *first = text->at + 1;
  const char *last = memchr(first, quote, (size_t)(text->end - first));
  if (last == NULL || last - first >= TEXT_BYTES || memchr(first, '\\', (size_t)(last - first)) != NULL) {
    return npy_fail(text, TURB_CORRUPTION, "has a string that does not end, is too long or has escapes");
  }
  memcpy(to, first, (size_t)(last - first));
  to[last - first] = '\0';
  text->at = last + 1;
  return TURB_OK;
}

static turb_status npy_take_number(struct npy_text *text, uint64_t *value) {
  npy_skip_blanks(text);
  *value = 0;
  const char *first = text->at;
  while (text->at < text->end && *text->at >= '0' && *text->at <= '9') {
    if (__builtin_mul_overflow(*value, 10u, value) || __builtin_add_overflow(*value, (uint64_t)(*text->at - '0'), value) ||
        *value > INT64_MAX) {
      return npy_fail(text, TURB_CORRUPTION, "has a size beyond 2^63");
    }
    text->at++;
  }
  if (text->at == first) {
    return npy_fail(text, TURB_CORRUPTION, "has a shape that is not a tuple of sizes");
  }
  (void)npy_take(text, 'L'); /* what Python 2 wrote behind long numbers */
  return TURB_OK;
}

/* ---- the dictionary ---- */

static turb_status npy_take_shape(struct npy_text *text, struct npy_header *header) {
  if (!npy_take(text, '(')) {
    return npy_fail(text, TURB_CORRUPTION, "has a shape that is not a tuple of sizes");
  }
  while (!npy_take(text, ')')) {
    if (header->shape_count == MAX_SHAPE) {
      return npy_fail(text, TURB_UNSUPPORTED, "has a shape of more than 8 dimensions");
    }
    const turb_status status = npy_take_number(text, &header->shape[header->shape_count]);
    if (status != TURB_OK) {
      return status;
    }
    header->shape_count++;
    if (!npy_take(text, ',')) {
      if (!npy_take(text, ')')) {
        return npy_fail(text, TURB_CORRUPTION, "has a shape that is not a tuple of sizes");
      }
      break;
    }
  }
  header->has_shape = true;
  return TURB_OK;
}

static turb_status npy_take_value(struct npy_text *text, const char *key, struct npy_header *header) {
  if (strcmp(key, "descr") == 0 && !header->has_descr) {
    npy_skip_blanks(text);
    if (text->at < text->end && *text->at == '[') {
      return npy_fail(text, TURB_UNSUPPORTED, "describes a structured type");
    }
    header->has_descr = true;
    return npy_take_string(text, header->descr);
  }
  if (strcmp(key, "fortran_order") == 0 && !header->has_order) {
    header->has_order = true;
    header->fortran = npy_take_word(text, "True");
    if (!header->fortran && !npy_take_word(text, "False")) {
      return npy_fail(text, TURB_CORRUPTION, "has a fortran_order that is neither True nor False");
    }
    return TURB_OK;
  }
  if (strcmp(key, "shape") == 0 && !header->has_shape) {
    return npy_take_shape(text, header);
  }
  return npy_fail(text, TURB_CORRUPTION, "has a key that is unknown or stands there twice");
}

static turb_status npy_parse(struct npy_text *text, struct npy_header *header) {
  if (!npy_take(text, '{')) {
    return npy_fail(text, TURB_CORRUPTION, "is not a dictionary");
  }
  while (!npy_take(text, '}')) {
    char key[TEXT_BYTES];
    turb_status status = npy_take_string(text, key);
    if (status == TURB_OK && !npy_take(text, ':')) {
      status = npy_fail(text, TURB_CORRUPTION, "lacks a colon");
    }
    if (status == TURB_OK) {
      status = npy_take_value(text, key, header);
    }
    if (status != TURB_OK) {
      return status;
    }
    if (!npy_take(text, ',')) {
      if (!npy_take(text, '}')) {
        return npy_fail(text, TURB_CORRUPTION, "is not a dictionary");
      }
      break;
    }
  }
  npy_skip_blanks(text);
  if (text->at != text->end) {
    return npy_fail(text, TURB_CORRUPTION, "goes on behind its dictionary");
  }
  if (!header->has_descr || !header->has_order || !header->has_shape) {
    return npy_fail(text, TURB_CORRUPTION, "lacks descr, fortran_order or shape");
  }
  return TURB_OK;
}

/* ---- what it means ---- */

static const struct {
  const char *code;
  enum ingest_element element;
} elements[] = {{"f2", INGEST_F16}, {"f4", INGEST_F32}, {"f8", INGEST_F64}, {"i1", INGEST_I8},
                {"u1", INGEST_U8},  {"i2", INGEST_I16}, {"i4", INGEST_I32}};

static turb_status npy_apply(struct npy_text *text, const struct npy_header *header, struct ingest_layout *layout) {
  const char *name = ingest_source_name(text->source);
  const char order = header->descr[0];
  const size_t none = sizeof elements / sizeof elements[0];
  size_t found = none;
  for (size_t i = 0; i < none && strchr("<>|=", order) != NULL && order != '\0'; i++) {
    if (strcmp(header->descr + 1, elements[i].code) == 0) {
      found = i;
    }
  }
  if (found == none) {
    return status_set_file(text->err, TURB_UNSUPPORTED, name, text->offset, "elements of type '%s'; f2, f4, f8, i1, u1, i2 and i4 are read",
                           header->descr);
  }
  if (header->shape_count != 1 && header->shape_count != 2) {
    return status_set_file(text->err, TURB_UNSUPPORTED, name, text->offset,
                           "an array of %u dimensions; 2 (rows of vectors) and 1 (one vector) are read", header->shape_count);
  }
  const bool single = header->shape_count == 1;
  const uint64_t rows = single ? 1 : header->shape[0];
  const uint64_t dimension = header->shape[single ? 0 : 1];
  if (header->fortran && rows > 1 && dimension > 1) {
    return status_set_file(text->err, TURB_UNSUPPORTED, name, text->offset,
                           "an array in Fortran order, whose rows do not lie together; save numpy.ascontiguousarray(array) instead");
  }
  layout->big_endian = order == '>';
  return ingest_layout_set(text->source, layout, elements[found].element, rows, dimension, text->err);
}

static turb_status npy_read_preamble(struct ingest_source *source, uint64_t *offset, uint32_t *size, turb_error *err) {
  uint8_t head[12];
  turb_status status = ingest_read_header(source, 0, head, MAGIC_BYTES + 4, ".npy header", err);
  if (status != TURB_OK) {
    return status;
  }
  const char *name = ingest_source_name(source);
  if (memcmp(head, magic, sizeof magic) != 0) {
    return status_set_file(err, TURB_CORRUPTION, name, 0, "not a .npy file: it does not begin with the magic of numpy");
  }
  if (head[6] < 1 || head[6] > 3 || head[7] != 0) {
    return status_set_file(err, TURB_UNSUPPORTED, name, 6, ".npy format version %d.%d; 1.0, 2.0 and 3.0 are read", head[6], head[7]);
  }
  if (head[6] == 1) {
    *offset = 10;
    *size = load_u16(head + 8);
    return TURB_OK;
  }
  status = ingest_read_header(source, 0, head, sizeof head, ".npy header", err);
  *offset = 12;
  *size = load_u32(head + 8);
  if (status == TURB_OK && *size > MAX_HEADER_BYTES) {
    return status_set_file(err, TURB_UNSUPPORTED, name, 8, "a .npy header of %" PRIu32 " bytes; up to %u are read", *size,
                           MAX_HEADER_BYTES);
  }
  return status;
}

static bool npy_recognise(const uint8_t *head, size_t size) {
  return size >= sizeof magic && memcmp(head, magic, sizeof magic) == 0;
}

static turb_status npy_open(struct ingest_source *source, struct ingest_layout *layout, turb_error *err) {
  uint64_t offset = 0;
  uint32_t size = 0;
  turb_status status = npy_read_preamble(source, &offset, &size, err);
  if (status != TURB_OK) {
    return status;
  }
  const turb_allocator *allocator = ingest_source_allocator(source);
  char *bytes = mem_alloc(allocator, size);
  if (bytes == NULL) {
    return status_set(err, TURB_NO_MEMORY, "no memory for the header of %s", ingest_source_name(source));
  }
  status = ingest_read_header(source, offset, bytes, size, ".npy header", err);
  if (status == TURB_OK) {
    struct npy_text text = {source, bytes, bytes, bytes + size, offset, err};
    struct npy_header header = {0};
    status = npy_parse(&text, &header);
    layout->data_offset = offset + size;
    if (status == TURB_OK) {
      status = npy_apply(&text, &header, layout);
    }
  }
  mem_free(allocator, bytes, size);
  return status;
}

const struct ingest_format ingest_format_npy = {TURB_IMPORT_NPY, ".npy", npy_recognise, npy_open, NULL};
