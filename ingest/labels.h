/*
 * A file of labels beside a file of vectors: idx of one dimension, one integer an item, read in step with the
 * rows and given out as decimal text.
 *
 * Threads: as readers.
 */
#ifndef TURB_INGEST_LABELS_H
#define TURB_INGEST_LABELS_H

#include "ingest/reader.h"

#define INGEST_LABEL_TEXT_BYTES 16 /* of the longest label, with its terminator */
#define INGEST_LABEL_CHUNK      4096

struct ingest_labels {
  struct ingest_reader reader;
  uint64_t first; /* of the labels in chunk */
  size_t count;
  uint8_t chunk[INGEST_LABEL_CHUNK * sizeof(int32_t)];
};

/* Opens path, which must have `rows` labels (TURB_INVALID names both numbers). Release: ingest_labels_close. */
TURB_MUST_CHECK turb_status ingest_labels_open(const turb_allocator *allocator, const char *path, uint64_t rows,
                                               struct ingest_labels *labels, turb_error *err);

/* Safe on a zeroed struct and twice. */
void ingest_labels_close(struct ingest_labels *labels);

/* Writes the label of a row as decimal text. */
TURB_MUST_CHECK turb_status ingest_labels_get(struct ingest_labels *labels, uint64_t row, char text[INGEST_LABEL_TEXT_BYTES], size_t *size,
                                              turb_error *err);

#endif
