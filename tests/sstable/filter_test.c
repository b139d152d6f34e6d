/* Filter sections: no key is missed, few others are let through, damage is found. */
#include "sstable/filter.h"

#include "tests/support/test.h"

static uint64_t hashes[TABLE_FILTER_SECTION_ENTRIES];
static _Alignas(4096) uint8_t section[3 * 4096];

static void fill_hashes(uint64_t seed) {
  for (uint64_t i = 0; i < TABLE_FILTER_SECTION_ENTRIES; i++) {
    const uint64_t key[2] = {seed, i};
    hashes[i] = hash64(key, sizeof key, 0);
  }
}

/* How many of `probes` keys that are not in it a section of `count` keys lets through; it finds all that are. */
static uint32_t passed_by(uint64_t seed, uint32_t count, uint32_t probes) {
  fill_hashes(seed);
  filter_section_build(hashes, count, section);
  for (uint32_t i = 0; i < count; i++) {
    CHECK(filter_section_may_contain(section, hashes[i]));
  }
  uint32_t passed = 0;
  for (uint64_t i = 0; i < probes; i++) {
    const uint64_t key[2] = {seed + 1, i};
    passed += filter_section_may_contain(section, hash64(key, sizeof key, 0));
  }
  return passed;
}

TEST(filter, finds_every_key_and_few_others) {
  const uint64_t seed = test_seed();
  static const uint32_t counts[] = {1, 2, 25, 26, 100, 1000, 5000, 8191, 8192};
  const uint32_t sections = 24, probes = 20000; /* one section of 1,000 keys has chance in it: how they fall into 40 blocks */
  for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
    uint32_t passed = 0;
    for (uint32_t i = 0; i < sections; i++) {
      passed += passed_by(seed + 2 * i, counts[c], probes);
    }
    /* A full section has 1.3 %; small ones have less. */
    CHECK_MSG(passed <= sections * probes / 1000 * 14, "%u of %u pass with %u keys", passed, sections * probes, counts[c]);
  }
}

TEST(filter, pages_and_blocks) {
  CHECK_EQ(codec_filter_blocks(1), 1);
  CHECK_EQ(codec_filter_blocks(25), 1);
  CHECK_EQ(codec_filter_blocks(26), 2);
  CHECK_EQ(codec_filter_blocks(8192), 320);
  CHECK_EQ(codec_filter_pages(1), 1);
  CHECK_EQ(codec_filter_pages(8192), 3);
}

TEST(filter, bytes_do_not_depend_on_the_order_of_keys) {
  fill_hashes(1);
  filter_section_build(hashes, 1000, section);
  const uint64_t before = hash64(section, sizeof section / 3, 0);
  for (size_t i = 0; i < 500; i++) {
    const uint64_t swapped = hashes[i];
    hashes[i] = hashes[999 - i];
    hashes[999 - i] = swapped;
  }
  filter_section_build(hashes, 1000, section);
  CHECK_EQ(hash64(section, sizeof section / 3, 0), before);
  CHECK_EQ(before, UINT64_C(2380182995612266533)); /* pinned: part of the format */
}

TEST(filter, damage_is_found) {
  fill_hashes(2);
  filter_section_build(hashes, 300, section);
  filter_section_seal(section, 77, 8192);
  struct codec_place place = {"file", 77, 8192};
  CHECK_OK(filter_section_check(section, 4096, &place, 300, NULL));
  CHECK_STATUS(filter_section_check(section, 4096, &place, 301, NULL), TURB_CORRUPTION);
  CHECK_STATUS(filter_section_check(section, 63, &place, 300, NULL), TURB_CORRUPTION);
  CHECK_STATUS(filter_section_check(section, 64 + 11 * 32, &place, 300, NULL), TURB_CORRUPTION);
  CHECK_OK(filter_section_check(section, 64 + 12 * 32, &place, 300, NULL));
  place.offset = 4096;
  CHECK_STATUS(filter_section_check(section, 4096, &place, 300, NULL), TURB_CORRUPTION);
  place.offset = 8192;
  for (size_t bit = 0; bit < (64 + 12 * 32) * 8; bit++) {
    section[bit / 8] ^= (uint8_t)(1u << bit % 8);
    turb_error err = TURB_ERROR_INIT;
    CHECK_STATUS(filter_section_check(section, 4096, &place, 300, &err), TURB_CORRUPTION);
    CHECK_EQ(err.offset, 8192);
    CHECK_STR_EQ(err.file, "file");
    section[bit / 8] ^= (uint8_t)(1u << bit % 8);
  }
}
