/* Iterators over the public calls: what the contract suite of tests/iterators cannot see from below. */
#include <stdlib.h>

#include "tests/support/test.h"

static turb_error err = TURB_ERROR_INIT;

#define ROWS      160u
#define DIMENSION 8192u
#define ATTRIBUTE 40000u

static turb_bytes key_of(uint32_t number, char key[16]) {
  return (turb_bytes){key, (size_t)snprintf(key, 16, "k%05u", number)};
}

static void fill(uint32_t number, float *row, uint8_t *attribute) {
  for (uint32_t i = 0; i < DIMENSION; i++) {
    row[i] = (float)(number * 7 + i);
  }
  for (uint32_t i = 0; i < ATTRIBUTE; i++) {
    attribute[i] = (uint8_t)(number + i);
  }
}

static void check_entry(const turb_iterator *it, uint32_t number) {
  static float row[DIMENSION];
  static uint8_t attribute[ATTRIBUTE];
  char key[16];
  fill(number, row, attribute);
  const turb_bytes wanted = key_of(number, key);
  CHECK_EQ(it->entry->key.size, wanted.size);
  CHECK_MEM_EQ(it->entry->key.data, wanted.data, wanted.size);
  CHECK_EQ(it->entry->vector.size, sizeof row);
  CHECK_MEM_EQ(it->entry->vector.data, row, sizeof row);
  CHECK_EQ(it->entry->attributes.size, ATTRIBUTE);
  CHECK_MEM_EQ(it->entry->attributes.data, attribute, ATTRIBUTE);
}

/* Reads others, so that unpinned memory of the cache has new owners. */
static void read_others(turb_collection *c, struct random *random, unsigned count) {
  while (count-- != 0) {
    char key[16];
    turb_pinned pinned;
    CHECK_OK_ERR(turb_get_pinned(c, key_of((uint32_t)random_below(random, ROWS), key), NULL, &pinned, &err), &err);
    turb_pinned_release(&pinned);
  }
}

/* Compacted rows on a simulated disk that completes in any order. */
static turb_db *open_rows(uint64_t seed, turb_simulation **simulation, turb_collection **c) {
  turb_simulation_options disk = TURB_SIMULATION_OPTIONS_INIT;
  disk.seed = seed;
  disk.reorder_percent = 60;
  CHECK_OK_ERR(turb_simulation_create(&disk, simulation, &err), &err);
  turb_options options = TURB_OPTIONS_INIT;
  options.backend = TURB_BACKEND_SIMULATED;
  options.simulation = *simulation;
  options.memory_budget_bytes = 8u << 20;
  options.durability = TURB_LOGGED;
  turb_db *db;
  CHECK_OK_ERR(turb_open("/db", &options, &db, &err), &err);
  turb_collection_options shape = TURB_COLLECTION_OPTIONS_INIT;
  shape.dimension = DIMENSION;
  CHECK_OK_ERR(turb_collection_create(db, "c", &shape, c, &err), &err);
  static float row[DIMENSION];
  static uint8_t attribute[ATTRIBUTE];
  for (uint32_t i = 0; i < ROWS; i++) {
    char key[16];
    fill(i, row, attribute);
    CHECK_OK_ERR(turb_put(*c, key_of(i, key), (turb_bytes){row, sizeof row}, (turb_bytes){attribute, sizeof attribute}, NULL, &err), &err);
  }
  CHECK_OK_ERR(turb_compact(db, NULL, &err), &err);
  return db;
}

/* A seek while a move is pending, whatever of that move has come already: the old entry stays as it was until the new one is there. */
TEST(iterator, the_old_entry_outlives_dropped_moves) {
  struct random random;
  random_init(&random, test_seed());
  turb_simulation *simulation;
  turb_collection *c;
  turb_db *db = open_rows(random_u64(&random), &simulation, &c);
  uint64_t dropped = 0;
  const uint64_t rounds = test_scale(300, 100, 3000);
  for (uint64_t round = 0; round < rounds; round++) {
    turb_loop *loop;
    CHECK_OK_ERR(turb_loop_open(db, &loop, &err), &err);
    turb_iterator_options how = TURB_ITERATOR_OPTIONS_INIT;
    how.loop = loop;
    how.streaming = random_one_in(&random, 2);
    turb_iterator *it;
    CHECK_OK_ERR(turb_iterator_open(c, &how, &it, &err), &err);
    char key[16];
    uint32_t at = (uint32_t)random_below(&random, ROWS - 1);
    turb_state state = turb_finish(it, turb_seek(it, key_of(at, key)));
    for (int moves = 0; moves < 6; moves++) {
      CHECK_EQ(state, TURB_READY);
      check_entry(it, at);
      const bool forward = at + 1 < ROWS;
      state = forward ? turb_advance(it) : turb_retreat(it);
      for (uint64_t polls = random_below(&random, 3); polls != 0 && state == TURB_PENDING; polls--) {
        CHECK_OK_ERR(turb_submit(it, &err), &err);
        (void)turb_loop_poll(loop);
        state = forward ? turb_advance_slow(it) : turb_retreat_slow(it);
        check_entry(it, state == TURB_READY ? (forward ? at + 1 : at - 1) : at);
      }
      if (state == TURB_READY) {
        at = forward ? at + 1 : at - 1;
      } else {
        const uint32_t goal = (uint32_t)random_below(&random, ROWS);
        state = turb_seek(it, key_of(goal, key));
        dropped++;
        if (state == TURB_PENDING) {
          check_entry(it, at);
          read_others(c, &random, 40);
          check_entry(it, at);
        }
        state = turb_finish(it, state);
        at = goal;
      }
    }
    turb_iterator_close(it);
    CHECK_OK_ERR(turb_loop_close(loop, &err), &err);
  }
  CHECK_GT(dropped, rounds / 4);
  CHECK_OK_ERR(turb_close(db, &err), &err);
  turb_simulation_free(simulation);
}
