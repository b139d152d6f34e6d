/*
 * What the fuzz targets of the input formats share: opens bytes as a format, reads every row in chunks of
 * at most 64 KiB, and converts each to u8, so that refusals of components are met as well.
 */
#ifndef TURB_TESTS_FUZZ_INGEST_ANY_H
#define TURB_TESTS_FUZZ_INGEST_ANY_H

#include <stdlib.h>

#include "ingest/convert.h"
#include "ingest/reader.h"

#define INGEST_ANY_CHUNK_BYTES (64u << 10)
#define INGEST_ANY_MAX_BYTES   (8u << 20) /* of rows: a gzip bomb is read no further */

static inline void ingest_any_rows(struct ingest_reader *reader, struct ingest_converter *converter) {
  const size_t stride = ingest_reader_stride(reader);
  const size_t fitting = INGEST_ANY_CHUNK_BYTES / stride;
  const size_t rows_at_once = fitting < 1 ? 1 : fitting;
  uint8_t *raw = malloc(rows_at_once * stride);
  uint64_t row = 0;
  while (raw != NULL && row < reader->layout.rows && row * stride < INGEST_ANY_MAX_BYTES) {
    const uint64_t left = reader->layout.rows - row;
    const size_t count = left < rows_at_once ? (size_t)left : rows_at_once;
    if (ingest_reader_read(reader, row, count, raw, NULL) != TURB_OK) {
      break;
    }
    for (size_t i = 0; i < count; i++) {
      size_t component = 0;
      (void)ingest_convert_row(converter, raw + i * stride + reader->layout.prefix_bytes, &component);
    }
    row += count;
  }
  free(raw);
}

static inline void ingest_any(turb_import_format format, const uint8_t *data, size_t size) {
  struct ingest_source *source = NULL;
  struct ingest_reader reader;
  turb_error err = TURB_ERROR_INIT;
  if (ingest_source_open_memory(alloc_default(), "input", data, size, &source, &err) != TURB_OK) {
    return;
  }
  if (ingest_reader_open_source(source, format, &reader, &err) != TURB_OK) {
    return;
  }
  const uint32_t dimension = reader.layout.dimension;
  const turb_collection_info info = {.size = sizeof info, .type = TURB_U8, .dimension = dimension, .row_bytes = dimension};
  struct ingest_converter converter;
  if (dimension != 0 && ingest_converter_init(alloc_default(), &reader.layout, &info, &converter, &err) == TURB_OK) {
    ingest_any_rows(&reader, &converter);
    ingest_converter_free(&converter);
  }
  ingest_reader_close(&reader);
}

#endif
