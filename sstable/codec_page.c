/*
 * Checks of the pages that are used in place: key pages (docs/format.md 3.5), index pages (3.6), checksum pages (3.4).
 *
 * Each check proves all that the accessors rely on, so that a page that passed needs no bounds check later. Offsets in errors point at the slot or
 * record that is wrong.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "sstable/codec.h"

/* A page under check. */
struct check {
  const struct slot_page *page;
  size_t size; /* units x 4,096 */
  const struct codec_place *place;
  const struct codec_limits *limits;
  const char *what; /* "key page", … */
  turb_error *err;
};

__attribute__((cold, noinline, format(printf, 3, 4))) static turb_status bad(const struct check *check, size_t at, const char *format,
                                                                             ...) {
  char detail[160];
  va_list arguments;
  va_start(arguments, format);
  (void)vsnprintf(detail, sizeof detail, format, arguments);
  va_end(arguments);
  return status_set_file(check->err, TURB_CORRUPTION, check->place->file, check->place->offset + at, "%s: %s", check->what, detail);
}

struct codec_limits codec_limits_of(const struct table_properties *properties, uint64_t tail_offset) {
  return (struct codec_limits){.entries = properties->entries,
                               .puts = properties->puts,
                               .attribute_bytes = properties->attribute_bytes,
                               .pages = tail_offset / CODEC_PAGE_BYTES,
                               .smallest_sequence = properties->smallest_sequence,
                               .largest_sequence = properties->largest_sequence};
}

/* What key and index pages share: size, checksum, header. */
static turb_status check_header(struct check *check, size_t at_hand, size_t slot_bytes) {
  const struct slot_page *page = check->page;
  if (at_hand < CODEC_PAGE_BYTES) {
    return bad(check, at_hand, "cut short");
  }
  if (page->units == 0 || page->units > CODEC_KEY_PAGE_MAX_UNITS || (size_t)page->units * CODEC_PAGE_BYTES > at_hand) {
    return bad(check, 36, "%u units, %zu bytes at hand", page->units, at_hand);
  }
  check->size = (size_t)page->units * CODEC_PAGE_BYTES;
  if (codec_page_checksum(page, check->size, check->place->seed, check->place->offset) != page->checksum) {
    return bad(check, 0, "does not match its checksum");
  }
  if (page->flags != 0 || page->reserved != 0) {
    return bad(check, 37, "flags or reserved bytes");
  }
  if (page->slot_count == 0 || sizeof *page + page->slot_count * slot_bytes > CODEC_PAGE_BYTES) {
    return bad(check, 32, "%u slots", page->slot_count);
  }
  if (page->shared_prefix_size > CODEC_KEY_MAX_BYTES) {
    return bad(check, 34, "shared prefix of %u bytes", page->shared_prefix_size);
  }
  return TURB_OK;
}

/* key_prefix8 of `size` bytes at `offset` of the page; read as one word also where fewer belong to the key. */
static inline uint64_t prefix_at(const struct check *check, size_t offset, size_t size) {
  const uint8_t *bytes = (const uint8_t *)check->page + offset;
  if (offset + 8 > check->size) {
    return key_prefix8(bytes, size);
  }
  const uint64_t word = key_prefix8(bytes, 8);
  return size >= 8 ? word : size == 0 ? 0 : word & ~(UINT64_MAX >> (8 * size));
}

/* A key within the page, behind the slots, that begins with the first slot's shared prefix and matches its slot's prefix number. */
static inline turb_status check_key(const struct check *check, size_t at, size_t slots_end, uint32_t offset, uint32_t size, uint64_t prefix,
                                    const uint8_t *first_key) {
  const uint8_t *base = (const uint8_t *)check->page;
  const size_t shared = check->page->shared_prefix_size;
  if (size == 0 || size > CODEC_KEY_MAX_BYTES || offset < slots_end || offset + size > check->size) {
    return bad(check, at, "key of %u bytes at %u", size, offset);
  }
  if (size < shared || !key_equal(base + offset, shared, first_key, shared)) {
    return bad(check, at, "key without the shared prefix");
  }
  if (prefix_at(check, offset + shared, size - shared) != prefix) {
    return bad(check, at, "prefix is not that of its key");
  }
  return TURB_OK;
}

/* ---- key pages ---- */

static inline turb_status check_sequence(const struct check *check, size_t at, const struct slot *slot) {
  const uint64_t kind = slot->sequence_kind & 0xff;
  const uint64_t sequence = slot->sequence_kind >> 8;
  if (kind != SLOT_PUT && kind != SLOT_DELETE) {
    return bad(check, at + 8, "unknown kind %" PRIu64, kind);
  }
  if (check->page->sequence != 0 && sequence != 0) {
    return bad(check, at + 8, "a sequence of its own beside the page's");
  }
  const uint64_t meant = sequence != 0 ? sequence : check->page->sequence;
  if (meant < check->limits->smallest_sequence || meant > check->limits->largest_sequence) {
    return bad(check, at + 8, "sequence %" PRIu64 " is outside the table's", meant);
  }
  return TURB_OK;
}

/* Row and attribute numbers: rows count the puts, attributes lie one behind the other or further on. */
static inline turb_status check_deltas(const struct check *check, size_t at, const struct slot *slot, uint32_t puts,
                                       uint64_t *attribute_end) {
  const bool put = (slot->sequence_kind & 0xff) == SLOT_PUT;
  const uint32_t size = slot_attribute_size(slot);
  const uint64_t begin = check->page->base_attribute + slot->attribute_delta;
  if (slot->attribute_size_row_delta >> SLOT_ATTRIBUTE_BITS != puts) {
    return bad(check, at + 32, "row %u of the page, not %u", slot->attribute_size_row_delta >> SLOT_ATTRIBUTE_BITS, puts);
  }
  if (!put && (slot->row_hash != 0 || slot->attribute_hash != 0 || size != 0)) {
    return bad(check, at + 16, "a delete with a row or attributes");
  }
  if (size == 0 && slot->attribute_hash != 0) {
    return bad(check, at + 24, "an attribute hash without attributes");
  }
  if (size > CODEC_ATTRIBUTE_MAX_BYTES || begin < *attribute_end || begin + size > check->limits->attribute_bytes) {
    return bad(check, at + 28, "attributes of %u bytes at %" PRIu64, size, begin);
  }
  *attribute_end = begin + size;
  return TURB_OK;
}

static inline turb_status check_slot(const struct check *check, size_t index, uint32_t *puts, uint64_t *attribute_end) {
  const struct slot_page *page = check->page;
  const uint8_t *base = (const uint8_t *)page;
  const struct slot *slot = slot_at(page, index);
  const size_t at = sizeof *page + index * sizeof *slot;
  const size_t slots_end = sizeof *page + page->slot_count * sizeof *slot;
  turb_status status = check_key(check, at, slots_end, slot->key_offset, slot->key_size, slot->prefix, base + slot_at(page, 0)->key_offset);
  if (status != TURB_OK) {
    return status;
  }
  status = check_sequence(check, at, slot);
  if (status != TURB_OK) {
    return status;
  }
  status = check_deltas(check, at, slot, *puts, attribute_end);
  if (status != TURB_OK) {
    return status;
  }
  *puts += (slot->sequence_kind & 0xff) == SLOT_PUT;
  /* Prefixes are those of their keys, behind bytes that all keys share: mostly they tell the order. */
  const struct slot *before = slot - 1;
  if (index != 0 && before->prefix >= slot->prefix) {
    const int order = key_compare(base + before->key_offset, before->key_size, base + slot->key_offset, slot->key_size);
    if (order > 0 || (order == 0 && before->sequence_kind >> 8 <= slot->sequence_kind >> 8)) {
      return bad(check, at, "entries out of order");
    }
  }
  return TURB_OK;
}

turb_status codec_key_page_check(const void *page, size_t size, const struct codec_place *place, const struct codec_limits *limits,
                                 turb_error *err) {
  struct check check = {.page = page, .place = place, .limits = limits, .what = "key page", .err = err};
  turb_status status = check_header(&check, size, sizeof(struct slot));
  if (status != TURB_OK) {
    return status;
  }
  const struct slot_page *header = check.page;
  if (header->base_row > limits->puts || header->base_attribute > limits->attribute_bytes) {
    return bad(&check, 8, "base row or attribute offset outside the table's");
  }
  uint32_t puts = 0;
  uint64_t attribute_end = header->base_attribute;
  for (size_t i = 0; i < header->slot_count; i++) {
    status = check_slot(&check, i, &puts, &attribute_end);
    if (status != TURB_OK) {
      return status;
    }
  }
  if (puts > limits->puts - header->base_row) {
    return bad(&check, 8, "rows outside the table's");
  }
  return TURB_OK;
}

/* ---- index pages ---- */

static turb_status check_index_slot(const struct check *check, size_t index) {
  const struct slot_page *page = check->page;
  const struct codec_limits *limits = check->limits;
  const struct index_slot *slot = codec_index_slot(page, index);
  const size_t at = sizeof *page + index * sizeof *slot;
  const size_t slots_end = sizeof *page + page->slot_count * sizeof *slot;
  const uint8_t *first_key = codec_index_separator(page, 0).data;
  const turb_status status = check_key(check, at, slots_end, slot->separator_offset, slot->separator_size, slot->prefix, first_key);
  if (status != TURB_OK) {
    return status;
  }
  if (slot->units == 0 || slot->units > CODEC_KEY_PAGE_MAX_UNITS || slot->flags != 0 || slot->page == 0 ||
      (uint64_t)slot->page + slot->units > limits->pages) {
    return bad(check, at + 40, "key page of %u units at page %u", slot->units, slot->page);
  }
  if (slot->slots == 0 || slot->slots > CODEC_KEY_PAGE_MAX_SLOTS || slot->first_entry > limits->entries ||
      slot->slots > limits->entries - slot->first_entry) {
    return bad(check, at + 48, "%u entries from %" PRIu64 " on", slot->slots, slot->first_entry);
  }
  if (slot->puts > slot->slots || slot->base_row > limits->puts || slot->puts > limits->puts - slot->base_row ||
      slot->base_attribute > limits->attribute_bytes) {
    return bad(check, at + 16, "rows or attributes outside the table's");
  }
  if (index == 0) {
    return TURB_OK;
  }
  const struct index_slot *before = slot - 1;
  const turb_bytes a = codec_index_separator(page, index - 1), b = codec_index_separator(page, index);
  if (key_compare(a.data, a.size, b.data, b.size) > 0) {
    return bad(check, at, "separators out of order");
  }
  if (slot->first_entry != before->first_entry + before->slots || slot->base_row != before->base_row + before->puts ||
      slot->base_attribute < before->base_attribute || slot->page < (uint64_t)before->page + before->units) {
    return bad(check, at, "does not follow the page before");
  }
  return TURB_OK;
}

turb_status codec_index_page_check(const void *page, size_t size, const struct codec_place *place, const struct codec_limits *limits,
                                   turb_error *err) {
  struct check check = {.page = page, .place = place, .limits = limits, .what = "index page", .err = err};
  turb_status status = check_header(&check, size, sizeof(struct index_slot));
  if (status != TURB_OK) {
    return status;
  }
  const struct slot_page *header = check.page;
  if (header->base_row != 0 || header->base_attribute != 0 || header->sequence != 0) {
    return bad(&check, 8, "fields that are 0 in an index page");
  }
  if (header->slot_count > CODEC_INDEX_PAGE_MAX_SLOTS) {
    return bad(&check, 32, "%u slots", header->slot_count);
  }
  for (size_t i = 0; i < header->slot_count; i++) {
    status = check_index_slot(&check, i);
    if (status != TURB_OK) {
      return status;
    }
  }
  return TURB_OK;
}

/* ---- checksum pages ---- */

turb_status codec_checksum_page_check(const void *page, size_t size, const struct codec_place *place, turb_error *err) {
  const struct checksum_page *header = page;
  const struct check check = {.place = place, .what = "checksum page", .err = err};
  if (size < CODEC_PAGE_BYTES) {
    return bad(&check, size, "cut short");
  }
  if (codec_page_checksum(page, CODEC_PAGE_BYTES, place->seed, place->offset) != header->checksum) {
    return bad(&check, 0, "does not match its checksum");
  }
  if (header->kind != EXTENT_ROWS && header->kind != EXTENT_ATTRIBUTES) {
    return bad(&check, 8, "describes parts of kind %u", header->kind);
  }
  if (header->count == 0 || header->count > TABLE_CHECKSUMS_PER_PAGE) {
    return bad(&check, 12, "%u records", header->count);
  }
  if (header->reserved[0] != 0 || header->reserved[1] != 0 || header->reserved[2] != 0) {
    return bad(&check, 9, "reserved bytes");
  }
  return TURB_OK;
}
