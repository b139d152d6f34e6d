/* base/slot: the in-place form of entries, shared by memtable pages and the key pages of tables (docs/format.md 3.5).
 *
 * An entry is known everywhere by a pointer to its slot. The page that it lies in is found by rounding that pointer down to 4 KiB; the
 * page's header gives the
 * bases that the slot's deltas count from. So one pointer yields key, sequence, kind, row number and attribute offset, without decoding.
 *
 * Invariants
 *  1. A page is 4 KiB-aligned in memory, and all its slots lie within its first 4 KiB.
 *  2. slot->prefix holds the 8 key bytes after page->shared_prefix_size as a big-endian number (zeros past the key's end).
 *  3. Sequence numbers: the slot's own, or the page's when that is not 0 (bulk-loaded tables).
 */
#ifndef TURB_BASE_SLOT_H
#define TURB_BASE_SLOT_H

#include <stddef.h>
#include <stdint.h>

#include "base/key.h"
#include "base/range_deletes.h"
#include "turbidite/turbidite.h"

#define SLOT_PAGE_BYTES     4096u
#define SLOT_SEQUENCE_MAX   ((UINT64_C(1) << 56) - 1)
#define SLOT_ATTRIBUTE_BITS 25

enum slot_kind { SLOT_PUT = 1, SLOT_DELETE = 2 };

struct slot {
  uint64_t prefix;
  uint64_t sequence_kind; /* sequence << 8 | kind */
  uint64_t row_hash;
  uint32_t attribute_hash;
  uint32_t attribute_delta;
  uint32_t attribute_size_row_delta; /* size: bits 0 to 24; row delta: bits 25 to 31 */
  uint16_t key_offset;               /* from the page's begin */
  uint16_t key_size;
};
_Static_assert(sizeof(struct slot) == 40, "slots are 40 bytes on disk");

struct slot_page { /* also a key page's header on disk */
  uint64_t checksum;
  uint64_t base_row;
  uint64_t base_attribute;
  uint64_t sequence;
  uint16_t slot_count;
  uint16_t shared_prefix_size;
  uint8_t units;
  uint8_t flags;
  uint16_t reserved;
};
_Static_assert(sizeof(struct slot_page) == 40, "page headers are 40 bytes on disk");

static inline const struct slot_page *slot_page_of(const struct slot *slot) {
  return (const struct slot_page *)((uintptr_t)slot & ~(uintptr_t)(SLOT_PAGE_BYTES - 1));
}
static inline const struct slot *slot_at(const struct slot_page *page, size_t index) {
  return (const struct slot *)(page + 1) + index;
}
static inline const uint8_t *slot_key(const struct slot *slot) {
  return (const uint8_t *)slot_page_of(slot) + slot->key_offset;
}
static inline turb_bytes slot_key_bytes(const struct slot *slot) {
  return (turb_bytes){slot_key(slot), slot->key_size};
}
static inline enum slot_kind slot_kind(const struct slot *slot) {
  return (enum slot_kind)(slot->sequence_kind & 0xff);
}
static inline uint64_t slot_sequence(const struct slot *slot) {
  const uint64_t own = slot->sequence_kind >> 8;
  return own ? own : slot_page_of(slot)->sequence;
}
static inline uint32_t slot_attribute_size(const struct slot *slot) {
  return slot->attribute_size_row_delta & ((1u << SLOT_ATTRIBUTE_BITS) - 1);
}
static inline uint64_t slot_row(const struct slot *slot) {
  return slot_page_of(slot)->base_row + (slot->attribute_size_row_delta >> SLOT_ATTRIBUTE_BITS);
}
static inline uint64_t slot_attribute_offset(const struct slot *slot) {
  return slot_page_of(slot)->base_attribute + slot->attribute_delta;
}

/* Entry order: key ascending, then sequence descending. Negative, 0, positive. */
static inline int slot_compare(const struct slot *a, const struct slot *b) {
  const int c = key_compare(slot_key(a), a->key_size, slot_key(b), b->key_size);
  if (c)
    return c;
  const uint64_t sa = slot_sequence(a), sb = slot_sequence(b);
  return sa > sb ? -1 : sa < sb;
}
/* A slot against a target (key, sequence): the position at which the newest version visible at `sequence` would stand. */
static inline int slot_compare_target(const struct slot *a, turb_bytes key, uint64_t sequence) {
  const int c = key_compare(slot_key(a), a->key_size, key.data, key.size);
  if (c)
    return c;
  const uint64_t sa = slot_sequence(a);
  return sa > sequence ? -1 : sa < sequence;
}
/* The first slot of a page not before (key, sequence) in entry order: 0 to slot_count. Branch-light binary search on prefixes. */
uint16_t slot_page_lower_bound(const struct slot_page *page, turb_bytes key, uint64_t sequence);
/* The same from a guess on (any number): looks at few lines of the page when the guess is good. */
uint16_t slot_page_lower_bound_near(const struct slot_page *page, uint32_t guess, turb_bytes key, uint64_t sequence);
/* The first of the slots with a prefix at or above `prefix`, from a guess on. */
uint32_t slots_bound_near(const struct slot *slots, uint32_t guess, uint32_t count, uint64_t prefix);

/* docs/format.md 2, "Entry hash". */
uint64_t slot_entry_hash(const struct slot *slot);

#endif
