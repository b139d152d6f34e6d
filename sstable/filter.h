/*
 * sstable/filter: sections of the whole-key filter (docs/format.md 3.8): a split block Bloom filter over up to 8,192 entries.
 *
 *   0   u64 checksum of bytes 8 to the end of the last block (part seed)
 *   8   u32 entries, u32 blocks, 48 reserved
 *   64  blocks of 32 bytes: eight 32-bit words, of which a key sets one bit each
 *
 * Invariants
 *   1. A key that was added is always found; about 1.3 % of others are, in a section of any count.
 *   2. The bytes depend on the hashes alone, not on their order.
 *
 * Threads: pure functions.
 */
#ifndef TURB_SSTABLE_FILTER_H
#define TURB_SSTABLE_FILTER_H

#include <stdbool.h>
#include <stdint.h>

#include "sstable/codec.h"

struct filter_section { /* the header, as on disk */
  uint64_t checksum;
  uint32_t entries;
  uint32_t blocks;
  uint64_t reserved[6];
};
_Static_assert(sizeof(struct filter_section) == CODEC_FILTER_HEADER_BYTES, "filter headers are 64 bytes on disk");

/* Builds a section of count (1 to 8,192) key hashes into codec_filter_pages(count) pages at `section` (aligned to 8), all but its checksum. */
void filter_section_build(const uint64_t *hashes, uint32_t count, uint8_t *section);

/* Sets the checksum of a section that will stand at `offset` of a table with this seed. */
void filter_section_seal(uint8_t *section, uint64_t seed, uint64_t offset);

/* Checks a section of `size` bytes at hand; entries: how many it must cover. */
TURB_MUST_CHECK turb_status filter_section_check(const void *section, size_t size, const struct codec_place *place, uint32_t entries,
                                                 turb_error *err);

/* Whether a key with this hash (XXH3-64, seed 0) may be among the section's; the section was checked or built before. */
static inline bool filter_section_may_contain(const void *section, uint64_t hash) {
  static const uint32_t salts[8] = {0x47b6137bu, 0x44974d91u, 0x8824ad5bu, 0xa2b7289du, 0x705495c7u, 0x2df1424bu, 0x9efc4947u, 0x5c6bfb31u};
  const struct filter_section *header = section;
  const uint32_t *block = (const uint32_t *)(const void *)(header + 1) + (((hash >> 32) * header->blocks) >> 32) * 8;
  const uint32_t low = (uint32_t)hash;
  uint32_t missing = 0;
  for (int i = 0; i < 8; i++) {
    missing |= ~block[i] & (1u << ((low * salts[i]) >> 27));
  }
  return missing == 0;
}

#endif
