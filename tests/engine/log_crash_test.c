/*
 * Power cuts and kills under logs alone: a random workload of appends, syncs and new logs on the simulated disk, cut at every operation.
 *
 * After each restart all logs are recovered and compared with the model: every record that a sync covered is there, none is half there, and
 * what is there is a prefix of what was appended. Then the logs are sealed and the workload goes on from there, so that later cuts
 * meet recovered, sealed and half-sealed logs.
 */
#include <stdlib.h>

#include "base/coding.h"
#include "tests/engine/log_fixture.h"

#define BOUND       1500u
#define LIVES_A_RUN 5

struct state {
  struct sim_world world;
  struct random random;
  uint64_t appended; /* records 0 to appended - 1, in one order over all logs */
  uint64_t durable;  /* of them, covered by a sync */
  uint64_t next_number;
  uint64_t points;
};

struct recovered {
  uint64_t next;
};

static turb_status check_record(void *context, const struct log_record *record, turb_error *err) {
  (void)err;
  struct recovered *recovered = context;
  if (record->type == LOG_END) {
    return TURB_OK;
  }
  uint8_t wanted[BOUND];
  CHECK_EQ(load_u64(record->payload.data), recovered->next);
  CHECK_EQ(log_payload(recovered->next, BOUND, wanted), record->payload.size);
  CHECK_MEM_EQ(record->payload.data, wanted, record->payload.size);
  recovered->next++;
  return TURB_OK;
}

static struct log_recovery_options options_of(struct state *state, struct recovered *recovered) {
  return (struct log_recovery_options){.system = state->world.system,
                                       .allocator = alloc_default(),
                                       .folder = WORLD_FOLDER,
                                       .database_id = log_test_database,
                                       .record = check_record,
                                       .context = recovered};
}

static turb_status make_log(struct state *state, struct log_writer **writer) {
  const struct log_writer_options options = {.system = state->world.system,
                                             .allocator = alloc_default(),
                                             .folder = WORLD_FOLDER,
                                             .database_id = log_test_database,
                                             .number = state->next_number++};
  return log_writer_create(&options, writer, NULL);
}

/* Recovery with the power on must go well; under a cut it may fail, but never says corruption. */
static turb_status recover(struct state *state, struct log_set *set, bool cut) {
  struct recovered recovered = {0};
  const struct log_recovery_options options = options_of(state, &recovered);
  turb_error err = TURB_ERROR_INIT;
  const turb_status status = log_set_recover(&options, 0, set, &err);
  if (status != TURB_OK) {
    CHECK_MSG(cut && status != TURB_CORRUPTION, "recovery: %s", err.message);
    return status;
  }
  CHECK_GE(recovered.next, state->durable);
  CHECK_LE(recovered.next, state->appended);
  if (!cut) {
    state->appended = recovered.next;
  }
  for (size_t i = 0; i < set->count; i++) {
    state->next_number = set->logs[i].number >= state->next_number ? set->logs[i].number + 1 : state->next_number;
  }
  return TURB_OK;
}

/* Appends, syncs and rotates until the power goes, or for so many steps. */
static void write_on(struct state *state, struct log_writer *writer, uint64_t steps) {
  for (uint64_t step = 0; step < steps; step++) {
    uint8_t payload[BOUND];
    const turb_bytes piece = {payload, log_payload(state->appended, BOUND, payload)};
    const uint64_t choice = random_below(&state->random, 20);
    if (choice < 13) {
      const uint64_t record = state->appended++; /* a cut append may have landed */
      if (log_writer_append(writer, choice < 6 ? LOG_APPEND_SYNCED : LOG_APPEND_LOGGED, &piece, 1, NULL, NULL) != TURB_OK) {
        break;
      }
      CHECK_EQ(state->appended, record + 1);
    } else if (choice < 18) {
      if (log_writer_sync(writer, NULL) != TURB_OK) {
        break;
      }
      state->durable = state->appended;
    } else {
      struct log_writer *next = NULL;
      if (make_log(state, &next) != TURB_OK) {
        break;
      }
      const turb_status status = log_writer_finish(writer, log_writer_number(next), NULL);
      log_writer_close(writer);
      writer = next;
      if (status != TURB_OK) {
        break;
      }
      state->durable = state->appended;
    }
  }
  log_writer_close(writer);
}

/*
 * One life: recover, seal, write, until the power goes after `operations`; or, when it ends by a kill, until so many steps are done, and then all
 * that was appended is still with the operating system.
 */
static void live(struct state *state, uint64_t operations, bool kill) {
  if (!kill) {
    turb_simulation_cut_power_at(state->world.simulation, turb_simulation_operations(state->world.simulation) + operations);
  }
  struct log_set set;
  struct log_writer *writer = NULL;
  turb_status status = recover(state, &set, !kill);
  if (status == TURB_OK) {
    status = make_log(state, &writer);
  }
  if (status == TURB_OK) {
    struct recovered unused = {0};
    const struct log_recovery_options options = options_of(state, &unused);
    status = log_set_seal(&options, &set, log_writer_number(writer), NULL);
    if (status == TURB_OK) {
      state->durable = state->appended; /* sealed logs are durable as recovered */
    }
  }
  log_set_free(&set);
  if (status == TURB_OK) {
    write_on(state, writer, kill ? operations : UINT64_MAX);
  } else {
    log_writer_close(writer);
  }
  const uint64_t appended = state->appended;
  if (kill) {
    CHECK_OK(status);
    sim_world_reopen(&state->world);
  } else {
    sim_world_restart(&state->world);
  }
  state->points++;
  CHECK_OK(recover(state, &set, false));
  CHECK(!kill || state->appended == appended);
  log_set_free(&set);
}

TEST(log_crash, every_synced_record_survives_and_none_is_half_there) {
  const uint64_t seed = test_seed();
  const uint64_t wanted = test_scale(700, 500, 6000);
  uint64_t points = 0;
  for (uint64_t run = 0; points < wanted; run++) {
    struct state state = {.next_number = 1};
    random_init(&state.random, seed + run);
    sim_world_open(&state.world, seed + run, 0);
    /* The first cut steps through all operations, run by run; the others fall anywhere. */
    live(&state, 1 + run % 250, false);
    for (int i = 1; i < LIVES_A_RUN; i += 2) {
      /* A cut soon after a kill falls into recovery and sealing, with much that was never synced. */
      const bool kill = random_one_in(&state.random, 2);
      live(&state, random_between(&state.random, 1, 60), kill);
      live(&state, random_between(&state.random, 1, kill ? 30 : 120), false);
    }
    points += state.points;
    sim_world_close(&state.world);
  }
}
