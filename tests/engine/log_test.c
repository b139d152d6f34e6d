/* The log: what is appended comes back, and what damage of each kind does to recovery. Power cuts are in log_crash_test.c. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/coding.h"
#include "base/hash.h"
#include "engine/log_format.h"
#include "tests/engine/log_fixture.h"

#define LOG_5 "/db/log-000000000005.tlog"
#define LOG_6 "/db/log-000000000006.tlog"

static struct log_recovery recover(const struct log_recovery_options *options, uint64_t number) {
  struct log_recovery recovery;
  turb_error err = TURB_ERROR_INIT;
  CHECK_OK_ERR(log_recover(options, number, &recovery, &err), &err);
  return recovery;
}

/* ---- round trips ---- */

/* Appends records of up to `bound` bytes in both modes with syncs between, and recovers them. */
static void round_trip(struct io_system *system, const char *folder, uint64_t seed, size_t bound, size_t count) {
  struct random random;
  random_init(&random, seed);
  struct log_model *model = calloc(1, sizeof *model);
  CHECK(model != NULL);
  model->size_bound = bound;
  struct log_writer *writer = log_make(system, folder, 5);
  CHECK_EQ(log_writer_number(writer), 5);
  for (size_t i = 0; i < count; i++) {
    CHECK_OK(log_add(writer, model, random_one_in(&random, 3) ? LOG_APPEND_SYNCED : LOG_APPEND_LOGGED, NULL));
    if (random_one_in(&random, 7)) {
      CHECK_OK(log_sync(writer, model, NULL));
    }
  }
  CHECK_GE(log_writer_bytes(writer), log_writer_end(writer));
  const uint64_t end = log_writer_end(writer);
  log_writer_close(writer);
  struct log_seen seen = {.bound = bound};
  const struct log_recovery_options options = log_options(system, folder, &seen);
  const struct log_recovery recovery = recover(&options, 5);
  CHECK_EQ(seen.count, count);
  CHECK_EQ(recovery.records, count);
  CHECK_EQ(recovery.end, end);
  CHECK_EQ(recovery.durable, model->mark[count - 1]);
  CHECK(!recovery.ended && !recovery.unused);
  free(model);
}

TEST(log, round_trip_on_the_simulated_disk) {
  struct sim_world world;
  sim_world_open(&world, test_seed(), 0);
  round_trip(world.system, WORLD_FOLDER, test_seed(), 900, 300);
  sim_world_close(&world);
}

TEST(log, round_trip_of_large_records) {
  struct sim_world world;
  sim_world_open(&world, test_seed(), 0);
  round_trip(world.system, WORLD_FOLDER, test_seed(), 1u << 20, 24);
  sim_world_close(&world);
}

static struct io_system *open_backend(turb_backend backend) {
  struct io_system *system = NULL;
  CHECK_OK(io_system_open(&(struct io_system_options){.backend = backend}, &system, NULL));
  return system;
}

TEST(log, round_trip_on_files) {
  const turb_backend backends[] = {TURB_BACKEND_AUTO, TURB_BACKEND_BLOCKING};
  const size_t bounds[] = {600, 100000};
  const char *parent = test_tmpdir();
  for (size_t b = 0; b < 2; b++) {
    struct io_system *system = open_backend(backends[b]);
    for (size_t i = 0; i < 2; i++) {
      char folder[512];
      (void)snprintf(folder, sizeof folder, "%s/%zu-%zu", parent, b, i);
      CHECK_OK(io_make_folder(system, folder, NULL));
      round_trip(system, folder, test_seed(), bounds[i], i == 0 ? 2000 : 200);
    }
    io_system_close(system);
  }
}

TEST(log, a_finished_log_ends) {
  struct sim_world world;
  sim_world_open(&world, 1, 0);
  struct log_model model = {.size_bound = 100};
  struct log_writer *writer = log_make(world.system, WORLD_FOLDER, 5);
  CHECK_OK(log_add(writer, &model, LOG_APPEND_LOGGED, NULL));
  CHECK_OK(log_writer_finish(writer, 9, NULL));
  CHECK_STATUS(log_add(writer, &model, LOG_APPEND_LOGGED, NULL), TURB_INVALID);
  CHECK_STATUS(log_writer_finish(writer, 9, NULL), TURB_INVALID);
  CHECK_OK(log_writer_sync(writer, NULL));
  CHECK_EQ(log_writer_bytes(writer), sim_world_size(&world, LOG_5));
  CHECK_EQ(log_writer_bytes(writer), log_writer_end(writer));
  log_writer_close(writer);
  struct log_seen seen = {.bound = 100};
  const struct log_recovery_options options = log_options(world.system, WORLD_FOLDER, &seen);
  const struct log_recovery recovery = recover(&options, 5);
  CHECK(recovery.ended);
  CHECK_EQ(recovery.next_number, 9);
  CHECK_EQ(recovery.records, 1);
  CHECK_EQ(seen.ends, 1);
  sim_world_close(&world);
}

TEST(log, arguments_and_names_are_checked) {
  struct sim_world world;
  sim_world_open(&world, 1, 0);
  struct log_writer *writer = log_make(world.system, WORLD_FOLDER, 5);
  uint64_t end = 1;
  CHECK_STATUS(log_writer_append(writer, LOG_APPEND_LOGGED, NULL, 0, &end, NULL), TURB_INVALID);
  CHECK_EQ(end, 0);
  const turb_bytes huge[] = {{"", UINT32_MAX}, {"", 1}}; /* refused before a byte is read */
  CHECK_STATUS(log_writer_append(writer, LOG_APPEND_LOGGED, huge, 2, NULL, NULL), TURB_TOO_LARGE);
  struct log_writer *second = NULL;
  const struct log_writer_options options = {
      .system = world.system, .allocator = alloc_default(), .folder = WORLD_FOLDER, .database_id = log_test_database, .number = 5};
  CHECK_STATUS(log_writer_create(&options, &second, NULL), TURB_EXISTS);
  CHECK(second == NULL);
  log_writer_close(writer);
  struct log_seen seen = {.bound = 100};
  const struct log_recovery_options recovery_options = log_options(world.system, WORLD_FOLDER, &seen);
  struct log_recovery recovery;
  CHECK_STATUS(log_recover(&recovery_options, 6, &recovery, NULL), TURB_NOT_FOUND);
  sim_world_close(&world);
}

/* ---- failures of the disk while writing ---- */

TEST(log, a_failed_sync_is_final) {
  struct sim_world world;
  sim_world_open(&world, 1, 0);
  struct log_model model = {.size_bound = 100};
  struct log_writer *writer = log_make(world.system, WORLD_FOLDER, 5);
  CHECK_OK(log_add(writer, &model, LOG_APPEND_SYNCED, NULL));
  CHECK_OK(log_sync(writer, &model, NULL));
  const uint64_t durable = log_writer_durable(writer);
  CHECK_OK(log_add(writer, &model, LOG_APPEND_SYNCED, NULL));
  turb_simulation_fail_at(world.simulation, turb_simulation_operations(world.simulation) + 1, EIO);
  turb_error err = TURB_ERROR_INIT;
  CHECK_STATUS(log_writer_sync(writer, &err), TURB_UNKNOWN_OUTCOME);
  CHECK_EQ(err.os_error, EIO);
  CHECK_STR_EQ(err.file, LOG_5);
  CHECK_EQ(log_writer_durable(writer), durable);
  for (int i = 0; i < 2; i++) {
    CHECK_STATUS(log_writer_sync(writer, NULL), TURB_UNKNOWN_OUTCOME);
    CHECK_STATUS(log_add(writer, &model, LOG_APPEND_SYNCED, NULL), TURB_UNKNOWN_OUTCOME);
    CHECK_STATUS(log_writer_finish(writer, 6, NULL), TURB_UNKNOWN_OUTCOME);
  }
  log_writer_close(writer);
  sim_world_close(&world);
}

TEST(log, a_full_disk_refuses_appends_and_loses_none) {
  struct sim_world world;
  sim_world_open(&world, 1, 700u << 10);
  struct log_model *model = calloc(1, sizeof *model);
  CHECK(model != NULL);
  model->size_bound = 3000;
  struct log_writer *writer = log_make(world.system, WORLD_FOLDER, 5);
  turb_status status = TURB_OK;
  while ((status = log_add(writer, model, LOG_APPEND_SYNCED, NULL)) == TURB_OK) {}
  CHECK_STATUS(status, TURB_NO_SPACE);
  CHECK(model->count > 300); /* the last pages were used too */
  CHECK_OK(log_sync(writer, model, NULL));
  CHECK_STATUS(log_add(writer, model, LOG_APPEND_LOGGED, NULL), TURB_NO_SPACE);
  turb_simulation_set_capacity(world.simulation, 0);
  for (int i = 0; i < 100; i++) {
    CHECK_OK(log_add(writer, model, LOG_APPEND_LOGGED, NULL));
  }
  log_writer_close(writer);
  struct log_seen seen = {.bound = 3000};
  const struct log_recovery_options options = log_options(world.system, WORLD_FOLDER, &seen);
  CHECK_EQ(recover(&options, 5).records, model->count);
  sim_world_close(&world);
  free(model);
}

/* Each operation of creating, appending, syncing and finishing fails once: what was acknowledged is recovered, and a failed write can be repeated. */
TEST(log, each_operation_fails_once) {
  bool reached = true;
  for (uint64_t n = 1; reached; n++) {
    struct sim_world world;
    sim_world_open(&world, n, 0);
    const uint64_t at = turb_simulation_operations(world.simulation) + n;
    turb_simulation_fail_at(world.simulation, at, n % 2 == 0 ? EIO : ENOSPC);
    struct log_model model = {.size_bound = 2000};
    const struct log_writer_options options = {
        .system = world.system, .allocator = alloc_default(), .folder = WORLD_FOLDER, .database_id = log_test_database, .number = 5};
    struct log_writer *writer = NULL;
    turb_error err = TURB_ERROR_INIT;
    if (log_writer_create(&options, &writer, &err) != TURB_OK) {
      CHECK(writer == NULL);
      CHECK(err.message[0] != '\0');
      struct log_writer_options again = options;
      again.number = 7;
      CHECK_OK(log_writer_create(&again, &writer, NULL));
    }
    bool final = false;
    for (size_t i = 0; i < 20; i++) {
      const turb_status status = i % 5 == 4 ? log_sync(writer, &model, NULL) : log_add(writer, &model, LOG_APPEND_SYNCED, NULL);
      final = final || status == TURB_UNKNOWN_OUTCOME;
    }
    const turb_status status = log_writer_finish(writer, 9, NULL);
    const uint64_t number = log_writer_number(writer);
    log_writer_close(writer);
    reached = turb_simulation_operations(world.simulation) >= at;
    turb_simulation_fail_at(world.simulation, 0, 0);
    struct log_seen seen = {.bound = 2000};
    const struct log_recovery_options recovery_options = log_options(world.system, WORLD_FOLDER, &seen);
    const struct log_recovery recovery = recover(&recovery_options, number);
    CHECK(seen.count >= (final ? model.synced : model.count));
    CHECK(recovery.ended || status != TURB_OK);
    sim_world_close(&world);
  }
}

/* ---- damage ---- */

/* A log of small records with syncs here and there, cut behind its last record. */
static void build_small(struct sim_world *world, struct log_model *model, uint64_t seed, size_t count) {
  struct random random;
  random_init(&random, seed);
  model->size_bound = 60;
  struct log_writer *writer = log_make(world->system, WORLD_FOLDER, 5);
  for (size_t i = 0; i < count; i++) {
    CHECK_OK(log_add(writer, model, LOG_APPEND_SYNCED, NULL));
    if (i + 4 < count && random_one_in(&random, 3)) { /* never covers the last few: they are a tail */
      CHECK_OK(log_sync(writer, model, NULL));
    }
  }
  CHECK_EQ(log_writer_end(writer), model->end[count - 1]);
  log_writer_close(writer);
  CHECK_OK(turb_simulation_truncate(world->simulation, LOG_5, model->end[count - 1], NULL));
}

/*
 * Recovers a log of which the records with broken[i] do not verify, and compares with the rule: the first broken one is a tail when no verifying record has a
 * mark beyond its begin, else damage.
 */
static void check_rule(const struct sim_world *world, const struct log_model *model, const bool *broken) {
  size_t first = 0;
  while (first < model->count && !broken[first]) {
    first++;
  }
  uint64_t mark = 0;
  for (size_t i = 0; i < model->count; i++) {
    mark = !broken[i] && model->mark[i] > mark ? model->mark[i] : mark;
  }
  struct log_seen seen = {.bound = model->size_bound};
  struct log_recovery_options options = log_options(world->system, WORLD_FOLDER, &seen);
  struct log_recovery recovery;
  turb_error err = TURB_ERROR_INIT;
  const turb_status status = log_recover(&options, 5, &recovery, &err);
  CHECK_EQ(seen.count, first);
  const bool damaged = first < model->count && model->offset[first] < mark;
  CHECK_STATUS_ERR(status, damaged ? TURB_CORRUPTION : TURB_OK, &err);
  if (!damaged) {
    CHECK_EQ(recovery.end, first == 0 ? recovery.begin : model->end[first - 1]);
  } else {
    CHECK_STR_EQ(err.file, LOG_5);
    CHECK_EQ(err.offset, model->offset[first]);
  }
  /* Salvage goes on from each break below the last mark at the next whole record, up to the first break at or beyond the mark. */
  size_t expected = 0;
  for (size_t i = 0; i < model->count; i++) {
    if (broken[i] && model->offset[i] >= mark) {
      break;
    }
    while (broken[i]) {
      i++; /* one with the mark follows */
    }
    expected++;
  }
  seen = (struct log_seen){.bound = model->size_bound, .gaps = true};
  options.salvage = true;
  recovery = recover(&options, 5);
  CHECK_EQ(seen.count, expected);
  CHECK_EQ(recovery.records, expected);
  CHECK_EQ(seen.skips, recovery.skipped_stretches);
  CHECK_EQ(seen.skipped_bytes, recovery.skipped_bytes);
  CHECK_EQ(seen.skips != 0, damaged);
}

TEST(log, every_bit_flip_is_a_tail_or_corruption) {
  struct sim_world world;
  sim_world_open(&world, test_seed(), 0);
  struct log_model model = {.count = 0};
  build_small(&world, &model, test_seed(), 12);
  for (uint64_t at = model.offset[0]; at < model.end[model.count - 1]; at++) {
    bool broken[MODEL_MOST] = {false};
    size_t hit = 0;
    while (at >= model.end[hit]) {
      hit++;
    }
    uint8_t payload[64];
    const bool padding = at >= model.offset[hit] + LOG_RECORD_BYTES + log_payload(hit, model.size_bound, payload);
    broken[hit] = true;
    for (uint32_t bit = 0; bit < 8; bit++) {
      CHECK_OK(turb_simulation_flip_bit(world.simulation, LOG_5, at, bit, NULL));
      if (padding) { /* the record verifies, and contradicts the format */
        struct log_seen seen = {.bound = model.size_bound};
        const struct log_recovery_options options = log_options(world.system, WORLD_FOLDER, &seen);
        struct log_recovery recovery;
        turb_error err = TURB_ERROR_INIT;
        CHECK_STATUS(log_recover(&options, 5, &recovery, &err), TURB_CORRUPTION);
        CHECK_EQ(err.offset, model.offset[hit]);
        CHECK_EQ(seen.count, hit);
      } else {
        check_rule(&world, &model, broken);
      }
      CHECK_OK(turb_simulation_flip_bit(world.simulation, LOG_5, at, bit, NULL));
    }
  }
  sim_world_close(&world);
}

TEST(log, flips_in_page_0_are_corruption_once_there_are_records) {
  struct sim_world world;
  sim_world_open(&world, 1, 0);
  struct log_model model = {.count = 0};
  build_small(&world, &model, 3, 8);
  for (uint64_t at = 0; at < LOG_PAGE_BYTES; at += at < 80 ? 1 : 31) {
    for (uint32_t bit = 0; bit < 8; bit++) {
      CHECK_OK(turb_simulation_flip_bit(world.simulation, LOG_5, at, bit, NULL));
      struct log_seen seen = {.bound = model.size_bound};
      struct log_recovery_options options = log_options(world.system, WORLD_FOLDER, &seen);
      struct log_recovery recovery;
      turb_error err = TURB_ERROR_INIT;
      CHECK_STATUS_ERR(log_recover(&options, 5, &recovery, &err), TURB_CORRUPTION, &err);
      CHECK_EQ(seen.count, 0);
      CHECK_STR_EQ(err.file, LOG_5);
      options.salvage = true;
      CHECK_OK(log_recover(&options, 5, &recovery, NULL));
      CHECK(recovery.unused && recovery.skipped_bytes == model.end[7]);
      CHECK_OK(turb_simulation_flip_bit(world.simulation, LOG_5, at, bit, NULL));
    }
  }
  sim_world_close(&world);
}

TEST(log, every_truncation_leaves_a_prefix) {
  struct sim_world world;
  sim_world_open(&world, test_seed(), 0);
  struct log_model model = {.count = 0};
  build_small(&world, &model, test_seed(), 10);
  for (uint64_t size = model.end[9]; size-- > 0;) {
    CHECK_OK(turb_simulation_truncate(world.simulation, LOG_5, size, NULL));
    struct log_seen seen = {.bound = model.size_bound};
    const struct log_recovery_options options = log_options(world.system, WORLD_FOLDER, &seen);
    struct log_recovery recovery;
    turb_error err = TURB_ERROR_INIT;
    CHECK_OK_ERR(log_recover(&options, 5, &recovery, &err), &err);
    size_t whole = 0;
    for (; whole < model.count; whole++) {
      uint8_t payload[64];
      size_t bytes = log_payload(whole, model.size_bound, payload);
      while (payload[bytes - 1] == 0 && model.offset[whole] + LOG_RECORD_BYTES + bytes > size) {
        bytes--; /* a zero at the end may be missing: the file is read as if zeros followed, up to a border */
      }
      if (model.offset[whole] + LOG_RECORD_BYTES + bytes > size) {
        break;
      }
    }
    CHECK_EQ(seen.count, whole);
    CHECK_EQ(recovery.unused, size < LOG_AT_CHECKSUM + 8);
    if (size > 200 && size < LOG_PAGE_BYTES - 10) {
      size -= 97;
    }
  }
  sim_world_close(&world);
}

TEST(log, random_damage_follows_the_rule) {
  struct random random;
  random_init(&random, test_seed());
  for (uint64_t round = 0; round < test_scale(60, 60, 3000); round++) {
    struct sim_world world;
    sim_world_open(&world, round, 0);
    struct log_model model = {.count = 0};
    build_small(&world, &model, random_u64(&random), (size_t)random_between(&random, 6, 60));
    bool broken[MODEL_MOST] = {false};
    for (uint64_t holes = random_between(&random, 1, 4); holes > 0; holes--) {
      /* Zeros or noise over a stretch, as of lost sectors. */
      uint8_t bytes[700] = {0};
      const uint64_t begin = model.offset[0];
      const uint64_t at = random_between(&random, begin, model.end[model.count - 1] - 1);
      uint64_t size = random_between(&random, 1, sizeof bytes);
      size = size < model.end[model.count - 1] - at ? size : model.end[model.count - 1] - at;
      if (random_one_in(&random, 2)) {
        random_fill(&random, bytes, sizeof bytes);
      }
      sim_world_write(&world, LOG_5, at, bytes, (size_t)size);
    }
    /* Which records are broken is asked of the bytes themselves. */
    for (size_t i = 0; i < model.count; i++) {
      uint8_t record[200] = {0};
      uint8_t wanted[64];
      const size_t size = log_payload(i, model.size_bound, wanted);
      sim_world_read(&world, LOG_5, model.offset[i], record, (size_t)(model.end[i] - model.offset[i]));
      uint64_t seed = 0;
      sim_world_read(&world, LOG_5, LOG_AT_SEED, &seed, 8);
      broken[i] = load_u64(record) != hash64(record + 8, LOG_RECORD_BYTES - 8 + size, table_part_seed(seed, model.offset[i])) ||
                  load_u32(record + LOG_RECORD_AT_SIZE) != size;
      for (uint64_t at = LOG_RECORD_BYTES + size; at < model.end[i] - model.offset[i] && !broken[i]; at++) {
        if (record[at] != 0) { /* noise in the padding alone: not this test's */
          uint8_t zeros[8] = {0};
          sim_world_write(&world, LOG_5, model.offset[i] + LOG_RECORD_BYTES + size, zeros,
                          (size_t)(model.end[i] - model.offset[i]) - LOG_RECORD_BYTES - size);
        }
      }
    }
    check_rule(&world, &model, broken);
    sim_world_close(&world);
  }
}

TEST(log, a_log_of_another_database_number_or_version_is_refused) {
  struct sim_world world;
  sim_world_open(&world, 1, 0);
  struct log_model model = {.count = 0};
  build_small(&world, &model, 3, 8);
  struct log_seen seen = {.bound = model.size_bound};
  struct log_recovery_options options = log_options(world.system, WORLD_FOLDER, &seen);
  struct log_recovery recovery;
  turb_error err = TURB_ERROR_INIT;
  options.database_id = (const uint8_t *)"another database";
  CHECK_STATUS(log_recover(&options, 5, &recovery, &err), TURB_CORRUPTION);
  CHECK(test_contains(err.message, "another database"));
  CHECK_STR_EQ(err.file, LOG_5);
  options.database_id = log_test_database;
  CHECK_OK(io_rename(world.system, LOG_5, LOG_6, NULL));
  err = (turb_error)TURB_ERROR_INIT;
  CHECK_STATUS(log_recover(&options, 6, &recovery, &err), TURB_CORRUPTION);
  CHECK(test_contains(err.message, "number 5"));
  uint8_t page[LOG_PAGE_BYTES];
  sim_world_read(&world, LOG_6, 0, page, sizeof page);
  store_u32(page + LOG_AT_VERSION, 2);
  store_u64(page + LOG_AT_CHECKSUM, hash64(page, LOG_AT_CHECKSUM, 0));
  sim_world_write(&world, LOG_6, 0, page, sizeof page);
  CHECK_STATUS(log_recover(&options, 6, &recovery, NULL), TURB_NEWER_FORMAT);
  CHECK_EQ(seen.count, 0);
  sim_world_close(&world);
}

TEST(log, a_creation_cut_short_is_an_unused_log) {
  struct sim_world world;
  sim_world_open(&world, 1, 0);
  struct log_writer *writer = log_make(world.system, WORLD_FOLDER, 5);
  log_writer_close(writer);
  struct log_seen seen = {.bound = 100};
  const struct log_recovery_options options = log_options(world.system, WORLD_FOLDER, &seen);
  struct log_recovery recovery = recover(&options, 5);
  CHECK(!recovery.unused);
  CHECK_EQ(recovery.end, recovery.begin);
  CHECK_OK(turb_simulation_flip_bit(world.simulation, LOG_5, 40, 1, NULL));
  CHECK(recover(&options, 5).unused);
  CHECK_OK(turb_simulation_truncate(world.simulation, LOG_5, 0, NULL));
  CHECK(recover(&options, 5).unused);
  sim_world_close(&world);
}

static turb_status refuse_third(void *context, const struct log_record *record, turb_error *err) {
  (void)record;
  return ++*(int *)context == 3 ? status_set(err, TURB_BUDGET, "enough") : TURB_OK;
}

TEST(log, the_callback_ends_a_recovery) {
  struct sim_world world;
  sim_world_open(&world, 1, 0);
  struct log_model model = {.count = 0};
  build_small(&world, &model, 3, 8);
  int calls = 0;
  struct log_recovery_options options = log_options(world.system, WORLD_FOLDER, NULL);
  options.record = refuse_third;
  options.context = &calls;
  struct log_recovery recovery;
  turb_error err = TURB_ERROR_INIT;
  CHECK_STATUS(log_recover(&options, 5, &recovery, &err), TURB_BUDGET);
  CHECK_STR_EQ(err.message, "enough");
  CHECK_EQ(calls, 3);
  CHECK_EQ(recovery.end, model.end[1]);
  sim_world_close(&world);
}

/* ---- the staging area ---- */

/* Turns a log into one with a staging area of `pages`: records move back, and those from `staged` on stand in the area alone. */
static void stage_tail(const struct sim_world *world, struct log_model *model, uint32_t pages, size_t staged, uint64_t hole) {
  uint8_t page[LOG_PAGE_BYTES];
  sim_world_read(world, LOG_5, 0, page, sizeof page);
  const uint64_t seed = load_u64(page + LOG_AT_SEED);
  store_u32(page + LOG_AT_STAGING_PAGES, pages);
  store_u64(page + LOG_AT_CHECKSUM, hash64(page, LOG_AT_CHECKSUM, 0));
  size_t size = (size_t)(log_begin(pages) + model->end[model->count - 1] + 4096 + hole);
  uint8_t *file = calloc(1, size);
  CHECK(file != NULL);
  memcpy(file, page, sizeof page);
  uint64_t in_area = LOG_PAGE_BYTES;
  const uint64_t shift = log_begin(pages) - LOG_PAGE_BYTES;
  for (size_t i = 0; i < model->count; i++) {
    const uint64_t moved = i >= staged ? shift + hole : shift;
    uint8_t record[200];
    const size_t bytes = (size_t)(model->end[i] - model->offset[i]);
    sim_world_read(world, LOG_5, model->offset[i], record, bytes);
    model->offset[i] += moved;
    model->end[i] += moved;
    model->mark[i] += shift;
    store_u64(record + LOG_RECORD_AT_OFFSET, model->offset[i]);
    store_u64(record + LOG_RECORD_AT_DURABLE, model->mark[i]);
    store_u64(record,
              hash64(record + 8, LOG_RECORD_BYTES - 8 + load_u32(record + LOG_RECORD_AT_SIZE), table_part_seed(seed, model->offset[i])));
    memcpy(file + (i >= staged ? in_area : model->offset[i]), record, bytes);
    in_area += i >= staged ? bytes : 0;
  }
  sim_world_store(world, LOG_5, file, size);
  free(file);
}

TEST(log, staged_records_are_laid_over_the_log) {
  for (size_t staged = 0; staged < 12; staged++) {
    struct sim_world world;
    sim_world_open(&world, staged, 0);
    struct log_model model = {.count = 0};
    build_small(&world, &model, staged, 12);
    stage_tail(&world, &model, 1, staged, 0);
    const bool broken[MODEL_MOST] = {false};
    check_rule(&world, &model, broken);
    struct log_seen seen = {.bound = model.size_bound};
    const struct log_recovery_options options = log_options(world.system, WORLD_FOLDER, &seen);
    struct log_set set;
    CHECK_OK(log_set_recover(&options, 5, &set, NULL));
    CHECK_EQ(set.logs[0].staged_bytes, model.end[11] - model.offset[staged]);
    /* Sealed, the records are in their place: the area may be lost. */
    CHECK_OK(log_set_seal(&options, &set, 6, NULL));
    log_set_free(&set);
    const uint8_t zeros[LOG_PAGE_BYTES] = {0};
    sim_world_write(&world, LOG_5, LOG_PAGE_BYTES, zeros, sizeof zeros);
    seen = (struct log_seen){.bound = model.size_bound};
    const struct log_recovery recovery = recover(&options, 5);
    CHECK_EQ(seen.count, 12);
    CHECK(recovery.ended);
    sim_world_close(&world);
  }
}

TEST(log, staged_records_behind_a_hole_are_a_tail_and_do_not_come_back) {
  for (uint64_t hole = 8; hole <= 64; hole += 8) {
    struct sim_world world;
    sim_world_open(&world, hole, 0);
    struct log_model model = {.count = 0};
    build_small(&world, &model, hole, 12);
    stage_tail(&world, &model, 1, 10, hole); /* the last ones are never below a mark */
    struct log_seen seen = {.bound = model.size_bound};
    const struct log_recovery_options options = log_options(world.system, WORLD_FOLDER, &seen);
    struct log_set set;
    CHECK_OK(log_set_recover(&options, 5, &set, NULL));
    CHECK_EQ(seen.count, 10);
    CHECK_EQ(set.logs[0].staged_bytes, 0);
    CHECK_OK(log_set_seal(&options, &set, 6, NULL));
    log_set_free(&set);
    seen = (struct log_seen){.bound = model.size_bound};
    const struct log_recovery recovery = recover(&options, 5);
    CHECK_EQ(seen.count, 10);
    CHECK(recovery.ended && recovery.next_number == 6);
    sim_world_close(&world);
  }
}

TEST(log, every_flip_in_the_staging_area_leaves_a_prefix) {
  struct sim_world world;
  sim_world_open(&world, 3, 0);
  struct log_model model = {.count = 0};
  build_small(&world, &model, 3, 12);
  stage_tail(&world, &model, 1, 9, 0);
  for (uint64_t at = LOG_PAGE_BYTES; at < LOG_PAGE_BYTES + (model.end[11] - model.offset[9]); at++) {
    CHECK_OK(turb_simulation_flip_bit(world.simulation, LOG_5, at, (uint32_t)(at % 8), NULL));
    struct log_seen seen = {.bound = model.size_bound};
    const struct log_recovery_options options = log_options(world.system, WORLD_FOLDER, &seen);
    struct log_recovery recovery;
    const turb_status status = log_recover(&options, 5, &recovery, NULL);
    CHECK(seen.count >= 9 && seen.count <= 12);
    CHECK(status == TURB_OK || status == TURB_CORRUPTION); /* of the padding */
    CHECK_OK(turb_simulation_flip_bit(world.simulation, LOG_5, at, (uint32_t)(at % 8), NULL));
  }
  sim_world_close(&world);
}

TEST(log, staged_marks_tell_that_a_log_was_cut) {
  struct sim_world world;
  sim_world_open(&world, 3, 0);
  struct log_model model = {.count = 0};
  build_small(&world, &model, 3, 12);
  stage_tail(&world, &model, 1, 9, 0);
  const uint64_t mark = model.mark[11];
  CHECK(mark > model.end[1]);
  CHECK_OK(turb_simulation_truncate(world.simulation, LOG_5, model.end[0], NULL));
  struct log_seen seen = {.bound = model.size_bound};
  struct log_recovery_options options = log_options(world.system, WORLD_FOLDER, &seen);
  struct log_recovery recovery;
  turb_error err = TURB_ERROR_INIT;
  CHECK_STATUS(log_recover(&options, 5, &recovery, &err), TURB_CORRUPTION);
  CHECK_EQ(err.offset, model.end[0]);
  CHECK_EQ(seen.count, 1);
  options.salvage = true;
  seen = (struct log_seen){.bound = model.size_bound};
  recovery = recover(&options, 5);
  CHECK_EQ(seen.count, 1);
  CHECK_EQ(recovery.skipped_bytes, mark - model.end[0]);
  sim_world_close(&world);
}

/* A process that appends and is killed: every record whose append returned is there. */
TEST(log, what_was_appended_survives_a_kill) {
  struct random random;
  random_init(&random, test_seed());
  struct io_system *system = open_backend(TURB_BACKEND_BLOCKING);
  uint64_t staged = 0;
  const size_t bound = 500;
  const char *parent = test_tmpdir();
  for (uint64_t round = 0; round < test_scale(20, 10, 60); round++) {
    char folder[512];
    (void)snprintf(folder, sizeof folder, "%s/%" PRIu64, parent, round);
    CHECK_OK(io_make_folder(system, folder, NULL));
    volatile uint64_t *acknowledged = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(acknowledged != MAP_FAILED);
    const uint64_t most = random_between(&random, 1, 3000);
    const uint64_t syncs = random_one_in(&random, 2) ? 0 : random_between(&random, 1, 200);
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
      struct log_writer *writer = log_make(system, folder, 5);
      struct log_model *model = calloc(1, sizeof *model);
      model->size_bound = bound;
      for (uint64_t i = 0; i < most; i++) {
        if (log_add(writer, model, LOG_APPEND_LOGGED, NULL) != TURB_OK ||
            (syncs != 0 && i % syncs == 0 && log_sync(writer, model, NULL) != TURB_OK)) {
          _exit(1);
        }
        *acknowledged = i + 1;
      }
      for (;;) {
        (void)kill(getpid(), SIGKILL); /* without closing */
      }
    }
    if (random_one_in(&random, 2)) {
      (void)usleep((useconds_t)random_below(&random, 4000));
      (void)kill(child, SIGKILL);
    }
    int outcome = 0;
    CHECK(waitpid(child, &outcome, 0) == child && WIFSIGNALED(outcome));
    struct log_seen seen = {.bound = bound};
    const struct log_recovery_options options = log_options(system, folder, &seen);
    struct log_set set;
    turb_error err = TURB_ERROR_INIT;
    CHECK_OK_ERR(log_set_recover(&options, 0, &set, &err), &err);
    CHECK(seen.count >= *acknowledged && seen.count <= *acknowledged + 1);
    staged += set.count != 0 ? set.logs[0].staged_bytes : 0;
    CHECK_OK(log_set_seal(&options, &set, 6, NULL));
    log_set_free(&set);
    (void)munmap((void *)(uintptr_t)acknowledged, 4096);
  }
  (void)fprintf(stderr, "bytes found in staging areas: %" PRIu64 "\n", staged);
  io_system_close(system);
}

/* ---- sets of logs ---- */

static void make_log(const struct sim_world *world, struct log_model *model, uint64_t number, size_t records, uint64_t next) {
  struct log_writer *writer = log_make(world->system, WORLD_FOLDER, number);
  for (size_t i = 0; i < records; i++) {
    CHECK_OK(log_add(writer, model, LOG_APPEND_LOGGED, NULL));
  }
  if (next != 0) {
    CHECK_OK(log_writer_finish(writer, next, NULL));
  }
  log_writer_close(writer);
}

static turb_status recover_set(const struct sim_world *world, uint64_t oldest, bool salvage, size_t *records, turb_error *err) {
  struct log_seen seen = {.bound = 100, .gaps = true};
  struct log_recovery_options options = log_options(world->system, WORLD_FOLDER, &seen);
  options.salvage = salvage;
  struct log_set set;
  const turb_status status = log_set_recover(&options, oldest, &set, err);
  log_set_free(&set);
  *records = seen.count;
  return status;
}

TEST(log, a_chain_is_recovered_in_order_and_its_breaks_are_found) {
  struct sim_world world;
  sim_world_open(&world, 1, 0);
  struct log_model model = {.size_bound = 100};
  make_log(&world, &model, 5, 3, 6);
  make_log(&world, &model, 6, 3, 12);
  make_log(&world, &model, 8, 0, 0); /* made in vain */
  make_log(&world, &model, 12, 3, 0);
  size_t records = 0;
  turb_error err = TURB_ERROR_INIT;
  CHECK_OK_ERR(recover_set(&world, 5, false, &records, &err), &err);
  CHECK_EQ(records, 9);
  CHECK_OK(recover_set(&world, 0, false, &records, NULL));
  CHECK_OK(recover_set(&world, 6, false, &records, NULL));
  CHECK_EQ(records, 6);
  CHECK_STATUS(recover_set(&world, 4, false, &records, &err), TURB_CORRUPTION); /* the oldest is missing */
  CHECK(test_contains(err.message, "log-000000000004.tlog"));
  CHECK_OK(recover_set(&world, 4, true, &records, NULL));
  CHECK_EQ(records, 9);
  /* One in the middle is gone. */
  CHECK_OK(io_rename(world.system, LOG_6, "/db/elsewhere", NULL));
  CHECK_STATUS(recover_set(&world, 5, false, &records, NULL), TURB_CORRUPTION);
  CHECK_OK(recover_set(&world, 5, true, &records, NULL));
  CHECK_EQ(records, 6);
  CHECK_OK(io_rename(world.system, "/db/elsewhere", LOG_6, NULL));
  /* The newest is gone. */
  CHECK_OK(io_rename(world.system, "/db/log-000000000012.tlog", "/db/elsewhere", NULL));
  err = (turb_error)TURB_ERROR_INIT;
  CHECK_STATUS(recover_set(&world, 5, false, &records, &err), TURB_CORRUPTION);
  CHECK(test_contains(err.message, "number 12"));
  CHECK_OK(io_rename(world.system, "/db/elsewhere", "/db/log-000000000012.tlog", NULL));
  /* One in the middle has lost its end. */
  CHECK_OK(turb_simulation_truncate(world.simulation, LOG_6, sim_world_size(&world, LOG_6) - 48, NULL));
  err = (turb_error)TURB_ERROR_INIT;
  CHECK_STATUS(recover_set(&world, 5, false, &records, &err), TURB_CORRUPTION);
  CHECK_EQ(records, 6);
  CHECK_STR_EQ(err.file, LOG_6);
  CHECK_OK(recover_set(&world, 5, true, &records, NULL));
  CHECK_EQ(records, 9);
  sim_world_close(&world);
}

TEST(log, sealing_makes_a_chain_of_what_was_recovered) {
  struct sim_world world;
  sim_world_open(&world, 1, 0);
  struct log_model model = {.size_bound = 100};
  make_log(&world, &model, 5, 3, 0);
  make_log(&world, &model, 7, 0, 0);
  CHECK_OK(turb_simulation_truncate(world.simulation, "/db/log-000000000007.tlog", 20, NULL)); /* unused */
  make_log(&world, &model, 8, 0, 0);
  struct log_seen seen = {.bound = 100};
  const struct log_recovery_options options = log_options(world.system, WORLD_FOLDER, &seen);
  struct log_set set;
  CHECK_OK(log_set_recover(&options, 5, &set, NULL));
  CHECK_EQ(set.count, 3);
  make_log(&world, &model, 9, 0, 0);
  CHECK_OK(log_set_seal(&options, &set, 9, NULL));
  CHECK_EQ(set.logs[0].next_number, 8);
  CHECK_EQ(set.logs[2].next_number, 9);
  CHECK_OK(log_set_seal(&options, &set, 9, NULL)); /* nothing left to do */
  log_set_free(&set);
  CHECK_OK(io_unlink(world.system, "/db/log-000000000009.tlog", NULL));
  make_log(&world, &model, 9, 4, 0);
  size_t records = 0;
  CHECK_OK(recover_set(&world, 5, false, &records, NULL));
  CHECK_EQ(records, 7);
  sim_world_close(&world);
}

/* ---- memory ---- */

TEST(log, each_allocation_fails) {
  struct sim_world world;
  sim_world_open(&world, 1, 0);
  struct test_allocator allocator;
  test_allocator_init(&allocator);
  struct log_model model = {.size_bound = 600000};
  make_log(&world, &model, 5, 5, 6);
  make_log(&world, &model, 6, 5, 0);
  for (uint64_t n = 1;; n++) {
    test_allocator_fail_at(&allocator, n);
    struct log_seen seen = {.bound = 600000};
    struct log_recovery_options options = log_options(world.system, WORLD_FOLDER, &seen);
    options.allocator = &allocator.base;
    struct log_set set;
    turb_error err = TURB_ERROR_INIT;
    turb_status status = log_set_recover(&options, 5, &set, &err);
    log_set_free(&set);
    const struct log_writer_options writer_options = {
        .system = world.system, .allocator = &allocator.base, .folder = WORLD_FOLDER, .database_id = log_test_database, .number = 100 + n};
    struct log_writer *writer = NULL;
    if (status == TURB_OK) {
      status = log_writer_create(&writer_options, &writer, &err);
    }
    log_writer_close(writer);
    test_allocator_check_empty(&allocator);
    if (!allocator.failed) {
      CHECK_OK(status);
      break;
    }
    CHECK_STATUS(status, TURB_NO_MEMORY);
    CHECK(err.message[0] != '\0');
  }
  sim_world_close(&world);
}
