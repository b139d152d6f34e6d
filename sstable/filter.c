/* Building and checking filter sections; layout and invariants in filter.h. */
#include "sstable/filter.h"

#include <string.h>

static void add(uint32_t *blocks, uint32_t block_count, uint64_t hash) {
  static const uint32_t salts[8] = {0x47b6137bu, 0x44974d91u, 0x8824ad5bu, 0xa2b7289du, 0x705495c7u, 0x2df1424bu, 0x9efc4947u, 0x5c6bfb31u};
  uint32_t *block = blocks + (((hash >> 32) * block_count) >> 32) * 8;
  const uint32_t low = (uint32_t)hash;
  for (int i = 0; i < 8; i++) {
    block[i] |= 1u << ((low * salts[i]) >> 27);
  }
}

void filter_section_build(const uint64_t *hashes, uint32_t count, uint8_t *section) {
  memset(section, 0, (size_t)codec_filter_pages(count) * CODEC_PAGE_BYTES);
  struct filter_section *header = (struct filter_section *)(void *)section;
  header->entries = count;
  header->blocks = codec_filter_blocks(count);
  uint32_t *blocks = (uint32_t *)(void *)(header + 1);
  for (uint32_t i = 0; i < count; i++) {
    add(blocks, header->blocks, hashes[i]);
  }
}

void filter_section_seal(uint8_t *section, uint64_t seed, uint64_t offset) {
  struct filter_section *header = (struct filter_section *)(void *)section;
  const size_t size = CODEC_FILTER_HEADER_BYTES + (size_t)header->blocks * CODEC_FILTER_BLOCK_BYTES;
  header->checksum = codec_page_checksum(section, size, seed, offset);
}

turb_status filter_section_check(const void *section, size_t size, const struct codec_place *place, uint32_t entries, turb_error *err) {
  const struct filter_section *header = section;
  if (size < CODEC_FILTER_HEADER_BYTES) {
    return status_set_file(err, TURB_CORRUPTION, place->file, place->offset, "filter section is cut short");
  }
  if (header->entries != entries || header->blocks != codec_filter_blocks(entries)) {
    return status_set_file(err, TURB_CORRUPTION, place->file, place->offset,
                           "filter section has %u entries and %u blocks, wanted %u and %u", header->entries, header->blocks, entries,
                           codec_filter_blocks(entries));
  }
  const size_t used = CODEC_FILTER_HEADER_BYTES + (size_t)header->blocks * CODEC_FILTER_BLOCK_BYTES;
  if (size < used) {
    return status_set_file(err, TURB_CORRUPTION, place->file, place->offset, "filter section is cut short");
  }
  if (codec_page_checksum(section, used, place->seed, place->offset) != header->checksum) {
    return status_set_file(err, TURB_CORRUPTION, place->file, place->offset, "filter section does not match its checksum");
  }
  return TURB_OK;
}
