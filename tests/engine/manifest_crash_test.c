/*
 * Power cuts under the manifest alone: a random workload of edits, rewrites and openings on the simulated disk, cut at every operation.
 *
 * After each restart the manifest opens and holds all edits whose append returned OK and at most the one that was under way.
 */
#include <errno.h>

#include "engine/manifest.h"
#include "tests/engine/sim_world.h"

static const struct catalog_collection plain = {.dimension = 16, .type = TURB_F32, .metric = TURB_L2};

struct state {
  struct sim_world world;
  struct random random;
  uint64_t sequence; /* the flushed sequence of the last append that returned OK */
  uint64_t tried;    /* of the one that did not */
  uint64_t points;
};

static turb_status append(struct manifest *manifest, uint64_t sequence, uint64_t changes) {
  struct version_edit edit;
  edit_init(&edit, alloc_default());
  for (uint64_t i = 0; i < changes; i++) { /* larger edits cross sectors and pages */
    edit_set_flushed(&edit, 1, sequence);
  }
  const turb_status status = manifest_append(manifest, &edit, NULL);
  edit_free(&edit);
  return status;
}

/* Opens, or creates what is not there yet. */
static turb_status begin(struct state *state, struct manifest **manifest) {
  const struct manifest_options options = {.system = state->world.system, .allocator = alloc_default(), .folder = WORLD_FOLDER};
  turb_error err = TURB_ERROR_INIT;
  turb_status status = manifest_open(&options, manifest, &err);
  if (status == TURB_NOT_FOUND && state->sequence == 0) {
    status = manifest_create(&options, manifest, &err);
  }
  CHECK_MSG(status != TURB_CORRUPTION && status != TURB_NOT_A_DATABASE, "%s", err.message);
  if (status != TURB_OK) {
    return status;
  }
  const struct catalog_collection *collection = catalog_collection(manifest_catalog(*manifest), 1);
  if (collection == NULL) {
    CHECK_EQ(state->sequence, 0);
    struct version_edit edit;
    edit_init(&edit, alloc_default());
    edit_add_collection(&edit, 1, "one", &plain);
    status = manifest_append(*manifest, &edit, NULL);
    edit_free(&edit);
    return status;
  }
  const uint64_t found = collection->flushed_sequence;
  CHECK_MSG(found == state->sequence || found == state->tried, "found %" PRIu64 ", appended %" PRIu64 ", tried %" PRIu64, found,
            state->sequence, state->tried);
  state->sequence = state->tried = found;
  return TURB_OK;
}

static void live(struct state *state, uint64_t operations) {
  const uint64_t now = turb_simulation_operations(state->world.simulation);
  if (random_one_in(&state->random, 3)) { /* a fault on the way, too */
    turb_simulation_fail_at(state->world.simulation, now + random_between(&state->random, 1, operations), EIO);
  }
  turb_simulation_cut_power_at(state->world.simulation, now + operations);
  struct manifest *manifest = NULL;
  turb_status status = begin(state, &manifest);
  while (status == TURB_OK || turb_simulation_operations(state->world.simulation) < now + operations) {
    if (manifest == NULL) {
      break;
    }
    if (random_one_in(&state->random, 6)) {
      status = manifest_rewrite(manifest, NULL);
      continue;
    }
    const uint64_t sequence = state->tried + 1;
    status = append(manifest, sequence, random_one_in(&state->random, 4) ? random_between(&state->random, 1, 3000) : 1);
    /* One that failed and left the manifest settled did not happen. */
    if (status == TURB_OK) {
      state->sequence = state->tried = sequence;
    } else if (!manifest_is_settled(manifest)) {
      state->tried = sequence;
      break; /* else it would be unclear which of several attempts is there */
    }
  }
  manifest_close(manifest);
  sim_world_restart(&state->world);
  state->points++;
  manifest = NULL;
  CHECK_OK(begin(state, &manifest));
  manifest_close(manifest);
}

TEST(manifest_crash, every_appended_edit_survives_and_none_is_half_there) {
  const uint64_t seed = test_seed();
  const uint64_t wanted = test_scale(900, 500, 8000);
  uint64_t points = 0;
  for (uint64_t run = 0; points < wanted; run++) {
    struct state state = {.points = 0};
    random_init(&state.random, seed + run);
    sim_world_open(&state.world, seed + run, 0);
    live(&state, 1 + run % 120);
    for (int i = 0; i < 4; i++) {
      live(&state, random_between(&state.random, 1, 60));
    }
    points += state.points;
    sim_world_close(&state.world);
  }
}
