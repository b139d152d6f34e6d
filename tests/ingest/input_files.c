/* Small input files made by tests; see input_files.h. */
#include "tests/ingest/input_files.h"

#include <zlib.h>

#include "tests/support/test.h"

void input_add(struct input *input, const void *bytes, size_t size) {
  CHECK(size <= sizeof input->bytes - input->size);
  if (size != 0) {
    memcpy(input->bytes + input->size, bytes, size);
  }
  input->size += size;
}

void input_add_number(struct input *input, uint64_t value, unsigned width, int big_endian) {
  for (unsigned i = 0; i < width; i++) {
    const unsigned shift = 8 * (big_endian ? width - 1 - i : i);
    const uint8_t byte = (uint8_t)(value >> shift);
    input_add(input, &byte, 1);
  }
}

void input_add_npy(struct input *input, unsigned version, const char *dictionary) {
  const unsigned width = version == 1 ? 2 : 4;
  const size_t used = 8 + width + strlen(dictionary) + 1;
  const size_t padding = (64 - used % 64) % 64;
  input_add(input, "\x93NUMPY", 6);
  input_add_number(input, version, 1, 0);
  input_add_number(input, 0, 1, 0);
  input_add_number(input, strlen(dictionary) + padding + 1, width, 0);
  input_add(input, dictionary, strlen(dictionary));
  for (size_t i = 0; i < padding; i++) {
    input_add(input, " ", 1);
  }
  input_add(input, "\n", 1);
}

void input_add_idx(struct input *input, uint8_t code, unsigned dimensions, const uint32_t *sizes) {
  input_add_number(input, code, 3, 1);
  input_add_number(input, dimensions, 1, 1);
  for (unsigned i = 0; i < dimensions; i++) {
    input_add_number(input, sizes[i], 4, 1);
  }
}

static void write_file(const char *path, const void *bytes, size_t size) {
  FILE *file = fopen(path, "wb");
  CHECK(file != NULL);
  CHECK_EQ(fwrite(bytes, 1, size, file), size);
  CHECK_EQ(fclose(file), 0);
}

const char *input_write(const struct input *input, const char *name) {
  const char *path = test_path(test_tmpdir(), name);
  write_file(path, input->bytes, input->size);
  return path;
}

const char *input_write_gzip(const struct input *input, const char *name, size_t cut, size_t flip) {
  static uint8_t packed[1 << 17];
  z_stream stream;
  memset(&stream, 0, sizeof stream);
  CHECK_EQ(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  stream.next_in = (z_const Bytef *)(uintptr_t)input->bytes;
  stream.avail_in = (unsigned)input->size;
  stream.next_out = packed;
  stream.avail_out = sizeof packed;
  CHECK_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  const size_t size = sizeof packed - stream.avail_out;
  CHECK_EQ(deflateEnd(&stream), Z_OK);
  CHECK(cut <= size);
  if (flip != SIZE_MAX) {
    CHECK(flip < size);
    packed[flip] ^= 0xff;
  }
  const char *path = test_path(test_tmpdir(), name);
  write_file(path, packed, size - cut);
  return path;
}
