/*
 * fvecs: rows of float32, each with its dimension in front, all little-endian.
 *
 *   0  4      dimension d, an int32 that is the same in every row
 *   4  4 × d  components
 *
 * There is no header, so the number of rows is the file's size by the stride, and a compressed file is refused.
 */
#include <inttypes.h>

#include "base/coding.h"
#include "ingest/reader.h"

#define PREFIX_BYTES 4

static bool fvecs_recognise(const uint8_t *head, size_t size) {
  return size >= PREFIX_BYTES && load_u32(head) >= 1 && load_u32(head) <= TURB_MAX_DIMENSION;
}

static turb_status fvecs_open(struct ingest_source *source, struct ingest_layout *layout, turb_error *err) {
  const char *name = ingest_source_name(source);
  const uint64_t size = ingest_source_size(source);
  if (size == INGEST_SIZE_UNKNOWN) {
    return status_set_file(err, TURB_UNSUPPORTED, name, 0, "a compressed fvecs file: its rows cannot be counted before they are read");
  }
  layout->prefix_bytes = PREFIX_BYTES;
  layout->element = INGEST_F32;
  if (size == 0) {
    return TURB_OK; /* no rows, and so no dimension */
  }
  uint8_t head[PREFIX_BYTES];
  turb_status status = ingest_read_header(source, 0, head, sizeof head, "first row", err);
  if (status != TURB_OK) {
    return status;
  }
  const uint32_t dimension = load_u32(head);
  if (dimension < 1 || dimension > TURB_MAX_DIMENSION) {
    return status_set_file(err, TURB_CORRUPTION, name, 0, "not an fvecs file: row 0 says %" PRId32 " components, 1 to %d are possible",
                           (int32_t)dimension, TURB_MAX_DIMENSION);
  }
  const uint64_t stride = PREFIX_BYTES + 4 * (uint64_t)dimension;
  if (size % stride != 0) {
    return status_set_file(err, TURB_CORRUPTION, name, size,
                           "the file is cut short in row %" PRIu64 ": rows of %" PRIu64 " bytes do not fill it", size / stride, stride);
  }
  return ingest_layout_set(source, layout, INGEST_F32, size / stride, dimension, err);
}

static turb_status fvecs_check(struct ingest_source *source, const struct ingest_layout *layout, uint64_t first, size_t count,
                               const uint8_t *raw, turb_error *err) {
  const size_t stride = (size_t)layout->prefix_bytes + layout->row_bytes;
  for (size_t i = 0; i < count; i++) {
    const uint32_t dimension = load_u32(raw + i * stride);
    if (dimension != layout->dimension) {
      return status_set_file(err, TURB_CORRUPTION, ingest_source_name(source), (first + i) * stride,
                             "row %" PRIu64 " says %" PRId32 " components, row 0 has %" PRIu32, first + i, (int32_t)dimension,
                             layout->dimension);
    }
  }
  return TURB_OK;
}

const struct ingest_format ingest_format_fvecs = {TURB_IMPORT_FVECS, "fvecs", fvecs_recognise, fvecs_open, fvecs_check};
