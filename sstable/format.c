/* The geometry of rows and blocks (docs/format.md 3.1). Pure arithmetic on bounded numbers: a row has at most 256 KiB. */
#include "sstable/format.h"

#define PAGE_BYTES             4096u
#define ROW_ALIGNMENT          64u
#define BLOCK_MAX_PAGES        16u
#define COMPRESSED_MIN_PAGES   8u
#define ROW_WASTE_PART         16u /* padding of at most 1/16 of the stride */
#define BLOCK_WASTE_PART       50u /* at most 1/50 of a block behind its last row */
#define TABLE_COMPRESSION_ZSTD 1u

uint32_t table_row_bytes(turb_type type, uint32_t dimension) {
  switch (type) {
  case TURB_F32: return dimension * 4;
  case TURB_F16:
  case TURB_BF16: return dimension * 2;
  case TURB_I8:
  case TURB_U8: return dimension;
  case TURB_BITS: return (dimension + 7) / 8;
  }
  return 0; /* no such type: callers have checked */
}

static uint32_t stride_of(uint32_t row_bytes) {
  const uint32_t padded = (row_bytes + ROW_ALIGNMENT - 1) / ROW_ALIGNMENT * ROW_ALIGNMENT;
  return (padded - row_bytes) * ROW_WASTE_PART <= padded ? padded : row_bytes;
}

/* Bytes behind the last row of a block of so many pages. */
static uint32_t block_waste(uint32_t pages, uint32_t stride) {
  return pages * PAGE_BYTES % stride;
}

/* The smallest number of pages that wastes little enough, else the first of those that waste the smallest share. */
static uint32_t block_pages(uint32_t stride, bool compressed) {
  const uint32_t first = compressed ? COMPRESSED_MIN_PAGES : 1;
  uint32_t best = BLOCK_MAX_PAGES;
  uint32_t best_waste = block_waste(best, stride);
  for (uint32_t pages = first; pages <= BLOCK_MAX_PAGES; pages++) {
    if (pages * PAGE_BYTES < stride) {
      continue;
    }
    const uint32_t waste = block_waste(pages, stride);
    if (!compressed && waste * BLOCK_WASTE_PART <= pages * PAGE_BYTES) {
      return pages;
    }
    if (waste * best < best_waste * pages || (waste * best == best_waste * pages && pages < best)) {
      best = pages;
      best_waste = waste;
    }
  }
  return best;
}

void table_shape_derive(struct table_shape *shape) {
  shape->row_bytes = table_row_bytes(shape->type, shape->dimension);
  shape->stride = stride_of(shape->row_bytes);
  const bool compressed = shape->compression == TABLE_COMPRESSION_ZSTD;
  if (shape->stride > BLOCK_MAX_PAGES * PAGE_BYTES) {
    shape->block_bytes = (shape->stride + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    shape->rows_per_block = 1;
  } else {
    shape->block_bytes = block_pages(shape->stride, compressed) * PAGE_BYTES;
    shape->rows_per_block = shape->block_bytes / shape->stride;
  }
  const uint32_t fitting = TABLE_FRAME_BYTES / shape->block_bytes;
  shape->blocks_per_frame = compressed || fitting == 0 ? 1 : fitting;
}
