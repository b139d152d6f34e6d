/* Loads and reads: every unit, row and attribute comes back as it was put, from the cache and from the disk; damage, failures and abandoned loads. */
#include <errno.h>
#include <stdlib.h>

#include "sstable/codec.h"
#include "sstable/table_parts.h"
#include "tests/sstable/table_fixture.h"

static const struct entries_options shapes[] = {
    {.keys = 3000, .versions = 3, .delete_percent = 10, .attribute_percent = 40, .attribute_bytes = 3000},
    {.keys = 900, .dimension = 300, .key_bytes = 60, .long_key_percent = 10, .attribute_percent = 20},
    {.keys = 60, .dimension = 30000, .attribute_percent = 100, .attribute_bytes = 300000},
    {.keys = 4000, .dimension = 100, .compression = 1, .attribute_percent = 10},
    {.keys = 300, .dimension = 3000, .type = TURB_F16, .compression = 1},
    {.keys = 2000, .dimension = 77, .type = TURB_BITS, .bulk = true, .attribute_percent = 60},
};
#define SHAPES (sizeof shapes / sizeof shapes[0])

static uint64_t attribute_offset(const struct entries *entries, uint32_t index) {
  uint64_t offset = 0;
  for (uint32_t i = 0; i < index; i++) {
    offset += entries->at[i].attribute_size;
  }
  return offset;
}

/* All rows and attributes in random order. */
static void check_all(struct environment *e, struct table *table, const struct entries *entries, unsigned flags, struct random *random) {
  struct reads reads;
  struct load *load;
  reads_init(&reads, e->system, NULL);
  CHECK_OK(load_create(&reads, &e->allocator.base, &load, NULL));
  uint32_t *rows = entries_rows(entries);
  for (uint32_t n = 0; n < entries->puts && n < 400; n++) {
    const uint32_t row = (uint32_t)random_below(random, entries->puts);
    const struct entry *entry = &entries->at[rows[row]];
    CHECK_EQ(await_load(&reads, load, load_row(load, table, row, entry_hash_of_row(entries, entry), flags)), LOAD_READY);
    uint32_t size;
    CHECK_MEM_EQ(load_data(load, &size), entry->row, entries->shape.row_bytes);
    CHECK_EQ(size, entries->shape.row_bytes);
    if (entry->attribute_size != 0) {
      const uint64_t offset = attribute_offset(entries, rows[row]);
      const uint32_t hash = (uint32_t)hash64(entry->attributes, entry->attribute_size, 0);
      CHECK_EQ(await_load(&reads, load, load_attribute(load, table, offset, entry->attribute_size, hash, flags)), LOAD_READY);
      const void *data;
      struct cache_pin pin;
      load_take_pin(load, &pin, &data);
      CHECK_MEM_EQ(data, entry->attributes, entry->attribute_size);
      CHECK_EQ(load_state(load), LOAD_IDLE);
      load_pin_release(table, &pin);
    }
  }
  free(rows);
  load_destroy(load);
  reads_close(&reads);
}

static void check_units(struct environment *e, struct table *table, unsigned flags) {
  struct reads reads;
  struct load *load;
  turb_error error = TURB_ERROR_INIT;
  reads_init(&reads, e->system, NULL);
  CHECK_OK(load_create(&reads, &e->allocator.base, &load, NULL));
  for (int kind = 0; kind < UNIT_KINDS; kind++) {
    const uint32_t count = table_unit_count(table, (enum unit_kind)kind);
    for (uint32_t ordinal = 0; ordinal < count; ordinal++) {
      const enum load_state state = await_load(&reads, load, load_unit(load, table, (enum unit_kind)kind, ordinal, flags));
      if (state == LOAD_FAILED) {
        (void)load_error(load, &error);
      }
      CHECK_MSG(state == LOAD_READY, "unit %u of kind %d: %s", ordinal, kind, error.message);
      if (kind == UNIT_KEYS) {
        const struct slot_page *page = load_data(load, NULL);
        ordinal += page->units - 1u;
      }
    }
    CHECK_EQ(load_unit(load, table, (enum unit_kind)kind, count, flags), LOAD_FAILED);
  }
  load_destroy(load);
  reads_close(&reads);
}

TEST(load, brings_what_was_put) {
  static const unsigned flags[] = {0, LOAD_FILL_CACHE, LOAD_POINT, LOAD_POINT | LOAD_FILL_CACHE};
  for (size_t s = 0; s < SHAPES; s++) {
    struct environment e;
    struct random random;
    random_init(&random, test_seed() + s);
    CHECK(environment_open(&e, TURB_BACKEND_SIMULATED, true, s % 2 ? 6u << 20 : 64u << 20));
    struct entries entries;
    entries_make(&entries, &shapes[s], random_u64(&random));
    struct stored_record record;
    struct table *table = entries_table(&e, &entries, &record);
    for (size_t f = 0; f < 4; f++) {
      check_all(&e, table, &entries, flags[f], &random);
      CHECK_EQ(budget_used_for(&e.budget, BUDGET_JOB), 0);
    }
    check_units(&e, table, 0);
    check_units(&e, table, LOAD_FILL_CACHE);
    check_all(&e, table, &entries, LOAD_POINT, &random); /* now mostly from the cache */
    table_release(table);
    CHECK_EQ(budget_used_for(&e.budget, BUDGET_CURSOR), 0);
    entries_free(&entries);
    environment_close(&e);
  }
}

TEST(load, runs_on_the_real_backends) {
  static const turb_backend backends[] = {TURB_BACKEND_BLOCKING, TURB_BACKEND_URING};
  for (int b = 0; b < 2; b++) {
    struct environment e;
    struct random random;
    random_init(&random, test_seed());
    if (!environment_open(&e, backends[b], false, 64u << 20)) {
      continue;
    }
    for (size_t s = 0; s < SHAPES; s++) {
      struct entries entries;
      entries_make(&entries, &shapes[s], random_u64(&random));
      struct stored_record record;
      struct table *table = entries_table(&e, &entries, &record);
      check_all(&e, table, &entries, LOAD_POINT, &random);
      check_units(&e, table, LOAD_FILL_CACHE);
      table_release(table);
      entries_free(&entries);
    }
    environment_close(&e);
  }
}

TEST(load, large_attributes_come_by_chunks) {
  struct environment e;
  CHECK(environment_open(&e, TURB_BACKEND_SIMULATED, true, 128u << 20));
  struct entries entries;
  entries_make(&entries, &(struct entries_options){.keys = 6, .attribute_percent = 50}, 5);
  static const uint32_t sizes[] = {1u << 20, (1u << 20) + 1, 3333333, 16u << 20, 65536, 12345678};
  struct random random;
  random_init(&random, 9);
  for (uint32_t i = 0; i < 6; i++) {
    struct entry *entry = &entries.at[i];
    entry->attribute_size = sizes[i];
    entry->attributes = realloc(entry->attributes, sizes[i]);
    random_fill(&random, entry->attributes, sizes[i]);
  }
  struct stored_record record;
  struct table *table = entries_table(&e, &entries, &record);
  check_all(&e, table, &entries, LOAD_POINT, &random);
  check_all(&e, table, &entries, LOAD_FILL_CACHE, &random);

  /* Damage in the middle of the largest. */
  const struct spans *spans = &table->spans[EXTENT_ATTRIBUTES];
  const uint64_t offset = attribute_offset(&entries, 3);
  const struct span *span = NULL;
  for (uint32_t i = 0; i < spans->count; i++) {
    span = spans->at[i].first == offset ? &spans->at[i] : span;
  }
  CHECK(span != NULL);
  const char *path = io_file_path(table_file(table));
  CHECK_OK(turb_simulation_flip_bit(e.simulation, path, span->offset + (9u << 20), 1, NULL));
  struct reads reads;
  struct load *load;
  turb_error error = TURB_ERROR_INIT;
  reads_init(&reads, e.system, NULL);
  CHECK_OK(load_create(&reads, &e.allocator.base, &load, NULL));
  CHECK_EQ(await_load(&reads, load, load_attribute(load, table, offset, 16u << 20, 0, 0)), LOAD_FAILED);
  CHECK_STATUS(load_error(load, &error), TURB_CORRUPTION);
  CHECK(test_contains(error.message, "attribute chunk"));
  CHECK_EQ(error.offset, span->offset + (9u << 20));
  CHECK_OK(turb_simulation_flip_bit(e.simulation, path, span->offset + (9u << 20), 1, NULL));
  CHECK_EQ(await_load(&reads, load, load_attribute(load, table, offset, 16u << 20, 0, 0)), LOAD_READY);
  load_destroy(load);
  reads_close(&reads);
  table_release(table);
  entries_free(&entries);
  environment_close(&e);
}

/* ---- damage -------------------------------------------------------------------------------------------- */

/* Each unit of each kind with one bit flipped somewhere: the load fails naming file and offset, and works again after. */
TEST(load, finds_every_kind_of_damage) {
  for (size_t s = 0; s < SHAPES; s++) {
    struct environment e;
    struct random random;
    random_init(&random, test_seed() + s);
    CHECK(environment_open(&e, TURB_BACKEND_SIMULATED, true, 64u << 20));
    struct entries entries;
    entries_make(&entries, &shapes[s], random_u64(&random));
    struct stored_record record;
    struct table *table = entries_table(&e, &entries, &record);
    char path[512];
    (void)snprintf(path, sizeof path, "%s", io_file_path(table_file(table)));
    struct reads reads;
    struct load *load;
    reads_init(&reads, e.system, NULL);
    CHECK_OK(load_create(&reads, &e.allocator.base, &load, NULL));
    for (int n = 0; n < 60; n++) {
      const enum unit_kind kind = (enum unit_kind)random_below(&random, UNIT_KINDS);
      const uint32_t count = table_unit_count(table, kind);
      if (count == 0 || (kind == UNIT_KEYS && entries.shape.dimension == 300)) { /* units of two pages are not named by their second */
        continue;
      }
      const uint32_t unit = (uint32_t)random_below(&random, count);
      if (cache_holds(table_directory(table), table_unit(table, kind, unit))) { /* checksum pages always fill the cache */
        continue;
      }
      uint64_t offset;
      uint32_t size = table_unit_bytes(table, kind, unit, &offset);
      if (offset == 0) { /* a compressed frame: somewhere in the first bytes of its extent */
        offset = table_span_of_unit(table, EXTENT_ROWS, unit)->offset;
        size = 64;
        if (unit != table_span_of_unit(table, EXTENT_ROWS, unit)->first_unit) {
          continue;
        }
      }
      if (kind == UNIT_FILTER) { /* what lies behind the last block is padding, for verify to look at */
        size = 64 + 32;
      }
      const uint64_t at = offset + random_below(&random, size);
      const uint32_t bit = (uint32_t)random_below(&random, 8);
      CHECK_OK(turb_simulation_flip_bit(e.simulation, path, at, bit, NULL));
      CHECK_EQ(await_load(&reads, load, load_unit(load, table, kind, unit, 0)), LOAD_FAILED);
      turb_error error = TURB_ERROR_INIT;
      CHECK_STATUS(load_error(load, &error), TURB_CORRUPTION);
      CHECK_STR_EQ(error.file, path);
      CHECK_MSG(error.offset != UINT64_MAX && error.offset / 4096 >= offset / 4096, "%s", error.message);
      CHECK_OK(turb_simulation_flip_bit(e.simulation, path, at, bit, NULL));
      CHECK_EQ(await_load(&reads, load, load_unit(load, table, kind, unit, 0)), LOAD_READY);
    }
    load_destroy(load);
    reads_close(&reads);
    table_release(table);
    entries_free(&entries);
    environment_close(&e);
  }
}

TEST(load, a_row_alone_is_verified_by_its_hash) {
  struct environment e;
  CHECK(environment_open(&e, TURB_BACKEND_SIMULATED, true, 64u << 20));
  struct entries entries;
  entries_make(&entries, &shapes[1], 8);
  struct stored_record record;
  struct table *table = entries_table(&e, &entries, &record);
  struct reads reads;
  struct load *load;
  reads_init(&reads, e.system, NULL);
  CHECK_OK(load_create(&reads, &e.allocator.base, &load, NULL));
  turb_error error = TURB_ERROR_INIT;
  CHECK_EQ(await_load(&reads, load, load_row(load, table, 17, 12345, LOAD_POINT)), LOAD_FAILED);
  CHECK_STATUS(load_error(load, &error), TURB_CORRUPTION);
  uint32_t frame, offset;
  uint64_t frame_offset;
  table_locate_row(table, 17, &frame, &offset);
  (void)table_unit_bytes(table, UNIT_ROWS, frame, &frame_offset);
  CHECK_EQ(error.offset, frame_offset + offset);
  CHECK_STR_EQ(error.file, io_file_path(table_file(table)));
  /* One read of its own pages. */
  struct io_stats before, after;
  io_system_stats(e.system, &before);
  uint32_t *rows = entries_rows(&entries);
  CHECK_EQ(await_load(&reads, load, load_row(load, table, 40, entry_hash_of_row(&entries, &entries.at[rows[40]]), LOAD_POINT)), LOAD_READY);
  load_reset(load);
  reads_close(&reads);
  io_system_drain(e.system);
  io_system_stats(e.system, &after);
  CHECK_LE(after.read_bytes - before.read_bytes, 8192);
  CHECK_EQ(load_row(load, table, entries.puts, 0, 0), LOAD_FAILED);
  CHECK_STATUS(load_error(load, NULL), TURB_CORRUPTION);
  load_destroy(load);
  reads_close(&reads);
  free(rows);
  table_release(table);
  entries_free(&entries);
  environment_close(&e);
}

/* ---- abandoned loads ----------------------------------------------------------------------------------- */

static enum load_state start_something(struct load *load, struct table *table, const struct entries *entries, const uint32_t *rows,
                                       struct random *random) {
  const unsigned flags = (unsigned)random_below(random, 4);
  if (random_one_in(random, 2)) {
    const enum unit_kind kind = (enum unit_kind)random_below(random, UNIT_KINDS);
    if (kind != UNIT_KEYS && table_unit_count(table, kind) != 0) {
      return load_unit(load, table, kind, (uint32_t)random_below(random, table_unit_count(table, kind)), flags);
    }
  }
  const uint32_t row = (uint32_t)random_below(random, entries->puts);
  return load_row(load, table, row, entry_hash_of_row(entries, &entries->at[rows[row]]), flags);
}

/* Many loads of one queue, reset, destroyed and made again at any moment, with reads submitted or not. */
TEST(load, is_abandoned_at_any_moment) {
  for (size_t s = 0; s < SHAPES; s++) {
    struct environment e;
    struct random random;
    random_init(&random, test_seed() + s);
    CHECK(environment_open(&e, TURB_BACKEND_SIMULATED, true, 16u << 20));
    struct entries entries;
    entries_make(&entries, &shapes[s], random_u64(&random));
    uint32_t *rows = entries_rows(&entries);
    struct stored_record record;
    struct table *table = entries_table(&e, &entries, &record);
    struct reads reads;
    reads_init(&reads, e.system, NULL);
    struct load *loads[20] = {0};
    for (int n = 0; n < 1500; n++) {
      const size_t i = random_below(&random, 20);
      switch (random_below(&random, 8)) {
      case 0:
        load_destroy(loads[i]);
        loads[i] = NULL;
        break;
      case 1: CHECK_OK(reads_submit(&reads, NULL)); break;
      case 2: (void)reads_poll(&reads); break;
      case 3:
        if (loads[i] != NULL) {
          load_reset(loads[i]);
          CHECK_EQ(load_state(loads[i]), LOAD_IDLE);
        }
        break;
      case 4: CHECK_OK(reads_wait(&reads, NULL)); break;
      default:
        if (loads[i] == NULL) {
          CHECK_OK(load_create(&reads, &e.allocator.base, &loads[i], NULL));
        }
        CHECK_NE(start_something(loads[i], table, &entries, rows, &random), LOAD_FAILED);
        break;
      }
    }
    for (size_t i = 0; i < 20; i++) {
      if (loads[i] != NULL) {
        CHECK_NE(load_state(loads[i]), LOAD_FAILED);
      }
      load_destroy(loads[i]);
    }
    reads_close(&reads);
    table_release(table); /* orphans may hold it still */
    free(rows);
    entries_free(&entries);
    environment_close(&e);
  }
}

/* An orphan's read completes into the cache. */
TEST(load, an_orphan_fills_the_cache) {
  struct environment e;
  CHECK(environment_open(&e, TURB_BACKEND_SIMULATED, false, 16u << 20));
  struct entries entries;
  entries_make(&entries, &shapes[0], 4);
  struct stored_record record;
  struct table *table = entries_table(&e, &entries, &record);
  struct reads reads;
  struct load *load;
  reads_init(&reads, e.system, NULL);
  CHECK_OK(load_create(&reads, &e.allocator.base, &load, NULL));
  CHECK_EQ(load_unit(load, table, UNIT_ROWS, 0, LOAD_FILL_CACHE), LOAD_WAITING);
  CHECK_OK(reads_submit(&reads, NULL));
  load_destroy(load);
  CHECK_EQ(reads.in_flight, 0);
  reads_close(&reads);
  struct io_ring *ring; /* whoever leases the ring next completes it */
  CHECK_OK(io_ring_lease(e.system, &ring, NULL));
  CHECK_EQ(io_ring_in_flight(ring), 2);
  CHECK_OK(io_ring_wait(ring, 2, IO_NO_TIMEOUT, NULL));
  io_ring_return(ring);
  CHECK(cache_holds(table_directory(table), table_unit(table, UNIT_ROWS, 0)));
  table_release(table);
  entries_free(&entries);
  environment_close(&e);
}

/* More loads than the ring has room for. */
TEST(load, goes_in_rounds_when_the_ring_is_full) {
  struct environment e;
  CHECK(environment_open(&e, TURB_BACKEND_SIMULATED, true, 64u << 20));
  struct entries entries;
  entries_make(&entries, &shapes[0], 4);
  uint32_t *rows = entries_rows(&entries);
  struct stored_record record;
  struct table *table = entries_table(&e, &entries, &record);
  struct reads reads;
  reads_init(&reads, e.system, NULL);
  enum { LOADS = 300 };
  struct load *loads[LOADS];
  uint32_t waiting = 0;
  for (uint32_t i = 0; i < LOADS; i++) {
    CHECK_OK(load_create(&reads, &e.allocator.base, &loads[i], NULL));
    waiting += load_row(loads[i], table, i * 3, entry_hash_of_row(&entries, &entries.at[rows[i * 3]]), LOAD_POINT) == LOAD_WAITING;
  }
  CHECK_EQ(waiting, LOADS);
  CHECK_EQ(reads.queued, LOADS);
  while (reads.queued + reads.in_flight != 0) {
    CHECK_OK(reads_wait(&reads, NULL));
  }
  CHECK(reads.ring == NULL); /* given back */
  for (uint32_t i = 0; i < LOADS; i++) {
    CHECK_EQ(load_state(loads[i]), LOAD_READY);
    CHECK_MEM_EQ(load_data(loads[i], NULL), entries.at[rows[i * 3]].row, entries.shape.row_bytes);
    load_destroy(loads[i]);
  }
  reads_close(&reads);
  free(rows);
  table_release(table);
  entries_free(&entries);
  environment_close(&e);
}

/* ---- failures ------------------------------------------------------------------------------------------ */

/* Whatever is brought: fails with the status, leaves nothing behind, and works when tried again. */
static enum load_state bring(struct reads *reads, struct load *load, struct table *table, const struct entries *entries,
                             const uint32_t *rows, int what) {
  switch (what) {
  case 0: return await_load(reads, load, load_unit(load, table, UNIT_KEYS, 1, LOAD_FILL_CACHE));
  case 1: return await_load(reads, load, load_unit(load, table, UNIT_ROWS, 1, LOAD_FILL_CACHE));
  case 2: return await_load(reads, load, load_row(load, table, 5, entry_hash_of_row(entries, &entries->at[rows[5]]), LOAD_POINT));
  case 3: return await_load(reads, load, load_unit(load, table, UNIT_ATTRIBUTES, 0, 0));
  default: {
    const struct entry *entry = &entries->at[rows[0]];
    return await_load(
        reads, load,
        load_attribute(load, table, 0, entry->attribute_size, (uint32_t)hash64(entry->attributes, entry->attribute_size, 0), LOAD_POINT));
  }
  }
}

static void check_failures(const struct entries_options *shape, bool of_allocations) {
  struct environment e;
  CHECK(environment_open(&e, TURB_BACKEND_SIMULATED, false, 64u << 20));
  struct entries entries;
  entries_make(&entries, shape, 4);
  uint32_t *rows = entries_rows(&entries);
  struct stored_record record;
  struct table *table = entries_table(&e, &entries, &record);
  struct reads reads;
  struct load *load;
  reads_init(&reads, e.system, NULL);
  for (int what = 0; what < (entries.at[rows[0]].attribute_size != 0 ? 5 : 3); what++) {
    for (uint64_t n = 1;; n++) {
      table_release(table); /* so that nothing is resident */
      table = entries_open(&e, "t4.tbl", &record);
      CHECK_OK(load_create(&reads, &e.allocator.base, &load, NULL));
      if (of_allocations) {
        test_allocator_fail_at(&e.allocator, n);
      } else {
        turb_simulation_fail_at(e.simulation, turb_simulation_operations(e.simulation) + n, EIO);
      }
      const enum load_state state = bring(&reads, load, table, &entries, rows, what);
      turb_error error = TURB_ERROR_INIT;
      const turb_status status = load_error(load, &error);
      test_allocator_fail_at(&e.allocator, 0);
      turb_simulation_fail_at(e.simulation, 0, 0);
      if (state == LOAD_FAILED) {
        CHECK_MSG(of_allocations ? status == TURB_NO_MEMORY || status == TURB_BUDGET : status == TURB_IO, "%s", error.message);
        CHECK(error.message[0] != 0);
        CHECK_EQ(bring(&reads, load, table, &entries, rows, what), LOAD_READY);
      }
      load_destroy(load);
      if (state == LOAD_READY) {
        break;
      }
      CHECK_LT(n, 50);
    }
  }
  reads_close(&reads);
  free(rows);
  table_release(table);
  entries_free(&entries);
  environment_close(&e);
}

TEST(load, every_operation_fails_once) {
  check_failures(&(struct entries_options){.keys = 3000, .attribute_percent = 100, .attribute_bytes = 4000}, false);
  check_failures(&(struct entries_options){.keys = 3000, .dimension = 64, .compression = 1}, false);
}

TEST(load, every_allocation_fails_once) {
  check_failures(&(struct entries_options){.keys = 3000, .attribute_percent = 100, .attribute_bytes = 4000}, true);
  check_failures(&(struct entries_options){.keys = 3000, .dimension = 64, .compression = 1}, true);
}

TEST(load, says_when_the_budget_is_short) {
  struct environment e;
  CHECK(environment_open(&e, TURB_BACKEND_SIMULATED, false, 64u << 20));
  struct entries entries;
  entries_make(&entries, &shapes[2], 4);
  uint32_t *rows = entries_rows(&entries);
  struct stored_record record;
  struct table *table = entries_table(&e, &entries, &record);
  struct reads reads;
  struct load *load;
  reads_init(&reads, e.system, NULL);
  CHECK_OK(load_create(&reads, &e.allocator.base, &load, NULL));
  budget_set_limit(&e.budget, budget_used(&e.budget));
  CHECK_EQ(load_unit(load, table, UNIT_ROWS, 0, LOAD_FILL_CACHE), LOAD_FAILED);
  CHECK_STATUS(load_error(load, NULL), TURB_BUDGET);
  CHECK_EQ(load_row(load, table, 0, 0, LOAD_POINT), LOAD_FAILED);
  CHECK_STATUS(load_error(load, NULL), TURB_BUDGET);
  budget_set_limit(&e.budget, 64u << 20);
  CHECK_EQ(await_load(&reads, load, load_unit(load, table, UNIT_ROWS, 0, LOAD_FILL_CACHE)), LOAD_READY);
  load_destroy(load);
  reads_close(&reads);
  free(rows);
  table_release(table);
  entries_free(&entries);
  environment_close(&e);
}

TEST(load, tells_why_it_failed_also_without_memory_for_words) {
  struct environment e;
  CHECK(environment_open(&e, TURB_BACKEND_SIMULATED, false, 64u << 20));
  struct entries entries;
  entries_make(&entries, &shapes[0], 4);
  struct stored_record record;
  struct table *table = entries_table(&e, &entries, &record);
  struct reads reads;
  struct load *load;
  reads_init(&reads, e.system, NULL);
  CHECK_OK(load_create(&reads, &e.allocator.base, &load, NULL));
  turb_error error = TURB_ERROR_INIT;
  test_allocator_fail_from(&e.allocator, 1);
  CHECK_EQ(load_unit(load, table, UNIT_ROWS, UINT32_MAX, 0), LOAD_FAILED);
  CHECK_STATUS(load_error(load, &error), TURB_CORRUPTION);
  CHECK_EQ(error.status, TURB_CORRUPTION);
  CHECK(error.message[0] != '\0');
  error = (turb_error)TURB_ERROR_INIT;
  CHECK_EQ(load_unit(load, table, UNIT_KEYS, 0, LOAD_FILL_CACHE), LOAD_FAILED);
  CHECK_STATUS(load_error(load, &error), TURB_NO_MEMORY);
  error = (turb_error)TURB_ERROR_INIT;
  test_allocator_fail_at(&e.allocator, 0);
  CHECK_EQ(load_unit(load, table, UNIT_ROWS, UINT32_MAX, 0), LOAD_FAILED);
  CHECK_STATUS(load_error(load, &error), TURB_CORRUPTION);
  CHECK(strstr(error.message, "outside the table") != NULL && error.file[0] != '\0');
  /* The words of the last failure, not those of an older one. */
  error = (turb_error)TURB_ERROR_INIT;
  test_allocator_fail_from(&e.allocator, 1);
  CHECK_EQ(load_unit(load, table, UNIT_KEYS, 0, LOAD_FILL_CACHE), LOAD_FAILED);
  CHECK_STATUS(load_error(load, &error), TURB_NO_MEMORY);
  test_allocator_fail_at(&e.allocator, 0);
  CHECK_EQ(await_load(&reads, load, load_unit(load, table, UNIT_KEYS, 0, LOAD_FILL_CACHE)), LOAD_READY);
  CHECK_OK(load_error(load, NULL));
  load_destroy(load);
  reads_close(&reads);
  table_release(table);
  entries_free(&entries);
  environment_close(&e);
}
