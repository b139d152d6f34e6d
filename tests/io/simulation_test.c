/* The simulated disk: what a power cut leaves, faults by number, determinism. */
#include <errno.h>
#include <stdlib.h>

#include "io/simulation.h"
#include "tests/io/disk.h"

#define READ_WRITE (IO_OPEN_READ | IO_OPEN_WRITE)
#define NEW_FILE   (READ_WRITE | IO_OPEN_CREATE | IO_OPEN_TRUNCATE)
#define PAGE       4096u
#define SECTOR     512u

/* How many seeds a test of what may happen tries; each outcome has a good share of them. */
#define SEEDS 200

struct world {
  turb_simulation *simulation;
  struct io_system *system;
};

static struct world world_make(uint64_t seed, uint64_t capacity) {
  struct world world = {NULL, NULL};
  turb_simulation_options options = TURB_SIMULATION_OPTIONS_INIT;
  options.seed = seed;
  options.capacity_bytes = capacity;
  CHECK_OK(turb_simulation_create(&options, &world.simulation, NULL));
  CHECK_OK(
      io_system_open(&(struct io_system_options){.backend = TURB_BACKEND_SIMULATED, .simulation = world.simulation}, &world.system, NULL));
  return world;
}

static void world_restart(struct world *world) {
  io_system_close(world->system);
  turb_simulation_restart(world->simulation);
  CHECK_OK(io_system_open(&(struct io_system_options){.backend = TURB_BACKEND_SIMULATED, .simulation = world->simulation}, &world->system,
                          NULL));
}

static void world_free(struct world *world) {
  io_system_close(world->system);
  turb_simulation_free(world->simulation);
}

static struct io_file *open_file(const struct world *world, const char *path, unsigned flags) {
  struct io_file *file = NULL;
  CHECK_OK(io_file_open(world->system, path, flags, &file, NULL));
  return file;
}

static void put_file(const struct world *world, const char *path, const void *data, size_t size, bool sync) {
  struct io_file *file = open_file(world, path, NEW_FILE);
  CHECK_OK(io_file_write(file, data, size, 0, NULL));
  if (sync) {
    CHECK_OK(io_file_sync(file, NULL));
  }
  io_file_release(file);
}

/* The size, or -1 without the file; its first `capacity` bytes. */
static int64_t get_file(const struct world *world, const char *path, uint8_t *data, size_t capacity) {
  struct io_file *file = NULL;
  if (io_file_open(world->system, path, IO_OPEN_READ, &file, NULL) != TURB_OK) {
    return -1;
  }
  uint64_t size = 0;
  CHECK_OK(io_file_size(file, &size, NULL));
  CHECK_OK(io_file_read(file, data, size < capacity ? size : capacity, 0, NULL));
  io_file_release(file);
  return (int64_t)size;
}

/* ---- content ---- */

TEST(simulation, synced_content_survives_and_unsynced_is_lost_torn_or_kept) {
  static uint8_t old[4 * PAGE];
  static uint8_t new[4 * PAGE];
  static uint8_t got[4 * PAGE];
  memset(old, 'o', sizeof old);
  memset(new, 'n', sizeof new);
  unsigned lost = 0;
  unsigned kept = 0;
  unsigned torn = 0;
  for (uint64_t seed = 0; seed < SEEDS; seed++) {
    struct world world = world_make(seed, 0);
    put_file(&world, "f", old, sizeof old, true);
    CHECK_OK(io_sync_folder(world.system, "/", NULL));
    struct io_file *file = open_file(&world, "f", READ_WRITE);
    CHECK_OK(io_file_write(file, new, 2 * PAGE, PAGE, NULL)); /* pages 1 and 2 alone */
    io_file_release(file);
    world_restart(&world);
    CHECK_EQ(get_file(&world, "f", got, sizeof got), sizeof got);
    CHECK_MEM_EQ(got, old, PAGE);
    CHECK_MEM_EQ(got + 3 * PAGE, old, PAGE);
    for (size_t page = 1; page < 3; page++) {
      unsigned changed = 0;
      for (size_t at = page * PAGE; at < (page + 1) * PAGE; at += SECTOR) {
        const bool is_new = memcmp(got + at, new, SECTOR) == 0;
        CHECK(is_new || memcmp(got + at, old, SECTOR) == 0);
        changed += is_new;
      }
      lost += changed == 0;
      kept += changed == PAGE / SECTOR;
      torn += changed != 0 && changed != PAGE / SECTOR;
    }
    /* Once restarted it is all durable: another cut changes nothing. */
    static uint8_t again[4 * PAGE];
    world_restart(&world);
    CHECK_EQ(get_file(&world, "f", again, sizeof again), sizeof again);
    CHECK_MEM_EQ(again, got, sizeof got);
    world_free(&world);
  }
  CHECK_GT(lost, 20);
  CHECK_GT(kept, 20);
  CHECK_GT(torn, 20);
}

TEST(simulation, unsynced_growth_ends_anywhere_and_holes_read_as_zeros) {
  static uint8_t data[8 * PAGE];
  static uint8_t got[8 * PAGE];
  memset(data, 'd', sizeof data);
  unsigned none = 0;
  unsigned all = 0;
  unsigned between = 0;
  for (uint64_t seed = 0; seed < SEEDS; seed++) {
    struct world world = world_make(seed, 0);
    put_file(&world, "f", data, 1000, true);
    CHECK_OK(io_sync_folder(world.system, "/", NULL));
    struct io_file *file = open_file(&world, "f", READ_WRITE);
    CHECK_OK(io_file_write(file, data, sizeof data - 1000, 1000, NULL));
    io_file_release(file);
    world_restart(&world);
    const int64_t size = get_file(&world, "f", got, sizeof got);
    CHECK(size >= 1000 && size <= (int64_t)sizeof data);
    none += size == 1000;
    all += size == (int64_t)sizeof data;
    between += size != 1000 && size != (int64_t)sizeof data;
    CHECK_MEM_EQ(got, data, 1000);
    for (int64_t i = 1000; i < size; i++) {
      CHECK(got[i] == 'd' || got[i] == 0);
    }
    /* What lies behind the end is gone: a file that grows again is zero there. */
    file = open_file(&world, "f", READ_WRITE);
    CHECK_OK(io_file_truncate(file, sizeof data, NULL));
    CHECK_OK(io_file_read(file, got, sizeof got, 0, NULL));
    for (size_t i = (size_t)size; i < sizeof got; i++) {
      CHECK_EQ(got[i], 0);
    }
    io_file_release(file);
    world_free(&world);
  }
  CHECK_GT(none, 20);
  CHECK_GT(all, 20);
  CHECK_GT(between, 20);
}

TEST(simulation, unsynced_truncation_happened_or_not) {
  static uint8_t data[3 * PAGE];
  static uint8_t got[3 * PAGE];
  memset(data, 'd', sizeof data);
  unsigned outcomes[2] = {0, 0};
  for (uint64_t seed = 0; seed < SEEDS; seed++) {
    struct world world = world_make(seed, 0);
    put_file(&world, "f", data, sizeof data, true);
    CHECK_OK(io_sync_folder(world.system, "/", NULL));
    struct io_file *file = open_file(&world, "f", READ_WRITE);
    CHECK_OK(io_file_truncate(file, 100, NULL));
    io_file_release(file);
    world_restart(&world);
    const int64_t size = get_file(&world, "f", got, sizeof got);
    CHECK(size == 100 || size == (int64_t)sizeof data);
    outcomes[size == 100]++;
    world_free(&world);
  }
  CHECK_GT(outcomes[0], 20);
  CHECK_GT(outcomes[1], 20);
}

/* As Linux: the pages are clean, the next sync says well, and what the first did not save is not saved. */
TEST(simulation, sync_after_a_failed_sync_saves_nothing) {
  uint8_t data[PAGE];
  uint8_t got[PAGE];
  memset(data, 'd', sizeof data);
  unsigned lost = 0;
  for (uint64_t seed = 0; seed < SEEDS; seed++) {
    struct world world = world_make(seed, 0);
    memset(got, 0, sizeof got);
    put_file(&world, "f", got, sizeof got, true);
    CHECK_OK(io_sync_folder(world.system, "/", NULL));
    struct io_file *file = open_file(&world, "f", READ_WRITE);
    CHECK_OK(io_file_write(file, data, sizeof data, 0, NULL));
    turb_simulation_fail_at(world.simulation, turb_simulation_operations(world.simulation) + 1, EIO);
    CHECK_STATUS(io_file_sync(file, NULL), TURB_IO);
    CHECK_STATUS(io_file_sync(file, NULL), TURB_IO);
    io_file_release(file);
    file = open_file(&world, "f", READ_WRITE);
    CHECK_OK(io_file_sync(file, NULL)); /* another opening knows nothing of it */
    io_file_release(file);
    world_restart(&world);
    CHECK_EQ(get_file(&world, "f", got, sizeof got), sizeof got);
    lost += memcmp(got, data, sizeof data) != 0;
    world_free(&world);
  }
  CHECK_GT(lost, 20);
}

/* ---- names ---- */

TEST(simulation, name_is_durable_by_the_sync_of_its_folder_alone) {
  uint8_t got[16];
  unsigned there = 0;
  for (uint64_t seed = 0; seed < SEEDS; seed++) {
    struct world world = world_make(seed, 0);
    put_file(&world, "synced", "content", 7, true);
    CHECK_OK(io_sync_folder(world.system, "/", NULL));
    put_file(&world, "loose", "content", 7, true); /* its content is safe, its name is not */
    world_restart(&world);
    CHECK_EQ(get_file(&world, "synced", got, sizeof got), 7);
    const int64_t size = get_file(&world, "loose", got, sizeof got);
    CHECK(size == -1 || size == 7);
    there += size == 7;
    if (size == 7) {
      CHECK_MEM_EQ(got, "content", 7);
    }
    world_free(&world);
  }
  CHECK_GT(there, 20);
  CHECK_LT(there, SEEDS - 20);
}

TEST(simulation, content_without_sync_behind_a_durable_name_is_open) {
  uint8_t got[16];
  unsigned empty = 0;
  for (uint64_t seed = 0; seed < SEEDS; seed++) {
    struct world world = world_make(seed, 0);
    put_file(&world, "f", "content", 7, false);
    CHECK_OK(io_sync_folder(world.system, "/", NULL));
    world_restart(&world);
    const int64_t size = get_file(&world, "f", got, sizeof got);
    CHECK(size >= 0 && size <= 7);
    empty += size == 0;
    world_free(&world);
  }
  CHECK_GT(empty, 20); /* the empty file after power loss that others were hit by */
}

TEST(simulation, rename_is_old_or_new) {
  uint8_t got[16];
  unsigned outcomes[2] = {0, 0};
  for (uint64_t seed = 0; seed < SEEDS; seed++) {
    struct world world = world_make(seed, 0);
    put_file(&world, "CURRENT", "old", 3, true);
    CHECK_OK(io_sync_folder(world.system, "/", NULL));
    put_file(&world, "CURRENT.new", "newer", 5, true);
    const bool covered = seed % 4 == 0;
    CHECK_OK(io_rename(world.system, "CURRENT.new", "CURRENT", NULL));
    if (covered) {
      CHECK_OK(io_sync_folder(world.system, "/", NULL));
    }
    world_restart(&world);
    const int64_t size = get_file(&world, "CURRENT", got, sizeof got);
    const int64_t temporary = get_file(&world, "CURRENT.new", got + 8, 8);
    CHECK(size == 3 || size == 5);
    CHECK(size != 5 || temporary == -1); /* the file has one name, not two */
    CHECK(!covered || size == 5);
    CHECK_MEM_EQ(got, size == 5 ? "newer" : "old", (size_t)size);
    outcomes[size == 5] += !covered;
    world_free(&world);
  }
  CHECK_GT(outcomes[0], 20);
  CHECK_GT(outcomes[1], 20);
}

TEST(simulation, order_of_names_is_not_promised) {
  uint8_t got[16];
  unsigned unlink_alone = 0;
  for (uint64_t seed = 0; seed < SEEDS; seed++) {
    struct world world = world_make(seed, 0);
    put_file(&world, "a", "1", 1, true);
    put_file(&world, "b", "1", 1, true);
    CHECK_OK(io_sync_folder(world.system, "/", NULL));
    CHECK_OK(io_rename(world.system, "a", "c", NULL));
    CHECK_OK(io_unlink(world.system, "b", NULL));
    world_restart(&world);
    unlink_alone += get_file(&world, "a", got, 1) == 1 && get_file(&world, "b", got, 1) == -1;
    world_free(&world);
  }
  CHECK_GT(unlink_alone, 10);
}

TEST(simulation, rename_between_folders_is_covered_by_either_sync) {
  uint8_t got[16];
  for (uint64_t seed = 0; seed < SEEDS; seed++) {
    struct world world = world_make(seed, 0);
    CHECK_OK(io_make_folder(world.system, "x", NULL));
    CHECK_OK(io_make_folder(world.system, "y", NULL));
    CHECK_OK(io_sync_folder(world.system, "/", NULL));
    put_file(&world, "x/f", "1", 1, true); /* its making is pending in x */
    CHECK_OK(io_rename(world.system, "x/f", "y/f", NULL));
    CHECK_OK(io_sync_folder(world.system, seed % 2 == 0 ? "y" : "x", NULL));
    world_restart(&world);
    CHECK_EQ(get_file(&world, "y/f", got, 1), 1);
    CHECK_EQ(get_file(&world, "x/f", got, 1), -1);
    world_free(&world);
  }
}

TEST(simulation, lost_folder_takes_all_in_it_along) {
  uint8_t got[16];
  unsigned lost = 0;
  for (uint64_t seed = 0; seed < SEEDS; seed++) {
    struct world world = world_make(seed, 1 << 20);
    CHECK_OK(io_make_folder(world.system, "d", NULL));
    put_file(&world, "d/f", "1", 1, true);
    CHECK_OK(io_sync_folder(world.system, "d", NULL));
    world_restart(&world);
    lost += get_file(&world, "d/f", got, 1) == -1;
    world_free(&world);
  }
  CHECK_GT(lost, 20);
  CHECK_LT(lost, SEEDS - 20);
}

/* ---- power ---- */

TEST(simulation, everything_fails_without_power_and_old_openings_stay_dead) {
  struct world world = world_make(1, 0);
  struct io_file *file = open_file(&world, "f", NEW_FILE);
  struct io_lock *lock = NULL;
  struct io_lock *second = NULL;
  uint8_t data[8] = "1234567";
  CHECK_OK(io_sync_folder(world.system, "/", NULL));
  CHECK_OK(io_lock(world.system, "LOCK", false, &lock, NULL));
  CHECK_OK(io_file_write(file, data, 8, 0, NULL));
  CHECK_OK(io_file_sync(file, NULL));
  CHECK_OK(io_sync_folder(world.system, "/", NULL));
  turb_simulation_cut_power_at(world.simulation, turb_simulation_operations(world.simulation) + 2);
  CHECK_OK(io_file_read(file, data, 8, 0, NULL));
  uint64_t size = 0;
  struct io_file *other = NULL;
  CHECK_STATUS(io_file_read(file, data, 8, 0, NULL), TURB_IO);
  CHECK_STATUS(io_file_write(file, data, 8, 0, NULL), TURB_IO);
  CHECK_STATUS(io_file_size(file, &size, NULL), TURB_IO);
  CHECK_STATUS(io_file_truncate(file, 0, NULL), TURB_IO);
  CHECK_STATUS(io_file_allocate(file, 0, 10, true, NULL), TURB_IO);
  CHECK_STATUS(io_file_open(world.system, "f", READ_WRITE, &other, NULL), TURB_IO);
  CHECK_STATUS(io_make_folder(world.system, "d", NULL), TURB_IO);
  CHECK_STATUS(io_rename(world.system, "f", "g", NULL), TURB_IO);
  CHECK_STATUS(io_unlink(world.system, "f", NULL), TURB_IO);
  CHECK_STATUS(io_sync_folder(world.system, "/", NULL), TURB_IO);
  CHECK_STATUS(io_stat(world.system, "f", NULL, NULL, NULL), TURB_IO);
  CHECK_STATUS(io_lock(world.system, "LOCK", true, &second, NULL), TURB_IO);
  /* The dead system still has its files and its lock when the disk comes back. */
  turb_simulation_restart(world.simulation);
  struct world next = {world.simulation, NULL};
  CHECK_OK(
      io_system_open(&(struct io_system_options){.backend = TURB_BACKEND_SIMULATED, .simulation = world.simulation}, &next.system, NULL));
  CHECK_OK(io_lock(next.system, "LOCK", false, &second, NULL));
  CHECK_STATUS(io_file_write(file, "x", 1, 0, NULL), TURB_IO);
  CHECK_STATUS(io_file_sync(file, NULL), TURB_IO);
  io_unlock(lock); /* does not free what the new system holds */
  CHECK_STATUS(io_lock(next.system, "LOCK", false, &lock, NULL), TURB_LOCKED);
  uint8_t got[8];
  CHECK_EQ(get_file(&next, "f", got, 8), 8);
  CHECK_MEM_EQ(got, "1234567", 8);
  io_unlock(second);
  io_file_release(file);
  io_system_close(next.system);
  world_free(&world);
}

static void count_completion(struct io_op *op) {
  (*(unsigned *)op->owner)++;
}

TEST(simulation, power_cut_completes_what_is_in_flight) {
  for (uint64_t seed = 0; seed < 50; seed++) {
    struct world world = world_make(seed, 0);
    struct io_file *file = open_file(&world, "f", NEW_FILE);
    struct io_ring *ring = NULL;
    CHECK_OK(io_ring_lease(world.system, &ring, NULL));
    static uint8_t data[16][PAGE];
    struct io_op ops[16];
    unsigned completions = 0;
    turb_simulation_cut_power_at(world.simulation, turb_simulation_operations(world.simulation) + 1 + seed % 17);
    for (size_t i = 0; i < 16; i++) {
      ops[i] =
          (struct io_op){.kind = IO_WRITE, .file = file, .data = data[i], .size = PAGE, .offset = i * PAGE, .complete = count_completion};
      ops[i].owner = &completions;
      CHECK(io_ring_queue(ring, &ops[i]));
    }
    CHECK_OK(io_ring_wait(ring, 16, IO_NO_TIMEOUT, NULL));
    CHECK_EQ(completions, 16);
    unsigned good = 0;
    for (size_t i = 0; i < 16; i++) {
      CHECK(ops[i].status == TURB_OK || ops[i].status == TURB_IO);
      good += ops[i].status == TURB_OK;
    }
    CHECK_EQ(good, seed % 17);
    io_ring_return(ring);
    io_file_release(file);
    world_free(&world);
  }
}

/* ---- capacity ---- */

TEST(simulation, full_disk_refuses_and_recovers) {
  struct world world = world_make(1, 10 * PAGE);
  static uint8_t data[10 * PAGE];
  memset(data, 'x', sizeof data);
  put_file(&world, "a", data, 6 * PAGE, true);
  struct io_file *file = open_file(&world, "b", NEW_FILE);
  turb_error error = TURB_ERROR_INIT;
  CHECK_STATUS(io_file_write(file, data, 5 * PAGE, 0, &error), TURB_NO_SPACE);
  CHECK(test_contains(error.message, "(b"));
  CHECK_OK(io_file_truncate(file, 0, NULL));
  CHECK_STATUS(io_file_allocate(file, 0, 5 * PAGE, true, NULL), TURB_NO_SPACE);
  CHECK_OK(io_file_allocate(file, 0, 4 * PAGE, true, NULL));
  CHECK_OK(io_file_write(file, data, 4 * PAGE, 0, NULL)); /* reserved space is there to be written */
  CHECK_STATUS(io_file_write(file, data, 1, 4 * PAGE, NULL), TURB_NO_SPACE);
  CHECK_OK(io_file_write(file, data, PAGE, 0, NULL)); /* in place */
  CHECK_OK(io_unlink(world.system, "a", NULL));
  CHECK_OK(io_file_write(file, data, 6 * PAGE, 4 * PAGE, NULL));
  CHECK_STATUS(io_file_write(file, data, 1, 10 * PAGE, NULL), TURB_NO_SPACE);
  turb_simulation_set_capacity(world.simulation, 0);
  CHECK_OK(io_file_write(file, data, 10 * PAGE, 10 * PAGE, NULL));
  CHECK_OK(io_file_sync(file, NULL));
  CHECK_OK(io_unlink(world.system, "b", NULL)); /* open: it still takes room */
  turb_simulation_set_capacity(world.simulation, 20 * PAGE);
  struct io_file *other = open_file(&world, "c", NEW_FILE);
  CHECK_STATUS(io_file_write(other, data, 1, 0, NULL), TURB_NO_SPACE);
  io_file_release(file);
  CHECK_OK(io_file_write(other, data, 10 * PAGE, 0, NULL));
  CHECK_OK(io_link(world.system, "c", "d", NULL)); /* two names count once */
  CHECK_OK(io_file_sync(other, NULL));
  CHECK_OK(io_sync_folder(world.system, "/", NULL));
  io_file_release(other);
  world_restart(&world);
  other = open_file(&world, "e", NEW_FILE);
  CHECK_OK(io_file_write(other, data, 10 * PAGE, 0, NULL));
  CHECK_STATUS(io_file_write(other, data, 1, 10 * PAGE, NULL), TURB_NO_SPACE);
  io_file_release(other);
  world_free(&world);
}

/* ---- damage and lists ---- */

TEST(simulation, flips_bits_and_truncates_on_the_disk_itself) {
  struct world world = world_make(1, 0);
  static uint8_t data[2 * PAGE];
  static uint8_t got[2 * PAGE];
  put_file(&world, "f", data, sizeof data, true);
  CHECK_OK(io_sync_folder(world.system, "/", NULL));
  struct io_file *file = open_file(&world, "f", READ_WRITE);
  CHECK_OK(io_file_write(file, data, 100, PAGE, NULL)); /* one page clean, one dirty */
  io_file_release(file);
  CHECK_OK(turb_simulation_flip_bit(world.simulation, "/f", 10, 3, NULL));
  CHECK_OK(turb_simulation_flip_bit(world.simulation, "./f", PAGE + 10, 7, NULL));
  turb_error error = TURB_ERROR_INIT;
  CHECK_STATUS(turb_simulation_flip_bit(world.simulation, "f", sizeof data, 0, &error), TURB_INVALID);
  CHECK_EQ(error.offset, sizeof data);
  CHECK_STATUS(turb_simulation_flip_bit(world.simulation, "f", 0, 8, NULL), TURB_INVALID);
  CHECK_STATUS(turb_simulation_flip_bit(world.simulation, "none", 0, 0, NULL), TURB_NOT_FOUND);
  for (int restart = 0; restart < 2; restart++) {
    CHECK_EQ(get_file(&world, "f", got, sizeof got), sizeof got);
    for (size_t i = 0; i < sizeof got; i++) {
      CHECK_EQ(got[i], i == 10 ? 8 : i == PAGE + 10 ? 128 : 0);
    }
    world_restart(&world);
  }
  CHECK_OK(turb_simulation_truncate(world.simulation, "f", 11, NULL));
  world_restart(&world);
  CHECK_EQ(get_file(&world, "f", got, sizeof got), 11);
  CHECK_EQ(got[10], 8);
  CHECK_STATUS(turb_simulation_truncate(world.simulation, "none", 0, NULL), TURB_NOT_FOUND);
  world_free(&world);
}

struct listing {
  char text[256];
};

static void add_to_listing(void *context, const char *path, uint64_t size_bytes) {
  struct listing *listing = context;
  const size_t used = strlen(listing->text);
  (void)snprintf(listing->text + used, sizeof listing->text - used, "%s:%d ", path, (int)size_bytes);
}

TEST(simulation, lists_files_in_order_of_names) {
  struct world world = world_make(1, 0);
  CHECK_OK(io_make_folder(world.system, "/b", NULL));
  CHECK_OK(io_make_folder(world.system, "b/empty/", NULL));
  put_file(&world, "c", "", 0, false);
  put_file(&world, "b/z", "12", 2, false);
  put_file(&world, "b//a", "1", 1, false);
  put_file(&world, "./a", "123", 3, false);
  put_file(&world, "gone", "123", 3, false);
  CHECK_OK(io_unlink(world.system, "gone", NULL));
  struct listing listing = {""};
  turb_simulation_list(world.simulation, add_to_listing, &listing);
  CHECK_STR_EQ(listing.text, "a:3 b/a:1 b/z:2 c:0 ");
  world_free(&world);
}

TEST(simulation, refuses_options_out_of_bounds) {
  turb_simulation *simulation = NULL;
  turb_error error = TURB_ERROR_INIT;
  turb_simulation_options options = TURB_SIMULATION_OPTIONS_INIT;
  options.reorder_percent = 101;
  CHECK_STATUS(turb_simulation_create(&options, &simulation, &error), TURB_INVALID);
  CHECK(test_contains(error.message, "reorder_percent"));
  CHECK(test_contains(error.message, "101"));
  options.reorder_percent = 0;
  options.size = 0;
  CHECK_STATUS(turb_simulation_create(&options, &simulation, NULL), TURB_INVALID);
  struct {
    turb_simulation_options options;
    uint64_t more;
  } larger = {.options = TURB_SIMULATION_OPTIONS_INIT, .more = 0};
  larger.options.size = sizeof larger;
  CHECK_OK(turb_simulation_create(&larger.options, &simulation, NULL));
  turb_simulation_free(simulation);
  larger.more = 1;
  CHECK_STATUS(turb_simulation_create(&larger.options, &simulation, NULL), TURB_INVALID);
  CHECK(simulation == NULL);
  CHECK_OK(turb_simulation_create(NULL, &simulation, NULL));
  turb_simulation_free(simulation);
  turb_simulation_free(NULL);
}

/* ---- the clock ---- */

TEST(simulation, every_call_that_touches_the_disk_is_an_operation) {
  struct world world = world_make(1, 0);
  uint64_t before = turb_simulation_operations(world.simulation);
  struct io_file *file = open_file(&world, "f", NEW_FILE);
  struct io_lock *lock = NULL;
  uint8_t byte = 0;
  CHECK_OK(io_file_write(file, &byte, 1, 0, NULL));
  CHECK_OK(io_file_read(file, &byte, 1, 0, NULL));
  CHECK_OK(io_file_sync(file, NULL));
  CHECK_OK(io_file_truncate(file, 1, NULL));
  CHECK_OK(io_file_allocate(file, 0, 1, true, NULL));
  CHECK_OK(io_make_folder(world.system, "d", NULL));
  CHECK_OK(io_remove_folder(world.system, "d", NULL));
  CHECK_OK(io_link(world.system, "f", "g", NULL));
  CHECK_OK(io_rename(world.system, "g", "h", NULL));
  CHECK_OK(io_unlink(world.system, "h", NULL));
  CHECK_OK(io_sync_folder(world.system, "/", NULL));
  CHECK_OK(io_stat(world.system, "f", NULL, NULL, NULL));
  CHECK_OK(io_lock(world.system, "LOCK", false, &lock, NULL));
  CHECK_EQ(turb_simulation_operations(world.simulation), before + 14);
  io_unlock(lock);
  io_file_release(file);
  world_free(&world);
}

/* ---- the schedule ---- */

#define RECORDED 64

struct record {
  uint64_t order[RECORDED];
  size_t count;
  uint64_t operations, hash;
};

struct recorded_op {
  struct io_op op;
  struct record *record;
  uint64_t number;
};

static void record_completion(struct io_op *op) {
  struct recorded_op *recorded = op->owner;
  recorded->record->order[recorded->record->count++] = recorded->number;
}

static void run_recorded(uint64_t seed, struct record *record) {
  turb_simulation *simulation = NULL;
  turb_simulation_options options = TURB_SIMULATION_OPTIONS_INIT;
  options.seed = seed;
  options.reorder_percent = 50;
  options.short_percent = 50;
  CHECK_OK(turb_simulation_create(&options, &simulation, NULL));
  struct world world = {simulation, NULL};
  CHECK_OK(io_system_open(&(struct io_system_options){.backend = TURB_BACKEND_SIMULATED, .simulation = simulation}, &world.system, NULL));
  memset(record, 0, sizeof *record);
  struct io_file *file = open_file(&world, "f", NEW_FILE);
  struct io_ring *ring = NULL;
  CHECK_OK(io_ring_lease(world.system, &ring, NULL));
  static uint8_t data[RECORDED][5000];
  struct recorded_op ops[RECORDED];
  for (uint64_t i = 0; i < RECORDED; i++) {
    disk_fill(data[i], sizeof data[i], i);
    ops[i] = (struct recorded_op){.op = {.kind = IO_WRITE, .file = file, .data = data[i], .size = 5000, .offset = i * 3000}, .number = i};
    ops[i].op.complete = record_completion;
    ops[i].op.owner = &ops[i];
    ops[i].record = record;
    CHECK(io_ring_queue(ring, &ops[i].op));
  }
  CHECK_OK(io_ring_wait(ring, RECORDED, IO_NO_TIMEOUT, NULL));
  io_ring_return(ring);
  io_file_release(file);
  CHECK_OK(io_sync_folder(world.system, "/", NULL));
  world_restart(&world);
  static uint8_t got[RECORDED * 3000 + 2000];
  memset(got, 0, sizeof got);
  (void)get_file(&world, "f", got, sizeof got);
  record->hash = 0;
  for (size_t i = 0; i < sizeof got; i++) {
    record->hash = record->hash * 31 + got[i];
  }
  record->operations = turb_simulation_operations(simulation);
  world_free(&world);
}

TEST(simulation, same_seed_and_calls_same_schedule) {
  static struct record first;
  static struct record second;
  const uint64_t seed = test_seed();
  run_recorded(seed, &first);
  run_recorded(seed, &second);
  CHECK_EQ(first.count, RECORDED);
  CHECK_MEM_EQ(&first, &second, sizeof first);
  bool reordered = false;
  for (size_t i = 1; i < RECORDED; i++) {
    reordered = reordered || first.order[i] < first.order[i - 1];
  }
  CHECK(reordered);
  CHECK_GT(first.operations, RECORDED + 10); /* short transfers took more */
  run_recorded(seed + 1, &second);
  CHECK(memcmp(first.order, second.order, sizeof first.order) != 0);
}

/* ---- a fault at every operation ---- */

#define STEPS 12

/* A fixed piece of work, which goes on after a failure. Returns the first failure. */
static turb_status piece_of_work(const struct world *world) {
  turb_status first = TURB_OK;
  turb_status status = io_make_folder(world->system, "w", NULL);
  first = first == TURB_OK ? status : first;
  struct io_file *file = NULL;
  status = io_file_open(world->system, "w/f", NEW_FILE, &file, NULL);
  first = first == TURB_OK ? status : first;
  struct io_ring *ring = NULL;
  CHECK_OK(io_ring_lease(world->system, &ring, NULL));
  static uint8_t data[3 << 20];
  struct io_op ops[STEPS];
  unsigned completions = 0;
  for (size_t i = 0; file != NULL && i < STEPS; i++) {
    ops[i] = (struct io_op){.kind = i % 3 == 0 ? IO_WRITE : i % 3 == 1 ? IO_SYNC : IO_READ, .file = file, .complete = count_completion};
    ops[i].flags = i % 3 == 0 ? IO_OP_LINKED : 0;
    ops[i].owner = &completions;
    ops[i].data = data;
    ops[i].size = i % 3 == 1 ? 0 : i == 3 ? sizeof data : 5000;
    CHECK(io_ring_queue(ring, &ops[i]));
  }
  CHECK_OK(io_ring_wait(ring, STEPS, IO_NO_TIMEOUT, NULL));
  CHECK_EQ(completions, file != NULL ? STEPS : 0);
  bool sync_failed = false;
  for (size_t i = 0; file != NULL && i < STEPS; i++) {
    first = first == TURB_OK ? ops[i].status : first;
    CHECK(ops[i].status != TURB_OK || ops[i].kind != IO_WRITE || ops[i].done == ops[i].size);
    CHECK(ops[i].kind != IO_SYNC || ops[i].status != TURB_OK || ops[i - 1].status == TURB_OK);
    sync_failed = sync_failed || (ops[i].kind == IO_SYNC && ops[i].status != TURB_OK && ops[i].status != TURB_CANCELLED);
  }
  if (file != NULL) {
    status = io_file_sync(file, NULL);
    CHECK(!sync_failed || status != TURB_OK);
    first = first == TURB_OK ? status : first;
  }
  io_ring_return(ring);
  io_file_release(file);
  status = io_rename(world->system, "w/f", "w/g", NULL);
  first = first == TURB_OK ? status : first;
  status = io_sync_folder(world->system, "w", NULL);
  first = first == TURB_OK ? status : first;
  return first;
}

TEST(simulation, each_operation_fails_once) {
  static const struct {
    int os_error;
    turb_status status;
  } faults[] = {
      {EIO, TURB_IO}, {ENOSPC, TURB_NO_SPACE}, {EMFILE, TURB_TOO_MANY_FILES}, {ENOMEM, TURB_NO_MEMORY}, {EACCES, TURB_PERMISSION}};
  for (size_t kind = 0; kind < sizeof faults / sizeof faults[0]; kind++) {
    for (uint64_t n = 1;; n++) {
      struct test_allocator allocator;
      test_allocator_init(&allocator);
      struct world world = {NULL, NULL};
      turb_simulation_options options = TURB_SIMULATION_OPTIONS_INIT;
      options.seed = n;
      options.reorder_percent = 30;
      options.short_percent = 20;
      options.allocator = &allocator.base;
      CHECK_OK(turb_simulation_create(&options, &world.simulation, NULL));
      const struct io_system_options system = {
          .backend = TURB_BACKEND_SIMULATED, .simulation = world.simulation, .allocator = &allocator.base};
      CHECK_OK(io_system_open(&system, &world.system, NULL));
      turb_simulation_fail_at(world.simulation, n, faults[kind].os_error);
      const turb_status status = piece_of_work(&world);
      const bool met = turb_simulation_operations(world.simulation) >= n;
      CHECK_EQ(status == TURB_OK, !met);
      CHECK(!met || status == faults[kind].status || status == TURB_CANCELLED);
      world_restart(&world);
      world_free(&world);
      test_allocator_check_empty(&allocator);
      if (!met) {
        CHECK_GT(n, STEPS);
        break;
      }
    }
  }
}
