/* Gathering a stripe and writing it; layout and invariants in stripe.h. */
#include "sstable/stripe.h"

#include <assert.h>
#include <string.h>

#include "sstable/filter.h"

#define CHUNK_BYTES TABLE_ATTRIBUTE_CHUNK_BYTES

/* ---- memory ---- */

static size_t section_bytes(void) {
  return (size_t)codec_filter_pages(TABLE_FILTER_SECTION_ENTRIES) * CODEC_PAGE_BYTES;
}

/* Cuts `size` bytes, rounded up to pages, off the front of memory; only counts when memory is NULL. */
static void *carve(uint8_t **memory, size_t *total, size_t size) {
  const size_t rounded = (size_t)codec_pages_of_bytes(size) * CODEC_PAGE_BYTES;
  uint8_t *part = *memory;
  *total += rounded;
  if (*memory != NULL) {
    *memory += rounded;
  }
  return part;
}

static size_t carve_all(struct stripe *stripe, const struct table_shape *shape, uint8_t *memory) {
  size_t total = 0;
  stripe->keys = carve(&memory, &total, STRIPE_KEY_BYTES);
  stripe->index = carve(&memory, &total, STRIPE_INDEX_BYTES);
  stripe->attributes = carve(&memory, &total, STRIPE_ATTRIBUTE_BYTES);
  stripe->sections = carve(&memory, &total, STRIPE_SECTIONS * section_bytes());
  stripe->hashes = carve(&memory, &total, TABLE_FILTER_SECTION_ENTRIES * sizeof *stripe->hashes);
  stripe->separator = carve(&memory, &total, CODEC_KEY_MAX_BYTES);
  stripe->blocks.capacity = STRIPE_BLOCK_RECORDS;
  stripe->blocks.records = carve(&memory, &total, STRIPE_BLOCK_RECORDS * sizeof(struct checksum_record));
  stripe->chunks.capacity = STRIPE_CHUNK_RECORDS;
  stripe->chunks.records = carve(&memory, &total, STRIPE_CHUNK_RECORDS * sizeof(struct checksum_record));
  stripe->rows.side = carve(&memory, &total, row_writer_needs_side(shape) ? shape->block_bytes : 0);
  return total;
}

size_t stripe_memory_bytes(const struct table_shape *shape) {
  struct stripe measured;
  return carve_all(&measured, shape, NULL);
}

void stripe_init(struct stripe *stripe, const struct table_shape *shape, uint64_t seed, struct output *output, struct tail_builder *tail,
                 void *memory) {
  memset(stripe, 0, sizeof *stripe);
  (void)carve_all(stripe, shape, memory);
  stripe->output = output;
  stripe->tail = tail;
  stripe->seed = seed;
  stripe->rows.shape = shape;
  stripe->rows.seed = seed;
  stripe->rows.output = output;
  stripe->rows.tail = tail;
  stripe->rows.records = &stripe->blocks;
  key_page_begin(&stripe->key_page, stripe->keys, 0, 0);
  index_page_begin(&stripe->index_page, stripe->index);
}

/* ---- room ---- */

static uint32_t chunks_of(uint64_t bytes) {
  return (uint32_t)((bytes + CHUNK_BYTES - 1) / CHUNK_BYTES);
}

bool stripe_attribute_is_own(uint32_t size) {
  return size > STRIPE_ATTRIBUTE_BYTES;
}

bool stripe_has_room(const struct stripe *stripe, uint32_t attribute_size) {
  /* The entry may finish a page of each kind and begin another; the table's end finishes the last key page, whose slot may need an index
   * page more. */
  if (stripe->key_bytes + 2 * PAGE_BUILDER_BYTES > STRIPE_KEY_BYTES || stripe->index_bytes + 3 * PAGE_BUILDER_BYTES > STRIPE_INDEX_BYTES) {
    return false;
  }
  const bool own = stripe_attribute_is_own(attribute_size);
  if (!own && stripe->attribute_bytes + attribute_size > STRIPE_ATTRIBUTE_BYTES) {
    return false;
  }
  const uint32_t chunks = chunks_of(stripe->attribute_bytes) + chunks_of(attribute_size) + 1;
  return stripe->chunks.count + chunks <= stripe->chunks.capacity && stripe->blocks.count + 2 <= stripe->blocks.capacity &&
         stripe->section_count < STRIPE_SECTIONS && row_writer_extent_bytes(&stripe->rows) < STRIPE_EXTENT_BYTES;
}

uint64_t stripe_bytes(const struct stripe *stripe) {
  const uint64_t rows = (uint64_t)stripe->rows.block_rows * stripe->rows.shape->stride;
  const uint64_t records = ((uint64_t)stripe->blocks.count + stripe->chunks.count) * sizeof(struct checksum_record);
  const uint64_t keys = stripe->key_bytes + (page_builder_is_empty(&stripe->key_page.base) ? 0 : stripe->key_page.base.size);
  const uint64_t index = stripe->index_bytes + (page_builder_is_empty(&stripe->index_page.base) ? 0 : stripe->index_page.base.size);
  return rows + records + keys + index + stripe->attribute_bytes + stripe->section_bytes + stripe->hash_count * 10 / 8;
}

/* ---- entries ---- */

static void end_section(struct stripe *stripe) {
  filter_section_build(stripe->hashes, stripe->hash_count, stripe->sections + stripe->section_bytes);
  stripe->section_bytes += codec_filter_pages(stripe->hash_count) * CODEC_PAGE_BYTES;
  stripe->section_count++;
  stripe->hash_count = 0;
}

static turb_status end_index_page(struct stripe *stripe, turb_error *err) {
  struct index_page_builder *builder = &stripe->index_page;
  const struct slot_page *page = (const struct slot_page *)(const void *)builder->base.page;
  const uint32_t size = index_page_finish(builder);
  const struct index_slot *first = codec_index_slot(page, 0);
  const turb_bytes separator = codec_index_separator(page, page->slot_count - 1u);
  const turb_status status = tail_add_top(stripe->tail, separator, first->first_entry, first->base_row, err);
  stripe->index_bytes += size;
  index_page_begin(builder, stripe->index + stripe->index_bytes);
  return status;
}

/* Finishes the key page that fills; `next` is the key behind it (its own last key at the table's end). */
static turb_status end_key_page(struct stripe *stripe, turb_bytes next, turb_error *err) {
  struct key_page_builder *builder = &stripe->key_page;
  const size_t separator_size = page_separator(key_page_last_key(builder), next, stripe->separator);
  const turb_bytes separator = {stripe->separator, separator_size};
  if (!index_page_fits(&stripe->index_page, separator_size)) {
    const turb_status status = end_index_page(stripe, err);
    if (status != TURB_OK) {
      return status;
    }
  }
  const uint32_t size = key_page_finish(builder);
  assert(stripe->key_bytes + size <= STRIPE_KEY_BYTES && stripe->index_bytes + PAGE_BUILDER_BYTES <= STRIPE_INDEX_BYTES);
  const struct index_slot slot = {.hash_sum = builder->hash_sum,
                                  .base_row = builder->base_row,
                                  .base_attribute = builder->base_attribute,
                                  .first_entry = stripe->key_page_first_entry,
                                  .page = stripe->key_bytes / CODEC_PAGE_BYTES,
                                  .slots = (uint16_t)builder->base.slot_count,
                                  .units = (uint8_t)(size / CODEC_PAGE_BYTES),
                                  .puts = builder->puts};
  index_page_add(&stripe->index_page, &slot, separator);
  stripe->key_bytes += size;
  stripe->hash_sum += builder->hash_sum;
  return TURB_OK;
}

turb_status stripe_add_key(struct stripe *stripe, struct key_page_entry *entry, bool same_key, uint64_t key_hash, turb_error *err) {
  struct key_page_builder *builder = &stripe->key_page;
  entry->attribute_offset = stripe->attribute_offset;
  const uint64_t row = stripe->rows.rows;
  if (!key_page_fits(builder, entry->key.size, same_key)) {
    const turb_status status = end_key_page(stripe, entry->key, err);
    if (status != TURB_OK) {
      return status;
    }
    key_page_begin(builder, stripe->keys + stripe->key_bytes, row, entry->attribute_offset);
    stripe->key_page_first_entry = stripe->entries;
  }
  key_page_add(builder, entry, same_key);
  stripe->entries++;
  stripe->hashes[stripe->hash_count++] = key_hash;
  if (stripe->hash_count == TABLE_FILTER_SECTION_ENTRIES) {
    end_section(stripe);
  }
  return TURB_OK;
}

/* ---- attributes ---- */

void stripe_put_attribute(struct stripe *stripe, const uint8_t *bytes, size_t size) {
  assert(stripe->attribute_bytes + size <= STRIPE_ATTRIBUTE_BYTES);
  memcpy(stripe->attributes + stripe->attribute_bytes, bytes, size);
  stripe->attribute_bytes += (uint32_t)size;
  stripe->attribute_offset += size;
}

/* The attributes in memory as an extent; the output stands at a page border. */
static turb_status flush_attributes(struct stripe *stripe, turb_error *err) {
  const uint64_t begin = output_position(stripe->output);
  const uint32_t bytes = stripe->attribute_bytes;
  for (uint32_t at = 0; at < bytes; at += CHUNK_BYTES) {
    const uint32_t size = bytes - at < CHUNK_BYTES ? bytes - at : CHUNK_BYTES;
    checksum_list_add(&stripe->chunks, codec_part_checksum(stripe->attributes + at, size, stripe->seed, begin + at), at, size);
  }
  turb_status status = output_append(stripe->output, stripe->attributes, bytes, err);
  if (status == TURB_OK) {
    status = output_align(stripe->output, err);
  }
  stripe->attribute_bytes = 0;
  return status == TURB_OK ? tail_add_extent(stripe->tail, EXTENT_ATTRIBUTES, begin, codec_pages_of_bytes(bytes), bytes, err) : status;
}

turb_status stripe_begin_own_attribute(struct stripe *stripe, turb_error *err) {
  turb_status status = row_writer_close_extent(&stripe->rows, err);
  if (status == TURB_OK) {
    status = flush_attributes(stripe, err);
  }
  stripe->own_begin = output_position(stripe->output);
  stripe->own_bytes = 0;
  return status;
}

static void end_chunk(struct stripe *stripe) {
  const uint32_t begin = (stripe->own_bytes - 1) / CHUNK_BYTES * CHUNK_BYTES;
  checksum_list_add(&stripe->chunks, hash_stream_digest(&stripe->chunk), begin, stripe->own_bytes - begin);
}

turb_status stripe_put_own_attribute(struct stripe *stripe, const uint8_t *bytes, size_t size, turb_error *err) {
  turb_status status = output_append(stripe->output, bytes, size, err);
  while (size != 0 && status == TURB_OK) {
    const uint32_t in_chunk = stripe->own_bytes % CHUNK_BYTES;
    if (in_chunk == 0) {
      hash_stream_init(&stripe->chunk, table_part_seed(stripe->seed, stripe->own_begin + stripe->own_bytes));
    }
    const size_t part = size < CHUNK_BYTES - in_chunk ? size : CHUNK_BYTES - in_chunk;
    hash_stream_update(&stripe->chunk, bytes, part);
    stripe->own_bytes += (uint32_t)part;
    if (stripe->own_bytes % CHUNK_BYTES == 0) {
      end_chunk(stripe);
    }
    bytes += part;
    size -= part;
  }
  return status;
}

turb_status stripe_end_own_attribute(struct stripe *stripe, turb_error *err) {
  if (stripe->own_bytes % CHUNK_BYTES != 0) {
    end_chunk(stripe);
  }
  stripe->attribute_offset += stripe->own_bytes;
  const turb_status status = output_align(stripe->output, err);
  if (status != TURB_OK) {
    return status;
  }
  return tail_add_extent(stripe->tail, EXTENT_ATTRIBUTES, stripe->own_begin, codec_pages_of_bytes(stripe->own_bytes), stripe->own_bytes,
                         err);
}

/* ---- ending a stripe ---- */

/* Key page numbers of the stripe become those of the file: in all index pages in memory but for the slots that were done before. */
static void patch_index(struct stripe *stripe, uint64_t first_page) {
  uint32_t done = stripe->patched;
  for (uint32_t at = 0; at < stripe->index_bytes; done = 0) {
    const struct slot_page *page = (const struct slot_page *)(const void *)(stripe->index + at);
    struct index_slot *slots = (struct index_slot *)(void *)(stripe->index + at + sizeof *page);
    for (uint32_t i = done; i < page->slot_count; i++) {
      slots[i].page += (uint32_t)first_page;
    }
    at += page->units * CODEC_PAGE_BYTES;
  }
  struct index_slot *slots = (struct index_slot *)(void *)(stripe->index_page.base.page + sizeof(struct slot_page));
  for (uint32_t i = done; i < stripe->index_page.base.slot_count; i++) {
    slots[i].page += (uint32_t)first_page;
  }
  stripe->patched = stripe->index_page.base.slot_count;
}

/* Finished pages of one kind: sealed and appended. `same_units`: an extent for each stretch of pages with as many units (index pages). */
static turb_status flush_pages(struct stripe *stripe, enum extent_kind kind, uint8_t *pages, uint32_t bytes, turb_error *err) {
  turb_status status = TURB_OK;
  for (uint32_t begin = 0, end = 0; begin < bytes && status == TURB_OK; begin = end) {
    const uint64_t offset = output_position(stripe->output);
    const uint8_t units = ((const struct slot_page *)(const void *)(pages + begin))->units;
    uint32_t count = 0;
    while (end < bytes) {
      const struct slot_page *page = (const struct slot_page *)(const void *)(pages + end);
      if (kind == EXTENT_INDEX && page->units != units) {
        break;
      }
      const uint32_t size = page->units * CODEC_PAGE_BYTES;
      page_builder_seal(pages + end, size, stripe->seed, offset + (end - begin));
      count += kind == EXTENT_INDEX ? 1 : page->units;
      end += size;
    }
    status = output_append(stripe->output, pages + begin, end - begin, err);
    if (status == TURB_OK) {
      status = tail_add_extent(stripe->tail, kind, offset, (end - begin) / CODEC_PAGE_BYTES, count, err);
    }
  }
  return status;
}

static turb_status flush_sections(struct stripe *stripe, turb_error *err) {
  const uint64_t begin = output_position(stripe->output);
  for (uint32_t at = 0; at < stripe->section_bytes;) {
    const struct filter_section *section = (const struct filter_section *)(const void *)(stripe->sections + at);
    filter_section_seal(stripe->sections + at, stripe->seed, begin + at);
    at += codec_filter_pages(section->entries) * CODEC_PAGE_BYTES;
  }
  const uint32_t bytes = stripe->section_bytes, count = stripe->section_count;
  stripe->section_bytes = stripe->section_count = 0;
  const turb_status status = output_append(stripe->output, stripe->sections, bytes, err);
  return status == TURB_OK ? tail_add_extent(stripe->tail, EXTENT_FILTER, begin, bytes / CODEC_PAGE_BYTES, count, err) : status;
}

/* The list's records, a page at a time; adds to *pages. */
static turb_status flush_records(struct stripe *stripe, enum extent_kind described, struct checksum_list *list, uint32_t *pages,
                                 turb_error *err) {
  for (uint32_t at = 0; at < list->count;) {
    const uint32_t rest = list->count - at;
    const uint32_t count = rest < TABLE_CHECKSUMS_PER_PAGE ? rest : TABLE_CHECKSUMS_PER_PAGE;
    const uint64_t offset = output_position(stripe->output);
    uint8_t *page = NULL;
    const turb_status status = output_reserve(stripe->output, CODEC_PAGE_BYTES, &page, err);
    if (status != TURB_OK) {
      return status;
    }
    const struct checksum_page header = {.kind = (uint8_t)described, .count = count, .first_ordinal = list->first_ordinal + at};
    const size_t bytes = count * sizeof *list->records;
    memcpy(page, &header, sizeof header);
    memcpy(page + sizeof header, list->records + at, bytes);
    memset(page + sizeof header + bytes, 0, CODEC_PAGE_BYTES - sizeof header - bytes);
    page_builder_seal(page, CODEC_PAGE_BYTES, stripe->seed, offset);
    output_advance(stripe->output, CODEC_PAGE_BYTES);
    ++*pages;
    at += count;
  }
  list->first_ordinal += list->count;
  list->count = 0;
  return TURB_OK;
}

static turb_status flush_checksums(struct stripe *stripe, turb_error *err) {
  const uint64_t begin = output_position(stripe->output);
  uint32_t pages = 0;
  turb_status status = flush_records(stripe, EXTENT_ROWS, &stripe->blocks, &pages, err);
  if (status == TURB_OK) {
    status = flush_records(stripe, EXTENT_ATTRIBUTES, &stripe->chunks, &pages, err);
  }
  return status == TURB_OK ? tail_add_extent(stripe->tail, EXTENT_CHECKSUMS, begin, pages, pages, err) : status;
}

turb_status stripe_flush(struct stripe *stripe, turb_error *err) {
  turb_status status = row_writer_close_extent(&stripe->rows, err);
  if (status != TURB_OK) {
    return status;
  }
  patch_index(stripe, output_position(stripe->output) / CODEC_PAGE_BYTES);
  status = flush_pages(stripe, EXTENT_KEYS, stripe->keys, stripe->key_bytes, err);
  if (status == TURB_OK) {
    status = flush_pages(stripe, EXTENT_INDEX, stripe->index, stripe->index_bytes, err);
  }
  if (status == TURB_OK) {
    status = flush_attributes(stripe, err);
  }
  if (status == TURB_OK) {
    status = flush_sections(stripe, err);
  }
  if (status == TURB_OK) {
    status = flush_checksums(stripe, err);
  }
  stripe->key_bytes = stripe->index_bytes = 0;
  page_builder_move(&stripe->key_page.base, stripe->keys);
  page_builder_move(&stripe->index_page.base, stripe->index);
  return status;
}

turb_status stripe_finish(struct stripe *stripe, turb_error *err) {
  turb_status status = TURB_OK;
  if (!page_builder_is_empty(&stripe->key_page.base)) {
    status = end_key_page(stripe, key_page_last_key(&stripe->key_page), err);
    key_page_begin(&stripe->key_page, stripe->keys + stripe->key_bytes, stripe->rows.rows, stripe->attribute_offset);
  }
  if (status == TURB_OK && !page_builder_is_empty(&stripe->index_page.base)) {
    status = end_index_page(stripe, err);
  }
  if (stripe->hash_count != 0) {
    end_section(stripe);
  }
  if (status == TURB_OK) {
    status = row_writer_finish(&stripe->rows, err);
  }
  return status == TURB_OK ? stripe_flush(stripe, err) : status;
}
