/*
 * Readers of embedding files, one a format, behind one interface: open tells what the file holds, read brings
 * rows [first, first + count) as they lie in the file.
 *
 * A format is a table of three functions (struct ingest_format). All formats so far have rows of a fixed
 * stride from a data offset on, perhaps with a few bytes before each row's components.
 *
 * Invariants
 *   1. Nothing in a file is trusted: every count, length and shape is bounded by the format's limits and, where the
 *      size is known, by the file's size before memory is taken for it.
 *   2. An opened plain file is exactly as long as its header says. A compressed one is checked at its end,
 *      by the read that reaches the last row.
 *   3. Errors name file and offset, and the row where there is one.
 *
 * Threads: a reader belongs to one thread at a time.
 */
#ifndef TURB_INGEST_READER_H
#define TURB_INGEST_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/alloc.h"
#include "base/status.h"
#include "ingest/source.h"

/* Element types that files hold. */
enum ingest_element {
  INGEST_F64 = 1,
  INGEST_F32,
  INGEST_F16,
  INGEST_I32,
  INGEST_I16,
  INGEST_I8,
  INGEST_U8,
};

/* What open finds out. */
struct ingest_layout {
  enum ingest_element element;
  bool big_endian;
  bool scalars;       /* the file has one dimension: one number an item */
  uint32_t dimension; /* components a row; 0 only where there are no rows */
  uint64_t rows;
  uint64_t data_offset;
  uint32_t prefix_bytes; /* before the components of each row */
  uint32_t row_bytes;    /* of a row's components */
};

struct ingest_format {
  turb_import_format id;
  const char *name;
  /* Whether a file with these first bytes (up to INGEST_HEAD_BYTES) is of the format. */
  bool (*recognise)(const uint8_t *head, size_t size);
  /* Fills a zeroed layout. */
  turb_status (*open)(struct ingest_source *source, struct ingest_layout *layout, turb_error *err);
  /* Checks what stands before the components of rows that were read; NULL where nothing does. */
  turb_status (*check)(struct ingest_source *source, const struct ingest_layout *layout, uint64_t first, size_t count, const uint8_t *raw,
                       turb_error *err);
};

#define INGEST_HEAD_BYTES 16

extern const struct ingest_format ingest_format_npy;
extern const struct ingest_format ingest_format_idx;
extern const struct ingest_format ingest_format_fvecs;

struct ingest_reader {
  struct ingest_source *source;
  const struct ingest_format *format;
  struct ingest_layout layout;
};

/* Opens a file as format, or as what its first bytes say (TURB_IMPORT_AUTO). Release: ingest_reader_close. */
TURB_MUST_CHECK turb_status ingest_reader_open(const turb_allocator *allocator, const char *path, turb_import_format format,
                                               struct ingest_reader *reader, turb_error *err);

/* The same over a source, which the reader takes and closes, also on failure. */
TURB_MUST_CHECK turb_status ingest_reader_open_source(struct ingest_source *source, turb_import_format format, struct ingest_reader *reader,
                                                      turb_error *err);

/* Safe on a zeroed reader and twice. */
void ingest_reader_close(struct ingest_reader *reader);

/* Reads rows [first, first + count), count × ingest_reader_stride bytes, prefixes included. */
TURB_MUST_CHECK turb_status ingest_reader_read(struct ingest_reader *reader, uint64_t first, size_t count, uint8_t *raw, turb_error *err);

/* Bytes from one row to the next. */
static inline size_t ingest_reader_stride(const struct ingest_reader *reader) {
  return (size_t)reader->layout.prefix_bytes + reader->layout.row_bytes;
}

/* Where a row's components begin in the file, before any compression. */
static inline uint64_t ingest_reader_row_offset(const struct ingest_reader *reader, uint64_t row) {
  return reader->layout.data_offset + row * ingest_reader_stride(reader) + reader->layout.prefix_bytes;
}

/* Bytes of an element. */
uint32_t ingest_element_bytes(enum ingest_element element);

/* A name for messages: "float64", "uint8", … */
const char *ingest_element_name(enum ingest_element element);

/* For formats: reads exactly size bytes of a header, else corruption that says what is cut short. */
TURB_MUST_CHECK turb_status ingest_read_header(struct ingest_source *source, uint64_t offset, void *to, size_t size, const char *what,
                                               turb_error *err);

/*
 * For formats: sets element, dimension, rows and row_bytes after checking the dimension (1 to
 * TURB_MAX_DIMENSION) and that all rows lie within 2^63 bytes; what names the shape in messages.
 */
TURB_MUST_CHECK turb_status ingest_layout_set(struct ingest_source *source, struct ingest_layout *layout, enum ingest_element element,
                                              uint64_t rows, uint64_t dimension, turb_error *err);

#endif
