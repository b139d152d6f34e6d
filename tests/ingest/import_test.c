/* turb_import on a real database: keys, labels, parts, batches, conversions, cancelling, errors that name the row. */
#include <math.h>

#include "base/coding.h"
#include "tests/ingest/input_files.h"
#include "tests/support/test.h"

static struct input input;

struct fixture {
  turb_db *db;
  turb_collection *collection;
  const char *folder;
};

static struct fixture open_fixture(turb_type type, uint32_t dimension) {
  struct fixture fixture = {.folder = test_tmpdir()};
  turb_options options = TURB_OPTIONS_INIT;
  options.memory_budget_bytes = 32u << 20;
  turb_error err = TURB_ERROR_INIT;
  CHECK_OK_ERR(turb_open(test_path(fixture.folder, "db"), &options, &fixture.db, &err), &err);
  turb_collection_options collection = TURB_COLLECTION_OPTIONS_INIT;
  collection.type = type;
  collection.dimension = dimension;
  CHECK_OK_ERR(turb_collection_create(fixture.db, "c", &collection, &fixture.collection, &err), &err);
  return fixture;
}

static void close_fixture(struct fixture *fixture) {
  turb_error err = TURB_ERROR_INIT;
  CHECK_OK_ERR(turb_close(fixture->db, &err), &err);
}

/* Entries in the collection. */
static uint64_t count_rows(turb_collection *collection) {
  turb_iterator *iterator = NULL;
  CHECK_OK(turb_iterator_open(collection, NULL, &iterator, NULL));
  uint64_t count = 0;
  for (turb_state state = turb_finish(iterator, turb_first(iterator)); state == TURB_READY; state = turb_next(iterator)) {
    count++;
  }
  CHECK_OK(turb_iterator_status(iterator, NULL));
  turb_iterator_close(iterator);
  return count;
}

static turb_status get_number(turb_collection *collection, const char *prefix, uint64_t number, void *vector, char *attributes) {
  uint8_t key[64];
  const size_t size = strnlen(prefix, sizeof key - sizeof number);
  memcpy(key, prefix, size); /* without its end: the number follows */
  number = htobe64(number);
  memcpy(key + size, &number, sizeof number);
  size_t attributes_size = 0;
  const turb_status status =
      turb_get(collection, (turb_bytes){key, size + sizeof number}, NULL, vector, attributes, 16, &attributes_size, NULL, NULL);
  attributes[attributes_size] = '\0';
  return status;
}

static void make_npy(uint64_t rows, uint32_t dimension) {
  char dictionary[128];
  (void)snprintf(dictionary, sizeof dictionary, "{'descr': '<f4', 'fortran_order': False, 'shape': (%" PRIu64 ", %" PRIu32 "), }", rows,
                 dimension);
  input.size = 0;
  input_add_npy(&input, 1, dictionary);
  for (uint64_t i = 0; i < rows * dimension; i++) {
    const float value = (float)(i % 251);
    input_add(&input, &value, sizeof value);
  }
}

static void set_component(size_t index, float value) {
  memcpy(input.bytes + 128 + index * sizeof value, &value, sizeof value);
}

TEST(import, rows_get_keys_in_order) {
  struct fixture fixture = open_fixture(TURB_F32, 4);
  make_npy(1000, 4);
  const char *path = input_write(&input, "x.npy");
  turb_error err = TURB_ERROR_INIT;
  uint64_t rows = 0;
  CHECK_OK_ERR(turb_import(fixture.collection, path, NULL, &rows, &err), &err);
  CHECK_EQ(rows, 1000);
  CHECK_EQ(count_rows(fixture.collection), 1000);
  float vector[4];
  char attributes[17];
  CHECK_OK(get_number(fixture.collection, "", 77, vector, attributes));
  CHECK_NEAR(vector[0], 308 % 251, 0);
  CHECK_STR_EQ(attributes, "");
  CHECK_STATUS(get_number(fixture.collection, "", 1000, vector, attributes), TURB_NOT_FOUND);
  close_fixture(&fixture);
}

TEST(import, part_prefix_first_key_and_small_batches) {
  struct fixture fixture = open_fixture(TURB_F32, 4);
  make_npy(100, 4);
  const char *path = input_write(&input, "x.npy");
  turb_import_options options = TURB_IMPORT_OPTIONS_INIT;
  options.first_row = 90;
  options.rows = 7;
  options.first_key = 1000;
  options.key_prefix = TURB_STR("p:");
  options.batch_rows = 3;
  uint64_t rows = 0;
  turb_error err = TURB_ERROR_INIT;
  CHECK_OK_ERR(turb_import(fixture.collection, path, &options, &rows, &err), &err);
  CHECK_EQ(rows, 7);
  float vector[4];
  char attributes[17];
  CHECK_OK(get_number(fixture.collection, "p:", 1006, vector, attributes));
  CHECK_NEAR(vector[0], 384 % 251, 0);
  CHECK_EQ(count_rows(fixture.collection), 7);
  close_fixture(&fixture);
}

TEST(import, images_with_labels_compressed) {
  struct fixture fixture = open_fixture(TURB_U8, 12);
  input.size = 0;
  input_add_idx(&input, 0x08, 3, (const uint32_t[]){300, 3, 4});
  for (uint32_t i = 0; i < 300 * 12; i++) {
    input_add_number(&input, i / 12, 1, 1);
  }
  const char *images = input_write_gzip(&input, "images.gz", 0, SIZE_MAX);
  input.size = 0;
  input_add_idx(&input, 0x0c, 1, (const uint32_t[]){300});
  for (uint32_t i = 0; i < 300; i++) {
    input_add_number(&input, (uint64_t)(int64_t) - (int)i * 1000, 4, 1);
  }
  turb_import_options options = TURB_IMPORT_OPTIONS_INIT;
  options.labels_path = input_write(&input, "labels");
  turb_error err = TURB_ERROR_INIT;
  CHECK_OK_ERR(turb_import(fixture.collection, images, &options, NULL, &err), &err);
  uint8_t vector[12];
  char attributes[17];
  CHECK_OK(get_number(fixture.collection, "", 299, vector, attributes));
  CHECK_EQ(vector[11], 299 % 256);
  CHECK_STR_EQ(attributes, "-299000");
  close_fixture(&fixture);
}

TEST(import, converts_to_every_type) {
  for (turb_type type = TURB_F32; type <= TURB_U8; type++) {
    struct fixture fixture = open_fixture(type, 4);
    make_npy(30, 4);
    for (size_t i = 0; i < 120; i++) {
      set_component(i, (float)i);
    }
    turb_error err = TURB_ERROR_INIT;
    CHECK_OK_ERR(turb_import(fixture.collection, input_write(&input, "x.npy"), NULL, NULL, &err), &err);
    CHECK_EQ(count_rows(fixture.collection), 30);
    close_fixture(&fixture);
  }
}

TEST(import, bits_take_packed_bytes) {
  struct fixture fixture = open_fixture(TURB_BITS, 24);
  input.size = 0;
  input_add_npy(&input, 1, "{'descr': '|u1', 'fortran_order': False, 'shape': (2, 3), }");
  input_add(&input, "\x01\x02\x03\x04\x05\x06", 6);
  turb_error err = TURB_ERROR_INIT;
  CHECK_OK_ERR(turb_import(fixture.collection, input_write(&input, "x.npy"), NULL, NULL, &err), &err);
  uint8_t vector[3];
  char attributes[17];
  CHECK_OK(get_number(fixture.collection, "", 1, vector, attributes));
  CHECK_MEM_EQ(vector, "\x04\x05\x06", 3);
  close_fixture(&fixture);
}

static void check_refused(struct fixture *fixture, const char *path, const turb_import_options *options, turb_status wanted,
                          const char *part, uint64_t rows_before) {
  turb_error err = TURB_ERROR_INIT;
  uint64_t rows = 99;
  CHECK_STATUS_ERR(turb_import(fixture->collection, path, options, &rows, &err), wanted, &err);
  CHECK_MSG(test_contains(err.message, part), "'%s' lacks '%s'", err.message, part);
  CHECK_EQ(rows, rows_before);
  CHECK_EQ(count_rows(fixture->collection), rows_before);
}

TEST(import, refusals_name_row_and_component) {
  struct fixture bytes = open_fixture(TURB_U8, 4);
  make_npy(20, 4);
  set_component(50, 300);
  turb_import_options options = TURB_IMPORT_OPTIONS_INIT;
  options.batch_rows = 5;
  check_refused(&bytes, input_write(&input, "x.npy"), &options, TURB_INVALID, "row 12: component 2 is 300, which u8 cannot hold", 10);
  close_fixture(&bytes);
  struct fixture floats = open_fixture(TURB_F32, 4);
  set_component(50, NAN);
  options.batch_rows = 0;
  check_refused(&floats, input_write(&input, "x.npy"), &options, TURB_INVALID, "row 12", 0);
  turb_error err = TURB_ERROR_INIT;
  CHECK_STATUS(turb_import(floats.collection, input_write(&input, "x.npy"), NULL, NULL, &err), TURB_INVALID);
  CHECK(test_contains(err.message, "component 2"));
  CHECK_EQ(err.offset, 128 + 48 * 4);
  close_fixture(&floats);
}

TEST(import, refusals_of_files_and_options) {
  struct fixture fixture = open_fixture(TURB_F32, 5);
  make_npy(20, 4);
  const char *path = input_write(&input, "x.npy");
  check_refused(&fixture, path, NULL, TURB_INVALID, "rows of 4 components; collection c takes 5", 0);
  make_npy(20, 5);
  path = input_write(&input, "x.npy");
  turb_import_options options = TURB_IMPORT_OPTIONS_INIT;
  options.first_row = 21;
  check_refused(&fixture, path, &options, TURB_INVALID, "pass the file's 20 rows", 0);
  options.first_row = 20;
  check_refused(&fixture, path, &(turb_import_options){.size = sizeof options, .first_row = 15, .rows = 6}, TURB_INVALID, "first_row 15",
                0);
  check_refused(&fixture, path, &(turb_import_options){.size = sizeof options, .first_key = UINT64_MAX}, TURB_INVALID, "first_key", 0);
  check_refused(&fixture, path, &(turb_import_options){.size = sizeof options, .batch_rows = 65537}, TURB_INVALID, "batch_rows", 0);
  check_refused(&fixture, path, &(turb_import_options){.size = sizeof options, .labels_path = path}, TURB_INVALID, "labels_path", 0);
  check_refused(&fixture, path, &(turb_import_options){.size = sizeof options, .key_prefix = {path, TURB_MAX_KEY_BYTES - 7}},
                TURB_TOO_LARGE, "key_prefix", 0);
  check_refused(&fixture, test_path(fixture.folder, "none"), NULL, TURB_NOT_FOUND, "none", 0);
  uint64_t rows = 99;
  CHECK_OK(turb_import(fixture.collection, path, &options, &rows, NULL)); /* nothing follows row 20 */
  CHECK_EQ(rows, 0);
  CHECK_STATUS(turb_import(NULL, path, NULL, &rows, NULL), TURB_INVALID);
  close_fixture(&fixture);
}

TEST(import, labels_that_do_not_match) {
  struct fixture fixture = open_fixture(TURB_U8, 4);
  input.size = 0;
  input_add_idx(&input, 0x08, 2, (const uint32_t[]){3, 4});
  input_add(&input, "abcdefghijkl", 12);
  const char *images = input_write(&input, "images");
  input.size = 0;
  input_add_idx(&input, 0x08, 1, (const uint32_t[]){4});
  input_add(&input, "\1\2\3\4", 4);
  turb_import_options options = TURB_IMPORT_OPTIONS_INIT;
  options.labels_path = input_write(&input, "labels");
  check_refused(&fixture, images, &options, TURB_INVALID, "4 labels for 3 rows", 0);
  close_fixture(&fixture);
}

/* Bytes behind the last row of a compressed file are met when its last chunk is read, and not by a part before it. */
TEST(import, damage_behind_the_last_row) {
  struct fixture fixture = open_fixture(TURB_U8, 4);
  input.size = 0;
  input_add_idx(&input, 0x08, 2, (const uint32_t[]){3, 4});
  input_add(&input, "abcdefghijklm", 13);
  turb_import_options options = TURB_IMPORT_OPTIONS_INIT;
  options.batch_rows = 1;
  check_refused(&fixture, input_write_gzip(&input, "x.gz", 0, SIZE_MAX), &options, TURB_CORRUPTION, "behind the last of 3 rows", 0);
  options.rows = 2; /* the damage is beyond the part */
  uint64_t rows = 0;
  CHECK_OK(turb_import(fixture.collection, input_write_gzip(&input, "x.gz", 0, SIZE_MAX), &options, &rows, NULL));
  CHECK_EQ(rows, 2);
  close_fixture(&fixture);
}

static bool cancel_after(void *context, uint64_t done, uint64_t total) {
  uint64_t *last = context;
  CHECK(done > *last);
  CHECK(done <= total);
  *last = done;
  return done < 40;
}

TEST(import, cancel_keeps_what_was_written) {
  struct fixture fixture = open_fixture(TURB_F32, 4);
  make_npy(100, 4);
  uint64_t last = 0;
  turb_import_options options = TURB_IMPORT_OPTIONS_INIT;
  options.batch_rows = 10;
  options.progress = cancel_after;
  options.progress_context = &last;
  check_refused(&fixture, input_write(&input, "x.npy"), &options, TURB_CANCELLED, "after 40 of 100 rows", 40);
  CHECK_EQ(last, 40);
  close_fixture(&fixture);
}

TEST(import, zero_rows) {
  struct fixture fixture = open_fixture(TURB_F32, 4);
  make_npy(0, 4);
  uint64_t rows = 99;
  CHECK_OK(turb_import(fixture.collection, input_write(&input, "x.npy"), NULL, &rows, NULL));
  CHECK_EQ(rows, 0);
  make_npy(0, 3);
  CHECK_STATUS(turb_import(fixture.collection, input_write(&input, "x.npy"), NULL, NULL, NULL), TURB_INVALID);
  input.size = 0;
  const turb_import_options options = {.size = sizeof options, .format = TURB_IMPORT_FVECS};
  CHECK_OK(turb_import(fixture.collection, input_write(&input, "x.fvecs"), &options, &rows, NULL));
  close_fixture(&fixture);
}

TEST(import, reopened_rows_are_there) {
  struct fixture fixture = open_fixture(TURB_F32, 4);
  make_npy(500, 4);
  CHECK_OK(turb_import(fixture.collection, input_write(&input, "x.npy"), NULL, NULL, NULL));
  close_fixture(&fixture);
  CHECK_OK(turb_open(test_path(fixture.folder, "db"), NULL, &fixture.db, NULL));
  CHECK_OK(turb_collection_open(fixture.db, "c", &fixture.collection, NULL));
  CHECK_EQ(count_rows(fixture.collection), 500);
  close_fixture(&fixture);
}

TEST(import, describe) {
  make_npy(7, 4);
  turb_import_description description = {.size = sizeof description};
  turb_error err = TURB_ERROR_INIT;
  CHECK_OK_ERR(turb_import_describe(input_write(&input, "x.npy"), TURB_IMPORT_AUTO, &description, &err), &err);
  CHECK_EQ(description.format, TURB_IMPORT_NPY);
  CHECK_EQ(description.type, TURB_F32);
  CHECK_EQ(description.dimension, 4);
  CHECK_EQ(description.rows, 7);
  CHECK_EQ(description.bytes, 7 * 16);
  CHECK_EQ(description.size, sizeof description);
  CHECK_STATUS(turb_import_describe(input_write(&input, "x.npy"), TURB_IMPORT_IDX, &description, NULL), TURB_CORRUPTION);
  CHECK_EQ(description.rows, 0);
  CHECK_STATUS(turb_import_describe(NULL, TURB_IMPORT_AUTO, &description, NULL), TURB_INVALID);
  description.size = 0;
  CHECK_STATUS(turb_import_describe("x", TURB_IMPORT_AUTO, &description, NULL), TURB_INVALID);
}
