/* Loads, stores, varints, reader and buffer, with what is cut short or too long. */
#include "base/coding.h"

#include "base/key.h"
#include "tests/support/allocator.h"
#include "tests/support/test.h"

TEST(coding, fixed_widths_are_little_endian) {
  uint8_t bytes[9] = {0};
  store_u16(bytes + 1, 0x0102);
  CHECK_MEM_EQ(bytes + 1, "\x02\x01", 2);
  CHECK_EQ(load_u16(bytes + 1), 0x0102);
  store_u32(bytes + 1, 0x01020304);
  CHECK_MEM_EQ(bytes + 1, "\x04\x03\x02\x01", 4);
  CHECK_EQ(load_u32(bytes + 1), 0x01020304);
  store_u64(bytes + 1, UINT64_C(0x0102030405060708));
  CHECK_MEM_EQ(bytes + 1, "\x08\x07\x06\x05\x04\x03\x02\x01", 8);
  CHECK_EQ(load_u64(bytes + 1), UINT64_C(0x0102030405060708));
}

TEST(coding, key_prefix_compares_as_bytes) {
  struct random random;
  random_init(&random, test_seed());
  for (uint64_t i = 0; i < test_scale(20000, 20000, 200000); i++) {
    uint8_t a[12];
    uint8_t b[12];
    const size_t a_size = random_below(&random, sizeof a + 1);
    const size_t b_size = random_below(&random, sizeof b + 1);
    for (size_t at = 0; at < sizeof a; at++) {
      a[at] = (uint8_t)(random_below(&random, 3) * 127);
      b[at] = (uint8_t)(random_below(&random, 3) * 127);
    }
    const uint64_t a_prefix = key_prefix8(a, a_size);
    const uint64_t b_prefix = key_prefix8(b, b_size);
    if (a_prefix != b_prefix) {
      CHECK_EQ(a_prefix < b_prefix, key_compare(a, a_size, b, b_size) < 0);
    }
  }
  CHECK_EQ(key_prefix8("", 0), 0);
  CHECK_EQ(key_prefix8("\xff", 1), UINT64_C(0xff) << 56);
  CHECK_EQ(key_prefix8("abcdefghi", 9), key_prefix8("abcdefgh", 8));
}

TEST(coding, varints_round_trip_at_their_borders) {
  for (unsigned bit = 0; bit < 64; bit++) {
    for (int delta = -1; delta <= 1; delta++) {
      const uint64_t value = (UINT64_C(1) << bit) + (uint64_t)(int64_t)delta;
      uint8_t bytes[VARINT_MAX_BYTES];
      const uint8_t *end = varint_put(bytes, value);
      CHECK_EQ((size_t)(end - bytes), varint_size(value));
      uint64_t got = 1;
      CHECK(varint_get(bytes, end, &got) == end);
      CHECK_EQ(got, value);
      CHECK(varint_get(bytes, end - 1, &got) == NULL);
      CHECK_EQ(got, 0);
    }
  }
}

TEST(coding, overlong_varints_are_refused) {
  const uint8_t eleven[] = {0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00};
  const uint8_t above[] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02};
  const uint8_t most[] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01};
  uint64_t value = 0;
  CHECK(varint_get(eleven, eleven + sizeof eleven, &value) == NULL);
  CHECK(varint_get(above, above + sizeof above, &value) == NULL);
  CHECK(varint_get(most, most + sizeof most, &value) == most + sizeof most);
  CHECK_EQ(value, UINT64_MAX);
}

TEST(coding, what_a_buffer_writes_a_reader_reads) {
  struct test_allocator allocator;
  test_allocator_init(&allocator);
  struct buffer buffer;
  buffer_init(&buffer, &allocator.base);
  for (int i = 0; i < 1000; i++) {
    CHECK_OK(buffer_append_u8(&buffer, 1));
    CHECK_OK(buffer_append_u16(&buffer, 2));
    CHECK_OK(buffer_append_u32(&buffer, 3));
    CHECK_OK(buffer_append_u64(&buffer, 4));
    CHECK_OK(buffer_append_varint(&buffer, 300));
    CHECK_OK(buffer_append_sized(&buffer, "words", 5));
    CHECK_OK(buffer_append_zeros(&buffer, 3));
  }
  CHECK_OK(buffer_status(&buffer));
  CHECK_EQ(buffer.size, 1000 * (15 + 2 + 6 + 3));
  struct reader reader;
  reader_init(&reader, buffer.data, buffer.size);
  for (int i = 0; i < 1000; i++) {
    CHECK_EQ(reader_u8(&reader), 1);
    CHECK_EQ(reader_u16(&reader), 2);
    CHECK_EQ(reader_u32(&reader), 3);
    CHECK_EQ(reader_u64(&reader), 4);
    CHECK_EQ(reader_varint(&reader), 300);
    size_t size = 0;
    const uint8_t *words = reader_sized(&reader, &size);
    CHECK_EQ(size, 5);
    CHECK_MEM_EQ(words, "words", 5);
    reader_skip(&reader, 3);
  }
  CHECK_EQ(reader_left(&reader), 0);
  CHECK(!reader.failed);
  buffer_clear(&buffer);
  CHECK_EQ(buffer.size, 0);
  buffer_free(&buffer);
  test_allocator_check_empty(&allocator);
}

TEST(coding, a_reader_fails_for_good) {
  const uint8_t bytes[] = {5, 'a', 'b'};
  struct reader reader;
  size_t size = 9;
  reader_init(&reader, bytes, sizeof bytes);
  CHECK(reader_sized(&reader, &size) == NULL);
  CHECK_EQ(size, 0);
  CHECK(reader.failed);
  CHECK_EQ(reader_u8(&reader), 0);
  CHECK_EQ(reader_varint(&reader), 0);
  CHECK_EQ(reader_left(&reader), 0);
  reader_init(&reader, bytes, sizeof bytes);
  CHECK(reader_bytes(&reader, UINT64_MAX) == NULL);
  CHECK(reader.failed);
  reader_init(&reader, bytes, sizeof bytes);
  CHECK_EQ(reader_u32(&reader), 0);
  CHECK(reader.failed);
  reader_init(&reader, NULL, 0);
  CHECK(!reader.failed);
  CHECK_EQ(reader_u8(&reader), 0);
  CHECK(reader.failed);
}

TEST(coding, a_buffer_keeps_its_first_failure) {
  struct test_allocator allocator;
  test_allocator_init(&allocator);
  for (uint64_t n = 1;; n++) {
    struct buffer buffer;
    buffer_init(&buffer, &allocator.base);
    test_allocator_fail_at(&allocator, n);
    for (int i = 0; i < 500; i++) {
      (void)buffer_append_u64(&buffer, 1);
      (void)buffer_append_sized(&buffer, "words", 5);
    }
    const turb_status status = buffer_status(&buffer);
    const bool complete = buffer.size == 500 * 14;
    buffer_free(&buffer);
    test_allocator_check_empty(&allocator);
    CHECK_EQ(status == TURB_OK, complete);
    if (!allocator.failed) {
      CHECK_OK(status);
      CHECK_GT(n, 3);
      break;
    }
    CHECK_STATUS(status, TURB_NO_MEMORY);
  }
  test_allocator_fail_at(&allocator, 0);
  struct buffer buffer;
  buffer_init(&buffer, &allocator.base);
  CHECK_OK(buffer_append_u8(&buffer, 1));
  CHECK_STATUS(buffer_reserve(&buffer, SIZE_MAX), TURB_NO_MEMORY);
  CHECK_STATUS(buffer_append(&buffer, NULL, 0), TURB_NO_MEMORY);
  buffer_free(&buffer);
}
