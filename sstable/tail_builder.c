/* The tail while it grows; see tail_builder.h. */
#include "sstable/tail_builder.h"

#include <assert.h>
#include <string.h>

#define SMALL_BYTES    256u  /* a buffer's first step, and more than an extent or the numbers of a top entry need */
#define PROPERTY_BYTES 1024u /* properties without their keys */

void tail_init(struct tail_builder *tail, const turb_allocator *allocator, struct budget *budget) {
  const uint64_t prepaid = budget != NULL ? TAIL_PREPAID_BYTES : 0;
  *tail = (struct tail_builder){.budget = budget, .charged_bytes = prepaid, .prepaid_bytes = prepaid};
  buffer_init(&tail->ranges, allocator);
  buffer_init(&tail->extents, allocator);
  buffer_init(&tail->top, allocator);
  buffer_init(&tail->properties, allocator);
}

void tail_free(struct tail_builder *tail) {
  buffer_free(&tail->ranges);
  buffer_free(&tail->extents);
  buffer_free(&tail->top);
  buffer_free(&tail->properties);
  if (tail->budget != NULL) {
    budget_give(tail->budget, BUDGET_JOB, tail->charged_bytes);
  }
  tail->charged_bytes = tail->prepaid_bytes = 0;
}

/* Makes room in a buffer, charging the new block while the old one still counts. */
static turb_status reserve(struct tail_builder *tail, struct buffer *buffer, size_t more, turb_error *err) {
  if (buffer->capacity - buffer->size >= more) {
    return TURB_OK;
  }
  const uint64_t needed = (uint64_t)buffer->size + more;
  const uint64_t most = needed + needed / 2 + SMALL_BYTES;
  const size_t before = buffer->capacity;
  const uint64_t prepaid = most < tail->prepaid_bytes ? most : tail->prepaid_bytes;
  if (tail->budget != NULL && most != prepaid && !budget_take(tail->budget, BUDGET_JOB, most - prepaid)) {
    return status_set(err, TURB_BUDGET, "the memory budget is too small for the index of a table: %llu bytes more",
                      (unsigned long long)(most - prepaid));
  }
  const turb_status status = buffer_reserve(buffer, more);
  const uint64_t grown = buffer->capacity - before;
  assert(buffer->capacity <= most);
  if (tail->budget != NULL) { /* what was not needed goes back to where it came from */
    const uint64_t left = most - grown, to_prepaid = left < prepaid ? left : prepaid;
    tail->prepaid_bytes -= prepaid - to_prepaid;
    budget_give(tail->budget, BUDGET_JOB, left - to_prepaid);
    tail->charged_bytes += (most - prepaid) - (left - to_prepaid);
  }
  return status == TURB_OK ? TURB_OK : status_set(err, status, "no memory for the index of a table");
}

turb_status tail_add_range(struct tail_builder *tail, const struct range_fragment *fragment, turb_error *err) {
  const size_t size = fragment->begin.size + fragment->end.size + ((size_t)fragment->sequence_count + 3) * VARINT_MAX_BYTES;
  const turb_status status = reserve(tail, &tail->ranges, size, err);
  if (status != TURB_OK) {
    return status;
  }
  codec_range_append(&tail->ranges, fragment);
  tail->range_count++;
  return buffer_status(&tail->ranges);
}

turb_status tail_add_extent(struct tail_builder *tail, enum extent_kind kind, uint64_t offset, uint64_t pages, uint32_t count,
                            turb_error *err) {
  if (count == 0) {
    return TURB_OK;
  }
  const turb_status status = reserve(tail, &tail->extents, SMALL_BYTES, err);
  if (status != TURB_OK) {
    return status;
  }
  const struct extent extent = {.kind = (uint8_t)kind,
                                .pages = (uint32_t)pages,
                                .first_page = offset / CODEC_PAGE_BYTES,
                                .first_ordinal = tail->next_ordinal[kind],
                                .count = count};
  tail->next_ordinal[kind] += count;
  codec_extent_append(&tail->extents, &extent);
  return buffer_status(&tail->extents);
}

turb_status tail_add_top(struct tail_builder *tail, turb_bytes separator, uint64_t first_entry, uint64_t first_row, turb_error *err) {
  const turb_status status = reserve(tail, &tail->top, separator.size + SMALL_BYTES, err);
  if (status != TURB_OK) {
    return status;
  }
  codec_top_append(&tail->top, separator, first_entry, first_row);
  return buffer_status(&tail->top);
}

uint64_t tail_bytes(const struct tail_builder *tail) {
  return tail->ranges.size + tail->extents.size + tail->top.size + PROPERTY_BYTES;
}

/* ---- writing ---- */

struct tail_stream {
  struct output *output;
  struct hash_stream hash;
};

static turb_status put(struct tail_stream *stream, const void *data, size_t size, turb_error *err) {
  hash_stream_update(&stream->hash, data, size);
  return output_append(stream->output, data, size, err);
}

static turb_status put_sections(const struct tail_builder *tail, struct tail_stream *stream, turb_error *err) {
  uint8_t begin[CODEC_TAIL_TABLE_BYTES + 4];
  const uint64_t sizes[CODEC_SECTIONS] = {4 + tail->ranges.size, tail->extents.size, tail->top.size, tail->properties.size};
  codec_tail_table_encode(sizes, begin);
  store_u32(begin + CODEC_TAIL_TABLE_BYTES, tail->range_count); /* the first section begins with it */
  turb_status status = put(stream, begin, sizeof begin, err);
  const struct buffer *buffers[] = {&tail->ranges, &tail->extents, &tail->top, &tail->properties};
  for (size_t i = 0; i < sizeof buffers / sizeof buffers[0] && status == TURB_OK; i++) {
    status = put(stream, buffers[i]->data, buffers[i]->size, err);
  }
  return status;
}

static turb_status put_zeros_before_footer(struct tail_stream *stream, turb_error *err) {
  static const uint8_t zeros[CODEC_PAGE_BYTES];
  const uint64_t end = output_position(stream->output) + TABLE_FOOTER_BYTES;
  return put(stream, zeros, (size_t)((CODEC_PAGE_BYTES - end % CODEC_PAGE_BYTES) % CODEC_PAGE_BYTES), err);
}

turb_status tail_write(struct tail_builder *tail, const struct table_properties *properties, struct output *output, uint64_t seed,
                       uint64_t *tail_offset, turb_error *err) {
  *tail_offset = output_position(output);
  const size_t key_bytes = properties->smallest_key.size + properties->largest_key.size + properties->lower.size + properties->upper.size;
  turb_status status = reserve(tail, &tail->properties, PROPERTY_BYTES + key_bytes, err);
  if (status != TURB_OK) {
    return status;
  }
  codec_properties_append(&tail->properties, properties);
  struct tail_stream stream = {.output = output};
  hash_stream_init(&stream.hash, table_part_seed(seed, *tail_offset));
  status = put_sections(tail, &stream, err);
  if (status == TURB_OK) {
    status = put_zeros_before_footer(&stream, err);
  }
  if (status != TURB_OK) {
    return status;
  }
  uint8_t footer[TABLE_FOOTER_BYTES];
  const struct table_footer value = {*tail_offset, hash_stream_digest(&stream.hash)};
  codec_footer_encode(&value, seed, footer);
  return output_append(output, footer, sizeof footer, err);
}
