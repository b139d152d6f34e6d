/* Row bytes and the geometry of blocks, against the rules of docs/format.md 3.1. */
#include "sstable/format.h"

#include "tests/support/test.h"

static struct table_shape derive(turb_type type, uint32_t dimension, uint8_t compression) {
  struct table_shape shape = {.dimension = dimension, .type = type, .metric = TURB_L2, .compression = compression};
  table_shape_derive(&shape);
  return shape;
}

TEST(format, row_bytes_of_each_type) {
  CHECK_EQ(table_row_bytes(TURB_F32, 128), 512);
  CHECK_EQ(table_row_bytes(TURB_F16, 3), 6);
  CHECK_EQ(table_row_bytes(TURB_BF16, 65536), 131072);
  CHECK_EQ(table_row_bytes(TURB_I8, 7), 7);
  CHECK_EQ(table_row_bytes(TURB_U8, 784), 784);
  CHECK_EQ(table_row_bytes(TURB_BITS, 1), 1);
  CHECK_EQ(table_row_bytes(TURB_BITS, 8), 1);
  CHECK_EQ(table_row_bytes(TURB_BITS, 9), 2);
  CHECK_EQ(table_row_bytes(TURB_BITS, 65536), 8192);
}

TEST(format, known_shapes) {
  static const struct {
    turb_type type;
    uint32_t dimension;
    uint8_t compression;
    uint32_t stride, rows, block, frame;
  } known[] = {
      {TURB_F32, 128, 0, 512, 8, 4096, 8},        {TURB_F32, 768, 0, 3072, 4, 12288, 2},    {TURB_F32, 1536, 0, 6144, 2, 12288, 2},
      {TURB_F32, 1, 0, 4, 1024, 4096, 8},         {TURB_U8, 784, 0, 832, 29, 24576, 1},     {TURB_U8, 1, 0, 1, 4096, 4096, 8},
      {TURB_BITS, 1, 0, 1, 4096, 4096, 8},        {TURB_BITS, 1024, 0, 128, 32, 4096, 8},   {TURB_F32, 16384, 0, 65536, 1, 65536, 1},
      {TURB_F32, 65536, 0, 262144, 1, 262144, 1}, {TURB_F32, 16385, 0, 65600, 1, 69632, 1}, {TURB_F16, 1024, 0, 2048, 2, 4096, 8},
      {TURB_F32, 128, 1, 512, 64, 32768, 1},      {TURB_F32, 768, 1, 3072, 12, 36864, 1},   {TURB_F32, 65536, 1, 262144, 1, 262144, 1},
      {TURB_F32, 1025, 0, 4160, 0, 0, 0},
  };
  for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
    const struct table_shape shape = derive(known[i].type, known[i].dimension, known[i].compression);
    CHECK_EQ(shape.stride, known[i].stride);
    if (known[i].block != 0) {
      CHECK_EQ(shape.rows_per_block, known[i].rows);
      CHECK_EQ(shape.block_bytes, known[i].block);
      CHECK_EQ(shape.blocks_per_frame, known[i].frame);
    }
  }
}

/* The rules in words, computed another way. */
static void check_rules(const struct table_shape *shape) {
  const uint32_t padded = (shape->row_bytes + 63) & ~63u;
  const bool pads = (double)(padded - shape->row_bytes) / padded <= 1.0 / 16;
  CHECK_EQ(shape->stride, pads ? padded : shape->row_bytes);
  CHECK_EQ(shape->block_bytes % 4096, 0);
  CHECK_EQ(shape->rows_per_block, shape->block_bytes / shape->stride);
  if (shape->row_bytes > 65536) {
    CHECK_EQ(shape->rows_per_block, 1);
    CHECK_LT(shape->block_bytes - shape->stride, 4096);
  } else {
    const double waste = (double)(shape->block_bytes % shape->stride) / shape->block_bytes;
    for (uint32_t pages = shape->compression != 0 ? 8 : 1; pages <= 16; pages++) {
      if (pages * 4096 < shape->stride) {
        continue;
      }
      const double other = (double)(pages * 4096 % shape->stride) / (pages * 4096);
      if (pages * 4096 < shape->block_bytes) {
        CHECK(other > waste || (shape->compression == 0 && other > 0.02));
      } else {
        CHECK(other >= waste || (shape->compression == 0 && waste <= 0.02));
      }
    }
  }
  CHECK_EQ(shape->blocks_per_frame,
           shape->compression != 0 || shape->block_bytes > TABLE_FRAME_BYTES ? 1 : TABLE_FRAME_BYTES / shape->block_bytes);
}

TEST(format, rules_hold_for_every_dimension) {
  static const turb_type types[] = {TURB_F32, TURB_F16, TURB_BF16, TURB_I8, TURB_U8, TURB_BITS};
  for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) {
    for (uint32_t dimension = 1; dimension <= 65536; dimension += dimension < 5000 ? 1 : 997) {
      for (uint8_t compression = 0; compression < 2; compression++) {
        const struct table_shape shape = derive(types[t], dimension, compression);
        CHECK_EQ(shape.row_bytes, table_row_bytes(types[t], dimension));
        check_rules(&shape);
      }
    }
  }
}
