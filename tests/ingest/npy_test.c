/* .npy: element types, byte orders, versions and shapes that are read, and all that is refused. */
#include <math.h>

#include "ingest/convert.h"
#include "ingest/reader.h"
#include "tests/ingest/input_files.h"
#include "tests/support/test.h"

static struct input input;

/* A file with this dictionary and data_bytes bytes of data. */
static const char *npy_file(unsigned version, const char *dictionary, size_t data_bytes) {
  input.size = 0;
  input_add_npy(&input, version, dictionary);
  for (size_t i = 0; i < data_bytes; i++) {
    input_add_number(&input, i, 1, 0);
  }
  return input_write(&input, "x.npy");
}

static void check_refused(const char *path, turb_status wanted, const char *part) {
  struct ingest_reader reader;
  turb_error err = TURB_ERROR_INIT;
  CHECK_STATUS_ERR(ingest_reader_open(alloc_default(), path, TURB_IMPORT_NPY, &reader, &err), wanted, &err);
  CHECK_MSG(test_contains(err.message, part), "'%s' lacks '%s'", err.message, part);
  CHECK_STR_EQ(err.file, path);
  CHECK(reader.source == NULL);
}

static void check_dictionary_refused(const char *dictionary, turb_status wanted, const char *part) {
  check_refused(npy_file(1, dictionary, 24), wanted, part);
}

static const struct {
  const char *code;
  enum ingest_element element;
  unsigned width;
} types[] = {{"f2", INGEST_F16, 2}, {"f4", INGEST_F32, 4}, {"f8", INGEST_F64, 8}, {"i1", INGEST_I8, 1},
             {"u1", INGEST_U8, 1},  {"i2", INGEST_I16, 2}, {"i4", INGEST_I32, 4}};

/* The bits of a small whole number in an element type. */
static uint64_t bits_of(enum ingest_element element, int value) {
  uint64_t bits = 0;
  uint32_t word = 0;
  const double wide = value;
  const float single = (float)value;
  switch (element) {
  case INGEST_F64: memcpy(&bits, &wide, sizeof wide); return bits;
  case INGEST_F32: memcpy(&word, &single, sizeof single); return word;
  case INGEST_F16: {
    static const uint16_t halves[] = {0x0000, 0x3c00, 0x4000, 0x4200, 0x4400, 0x4500};
    return (uint64_t)halves[value < 0 ? -value : value] | (value < 0 ? 0x8000 : 0);
  }
  default: return (uint64_t)(int64_t)value;
  }
}

TEST(npy, reads_every_type_order_and_version) {
  for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) {
    for (unsigned variant = 0; variant < 6; variant++) {
      const int big = (int)(variant & 1);
      const unsigned version = 1 + variant / 2;
      char dictionary[128];
      (void)snprintf(dictionary, sizeof dictionary, "{'descr': '%c%s', 'fortran_order': False, 'shape': (2, 3), }",
                     types[t].width == 1 ? '|'
                     : big               ? '>'
                                         : '<',
                     types[t].code);
      input.size = 0;
      input_add_npy(&input, version, dictionary);
      const bool is_signed = types[t].element != INGEST_U8;
      for (int i = 0; i < 6; i++) {
        input_add_number(&input, bits_of(types[t].element, is_signed && i % 2 != 0 ? -i : i), types[t].width, big);
      }
      struct ingest_reader reader;
      turb_error err = TURB_ERROR_INIT;
      CHECK_OK_ERR(ingest_reader_open(alloc_default(), input_write(&input, "x.npy"), TURB_IMPORT_AUTO, &reader, &err), &err);
      CHECK_EQ(reader.format->id, TURB_IMPORT_NPY);
      CHECK_EQ(reader.layout.element, types[t].element);
      CHECK_EQ(reader.layout.rows, 2);
      CHECK_EQ(reader.layout.dimension, 3);
      CHECK_EQ(reader.layout.data_offset % 64, 0);
      uint8_t raw[64];
      CHECK_OK_ERR(ingest_reader_read(&reader, 1, 1, raw, &err), &err);
      CHECK_OK_ERR(ingest_reader_read(&reader, 0, 1, raw, &err), &err);
      CHECK_OK_ERR(ingest_reader_read(&reader, 0, 2, raw, &err), &err);
      const bool swap = ingest_layout_swaps(&reader.layout);
      for (int i = 0; i < 6; i++) {
        const double wanted = is_signed && i % 2 != 0 ? -i : i;
        CHECK_NEAR(ingest_component(types[t].element, swap, raw, (size_t)i), wanted, 0);
      }
      ingest_reader_close(&reader);
    }
  }
}

TEST(npy, one_dimension_is_one_row) {
  struct ingest_reader reader;
  CHECK_OK(ingest_reader_open(alloc_default(), npy_file(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (6,), }", 24),
                              TURB_IMPORT_AUTO, &reader, NULL));
  CHECK_EQ(reader.layout.rows, 1);
  CHECK_EQ(reader.layout.dimension, 6);
  ingest_reader_close(&reader);
}

TEST(npy, zero_rows) {
  struct ingest_reader reader;
  CHECK_OK(ingest_reader_open(alloc_default(), npy_file(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (0, 5), }", 0),
                              TURB_IMPORT_AUTO, &reader, NULL));
  CHECK_EQ(reader.layout.rows, 0);
  CHECK_EQ(reader.layout.dimension, 5);
  uint8_t raw[1];
  CHECK_OK(ingest_reader_read(&reader, 0, 0, raw, NULL));
  CHECK_STATUS(ingest_reader_read(&reader, 0, 1, raw, NULL), TURB_INVALID);
  ingest_reader_close(&reader);
}

TEST(npy, python_2_and_loose_dictionaries) {
  struct ingest_reader reader;
  CHECK_OK(ingest_reader_open(alloc_default(), npy_file(1, "{\"shape\":(2L,3L),\"descr\":\"<f4\",\"fortran_order\":False}", 24),
                              TURB_IMPORT_AUTO, &reader, NULL));
  CHECK_EQ(reader.layout.rows, 2);
  ingest_reader_close(&reader);
}

TEST(npy, fortran_order_is_refused_where_it_matters) {
  check_dictionary_refused("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }", TURB_UNSUPPORTED, "Fortran order");
  struct ingest_reader reader;
  CHECK_OK(ingest_reader_open(alloc_default(), npy_file(1, "{'descr': '<f4', 'fortran_order': True, 'shape': (6, 1), }", 24),
                              TURB_IMPORT_AUTO, &reader, NULL));
  ingest_reader_close(&reader);
}

TEST(npy, other_shapes_are_refused) {
  check_dictionary_refused("{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2, 3), }", TURB_UNSUPPORTED, "3 dimensions");
  check_dictionary_refused("{'descr': '<f4', 'fortran_order': False, 'shape': (), }", TURB_UNSUPPORTED, "0 dimensions");
  check_dictionary_refused("{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1), }", TURB_UNSUPPORTED, "more than 8");
  check_dictionary_refused("{'descr': '<f4', 'fortran_order': False, 'shape': (6, 0), }", TURB_INVALID, "0 components");
  check_dictionary_refused("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 65537), }", TURB_INVALID, "65537 components");
}

TEST(npy, other_types_are_refused_by_name) {
  check_dictionary_refused("{'descr': '<c8', 'fortran_order': False, 'shape': (2, 3), }", TURB_UNSUPPORTED, "<c8");
  check_dictionary_refused("{'descr': '|O', 'fortran_order': False, 'shape': (2, 3), }", TURB_UNSUPPORTED, "|O");
  check_dictionary_refused("{'descr': '', 'fortran_order': False, 'shape': (2, 3), }", TURB_UNSUPPORTED, "''");
  check_dictionary_refused("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,), }", TURB_UNSUPPORTED, "structured");
}

TEST(npy, sizes_that_contradict_the_file) {
  const char *dictionary = "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }";
  turb_error err = TURB_ERROR_INIT;
  struct ingest_reader reader;
  const char *path = npy_file(1, dictionary, 47);
  CHECK_STATUS(ingest_reader_open(alloc_default(), path, TURB_IMPORT_AUTO, &reader, &err), TURB_CORRUPTION);
  CHECK(test_contains(err.message, "cut short in row 2"));
  CHECK_EQ(err.offset, input.size);
  check_refused(npy_file(1, dictionary, 49), TURB_CORRUPTION, "1 bytes lie behind");
  check_dictionary_refused("{'descr': '<f8', 'fortran_order': False, 'shape': (9223372036854775807, 65536), }", TURB_CORRUPTION,
                           "more than a file can hold");
  check_dictionary_refused("{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999999999999, 2), }", TURB_CORRUPTION, "2^63");
  check_dictionary_refused("{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000, 2), }", TURB_CORRUPTION,
                           "cut short in row 1");
}

TEST(npy, malformed_headers) {
  static const char *const dictionaries[] = {
      "",
      "[]",
      "{",
      "{'descr'",
      "{'descr': ",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), } x",
      "{'descr': '<f4', 'fortran_order': False, }",
      "{'descr': '<f4', 'fortran_order': None, 'shape': (2, 3), }",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (2 3), }",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (-2, 3), }",
      "{'descr': '<f4', 'fortran_order': False, 'shape': 6, }",
      "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), 'more': 1}",
      "{'descr': '<f4\\'', 'fortran_order': False, 'shape': (2, 3), }",
  };
  for (size_t i = 0; i < sizeof dictionaries / sizeof dictionaries[0]; i++) {
    check_dictionary_refused(dictionaries[i], TURB_CORRUPTION, ".npy header");
  }
}

TEST(npy, preamble) {
  input.size = 0;
  input_add(&input, "\x93NUMPY\x01\x00\xff\xff{", 11);
  check_refused(input_write(&input, "x.npy"), TURB_CORRUPTION, "cut short");
  input.size = 0;
  input_add(&input, "\x93NUMPY\x04\x00\x00\x00\x00\x00", 12);
  check_refused(input_write(&input, "x.npy"), TURB_UNSUPPORTED, "version 4.0");
  input.size = 0;
  input_add(&input, "\x93NUMPY\x02\x00\xff\xff\xff\xff", 12);
  check_refused(input_write(&input, "x.npy"), TURB_UNSUPPORTED, "4294967295 bytes");
  input.size = 0;
  input_add(&input, "\x93NUMPX\x01\x00\x00\x00\x00\x00", 12);
  check_refused(input_write(&input, "x.npy"), TURB_CORRUPTION, "magic");
  input.size = 0;
  check_refused(input_write(&input, "x.npy"), TURB_CORRUPTION, "cut short");
}

/* Every header cut at every length is refused, and nothing is read behind it (AddressSanitizer watches). */
TEST(npy, every_cut_is_refused) {
  for (unsigned version = 1; version <= 2; version++) {
    (void)npy_file(version, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", 24);
    static uint8_t exact[4096];
    for (size_t size = 0; size < input.size; size++) {
      memcpy(exact + sizeof exact - size, input.bytes, size);
      struct ingest_source *source = NULL;
      struct ingest_reader reader;
      CHECK_OK(ingest_source_open_memory(alloc_default(), "cut", exact + sizeof exact - size, size, &source, NULL));
      CHECK_STATUS(ingest_reader_open_source(source, TURB_IMPORT_NPY, &reader, NULL), TURB_CORRUPTION);
    }
  }
}
