/*
 * sstable/page_builder: key pages and index pages as they fill (docs/format.md 3.5 and 3.6).
 *
 *   | header | slots --> ... gap ... <-- keys |
 *
 * Slots grow from the front of the page, keys from its back; the gap is zeroed at the end. A page lies in memory of the caller's (8,192 bytes, aligned to
 * 4,096), so that a writer fills pages where it keeps them; it may be moved between calls (page_builder_move).
 *
 * States: empty (slot_count 0) --add--> filling --finish--> a page but for its checksum, which waits for its place in the file.
 *
 * Invariants
 *   1. Slots lie within the first 4,096 bytes; slots_end <= keys_begin.
 *   2. A page has two units only when its first key needs them.
 *   3. Consecutive versions of one key share its bytes.
 *
 * Threads: a builder belongs to one thread at a time.
 */
#ifndef TURB_SSTABLE_PAGE_BUILDER_H
#define TURB_SSTABLE_PAGE_BUILDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sstable/codec.h"

#define PAGE_BUILDER_BYTES (CODEC_KEY_PAGE_MAX_UNITS * CODEC_PAGE_BYTES)

/* The common part; key and index pages differ in their slots. */
struct page_builder {
  uint8_t *page;
  uint32_t size; /* 4,096 or 8,192 */
  uint32_t slots_end;
  uint32_t keys_begin;
  uint32_t slot_count;
};

struct key_page_builder {
  struct page_builder base;
  uint64_t base_row, base_attribute;
  uint64_t hash_sum;
  uint32_t puts;
};

struct index_page_builder {
  struct page_builder base;
};

struct key_page_entry {
  turb_bytes key;
  uint64_t sequence_kind, row_hash;
  uint32_t attribute_hash, attribute_size;
  uint64_t attribute_offset; /* at most 2^32 - 1 above the page's base */
};

/* ---- key pages ---- */

/* Starts an empty page in `memory`; row and attribute offset are those of the next put. */
void key_page_begin(struct key_page_builder *builder, uint8_t *memory, uint64_t row, uint64_t attribute_offset);
/* Whether one more entry fits; always true for the first. same_key: its key is that of the last entry. */
bool key_page_fits(const struct key_page_builder *builder, size_t key_size, bool same_key);
/* Adds an entry that fits. */
void key_page_add(struct key_page_builder *builder, const struct key_page_entry *entry, bool same_key);
/* The last entry's key and sequence_kind; the page is not empty. */
turb_bytes key_page_last_key(const struct key_page_builder *builder);
uint64_t key_page_last_sequence_kind(const struct key_page_builder *builder);
/* Completes the page but for its checksum and returns its bytes. The page is not empty. */
uint32_t key_page_finish(struct key_page_builder *builder);

/* ---- index pages ---- */

void index_page_begin(struct index_page_builder *builder, uint8_t *memory);
bool index_page_fits(const struct index_page_builder *builder, size_t separator_size);
/* Adds a slot that fits; prefix, separator_offset and separator_size of `slot` are filled here. */
void index_page_add(struct index_page_builder *builder, const struct index_slot *slot, turb_bytes separator);
uint32_t index_page_finish(struct index_page_builder *builder);

/* ---- both ---- */

static inline bool page_builder_is_empty(const struct page_builder *builder) {
  return builder->slot_count == 0;
}
/* Moves the page to other memory (which may overlap): the bytes in use, and later ones go there. */
void page_builder_move(struct page_builder *builder, uint8_t *memory);
/* Sets the checksum of a finished page of `size` bytes that will stand at `offset`. */
void page_builder_seal(uint8_t *page, uint32_t size, uint64_t seed, uint64_t offset);

/*
 * A shortest key with last <= separator < next (last itself where both are equal), written to out (room for last.size bytes); returns its size.
 * last is not above next.
 */
size_t page_separator(turb_bytes last, turb_bytes next, uint8_t *out);

#endif
