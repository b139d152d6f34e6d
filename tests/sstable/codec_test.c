/*
 * Decoding what may be damaged: header, footer, tail and pages, cut short, with flipped bits, and with changes under a checksum that was made right
 * again. The answer is an error with file and offset, or OK with contents that are safe to use; asan watches the bounds.
 */
#include "sstable/codec.h"

#include <stdlib.h>

#include "tests/sstable/written.h"

#define PATH "/db/table"

static const struct written_wish mixed = {.dimension = 10,
                                          .type = TURB_F32,
                                          .entries = 3000,
                                          .key_min = 8,
                                          .key_max = 40,
                                          .attribute_max = 400,
                                          .versions = 3,
                                          .deletes_percent = 20};

/* A table in memory and what the codec says of it. */
struct sample {
  struct written_disk disk;
  struct written_set set;
  struct table_record record;
  uint8_t *file;
  size_t size;
  struct table_header header;
  struct table_footer footer;
  struct table_tail tail;
  struct arena arena;
  struct codec_limits limits;
};

static void sample_make(struct sample *s, const struct written_wish *wish) {
  static const uint64_t sequences[] = {1900000, 70, 3};
  static const struct range_fragment ranges[] = {{{"a", 1}, {"kkk", 3}, 3, sequences}, {{"kkk", 3}, {"zz", 2}, 1, sequences + 1}};
  turb_error err = TURB_ERROR_INIT;
  written_disk_open(&s->disk, 1);
  s->set = written_set_make(wish, test_seed());
  s->set.ranges = ranges;
  s->set.range_count = 2;
  CHECK_OK_ERR(written_write(&s->disk, PATH, &s->set, 0, &s->record, &err), &err);
  s->file = written_read(&s->disk, PATH, &s->size);
  CHECK_OK_ERR(codec_header_decode(s->file, s->size, PATH, NULL, &s->header, &err), &err);
  struct codec_place place = {PATH, s->header.seed, s->size - 64};
  CHECK_OK_ERR(codec_footer_decode(s->file + s->size - 64, 64, &place, &s->footer, &err), &err);
  arena_init(&s->arena, alloc_default(), NULL, BUDGET_JOB, 0);
  place.offset = s->footer.tail_offset;
  CHECK_OK_ERR(codec_tail_decode(s->file + place.offset, s->size - 64 - place.offset, &place, s->footer.tail_checksum, &s->header.shape,
                                 &s->arena, &s->tail, &err),
               &err);
  s->limits = codec_limits_of(&s->tail.properties, s->footer.tail_offset);
}

static void sample_free(struct sample *s) {
  arena_free(&s->arena);
  free(s->file);
  written_set_free(&s->set);
  written_disk_close(&s->disk);
}

static void check_place(const turb_error *err, uint64_t low, uint64_t high) {
  CHECK_STR_EQ(err->file, PATH);
  CHECK_GE(err->offset, low);
  CHECK_LE(err->offset, high);
}

/* ---- header and footer ---- */

TEST(codec, header_round_trip) {
  struct table_header header = {.seed = 0x1122334455667788,
                                .collection_id = 9,
                                .file_number = 12345678901,
                                .shape = {.dimension = 768, .type = TURB_BF16, .metric = TURB_COSINE, .compression = 1}};
  table_shape_derive(&header.shape);
  memcpy(header.database_id, "0123456789abcdef", 16);
  uint8_t page[4096];
  codec_header_encode(&header, page);
  CHECK_MEM_EQ(page, "TURBTBL\n", 8);
  CHECK_EQ(page[60], TURB_BF16);
  struct table_header back;
  CHECK_OK(codec_header_decode(page, sizeof page, PATH, header.database_id, &back, NULL));
  CHECK_EQ(back.seed, header.seed);
  CHECK_EQ(back.file_number, header.file_number);
  CHECK_EQ(back.collection_id, 9);
  CHECK_EQ(back.shape.dimension, 768);
  CHECK_EQ(back.shape.block_bytes, header.shape.block_bytes);
  turb_error err = TURB_ERROR_INIT;
  CHECK_STATUS(codec_header_decode(page, sizeof page, PATH, (const uint8_t *)"another database", &back, &err), TURB_NOT_A_DATABASE);
  CHECK(test_contains(err.message, "another database"));
  CHECK_STATUS(codec_header_decode(page, 4095, PATH, NULL, &back, NULL), TURB_CORRUPTION);
}

static void seal_header(uint8_t *page) {
  store_u64(page + 4088, hash64(page, 4088, 0));
}

TEST(codec, damaged_headers) {
  struct table_header header = {.shape = {.dimension = 100, .type = TURB_F32, .metric = TURB_L2}};
  table_shape_derive(&header.shape);
  uint8_t page[4096];
  codec_header_encode(&header, page);
  struct table_header back;
  for (size_t bit = 0; bit < 4096 * 8; bit++) {
    page[bit / 8] ^= (uint8_t)(1u << bit % 8);
    turb_error err = TURB_ERROR_INIT;
    CHECK_STATUS(codec_header_decode(page, sizeof page, PATH, NULL, &back, &err), TURB_CORRUPTION);
    check_place(&err, 0, 4096);
    if (bit / 8 < 4088) {
      /* Under a right checksum: another id, seed, number or metric is one; all else contradicts something. */
      seal_header(page);
      const turb_status status = codec_header_decode(page, sizeof page, PATH, NULL, &back, NULL);
      const size_t at = bit / 8;
      const bool free_field = (at >= 16 && at < 56) || at == 61;
      CHECK(status == TURB_CORRUPTION || free_field || (at >= 8 && at < 12 && status == TURB_NEWER_FORMAT) ||
            (at >= 60 && at < 84 && status == TURB_OK));
    }
    page[bit / 8] ^= (uint8_t)(1u << bit % 8);
    seal_header(page);
  }
  store_u32(page + 8, 2);
  seal_header(page);
  turb_error err = TURB_ERROR_INIT;
  CHECK_STATUS(codec_header_decode(page, sizeof page, PATH, NULL, &back, &err), TURB_NEWER_FORMAT);
  CHECK(test_contains(err.message, "version 2"));
}

TEST(codec, damaged_footers) {
  uint8_t footer[64];
  const struct table_footer value = {8192, 0x55667788};
  const struct codec_place place = {PATH, 99, 20480 - 64};
  codec_footer_encode(&value, 99, footer);
  struct table_footer back;
  CHECK_OK(codec_footer_decode(footer, 64, &place, &back, NULL));
  CHECK_EQ(back.tail_offset, 8192);
  CHECK_EQ(back.tail_checksum, 0x55667788);
  CHECK_STATUS(codec_footer_decode(footer, 63, &place, &back, NULL), TURB_CORRUPTION);
  for (size_t bit = 0; bit < 64 * 8; bit++) {
    footer[bit / 8] ^= (uint8_t)(1u << bit % 8);
    turb_error err = TURB_ERROR_INIT;
    CHECK_STATUS(codec_footer_decode(footer, 64, &place, &back, &err), TURB_CORRUPTION);
    check_place(&err, place.offset, place.offset + 64);
    footer[bit / 8] ^= (uint8_t)(1u << bit % 8);
  }
  static const uint64_t bad_tails[] = {0, 4095, 8193, 20480, UINT64_MAX - 4095};
  for (size_t i = 0; i < 5; i++) {
    codec_footer_encode(&(struct table_footer){bad_tails[i], 0}, 99, footer);
    CHECK_STATUS(codec_footer_decode(footer, 64, &place, &back, NULL), TURB_CORRUPTION);
  }
}

/* ---- tail ---- */

/* Decodes a copy of exactly `size` bytes; on OK touches all that was decoded. */
static turb_status decode_copy(const struct sample *s, const uint8_t *tail, size_t size, bool seal, turb_error *err) {
  uint8_t *copy = malloc(size != 0 ? size : 1);
  CHECK(copy != NULL);
  memcpy(copy, tail, size);
  const struct codec_place place = {PATH, s->header.seed, s->footer.tail_offset};
  const uint64_t checksum = seal ? codec_part_checksum(copy, size, place.seed, place.offset) : s->footer.tail_checksum;
  struct arena arena;
  arena_init(&arena, alloc_default(), NULL, BUDGET_JOB, 0);
  struct table_tail out;
  const turb_status status = codec_tail_decode(copy, size, &place, checksum, &s->header.shape, &arena, &out, err);
  if (status == TURB_OK) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < out.extent_count; i++) {
      CHECK_LE(out.extents[i].first_page + out.extents[i].pages, s->limits.pages);
    }
    for (uint32_t i = 0; i < out.top_count; i++) {
      sum += hash64(out.top[i].separator.data, out.top[i].separator.size, 0);
    }
    for (size_t i = 0; i < out.deletes.count; i++) {
      const struct range_fragment *fragment = &out.deletes.fragments[i];
      sum += hash64(fragment->begin.data, fragment->begin.size, 0) + hash64(fragment->end.data, fragment->end.size, 0);
      sum += fragment->sequences[fragment->sequence_count - 1];
    }
    const turb_bytes keys[] = {out.properties.smallest_key, out.properties.largest_key, out.properties.lower, out.properties.upper};
    for (size_t i = 0; i < 4; i++) {
      sum += hash64(keys[i].data, keys[i].size, 0);
    }
    CHECK_NE(sum, 1);
  }
  arena_free(&arena);
  free(copy);
  return status;
}

TEST(codec, damaged_tails) {
  struct sample s;
  sample_make(&s, &mixed);
  struct random random;
  random_init(&random, test_seed());
  uint8_t *tail = s.file + s.footer.tail_offset;
  const size_t size = s.size - 64 - s.footer.tail_offset;
  const uint64_t low = s.footer.tail_offset, high = low + size;
  for (uint64_t round = 0; round < test_scale(3000, 1500, 60000); round++) {
    turb_error err = TURB_ERROR_INIT;
    const size_t at = random_one_in(&random, 2) ? random_below(&random, size) : random_below(&random, 700);
    const uint8_t old = tail[at];
    tail[at] ^= (uint8_t)(1u << random_below(&random, 8));
    CHECK_STATUS(decode_copy(&s, tail, size, false, &err), TURB_CORRUPTION);
    check_place(&err, low, high);
    /* Another change under a right checksum, or the tail cut short. */
    static const uint8_t nasty[] = {0, 1, 0x7f, 0x80, 0xff};
    tail[at] = random_one_in(&random, 2) ? nasty[random_below(&random, 5)] : (uint8_t)random_u32(&random);
    status_clear(&err);
    const size_t cut = random_one_in(&random, 4) ? random_below(&random, size + 1) : size;
    const turb_status status = decode_copy(&s, tail, cut, true, &err);
    CHECK_MSG(status == TURB_OK || status == TURB_CORRUPTION || status == TURB_NEWER_FORMAT, "%s", err.message);
    if (status != TURB_OK) {
      check_place(&err, low, high);
    }
    tail[at] = old;
  }
  const uint8_t *last = tail + 4 + (CODEC_SECTIONS - 1) * 24;
  const size_t used = load_u64(last + 8) + load_u64(last + 16); /* zeros follow */
  for (size_t cut = 0; cut < used; cut++) {
    turb_error err = TURB_ERROR_INIT;
    CHECK_STATUS(decode_copy(&s, tail, cut, true, &err), TURB_CORRUPTION);
  }
  sample_free(&s);
}

TEST(codec, every_allocation_of_a_tail_may_fail) {
  struct sample s;
  sample_make(&s, &mixed);
  struct test_allocator allocator;
  test_allocator_init(&allocator);
  const struct codec_place place = {PATH, s.header.seed, s.footer.tail_offset};
  for (uint64_t n = 1;; n++) {
    test_allocator_fail_at(&allocator, n);
    struct arena arena;
    arena_init(&arena, &allocator.base, NULL, BUDGET_JOB, 64);
    struct table_tail out;
    const turb_status status = codec_tail_decode(s.file + place.offset, s.size - 64 - place.offset, &place, s.footer.tail_checksum,
                                                 &s.header.shape, &arena, &out, NULL);
    arena_free(&arena);
    test_allocator_check_empty(&allocator);
    if (!allocator.failed) {
      CHECK_OK(status);
      break;
    }
    CHECK_STATUS(status, TURB_NO_MEMORY);
  }
  sample_free(&s);
}

TEST(codec, newer_sections_and_properties) {
  struct sample s;
  sample_make(&s, &mixed);
  uint8_t *tail = s.file + s.footer.tail_offset;
  const size_t size = s.size - 64 - s.footer.tail_offset;
  store_u32(tail + 4 + 24, 77); /* the extents' tag */
  turb_error err = TURB_ERROR_INIT;
  CHECK_STATUS_ERR(decode_copy(&s, tail, size, true, &err), TURB_NEWER_FORMAT, &err);
  store_u32(tail + 4 + 24, 0x80000002); /* skipped: then it is missing */
  status_clear(&err);
  CHECK_STATUS_ERR(decode_copy(&s, tail, size, true, &err), TURB_CORRUPTION, &err);
  CHECK(test_contains(err.message, "section 2 is missing"));
  sample_free(&s);
}

/* ---- pages ---- */

typedef turb_status (*page_check)(const void *page, size_t size, const struct codec_place *place, const struct codec_limits *limits,
                                  turb_error *err);

static turb_status checksum_page_check(const void *page, size_t size, const struct codec_place *place, const struct codec_limits *limits,
                                       turb_error *err) {
  (void)limits;
  return codec_checksum_page_check(page, size, place, err);
}

/* What a reader does with a page that passed: all keys, within `size`. */
static void use_keys(const uint8_t *page, size_t size, bool index) {
  const struct slot_page *header = (const struct slot_page *)(const void *)page;
  uint64_t sum = 0;
  for (uint32_t i = 0; i < header->slot_count; i++) {
    const size_t offset = index ? codec_index_slot(header, i)->separator_offset : slot_at(header, i)->key_offset;
    const size_t bytes = index ? codec_index_slot(header, i)->separator_size : slot_at(header, i)->key_size;
    CHECK_LE(offset + bytes, size);
    sum += hash64(page + offset, bytes, 0);
  }
  CHECK_NE(sum, 1);
}

static void damage_pages(const struct sample *s, enum extent_kind kind, page_check check, uint64_t rounds) {
  struct random random;
  random_init(&random, test_seed());
  const struct extent *extent = NULL;
  for (uint32_t i = 0; i < s->tail.extent_count && extent == NULL; i++) {
    extent = s->tail.extents[i].kind == kind ? &s->tail.extents[i] : NULL;
  }
  CHECK(extent != NULL);
  const struct codec_place place = {PATH, s->header.seed, extent->first_page * 4096};
  const uint8_t *original = s->file + place.offset;
  const size_t size = kind == EXTENT_CHECKSUMS ? 4096 : ((const struct slot_page *)(const void *)original)->units * 4096u;
  CHECK_OK(check(original, size, &place, &s->limits, NULL));
  CHECK_STATUS(check(original, size - 1, &place, &s->limits, NULL), TURB_CORRUPTION);
  const struct codec_place elsewhere = {PATH, place.seed, place.offset + 4096}, other_table = {PATH, place.seed + 1, place.offset};
  CHECK_STATUS(check(original, size, &elsewhere, &s->limits, NULL), TURB_CORRUPTION);
  CHECK_STATUS(check(original, size, &other_table, &s->limits, NULL), TURB_CORRUPTION);
  uint8_t *page = NULL; /* of exactly its size, so that asan sees what is behind it */
  CHECK(posix_memalign((void **)&page, 4096, size) == 0);
  for (uint64_t round = 0; round < rounds; round++) {
    memcpy(page, original, size);
    turb_error err = TURB_ERROR_INIT;
    const size_t at = random_one_in(&random, 2) ? random_below(&random, size) : random_below(&random, 300);
    page[at] ^= (uint8_t)(1u << random_below(&random, 8));
    CHECK_STATUS(check(page, size, &place, &s->limits, &err), TURB_CORRUPTION);
    check_place(&err, place.offset, place.offset + size);
    for (uint64_t more = random_below(&random, 4); more != 0; more--) {
      page[random_one_in(&random, 2) ? random_below(&random, size) : random_below(&random, 300)] = (uint8_t)random_u32(&random);
    }
    store_u64(page, codec_page_checksum(page, size, place.seed, place.offset));
    status_clear(&err);
    const turb_status status = check(page, size, &place, &s->limits, &err);
    CHECK(status == TURB_OK || status == TURB_CORRUPTION);
    if (status == TURB_OK && kind != EXTENT_CHECKSUMS) {
      use_keys(page, size, kind == EXTENT_INDEX);
    }
  }
  free(page);
}

TEST(codec, damaged_pages) {
  struct sample s;
  sample_make(&s, &mixed);
  const uint64_t rounds = test_scale(5000, 2000, 100000);
  damage_pages(&s, EXTENT_KEYS, codec_key_page_check, rounds);
  damage_pages(&s, EXTENT_INDEX, codec_index_page_check, rounds);
  damage_pages(&s, EXTENT_CHECKSUMS, checksum_page_check, rounds);
  sample_free(&s);
  /* Pages of two units. */
  const struct written_wish longest = {.dimension = 10, .type = TURB_F32, .entries = 20, .key_min = 4096, .key_max = 4096};
  sample_make(&s, &longest);
  damage_pages(&s, EXTENT_KEYS, codec_key_page_check, rounds / 10);
  damage_pages(&s, EXTENT_INDEX, codec_index_page_check, rounds / 10);
  sample_free(&s);
}

/* Entries that contradict each other, under right checksums: each is named. */
TEST(codec, key_pages_that_contradict_themselves) {
  struct sample s;
  const struct written_wish plain = {.dimension = 10, .type = TURB_F32, .entries = 50, .key_min = 12, .key_max = 12, .attribute_max = 40};
  sample_make(&s, &plain);
  const struct extent *extent = s.tail.extents;
  while (extent->kind != EXTENT_KEYS) {
    extent++;
  }
  const struct codec_place place = {PATH, s.header.seed, extent->first_page * 4096};
  static _Alignas(4096) uint8_t page[4096];
  struct slot_page *header = (struct slot_page *)(void *)page;
  struct slot *slots = (struct slot *)(void *)(header + 1);
  for (int what = 0; what < 14; what++) {
    memcpy(page, s.file + place.offset, 4096);
    const struct slot second = slots[1];
    switch (what) {
    case 0: slots[1].prefix++; break;
    case 1: slots[1].key_size = 0; break;
    case 2: slots[1].key_offset = 100; break;
    case 3: slots[1].key_offset = 4090; break;
    case 4: slots[1].sequence_kind += 5; break;
    case 5: slots[1].attribute_size_row_delta += 1u << SLOT_ATTRIBUTE_BITS; break;
    case 6: slots[1].attribute_delta = UINT32_MAX; break;
    case 7: slots[1] = slots[2], slots[2] = second; break;
    case 8: header->slot_count = 0; break;
    case 9: header->slot_count = 102; break;
    case 10: header->units = 2; break;
    case 11: header->base_row = UINT64_MAX; break;
    case 12: slots[1].sequence_kind = SLOT_SEQUENCE_MAX << 8 | 1; break;
    default: header->sequence = 1000001; break;
    }
    store_u64(page, codec_page_checksum(page, 4096, place.seed, place.offset));
    turb_error err = TURB_ERROR_INIT;
    CHECK_STATUS(codec_key_page_check(page, 4096, &place, &s.limits, &err), TURB_CORRUPTION);
    CHECK_MSG(!test_contains(err.message, "checksum"), "%d: %s", what, err.message);
  }
  sample_free(&s);
}
