/*
 * Labels from an idx file; see labels.h.
 */
#include "ingest/labels.h"

#include <inttypes.h>
#include <stdio.h>

#include "ingest/convert.h"

turb_status ingest_labels_open(const turb_allocator *allocator, const char *path, uint64_t rows, struct ingest_labels *labels,
                               turb_error *err) {
  labels->first = 0;
  labels->count = 0;
  const turb_status status = ingest_reader_open(allocator, path, TURB_IMPORT_IDX, &labels->reader, err);
  if (status != TURB_OK) {
    return status;
  }
  const struct ingest_layout *layout = &labels->reader.layout;
  if (!layout->scalars) {
    return status_set_file(err, TURB_INVALID, path, 3, "labels must be an idx file of one dimension");
  }
  if (layout->element == INGEST_F32 || layout->element == INGEST_F64) {
    return status_set_file(err, TURB_UNSUPPORTED, path, 2, "labels of %s; labels are integers", ingest_element_name(layout->element));
  }
  if (layout->rows != rows) {
    return status_set_file(err, TURB_INVALID, path, 4, "%" PRIu64 " labels for %" PRIu64 " rows", layout->rows, rows);
  }
  return TURB_OK;
}

void ingest_labels_close(struct ingest_labels *labels) {
  ingest_reader_close(&labels->reader);
}

turb_status ingest_labels_get(struct ingest_labels *labels, uint64_t row, char text[INGEST_LABEL_TEXT_BYTES], size_t *size,
                              turb_error *err) {
  const struct ingest_layout *layout = &labels->reader.layout;
  *size = 0;
  if (row < labels->first || row - labels->first >= labels->count) {
    const uint64_t left = row < layout->rows ? layout->rows - row : 1; /* beyond the end: the read refuses it */
    labels->count = 0;
    const size_t count = left > INGEST_LABEL_CHUNK ? INGEST_LABEL_CHUNK : (size_t)left;
    const turb_status status = ingest_reader_read(&labels->reader, row, count, labels->chunk, err);
    if (status != TURB_OK) {
      return status;
    }
    labels->first = row;
    labels->count = count;
  }
  const double value = ingest_component(layout->element, ingest_layout_swaps(layout), labels->chunk, (size_t)(row - labels->first));
  *size = (size_t)snprintf(text, INGEST_LABEL_TEXT_BYTES, "%" PRId32, (int32_t)value);
  return TURB_OK;
}
