/* Pages of slots: the search against a linear scan, and the hash of an entry. */
#include "base/slot.h"

#include <stdlib.h>

#include "base/coding.h"
#include "base/hash.h"
#include "tests/support/test.h"

#define KEY_MOST   24u
#define SLOTS_MOST 40u

struct entry {
  uint8_t key[KEY_MOST];
  size_t key_size;
  uint64_t sequence;
};

union page_memory {
  struct slot_page page;
  uint8_t bytes[SLOT_PAGE_BYTES];
};

static int entry_compare(const void *a_entry, const void *b_entry) {
  const struct entry *a = a_entry;
  const struct entry *b = b_entry;
  const int order = key_compare(a->key, a->key_size, b->key, b->key_size);
  return order != 0 ? order : (a->sequence < b->sequence) - (a->sequence > b->sequence);
}

/* A page over sorted entries, with as long a shared prefix as they have, but at most `shared`. */
static void page_build(union page_memory *memory, const struct entry *entries, size_t count, size_t shared, uint64_t bulk_sequence) {
  memset(memory, 0, sizeof *memory);
  if (count != 0) {
    const size_t common = key_shared_prefix(entries[0].key, entries[0].key_size, entries[count - 1].key, entries[count - 1].key_size);
    shared = shared < common ? shared : common;
  }
  memory->page.slot_count = (uint16_t)count;
  memory->page.shared_prefix_size = (uint16_t)(count != 0 ? shared : 0);
  memory->page.units = 1;
  memory->page.sequence = bulk_sequence;
  size_t at = SLOT_PAGE_BYTES;
  for (size_t i = 0; i < count; i++) {
    struct slot *slot = (struct slot *)(void *)(memory->bytes + sizeof(struct slot_page)) + i;
    at -= entries[i].key_size;
    memcpy(memory->bytes + at, entries[i].key, entries[i].key_size);
    slot->prefix = key_prefix8(entries[i].key + shared, entries[i].key_size - shared);
    slot->sequence_kind = (bulk_sequence != 0 ? 0 : entries[i].sequence << 8) | SLOT_PUT;
    slot->key_offset = (uint16_t)at;
    slot->key_size = (uint16_t)entries[i].key_size;
  }
}

static size_t linear_bound(const struct entry *entries, size_t count, turb_bytes key, uint64_t sequence) {
  size_t i = 0;
  for (; i < count; i++) {
    const int order = key_compare(entries[i].key, entries[i].key_size, key.data, key.size);
    if (order > 0 || (order == 0 && entries[i].sequence <= sequence)) {
      break;
    }
  }
  return i;
}

/* A key of few distinct bytes (zeros among them), so that prefixes collide and keys extend each other. */
static size_t random_key(struct random *random, uint8_t *key, const uint8_t *stem, size_t stem_size, size_t least) {
  static const uint8_t letters[] = {0, 0, 1, 'a', 0xff};
  const size_t size = random_between(random, least, KEY_MOST);
  for (size_t i = 0; i < size; i++) {
    key[i] = i < stem_size ? stem[i] : letters[random_below(random, sizeof letters)];
  }
  if (random_one_in(random, 4)) { /* long stretches of zeros */
    for (size_t i = stem_size; i < size; i++) {
      key[i] = 0;
    }
  }
  return size;
}

static void check_all_targets(const union page_memory *memory, const struct entry *entries, size_t count, struct random *random,
                              const uint8_t *stem, size_t stem_size) {
  for (int i = 0; i < 60; i++) {
    uint8_t key[KEY_MOST];
    size_t size;
    uint64_t sequence = random_below(random, 12);
    if (count != 0 && random_one_in(random, 3)) {
      const struct entry *entry = &entries[random_below(random, count)];
      size = entry->key_size;
      memcpy(key, entry->key, size);
      sequence = entry->sequence + random_below(random, 3) - 1;
    } else {
      size = random_key(random, key, stem, random_below(random, stem_size + 1), 0);
    }
    if (random_one_in(random, 8)) {
      size = random_below(random, size + 1);
    }
    if (random_one_in(random, 8)) {
      sequence = SLOT_SEQUENCE_MAX;
    }
    const turb_bytes target = {key, size};
    const size_t bound = linear_bound(entries, count, target, sequence);
    CHECK_EQ(slot_page_lower_bound(&memory->page, target, sequence), bound);
    const uint32_t guess = (uint32_t)(random_one_in(random, 2) ? random_below(random, count + 3) : bound + random_below(random, 3));
    CHECK_EQ(slot_page_lower_bound_near(&memory->page, guess, target, sequence), bound);
  }
}

TEST(slot, lower_bound_equals_a_linear_scan) {
  static _Alignas(SLOT_PAGE_BYTES) union page_memory memory;
  static struct entry entries[SLOTS_MOST];
  struct random random;
  random_init(&random, test_seed());
  const uint64_t rounds = test_scale(3000, 10000, 100000);
  for (uint64_t round = 0; round < rounds; round++) {
    uint8_t stem[KEY_MOST];
    const size_t stem_size = random_below(&random, KEY_MOST - 4);
    random_fill(&random, stem, sizeof stem);
    const bool bulk = random_one_in(&random, 4);
    size_t count = random_below(&random, SLOTS_MOST + 1);
    for (size_t i = 0; i < count; i++) {
      entries[i].key_size = random_key(&random, entries[i].key, stem, stem_size, stem_size);
      entries[i].sequence = bulk ? 5 : random_between(&random, 1, 10);
    }
    qsort(entries, count, sizeof *entries, entry_compare);
    size_t distinct = 0;
    for (size_t i = 0; i < count; i++) {
      if (distinct == 0 || entry_compare(&entries[distinct - 1], &entries[i]) != 0) {
        entries[distinct++] = entries[i];
      }
    }
    page_build(&memory, entries, distinct, random_below(&random, KEY_MOST), bulk ? 5 : 0);
    check_all_targets(&memory, entries, distinct, &random, stem, stem_size);
  }
}

TEST(slot, a_page_of_one_key_with_many_versions) {
  static _Alignas(SLOT_PAGE_BYTES) union page_memory memory;
  static struct entry entries[SLOTS_MOST];
  for (size_t i = 0; i < SLOTS_MOST; i++) {
    entries[i] = (struct entry){.key = "key", .key_size = 3, .sequence = 2 * (SLOTS_MOST - i)};
  }
  page_build(&memory, entries, SLOTS_MOST, KEY_MOST, 0);
  CHECK_EQ(memory.page.shared_prefix_size, 3);
  for (uint64_t sequence = 0; sequence <= 2 * SLOTS_MOST + 1; sequence++) {
    CHECK_EQ(slot_page_lower_bound(&memory.page, TURB_STR("key"), sequence),
             SLOTS_MOST - (sequence / 2 < SLOTS_MOST ? sequence / 2 : SLOTS_MOST));
  }
  CHECK_EQ(slot_page_lower_bound(&memory.page, TURB_STR("ke"), 1), 0);
  CHECK_EQ(slot_page_lower_bound(&memory.page, TURB_STR("key\0"), SLOT_SEQUENCE_MAX), SLOTS_MOST);
  CHECK_EQ(slot_page_lower_bound(&memory.page, TURB_STR("kez"), SLOT_SEQUENCE_MAX), SLOTS_MOST);
  CHECK_EQ(slot_page_lower_bound(&memory.page, TURB_STR("a"), 0), 0);
}

TEST(slot, an_empty_page_has_no_bound) {
  static _Alignas(SLOT_PAGE_BYTES) union page_memory memory;
  page_build(&memory, NULL, 0, 0, 0);
  CHECK_EQ(slot_page_lower_bound(&memory.page, TURB_STR("a"), 1), 0);
  CHECK_EQ(slot_page_lower_bound(&memory.page, TURB_NONE, 1), 0);
}

TEST(slot, entry_hash_is_that_of_the_format) {
  static _Alignas(SLOT_PAGE_BYTES) union page_memory memory;
  const struct entry entry = {.key = "a key", .key_size = 5, .sequence = 77};
  page_build(&memory, &entry, 1, 0, 0);
  struct slot *slot = (struct slot *)(void *)(memory.bytes + sizeof(struct slot_page));
  slot->row_hash = UINT64_C(0x123456789abcdef0);
  slot->attribute_hash = 0xdeadbeef;
  const uint64_t seed = UINT64_C(0x123456789abcdef0) * UINT64_C(0x9E3779B97F4A7C15) + (UINT64_C(77) << 8 | 1) +
                        UINT64_C(0xdeadbeef) * UINT64_C(0xC2B2AE3D27D4EB4F);
  CHECK_EQ(slot_entry_hash(slot), hash64("a key", 5, seed));
  const uint64_t before = slot_entry_hash(slot);
  slot->sequence_kind = UINT64_C(77) << 8 | SLOT_DELETE;
  CHECK_NE(slot_entry_hash(slot), before);
  memory.page.sequence = 99; /* of the page, not of the slot: the hash takes what is stored */
  slot->sequence_kind = SLOT_PUT;
  const uint64_t bulk = slot_entry_hash(slot);
  memory.page.sequence = 100;
  CHECK_EQ(slot_entry_hash(slot), bulk);
  CHECK_EQ(slot_sequence(slot), 100);
}
