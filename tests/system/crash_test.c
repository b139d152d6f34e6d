/* The power goes at every operation of a random workload on the simulated disk; the database comes up again and is compared. */
#include "tests/system/world.h"

#define WRITES 120

struct run {
  struct world world;
  turb_simulation *simulation;
  uint64_t durable;             /* the last sequence that was acknowledged as durable */
  struct world_pending pending; /* the write that failed, if one did */
  bool ends[WRITES * 16];       /* sequences that end a write: states in between are half a batch */
  bool opened;
};

static void begin(struct run *run, uint64_t seed) {
  memset(run, 0, sizeof *run);
  world_init(&run->world, seed, 150, 4);
  turb_simulation_options options = TURB_SIMULATION_OPTIONS_INIT;
  options.seed = seed;
  options.reorder_percent = 20;
  options.short_percent = 5;
  turb_error err = TURB_ERROR_INIT;
  CHECK_OK_ERR(turb_simulation_create(&options, &run->simulation, &err), &err);
  turb_options *o = &run->world.options;
  o->backend = TURB_BACKEND_SIMULATED;
  o->simulation = run->simulation;
  o->memory_budget_bytes = 16 << 20;
  o->memtable_bytes = 256 << 10;
  o->table_bytes = 64 << 10;
  o->worker_threads = -1;
  o->size_ratio = 3;
  (void)snprintf(run->world.path, sizeof run->world.path, "/db");
}

static void finish(struct run *run) {
  turb_simulation_free(run->simulation);
  world_free(&run->world);
}

/* Works until something fails; then the power is gone. */
static void work(struct run *run) {
  struct world *world = &run->world;
  turb_error err = TURB_ERROR_INIT;
  if (world_open(world, &err) != TURB_OK)
    return;
  run->opened = true;
  for (int i = 0; i < WRITES; i++) {
    const bool durable = world_random(world, 2);
    err = (turb_error)TURB_ERROR_INIT;
    if (world_write(world, durable ? TURB_DURABLE : TURB_LOGGED, &run->pending, &err) != TURB_OK)
      return;
    run->ends[world->sequence] = true;
    if (durable && run->pending.count)
      run->durable = world->sequence;
    run->pending.count = 0;
    const uint64_t dice = world_random(world, 100);
    turb_status status = TURB_OK;
    if (dice < 6)
      status = turb_flush(world->db, NULL, &err);
    else if (dice < 9)
      status = turb_compact(world->db, NULL, &err);
    else if (dice < 12) {
      status = turb_sync(world->db, &err);
      if (status == TURB_OK)
        run->durable = world->sequence;
    } else if (dice < 14) {
      bool more;
      status = turb_maintain(world->db, 1, &more, &err);
    } else if (dice < 15) {
      world_close(world);
      status = world_open(world, &err);
    }
    if (status != TURB_OK)
      return;
  }
}

static uint64_t visible_sequence(struct world *world) {
  turb_snapshot *snapshot;
  turb_error err = TURB_ERROR_INIT;
  CHECK_OK_ERR(turb_snapshot_create(world->db, &snapshot, &err), &err);
  const uint64_t sequence = turb_snapshot_sequence(snapshot);
  turb_snapshot_release(snapshot);
  return sequence;
}

/* What came back is the model after some write from the last durable one on, the failed write included or not. */
static void check_recovered(struct run *run, uint64_t point) {
  struct world *world = &run->world;
  run->ends[0] = true;
  if (run->pending.count)
    world_apply(world, &run->pending); /* the model now has all that may be there */
  const uint64_t last = world->sequence;
  run->ends[last] = true;
  turb_error err = TURB_ERROR_INIT;
  const turb_status status = world_open(world, &err);
  CHECK_MSG(status == TURB_OK, "crash at %llu: %s", (unsigned long long)point, err.message);
  const uint64_t visible = visible_sequence(world);
  CHECK_GE(visible, run->durable);
  bool matched = false;
  for (uint64_t sequence = (visible < last ? visible : last) + 1; sequence-- > run->durable && !matched;) {
    if (!run->ends[sequence])
      continue;
    world->sequence = sequence;
    matched = world_matches(world);
  }
  CHECK_MSG(matched, "crash at %llu: no state from sequence %llu (durable) to %llu matches; visible is %llu", (unsigned long long)point,
            (unsigned long long)run->durable, (unsigned long long)last, (unsigned long long)visible);
  world_forget_after(world, world->sequence);
  world->sequence = visible; /* numbers of lost writes may be used up */
}

static void crash_at(uint64_t seed, uint64_t point) {
  struct run run;
  begin(&run, seed);
  turb_simulation_cut_power_at(run.simulation, point);
  work(&run);
  if (run.world.db)
    world_close(&run.world);
  turb_simulation_restart(run.simulation);
  check_recovered(&run, point);
  /* It goes on as a database. */
  turb_error err = TURB_ERROR_INIT;
  struct world_pending pending;
  for (int i = 0; i < 10; i++)
    CHECK_OK_ERR(world_write(&run.world, TURB_DURABLE, &pending, &err), &err);
  if (point % 8 == 0) {
    CHECK_OK_ERR(turb_compact(run.world.db, NULL, &err), &err);
    world_close(&run.world);
    CHECK_OK_ERR(world_open(&run.world, &err), &err);
  }
  CHECK(world_matches(&run.world));
  world_close(&run.world);
  finish(&run);
}

TEST_TIMEOUT(crash, at_every_operation, 1200) {
  const uint64_t seed = test_seed();
  const uint64_t points = test_scale(150, 60, 2400);
  uint64_t done = 0;
  for (uint64_t round = 0; done < points; round++) {
    struct run whole;
    begin(&whole, seed + round);
    work(&whole);
    CHECK(whole.opened);
    const uint64_t operations = turb_simulation_operations(whole.simulation);
    world_close(&whole.world);
    finish(&whole);
    const uint64_t share = test_scale(75, 30, 600), stride = operations / share + 1;
    for (uint64_t point = 1 + (seed + round) % stride; point <= operations && done < points; point += stride, done++)
      crash_at(seed + round, point);
  }
}
