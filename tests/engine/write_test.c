/* Writes: what is refused and how, conditions, batches, collections. */
#include <math.h>

#include "tests/support/test.h"

static turb_error err;
static turb_error *fresh(void) {
  err = (turb_error)TURB_ERROR_INIT;
  return &err;
}

struct fixture {
  turb_db *db;
  turb_collection *c; /* 4 x f32 */
};

static struct fixture begin(void) {
  static char path[512];
  (void)snprintf(path, sizeof path, "%s/db", test_tmpdir());
  struct fixture f;
  turb_options options = TURB_OPTIONS_INIT;
  options.memory_budget_bytes = 64 << 20;
  CHECK_OK_ERR(turb_open(path, &options, &f.db, fresh()), &err);
  turb_collection_options shape = TURB_COLLECTION_OPTIONS_INIT;
  shape.dimension = 4;
  CHECK_OK_ERR(turb_collection_create(f.db, "c", &shape, &f.c, fresh()), &err);
  return f;
}

static const float zero[4] = {0};
#define ROW ((turb_bytes){zero, sizeof zero})

TEST(write, refuses_bad_input_by_name) {
  struct fixture f = begin();
  static char long_key[5000];
  static char big[(16 << 20) + 1];
  CHECK_STATUS_ERR(turb_put(f.c, TURB_NONE, ROW, TURB_NONE, NULL, fresh()), TURB_INVALID, &err);
  CHECK_STATUS_ERR(turb_put(f.c, (turb_bytes){long_key, 4097}, ROW, TURB_NONE, NULL, fresh()), TURB_TOO_LARGE, &err);
  CHECK(test_contains(err.message, "4097"));
  CHECK_STATUS_ERR(turb_put(f.c, TURB_STR("k"), (turb_bytes){zero, 12}, TURB_NONE, NULL, fresh()), TURB_INVALID, &err);
  CHECK(test_contains(err.message, "16") && test_contains(err.message, "12"));
  CHECK_STATUS_ERR(turb_put(f.c, TURB_STR("k"), ROW, (turb_bytes){big, sizeof big}, NULL, fresh()), TURB_TOO_LARGE, &err);
  float bad[4] = {0, 1, NAN, 2};
  CHECK_STATUS_ERR(turb_put(f.c, TURB_STR("k"), (turb_bytes){bad, sizeof bad}, TURB_NONE, NULL, fresh()), TURB_INVALID, &err);
  CHECK_MSG(test_contains(err.message, "component 2"), "%s", err.message);
  bad[2] = INFINITY;
  CHECK_STATUS_ERR(turb_put(f.c, TURB_STR("k"), (turb_bytes){bad, sizeof bad}, TURB_NONE, NULL, fresh()), TURB_INVALID, &err);
  turb_write_options options = TURB_WRITE_OPTIONS_INIT;
  options.durability = (turb_durability)17;
  CHECK_STATUS_ERR(turb_put(f.c, TURB_STR("k"), ROW, TURB_NONE, &options, fresh()), TURB_INVALID, &err);
  CHECK_STATUS_ERR(turb_delete_range(f.c, TURB_STR("b"), TURB_STR("a"), NULL, fresh()), TURB_INVALID, &err);
  CHECK_STATUS_ERR(turb_get(f.c, TURB_STR("k"), NULL, NULL, NULL, 0, NULL, NULL, fresh()), TURB_NOT_FOUND, &err); /* nothing slipped in */
  CHECK_OK_ERR(turb_close(f.db, fresh()), &err);
}

TEST(write, refuses_bad_collections_by_name) {
  struct fixture f = begin();
  static const struct {
    uint32_t dimension, type, metric;
    const char *names;
  } cases[] = {{0, 0, 0, "dimension"},
               {65537, 0, 0, "dimension"},
               {4, 9, 0, "type"},
               {4, 0, 9, "metric"},
               {4, TURB_F32, TURB_HAMMING, "HAMMING"},
               {4, TURB_BITS, TURB_L2, "BITS"}};
  turb_collection *c;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    turb_collection_options o = TURB_COLLECTION_OPTIONS_INIT;
    o.dimension = cases[i].dimension;
    o.type = (turb_type)cases[i].type;
    o.metric = (turb_metric)cases[i].metric;
    CHECK_STATUS_ERR(turb_collection_create(f.db, "x", &o, &c, fresh()), TURB_INVALID, &err);
    CHECK_MSG(test_contains(err.message, cases[i].names), "%s", err.message);
  }
  turb_collection_options o = TURB_COLLECTION_OPTIONS_INIT;
  o.dimension = 4;
  CHECK_STATUS_ERR(turb_collection_create(f.db, "c", &o, &c, fresh()), TURB_EXISTS, &err);
  CHECK_STATUS_ERR(turb_collection_create(f.db, "", &o, &c, fresh()), TURB_INVALID, &err);
  CHECK_STATUS_ERR(turb_collection_create(f.db, "a\nb", &o, &c, fresh()), TURB_INVALID, &err);
  CHECK_STATUS_ERR(turb_collection_open(f.db, "none", &c, fresh()), TURB_NOT_FOUND, &err);
  CHECK_OK_ERR(turb_close(f.db, fresh()), &err);
}

TEST(write, conditions) {
  struct fixture f = begin();
  uint64_t sequence = 0;
  turb_write_options options = TURB_WRITE_OPTIONS_INIT;
  options.sequence = &sequence;
  CHECK_STATUS_ERR(turb_update_attributes(f.c, TURB_STR("k"), TURB_STR("x"), NULL, fresh()), TURB_NOT_FOUND, &err);
  CHECK_OK_ERR(turb_put_if_absent(f.c, TURB_STR("k"), ROW, TURB_STR("one"), &options, fresh()), &err);
  CHECK_GT(sequence, 0);
  CHECK_STATUS_ERR(turb_put_if_absent(f.c, TURB_STR("k"), ROW, TURB_NONE, NULL, fresh()), TURB_CONFLICT, &err);
  CHECK_STATUS_ERR(turb_put_if_sequence(f.c, TURB_STR("k"), ROW, TURB_NONE, sequence + 1, NULL, fresh()), TURB_CONFLICT, &err);
  const float row[4] = {1, 2, 3, 4};
  CHECK_OK_ERR(turb_put_if_sequence(f.c, TURB_STR("k"), (turb_bytes){row, sizeof row}, TURB_STR("two"), sequence, NULL, fresh()), &err);
  CHECK_OK_ERR(turb_flush(f.db, NULL, fresh()), &err); /* now the vector must come from a table */
  CHECK_OK_ERR(turb_update_attributes(f.c, TURB_STR("k"), TURB_STR("three"), NULL, fresh()), &err);
  float got[4];
  char attributes[8];
  size_t size;
  CHECK_OK_ERR(turb_get(f.c, TURB_STR("k"), NULL, got, attributes, sizeof attributes, &size, NULL, fresh()), &err);
  CHECK_MEM_EQ(got, row, sizeof row);
  CHECK_EQ(size, 5);
  CHECK_MEM_EQ(attributes, "three", 5);
  CHECK_STATUS_ERR(turb_get(f.c, TURB_STR("k"), NULL, got, attributes, 2, &size, NULL, fresh()), TURB_TOO_LARGE, &err);
  CHECK_EQ(size, 5);
  CHECK_OK_ERR(turb_delete(f.c, TURB_STR("k"), NULL, fresh()), &err);
  CHECK_OK_ERR(turb_put_if_absent(f.c, TURB_STR("k"), ROW, TURB_NONE, NULL, fresh()), &err);
  CHECK_OK_ERR(turb_close(f.db, fresh()), &err);
}

TEST(write, a_dropped_collection_is_gone_and_its_iterators_are_not) {
  struct fixture f = begin();
  for (int i = 0; i < 100; i++) {
    char key[8];
    const int n = snprintf(key, sizeof key, "%03d", i);
    CHECK_OK_ERR(turb_put(f.c, (turb_bytes){key, (size_t)n}, ROW, TURB_NONE, NULL, fresh()), &err);
    if (i == 50)
      CHECK_OK_ERR(turb_flush(f.db, NULL, fresh()), &err);
  }
  turb_iterator *it;
  CHECK_OK_ERR(turb_iterator_open(f.c, NULL, &it, fresh()), &err);
  CHECK_OK_ERR(turb_collection_drop(f.db, "c", fresh()), &err);
  int count = 0;
  for (turb_state s = turb_finish(it, turb_first(it)); s == TURB_READY; s = turb_next(it))
    count++;
  CHECK_EQ(count, 100);
  turb_iterator_close(it);
  CHECK_STATUS_ERR(turb_put(f.c, TURB_STR("k"), ROW, TURB_NONE, NULL, fresh()), TURB_NOT_FOUND, &err);
  CHECK_STATUS_ERR(turb_iterator_open(f.c, NULL, &it, fresh()), TURB_NOT_FOUND, &err);
  /* The name is free; what was under it does not come back. */
  turb_collection_options shape = TURB_COLLECTION_OPTIONS_INIT;
  shape.dimension = 4;
  turb_collection *again;
  CHECK_OK_ERR(turb_collection_create(f.db, "c", &shape, &again, fresh()), &err);
  CHECK_STATUS_ERR(turb_get(again, TURB_STR("000"), NULL, NULL, NULL, 0, NULL, NULL, fresh()), TURB_NOT_FOUND, &err);
  CHECK_OK_ERR(turb_close(f.db, fresh()), &err);
}

TEST(write, batches_are_of_one_database_and_may_be_empty) {
  struct fixture f = begin();
  turb_batch *batch;
  CHECK_OK_ERR(turb_batch_create(f.db, &batch, fresh()), &err);
  CHECK_OK_ERR(turb_write(f.db, batch, NULL, fresh()), &err);
  CHECK_OK_ERR(turb_batch_put(batch, f.c, TURB_STR("a"), ROW, TURB_NONE, fresh()), &err);
  CHECK_OK_ERR(turb_batch_put(batch, f.c, TURB_STR("a"), ROW, TURB_STR("later wins"), fresh()), &err);
  CHECK_OK_ERR(turb_batch_delete(batch, f.c, TURB_STR("b"), fresh()), &err);
  CHECK_EQ(turb_batch_count(batch), 3);
  CHECK_OK_ERR(turb_write(f.db, batch, NULL, fresh()), &err);
  CHECK_OK_ERR(turb_write(f.db, batch, NULL, fresh()), &err); /* again */
  turb_pinned pinned;
  CHECK_OK_ERR(turb_get_pinned(f.c, TURB_STR("a"), NULL, &pinned, fresh()), &err);
  CHECK_EQ(pinned.attributes.size, 10);
  turb_pinned_release(&pinned);
  turb_batch_free(batch);
  CHECK_OK_ERR(turb_close(f.db, fresh()), &err);
}

TEST(write, extremes_of_size) {
  struct fixture f = begin();
  turb_collection_options shape = TURB_COLLECTION_OPTIONS_INIT;
  shape.dimension = TURB_MAX_DIMENSION;
  turb_collection *wide;
  CHECK_OK_ERR(turb_collection_create(f.db, "wide", &shape, &wide, fresh()), &err);
  static float row[TURB_MAX_DIMENSION];
  static char key[TURB_MAX_KEY_BYTES], attributes[3 << 20];
  for (int i = 0; i < TURB_MAX_DIMENSION; i++)
    row[i] = (float)i;
  for (size_t i = 0; i < sizeof attributes; i++)
    attributes[i] = (char)(i * 31);
  memset(key, 'k', sizeof key);
  for (int i = 0; i < 6; i++) {
    key[0] = (char)('a' + i);
    const size_t size = i == 3 ? sizeof attributes : (size_t)i * 70000;
    CHECK_OK_ERR(
        turb_put(wide, (turb_bytes){key, sizeof key}, (turb_bytes){row, sizeof row}, (turb_bytes){attributes, size}, NULL, fresh()), &err);
  }
  for (int round = 0; round < 3; round++) {
    if (round == 1)
      CHECK_OK_ERR(turb_flush(f.db, NULL, fresh()), &err);
    if (round == 2)
      CHECK_OK_ERR(turb_compact(f.db, NULL, fresh()), &err);
    for (int i = 0; i < 6; i++) {
      key[0] = (char)('a' + i);
      turb_pinned pinned;
      CHECK_OK_ERR(turb_get_pinned(wide, (turb_bytes){key, sizeof key}, NULL, &pinned, fresh()), &err);
      CHECK_EQ(pinned.vector.size, sizeof row);
      CHECK_MEM_EQ(pinned.vector.data, row, sizeof row);
      const size_t size = i == 3 ? sizeof attributes : (size_t)i * 70000;
      CHECK_EQ(pinned.attributes.size, size);
      if (size)
        CHECK_MEM_EQ(pinned.attributes.data, attributes, size);
      turb_pinned_release(&pinned);
    }
    turb_iterator *it;
    CHECK_OK_ERR(turb_iterator_open(wide, NULL, &it, fresh()), &err);
    int count = 0;
    for (turb_state s = turb_finish(it, turb_first(it)); s == TURB_READY; s = turb_next(it)) {
      CHECK_MEM_EQ(it->entry->vector.data, row, sizeof row);
      if (it->entry->attributes.size)
        CHECK_MEM_EQ(it->entry->attributes.data, attributes, it->entry->attributes.size);
      count++;
    }
    CHECK_OK_ERR(turb_iterator_status(it, fresh()), &err);
    CHECK_EQ(count, 6);
    turb_iterator_close(it);
  }
  CHECK_OK_ERR(turb_close(f.db, fresh()), &err);
}
