/*
 * Small input files made by tests: bytes appended to a buffer and written out, plain or with gzip.
 */
#ifndef TURB_TESTS_INGEST_INPUT_FILES_H
#define TURB_TESTS_INGEST_INPUT_FILES_H

#include <stddef.h>
#include <stdint.h>

struct input {
  uint8_t bytes[1 << 16];
  size_t size;
};

void input_add(struct input *input, const void *bytes, size_t size);

/* width bytes of value, big- or little-endian. */
void input_add_number(struct input *input, uint64_t value, unsigned width, int big_endian);

/* The preamble of a .npy file; the header is padded so that data begins at a multiple of 64. */
void input_add_npy(struct input *input, unsigned version, const char *dictionary);

/* The header of an idx file. */
void input_add_idx(struct input *input, uint8_t code, unsigned dimensions, const uint32_t *sizes);

/* Writes the bytes to name in a fresh folder; the path is good for an argument. */
const char *input_write(const struct input *input, const char *name);

/* The same, compressed; cut drops bytes from the end, flip (unless SIZE_MAX) inverts the byte at that offset. */
const char *input_write_gzip(const struct input *input, const char *name, size_t cut, size_t flip);

#endif
