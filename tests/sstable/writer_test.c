/* The table writer: what it writes is read back byte for byte with the codec alone; what it refuses; what happens when anything fails. */
#include "sstable/writer.h"

#include <errno.h>
#include <stdlib.h>

#include "tests/sstable/written.h"

#define PATH "/db/table-000000000007.tbl"

static void round_trip(const struct written_wish *wish, uint64_t seed, size_t attribute_part) {
  struct written_disk disk;
  written_disk_open(&disk, seed);
  struct written_set set = written_set_make(wish, seed);
  struct table_record record;
  turb_error err = TURB_ERROR_INIT;
  CHECK_OK_ERR(written_write(&disk, PATH, &set, attribute_part, &record, &err), &err);
  size_t size = 0;
  uint8_t *file = written_read(&disk, PATH, &size);
  written_check(file, size, &set, &record);
  /* Every page is used, and the disk holds no more than the file. */
  uint64_t allocated = 0;
  CHECK_OK(io_stat(disk.system, PATH, NULL, &allocated, NULL));
  CHECK_EQ(allocated, size);
  free(file);
  written_set_free(&set);
  written_disk_close(&disk);
}

TEST(writer, tables_of_every_type) {
  const uint64_t seed = test_seed();
  static const turb_type types[] = {TURB_F32, TURB_F16, TURB_BF16, TURB_I8, TURB_U8, TURB_BITS};
  static const uint32_t dimensions[] = {1, 7, 128, 784};
  for (size_t t = 0; t < 6; t++) {
    for (size_t d = 0; d < 4; d++) {
      for (uint8_t compression = 0; compression < 2; compression++) {
        const struct written_wish wish = {.dimension = dimensions[d],
                                          .type = types[t],
                                          .compression = compression,
                                          .entries = 700,
                                          .key_min = 8,
                                          .key_max = 20,
                                          .attribute_max = 200,
                                          .versions = 3,
                                          .deletes_percent = 10};
        round_trip(&wish, seed + t * 10 + d, 0);
      }
    }
  }
}

TEST(writer, many_stripes_and_sections) {
  const uint64_t seed = test_seed();
  for (uint8_t compression = 0; compression < 2; compression++) {
    const struct written_wish wish = {.dimension = 96,
                                      .type = TURB_F32,
                                      .compression = compression,
                                      .entries = 40000,
                                      .key_min = 16,
                                      .key_max = 16,
                                      .attribute_max = 64,
                                      .versions = 2,
                                      .deletes_percent = 5};
    round_trip(&wish, seed, 0);
  }
}

TEST(writer, large_rows) {
  const uint64_t seed = test_seed();
  static const uint32_t dimensions[] = {1025, 3000, 16384, 20000, 65536};
  for (size_t d = 0; d < 5; d++) {
    for (uint8_t compression = 0; compression < 2; compression++) {
      const struct written_wish wish = {.dimension = dimensions[d],
                                        .type = TURB_F32,
                                        .compression = compression,
                                        .entries = 23,
                                        .key_min = 8,
                                        .key_max = 20,
                                        .attribute_max = 1000,
                                        .deletes_percent = 10};
      round_trip(&wish, seed + d, 0);
    }
  }
}

TEST(writer, long_keys) {
  const uint64_t seed = test_seed();
  for (size_t key_max = 1000; key_max <= 4096; key_max += 774) {
    const struct written_wish wish = {.dimension = 16,
                                      .type = TURB_F16,
                                      .entries = 600,
                                      .key_min = key_max - 200,
                                      .key_max = key_max,
                                      .versions = 2,
                                      .deletes_percent = 30};
    round_trip(&wish, seed + key_max, 0);
  }
  const struct written_wish all_long = {.dimension = 16, .type = TURB_F16, .entries = 300, .key_min = 4096, .key_max = 4096, .versions = 3};
  round_trip(&all_long, seed, 0);
  const struct written_wish mixed = {.dimension = 16, .type = TURB_F16, .entries = 1500, .key_min = 8, .key_max = 4096, .versions = 2};
  round_trip(&mixed, seed, 0);
}

/* Index pages of one separator each: wherever the table ends, the last key page's slot has a page to go to. */
TEST(writer, long_keys_of_tables_that_end_anywhere) {
  const uint64_t seed = test_seed();
  for (uint64_t entries = 1; entries <= 40; entries++) {
    const struct written_wish wish = {
        .dimension = 4, .type = TURB_U8, .entries = entries, .key_min = 4000, .key_max = 4096, .attribute_max = 3000, .versions = 2};
    round_trip(&wish, seed + entries, 0);
  }
}

TEST(writer, many_versions_of_few_keys) {
  const struct written_wish wish = {
      .dimension = 4, .type = TURB_F32, .entries = 5000, .key_min = 8, .key_max = 40, .versions = 1000, .deletes_percent = 50};
  round_trip(&wish, test_seed(), 0);
}

TEST(writer, deletes_only) {
  const struct written_wish wish = {
      .dimension = 4, .type = TURB_F32, .entries = 5000, .key_min = 8, .key_max = 40, .versions = 2, .deletes_percent = 100};
  round_trip(&wish, test_seed(), 0);
}

TEST(writer, bulk_loaded) {
  const struct written_wish wish = {
      .dimension = 12, .type = TURB_U8, .entries = 3000, .key_min = 8, .key_max = 30, .attribute_max = 300, .bulk = true};
  round_trip(&wish, test_seed(), 0);
}

/* Inline ones, ones with an extent of their own, ones above the inline bound; whole and in parts. */
TEST(writer, large_attributes) {
  const uint64_t seed = test_seed();
  static const size_t most[] = {70000, 300000, 3000000, 16777216};
  static const size_t parts[] = {0, 1, 65536, 100000};
  for (size_t m = 0; m < 4; m++) {
    for (size_t p = 0; p < 4; p++) {
      const struct written_wish wish = {.dimension = 30,
                                        .type = TURB_F32,
                                        .entries = m < 2 ? 100 : 12,
                                        .key_min = 8,
                                        .key_max = 20,
                                        .attribute_max = most[m],
                                        .deletes_percent = 10};
      round_trip(&wish, seed + m, parts[p] == 1 ? (m < 2 ? 7 : 999) : parts[p]);
    }
  }
}

TEST(writer, random_tables) {
  struct random random;
  random_init(&random, test_seed());
  for (uint64_t round = 0; round < test_scale(40, 15, 400); round++) {
    const size_t key_max = random_one_in(&random, 5) ? random_between(&random, 8, 4096) : random_between(&random, 8, 60);
    const struct written_wish wish = {.dimension = (uint32_t)random_between(&random, 1, 400),
                                      .type = (turb_type)random_between(&random, TURB_F32, TURB_BITS),
                                      .compression = (uint8_t)random_below(&random, 2),
                                      .entries = random_between(&random, 1, random_one_in(&random, 3) ? 9000 : 500),
                                      .key_min = random_between(&random, 8, key_max),
                                      .key_max = key_max,
                                      .attribute_max = random_one_in(&random, 2) ? random_below(&random, 3000) : 0,
                                      .versions = (unsigned)random_between(&random, 1, 5),
                                      .deletes_percent = (unsigned)random_below(&random, 60),
                                      .bulk = random_one_in(&random, 6)};
    round_trip(&wish, random_u64(&random), random_one_in(&random, 3) ? random_between(&random, 1, 2000) : 0);
  }
}

TEST(writer, real_disks) {
  const uint64_t seed = test_seed();
  const struct written_wish wish = {.dimension = 96,
                                    .type = TURB_F32,
                                    .entries = 10000,
                                    .key_min = 16,
                                    .key_max = 16,
                                    .attribute_max = 1000000,
                                    .versions = 2,
                                    .deletes_percent = 99};
  struct written_set set = written_set_make(&wish, seed);
  const char *path = test_path(test_tmpdir(), "table");
  static const turb_backend backends[] = {TURB_BACKEND_URING, TURB_BACKEND_BLOCKING};
  uint64_t hash = 0;
  for (int i = 0; i < 4; i++) {
    struct written_disk disk;
    if (!written_disk_open_real(&disk, backends[i / 2], i % 2 == 1)) {
      continue;
    }
    struct table_record record;
    turb_error err = TURB_ERROR_INIT;
    CHECK_OK_ERR(written_write(&disk, path, &set, 0, &record, &err), &err);
    size_t size = 0;
    uint8_t *file = written_read(&disk, path, &size);
    written_check(file, size, &set, &record);
    CHECK(hash == 0 || hash == hash64(file, size, 0));
    hash = hash64(file, size, 0);
    uint64_t allocated = 0;
    CHECK_OK(io_stat(disk.system, path, NULL, &allocated, NULL));
    CHECK_LE(allocated, size + size / 8 + 65536);
    CHECK_OK(io_unlink(disk.system, path, NULL));
    free(file);
    written_disk_close(&disk);
  }
  written_set_free(&set);
}

/* ---- the bytes ---- */

/* The bytes of a table are part of the format and must not depend on machine, time or backend. */
TEST(writer, golden_bytes) {
  static const uint64_t sequences[] = {90, 80};
  static const struct range_fragment range = {.begin = {"kkkk", 4}, .end = {"l", 1}, .sequence_count = 2, .sequences = sequences};
  uint64_t hashes[2] = {0, 0};
  for (int again = 0; again < 2; again++) {
    for (uint8_t compression = 0; compression < 1; compression++) {
      const struct written_wish wish = {.dimension = 20,
                                        .type = TURB_F32,
                                        .compression = compression,
                                        .entries = 9000,
                                        .key_min = 12,
                                        .key_max = 20,
                                        .attribute_max = 30,
                                        .versions = 2,
                                        .deletes_percent = 10};
      struct written_disk disk;
      written_disk_open(&disk, (uint64_t)again);
      struct written_set set = written_set_make(&wish, 42);
      set.ranges = &range;
      set.range_count = 1;
      struct table_record record;
      CHECK_OK(written_write(&disk, PATH, &set, 0, &record, NULL));
      size_t size = 0;
      uint8_t *file = written_read(&disk, PATH, &size);
      written_check(file, size, &set, &record);
      hashes[again] = hash64(file, size, 0);
      free(file);
      written_set_free(&set);
      written_disk_close(&disk);
    }
  }
  CHECK_EQ(hashes[0], hashes[1]);
  CHECK_EQ(hashes[0], UINT64_C(479297596559983888));
}

/* ---- range deletes and bounds ---- */

static struct written_set few(const char *const *keys, size_t count) {
  static const uint8_t row[64];
  struct written_set set = {.shape = {.dimension = 16, .type = TURB_F32, .metric = TURB_L2}, .count = count};
  table_shape_derive(&set.shape);
  set.entries = calloc(count + 1, sizeof *set.entries);
  CHECK(set.entries != NULL);
  for (size_t i = 0; i < count; i++) {
    set.entries[i] = (struct written_entry){.key = {keys[i], strlen(keys[i])}, .sequence = 50, .kind = SLOT_PUT, .row = row};
  }
  return set;
}

static void check_bounds(const char *const *keys, size_t count, const struct range_fragment *ranges, size_t range_count, const char *lower,
                         const char *upper, bool inclusive) {
  struct written_disk disk;
  written_disk_open(&disk, 1);
  struct written_set set = few(keys, count);
  set.ranges = ranges;
  set.range_count = range_count;
  const struct table_writer_options options = {.shape = set.shape, .file_number = 7};
  struct table_writer *writer = NULL;
  turb_error err = TURB_ERROR_INIT;
  CHECK_OK_ERR(table_writer_create(&disk.env, PATH, &options, &writer, &err), &err);
  for (size_t i = 0; i < range_count; i++) {
    CHECK_OK_ERR(table_writer_add_range(writer, &ranges[i], &err), &err);
  }
  for (size_t i = 0; i < count; i++) {
    CHECK_OK_ERR(table_writer_add(writer, written_slot(&set.entries[i], 64), set.entries[i].row, NULL, &err), &err);
  }
  struct table_record record;
  CHECK_OK_ERR(table_writer_finish(writer, &record, &err), &err);
  CHECK_EQ(record.lower.size, strlen(lower));
  CHECK_MEM_EQ(record.lower.data, lower, strlen(lower));
  CHECK_EQ(record.upper_open, upper == NULL);
  CHECK_EQ(record.upper_inclusive, inclusive);
  if (upper != NULL) {
    CHECK_EQ(record.upper.size, strlen(upper));
    CHECK_MEM_EQ(record.upper.data, upper, strlen(upper));
  }
  table_writer_destroy(writer);
  size_t size = 0;
  uint8_t *file = written_read(&disk, PATH, &size);
  written_check(file, size, &set, &record);
  free(file);
  free(set.entries);
  written_disk_close(&disk);
}

TEST(writer, bounds_follow_keys_and_range_deletes) {
  static const char *const keys[] = {"d", "f", "m"};
  static const uint64_t sequences[] = {70, 60, 3};
  const struct range_fragment below = {{"a", 1}, {"b", 1}, 1, sequences}, inside = {{"e", 1}, {"g", 1}, 3, sequences},
                              above = {{"g", 1}, {"z", 1}, 2, sequences}, open = {{"zz", 2}, {NULL, 0}, 2, sequences},
                              at_end = {{"g", 1}, {"m", 1}, 1, sequences}, all = {{"", 0}, {NULL, 0}, 1, sequences};
  check_bounds(keys, 3, NULL, 0, "d", "m", true);
  check_bounds(keys, 3, &inside, 1, "d", "m", true);
  check_bounds(keys, 3, (const struct range_fragment[]){below, inside}, 2, "a", "m", true);
  check_bounds(keys, 3, (const struct range_fragment[]){inside, above}, 2, "d", "z", false);
  check_bounds(keys, 3, (const struct range_fragment[]){inside, at_end}, 2, "d", "m", true);
  check_bounds(keys, 3, (const struct range_fragment[]){above, open}, 2, "d", NULL, false);
  check_bounds(keys, 0, (const struct range_fragment[]){below, inside}, 2, "a", "g", false);
  check_bounds(keys, 0, &all, 1, "", NULL, false);
}

TEST(writer, declared_bounds_hold_what_was_added) {
  static const char *const keys[] = {"d", "f", "m"};
  static const uint64_t sequences[] = {70};
  const struct range_fragment range = {{"e", 1}, {"p", 1}, 1, sequences}, open = {{"e", 1}, {NULL, 0}, 1, sequences};
  const struct {
    const char *lower, *upper;
    const struct range_fragment *range;
    turb_status wanted;
  } cases[] = {{"d", "n", NULL, TURB_OK},        {"", NULL, NULL, TURB_OK},   {"e", "n", NULL, TURB_INVALID},
               {"a", "m", NULL, TURB_INVALID},   {"a", "q", &range, TURB_OK}, {"a", "p", &range, TURB_OK},
               {"a", "o", &range, TURB_INVALID}, {"a", NULL, &open, TURB_OK}, {"a", "z", &open, TURB_INVALID}};
  for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
    struct written_disk disk;
    written_disk_open(&disk, 1);
    struct written_set set = few(keys, 3);
    const struct table_writer_options options = {.shape = set.shape};
    struct table_writer *writer = NULL;
    CHECK_OK(table_writer_create(&disk.env, PATH, &options, &writer, NULL));
    const bool upper_open = cases[c].upper == NULL;
    CHECK_OK(table_writer_declare_bounds(writer, (turb_bytes){cases[c].lower, strlen(cases[c].lower)},
                                         upper_open ? TURB_NONE : (turb_bytes){cases[c].upper, strlen(cases[c].upper)}, upper_open, NULL));
    for (size_t i = 0; i < 3; i++) {
      CHECK_OK(table_writer_add(writer, written_slot(&set.entries[i], 64), set.entries[i].row, NULL, NULL));
    }
    if (cases[c].range != NULL) {
      CHECK_OK(table_writer_add_range(writer, cases[c].range, NULL));
    }
    struct table_record record;
    turb_error err = TURB_ERROR_INIT;
    CHECK_STATUS_ERR(table_writer_finish(writer, &record, &err), cases[c].wanted, &err);
    CHECK_EQ(record.upper_open, upper_open && cases[c].wanted == TURB_OK);
    table_writer_destroy(writer);
    CHECK_EQ(written_disk_has(&disk, PATH), cases[c].wanted == TURB_OK);
    free(set.entries);
    written_disk_close(&disk);
  }
}

/* ---- what is refused ---- */

static struct written_disk refusing;
static struct written_set refusing_set;

/* A writer that holds the entry "m" at sequence 50. */
static struct table_writer *begin_refusal(bool bulk) {
  static const char *const keys[] = {"m"};
  written_disk_open(&refusing, 1);
  refusing_set = few(keys, 1);
  const struct table_writer_options options = {.shape = refusing_set.shape, .bulk_sequence_mode = bulk};
  struct table_writer *writer = NULL;
  CHECK_OK(table_writer_create(&refusing.env, PATH, &options, &writer, NULL));
  CHECK_OK(table_writer_add(writer, written_slot(&refusing_set.entries[0], 64), refusing_set.entries[0].row, NULL, NULL));
  return writer;
}

static void end_refusal(struct table_writer *writer) {
  struct table_record record;
  turb_error err = TURB_ERROR_INIT;
  CHECK_STATUS_ERR(table_writer_finish(writer, &record, &err), TURB_INVALID, &err);
  CHECK(test_contains(err.message, "failed"));
  table_writer_destroy(writer);
  CHECK(!written_disk_has(&refusing, PATH));
  free(refusing_set.entries);
  written_disk_close(&refusing);
}

static void refuse_entry(const struct written_entry *entry, bool bulk, turb_status wanted, const char *says) {
  struct table_writer *writer = begin_refusal(bulk);
  turb_error err = TURB_ERROR_INIT;
  CHECK_STATUS_ERR(table_writer_add(writer, written_slot(entry, 64), entry->row, entry->attributes.data, &err), wanted, &err);
  CHECK_MSG(test_contains(err.message, says), "\"%s\" does not say \"%s\"", err.message, says);
  CHECK_STR_EQ(err.file, PATH);
  end_refusal(writer);
}

TEST(writer, refuses_bad_entries) {
  static const uint8_t row[64];
  refuse_entry(&(struct written_entry){.key = TURB_STR("a\x01"), .sequence = 50, .kind = SLOT_PUT, .row = row}, false, TURB_INVALID,
               "\"a\\x01\": not in entry order");
  refuse_entry(&(struct written_entry){.key = TURB_STR("m"), .sequence = 50, .kind = SLOT_PUT, .row = row}, false, TURB_INVALID,
               "\"m\": not in entry order");
  refuse_entry(&(struct written_entry){.key = TURB_STR("m"), .sequence = 51, .kind = SLOT_DELETE}, false, TURB_INVALID,
               "not in entry order");
  refuse_entry(&(struct written_entry){.key = TURB_STR("m"), .sequence = 49, .kind = SLOT_PUT, .row = row}, true, TURB_INVALID,
               "not in entry order");
  refuse_entry(&(struct written_entry){.key = TURB_STR("n"), .sequence = 0, .kind = SLOT_PUT, .row = row}, false, TURB_INVALID,
               "sequence number");
  refuse_entry(&(struct written_entry){.key = TURB_STR(""), .sequence = 50, .kind = SLOT_PUT, .row = row}, false, TURB_INVALID,
               "1 to 4096 bytes");
  refuse_entry(&(struct written_entry){.key = TURB_STR("n"), .sequence = 50, .kind = (enum slot_kind)3, .row = row}, false, TURB_INVALID,
               "neither a put nor a delete");
  refuse_entry(&(struct written_entry){.key = TURB_STR("n"), .sequence = 50, .kind = SLOT_DELETE, .attributes = TURB_STR("x")}, false,
               TURB_INVALID, "a delete with attributes");
  static uint8_t large[(1 << 24) + 1];
  refuse_entry(
      &(struct written_entry){.key = TURB_STR("n"), .sequence = 50, .kind = SLOT_PUT, .row = row, .attributes = {large, sizeof large}},
      false, TURB_TOO_LARGE, "above 16 MiB");
  static uint8_t key[4097];
  refuse_entry(&(struct written_entry){.key = {key, sizeof key}, .sequence = 50, .kind = SLOT_PUT, .row = row}, false, TURB_INVALID,
               "1 to 4096 bytes");
}

TEST(writer, refuses_bad_range_deletes) {
  static const uint64_t none[] = {0}, rising[] = {3, 4}, good[] = {4, 3};
  static const struct range_fragment bad[] = {
      {{"b", 1}, {"b", 1}, 1, good}, {{"c", 1}, {"b", 1}, 1, good},   {{"b", 1}, {"", 0}, 1, good},  {{"b", 1}, {"c", 1}, 0, good},
      {{"b", 1}, {"c", 1}, 1, none}, {{"b", 1}, {"c", 1}, 2, rising}, {{"", 0}, {"a!", 2}, 1, good},
  };
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    struct table_writer *writer = begin_refusal(false);
    CHECK_OK(table_writer_add_range(writer, &(struct range_fragment){{"a", 1}, {"b", 1}, 2, good}, NULL));
    CHECK_STATUS(table_writer_add_range(writer, &bad[i], NULL), TURB_INVALID);
    end_refusal(writer);
  }
  struct table_writer *writer = begin_refusal(false);
  CHECK_OK(table_writer_add_range(writer, &(struct range_fragment){{"a", 1}, {NULL, 0}, 2, good}, NULL));
  CHECK_STATUS(table_writer_add_range(writer, &(struct range_fragment){{"b", 1}, {"c", 1}, 2, good}, NULL), TURB_INVALID);
  end_refusal(writer);
}

TEST(writer, refuses_attributes_out_of_turn) {
  struct written_entry entry = {
      .key = TURB_STR("n"), .sequence = 50, .kind = SLOT_PUT, .row = (const uint8_t *)PATH PATH PATH, .attributes = TURB_STR("0123456789")};
  for (int how = 0; how < 4; how++) {
    struct table_writer *writer = begin_refusal(false);
    struct table_record record;
    CHECK_OK(table_writer_add(writer, written_slot(&entry, 64), entry.row, NULL, NULL));
    CHECK_OK(table_writer_append_attribute(writer, "0123", 4, NULL));
    turb_status status = TURB_OK;
    switch (how) {
    case 0: status = table_writer_append_attribute(writer, "4567890", 7, NULL); break;
    case 1: status = table_writer_finish(writer, &record, NULL); break;
    case 2: status = table_writer_add(writer, written_slot(&entry, 64), entry.row, NULL, NULL); break;
    default:
      CHECK_OK(table_writer_append_attribute(writer, "456789", 6, NULL));
      status = table_writer_append_attribute(writer, "x", 1, NULL);
    }
    CHECK_STATUS(status, TURB_INVALID);
    end_refusal(writer);
  }
}

TEST(writer, refuses_bad_options_and_empty_tables) {
  struct written_disk disk;
  written_disk_open(&disk, 1);
  struct table_writer_options options = {.shape = {.dimension = 8, .type = TURB_F32, .metric = TURB_L2}};
  struct table_writer *writer = NULL;
  CHECK_STATUS(table_writer_create(&disk.env, PATH, &options, &writer, NULL), TURB_INVALID); /* not derived */
  table_shape_derive(&options.shape);
  options.cut = UINT64_C(1) << 32;
  CHECK_STATUS(table_writer_create(&disk.env, PATH, &options, &writer, NULL), TURB_INVALID);
  options.cut = 0;
  options.shape.dimension = 0;
  CHECK_STATUS(table_writer_create(&disk.env, PATH, &options, &writer, NULL), TURB_INVALID);
  options.shape.dimension = 8;
  CHECK(!written_disk_has(&disk, PATH));
  CHECK_OK(table_writer_create(&disk.env, PATH, &options, &writer, NULL));
  struct table_record record;
  CHECK_STATUS(table_writer_finish(writer, &record, NULL), TURB_INVALID);
  table_writer_destroy(writer);
  CHECK(!written_disk_has(&disk, PATH));
  /* A file that is there is left alone. */
  CHECK_OK(table_writer_create(&disk.env, PATH, &options, &writer, NULL));
  struct table_writer *second = NULL;
  CHECK_STATUS(table_writer_create(&disk.env, PATH, &options, &second, NULL), TURB_EXISTS);
  CHECK(written_disk_has(&disk, PATH));
  table_writer_destroy(writer);
  CHECK_STATUS(table_writer_create(&disk.env, "/nowhere/table", &options, &writer, NULL), TURB_NOT_FOUND);
  written_disk_close(&disk);
}

/* ---- memory ---- */

TEST(writer, memory_is_bounded_and_charged) {
  const uint64_t seed = test_seed();
  static const struct written_wish wishes[] = {
      {.dimension = 128, .type = TURB_F32, .entries = 20000, .key_min = 16, .key_max = 16, .attribute_max = 100},
      {.dimension = 65536, .type = TURB_F32, .entries = 30, .key_min = 16, .key_max = 16, .attribute_max = 3000000},
      {.dimension = 128, .type = TURB_F32, .compression = 1, .entries = 5000, .key_min = 16, .key_max = 100, .attribute_max = 100},
  };
  for (size_t w = 0; w < 3; w++) {
    struct written_disk disk;
    written_disk_open(&disk, seed);
    struct written_set set = written_set_make(&wishes[w], seed);
    struct table_record record;
    CHECK_OK(written_write(&disk, PATH, &set, 0, &record, NULL));
    const uint64_t peak = budget_peak(&disk.budget);
    CHECK_GE(peak, disk.allocator.peak_bytes);
    const uint64_t compressor = wishes[w].compression != 0 ? 700000 : 0;
    CHECK_LE(disk.allocator.peak_bytes, (5u << 19) + 2 * set.shape.row_bytes + compressor + 200000);
    /* Buffers shrink with the budget; one that is too small for the smallest is refused, at whatever moment it falls short. */
    CHECK_OK(io_unlink(disk.system, PATH, NULL));
    for (uint64_t limit = 0; limit < peak; limit += peak / 9 + 1) {
      budget_set_limit(&disk.budget, limit);
      const uint64_t needed = table_writer_memory_bytes(&set.shape, limit);
      const turb_status status = written_write(&disk, PATH, &set, 0, &record, NULL);
      CHECK(status == TURB_BUDGET || (status == TURB_OK && limit >= needed - needed / 10));
      CHECK(status == TURB_OK || limit < needed + 400000); /* the tail's records come on top */
      CHECK_EQ(budget_used(&disk.budget), 0);
      CHECK_EQ(written_disk_has(&disk, PATH), status == TURB_OK);
      CHECK(status != TURB_OK || io_unlink(disk.system, PATH, NULL) == TURB_OK);
    }
    written_set_free(&set);
    written_disk_close(&disk);
  }
}

/* What others take of the budget while a small table grows does not keep its writer from finishing: the tail's records were charged first. */
TEST(writer, a_small_table_needs_what_was_charged_first) {
  const struct written_wish wish = {.dimension = 16, .type = TURB_F32, .entries = 8000, .key_min = 16, .key_max = 16};
  struct written_disk disk;
  written_disk_open(&disk, test_seed());
  struct written_set set = written_set_make(&wish, test_seed());
  uint64_t limit = 1u << 20;
  for (int i = 0; i < 100; i++) { /* buffers go by the limit */
    limit = table_writer_memory_bytes(&set.shape, limit) + sizeof PATH;
  }
  budget_set_limit(&disk.budget, limit);
  struct table_record record;
  turb_error err = TURB_ERROR_INIT;
  CHECK_OK_ERR(written_write(&disk, PATH, &set, 0, &record, &err), &err);
  CHECK_EQ(budget_used(&disk.budget), 0);
  written_set_free(&set);
  written_disk_close(&disk);
}

/* ---- faults ---- */

static struct written_set fault_set(uint64_t seed, uint8_t compression) {
  const struct written_wish wish = {.dimension = 100,
                                    .type = TURB_F32,
                                    .compression = compression,
                                    .entries = 9000,
                                    .key_min = 16,
                                    .key_max = 30,
                                    .attribute_max = 400000,
                                    .versions = 2,
                                    .deletes_percent = 99};
  return written_set_make(&wish, seed);
}

TEST(writer, every_operation_may_fail) {
  const uint64_t seed = test_seed();
  struct written_set set = fault_set(seed, 0);
  struct written_disk disk;
  written_disk_open(&disk, seed);
  struct table_record record;
  uint64_t failures = 0;
  for (uint64_t n = 1;; n++) {
    const uint64_t begin = turb_simulation_operations(disk.simulation);
    turb_simulation_fail_at(disk.simulation, begin + n, n % 2 == 0 ? EIO : ENOSPC);
    turb_error err = TURB_ERROR_INIT;
    const turb_status status = written_write(&disk, PATH, &set, 100000, &record, &err);
    const bool beyond = turb_simulation_operations(disk.simulation) - begin < n;
    turb_simulation_fail_at(disk.simulation, 0, 0);
    CHECK_EQ(budget_used(&disk.budget), 0);
    test_allocator_check_empty(&disk.allocator);
    CHECK_EQ(written_disk_has(&disk, PATH), status == TURB_OK);
    if (status == TURB_OK) {
      size_t size = 0;
      uint8_t *file = written_read(&disk, PATH, &size);
      written_check(file, size, &set, &record);
      free(file);
      CHECK_OK(io_unlink(disk.system, PATH, NULL));
    } else {
      failures++;
      CHECK_MSG(status == TURB_IO || status == TURB_NO_SPACE, "%s: %s", turb_status_name(status), err.message);
      CHECK_EQ(err.status, status);
      CHECK_STR_EQ(err.file, PATH);
    }
    if (beyond) {
      CHECK_OK(status);
      break;
    }
  }
  CHECK_GT(failures, 4);
  written_set_free(&set);
  written_disk_close(&disk);
}

TEST(writer, a_full_disk_is_a_clean_error) {
  const uint64_t seed = test_seed();
  struct written_set set = fault_set(seed, 0);
  struct written_disk disk;
  written_disk_open(&disk, seed);
  struct table_record record;
  CHECK_OK(written_write(&disk, PATH, &set, 0, &record, NULL));
  const uint64_t size = record.size_bytes;
  CHECK_OK(io_unlink(disk.system, PATH, NULL));
  for (uint64_t capacity = 4096; capacity < size; capacity += size / 9) {
    turb_simulation_set_capacity(disk.simulation, capacity);
    turb_error err = TURB_ERROR_INIT;
    CHECK_STATUS_ERR(written_write(&disk, PATH, &set, 0, &record, &err), TURB_NO_SPACE, &err);
    CHECK(!written_disk_has(&disk, PATH));
  }
  /* Room for the table, but not for what is allocated ahead of it. */
  turb_simulation_set_capacity(disk.simulation, size + 4096);
  turb_error err = TURB_ERROR_INIT;
  CHECK_OK_ERR(written_write(&disk, PATH, &set, 0, &record, &err), &err);
  written_set_free(&set);
  written_disk_close(&disk);
}

TEST(writer, every_allocation_may_fail) {
  const uint64_t seed = test_seed();
  for (uint8_t compression = 0; compression < 2; compression++) {
    struct written_set set = fault_set(seed, compression);
    struct written_disk disk;
    written_disk_open(&disk, seed);
    struct table_record record;
    for (int whose = 0; whose < 2; whose++) {
      struct test_allocator *allocator = whose == 0 ? &disk.allocator : &disk.system_allocator;
      for (uint64_t n = 1;; n++) {
        test_allocator_fail_at(allocator, n);
        turb_error err = TURB_ERROR_INIT;
        const turb_status status = written_write(&disk, PATH, &set, 0, &record, &err);
        const bool failed = allocator->failed;
        test_allocator_fail_at(allocator, 0);
        test_allocator_check_empty(&disk.allocator);
        CHECK_EQ(budget_used(&disk.budget), 0);
        CHECK_EQ(written_disk_has(&disk, PATH), status == TURB_OK);
        if (status == TURB_OK) {
          CHECK_OK(io_unlink(disk.system, PATH, NULL));
        } else {
          CHECK_STATUS_ERR(status, TURB_NO_MEMORY, &err);
        }
        if (!failed) {
          CHECK_OK(status);
          break;
        }
      }
    }
    written_set_free(&set);
    written_disk_close(&disk);
  }
}

/* A finished table survives a power cut. */
TEST(writer, finish_makes_the_bytes_durable) {
  const uint64_t seed = test_seed();
  struct written_set set = fault_set(seed, 0);
  struct written_disk disk;
  written_disk_open(&disk, seed);
  struct table_record record;
  CHECK_OK(io_sync_folder(disk.system, "/", NULL));
  CHECK_OK(written_write(&disk, PATH, &set, 0, &record, NULL));
  CHECK_OK(io_sync_folder(disk.system, "/db", NULL)); /* the name is the caller's affair */
  turb_simulation_cut_power_at(disk.simulation, turb_simulation_operations(disk.simulation) + 1);
  CHECK(!written_disk_has(&disk, PATH));
  turb_simulation_restart(disk.simulation);
  size_t size = 0;
  uint8_t *file = written_read(&disk, PATH, &size);
  written_check(file, size, &set, &record);
  free(file);
  written_set_free(&set);
  written_disk_close(&disk);
}
