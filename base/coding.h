/*
 * Byte coding: little-endian loads and stores, varints, a bounds-checked reader and a growing buffer.
 *
 * All file formats are little-endian; the code is right on any host. A varint is LEB128: seven bits a
 * byte, low bits first, the top bit set on all but the last, at most ten bytes.
 *
 * Invariants
 *   1. A reader never passes its end: a read that would sets failed, moves to the end and returns 0 or
 *      NULL, and so does every read after it. One check after a group of reads is enough.
 *   2. A buffer keeps its first failure: appends after it change nothing, so one check of buffer_status
 *      after a group of appends is enough.
 *
 * Threads: a reader or buffer belongs to one thread at a time.
 */
#ifndef TURB_BASE_CODING_H
#define TURB_BASE_CODING_H

#include <endian.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/alloc.h"
#include "base/status.h"

/* ---- fixed widths ---- */

static inline uint16_t load_u16(const void *from) {
  uint16_t value;
  memcpy(&value, from, sizeof value);
  return le16toh(value);
}

static inline uint32_t load_u32(const void *from) {
  uint32_t value;
  memcpy(&value, from, sizeof value);
  return le32toh(value);
}

static inline uint64_t load_u64(const void *from) {
  uint64_t value;
  memcpy(&value, from, sizeof value);
  return le64toh(value);
}

static inline void store_u16(void *to, uint16_t value) {
  value = htole16(value);
  memcpy(to, &value, sizeof value);
}

static inline void store_u32(void *to, uint32_t value) {
  value = htole32(value);
  memcpy(to, &value, sizeof value);
}

static inline void store_u64(void *to, uint64_t value) {
  value = htole64(value);
  memcpy(to, &value, sizeof value);
}

/* ---- varints ---- */

#define VARINT_MAX_BYTES 10

/* The bytes that varint_put will write. */
static inline size_t varint_size(uint64_t value) {
  size_t size = 1;
  while (value >= 0x80) {
    value >>= 7;
    size++;
  }
  return size;
}

/* Writes value (up to VARINT_MAX_BYTES) and returns the byte after it. */
static inline uint8_t *varint_put(uint8_t *to, uint64_t value) {
  while (value >= 0x80) {
    *to++ = (uint8_t)(value | 0x80);
    value >>= 7;
  }
  *to++ = (uint8_t)value;
  return to;
}

/* Reads a varint from [at, end): the byte after it, or NULL when it is cut short or over 64 bits. */
const uint8_t *varint_get(const uint8_t *at, const uint8_t *end, uint64_t *value);

/* ---- reader ---- */

/* A view of bytes that it does not own. */
struct reader {
  const uint8_t *at;
  const uint8_t *end;
  bool failed;
};

static inline void reader_init(struct reader *reader, const void *data, size_t size) {
  reader->at = data;
  reader->end = size != 0 ? reader->at + size : reader->at; /* data may be NULL */
  reader->failed = false;
}

static inline size_t reader_left(const struct reader *reader) {
  return (size_t)(reader->end - reader->at);
}

/* The next size bytes in place, or NULL; they live as long as what the reader looks at. */
static inline const uint8_t *reader_bytes(struct reader *reader, uint64_t size) {
  if (reader->failed || size > (uint64_t)(reader->end - reader->at)) {
    reader->failed = true;
    reader->at = reader->end;
    return NULL;
  }
  const uint8_t *bytes = reader->at;
  reader->at += size;
  return bytes;
}

static inline void reader_skip(struct reader *reader, uint64_t size) {
  (void)reader_bytes(reader, size);
}

static inline uint8_t reader_u8(struct reader *reader) {
  const uint8_t *bytes = reader_bytes(reader, 1);
  return bytes != NULL ? *bytes : 0;
}

static inline uint16_t reader_u16(struct reader *reader) {
  const uint8_t *bytes = reader_bytes(reader, 2);
  return bytes != NULL ? load_u16(bytes) : 0;
}

static inline uint32_t reader_u32(struct reader *reader) {
  const uint8_t *bytes = reader_bytes(reader, 4);
  return bytes != NULL ? load_u32(bytes) : 0;
}

static inline uint64_t reader_u64(struct reader *reader) {
  const uint8_t *bytes = reader_bytes(reader, 8);
  return bytes != NULL ? load_u64(bytes) : 0;
}

uint64_t reader_varint(struct reader *reader);

/* A varint length and as many bytes, in place; NULL (size 0) when cut short. */
const uint8_t *reader_sized(struct reader *reader, size_t *size);

/* ---- buffer ---- */

/* Growing bytes; data is the buffer's and moves when it grows. */
struct buffer {
  const turb_allocator *allocator;
  uint8_t *data;
  size_t size;
  size_t capacity;
  turb_status status; /* TURB_OK, or the first failure: TURB_NO_MEMORY */
};

/* Takes no memory. */
void buffer_init(struct buffer *buffer, const turb_allocator *allocator);

/* Releases the bytes; the buffer is then as after buffer_init. */
void buffer_free(struct buffer *buffer);

/* Empties the buffer and its failure, keeping its capacity. */
void buffer_clear(struct buffer *buffer);

/* The first failure since buffer_init, buffer_clear or buffer_free. */
TURB_MUST_CHECK turb_status buffer_status(const struct buffer *buffer);

/* Makes room for more bytes behind size. */
turb_status buffer_reserve(struct buffer *buffer, size_t more);

/*
 * Appends size uninitialised bytes and returns where they are (until the buffer grows again), or NULL.
 */
uint8_t *buffer_extend(struct buffer *buffer, size_t size);

/*
 * Appends: each returns buffer_status, which may be left unread when buffer_status is checked at the end
 * (invariant 2).
 */
turb_status buffer_append(struct buffer *buffer, const void *data, size_t size);
turb_status buffer_append_zeros(struct buffer *buffer, size_t size);
turb_status buffer_append_u8(struct buffer *buffer, uint8_t value);
turb_status buffer_append_u16(struct buffer *buffer, uint16_t value);
turb_status buffer_append_u32(struct buffer *buffer, uint32_t value);
turb_status buffer_append_u64(struct buffer *buffer, uint64_t value);
turb_status buffer_append_varint(struct buffer *buffer, uint64_t value);

/* A varint length and the bytes: what reader_sized reads. */
turb_status buffer_append_sized(struct buffer *buffer, const void *data, size_t size);

#endif
