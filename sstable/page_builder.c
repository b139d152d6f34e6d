/* Key and index pages as they fill; layout and invariants in page_builder.h. */
#include "sstable/page_builder.h"

#include <assert.h>
#include <string.h>

#include "base/key.h"

/* ---- both ---- */

static void begin(struct page_builder *builder, uint8_t *memory) {
  *builder = (struct page_builder){.size = CODEC_PAGE_BYTES, .slots_end = sizeof(struct slot_page), .keys_begin = CODEC_PAGE_BYTES};
  builder->page = memory;
}

static bool fits(const struct page_builder *builder, size_t slot_bytes, size_t key_bytes) {
  const size_t slots_end = builder->slots_end + slot_bytes;
  return builder->slot_count == 0 || (slots_end <= CODEC_PAGE_BYTES && slots_end + key_bytes <= builder->keys_begin);
}

/* Room for one more slot and the bytes of its key; the first key decides on the number of units. Returns the key's offset. */
static uint16_t place(struct page_builder *builder, size_t slot_bytes, turb_bytes key) {
  if (builder->slot_count == 0 && builder->slots_end + slot_bytes + key.size > CODEC_PAGE_BYTES) {
    builder->size = PAGE_BUILDER_BYTES;
    builder->keys_begin = PAGE_BUILDER_BYTES;
  }
  builder->slots_end += (uint32_t)slot_bytes;
  builder->keys_begin -= (uint32_t)key.size;
  assert(builder->slots_end <= builder->keys_begin);
  memcpy(builder->page + builder->keys_begin, key.data, key.size);
  builder->slot_count++;
  return (uint16_t)builder->keys_begin;
}

/* Zeroes the gap and fills the header but for the bases. */
static struct slot_page *finish(struct page_builder *builder, turb_bytes first, turb_bytes last) {
  assert(builder->slot_count != 0);
  memset(builder->page + builder->slots_end, 0, builder->keys_begin - builder->slots_end);
  struct slot_page *page = (struct slot_page *)(void *)builder->page;
  *page = (struct slot_page){.slot_count = (uint16_t)builder->slot_count,
                             .shared_prefix_size = (uint16_t)key_shared_prefix(first.data, first.size, last.data, last.size),
                             .units = (uint8_t)(builder->size / CODEC_PAGE_BYTES)};
  return page;
}

void page_builder_move(struct page_builder *builder, uint8_t *memory) {
  if (builder->slot_count != 0 && memory != builder->page) {
    memmove(memory, builder->page, builder->size);
  }
  builder->page = memory;
}

void page_builder_seal(uint8_t *page, uint32_t size, uint64_t seed, uint64_t offset) {
  store_u64(page, codec_page_checksum(page, size, seed, offset));
}

/* ---- key pages ---- */

static struct slot *slots_of(const struct key_page_builder *builder) {
  return (struct slot *)(void *)(builder->base.page + sizeof(struct slot_page));
}

static turb_bytes key_at(const struct key_page_builder *builder, size_t index) {
  const struct slot *slot = slots_of(builder) + index;
  return (turb_bytes){builder->base.page + slot->key_offset, slot->key_size};
}

void key_page_begin(struct key_page_builder *builder, uint8_t *memory, uint64_t row, uint64_t attribute_offset) {
  *builder = (struct key_page_builder){.base_row = row, .base_attribute = attribute_offset};
  begin(&builder->base, memory);
}

bool key_page_fits(const struct key_page_builder *builder, size_t key_size, bool same_key) {
  return fits(&builder->base, sizeof(struct slot), same_key ? 0 : key_size);
}

void key_page_add(struct key_page_builder *builder, const struct key_page_entry *entry, bool same_key) {
  struct page_builder *base = &builder->base;
  struct slot *slot = slots_of(builder) + base->slot_count;
  const bool shares = same_key && base->slot_count != 0;
  const uint16_t shared_offset = shares ? slot[-1].key_offset : 0;
  const uint16_t offset = place(base, sizeof *slot, shares ? (turb_bytes){"", 0} : entry->key);
  *slot = (struct slot){.sequence_kind = entry->sequence_kind,
                        .row_hash = entry->row_hash,
                        .attribute_hash = entry->attribute_hash,
                        .attribute_delta = (uint32_t)(entry->attribute_offset - builder->base_attribute),
                        .attribute_size_row_delta = entry->attribute_size | builder->puts << SLOT_ATTRIBUTE_BITS,
                        .key_offset = shares ? shared_offset : offset,
                        .key_size = (uint16_t)entry->key.size};
  builder->puts += (entry->sequence_kind & 0xff) == SLOT_PUT;
  builder->hash_sum += codec_entry_hash(entry->key.data, entry->key.size, entry->sequence_kind, entry->row_hash, entry->attribute_hash);
}

turb_bytes key_page_last_key(const struct key_page_builder *builder) {
  return key_at(builder, builder->base.slot_count - 1);
}

uint64_t key_page_last_sequence_kind(const struct key_page_builder *builder) {
  return slots_of(builder)[builder->base.slot_count - 1].sequence_kind;
}

uint32_t key_page_finish(struct key_page_builder *builder) {
  struct slot_page *page = finish(&builder->base, key_at(builder, 0), key_page_last_key(builder));
  page->base_row = builder->base_row;
  page->base_attribute = builder->base_attribute;
  const size_t shared = page->shared_prefix_size;
  struct slot *slot = slots_of(builder);
  for (uint32_t i = 0; i < builder->base.slot_count; i++, slot++) {
    slot->prefix = key_prefix8(builder->base.page + slot->key_offset + shared, slot->key_size - shared);
  }
  return builder->base.size;
}

/* ---- index pages ---- */

static struct index_slot *index_slots_of(const struct index_page_builder *builder) {
  return (struct index_slot *)(void *)(builder->base.page + sizeof(struct slot_page));
}

static turb_bytes separator_at(const struct index_page_builder *builder, size_t index) {
  const struct index_slot *slot = index_slots_of(builder) + index;
  return (turb_bytes){builder->base.page + slot->separator_offset, slot->separator_size};
}

void index_page_begin(struct index_page_builder *builder, uint8_t *memory) {
  begin(&builder->base, memory);
}

bool index_page_fits(const struct index_page_builder *builder, size_t separator_size) {
  return builder->base.slot_count < CODEC_INDEX_PAGE_MAX_SLOTS && builder->base.size == CODEC_PAGE_BYTES &&
         fits(&builder->base, sizeof(struct index_slot), separator_size);
}

void index_page_add(struct index_page_builder *builder, const struct index_slot *slot, turb_bytes separator) {
  struct index_slot *added = index_slots_of(builder) + builder->base.slot_count;
  const uint16_t offset = place(&builder->base, sizeof *added, separator);
  *added = *slot;
  added->separator_offset = offset;
  added->separator_size = (uint16_t)separator.size;
}

uint32_t index_page_finish(struct index_page_builder *builder) {
  const uint32_t count = builder->base.slot_count;
  const struct slot_page *page = finish(&builder->base, separator_at(builder, 0), separator_at(builder, count - 1));
  const size_t shared = page->shared_prefix_size;
  struct index_slot *slot = index_slots_of(builder);
  for (uint32_t i = 0; i < count; i++, slot++) {
    slot->prefix = key_prefix8(builder->base.page + slot->separator_offset + shared, slot->separator_size - shared);
  }
  return builder->base.size;
}

/* ---- separators ---- */

/*
 * Below, c bytes are shared. A separator as short as c + 1 bytes is last itself, or last's next byte raised by one, or the begin of next; where none of
 * these lies between, one byte behind c must be kept and a later one raised.
 */
size_t page_separator(turb_bytes last, turb_bytes next, uint8_t *out) {
  const uint8_t *low = last.data;
  const uint8_t *high = next.data;
  const size_t c = key_shared_prefix(low, last.size, high, next.size);
  if (last.size > c + 1) {
    assert(next.size > c && low[c] < high[c]);
    if (low[c] + 1 < high[c] || next.size > c + 1) {
      memcpy(out, low, c);
      out[c] = (uint8_t)(low[c] + 1);
      return c + 1;
    }
    for (size_t i = c + 1; i + 1 < last.size; i++) {
      if (low[i] != 0xff) {
        memcpy(out, low, i);
        out[i] = (uint8_t)(low[i] + 1);
        return i + 1;
      }
    }
  }
  memcpy(out, low, last.size);
  return last.size;
}
