/* Varint decoding and the growing buffer; see coding.h for the rules. */
#include "base/coding.h"

#define BUFFER_FIRST_CAPACITY 256

const uint8_t *varint_get(const uint8_t *at, const uint8_t *end, uint64_t *value) {
  *value = 0;
  uint64_t result = 0;
  for (unsigned shift = 0; shift < 64 && at < end; shift += 7) {
    const uint64_t byte = *at++;
    if (shift == 63 && byte > 1) {
      return NULL; /* more than 64 bits */
    }
    result |= (byte & 0x7f) << shift;
    if ((byte & 0x80) == 0) {
      *value = result;
      return at;
    }
  }
  return NULL;
}

uint64_t reader_varint(struct reader *reader) {
  uint64_t value = 0;
  const uint8_t *next = reader->failed ? NULL : varint_get(reader->at, reader->end, &value);
  if (next == NULL) {
    reader->failed = true;
    reader->at = reader->end;
    return 0;
  }
  reader->at = next;
  return value;
}

const uint8_t *reader_sized(struct reader *reader, size_t *size) {
  *size = 0;
  const uint64_t length = reader_varint(reader);
  const uint8_t *bytes = reader_bytes(reader, length);
  if (bytes != NULL) {
    *size = (size_t)length;
  }
  return bytes;
}

void buffer_init(struct buffer *buffer, const turb_allocator *allocator) {
  buffer->allocator = allocator;
  buffer->data = NULL;
  buffer->size = 0;
  buffer->capacity = 0;
  buffer->status = TURB_OK;
}

void buffer_free(struct buffer *buffer) {
  mem_free(buffer->allocator, buffer->data, buffer->capacity);
  buffer_init(buffer, buffer->allocator);
}

void buffer_clear(struct buffer *buffer) {
  buffer->size = 0;
  buffer->status = TURB_OK;
}

turb_status buffer_status(const struct buffer *buffer) {
  return buffer->status;
}

turb_status buffer_reserve(struct buffer *buffer, size_t more) {
  if (buffer->status != TURB_OK || more <= buffer->capacity - buffer->size) {
    return buffer->status;
  }
  size_t needed = 0;
  if (__builtin_add_overflow(buffer->size, more, &needed)) {
    buffer->status = TURB_NO_MEMORY;
    return buffer->status;
  }
  size_t capacity = buffer->capacity != 0 ? buffer->capacity : BUFFER_FIRST_CAPACITY;
  while (capacity < needed) {
    /* Half as much again: a large buffer that grows once must not double its charge. */
    const size_t step = capacity / 2;
    capacity = capacity > SIZE_MAX - step ? needed : capacity + step;
  }
  uint8_t *data = mem_alloc(buffer->allocator, capacity);
  if (data == NULL) {
    buffer->status = TURB_NO_MEMORY;
    return buffer->status;
  }
  if (buffer->size != 0) {
    memcpy(data, buffer->data, buffer->size);
  }
  mem_free(buffer->allocator, buffer->data, buffer->capacity);
  buffer->data = data;
  buffer->capacity = capacity;
  return TURB_OK;
}

uint8_t *buffer_extend(struct buffer *buffer, size_t size) {
  if (buffer_reserve(buffer, size) != TURB_OK) {
    return NULL;
  }
  uint8_t *at = buffer->data + buffer->size;
  buffer->size += size;
  return at;
}

turb_status buffer_append(struct buffer *buffer, const void *data, size_t size) {
  if (size == 0) {
    return buffer->status;
  }
  uint8_t *at = buffer_extend(buffer, size);
  if (at != NULL) {
    memcpy(at, data, size);
  }
  return buffer->status;
}

turb_status buffer_append_zeros(struct buffer *buffer, size_t size) {
  if (size == 0) {
    return buffer->status;
  }
  uint8_t *at = buffer_extend(buffer, size);
  if (at != NULL) {
    memset(at, 0, size);
  }
  return buffer->status;
}

turb_status buffer_append_u8(struct buffer *buffer, uint8_t value) {
  return buffer_append(buffer, &value, sizeof value);
}

turb_status buffer_append_u16(struct buffer *buffer, uint16_t value) {
  value = htole16(value);
  return buffer_append(buffer, &value, sizeof value);
}

turb_status buffer_append_u32(struct buffer *buffer, uint32_t value) {
  value = htole32(value);
  return buffer_append(buffer, &value, sizeof value);
}

turb_status buffer_append_u64(struct buffer *buffer, uint64_t value) {
  value = htole64(value);
  return buffer_append(buffer, &value, sizeof value);
}

turb_status buffer_append_varint(struct buffer *buffer, uint64_t value) {
  uint8_t bytes[VARINT_MAX_BYTES];
  const uint8_t *end = varint_put(bytes, value);
  return buffer_append(buffer, bytes, (size_t)(end - bytes));
}

turb_status buffer_append_sized(struct buffer *buffer, const void *data, size_t size) {
  (void)buffer_append_varint(buffer, size);
  return buffer_append(buffer, data, size);
}
