/*
 * What the readers of all formats share: choosing the format, checking the size, reading rows.
 */
#include "ingest/reader.h"

#include <inttypes.h>
#include <string.h>

static const struct ingest_format *const formats[] = {&ingest_format_npy, &ingest_format_idx, &ingest_format_fvecs};
#define FORMATS (sizeof formats / sizeof formats[0])

uint32_t ingest_element_bytes(enum ingest_element element) {
  switch (element) {
  case INGEST_F64: return 8;
  case INGEST_F32:
  case INGEST_I32: return 4;
  case INGEST_F16:
  case INGEST_I16: return 2;
  case INGEST_I8:
  case INGEST_U8: return 1;
  }
  return 0;
}

const char *ingest_element_name(enum ingest_element element) {
  switch (element) {
  case INGEST_F64: return "float64";
  case INGEST_F32: return "float32";
  case INGEST_F16: return "float16";
  case INGEST_I32: return "int32";
  case INGEST_I16: return "int16";
  case INGEST_I8: return "int8";
  case INGEST_U8: return "uint8";
  }
  return "unknown";
}

turb_status ingest_read_header(struct ingest_source *source, uint64_t offset, void *to, size_t size, const char *what, turb_error *err) {
  size_t got = 0;
  const turb_status status = ingest_source_read(source, offset, to, size, &got, err);
  if (status == TURB_OK && got != size) {
    return status_set_file(err, TURB_CORRUPTION, ingest_source_name(source), offset + got, "the %s is cut short", what);
  }
  return status;
}

turb_status ingest_layout_set(struct ingest_source *source, struct ingest_layout *layout, enum ingest_element element, uint64_t rows,
                              uint64_t dimension, turb_error *err) {
  if (dimension < 1 || dimension > TURB_MAX_DIMENSION) {
    return status_set_file(err, TURB_INVALID, ingest_source_name(source), STATUS_NO_OFFSET,
                           "rows of %" PRIu64 " components; 1 to %d are possible", dimension, TURB_MAX_DIMENSION);
  }
  layout->element = element;
  layout->dimension = (uint32_t)dimension;
  layout->rows = rows;
  layout->row_bytes = (uint32_t)dimension * ingest_element_bytes(element);
  uint64_t end = 0;
  if (__builtin_mul_overflow(rows, (uint64_t)layout->prefix_bytes + layout->row_bytes, &end) ||
      __builtin_add_overflow(end, layout->data_offset, &end) || end > INT64_MAX) {
    return status_set_file(err, TURB_CORRUPTION, ingest_source_name(source), 0,
                           "%" PRIu64 " rows of %" PRIu64 " components are more than a file can hold", rows, dimension);
  }
  return TURB_OK;
}

/* Invariant 2, for plain files. */
static turb_status reader_check_size(const struct ingest_reader *reader, turb_error *err) {
  const struct ingest_layout *layout = &reader->layout;
  const uint64_t size = ingest_source_size(reader->source);
  const uint64_t stride = ingest_reader_stride(reader);
  const uint64_t end = layout->data_offset + layout->rows * stride;
  if (size == INGEST_SIZE_UNKNOWN || size == end) {
    return TURB_OK;
  }
  const char *name = ingest_source_name(reader->source);
  if (size < end) {
    const uint64_t row = size < layout->data_offset ? 0 : (size - layout->data_offset) / stride;
    return status_set_file(err, TURB_CORRUPTION, name, size,
                           "the file is cut short in row %" PRIu64 ": its header says %" PRIu64 " rows of %" PRIu64 " bytes", row,
                           layout->rows, stride);
  }
  return status_set_file(err, TURB_CORRUPTION, name, end, "%" PRIu64 " bytes lie behind the last of %" PRIu64 " rows", size - end,
                         layout->rows);
}

static turb_status reader_choose(struct ingest_reader *reader, turb_import_format format, turb_error *err) {
  const char *name = ingest_source_name(reader->source);
  uint8_t head[INGEST_HEAD_BYTES];
  size_t got = 0;
  if (format == TURB_IMPORT_AUTO) {
    const turb_status status = ingest_source_read(reader->source, 0, head, sizeof head, &got, err);
    if (status != TURB_OK) {
      return status;
    }
  }
  for (size_t i = 0; i < FORMATS; i++) {
    if (format == formats[i]->id || (format == TURB_IMPORT_AUTO && formats[i]->recognise(head, got))) {
      reader->format = formats[i];
      return TURB_OK;
    }
  }
  if (format != TURB_IMPORT_AUTO) {
    return status_set(err, TURB_INVALID, "option format: %d is none of 0 (auto), 1 (npy), 2 (idx), 3 (fvecs)", (int)format);
  }
  if (got == 0) {
    return status_set_file(err, TURB_INVALID, name, 0, "the file is empty");
  }
  return status_set_file(err, TURB_UNSUPPORTED, name, 0, "the file's first bytes are neither those of .npy, nor of idx, nor of fvecs");
}

turb_status ingest_reader_open_source(struct ingest_source *source, turb_import_format format, struct ingest_reader *reader,
                                      turb_error *err) {
  memset(reader, 0, sizeof *reader);
  reader->source = source;
  turb_status status = reader_choose(reader, format, err);
  if (status == TURB_OK) {
    status = reader->format->open(source, &reader->layout, err);
  }
  if (status == TURB_OK) {
    status = reader_check_size(reader, err);
  }
  if (status != TURB_OK) {
    ingest_reader_close(reader);
  }
  return status;
}

turb_status ingest_reader_open(const turb_allocator *allocator, const char *path, turb_import_format format, struct ingest_reader *reader,
                               turb_error *err) {
  memset(reader, 0, sizeof *reader);
  struct ingest_source *source = NULL;
  const turb_status status = ingest_source_open(allocator, path, &source, err);
  return status == TURB_OK ? ingest_reader_open_source(source, format, reader, err) : status;
}

void ingest_reader_close(struct ingest_reader *reader) {
  ingest_source_close(reader->source);
  memset(reader, 0, sizeof *reader);
}

/* Invariant 2, for compressed files: nothing follows the last row, and the checksum at the end was right. */
static turb_status reader_check_end(struct ingest_reader *reader, uint64_t end, turb_error *err) {
  if (!ingest_source_compressed(reader->source)) {
    return TURB_OK;
  }
  uint8_t more = 0;
  size_t got = 0;
  const turb_status status = ingest_source_read(reader->source, end, &more, sizeof more, &got, err);
  if (status == TURB_OK && got != 0) {
    return status_set_file(err, TURB_CORRUPTION, ingest_source_name(reader->source), end, "bytes lie behind the last of %" PRIu64 " rows",
                           reader->layout.rows);
  }
  return status;
}

turb_status ingest_reader_read(struct ingest_reader *reader, uint64_t first, size_t count, uint8_t *raw, turb_error *err) {
  const struct ingest_layout *layout = &reader->layout;
  const size_t stride = ingest_reader_stride(reader);
  const char *name = ingest_source_name(reader->source);
  if (first > layout->rows || count > layout->rows - first) {
    return status_set_file(err, TURB_INVALID, name, STATUS_NO_OFFSET, "rows %" PRIu64 " to %" PRIu64 " of %" PRIu64, first, first + count,
                           layout->rows);
  }
  const uint64_t offset = layout->data_offset + first * stride;
  size_t got = 0;
  turb_status status = ingest_source_read(reader->source, offset, raw, count * stride, &got, err);
  if (status == TURB_OK && got != count * stride) {
    return status_set_file(err, TURB_CORRUPTION, name, offset + got, "the file is cut short in row %" PRIu64 " of %" PRIu64,
                           first + got / stride, layout->rows);
  }
  if (status == TURB_OK && reader->format->check != NULL) {
    status = reader->format->check(reader->source, layout, first, count, raw, err);
  }
  if (status == TURB_OK && first + count == layout->rows) {
    status = reader_check_end(reader, offset + got, err);
  }
  return status;
}
