/*
 * A small collection and what it should hold, for the tests of searches: every key's newest state, remembered for snapshots, and brute force over it.
 *
 * Distances come from kernel_one, which gives the same bits as the kernels that scans use; those have tests of their own.
 */
#ifndef TURB_TESTS_ENGINE_SEARCH_MODEL_H
#define TURB_TESTS_ENGINE_SEARCH_MODEL_H

#include "base/random.h"
#include "index/kernels/kernels.h"
#include "tests/support/test.h"

#define MODEL_KEYS      400u
#define MODEL_SNAPSHOTS 3u
#define MODEL_MAX_ROW   2048u

struct model_entry {
  bool there;
  uint64_t sequence;
  uint32_t attribute; /* its attributes' bytes; 0: none */
  uint8_t row[MODEL_MAX_ROW];
};

struct model_state {
  struct model_entry entries[MODEL_KEYS];
};

struct model {
  struct random random;
  turb_options options;
  const char *path;
  turb_collection_options shape;
  uint32_t row_bytes;
  uint32_t keys; /* used, at most MODEL_KEYS */
  turb_db *db;
  turb_collection *collection;
  struct model_state *now;
  turb_snapshot *snapshots[MODEL_SNAPSHOTS];
  struct model_state *then[MODEL_SNAPSHOTS];
};

void model_open(struct model *model, const char *path, const turb_options *options, const turb_collection_options *shape, uint64_t seed);
void model_reopen(struct model *model);
void model_close(struct model *model);
/* The key with a number: keys come in three groups by their first byte, some of them prefixes of others. */
turb_bytes model_key(uint32_t number, char key[32]);
/* A vector of small whole components, so that ties are common. */
void model_vector(struct model *model, uint8_t *row);
void model_put(struct model *model, uint32_t number);
void model_delete(struct model *model, uint32_t number);
/* A put, overwrite, delete, range delete, flush, merge, snapshot or reopening. */
void model_step(struct model *model);
/* A search (or batch) with random options, compared with brute force. */
void model_check_search(struct model *model);
/* The same with given options (parts are added); `state` is what the snapshot, or now, holds. */
void model_check(struct model *model, turb_search_options options, const struct model_state *state, uint32_t queries);

#endif
