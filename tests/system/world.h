/* A database beside a plain model of what it must hold, and random work on both.
 *
 * The model keeps every version of every key of a small universe, so that it answers as of any sequence. Keys are made from their number
 * (lengths of 1 to 40 bytes, now and then 3,000), vectors
 * and attributes from the number of the write that put them.
 */
#ifndef TURB_TESTS_SYSTEM_WORLD_H
#define TURB_TESTS_SYSTEM_WORLD_H

#include "tests/support/test.h"

#define WORLD_COLLECTIONS 2

struct world_version {
  uint64_t sequence;
  uint64_t value; /* 0: deleted */
};

struct world_key {
  uint8_t *bytes;
  size_t size;
  struct world_version *versions; /* ascending by sequence */
  size_t count, capacity;
};

struct world_collection {
  struct world_key *keys; /* in key order */
  turb_collection *handle;
};

struct world_snapshot {
  turb_snapshot *handle;
  uint64_t sequence;
};

struct world {
  turb_options options;
  char path[256];
  turb_db *db;
  size_t key_count;
  uint32_t dimension;
  turb_compression compression;
  struct world_collection collections[WORLD_COLLECTIONS];
  struct world_snapshot snapshots[8];
  size_t snapshot_count;
  uint64_t sequence; /* of the last write that was acknowledged */
  uint64_t next_value;
  struct rng {
    uint64_t state;
  } rng;
};

uint64_t world_random(struct world *world, uint64_t below);
/* A model without a database. */
void world_init(struct world *world, uint64_t seed, size_t key_count, uint32_t dimension);
void world_free(struct world *world);
/* Opens the database at world->path with world->options; makes or opens the collections. */
turb_status world_open(struct world *world, turb_error *err);
void world_close(struct world *world);

size_t world_vector_bytes(const struct world *world);
void world_vector(const struct world *world, uint64_t value, float *vector);
size_t world_attributes(uint64_t value, uint8_t *bytes); /* into 4,096 bytes */

/* The model's answer: the value at a sequence, 0 when there is none. */
uint64_t world_expected(const struct world_collection *collection, size_t key, uint64_t sequence, uint64_t *at);
void world_record(struct world_collection *collection, size_t key, uint64_t sequence, uint64_t value);
/* Forgets all versions above a sequence. */
void world_forget_after(struct world *world, uint64_t sequence);

/* One random write, recorded in the model when it is acknowledged. */
enum world_write {
  WORLD_PUT,
  WORLD_DELETE,
  WORLD_DELETE_RANGE,
  WORLD_BATCH,
  WORLD_IF_ABSENT,
  WORLD_IF_SEQUENCE,
  WORLD_ATTRIBUTES,
  WORLD_WRITES
};
struct world_pending { /* what a write would have done, when it failed or was cut off */
  struct {
    uint32_t collection;
    size_t first, last; /* keys [first, last) */
    uint64_t value;
  } changes[16];
  size_t count;
};
turb_status world_write(struct world *world, turb_durability durability, struct world_pending *pending, turb_error *err);
/* Applies what a write did, at the sequences after world->sequence. */
void world_apply(struct world *world, const struct world_pending *pending);

/* Compares the whole database with the model: by iterators forward and backward and by gets, at the newest state and at the snapshots. */
void world_check(struct world *world);
/* True when the database holds exactly the model at world->sequence. */
bool world_matches(struct world *world);
/* A random walk of one iterator, compared step by step. */
void world_walk(struct world *world);
void world_check_get(struct world *world);
void world_take_snapshot(struct world *world);
void world_drop_snapshot(struct world *world);

#endif
