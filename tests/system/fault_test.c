/* Each operation, and each allocation, of a workload fails once: no crash, no leak, no lost acknowledged write. */
#include <errno.h>

#include "tests/support/allocator.h"
#include "tests/system/world.h"

#define WRITES 60

struct run {
  struct world world;
  turb_simulation *simulation;
  struct test_allocator allocator;
  struct world_pending uncertain; /* the write whose outcome is open: after it the database takes no more */
  uint64_t failures;
};

static void begin(struct run *run, uint64_t seed) {
  memset(run, 0, sizeof *run);
  world_init(&run->world, seed, 100, 4);
  test_allocator_init(&run->allocator);
  turb_simulation_options options = TURB_SIMULATION_OPTIONS_INIT;
  options.seed = seed;
  turb_error err = TURB_ERROR_INIT;
  CHECK_OK_ERR(turb_simulation_create(&options, &run->simulation, &err), &err);
  turb_options *o = &run->world.options;
  o->backend = TURB_BACKEND_SIMULATED;
  o->simulation = run->simulation;
  o->allocator = &run->allocator.base;
  o->memory_budget_bytes = 16 << 20;
  o->memtable_bytes = 256 << 10;
  o->table_bytes = 64 << 10;
  o->worker_threads = -1;
  (void)snprintf(run->world.path, sizeof run->world.path, "/db");
}

static void finish(struct run *run) {
  test_allocator_check_empty(&run->allocator);
  turb_simulation_free(run->simulation);
  world_free(&run->world);
}

static turb_status maybe_care(struct run *run) {
  struct world *world = &run->world;
  turb_error err = TURB_ERROR_INIT;
  const uint64_t dice = world_random(world, 100);
  if (dice < 10)
    return turb_flush(world->db, NULL, &err);
  if (dice < 15)
    return turb_compact(world->db, NULL, &err);
  return TURB_OK;
}

/* Goes on after failures, as an embedder would; opens anew when the log failed. */
static void work(struct run *run) {
  struct world *world = &run->world;
  for (int i = 0; i < WRITES; i++) {
    turb_error err = TURB_ERROR_INIT;
    if (!world->db && world_open(world, &err) != TURB_OK) {
      run->failures++;
      CHECK_NE(err.message[0], 0);
      err = (turb_error)TURB_ERROR_INIT;
      CHECK_OK_ERR(world_open(world, &err), &err); /* the fault was one; the second try goes well */
    }
    struct world_pending pending;
    const turb_status status = world_write(world, TURB_DURABLE, &pending, &err);
    if (status != TURB_OK) {
      run->failures++;
      CHECK_NE(err.message[0], 0);
      if (status == TURB_UNKNOWN_OUTCOME) {
        /* Either way is right; which one shows after opening. */
        world_close(world);
        err = (turb_error)TURB_ERROR_INIT;
        CHECK_OK_ERR(world_open(world, &err), &err);
        turb_snapshot *snapshot;
        CHECK_OK(turb_snapshot_create(world->db, &snapshot, &err));
        if (turb_snapshot_sequence(snapshot) > world->sequence)
          world_apply(world, &pending);
        turb_snapshot_release(snapshot);
        CHECK(world_matches(world));
      }
    }
    if (maybe_care(run) != TURB_OK)
      run->failures++;
  }
}

/* After the fault everything acknowledged is there. */
static void check(struct run *run, uint64_t point, const char *what) {
  struct world *world = &run->world;
  turb_error err = TURB_ERROR_INIT;
  test_allocator_fail_at(&run->allocator, 0);
  turb_simulation_fail_at(run->simulation, 0, 0);
  if (!world->db)
    CHECK_OK_ERR(world_open(world, &err), &err);
  CHECK_MSG(world_matches(world), "%s %llu: before reopening", what, (unsigned long long)point);
  world_close(world);
  CHECK_OK_ERR(world_open(world, &err), &err);
  CHECK_MSG(world_matches(world), "%s %llu: after reopening", what, (unsigned long long)point);
  world_close(world);
}

TEST_TIMEOUT(fault, every_operation, 1200) {
  const uint64_t seed = test_seed();
  struct run whole;
  begin(&whole, seed);
  work(&whole);
  CHECK_EQ(whole.failures, 0);
  const uint64_t operations = turb_simulation_operations(whole.simulation);
  world_close(&whole.world);
  finish(&whole);
  const uint64_t stride = operations / test_scale(80, 40, 800) + 1;
  static const int errors[] = {EIO, ENOSPC};
  for (uint64_t point = 1 + seed % stride; point <= operations; point += stride) {
    struct run run;
    begin(&run, seed);
    turb_simulation_fail_at(run.simulation, point, errors[point % 2]);
    work(&run);
    check(&run, point, "operation");
    finish(&run);
  }
}

TEST_TIMEOUT(fault, every_allocation, 1200) {
  const uint64_t seed = test_seed();
  struct run whole;
  begin(&whole, seed);
  work(&whole);
  const uint64_t allocations = whole.allocator.count;
  world_close(&whole.world);
  finish(&whole);
  const uint64_t stride = allocations / test_scale(100, 50, 1500) + 1;
  for (uint64_t point = 1 + seed % stride; point <= allocations; point += stride) {
    struct run run;
    begin(&run, seed);
    test_allocator_fail_at(&run.allocator, point);
    work(&run);
    check(&run, point, "allocation");
    finish(&run);
  }
}
