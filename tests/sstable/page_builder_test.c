/* Key and index pages: limits, bytes shared between versions, separators. */
#include "sstable/page_builder.h"

#include <stdlib.h>

#include "tests/support/test.h"

static const struct codec_limits limits = {
    .entries = 1000000, .puts = 1000000, .attribute_bytes = UINT64_C(1) << 40, .pages = 100000, .largest_sequence = SLOT_SEQUENCE_MAX};
static const struct codec_place place = {"page", 5, 12288};
static _Alignas(4096) uint8_t memory[PAGE_BUILDER_BYTES + 4096];

static bool add_entry(struct key_page_builder *builder, turb_bytes key, uint64_t sequence, enum slot_kind kind) {
  const bool same =
      builder->base.slot_count != 0 && key_equal(key_page_last_key(builder).data, key_page_last_key(builder).size, key.data, key.size);
  if (!key_page_fits(builder, key.size, same)) {
    return false;
  }
  const struct key_page_entry entry = {.key = key,
                                       .sequence_kind = sequence << 8 | kind,
                                       .row_hash = kind == SLOT_PUT ? 99 : 0,
                                       .attribute_offset = builder->base_attribute};
  key_page_add(builder, &entry, same);
  return true;
}

static const struct slot_page *finish_key_page(struct key_page_builder *builder, uint32_t *size) {
  *size = key_page_finish(builder);
  page_builder_seal(builder->base.page, *size, place.seed, place.offset);
  turb_error err = TURB_ERROR_INIT;
  CHECK_OK_ERR(codec_key_page_check(builder->base.page, *size, &place, &limits, &err), &err);
  return (const struct slot_page *)(const void *)builder->base.page;
}

TEST(page_builder, fills_a_page_of_small_keys) {
  memset(memory, 0xee, sizeof memory);
  struct key_page_builder builder;
  key_page_begin(&builder, memory, 500, 7000);
  char key[17];
  unsigned count = 0;
  for (;; count++) {
    snprintf(key, sizeof key, "user%012u", 100000 + count);
    if (!add_entry(&builder, (turb_bytes){key, 16}, 9, SLOT_PUT)) {
      break;
    }
  }
  CHECK_EQ(count, (4096 - 40) / (40 + 16));
  uint32_t size = 0;
  const struct slot_page *page = finish_key_page(&builder, &size);
  CHECK_EQ(size, 4096);
  CHECK_EQ(memory[4096], 0xee);
  CHECK_EQ(page->slot_count, count);
  CHECK_EQ(page->shared_prefix_size, 14);
  CHECK_EQ(page->units, 1);
  CHECK_EQ(page->base_row, 500);
  CHECK_EQ(page->base_attribute, 7000);
  CHECK_EQ(slot_row(slot_at(page, 3)), 503);
  CHECK_EQ(slot_at(page, 3)->prefix, UINT64_C(0x3033000000000000)); /* "03" */
  CHECK_EQ(builder.puts, count);
}

TEST(page_builder, keys_of_every_size) {
  static uint8_t key[4096];
  memset(key, 'x', sizeof key);
  for (size_t bytes = 1; bytes <= 4096; bytes++) {
    struct key_page_builder builder;
    key_page_begin(&builder, memory, 0, 0);
    CHECK(add_entry(&builder, (turb_bytes){key, bytes}, 2, SLOT_PUT));
    uint32_t size = 0;
    const struct slot_page *page = finish_key_page(&builder, &size);
    CHECK_EQ(page->units, bytes <= 4096 - 80 ? 1 : 2);
    CHECK_EQ(size, page->units * 4096u);
    CHECK_EQ(slot_key_bytes(slot_at(page, 0)).size, bytes);
    CHECK_MEM_EQ(slot_key(slot_at(page, 0)), key, bytes);
  }
}

TEST(page_builder, a_page_of_two_units_takes_more_entries_in_its_first) {
  static uint8_t key[4096];
  memset(key, 'x', sizeof key);
  struct key_page_builder builder;
  key_page_begin(&builder, memory, 0, 0);
  CHECK(add_entry(&builder, (turb_bytes){key, 4096}, 2, SLOT_PUT));
  CHECK(add_entry(&builder, TURB_STR("y"), 2, SLOT_PUT));
  key[0] = 'z';
  CHECK(!add_entry(&builder, (turb_bytes){key, 4096}, 2, SLOT_PUT));
  CHECK(add_entry(&builder, (turb_bytes){key, 3500}, 2, SLOT_DELETE));
  uint32_t size = 0;
  const struct slot_page *page = finish_key_page(&builder, &size);
  CHECK_EQ(size, 8192);
  CHECK_EQ(page->slot_count, 3);
}

TEST(page_builder, versions_of_a_key_share_its_bytes) {
  static uint8_t key[4096];
  memset(key, 'x', sizeof key);
  for (size_t bytes = 1; bytes <= 4096; bytes = bytes * 3 + 1) {
    struct key_page_builder builder;
    key_page_begin(&builder, memory, 0, 0);
    uint32_t count = 0;
    while (add_entry(&builder, (turb_bytes){key, bytes}, 1000 - count, count % 3 == 0 ? SLOT_DELETE : SLOT_PUT)) {
      count++;
    }
    CHECK_EQ(count, bytes > 4016 ? 101 : (4096 - 40 - bytes) / 40);
    CHECK_LE(count, CODEC_KEY_PAGE_MAX_SLOTS);
    uint32_t size = 0;
    const struct slot_page *page = finish_key_page(&builder, &size);
    CHECK_EQ(slot_at(page, 0)->key_offset, slot_at(page, count - 1)->key_offset);
    CHECK_EQ(slot_row(slot_at(page, 3)), 2);
  }
}

TEST(page_builder, a_page_can_be_moved_while_it_fills) {
  struct key_page_builder builder;
  key_page_begin(&builder, memory + 4096, 0, 0);
  CHECK(add_entry(&builder, TURB_STR("a"), 2, SLOT_PUT));
  page_builder_move(&builder.base, memory);
  CHECK(add_entry(&builder, TURB_STR("b"), 2, SLOT_PUT));
  uint32_t size = 0;
  const struct slot_page *page = finish_key_page(&builder, &size);
  CHECK_MEM_EQ(slot_key(slot_at(page, 0)), "a", 1);
  CHECK_MEM_EQ(slot_key(slot_at(page, 1)), "b", 1);
}

TEST(page_builder, index_pages) {
  struct index_page_builder builder;
  static uint8_t separator[4096];
  for (size_t bytes = 1; bytes <= 4096; bytes = bytes < 20         ? bytes + 1
                                                : bytes * 2 < 4096 ? bytes * 2
                                                : bytes < 4001     ? bytes + 500
                                                                   : bytes + 95) {
    memset(separator, 's', sizeof separator);
    index_page_begin(&builder, memory);
    uint32_t count = 0;
    for (;; count++) {
      separator[bytes - 1] = (uint8_t)count;
      if (!index_page_fits(&builder, bytes)) {
        break;
      }
      const struct index_slot slot = {
          .hash_sum = count, .base_row = count * 2, .first_entry = count * 3, .page = 10 + count, .slots = 3, .units = 1, .puts = 2};
      index_page_add(&builder, &slot, (turb_bytes){separator, bytes});
    }
    const size_t fitting = (4096 - 40) / (56 + bytes);
    CHECK_EQ(count, fitting > 62 ? 62 : fitting < 1 ? 1 : fitting);
    const uint32_t size = index_page_finish(&builder);
    CHECK_EQ(size, bytes > 4000 ? 8192 : 4096);
    page_builder_seal(memory, size, place.seed, place.offset);
    turb_error err = TURB_ERROR_INIT;
    CHECK_OK_ERR(codec_index_page_check(memory, size, &place, &limits, &err), &err);
    const struct slot_page *page = (const struct slot_page *)(const void *)memory;
    CHECK_EQ(page->slot_count, count);
    CHECK_EQ(codec_index_slot(page, count - 1)->separator_size, bytes);
    CHECK_EQ(codec_index_slot(page, count - 1)->hash_sum, count - 1);
  }
}

/* ---- separators ---- */

static void check_separator(turb_bytes last, turb_bytes next) {
  static uint8_t out[4096];
  const size_t size = page_separator(last, next, out);
  CHECK_GE(key_compare(out, size, last.data, last.size), 0);
  const bool equal = key_compare(last.data, last.size, next.data, next.size) == 0;
  CHECK(equal ? key_compare(out, size, last.data, last.size) == 0 : key_compare(out, size, next.data, next.size) < 0);
  if (equal || size == 1 || size > 3) {
    return;
  }
  /* No shorter key lies between: all of them, by counting. */
  for (uint32_t value = 0; value < 1u << (8 * (size - 1)); value++) {
    const uint8_t shorter[3] = {(uint8_t)(value >> 8 * (size - 2)), (uint8_t)(size > 2 ? value >> 8 * (size - 3) : 0), (uint8_t)value};
    for (size_t bytes = 1; bytes < size; bytes++) {
      CHECK(key_compare(shorter, bytes, last.data, last.size) < 0 || key_compare(shorter, bytes, next.data, next.size) >= 0);
    }
  }
}

TEST(page_builder, separators_by_hand) {
  static const struct {
    const char *last, *next;
    size_t size;
  } cases[] = {{"abc", "abe", 3},
               {"abcdef", "abe", 3},
               {"abcdef", "abd", 4},
               {"abcdef", "abdx", 3},
               {"a", "b", 1},
               {"ab", "abc", 2},
               {"abc", "abc", 3},
               {"a\xff\xff", "b", 3},
               {"a\xff"
                "bc",
                "b", 3},
               {"apple", "banana", 1}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    uint8_t out[16];
    CHECK_EQ(page_separator((turb_bytes){cases[i].last, strlen(cases[i].last)}, (turb_bytes){cases[i].next, strlen(cases[i].next)}, out),
             cases[i].size);
  }
}

TEST(page_builder, separators_are_shortest) {
  struct random random;
  random_init(&random, test_seed());
  static const uint8_t bytes[] = {0, 1, 2, 0x7f, 0xfe, 0xff};
  for (uint64_t round = 0; round < test_scale(3000, 1000, 30000); round++) {
    uint8_t a[6], b[6];
    size_t a_size = random_between(&random, 1, 6), b_size = random_between(&random, 1, 6);
    for (size_t i = 0; i < 6; i++) {
      a[i] = bytes[random_below(&random, 6)];
      b[i] = random_below(&random, 10) < 7 ? a[i] : bytes[random_below(&random, 6)];
    }
    const bool swap = key_compare(a, a_size, b, b_size) > 0;
    const turb_bytes first = {swap ? b : a, swap ? b_size : a_size}, second = {swap ? a : b, swap ? a_size : b_size};
    if (random_one_in(&random, 20) || a_size + b_size < 8) {
      check_separator(first, second);
    }
  }
}
