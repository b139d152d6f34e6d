/* Random work against a model, on every backend. */
#include "tests/system/world.h"

static void random_options(struct world *world, turb_backend backend) {
  turb_options *o = &world->options;
  o->backend = backend;
  o->memtable_bytes = (256u << 10) << world_random(world, 3);
  o->memory_budget_bytes = (8u << 20) << world_random(world, 4);
  o->table_bytes = (64u << 10) << world_random(world, 4);
  o->worker_threads = world_random(world, 2) ? 1 : -1;
  o->size_ratio = 2 + (uint32_t)world_random(world, 8);
  o->buffered_io = world_random(world, 4) == 0;
  o->durability = TURB_LOGGED;
  world->compression = world_random(world, 3) ? TURB_COMPRESSION_NONE : TURB_COMPRESSION_ZSTD;
}

/* A policy for one collection; FIFO with bounds that nothing reaches. */
static void change_policy(struct world *world) {
  turb_error err = TURB_ERROR_INIT;
  turb_compaction_options o = TURB_COMPACTION_OPTIONS_INIT;
  o.policy = (turb_compaction_policy)(1 + world_random(world, 4));
  o.size_ratio = world_random(world, 2) ? 2 + (uint32_t)world_random(world, 8) : 0;
  if (o.policy == TURB_COMPACTION_FIFO) {
    o.fifo_max_bytes = UINT64_C(1) << 40;
    o.ttl_s = 86400;
  }
  turb_collection *collection = world->collections[world_random(world, WORLD_COLLECTIONS)].handle;
  CHECK_OK_ERR(turb_collection_set_compaction(collection, &o, &err), &err);
}

static void step(struct world *world) {
  turb_error err = TURB_ERROR_INIT;
  const uint64_t dice = world_random(world, 1000);
  if (dice < 800) {
    struct world_pending pending;
    CHECK_OK_ERR(world_write(world, (turb_durability)0, &pending, &err), &err);
  } else if (dice < 900) {
    world_check_get(world);
  } else if (dice < 970) {
    world_walk(world);
  } else if (dice < 980) {
    world_take_snapshot(world);
  } else if (dice < 987) {
    world_drop_snapshot(world);
  } else if (dice < 993) {
    CHECK_OK_ERR(turb_flush(world->db, world_random(world, 2) ? world->collections[0].handle : NULL, &err), &err);
  } else if (dice < 995) {
    CHECK_OK_ERR(turb_compact(world->db, NULL, &err), &err);
  } else if (dice < 996) {
    change_policy(world);
  } else if (dice < 997) {
    bool more;
    CHECK_OK_ERR(turb_maintain(world->db, 1 + (uint32_t)world_random(world, 5), &more, &err), &err);
  } else if (dice < 999) {
    CHECK_OK_ERR(turb_sync(world->db, &err), &err);
  } else if (world_random(world, 4) == 0) {
    world_close(world);
    CHECK_OK_ERR(world_open(world, &err), &err);
    CHECK(world_matches(world));
  }
}

static void run_model(turb_backend backend, uint64_t steps) {
  const uint64_t seed = test_seed();
  for (uint64_t round = 0; round * 20000 < steps; round++) {
    struct world world;
    world_init(&world, seed + round * 7919, 400 + seed % 1000, 1 + (uint32_t)((seed >> 8) + round) % 20);
    random_options(&world, backend);
    turb_simulation *simulation = NULL;
    turb_error err = TURB_ERROR_INIT;
    if (backend == TURB_BACKEND_SIMULATED) {
      turb_simulation_options options = TURB_SIMULATION_OPTIONS_INIT;
      options.seed = seed + round;
      options.reorder_percent = 30;
      options.short_percent = 10;
      CHECK_OK_ERR(turb_simulation_create(&options, &simulation, &err), &err);
      world.options.simulation = simulation;
      (void)snprintf(world.path, sizeof world.path, "/db");
    } else {
      (void)snprintf(world.path, sizeof world.path, "%s/db%d", test_tmpdir(), (int)round);
    }
    CHECK_OK_ERR(world_open(&world, &err), &err);
    const uint64_t count = steps - round * 20000 < 20000 ? steps - round * 20000 : 20000;
    for (uint64_t i = 0; i < count; i++)
      step(&world);
    world_check(&world);
    world_close(&world);
    CHECK_OK_ERR(world_open(&world, &err), &err);
    world_check(&world);
    world_close(&world);
    turb_simulation_free(simulation);
    world_free(&world);
  }
}

TEST(model, uring) {
  run_model(TURB_BACKEND_AUTO, test_scale(20000, 5000, 200000));
}
TEST(model, blocking) {
  run_model(TURB_BACKEND_BLOCKING, test_scale(10000, 5000, 120000));
}
TEST(model, simulated) {
  run_model(TURB_BACKEND_SIMULATED, test_scale(20000, 5000, 1700000));
}
