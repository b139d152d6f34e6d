/* Batches: what is built is read back, groups without recoding, bounds, damage of every kind. */
#include "engine/batch.h"

#include <stdlib.h>

#include "base/slot.h"
#include "tests/support/allocator.h"
#include "tests/support/test.h"

#define MOST_OPERATIONS 64

struct expected {
  enum batch_kind kind;
  uint64_t collection_id;
  uint8_t key[32], end[32], row[64], attributes[80];
  size_t key_size, end_size, row_size, attributes_size;
};

static size_t fill(struct random *random, uint8_t *to, size_t least, size_t most) {
  const size_t size = (size_t)random_between(random, least, most);
  random_fill(random, to, size);
  return size;
}

static void add_random(struct random *random, struct batch *batch, struct expected *out) {
  *out = (struct expected){.kind = (enum batch_kind)random_between(random, BATCH_PUT, BATCH_DELETE_RANGE)};
  out->collection_id = random_u64(random) >> random_below(random, 64);
  switch (out->kind) {
  case BATCH_PUT:
    out->key_size = fill(random, out->key, 1, sizeof out->key);
    out->row_size = fill(random, out->row, 1, sizeof out->row);
    out->attributes_size = fill(random, out->attributes, 0, sizeof out->attributes);
    CHECK_OK(batch_put(batch, out->collection_id, (turb_bytes){out->key, out->key_size}, (turb_bytes){out->row, out->row_size},
                       (turb_bytes){out->attributes, out->attributes_size}, NULL));
    break;
  case BATCH_DELETE:
    out->key_size = fill(random, out->key, 1, sizeof out->key);
    CHECK_OK(batch_delete(batch, out->collection_id, (turb_bytes){out->key, out->key_size}, NULL));
    break;
  case BATCH_DELETE_RANGE:
    out->key_size = fill(random, out->key, 0, sizeof out->key);
    out->end_size = fill(random, out->end, 0, sizeof out->end);
    CHECK_OK(
        batch_delete_range(batch, out->collection_id, (turb_bytes){out->key, out->key_size}, (turb_bytes){out->end, out->end_size}, NULL));
    break;
  }
}

static void check_bytes(turb_bytes got, const uint8_t *wanted, size_t size) {
  CHECK_EQ(got.size, size);
  CHECK(size == 0 || memcmp(got.data, wanted, size) == 0);
}

static void check_operation(const struct batch_operation *got, const struct expected *wanted) {
  CHECK_EQ(got->kind, wanted->kind);
  CHECK_EQ(got->collection_id, wanted->collection_id);
  check_bytes(got->key, wanted->key, wanted->key_size);
  check_bytes(got->end, wanted->end, wanted->end_size);
  check_bytes(got->row, wanted->row, wanted->row_size);
  check_bytes(got->attributes, wanted->attributes, wanted->attributes_size);
}

static void check_payload(turb_bytes payload, uint64_t first, const struct expected *wanted, size_t count) {
  struct batch_reader reader;
  CHECK_OK(batch_reader_open(&reader, payload, "log", 100, NULL));
  CHECK_EQ(reader.count, count);
  struct batch_operation operation;
  bool more = false;
  for (size_t i = 0; i < count; i++) {
    CHECK_OK(batch_reader_next(&reader, &operation, &more, NULL));
    CHECK(more);
    CHECK_EQ(operation.sequence, first + i);
    check_operation(&operation, &wanted[i]);
  }
  CHECK_OK(batch_reader_next(&reader, &operation, &more, NULL));
  CHECK(!more);
}

TEST(batch, what_is_built_is_read) {
  struct random random;
  random_init(&random, test_seed());
  struct test_allocator allocator;
  test_allocator_init(&allocator);
  struct batch batch;
  batch_init(&batch, &allocator.base);
  struct expected expected[MOST_OPERATIONS];
  for (uint64_t round = 0; round < test_scale(300, 300, 20000); round++) {
    batch_clear(&batch);
    CHECK_EQ(batch_bytes(&batch), BATCH_HEADER_BYTES);
    CHECK_EQ(batch_operations(&batch).size, 0);
    const size_t count = (size_t)random_between(&random, 1, MOST_OPERATIONS);
    for (size_t i = 0; i < count; i++) {
      add_random(&random, &batch, &expected[i]);
    }
    CHECK_EQ(batch_count(&batch), count);
    const uint64_t first = random_between(&random, 1, SLOT_SEQUENCE_MAX - MOST_OPERATIONS);
    const turb_bytes payload = batch_payload(&batch, first);
    CHECK_EQ(payload.size, batch_bytes(&batch));
    check_payload(payload, first, expected, count);
  }
  batch_free(&batch);
  test_allocator_check_empty(&allocator);
}

TEST(batch, a_group_is_one_payload_without_recoding) {
  struct random random;
  random_init(&random, test_seed());
  struct expected expected[9];
  struct batch batches[3];
  uint8_t payload[8192];
  size_t size = BATCH_HEADER_BYTES;
  batch_write_header(payload, 77, 9);
  for (size_t b = 0; b < 3; b++) {
    batch_init(&batches[b], alloc_default());
    for (size_t i = 0; i < 3; i++) {
      add_random(&random, &batches[b], &expected[3 * b + i]);
    }
    const turb_bytes operations = batch_operations(&batches[b]);
    memcpy(payload + size, operations.data, operations.size);
    size += operations.size;
    struct batch_reader reader;
    batch_reader_open_operations(&reader, operations, 3, 5);
    struct batch_operation operation;
    bool more = false;
    CHECK_OK(batch_reader_next(&reader, &operation, &more, NULL));
    CHECK_EQ(operation.sequence, 5);
    check_operation(&operation, &expected[3 * b]);
  }
  check_payload((turb_bytes){payload, size}, 77, expected, 9);
  CHECK_OK(batch_append(&batches[0], &batches[1], NULL));
  CHECK_OK(batch_append(&batches[0], &batches[2], NULL));
  check_payload(batch_payload(&batches[0], 77), 77, expected, 9);
  CHECK_MEM_EQ(batches[0].bytes.data, payload, size);
  CHECK_OK(batch_append(&batches[1], &batches[1], NULL)); /* to itself */
  memcpy(&expected[0], &expected[3], 3 * sizeof expected[0]);
  check_payload(batch_payload(&batches[1], 1), 1, expected, 6);
  for (size_t b = 0; b < 3; b++) {
    batch_free(&batches[b]);
  }
}

TEST(batch, bounds_are_kept) {
  struct batch batch;
  batch_init(&batch, alloc_default());
  uint8_t *large = calloc(1, TURB_MAX_ATTRIBUTE_BYTES + 1);
  CHECK(large != NULL);
  const turb_bytes key = TURB_STR("key");
  const turb_bytes row = TURB_STR("row");
  CHECK_STATUS(batch_put(&batch, 1, TURB_NONE, row, TURB_NONE, NULL), TURB_INVALID);
  CHECK_STATUS(batch_put(&batch, 1, (turb_bytes){large, TURB_MAX_KEY_BYTES + 1}, row, TURB_NONE, NULL), TURB_TOO_LARGE);
  CHECK_STATUS(batch_put(&batch, 1, key, TURB_NONE, TURB_NONE, NULL), TURB_INVALID);
  CHECK_STATUS(batch_put(&batch, 1, key, (turb_bytes){large, BATCH_MAX_ROW_BYTES + 1}, TURB_NONE, NULL), TURB_TOO_LARGE);
  CHECK_STATUS(batch_put(&batch, 1, key, row, (turb_bytes){large, TURB_MAX_ATTRIBUTE_BYTES + 1}, NULL), TURB_TOO_LARGE);
  CHECK_STATUS(batch_delete(&batch, 1, TURB_NONE, NULL), TURB_INVALID);
  CHECK_STATUS(batch_delete_range(&batch, 1, (turb_bytes){large, TURB_MAX_KEY_BYTES + 1}, key, NULL), TURB_TOO_LARGE);
  CHECK_EQ(batch_count(&batch), 0);
  CHECK_OK(batch_put(&batch, 1, (turb_bytes){large, TURB_MAX_KEY_BYTES}, (turb_bytes){large, BATCH_MAX_ROW_BYTES},
                     (turb_bytes){large, TURB_MAX_ATTRIBUTE_BYTES}, NULL));
  struct batch_reader reader;
  CHECK_OK(batch_reader_open(&reader, batch_payload(&batch, SLOT_SEQUENCE_MAX), NULL, 0, NULL));
  struct batch_operation operation;
  bool more = false;
  CHECK_OK(batch_reader_next(&reader, &operation, &more, NULL));
  CHECK(more && operation.attributes.size == TURB_MAX_ATTRIBUTE_BYTES);
  /* As if the batch were nearly full; nothing is touched before the check. */
  const size_t real_size = batch.bytes.size;
  batch.bytes.size = (size_t)BATCH_MAX_BYTES - 10;
  CHECK_STATUS(batch_delete(&batch, 1, key, NULL), TURB_TOO_LARGE);
  CHECK_EQ(batch_count(&batch), 1);
  batch.bytes.size = real_size;
  batch_trim(&batch, 4096);
  CHECK_EQ(batch.bytes.capacity, 0);
  batch_free(&batch);
  free(large);
}

/* Reads all that can be read; every byte handed out lies within the payload. Returns the status at the end. */
static turb_status read_all(turb_bytes payload, turb_error *err, size_t *read) {
  struct batch_reader reader;
  *read = 0;
  turb_status status = batch_reader_open(&reader, payload, "a-log", 1000, err);
  bool more = true;
  while (status == TURB_OK && more) {
    struct batch_operation operation;
    status = batch_reader_next(&reader, &operation, &more, err);
    const turb_bytes parts[] = {operation.key, operation.end, operation.row, operation.attributes};
    for (size_t i = 0; i < 4 && more; i++) {
      const uint8_t *data = parts[i].data;
      CHECK(parts[i].size == 0 ||
            (data >= (const uint8_t *)payload.data && data + parts[i].size <= (const uint8_t *)payload.data + payload.size));
    }
    *read += more;
  }
  return status;
}

/* A payload in a block of exactly its size, so that sanitizers see every step beyond it. */
static turb_status read_copy(turb_bytes payload, turb_error *err, size_t *read) {
  uint8_t *copy = malloc(payload.size != 0 ? payload.size : 1);
  CHECK(copy != NULL);
  memcpy(copy, payload.data, payload.size);
  const turb_status status = read_all((turb_bytes){copy, payload.size}, err, read);
  free(copy);
  return status;
}

TEST(batch, every_truncation_is_corruption_and_no_flip_leads_astray) {
  struct random random;
  random_init(&random, test_seed());
  struct batch batch;
  batch_init(&batch, alloc_default());
  struct expected expected[8];
  for (size_t i = 0; i < 8; i++) {
    add_random(&random, &batch, &expected[i]);
  }
  const turb_bytes payload = batch_payload(&batch, 9);
  size_t read = 0;
  for (size_t size = 0; size < payload.size; size++) {
    turb_error err = TURB_ERROR_INIT;
    CHECK_STATUS(read_copy((turb_bytes){payload.data, size}, &err, &read), TURB_CORRUPTION);
    CHECK(read < 8);
    CHECK_STR_EQ(err.file, "a-log");
    CHECK(err.offset >= 1000 && err.offset <= 1000 + size);
  }
  for (size_t bit = 0; bit < 8 * payload.size; bit++) {
    batch.bytes.data[bit / 8] ^= (uint8_t)(1u << (bit % 8));
    turb_error err = TURB_ERROR_INIT;
    const turb_status status = read_copy(payload, &err, &read);
    CHECK(status == TURB_OK ? read == 8 : status == TURB_CORRUPTION && err.offset >= 1000);
    batch.bytes.data[bit / 8] ^= (uint8_t)(1u << (bit % 8));
  }
  CHECK_OK(buffer_append_u8(&batch.bytes, 0));
  CHECK_STATUS(read_copy((turb_bytes){batch.bytes.data, batch.bytes.size}, NULL, &read), TURB_CORRUPTION);
  CHECK_EQ(read, 8);
  batch_free(&batch);
}

TEST(batch, headers_out_of_bounds_are_corruption) {
  uint8_t payload[64] = {0};
  struct batch_reader reader;
  const turb_bytes bytes = {payload, sizeof payload};
  batch_write_header(payload, 1, 0);
  CHECK_STATUS(batch_reader_open(&reader, bytes, NULL, 0, NULL), TURB_CORRUPTION);
  batch_write_header(payload, 0, 1);
  CHECK_STATUS(batch_reader_open(&reader, bytes, NULL, 0, NULL), TURB_CORRUPTION);
  batch_write_header(payload, SLOT_SEQUENCE_MAX, 2);
  CHECK_STATUS(batch_reader_open(&reader, bytes, NULL, 0, NULL), TURB_CORRUPTION);
  batch_write_header(payload, SLOT_SEQUENCE_MAX, 1);
  CHECK_OK(batch_reader_open(&reader, bytes, NULL, 0, NULL));
}

TEST(batch, without_memory_a_batch_stays_as_it_was) {
  struct test_allocator allocator;
  test_allocator_init(&allocator);
  struct batch batch;
  batch_init(&batch, &allocator.base);
  uint8_t row[600] = {1};
  size_t failures = 0;
  for (uint32_t i = 0; i < 50; i++) {
    test_allocator_fail_at(&allocator, 1);
    turb_status status = batch_put(&batch, 3, TURB_STR("k"), (turb_bytes){row, sizeof row}, TURB_NONE, NULL);
    if (allocator.failed) {
      failures++;
      CHECK_STATUS(status, TURB_NO_MEMORY);
      CHECK_EQ(batch_count(&batch), i);
      test_allocator_fail_at(&allocator, 0);
      status = batch_put(&batch, 3, TURB_STR("k"), (turb_bytes){row, sizeof row}, TURB_NONE, NULL);
    }
    CHECK_OK(status);
    size_t read = 0;
    CHECK_OK(read_all(batch_payload(&batch, 1), NULL, &read));
    CHECK_EQ(read, i + 1);
  }
  CHECK(failures > 3);
  batch_free(&batch);
  test_allocator_check_empty(&allocator);
}
