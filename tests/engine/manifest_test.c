/* The manifest: editions and appends, damage of every kind, failures of the disk and of memory. Power cuts are in manifest_crash_test.c. */
#include "engine/manifest.h"

#include <errno.h>
#include <stdlib.h>

#include "base/coding.h"
#include "base/hash.h"
#include "engine/manifest_format.h"
#include "tests/engine/sim_world.h"

#define PATH      "/db/MANIFEST"
#define TEMPORARY "/db/MANIFEST.tmp"

static const struct catalog_collection plain = {.dimension = 16, .type = TURB_F32, .metric = TURB_L2};

static struct manifest_options options_of(const struct sim_world *world, const turb_allocator *allocator) {
  return (struct manifest_options){.system = world->system, .allocator = allocator, .folder = WORLD_FOLDER};
}

static struct manifest *create(const struct sim_world *world) {
  const struct manifest_options options = options_of(world, alloc_default());
  struct manifest *manifest = NULL;
  CHECK_OK(manifest_create(&options, &manifest, NULL));
  return manifest;
}

static turb_status open_it(const struct sim_world *world, bool read_only, struct manifest **manifest, turb_error *err) {
  struct manifest_options options = options_of(world, alloc_default());
  options.read_only = read_only;
  return manifest_open(&options, manifest, err);
}

/* Adds collection `id` by one edit. */
static turb_status add(struct manifest *manifest, uint64_t id, turb_error *err) {
  struct version_edit edit;
  edit_init(&edit, alloc_default());
  char name[32];
  (void)snprintf(name, sizeof name, "collection-%" PRIu64, id);
  edit_add_collection(&edit, id, name, &plain);
  edit_set_flushed(&edit, id, 100 + id);
  const turb_status status = manifest_append(manifest, &edit, err);
  edit_free(&edit);
  return status;
}

/* Exactly collections 1 to count are there. */
static void check_collections(const struct manifest *manifest, uint64_t count) {
  const struct catalog *catalog = manifest_catalog(manifest);
  CHECK_EQ(catalog_count(catalog, CATALOG_COLLECTION), count);
  for (uint64_t id = 1; id <= count; id++) {
    CHECK(catalog_collection(catalog, id) != NULL);
    CHECK_EQ(catalog_collection(catalog, id)->flushed_sequence, 100 + id);
  }
}

/* A read-only open: what it finds, or how it fails. Counts collections that ascend from 1. */
static turb_status look(const struct sim_world *world, uint64_t *count, turb_error *err) {
  struct manifest *manifest = NULL;
  const turb_status status = open_it(world, true, &manifest, err);
  *count = 0;
  if (status == TURB_OK) {
    *count = catalog_count(manifest_catalog(manifest), CATALOG_COLLECTION);
    check_collections(manifest, *count);
  } else {
    CHECK(manifest == NULL);
  }
  manifest_close(manifest);
  return status;
}

TEST(manifest, what_is_appended_is_there_when_opened) {
  struct sim_world world;
  sim_world_open(&world, test_seed(), 0);
  struct manifest *manifest = create(&world);
  uint8_t id[MANIFEST_DATABASE_ID_BYTES];
  memcpy(id, manifest_database_id(manifest), sizeof id);
  const uint64_t created = manifest_creation_seconds(manifest);
  CHECK_EQ(manifest_edition(manifest), 1);
  for (uint64_t i = 1; i <= 50; i++) {
    CHECK_OK(add(manifest, i, NULL));
    check_collections(manifest, i);
  }
  CHECK_STATUS(add(manifest, 50, NULL), TURB_INVALID);
  CHECK(manifest_is_settled(manifest));
  CHECK_EQ(manifest_bytes(manifest), sim_world_size(&world, PATH));
  manifest_close(manifest);
  for (uint64_t edition = 2; edition < 5; edition++) {
    sim_world_restart(&world);
    CHECK_OK(open_it(&world, false, &manifest, NULL));
    check_collections(manifest, 50 + edition - 2);
    CHECK_EQ(manifest_edition(manifest), edition);
    CHECK_EQ(manifest_creation_seconds(manifest), created);
    CHECK_MEM_EQ(manifest_database_id(manifest), id, sizeof id);
    CHECK_OK(add(manifest, 49 + edition, NULL));
    manifest_close(manifest);
  }
  /* Reading alone changes nothing. */
  const uint64_t size = sim_world_size(&world, PATH);
  CHECK_OK(open_it(&world, true, &manifest, NULL));
  CHECK_STATUS(add(manifest, 99, NULL), TURB_READ_ONLY);
  CHECK_STATUS(manifest_rewrite(manifest, NULL), TURB_READ_ONLY);
  CHECK_EQ(manifest_edition(manifest), 4);
  manifest_close(manifest);
  CHECK_EQ(sim_world_size(&world, PATH), size);
  sim_world_close(&world);
}

TEST(manifest, folders_that_are_none) {
  struct sim_world world;
  sim_world_open(&world, 1, 0);
  struct manifest *manifest = NULL;
  turb_error err = TURB_ERROR_INIT;
  CHECK_STATUS(open_it(&world, false, &manifest, &err), TURB_NOT_FOUND);
  CHECK(test_contains(err.message, "no database") && manifest == NULL);
  sim_world_write(&world, "/db/log-000000000001.tlog", 0, "x", 1);
  const struct manifest_options options = options_of(&world, alloc_default());
  CHECK_STATUS(open_it(&world, false, &manifest, NULL), TURB_NOT_A_DATABASE);
  CHECK_STATUS(manifest_create(&options, &manifest, NULL), TURB_NOT_A_DATABASE);
  CHECK_OK(io_unlink(world.system, "/db/log-000000000001.tlog", NULL));
  sim_world_write(&world, PATH, 0, "# a text", 8);
  err = (turb_error)TURB_ERROR_INIT;
  CHECK_STATUS(open_it(&world, false, &manifest, &err), TURB_NOT_A_DATABASE);
  CHECK_STR_EQ(err.file, PATH);
  CHECK_STATUS(manifest_create(&options, &manifest, NULL), TURB_EXISTS);
  CHECK_OK(turb_simulation_truncate(world.simulation, PATH, 0, NULL));
  CHECK_STATUS(open_it(&world, false, &manifest, NULL), TURB_NOT_A_DATABASE);
  CHECK_OK(io_unlink(world.system, PATH, NULL));
  /* What a cut creation leaves does not stand in the way. */
  sim_world_write(&world, TEMPORARY, 0, "half", 4);
  CHECK_STATUS(open_it(&world, false, &manifest, NULL), TURB_NOT_FOUND);
  CHECK_OK(manifest_create(&options, &manifest, NULL));
  CHECK_STATUS(io_stat(world.system, TEMPORARY, NULL, NULL, NULL), TURB_NOT_FOUND);
  manifest_close(manifest);
  sim_world_close(&world);
}

/* Makes a manifest of a snapshot and `count` edits and gives the border of each record: [0] is the snapshot's begin, [count + 1] the end. */
static void build(struct sim_world *world, uint64_t count, uint64_t *borders) {
  struct manifest *manifest = create(world);
  borders[0] = MANIFEST_HEADER_BYTES;
  for (uint64_t i = 1; i <= count; i++) {
    borders[i] = manifest_bytes(manifest);
    CHECK_OK(add(manifest, i, NULL));
  }
  borders[count + 1] = manifest_bytes(manifest);
  manifest_close(manifest);
}

#define EDITS 5

TEST(manifest, every_truncation_drops_a_torn_record_or_is_corruption) {
  struct sim_world world;
  sim_world_open(&world, 1, 0);
  uint64_t borders[EDITS + 2];
  build(&world, EDITS, borders);
  for (uint64_t size = borders[EDITS + 1]; size-- > 0;) {
    CHECK_OK(turb_simulation_truncate(world.simulation, PATH, size, NULL));
    uint64_t whole = 0; /* records, the snapshot one of them */
    while (whole <= EDITS && borders[whole + 1] <= size) {
      whole++;
    }
    uint64_t count = 0;
    turb_error err = TURB_ERROR_INIT;
    CHECK_STATUS_ERR(look(&world, &count, &err), whole != 0 ? TURB_OK : size < 8 ? TURB_NOT_A_DATABASE : TURB_CORRUPTION, &err);
    CHECK_EQ(count, whole != 0 ? whole - 1 : 0);
  }
  sim_world_close(&world);
}

TEST(manifest, every_bit_flip_is_found) {
  struct sim_world world;
  sim_world_open(&world, 1, 0);
  uint64_t borders[EDITS + 2];
  build(&world, EDITS, borders);
  for (uint64_t at = 0; at<borders[EDITS + 1]; at += at> 80 && at < MANIFEST_HEADER_BYTES - 40 ? 37 : 1) {
    for (uint32_t bit = 0; bit < 8; bit++) {
      CHECK_OK(turb_simulation_flip_bit(world.simulation, PATH, at, bit, NULL));
      uint64_t count = 0;
      turb_error err = TURB_ERROR_INIT;
      const turb_status status = look(&world, &count, &err);
      if (at < 8) {
        CHECK_STATUS_ERR(status, TURB_NOT_A_DATABASE, &err);
      } else if (status == TURB_OK) {
        CHECK(at >= borders[EDITS]); /* the last record might as well be torn */
        CHECK_EQ(count, EDITS - 1);
      } else {
        CHECK_STATUS_ERR(status, TURB_CORRUPTION, &err);
        CHECK_STR_EQ(err.file, PATH);
        uint64_t record = 0;
        while (at >= borders[record + 1]) {
          record++;
        }
        CHECK_EQ(err.offset, at < MANIFEST_HEADER_BYTES ? 0 : borders[record]);
      }
      CHECK_OK(turb_simulation_flip_bit(world.simulation, PATH, at, bit, NULL));
    }
  }
  sim_world_close(&world);
}

TEST(manifest, a_torn_record_is_gone_after_opening) {
  struct sim_world world;
  sim_world_open(&world, 1, 0);
  uint64_t borders[EDITS + 2];
  build(&world, EDITS, borders);
  const uint8_t noise[50] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 0, 0, 0, 0, 0, 0, 5};
  sim_world_write(&world, PATH, borders[EDITS + 1], noise, sizeof noise);
  struct manifest *manifest = NULL;
  CHECK_OK(open_it(&world, false, &manifest, NULL));
  check_collections(manifest, EDITS);
  CHECK_OK(add(manifest, EDITS + 1, NULL));
  manifest_close(manifest);
  uint64_t count = 0;
  CHECK_OK(look(&world, &count, NULL));
  CHECK_EQ(count, EDITS + 1);
  sim_world_close(&world);
}

TEST(manifest, newer_formats_are_refused) {
  struct sim_world world;
  sim_world_open(&world, 1, 0);
  uint64_t borders[EDITS + 2];
  build(&world, EDITS, borders);
  uint8_t page[MANIFEST_HEADER_BYTES];
  uint8_t before[MANIFEST_HEADER_BYTES];
  sim_world_read(&world, PATH, 0, before, sizeof before);
  memcpy(page, before, sizeof page);
  store_u32(page + MANIFEST_AT_VERSION, 2);
  store_u64(page + MANIFEST_AT_CHECKSUM, hash64(page, MANIFEST_AT_CHECKSUM, 0));
  sim_world_write(&world, PATH, 0, page, sizeof page);
  uint64_t count = 0;
  turb_error err = TURB_ERROR_INIT;
  CHECK_STATUS(look(&world, &count, &err), TURB_NEWER_FORMAT);
  CHECK(test_contains(err.message, "version 2"));
  sim_world_write(&world, PATH, 0, before, sizeof before);
  CHECK_OK(look(&world, &count, NULL));
  /* An edit with a tag of a later version, odd. */
  uint8_t record[24] = {0};
  store_u32(record + 8, 3);
  record[16] = 0x81;
  record[17] = 0x10; /* tag 2,049 */
  store_u64(record, hash64(record + 8, 11, table_part_seed(load_u64(before + MANIFEST_AT_SEED), borders[EDITS + 1])));
  sim_world_write(&world, PATH, borders[EDITS + 1], record, sizeof record);
  err = (turb_error)TURB_ERROR_INIT;
  CHECK_STATUS(look(&world, &count, &err), TURB_NEWER_FORMAT);
  CHECK_EQ(err.offset, borders[EDITS + 1]);
  CHECK(test_contains(err.message, "2049"));
  sim_world_close(&world);
}

TEST(manifest, it_is_rewritten_when_it_has_grown) {
  struct sim_world world;
  sim_world_open(&world, 1, 0);
  struct manifest *manifest = create(&world);
  CHECK_OK(add(manifest, 1, NULL));
  const uint64_t edition = manifest_edition(manifest);
  uint64_t largest = 0;
  struct version_edit edit;
  edit_init(&edit, alloc_default());
  for (uint64_t i = 0; i < 4000 && manifest_edition(manifest) == edition; i++) {
    edit_clear(&edit);
    for (uint64_t k = 0; k < 1000; k++) {
      edit_set_flushed(&edit, 1, i);
    }
    CHECK_OK(manifest_append(manifest, &edit, NULL));
    largest = manifest_bytes(manifest) > largest ? manifest_bytes(manifest) : largest;
  }
  edit_free(&edit);
  CHECK_EQ(manifest_edition(manifest), edition + 1);
  CHECK(largest > (3u << 20) && largest < (5u << 20));
  CHECK(manifest_bytes(manifest) < 8192);
  manifest_close(manifest);
  uint64_t count = 0;
  struct manifest *again = NULL;
  CHECK_OK(open_it(&world, true, &again, NULL));
  count = catalog_collection(manifest_catalog(again), 1)->flushed_sequence;
  CHECK(count > 100);
  manifest_close(again);
  sim_world_close(&world);
}

/* ---- failures of the disk ---- */

/*
 * Each operation of a workload fails once: creating, appending, opening. An append that failed did not happen, as later opens tell; the manifest goes
 * on afterwards.
 */
TEST(manifest, each_operation_fails_once) {
  bool reached = true;
  for (uint64_t n = 1; reached; n++) {
    struct sim_world world;
    sim_world_open(&world, n, 0);
    const uint64_t at = turb_simulation_operations(world.simulation) + n;
    turb_simulation_fail_at(world.simulation, at, n % 2 == 0 ? EIO : ENOSPC);
    const struct manifest_options options = options_of(&world, alloc_default());
    struct manifest *manifest = NULL;
    turb_error err = TURB_ERROR_INIT;
    turb_status status = manifest_create(&options, &manifest, &err);
    if (status != TURB_OK) {
      CHECK(err.message[0] != '\0' && manifest == NULL);
      /* The rename may have been done: then there is a database, and it is whole. */
      status = manifest_create(&options, &manifest, NULL);
      if (status == TURB_EXISTS) {
        status = manifest_open(&options, &manifest, NULL);
      }
      CHECK_OK(status);
    }
    uint64_t count = 0;
    for (int i = 0; i < 4; i++) {
      count += add(manifest, count + 1, NULL) == TURB_OK;
      check_collections(manifest, count);
    }
    manifest_close(manifest);
    manifest = NULL;
    if (open_it(&world, false, &manifest, NULL) != TURB_OK) {
      CHECK_OK(open_it(&world, false, &manifest, NULL));
    }
    check_collections(manifest, count);
    for (int i = 0; i < 3; i++) {
      count += add(manifest, count + 1, NULL) == TURB_OK;
    }
    check_collections(manifest, count);
    CHECK(count >= 6);
    manifest_close(manifest);
    reached = turb_simulation_operations(world.simulation) >= at;
    turb_simulation_fail_at(world.simulation, 0, 0);
    sim_world_restart(&world);
    uint64_t found = 0;
    CHECK_OK(look(&world, &found, NULL));
    CHECK_EQ(found, count);
    sim_world_close(&world);
  }
}

TEST(manifest, a_full_disk_leaves_what_was_there_and_passes) {
  struct sim_world world;
  sim_world_open(&world, 1, 0);
  struct manifest *manifest = create(&world);
  uint64_t count = 0;
  for (; count < 20; count++) {
    CHECK_OK(add(manifest, count + 1, NULL));
  }
  turb_simulation_set_capacity(world.simulation, manifest_bytes(manifest));
  turb_status status = TURB_OK;
  while ((status = add(manifest, count + 1, NULL)) == TURB_OK) {
    count++;
  }
  CHECK_STATUS(status, TURB_NO_SPACE);
  CHECK_STATUS(add(manifest, count + 1, NULL), TURB_NO_SPACE);
  check_collections(manifest, count);
  manifest_close(manifest);
  /* Still full: it opens, and reads. */
  CHECK_OK(open_it(&world, false, &manifest, NULL));
  check_collections(manifest, count);
  CHECK_STATUS(add(manifest, count + 1, NULL), TURB_NO_SPACE);
  turb_simulation_set_capacity(world.simulation, 0);
  CHECK_OK(add(manifest, count + 1, NULL));
  CHECK(manifest_is_settled(manifest));
  manifest_close(manifest);
  sim_world_restart(&world);
  uint64_t found = 0;
  CHECK_OK(look(&world, &found, NULL));
  CHECK_EQ(found, count + 1);
  sim_world_close(&world);
}

TEST(manifest, a_copy_stands_in_another_folder) {
  struct sim_world world;
  sim_world_open(&world, 1, 0);
  struct manifest *manifest = create(&world);
  CHECK_OK(add(manifest, 1, NULL));
  CHECK_OK(io_make_folder(world.system, "/copy", NULL));
  CHECK_OK(manifest_copy(manifest, manifest_catalog(manifest), "/copy", NULL));
  struct manifest_options options = options_of(&world, alloc_default());
  options.folder = "/copy";
  struct manifest *copy = NULL;
  CHECK_OK(manifest_open(&options, &copy, NULL));
  check_collections(copy, 1);
  CHECK_MEM_EQ(manifest_database_id(copy), manifest_database_id(manifest), MANIFEST_DATABASE_ID_BYTES);
  manifest_close(copy);
  manifest_close(manifest);
  sim_world_close(&world);
}

/* ---- memory ---- */

TEST(manifest, each_allocation_fails) {
  struct test_allocator allocator;
  test_allocator_init(&allocator);
  for (uint64_t n = 1;; n++) {
    struct sim_world world;
    sim_world_open(&world, n, 0);
    const struct manifest_options options = options_of(&world, &allocator.base);
    test_allocator_fail_at(&allocator, n);
    struct manifest *manifest = NULL;
    turb_status status = manifest_create(&options, &manifest, NULL);
    uint64_t count = 0;
    for (uint64_t i = 0; i < 3 && status == TURB_OK; i++) {
      status = add(manifest, i + 1, NULL);
      count += status == TURB_OK;
      check_collections(manifest, count);
      CHECK(manifest_is_settled(manifest));
    }
    manifest_close(manifest);
    manifest = NULL;
    if (status == TURB_OK) {
      status = manifest_open(&options, &manifest, NULL);
      if (status == TURB_OK) {
        check_collections(manifest, count);
      }
      manifest_close(manifest);
    }
    test_allocator_check_empty(&allocator);
    sim_world_close(&world);
    if (!allocator.failed) {
      CHECK_OK(status);
      break;
    }
    CHECK_STATUS(status, TURB_NO_MEMORY);
  }
}
