/*
 * idx: the format of MNIST and its successors, also compressed with gzip.
 *
 *   0  2  zeros
 *   2  1  element: 08 unsigned byte, 09 signed byte, 0B int16, 0C int32, 0D float32, 0E float64
 *   3  1  number of dimensions
 *   4  4  each: the dimensions, big-endian
 *         elements, big-endian, the last dimension fastest
 *
 * The first dimension counts rows, the others multiply to a row's components. A file of one dimension holds
 * one number an item: labels.
 */
#include <endian.h>
#include <string.h>

#include "ingest/reader.h"

#define HEADER_BYTES   4
#define MAX_DIMENSIONS 8

static bool idx_element(uint8_t code, enum ingest_element *element) {
  switch (code) {
  case 0x08: *element = INGEST_U8; return true;
  case 0x09: *element = INGEST_I8; return true;
  case 0x0b: *element = INGEST_I16; return true;
  case 0x0c: *element = INGEST_I32; return true;
  case 0x0d: *element = INGEST_F32; return true;
  case 0x0e: *element = INGEST_F64; return true;
  default: return false;
  }
}

static bool idx_recognise(const uint8_t *head, size_t size) {
  enum ingest_element element;
  return size >= HEADER_BYTES && head[0] == 0 && head[1] == 0 && idx_element(head[2], &element) && head[3] >= 1 &&
         head[3] <= MAX_DIMENSIONS;
}

static uint32_t idx_size(const uint8_t *from) {
  uint32_t size = 0;
  memcpy(&size, from, sizeof size);
  return be32toh(size);
}

static turb_status idx_open(struct ingest_source *source, struct ingest_layout *layout, turb_error *err) {
  const char *name = ingest_source_name(source);
  uint8_t head[HEADER_BYTES];
  turb_status status = ingest_read_header(source, 0, head, sizeof head, "idx header", err);
  if (status != TURB_OK) {
    return status;
  }
  enum ingest_element element;
  if (head[0] != 0 || head[1] != 0) {
    return status_set_file(err, TURB_CORRUPTION, name, 0, "not an idx file: it does not begin with two zero bytes");
  }
  if (!idx_element(head[2], &element)) {
    return status_set_file(err, TURB_UNSUPPORTED, name, 2, "idx element type 0x%02x is unknown", head[2]);
  }
  if (head[3] < 1 || head[3] > MAX_DIMENSIONS) {
    return status_set_file(err, TURB_UNSUPPORTED, name, 3, "an idx file of %d dimensions; 1 to %d are read", head[3], MAX_DIMENSIONS);
  }
  uint8_t sizes[4 * MAX_DIMENSIONS];
  status = ingest_read_header(source, HEADER_BYTES, sizes, (size_t)head[3] * 4, "idx header", err);
  if (status != TURB_OK) {
    return status;
  }
  uint64_t dimension = 1;
  for (unsigned i = 1; i < head[3]; i++) {
    /* Stays below 2^17 × 2^32: what is too large is refused before the next factor. */
    dimension *= idx_size(sizes + 4 * i);
    if (dimension == 0 || dimension > TURB_MAX_DIMENSION) {
      break;
    }
  }
  layout->big_endian = true;
  layout->scalars = head[3] == 1;
  layout->data_offset = HEADER_BYTES + 4u * head[3];
  return ingest_layout_set(source, layout, element, idx_size(sizes), dimension, err);
}

const struct ingest_format ingest_format_idx = {TURB_IMPORT_IDX, "idx", idx_recognise, idx_open, NULL};
