/* Opening tables, addresses, the page index; and what opening says of files that are not right. */
#include <errno.h>
#include <stdlib.h>

#include "sstable/codec.h"
#include "tests/sstable/table_fixture.h"

static const struct entries_options plain = {.keys = 5000, .versions = 3, .delete_percent = 10, .attribute_percent = 30};

TEST(table, opens_with_and_without_a_record) {
  struct environment e;
  CHECK(environment_open(&e, TURB_BACKEND_SIMULATED, true, 64u << 20));
  struct entries entries;
  entries_make(&entries, &plain, test_seed());
  struct stored_record record;
  struct table *table = entries_table(&e, &entries, &record);
  CHECK_EQ(table_get_record(table)->entries, entries.count);
  CHECK_EQ(table_get_record(table)->puts, entries.puts);
  CHECK_EQ(table_get_shape(table)->stride, entries.shape.stride);
  const turb_bytes smallest = table_smallest_key(table), largest = table_largest_key(table);
  CHECK(key_equal(smallest.data, smallest.size, entries.at[0].key, entries.at[0].key_size));
  CHECK(key_equal(largest.data, largest.size, entries.at[entries.count - 1].key, entries.at[entries.count - 1].key_size));
  CHECK_EQ(table_range_deletes(table)->count, 0);
  table_retain(table);
  table_release(table);
  char path[512];
  (void)snprintf(path, sizeof path, "%s", io_file_path(table_file(table)));
  table_release(table);

  turb_error error = TURB_ERROR_INIT;
  CHECK_OK_ERR(table_open(&e.env, path, NULL, &table, &error), &error);
  CHECK_EQ(table_get_record(table)->entries, entries.count);
  CHECK_EQ(table_get_record(table)->hash_sum, record.record.hash_sum);
  CHECK_EQ(table_get_record(table)->tail_offset, record.record.tail_offset);
  table_make_obsolete(table);
  CHECK_OK(io_stat(e.system, path, NULL, NULL, NULL));
  table_release(table);
  CHECK_STATUS(io_stat(e.system, path, NULL, NULL, NULL), TURB_NOT_FOUND);
  CHECK_STATUS_ERR(table_open(&e.env, path, &record.record, &table, &error), TURB_NOT_FOUND, &error);
  CHECK(table == NULL);
  entries_free(&entries);
  environment_close(&e);
}

/* Opening must fail so, naming the file. */
static void check_refused(struct environment *e, const char *path, const struct table_record *record, turb_status wanted,
                          const char *part) {
  turb_error error = TURB_ERROR_INIT;
  struct table *table;
  CHECK_STATUS_ERR(table_open(&e->env, path, record, &table, &error), wanted, &error);
  CHECK(table == NULL);
  CHECK_MSG(test_contains(error.message, part), "\"%s\" does not say \"%s\"", error.message, part);
  CHECK(test_contains(error.file, "t."));
}

TEST(table, refuses_what_is_not_its_table) {
  struct environment e;
  CHECK(environment_open(&e, TURB_BACKEND_SIMULATED, false, 64u << 20));
  struct entries entries;
  entries_make(&entries, &plain, 3);
  struct stored_record record;
  entries_write(&e, &entries, "t.tbl", &record);
  char path[512];
  (void)snprintf(path, sizeof path, "%s", environment_path(&e, "t.tbl"));

  struct table_record other = record.record;
  other.seed++;
  check_refused(&e, path, &other, TURB_CORRUPTION, "not the table that the manifest names");
  other = record.record;
  other.entries++;
  check_refused(&e, path, &other, TURB_CORRUPTION, "the number of entries");
  other = record.record;
  other.hash_sum++;
  check_refused(&e, path, &other, TURB_CORRUPTION, "sum of entry hashes");
  other = record.record;
  other.size_bytes += 4096;
  check_refused(&e, path, &other, TURB_CORRUPTION, "cut short");
  other = record.record;
  other.tail_offset += 100;
  check_refused(&e, path, &other, TURB_CORRUPTION, "out of bounds");
  other = record.record;
  other.tail_offset = UINT64_MAX - 4095;
  check_refused(&e, path, &other, TURB_CORRUPTION, "out of bounds");

  struct environment stranger = e;
  stranger.env.database_id[3] ^= 1;
  check_refused(&stranger, path, &record.record, TURB_NOT_A_DATABASE, "another database");
  check_refused(&stranger, path, NULL, TURB_NOT_A_DATABASE, "another database");

  /* Bits of header, tail and footer. */
  struct table *table;
  const uint64_t at[] = {0,
                         9,
                         20,
                         60,
                         4090,
                         record.record.tail_offset,
                         record.record.tail_offset + 200,
                         record.record.size_bytes - 64,
                         record.record.size_bytes - 40,
                         record.record.size_bytes - 1};
  for (size_t i = 0; i < sizeof at / sizeof at[0]; i++) {
    CHECK_OK(turb_simulation_flip_bit(e.simulation, path, at[i], 3, NULL));
    check_refused(&e, path, &record.record, TURB_CORRUPTION, "t.tbl");
    check_refused(&e, path, NULL, TURB_CORRUPTION, "t.tbl");
    CHECK_OK(turb_simulation_flip_bit(e.simulation, path, at[i], 3, NULL));
  }
  CHECK_OK(table_open(&e.env, path, &record.record, &table, NULL));
  table_release(table);

  for (uint64_t size = record.record.size_bytes - 1; size > 0; size = size > 5000 ? size - size / 3 : size / 2) {
    CHECK_OK(turb_simulation_truncate(e.simulation, path, size, NULL));
    check_refused(&e, path, &record.record, TURB_CORRUPTION, "t.tbl");
    check_refused(&e, path, NULL, TURB_CORRUPTION, "t.tbl");
  }
  entries_free(&entries);
  environment_close(&e);
}

TEST(table, refuses_a_newer_format) {
  struct environment e;
  CHECK(environment_open(&e, TURB_BACKEND_SIMULATED, false, 64u << 20));
  struct entries entries;
  entries_make(&entries, &plain, 3);
  struct stored_record record;
  entries_write(&e, &entries, "t.tbl", &record);
  char path[512];
  (void)snprintf(path, sizeof path, "%s", environment_path(&e, "t.tbl"));
  struct io_file *file;
  CHECK_OK(io_file_open(e.system, path, IO_OPEN_READ | IO_OPEN_WRITE, &file, NULL));
  uint8_t page[4096];
  CHECK_OK(io_file_read(file, page, 4096, 0, NULL));
  store_u32(page + 8, 2);
  store_u64(page + 4088, hash64(page, 4088, 0));
  CHECK_OK(io_file_write(file, page, 4096, 0, NULL));
  io_file_release(file);
  check_refused(&e, path, &record.record, TURB_NEWER_FORMAT, "version 2");
  check_refused(&e, path, NULL, TURB_NEWER_FORMAT, "version 2");
  entries_free(&entries);
  environment_close(&e);
}

/* ---- addresses and index ---- */

static void check_addresses(const struct table *table, const struct entries *entries) {
  uint64_t rows = 0;
  const uint32_t frames = table_unit_count(table, UNIT_ROWS);
  for (uint32_t frame = 0; frame < frames; frame++) {
    uint64_t first;
    uint32_t count, got, offset, before = 0;
    table_frame_rows(table, frame, &first, &count);
    CHECK_EQ(first, rows);
    CHECK_GT(count, 0);
    for (uint32_t i = 0; i < count; i++) {
      table_locate_row(table, first + i, &got, &offset);
      CHECK_EQ(got, frame);
      CHECK(i == 0 ? offset == 0 : offset >= before + entries->shape.stride);
      before = offset;
    }
    rows += count;
  }
  CHECK_EQ(rows, entries->puts);
  CHECK_EQ(table_key_ordinal(table, 0), UINT32_MAX);
  CHECK_EQ(table_key_ordinal(table, UINT32_MAX), UINT32_MAX);
}

static turb_bytes changed_key(const struct entries *entries, struct random *random, uint8_t *bytes) {
  const struct entry *entry = &entries->at[random_below(random, entries->count)];
  uint32_t size = entry->key_size;
  memcpy(bytes, entry->key, size);
  switch (random_below(random, 5)) {
  case 0: break;
  case 1: bytes[size++] = 0; break;
  case 2: size = (uint32_t)random_below(random, size); break;
  case 3: bytes[random_below(random, size)]++; break;
  default: bytes[size - 1]--; break;
  }
  return (turb_bytes){bytes, size};
}

/* Index of the first entry with key >= key. */
static uint32_t lower_bound(const struct entries *entries, turb_bytes key) {
  uint32_t low = 0, high = entries->count;
  while (low < high) {
    const uint32_t middle = low + (high - low) / 2;
    if (key_compare(entries->at[middle].key, entries->at[middle].key_size, key.data, key.size) < 0) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

static void check_bounds(struct environment *e, struct table *table, const struct entries *entries, struct random *random) {
  struct reads reads;
  reads_init(&reads, e->system, NULL);
  uint32_t *rows_before = malloc((entries->count + 1) * sizeof *rows_before);
  rows_before[0] = 0;
  for (uint32_t i = 0; i < entries->count; i++) {
    rows_before[i + 1] = rows_before[i] + entries->at[i].put;
  }
  for (int i = 0; i < 500; i++) {
    uint8_t bytes[4200];
    const turb_bytes key = changed_key(entries, random, bytes);
    const uint32_t wanted = lower_bound(entries, key);
    uint64_t row, entry;
    turb_error error = TURB_ERROR_INIT;
    CHECK_OK_ERR(table_row_lower_bound(table, &reads, key, false, &row, &entry, &error), &error);
    CHECK_EQ(entry, wanted);
    CHECK_EQ(row, rows_before[wanted]);
    CHECK_OK(table_row_lower_bound(table, NULL, key, true, &row, &entry, NULL));
    CHECK_LE(entry, wanted);
  }
  uint64_t row, entry;
  CHECK_OK(table_row_lower_bound(table, &reads, TURB_NONE, false, &row, &entry, NULL));
  CHECK_EQ(row + entry, 0);
  free(rows_before);
  reads_close(&reads);
}

TEST(table, addresses_and_bounds) {
  const struct entries_options shapes[] = {
      plain,
      {.keys = 3000, .dimension = 100, .type = TURB_I8, .key_bytes = 30, .versions = 2, .delete_percent = 30},
      {.keys = 400, .dimension = 1536, .key_bytes = 300, .long_key_percent = 30},
      {.keys = 40, .dimension = 20000},
      {.keys = 2000, .dimension = 64, .type = TURB_F16, .compression = 1, .attribute_percent = 50},
      {.keys = 700, .delete_percent = 100},
      {.keys = 1, .dimension = 1, .type = TURB_BITS},
      {.keys = 20000, .bulk = true},
  };
  for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
    struct environment e;
    CHECK(environment_open(&e, TURB_BACKEND_SIMULATED, true, 64u << 20));
    struct random random;
    random_init(&random, test_seed() + i);
    struct entries entries;
    entries_make(&entries, &shapes[i], random_u64(&random));
    struct stored_record record;
    struct table *table = entries_table(&e, &entries, &record);
    check_addresses(table, &entries);
    check_bounds(&e, table, &entries, &random);
    table_release(table);
    entries_free(&entries);
    environment_close(&e);
  }
}

/* ---- failures ---- */

TEST(table, every_allocation_fails_once) {
  struct environment e;
  CHECK(environment_open(&e, TURB_BACKEND_SIMULATED, false, 64u << 20));
  struct entries entries;
  entries_make(&entries, &plain, 3);
  struct stored_record record;
  entries_write(&e, &entries, "t.tbl", &record);
  char path[512];
  (void)snprintf(path, sizeof path, "%s", environment_path(&e, "t.tbl"));
  const uint64_t used = budget_used(&e.budget);
  for (int by_footer = 0; by_footer < 2; by_footer++) {
    for (uint64_t n = 1;; n++) {
      test_allocator_fail_at(&e.allocator, n);
      struct table *table;
      turb_error error = TURB_ERROR_INIT;
      const turb_status status = table_open(&e.env, path, by_footer ? NULL : &record.record, &table, &error);
      if (!e.allocator.failed) {
        CHECK_OK_ERR(status, &error);
        table_release(table);
        break;
      }
      CHECK_STATUS_ERR(status, TURB_NO_MEMORY, &error);
      CHECK(table == NULL);
      CHECK_EQ(budget_used(&e.budget), used);
    }
  }
  test_allocator_fail_at(&e.allocator, 0);
  entries_free(&entries);
  environment_close(&e);
}

TEST(table, every_operation_fails_once) {
  struct environment e;
  CHECK(environment_open(&e, TURB_BACKEND_SIMULATED, false, 64u << 20));
  struct entries entries;
  entries_make(&entries, &plain, 3);
  struct stored_record record;
  entries_write(&e, &entries, "t.tbl", &record);
  char path[512];
  (void)snprintf(path, sizeof path, "%s", environment_path(&e, "t.tbl"));
  for (uint64_t n = 1;; n++) {
    turb_simulation_fail_at(e.simulation, turb_simulation_operations(e.simulation) + n, EIO);
    struct table *table;
    turb_error error = TURB_ERROR_INIT;
    const turb_status status = table_open(&e.env, path, &record.record, &table, &error);
    turb_simulation_fail_at(e.simulation, 0, 0);
    if (status == TURB_OK) {
      table_release(table);
      break;
    }
    CHECK_STATUS_ERR(status, TURB_IO, &error);
    CHECK(test_contains(error.message, "t.tbl"));
    CHECK_LT(n, 20);
  }
  entries_free(&entries);
  environment_close(&e);
}

TEST(table, opening_obeys_the_budget) {
  struct environment e;
  CHECK(environment_open(&e, TURB_BACKEND_SIMULATED, false, 64u << 20));
  struct entries entries;
  entries_make(&entries, &(struct entries_options){.keys = 20000, .key_bytes = 200}, 3);
  struct stored_record record;
  entries_write(&e, &entries, "t.tbl", &record);
  budget_set_limit(&e.budget, budget_used(&e.budget) + 5000);
  struct table *table;
  turb_error error = TURB_ERROR_INIT;
  CHECK_STATUS_ERR(table_open(&e.env, environment_path(&e, "t.tbl"), &record.record, &table, &error), TURB_BUDGET, &error);
  budget_set_limit(&e.budget, 64u << 20);
  table = entries_open(&e, "t.tbl", &record);
  table_release(table);
  entries_free(&entries);
  environment_close(&e);
}
