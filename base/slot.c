/*
 * Searching a page of slots, and the hash of an entry; see slot.h for the layout and its invariants.
 *
 * A search compares integers: the page's prefixes with the target's eight bytes behind the page's shared prefix. Keys are looked at
 * only among slots whose prefix equals the target's, which for most pages is one slot.
 *
 * Threads: pure functions over pages that do not change.
 */
#include "base/slot.h"

#include "base/coding.h"
#include "base/hash.h"

/* The first of count slots whose prefix is at or above `prefix`, or (after true) above it. No branch depends on the data. */
static size_t prefix_bound(const struct slot *slots, size_t count, uint64_t prefix, bool after) {
  const struct slot *base = slots;
  while (count > 1) {
    const size_t half = count / 2;
    const uint64_t middle = base[half - 1].prefix;
    base += (middle < prefix || (after && middle == prefix)) ? half : 0;
    count -= half;
  }
  const bool below = count != 0 && (base->prefix < prefix || (after && base->prefix == prefix));
  return (size_t)(base - slots) + below;
}

uint16_t slot_page_lower_bound(const struct slot_page *page, turb_bytes key, uint64_t sequence) {
  const uint16_t count = page->slot_count;
  const size_t shared = page->shared_prefix_size;
  const struct slot *slots = slot_at(page, 0);
  const uint8_t *bytes = key.data;
  if (count == 0) {
    return 0;
  }
  if (shared != 0) {
    const size_t compared = key.size < shared ? key.size : shared;
    const int order = compared != 0 ? memcmp(bytes, slot_key(slots), compared) : 0;
    if (order != 0) {
      return order < 0 ? 0 : count;
    }
    if (key.size < shared) {
      return 0; /* every key of the page extends the target */
    }
  }
  const uint64_t prefix = key_prefix8(bytes + (key.size != 0 ? shared : 0), key.size - shared);
  size_t low = prefix_bound(slots, count, prefix, false);
  if (low == count || slots[low].prefix != prefix || slot_compare_target(&slots[low], key, sequence) >= 0) {
    return (uint16_t)low;
  }
  low++;
  size_t high = low + prefix_bound(slots + low, count - low, prefix, true);
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if (slot_compare_target(&slots[middle], key, sequence) < 0) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return (uint16_t)low;
}

#define NEAR_SLOTS 8u /* to either side of the guess: two standard deviations for a full page of random keys */

/* The first of the slots [low, high) with a prefix at or above `prefix`. */
static uint32_t bound_between(const struct slot *slots, uint32_t low, uint32_t high, uint64_t prefix) {
  while (low < high) {
    const uint32_t half = (high - low) / 2;
    const bool below = slots[low + half].prefix < prefix;
    low = below ? low + half + 1 : low;
    high = below ? high : low + half;
  }
  return low;
}

/* Slot by slot from the guess: a bisection around it would wait for lines that the answer does not lie in. */
uint32_t slots_bound_near(const struct slot *slots, uint32_t guess, uint32_t count, uint64_t prefix) {
  uint32_t at = guess < count ? guess : count;
  if (at < count && slots[at].prefix < prefix) {
    const uint32_t end = at + NEAR_SLOTS < count ? at + NEAR_SLOTS : count;
    for (at++; at < end; at++) {
      if (slots[at].prefix >= prefix) {
        return at;
      }
    }
    return bound_between(slots, at, count, prefix);
  }
  const uint32_t begin = at > NEAR_SLOTS ? at - NEAR_SLOTS : 0;
  for (; at > begin; at--) {
    if (slots[at - 1].prefix < prefix) {
      return at;
    }
  }
  return bound_between(slots, 0, at, prefix);
}

uint16_t slot_page_lower_bound_near(const struct slot_page *page, uint32_t guess, turb_bytes key, uint64_t sequence) {
  const uint32_t count = page->slot_count;
  const size_t shared = page->shared_prefix_size;
  const struct slot *slots = slot_at(page, 0);
  if (count == 0 || key.size <= shared) {
    return slot_page_lower_bound(page, key, sequence);
  }
  const uint8_t *bytes = key.data;
  const uint64_t prefix = key_prefix8(bytes + shared, key.size - shared);
  const uint32_t low = slots_bound_near(slots, guess, count, prefix);
  const struct slot *slot = &slots[low < count ? low : count - 1]; /* its key begins with what all share, as every other's */
  if (shared != 0) {
    const int order = memcmp(bytes, slot_key(slot), shared);
    if (order != 0) {
      return order < 0 ? 0 : (uint16_t)count;
    }
  }
  if (low == count || slot->prefix != prefix || slot_compare_target(slot, key, sequence) >= 0) {
    return (uint16_t)low;
  }
  return slot_page_lower_bound(page, key, sequence);
}

uint64_t slot_entry_hash(const struct slot *slot) {
  const uint64_t seed =
      slot->row_hash * UINT64_C(0x9E3779B97F4A7C15) + slot->sequence_kind + slot->attribute_hash * UINT64_C(0xC2B2AE3D27D4EB4F);
  return hash64(slot_key(slot), slot->key_size, seed);
}
