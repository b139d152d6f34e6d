/* idx, plain and compressed; fvecs; labels; which format a file is taken for. */
#include <math.h>

#include "ingest/convert.h"
#include "ingest/labels.h"
#include "ingest/reader.h"
#include "tests/ingest/input_files.h"
#include "tests/support/allocator.h"
#include "tests/support/test.h"

static struct input input;

static void make_images(uint32_t rows, uint32_t height, uint32_t width) {
  input.size = 0;
  input_add_idx(&input, 0x08, 3, (const uint32_t[]){rows, height, width});
  for (uint32_t i = 0; i < rows * height * width; i++) {
    input_add_number(&input, i * 7, 1, 1);
  }
}

static void check_refused(const char *path, turb_import_format format, turb_status wanted, const char *part) {
  struct ingest_reader reader;
  turb_error err = TURB_ERROR_INIT;
  CHECK_STATUS_ERR(ingest_reader_open(alloc_default(), path, format, &reader, &err), wanted, &err);
  CHECK_MSG(test_contains(err.message, part), "'%s' lacks '%s'", err.message, part);
  CHECK_STR_EQ(err.file, path);
}

static void check_images(const char *path, uint32_t rows, uint32_t dimension) {
  struct ingest_reader reader;
  turb_error err = TURB_ERROR_INIT;
  CHECK_OK_ERR(ingest_reader_open(alloc_default(), path, TURB_IMPORT_AUTO, &reader, &err), &err);
  CHECK_EQ(reader.format->id, TURB_IMPORT_IDX);
  CHECK_EQ(reader.layout.rows, rows);
  CHECK_EQ(reader.layout.dimension, dimension);
  static uint8_t raw[1 << 16];
  /* Forward in pieces, then back to the beginning, which a compressed source must rewind for. */
  for (uint32_t first = 0; first < rows; first += 3) {
    const uint32_t count = rows - first < 3 ? rows - first : 3;
    CHECK_OK_ERR(ingest_reader_read(&reader, first, count, raw, &err), &err);
    CHECK_MEM_EQ(raw, input.bytes + 16 + first * dimension, count * dimension);
  }
  CHECK_OK_ERR(ingest_reader_read(&reader, 1, rows - 1, raw, &err), &err);
  CHECK_MEM_EQ(raw, input.bytes + 16 + dimension, (rows - 1) * dimension);
  ingest_reader_close(&reader);
}

TEST(idx, images_plain_and_compressed) {
  make_images(10, 28, 28);
  check_images(input_write(&input, "images"), 10, 784);
  check_images(input_write_gzip(&input, "images.gz", 0, SIZE_MAX), 10, 784);
}

TEST(idx, every_type) {
  static const struct {
    uint8_t code;
    unsigned width;
    uint64_t minus_two;
  } types[] = {{0x09, 1, 0xfe}, {0x0b, 2, 0xfffe}, {0x0c, 4, 0xfffffffe}, {0x0d, 4, 0xc0000000}, {0x0e, 8, 0xc000000000000000}};
  for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
    input.size = 0;
    input_add_idx(&input, types[i].code, 2, (const uint32_t[]){1, 1});
    input_add_number(&input, types[i].minus_two, types[i].width, 1);
    struct ingest_reader reader;
    CHECK_OK(ingest_reader_open(alloc_default(), input_write(&input, "x"), TURB_IMPORT_AUTO, &reader, NULL));
    uint8_t raw[8];
    CHECK_OK(ingest_reader_read(&reader, 0, 1, raw, NULL));
    CHECK_NEAR(ingest_component(reader.layout.element, ingest_layout_swaps(&reader.layout), raw, 0), -2, 0);
    ingest_reader_close(&reader);
  }
}

TEST(idx, bad_headers) {
  input.size = 0;
  input_add_idx(&input, 0x0a, 1, (const uint32_t[]){0});
  check_refused(input_write(&input, "x"), TURB_IMPORT_IDX, TURB_UNSUPPORTED, "0x0a");
  input.size = 0;
  input_add_idx(&input, 0x08, 9, (const uint32_t[]){1, 1, 1, 1, 1, 1, 1, 1, 1});
  check_refused(input_write(&input, "x"), TURB_IMPORT_IDX, TURB_UNSUPPORTED, "9 dimensions");
  input.size = 0;
  input_add_idx(&input, 0x08, 0, NULL);
  check_refused(input_write(&input, "x"), TURB_IMPORT_IDX, TURB_UNSUPPORTED, "0 dimensions");
  input.size = 0;
  input_add_idx(&input, 0x08, 3, (const uint32_t[]){1, 0xffffffff, 0xffffffff});
  check_refused(input_write(&input, "x"), TURB_IMPORT_IDX, TURB_INVALID, "components");
  input.size = 0;
  input_add_idx(&input, 0x08, 2, (const uint32_t[]){1, 0});
  check_refused(input_write(&input, "x"), TURB_IMPORT_IDX, TURB_INVALID, "0 components");
  input.size = 0;
  input_add_idx(&input, 0x08, 2, (const uint32_t[]){0xffffffff, 65536});
  check_refused(input_write(&input, "x"), TURB_IMPORT_IDX, TURB_CORRUPTION, "cut short in row 0");
  input.size = 0;
  input_add(&input, "PK\x03\x04", 4);
  check_refused(input_write(&input, "x"), TURB_IMPORT_IDX, TURB_CORRUPTION, "zero bytes");
  check_refused(input_write(&input, "x"), TURB_IMPORT_AUTO, TURB_UNSUPPORTED, "neither");
  input.size = 3;
  check_refused(input_write(&input, "x"), TURB_IMPORT_IDX, TURB_CORRUPTION, "cut short");
  input.size = 0;
  check_refused(input_write(&input, "x"), TURB_IMPORT_AUTO, TURB_INVALID, "empty");
}

TEST(idx, cut_and_surplus) {
  make_images(4, 3, 3);
  input.size--;
  check_refused(input_write(&input, "x"), TURB_IMPORT_AUTO, TURB_CORRUPTION, "cut short in row 3");
  input.size += 2;
  check_refused(input_write(&input, "x"), TURB_IMPORT_AUTO, TURB_CORRUPTION, "behind the last");
}

/* The errors of compressed files come while rows are read, and name row or offset. */
static void check_read_refused(const char *path, const char *part) {
  struct ingest_reader reader;
  turb_error err = TURB_ERROR_INIT;
  static uint8_t raw[1 << 16];
  CHECK_OK_ERR(ingest_reader_open(alloc_default(), path, TURB_IMPORT_AUTO, &reader, &err), &err);
  CHECK_STATUS_ERR(ingest_reader_read(&reader, 0, reader.layout.rows, raw, &err), TURB_CORRUPTION, &err);
  CHECK_MSG(test_contains(err.message, part), "'%s' lacks '%s'", err.message, part);
  CHECK_STR_EQ(err.file, path);
  CHECK(err.offset != UINT64_MAX);
  ingest_reader_close(&reader);
}

TEST(idx, damaged_gzip) {
  make_images(10, 28, 28);
  check_read_refused(input_write_gzip(&input, "x.gz", 1, SIZE_MAX), "cut short");
  check_read_refused(input_write_gzip(&input, "x.gz", 200, SIZE_MAX), "cut short");
  const char *whole = input_write_gzip(&input, "x.gz", 0, SIZE_MAX);
  FILE *file = fopen(whole, "rb");
  CHECK(file != NULL);
  CHECK_EQ(fseek(file, 0, SEEK_END), 0);
  const size_t size = (size_t)ftell(file);
  CHECK_EQ(fclose(file), 0);
  check_read_refused(input_write_gzip(&input, "x.gz", 0, size - 6), "damaged"); /* the checksum */
  input.size -= 5;
  check_read_refused(input_write_gzip(&input, "x.gz", 0, SIZE_MAX), "cut short in row 9");
  input.size += 6;
  check_read_refused(input_write_gzip(&input, "x.gz", 0, SIZE_MAX), "behind the last");
}

TEST(idx, two_gzip_members_are_one_stream) {
  make_images(10, 28, 28);
  struct input whole = input;
  input.size = 5000;
  const char *first = input_write_gzip(&input, "a.gz", 0, SIZE_MAX);
  memmove(input.bytes, whole.bytes + 5000, whole.size - 5000);
  input.size = whole.size - 5000;
  const char *second = input_write_gzip(&input, "b.gz", 0, SIZE_MAX);
  struct input joined = {.size = 0};
  for (int i = 0; i < 2; i++) {
    FILE *file = fopen(i == 0 ? first : second, "rb");
    CHECK(file != NULL);
    joined.size += fread(joined.bytes + joined.size, 1, sizeof joined.bytes - joined.size, file);
    CHECK_EQ(fclose(file), 0);
  }
  const char *path = input_write(&joined, "both.gz");
  input = whole;
  check_images(path, 10, 784);
}

TEST(source, files_that_cannot_be_opened) {
  struct ingest_source *source = NULL;
  turb_error err = TURB_ERROR_INIT;
  const char *folder = test_tmpdir();
  CHECK_STATUS(ingest_source_open(alloc_default(), test_path(folder, "none"), &source, &err), TURB_NOT_FOUND);
  CHECK(test_contains(err.file, "/none"));
  CHECK(source == NULL);
  CHECK_STATUS(ingest_source_open(alloc_default(), folder, &source, NULL), TURB_INVALID);
}

/* Every allocation of opening and reading a compressed file fails once; nothing leaks. */
TEST(source, every_allocation_may_fail) {
  make_images(4, 28, 28);
  const char *path = input_write_gzip(&input, "x.gz", 0, SIZE_MAX);
  static struct test_allocator allocator;
  test_allocator_init(&allocator);
  for (uint64_t n = 1;; n++) {
    test_allocator_fail_at(&allocator, n);
    struct ingest_reader reader;
    static uint8_t raw[1 << 16];
    turb_status status = ingest_reader_open(&allocator.base, path, TURB_IMPORT_AUTO, &reader, NULL);
    if (status == TURB_OK) {
      status = ingest_reader_read(&reader, 0, 4, raw, NULL);
    }
    ingest_reader_close(&reader);
    test_allocator_check_empty(&allocator);
    if (!allocator.failed) {
      CHECK_OK(status);
      break;
    }
    CHECK_STATUS(status, TURB_NO_MEMORY);
  }
}

/* ---- labels ---- */

static const char *labels_file(uint8_t code, unsigned width, uint32_t count) {
  input.size = 0;
  input_add_idx(&input, code, 1, &count);
  for (uint32_t i = 0; i < count; i++) {
    input_add_number(&input, i % 10, width, 1);
  }
  return input_write_gzip(&input, "labels.gz", 0, SIZE_MAX);
}

TEST(labels, decimal_text_in_any_order) {
  static struct ingest_labels labels;
  CHECK_OK(ingest_labels_open(alloc_default(), labels_file(0x08, 1, 9000), 9000, &labels, NULL));
  char text[INGEST_LABEL_TEXT_BYTES];
  size_t size = 0;
  for (uint64_t row = 0; row < 9000; row++) {
    const uint64_t at = row % 3 == 0 ? 8999 - row : row; /* also back, over chunks */
    CHECK_OK(ingest_labels_get(&labels, row < 100 ? at : row, text, &size, NULL));
    CHECK_EQ(size, 1);
    CHECK_EQ(text[0], '0' + (char)((row < 100 ? at : row) % 10));
  }
  CHECK_STATUS(ingest_labels_get(&labels, 9000, text, &size, NULL), TURB_INVALID);
  ingest_labels_close(&labels);
}

TEST(labels, refused) {
  static struct ingest_labels labels;
  turb_error err = TURB_ERROR_INIT;
  CHECK_STATUS(ingest_labels_open(alloc_default(), labels_file(0x08, 1, 9), 10, &labels, &err), TURB_INVALID);
  CHECK(test_contains(err.message, "9 labels for 10 rows"));
  ingest_labels_close(&labels);
  CHECK_STATUS(ingest_labels_open(alloc_default(), labels_file(0x0d, 4, 10), 10, &labels, NULL), TURB_UNSUPPORTED);
  ingest_labels_close(&labels);
  make_images(10, 2, 2);
  CHECK_STATUS(ingest_labels_open(alloc_default(), input_write(&input, "x"), 10, &labels, NULL), TURB_INVALID);
  ingest_labels_close(&labels);
}

/* ---- fvecs ---- */

static void make_fvecs(unsigned rows, unsigned dimension) {
  input.size = 0;
  for (unsigned i = 0; i < rows; i++) {
    input_add_number(&input, dimension, 4, 0);
    for (unsigned j = 0; j < dimension; j++) {
      const float value = (float)(i * dimension + j);
      input_add(&input, &value, sizeof value);
    }
  }
}

TEST(fvecs, rows) {
  make_fvecs(5, 3);
  struct ingest_reader reader;
  CHECK_OK(ingest_reader_open(alloc_default(), input_write(&input, "x.fvecs"), TURB_IMPORT_AUTO, &reader, NULL));
  CHECK_EQ(reader.format->id, TURB_IMPORT_FVECS);
  CHECK_EQ(reader.layout.rows, 5);
  CHECK_EQ(reader.layout.dimension, 3);
  CHECK_EQ(ingest_reader_stride(&reader), 16);
  CHECK_EQ(ingest_reader_row_offset(&reader, 2), 36);
  uint8_t raw[48];
  CHECK_OK(ingest_reader_read(&reader, 2, 3, raw, NULL));
  CHECK_MEM_EQ(raw, input.bytes + 32, 48);
  ingest_reader_close(&reader);
}

TEST(fvecs, empty_and_bad) {
  struct ingest_reader reader;
  input.size = 0;
  CHECK_OK(ingest_reader_open(alloc_default(), input_write(&input, "x"), TURB_IMPORT_FVECS, &reader, NULL));
  CHECK_EQ(reader.layout.rows, 0);
  CHECK_EQ(reader.layout.dimension, 0);
  ingest_reader_close(&reader);
  make_fvecs(5, 3);
  check_refused(input_write_gzip(&input, "x.gz", 0, SIZE_MAX), TURB_IMPORT_FVECS, TURB_UNSUPPORTED, "compressed");
  input.size--;
  check_refused(input_write(&input, "x"), TURB_IMPORT_AUTO, TURB_CORRUPTION, "cut short in row 4");
  make_fvecs(5, 3);
  input.bytes[32] = 4;
  turb_error err = TURB_ERROR_INIT;
  CHECK_OK(ingest_reader_open(alloc_default(), input_write(&input, "x"), TURB_IMPORT_AUTO, &reader, NULL));
  uint8_t raw[80];
  CHECK_STATUS(ingest_reader_read(&reader, 0, 5, raw, &err), TURB_CORRUPTION);
  CHECK(test_contains(err.message, "row 2 says 4 components, row 0 has 3"));
  CHECK_EQ(err.offset, 32);
  ingest_reader_close(&reader);
  input.size = 0;
  input_add_number(&input, 0xffffffff, 4, 0);
  check_refused(input_write(&input, "x"), TURB_IMPORT_FVECS, TURB_CORRUPTION, "-1 components");
}

TEST(reader, unknown_format_number) {
  make_fvecs(1, 1);
  struct ingest_reader reader;
  turb_error err = TURB_ERROR_INIT;
  CHECK_STATUS(ingest_reader_open(alloc_default(), input_write(&input, "x"), (turb_import_format)77, &reader, &err), TURB_INVALID);
  CHECK(test_contains(err.message, "format: 77"));
}
