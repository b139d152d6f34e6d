/* table_verify: a good table is found good to its last byte, and a bit flipped anywhere is found. */
#include <errno.h>
#include <stdlib.h>

#include "sstable/table_parts.h"
#include "tests/sstable/table_fixture.h"

static const struct entries_options shapes[] = {
    {.keys = 6000, .versions = 3, .delete_percent = 10, .attribute_percent = 40, .attribute_bytes = 3000},
    {.keys = 900, .dimension = 300, .key_bytes = 60, .long_key_percent = 30, .attribute_percent = 20, .versions = 2, .spiky = true},
    {.keys = 60, .dimension = 30000, .attribute_percent = 100, .attribute_bytes = 300000},
    {.keys = 9000, .dimension = 100, .compression = 1, .attribute_percent = 10},
    {.keys = 3000, .dimension = 77, .type = TURB_BITS, .bulk = true, .attribute_percent = 60},
    {.keys = 10, .delete_percent = 100},
    {.keys = 500, .dimension = 203, .type = TURB_I8},
};
#define SHAPES (sizeof shapes / sizeof shapes[0])

struct found {
  uint32_t count;
  turb_error first, last;
};

static void note(void *context, const turb_error *problem) {
  struct found *found = context;
  CHECK_NE(problem->status, TURB_OK);
  CHECK(problem->message[0] != 0);
  CHECK(problem->file[0] != 0);
  if (found->count++ == 0) {
    found->first = *problem;
  }
  found->last = *problem;
}

static struct found verify(struct table *table, uint64_t *bytes, uint64_t *entries) {
  struct found found = {0};
  turb_error error = TURB_ERROR_INIT;
  CHECK_OK_ERR(table_verify(table, note, &found, bytes, entries, &error), &error);
  return found;
}

TEST(verify, a_good_table_is_good_to_its_last_byte) {
  for (size_t s = 0; s < SHAPES; s++) {
    struct environment e;
    CHECK(environment_open(&e, TURB_BACKEND_SIMULATED, true, 16u << 20));
    struct entries entries;
    entries_make(&entries, &shapes[s], test_seed() + s);
    struct stored_record record;
    struct table *table = entries_table(&e, &entries, &record);
    for (int with_record = 1; with_record >= 0; with_record--) {
      uint64_t bytes, count;
      const struct found found = verify(table, &bytes, &count);
      CHECK_MSG(found.count == 0, "%u problems: %s", found.count, found.first.message);
      CHECK_EQ(bytes, record.record.size_bytes);
      CHECK_EQ(count, entries.count);
      table_release(table);
      char name[40];
      (void)snprintf(name, sizeof name, "t%llx.tbl", (unsigned long long)entries.seed);
      table = entries_open(&e, name, NULL);
    }
    table_release(table);
    entries_free(&entries);
    environment_close(&e);
  }
}

/* Any bit: header, units, padding, tail, footer. The rest is still walked. */
TEST_TIMEOUT(verify, finds_a_bit_flipped_anywhere, 900) {
  for (size_t s = 0; s < SHAPES; s++) {
    struct environment e;
    struct random random;
    random_init(&random, test_seed() + s);
    CHECK(environment_open(&e, TURB_BACKEND_SIMULATED, false, 16u << 20));
    struct entries entries;
    entries_make(&entries, &shapes[s], random_u64(&random));
    struct stored_record record;
    struct table *table = entries_table(&e, &entries, &record);
    char path[512];
    (void)snprintf(path, sizeof path, "%s", io_file_path(table_file(table)));
    for (uint64_t n = 0; n < test_scale(25, 10, 400); n++) {
      uint64_t at = random_below(&random, record.record.size_bytes);
      if (n % 2) { /* parts that are small get their share */
        const struct extent *extent = &table->tail.extents[random_below(&random, table->tail.extent_count)];
        at = extent->first_page * 4096 + random_below(&random, extent->pages * UINT64_C(4096));
      }
      const uint32_t bit = (uint32_t)random_below(&random, 8);
      CHECK_OK(turb_simulation_flip_bit(e.simulation, path, at, bit, NULL));
      uint64_t bytes, count;
      const struct found found = verify(table, &bytes, &count);
      CHECK_MSG(found.count >= 1, "bit %u of byte %llu of %llu was not found", bit, (unsigned long long)at,
                (unsigned long long)record.record.size_bytes);
      CHECK_STR_EQ(found.first.file, path);
      CHECK_LE(found.count, 120); /* a damaged checksum page takes all its blocks along, and only those */
      CHECK_EQ(count, entries.count);
      CHECK_OK(turb_simulation_flip_bit(e.simulation, path, at, bit, NULL));
    }
    uint64_t bytes, count;
    CHECK_EQ(verify(table, &bytes, &count).count, 0);
    table_release(table);
    entries_free(&entries);
    environment_close(&e);
  }
}

TEST(verify, errors_of_the_disk_are_problems_and_those_of_memory_are_ours) {
  struct environment e;
  CHECK(environment_open(&e, TURB_BACKEND_SIMULATED, false, 16u << 20));
  struct entries entries;
  entries_make(&entries, &shapes[0], 3);
  struct stored_record record;
  struct table *table = entries_table(&e, &entries, &record);
  uint64_t bytes, count;
  for (uint64_t n = 1; n < 400; n += 1 + n / 8) {
    turb_simulation_fail_at(e.simulation, turb_simulation_operations(e.simulation) + n, EIO);
    const struct found found = verify(table, &bytes, &count);
    turb_simulation_fail_at(e.simulation, 0, 0);
    if (found.count == 0) {
      CHECK_GT(n, 50);
      break;
    }
    CHECK_EQ(found.first.status, TURB_IO);
  }
  for (uint64_t n = 1; n < 400; n += 1 + n / 30) {
    struct found found = {0};
    turb_error error = TURB_ERROR_INIT;
    test_allocator_fail_at(&e.allocator, n);
    const turb_status status = table_verify(table, note, &found, &bytes, &count, &error);
    const bool failed = e.allocator.failed;
    test_allocator_fail_at(&e.allocator, 0);
    CHECK_EQ(found.count, 0);
    if (!failed) {
      CHECK_OK_ERR(status, &error);
      break;
    }
    CHECK(status == TURB_OK || status == TURB_NO_MEMORY || status == TURB_BUDGET);
  }
  table_release(table);
  entries_free(&entries);
  environment_close(&e);
}
