/*
 * Rows of a file's element type to rows of a collection's type.
 *
 * Rules
 *   1. A row whose bytes are already those of the collection is passed through untouched and unchecked: the
 *      write call checks it. So are rows of uint8 for packed bits, which the file then holds packed.
 *   2. Else each component is rounded once to the nearest value of the collection's type, ties to even; what is not
 *      finite, or rounds to something outside the type's finite range, is refused by its component.
 *   3. Integers go through float32 rounded to odd, which keeps rule 2 exact for every narrower type; int32
 *      values above 2^24 are rounded for f32.
 *
 * Threads: a converter belongs to one thread at a time.
 */
#ifndef TURB_INGEST_CONVERT_H
#define TURB_INGEST_CONVERT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/alloc.h"
#include "base/status.h"
#include "ingest/reader.h"

struct ingest_converter {
  const turb_allocator *allocator;
  enum ingest_element element;
  bool swap; /* the file's byte order is not the host's */
  bool same; /* rule 1 */
  turb_type type;
  uint32_t dimension;
  uint32_t row_bytes; /* of a row given out */
  uint8_t *row;       /* the row that the last call gave */
  float *components;
};

/* The memory of init. */
size_t ingest_converter_bytes(const struct ingest_layout *layout, turb_type type);

/* TURB_INVALID, naming both sides, when rows of layout do not fit the collection; file names the file. */
TURB_MUST_CHECK turb_status ingest_converter_check(const struct ingest_layout *layout, const turb_collection_info *info, const char *file,
                                                   turb_error *err);

/* For rows that ingest_converter_check accepts. Release: ingest_converter_free. */
TURB_MUST_CHECK turb_status ingest_converter_init(const turb_allocator *allocator, const struct ingest_layout *layout,
                                                  const turb_collection_info *info, struct ingest_converter *converter, turb_error *err);

/* Safe on a zeroed converter and twice. */
void ingest_converter_free(struct ingest_converter *converter);

/*
 * Converts one row. The result lies in raw or in the converter, until the next call. NULL, with the component,
 * when rule 2 refuses it.
 */
const void *ingest_convert_row(struct ingest_converter *converter, const uint8_t *raw, size_t *component);

/* One component of a raw row as a number, for messages and labels. */
double ingest_component(enum ingest_element element, bool swap, const uint8_t *raw, size_t index);

/* Whether a file's byte order is not the host's. */
bool ingest_layout_swaps(const struct ingest_layout *layout);

/* A name for messages: "f32", "bits", … */
const char *ingest_type_name(turb_type type);

/* The collection type that holds a file's elements best: what describing a file says. */
turb_type ingest_natural_type(enum ingest_element element);

#endif
