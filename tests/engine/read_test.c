/* Point reads, snapshots and iterators over the public calls: one key space whose state is known at four moments, spread over a memtable and
 * three runs. */
#include <stdlib.h>

#include "tests/support/test.h"

static turb_error err = TURB_ERROR_INIT;

#define DIMENSION     16u
#define ATTRIBUTE_MAX 400u
#define KEYS          1500u
#define STAGES        4u

/* ---- the world ---- */

struct shop {
  turb_simulation *simulation;
  turb_options options;
  turb_db *db;
  turb_collection *c;
  turb_snapshot *snapshots[STAGES + 1]; /* [s]: after stage s */
};

static turb_bytes key_of(uint32_t number, char key[16]) {
  return (turb_bytes){key, (size_t)snprintf(key, 16, "k%05u", number)};
}

static uint32_t fill(uint32_t number, uint32_t version, float *row, uint8_t *attribute) {
  for (uint32_t i = 0; i < DIMENSION; i++)
    row[i] = (float)(number * 3 + version * 1000 + i);
  const uint32_t size = (number * 7 + version * 13) % ATTRIBUTE_MAX;
  memset(attribute, (int)(number + version * 64) & 0xff, size);
  return size;
}

static uint64_t put(turb_collection *c, uint32_t number, uint32_t version) {
  char key[16];
  float row[DIMENSION];
  uint8_t attribute[ATTRIBUTE_MAX];
  uint64_t sequence = 0;
  turb_write_options options = TURB_WRITE_OPTIONS_INIT;
  options.sequence = &sequence;
  const uint32_t size = fill(number, version, row, attribute);
  CHECK_OK_ERR(turb_put(c, key_of(number, key), (turb_bytes){row, sizeof row}, (turb_bytes){attribute, size}, &options, &err), &err);
  return sequence;
}

static void delete_key(turb_collection *c, uint32_t number) {
  char key[16];
  CHECK_OK_ERR(turb_delete(c, key_of(number, key), NULL, &err), &err);
}

/* The version of a key after a stage; 0: it is not there. */
static uint32_t expected(uint32_t number, uint32_t stage) {
  if (number >= KEYS)
    return 0;
  uint32_t version = stage >= 1;
  if (stage >= 2)
    version = number % 7 == 0 ? 0 : number % 3 == 0 ? 2 : version;
  if (stage >= 3 && number >= 100 && number < 150)
    version = 0;
  if (stage >= 4)
    version = number % 11 == 0 ? 0 : number % 5 == 0 ? 4 : version;
  return version;
}

static void play_stage(turb_collection *c, uint32_t stage) {
  for (uint32_t i = 0; i < KEYS; i++) {
    if (stage == 1 || (stage == 2 && i % 3 == 0 && i % 7) || (stage == 4 && i % 5 == 0 && i % 11))
      (void)put(c, i, stage);
    if ((stage == 2 && i % 7 == 0) || (stage == 4 && i % 11 == 0))
      delete_key(c, i);
  }
  if (stage == 3)
    CHECK_OK_ERR(turb_delete_range(c, TURB_STR("k00100"), TURB_STR("k00150"), NULL, &err), &err);
}

static void open_again(struct shop *s) {
  CHECK_OK_ERR(turb_open("/db", &s->options, &s->db, &err), &err);
  CHECK_OK_ERR(turb_collection_open(s->db, "c", &s->c, &err), &err);
}

static void shop_begin(struct shop *s) {
  *s = (struct shop){.options = TURB_OPTIONS_INIT};
  turb_simulation_options disk = TURB_SIMULATION_OPTIONS_INIT;
  disk.seed = test_seed();
  CHECK_OK_ERR(turb_simulation_create(&disk, &s->simulation, &err), &err);
  s->options.backend = TURB_BACKEND_SIMULATED;
  s->options.simulation = s->simulation;
  s->options.memory_budget_bytes = 16u << 20;
  s->options.worker_threads = -1;
  s->options.durability = TURB_LOGGED;
  turb_collection_options shape = TURB_COLLECTION_OPTIONS_INIT;
  shape.dimension = DIMENSION;
  CHECK_OK_ERR(turb_open("/db", &s->options, &s->db, &err), &err);
  CHECK_OK_ERR(turb_collection_create(s->db, "c", &shape, &s->c, &err), &err);
}

/* Stages 1 to 3 are runs, 4 is in the memtable; a snapshot after each. */
static void shop_open(struct shop *s) {
  shop_begin(s);
  for (uint32_t stage = 1; stage <= STAGES; stage++) {
    play_stage(s->c, stage);
    CHECK_OK_ERR(turb_snapshot_create(s->db, &s->snapshots[stage], &err), &err);
    if (stage < STAGES)
      CHECK_OK_ERR(turb_flush(s->db, s->c, &err), &err);
  }
}

static void release_snapshots(struct shop *s) {
  for (uint32_t stage = 1; stage <= STAGES; stage++) {
    turb_snapshot_release(s->snapshots[stage]);
    s->snapshots[stage] = NULL;
  }
}

static void shop_close(struct shop *s) {
  release_snapshots(s);
  CHECK_OK_ERR(turb_close(s->db, &err), &err);
  turb_simulation_free(s->simulation);
}

static turb_stats stats_of(const struct shop *s) {
  turb_stats stats = {.size = sizeof stats};
  CHECK_OK_ERR(turb_get_stats(s->db, &stats, &err), &err);
  return stats;
}

static void check_bytes(uint32_t number, uint32_t version, turb_bytes vector, turb_bytes attributes) {
  float row[DIMENSION];
  uint8_t attribute[ATTRIBUTE_MAX];
  const uint32_t size = fill(number, version, row, attribute);
  CHECK_EQ(vector.size, sizeof row);
  CHECK_MEM_EQ(vector.data, row, sizeof row);
  CHECK_EQ(attributes.size, size);
  CHECK(size == 0 || memcmp(attributes.data, attribute, size) == 0);
}

/* ---- turb_get ---- */

static void check_get(const struct shop *s, uint32_t number, uint32_t stage) {
  turb_read_options options = TURB_READ_OPTIONS_INIT;
  options.snapshot = s->snapshots[stage];
  options.skip_cache_fill = number % 2;
  char key[16];
  float row[DIMENSION];
  uint8_t attribute[ATTRIBUTE_MAX];
  size_t size = 77;
  uint64_t sequence = 77;
  const uint32_t version = expected(number, stage);
  const turb_status status = turb_get(s->c, key_of(number, key), &options, row, attribute, sizeof attribute, &size, &sequence, NULL);
  CHECK_MSG(status == (version ? TURB_OK : TURB_NOT_FOUND), "%s after stage %u: %s", key, stage, turb_status_name(status));
  if (version) {
    check_bytes(number, version, (turb_bytes){row, sizeof row}, (turb_bytes){attribute, size});
    CHECK_LE(sequence, turb_snapshot_sequence(s->snapshots[stage]));
    CHECK_GT(sequence, version > 1 ? turb_snapshot_sequence(s->snapshots[version - 1]) : 0);
  } else {
    CHECK_EQ(size, 0);
    CHECK_EQ(sequence, 0);
  }
}

static void check_all_gets(const struct shop *s) {
  for (uint32_t stage = 1; stage <= STAGES; stage++)
    for (uint32_t i = 0; i < KEYS + 10; i++)
      check_get(s, i, stage);
}

TEST(get, of_every_key_at_every_snapshot) {
  struct shop s;
  shop_open(&s);
  check_all_gets(&s);
  CHECK_OK_ERR(turb_flush(s.db, s.c, &err), &err);
  check_all_gets(&s);
  CHECK_OK_ERR(turb_compact(s.db, s.c, &err), &err);
  CHECK_EQ(stats_of(&s).runs, 1);
  check_all_gets(&s);
  shop_close(&s);
}

static void check_small_buffers(turb_collection *c, uint32_t number, uint32_t version, uint64_t wanted_sequence) {
  char key[16];
  float row[DIMENSION] = {0}, wanted_row[DIMENSION];
  uint8_t attribute[ATTRIBUTE_MAX], wanted[ATTRIBUTE_MAX];
  size_t size = 0;
  uint64_t sequence = 0;
  turb_error why = TURB_ERROR_INIT;
  const uint32_t wanted_size = fill(number, version, wanted_row, wanted);
  CHECK_GT(wanted_size, 1);
  memset(attribute, 0xee, sizeof attribute);
  CHECK_STATUS(turb_get(c, key_of(number, key), NULL, row, attribute, wanted_size - 1, &size, &sequence, &why), TURB_TOO_LARGE);
  CHECK_EQ(size, wanted_size);
  CHECK_EQ(sequence, wanted_sequence);
  for (size_t i = 0; i < sizeof attribute; i++)
    CHECK_EQ(attribute[i], 0xee);
  CHECK(why.message[0] != '\0');
  CHECK_OK_ERR(turb_get(c, key_of(number, key), NULL, NULL, attribute, wanted_size, &size, &sequence, &err), &err);
  CHECK_EQ(size, wanted_size);
  CHECK_MEM_EQ(attribute, wanted, wanted_size);
  CHECK_EQ(attribute[wanted_size], 0xee);
  size = 0;
  CHECK_OK_ERR(turb_get(c, key_of(number, key), NULL, row, NULL, 0, &size, NULL, &err), &err);
  CHECK_EQ(size, wanted_size);
  CHECK_MEM_EQ(row, wanted_row, sizeof row);
  CHECK_OK_ERR(turb_get(c, key_of(number, key), NULL, NULL, NULL, 0, NULL, &sequence, &err), &err);
  CHECK_EQ(sequence, wanted_sequence);
}

TEST(get, copies_what_is_asked_for) {
  struct shop s;
  shop_begin(&s);
  for (uint32_t i = 0; i < 10; i++)
    (void)put(s.c, i, 1);
  const uint64_t sequence = put(s.c, 5, 2);
  check_small_buffers(s.c, 5, 2, sequence);
  CHECK_OK_ERR(turb_flush(s.db, s.c, &err), &err);
  check_small_buffers(s.c, 5, 2, sequence);
  size_t size = 9;
  float row[DIMENSION];
  CHECK_STATUS(turb_get(s.c, TURB_NONE, NULL, row, NULL, 0, &size, NULL, NULL), TURB_INVALID);
  CHECK_EQ(size, 0);
  static char large[TURB_MAX_KEY_BYTES + 1];
  CHECK_STATUS(turb_get(s.c, (turb_bytes){large, sizeof large}, NULL, row, NULL, 0, NULL, NULL, NULL), TURB_TOO_LARGE);
  CHECK_STATUS(turb_get(s.c, (turb_bytes){large, sizeof large - 1}, NULL, row, NULL, 0, NULL, NULL, NULL), TURB_NOT_FOUND);
  shop_close(&s);
}

/* ---- turb_get_pinned ---- */

static void pin(const struct shop *s, uint32_t number, uint32_t parts, turb_pinned *pinned) {
  turb_read_options options = TURB_READ_OPTIONS_INIT;
  options.parts = parts;
  char key[16];
  CHECK_OK_ERR(turb_get_pinned(s->c, key_of(number, key), &options, pinned, &err), &err);
}

TEST(get_pinned, stays_in_place_while_the_database_goes_on) {
  struct shop s;
  shop_open(&s);
  release_snapshots(&s);
  turb_pinned table, memtable;
  pin(&s, 1, TURB_ALL, &table); /* version 1, in a run */
  pin(&s, 5, 0, &memtable);     /* version 4, in the memtable */
  for (uint32_t i = 0; i < 20; i++)
    delete_key(s.c, i);
  CHECK_OK_ERR(turb_compact(s.db, s.c, &err), &err);
  CHECK_EQ(stats_of(&s).obsolete_tables, 3); /* of the version that the pins hold */
  for (uint32_t i = 20; i < KEYS; i++)       /* other pages come into the cache */
    if (expected(i, STAGES)) {
      turb_pinned other;
      pin(&s, i, TURB_ALL, &other);
      check_bytes(i, expected(i, STAGES), other.vector, other.attributes);
      turb_pinned_release(&other);
    }
  check_bytes(1, 1, table.vector, table.attributes);
  check_bytes(5, 4, memtable.vector, memtable.attributes);
  CHECK_STATUS(turb_close(s.db, NULL), TURB_BUSY);
  turb_pinned_release(&table);
  CHECK_STATUS(turb_close(s.db, NULL), TURB_BUSY);
  turb_pinned_release(&memtable);
  turb_pinned_release(&memtable); /* twice */
  CHECK_EQ(memtable.vector.size, 0);
  CHECK_EQ(stats_of(&s).obsolete_tables, 0);
  shop_close(&s);
}

TEST(get_pinned, brings_the_parts_asked_for) {
  struct shop s;
  shop_open(&s);
  for (int round = 0; round < 2; round++) { /* 5 in the memtable, then in a run; 1 in a run */
    for (uint32_t number = 1; number <= 5; number += 4) {
      turb_pinned pinned;
      pin(&s, number, TURB_KEY, &pinned);
      CHECK_EQ(pinned.vector.size + pinned.attributes.size, 0);
      const uint64_t sequence = pinned.sequence;
      turb_pinned_release(&pinned);
      pin(&s, number, TURB_VECTOR, &pinned);
      CHECK_EQ(pinned.sequence, sequence);
      CHECK_EQ(pinned.vector.size, DIMENSION * sizeof(float));
      CHECK_EQ(pinned.attributes.size, 0);
      const turb_bytes vector = pinned.vector;
      turb_pinned only;
      pin(&s, number, TURB_ATTRIBUTES, &only);
      CHECK_EQ(only.vector.size, 0);
      check_bytes(number, number == 5 ? 4 : 1, vector, only.attributes);
      turb_pinned_release(&pinned);
      turb_pinned_release(&only);
    }
    CHECK_OK_ERR(turb_flush(s.db, s.c, &err), &err);
  }
  turb_pinned pinned;
  turb_read_options options = TURB_READ_OPTIONS_INIT;
  options.parts = 8;
  CHECK_STATUS(turb_get_pinned(s.c, TURB_STR("k00001"), &options, &pinned, NULL), TURB_INVALID);
  CHECK_STATUS(turb_get_pinned(s.c, TURB_STR("k00000"), NULL, &pinned, NULL), TURB_NOT_FOUND);
  turb_pinned_release(&pinned); /* cleared by the failure */
  turb_pinned_release(NULL);
  shop_close(&s);
}

/* ---- turb_multi_get ---- */

#define MANY (KEYS + 200)

struct many {
  uint32_t numbers[MANY];
  char names[MANY][16];
  turb_bytes keys[MANY];
  turb_pinned pinned[MANY];
  turb_status statuses[MANY];
};

static struct many many;

static void check_multi_get(const struct shop *s, size_t count, uint32_t stage, bool skip_cache_fill) {
  turb_read_options options = TURB_READ_OPTIONS_INIT;
  options.snapshot = s->snapshots[stage];
  options.skip_cache_fill = skip_cache_fill;
  for (size_t i = 0; i < count; i++)
    many.keys[i] = key_of(many.numbers[i], many.names[i]);
  memset(many.pinned, 0xee, sizeof many.pinned);
  CHECK_OK_ERR(turb_multi_get(s->c, count, many.keys, &options, many.pinned, many.statuses, &err), &err);
  for (size_t i = 0; i < count; i++) {
    const uint32_t version = expected(many.numbers[i], stage);
    CHECK_MSG(many.statuses[i] == (version ? TURB_OK : TURB_NOT_FOUND), "%s after stage %u: %s", many.names[i], stage,
              turb_status_name(many.statuses[i]));
    if (version)
      check_bytes(many.numbers[i], version, many.pinned[i].vector, many.pinned[i].attributes);
    turb_pinned_release(&many.pinned[i]); /* cleared where nothing was found */
  }
}

/* Missing, deleted, hidden and found keys in any order, some more than once. */
static void draw_numbers(struct random *random, size_t count) {
  for (size_t i = 0; i < count; i++)
    many.numbers[i] = i && random_one_in(random, 5) ? many.numbers[random_below(random, i)] : (uint32_t)random_below(random, KEYS + 100);
}

TEST(multi_get, agrees_with_gets_at_every_snapshot) {
  struct random random;
  random_init(&random, test_seed());
  struct shop s;
  shop_open(&s);
  const uint64_t rounds = test_scale(24, 12, 200);
  for (uint64_t round = 0; round < rounds; round++) {
    const size_t count = random_one_in(&random, 3) ? MANY : 1 + random_below(&random, 40);
    draw_numbers(&random, count);
    check_multi_get(&s, count, 1 + (uint32_t)random_below(&random, STAGES), random_one_in(&random, 2));
    if (round == rounds / 2)
      CHECK_OK_ERR(turb_flush(s.db, s.c, &err), &err);
    if (round == rounds * 3 / 4)
      CHECK_OK_ERR(turb_compact(s.db, s.c, &err), &err);
  }
  CHECK_OK_ERR(turb_multi_get(s.c, 0, NULL, NULL, NULL, NULL, &err), &err);
  shop_close(&s);
}

TEST(multi_get, refuses_a_bad_key_as_a_whole) {
  struct shop s;
  shop_open(&s);
  turb_pinned pinned[2];
  turb_status statuses[2];
  const turb_bytes keys[2] = {TURB_STR("k00001"), TURB_NONE};
  memset(pinned, 0xee, sizeof pinned);
  CHECK_STATUS(turb_multi_get(s.c, 2, keys, NULL, pinned, statuses, NULL), TURB_INVALID);
  for (int i = 0; i < 2; i++) {
    CHECK_EQ(pinned[i].vector.size, 0);
    turb_pinned_release(&pinned[i]);
  }
  shop_close(&s);
}

/* Cold, and with fewer ring entries than keys: about a read a key, in few system calls. */
TEST(multi_get, misses_go_out_together) {
  struct shop s;
  shop_begin(&s);
  play_stage(s.c, 1);
  CHECK_OK_ERR(turb_flush(s.db, s.c, &err), &err);
  CHECK_OK_ERR(turb_close(s.db, &err), &err);
  s.options.ring_entries = 64;
  for (uint32_t skip = 0; skip < 2; skip++) {
    open_again(&s);
    CHECK_OK_ERR(turb_snapshot_create(s.db, &s.snapshots[1], &err), &err);
    const size_t count = 500;
    for (size_t i = 0; i < count; i++)
      many.numbers[i] = (uint32_t)(i * 997 % KEYS);
    const turb_stats before = stats_of(&s);
    check_multi_get(&s, count, 1, skip);
    const turb_stats after = stats_of(&s);
    const uint64_t reads = after.reads - before.reads, submissions = after.submissions - before.submissions;
    CHECK_MSG(reads >= 20 && reads <= 4 * count, "%llu reads", (unsigned long long)reads);
    CHECK_MSG(submissions * 8 <= reads + 80, "%llu submissions of %llu reads", (unsigned long long)submissions, (unsigned long long)reads);
    turb_snapshot_release(s.snapshots[1]);
    s.snapshots[1] = NULL;
    CHECK_OK_ERR(turb_close(s.db, &err), &err);
  }
  turb_simulation_free(s.simulation);
}

/* ---- turb_approximate_range ---- */

static uint64_t approximate(const struct shop *s, turb_bytes lower, turb_bytes upper, uint64_t *bytes) {
  uint64_t entries = 77;
  *bytes = 77;
  CHECK_OK_ERR(turb_approximate_range(s->c, lower, upper, &entries, bytes, &err), &err);
  return entries;
}

/* Within a factor of two, or fifty entries where there are few. */
static void check_about(uint64_t got, uint64_t wanted) {
  CHECK_MSG(got <= wanted * 2 + 50 && got + 50 >= wanted / 2, "%llu, but %llu are there", (unsigned long long)got,
            (unsigned long long)wanted);
}

TEST(approximate_range, counts_about_right) {
  struct shop s;
  shop_begin(&s);
  play_stage(s.c, 1);
  for (int where = 0; where < 2; where++) { /* in the memtable, then in a run */
    uint64_t all_bytes, bytes;
    check_about(approximate(&s, TURB_NONE, TURB_NONE, &all_bytes), KEYS);
    check_about(all_bytes, KEYS * (6 + DIMENSION * 4 + ATTRIBUTE_MAX / 2));
    check_about(approximate(&s, TURB_STR("k00500"), TURB_STR("k01000"), &bytes), 500);
    check_about(bytes, all_bytes / 3);
    check_about(approximate(&s, TURB_STR("k01000"), TURB_NONE, &bytes), 500);
    check_about(approximate(&s, TURB_NONE, TURB_STR("k00700"), &bytes), 700);
    CHECK_EQ(approximate(&s, TURB_STR("l"), TURB_NONE, &bytes), 0);
    CHECK_EQ(bytes, 0);
    CHECK_EQ(approximate(&s, TURB_NONE, TURB_STR("a"), &bytes), 0);
    CHECK_EQ(approximate(&s, TURB_STR("k01000"), TURB_STR("k00500"), &bytes), 0);
    CHECK_OK_ERR(turb_flush(s.db, s.c, &err), &err);
  }
  uint64_t bytes;
  play_stage(s.c, 2); /* all versions count */
  check_about(approximate(&s, TURB_NONE, TURB_NONE, &bytes), KEYS + KEYS / 3 * 6 / 7 + KEYS / 7);
  shop_close(&s);
}

/* ---- snapshots ---- */

TEST(snapshot, keeps_old_versions_until_released) {
  struct shop s;
  shop_open(&s);
  CHECK_OK_ERR(turb_compact(s.db, s.c, &err), &err);
  check_all_gets(&s);
  uint64_t bytes;
  const uint64_t kept = approximate(&s, TURB_NONE, TURB_NONE, &bytes);
  CHECK_GT(kept, KEYS + KEYS / 3);
  CHECK_EQ(stats_of(&s).snapshots, STAGES);
  release_snapshots(&s);
  CHECK_EQ(stats_of(&s).snapshots, 0);
  (void)put(s.c, 1, 1); /* so that there are two runs to merge */
  CHECK_OK_ERR(turb_compact(s.db, s.c, &err), &err);
  uint32_t live = 0;
  for (uint32_t i = 0; i < KEYS; i++)
    live += expected(i, STAGES) != 0;
  uint64_t first = 0;
  CHECK_OK_ERR(turb_approximate_range(s.c, TURB_NONE, TURB_NONE, &first, &bytes, &err), &err);
  CHECK_EQ(first, live); /* one run: the count is exact */
  CHECK_OK_ERR(turb_snapshot_create(s.db, &s.snapshots[STAGES], &err), &err);
  for (uint32_t i = 0; i < KEYS; i++)
    if (i != 1)
      check_get(&(struct shop){.c = s.c, .snapshots = {[1] = s.snapshots[STAGES]}}, KEYS + i, 1);
  shop_close(&s);
}

TEST(snapshot, of_another_database_is_refused) {
  struct shop s;
  shop_open(&s);
  turb_db *other;
  turb_snapshot *strange;
  CHECK_OK_ERR(turb_open("/other", &s.options, &other, &err), &err);
  CHECK_OK_ERR(turb_snapshot_create(other, &strange, &err), &err);
  turb_read_options read = TURB_READ_OPTIONS_INIT;
  turb_iterator_options walk = TURB_ITERATOR_OPTIONS_INIT;
  read.snapshot = walk.snapshot = strange;
  turb_pinned pinned;
  turb_status status;
  turb_iterator *it;
  const turb_bytes key = TURB_STR("k00001");
  CHECK_STATUS(turb_get(s.c, key, &read, NULL, NULL, 0, NULL, NULL, NULL), TURB_INVALID);
  CHECK_STATUS(turb_get_pinned(s.c, key, &read, &pinned, NULL), TURB_INVALID);
  CHECK_STATUS(turb_multi_get(s.c, 1, &key, &read, &pinned, &status, NULL), TURB_INVALID);
  CHECK_STATUS(turb_iterator_open(s.c, &walk, &it, NULL), TURB_INVALID);
  CHECK(it == NULL);
  CHECK_STATUS(turb_close(other, NULL), TURB_BUSY);
  turb_snapshot_release(strange);
  CHECK_OK_ERR(turb_close(other, &err), &err);
  shop_close(&s);
}

/* ---- iterators ---- */

static turb_iterator *walk_open(const struct shop *s, const turb_iterator_options *options) {
  turb_iterator *it;
  CHECK_OK_ERR(turb_iterator_open(s->c, options, &it, &err), &err);
  return it;
}

static void check_at(const turb_iterator *it, uint32_t number, uint32_t version, uint32_t parts) {
  char key[16];
  const turb_bytes wanted = key_of(number, key);
  CHECK(it->entry != NULL);
  CHECK_MSG(it->entry->key.size == wanted.size && memcmp(it->entry->key.data, key, wanted.size) == 0, "at %.*s instead of %s",
            (int)it->entry->key.size, (const char *)it->entry->key.data, key);
  float row[DIMENSION];
  uint8_t attribute[ATTRIBUTE_MAX];
  const uint32_t size = fill(number, version, row, attribute);
  CHECK_EQ(it->entry->vector.size, parts & TURB_VECTOR ? sizeof row : 0);
  CHECK(!(parts & TURB_VECTOR) || memcmp(it->entry->vector.data, row, sizeof row) == 0);
  CHECK_EQ(it->entry->attributes.size, parts & TURB_ATTRIBUTES ? size : 0);
  CHECK(!(parts & TURB_ATTRIBUTES) || size == 0 || memcmp(it->entry->attributes.data, attribute, size) == 0);
}

/* The next number from `number` on in a direction that is there after the stage, within [low, high); UINT32_MAX: none. */
static uint32_t seek_number(uint32_t number, int step, uint32_t stage, uint32_t low, uint32_t high) {
  for (int64_t n = number; n >= low && n < high; n += step)
    if (expected((uint32_t)n, stage))
      return (uint32_t)n;
  return UINT32_MAX;
}

static void check_state(const turb_iterator *it, turb_state state, uint32_t number, uint32_t stage, uint32_t parts) {
  if (number == UINT32_MAX) {
    CHECK_EQ(state, TURB_END);
    CHECK(it->entry == NULL);
    return;
  }
  CHECK_OK_ERR(turb_iterator_status(it, &err), &err);
  CHECK_EQ(state, TURB_READY);
  check_at(it, number, expected(number, stage), parts);
}

/* Random seeks and turns within [low, high). */
static void walk_about(const struct shop *s, struct random *random, const turb_iterator_options *options, uint32_t stage, uint32_t low,
                       uint32_t high) {
  turb_iterator *it = walk_open(s, options);
  const uint32_t parts = options->parts ? options->parts : TURB_ALL;
  uint32_t at = UINT32_MAX;
  for (uint64_t moves = test_scale(150, 60, 1000); moves; moves--) {
    char key[16];
    const uint32_t target = low + (uint32_t)random_below(random, high - low);
    turb_state state;
    switch (at == UINT32_MAX ? random_below(random, 4) : random_below(random, 30)) {
    case 0:
      state = turb_finish(it, turb_first(it));
      at = seek_number(low, 1, stage, low, high);
      break;
    case 1:
      state = turb_finish(it, turb_last(it));
      at = seek_number(high - 1, -1, stage, low, high);
      break;
    case 2:
      state = turb_finish(it, turb_seek(it, key_of(target, key)));
      at = seek_number(target, 1, stage, low, high);
      break;
    case 3:
      state = turb_finish(it, turb_seek_for_prev(it, key_of(target, key)));
      at = seek_number(target, -1, stage, low, high);
      break;
    default: {
      const bool forward = random_below(random, 30) < 16;
      state = forward ? turb_next(it) : turb_prev(it);
      at = forward ? seek_number(at + 1, 1, stage, low, high) : at ? seek_number(at - 1, -1, stage, low, high) : UINT32_MAX;
    }
    }
    check_state(it, state, at, stage, parts);
  }
  turb_iterator_close(it);
}

TEST(iterator, walks_as_its_options_say) {
  static const uint32_t choices[] = {0, TURB_KEY, TURB_VECTOR, TURB_KEY | TURB_ATTRIBUTES};
  struct random random;
  random_init(&random, test_seed());
  struct shop s;
  shop_open(&s);
  const uint64_t rounds = test_scale(60, 30, 400);
  for (uint64_t round = 0; round < rounds; round++) {
    turb_iterator_options options = TURB_ITERATOR_OPTIONS_INIT;
    const uint32_t stage = 1 + (uint32_t)random_below(&random, STAGES);
    options.snapshot = s.snapshots[stage];
    options.parts = choices[random_below(&random, 4)];
    options.streaming = random_one_in(&random, 3);
    options.skip_cache_fill = random_one_in(&random, 3);
    options.work_budget = random_one_in(&random, 3) ? 1 + (uint32_t)random_below(&random, 9) : 0;
    uint32_t low = 0, high = KEYS;
    char lower[16], upper[16];
    if (random_one_in(&random, 2)) {
      low = (uint32_t)random_below(&random, KEYS - 1);
      high = low + 1 + (uint32_t)random_below(&random, KEYS - low - 1);
      options.lower = key_of(low, lower);
      options.upper = key_of(high, upper);
    } else if (random_one_in(&random, 2)) {
      options.prefix = TURB_STR("k001"); /* it also hides what a bound beyond it would let through */
      options.upper = TURB_STR("k00180");
      low = 100;
      high = 180;
    }
    walk_about(&s, &random, &options, stage, low, high);
    if (round == rounds / 3)
      CHECK_OK_ERR(turb_flush(s.db, s.c, &err), &err);
    if (round == rounds * 2 / 3)
      CHECK_OK_ERR(turb_compact(s.db, s.c, &err), &err);
  }
  shop_close(&s);
}

TEST(iterator, sees_what_was_there_when_it_was_opened) {
  struct shop s;
  shop_open(&s);
  turb_iterator *it = walk_open(&s, NULL);
  release_snapshots(&s); /* the iterator keeps what it needs by itself */
  for (uint32_t i = 0; i < KEYS; i += 2)
    (void)put(s.c, i, 9);
  CHECK_OK_ERR(turb_delete_range(s.c, TURB_STR("k00300"), TURB_NONE, NULL, &err), &err);
  CHECK_OK_ERR(turb_compact(s.db, s.c, &err), &err);
  uint32_t at = seek_number(0, 1, STAGES, 0, KEYS);
  turb_state state = turb_finish(it, turb_first(it));
  for (; at != UINT32_MAX; state = turb_next(it), at = seek_number(at + 1, 1, STAGES, 0, KEYS))
    check_state(it, state, at, STAGES, TURB_ALL);
  CHECK_EQ(state, TURB_END);
  turb_iterator_close(it);
  uint32_t count = 0;
  it = walk_open(&s, NULL);
  for (state = turb_finish(it, turb_first(it)); state == TURB_READY; state = turb_next(it))
    count++;
  CHECK_EQ(state, TURB_END);
  turb_iterator_close(it);
  uint32_t wanted = 0;
  for (uint32_t i = 0; i < 300; i++)
    wanted += i % 2 == 0 || expected(i, STAGES);
  CHECK_EQ(count, wanted);
  shop_close(&s);
}

TEST(iterator, says_when_it_is_not_positioned) {
  struct shop s;
  shop_open(&s);
  turb_iterator *it = walk_open(&s, NULL);
  CHECK(it->entry == NULL);
  CHECK_EQ(turb_advance(it), TURB_FAILED);
  CHECK_EQ(turb_retreat(it), TURB_FAILED);
  CHECK_EQ(turb_fetch(it, TURB_ALL), TURB_FAILED);
  CHECK_STATUS(turb_iterator_status(it, NULL), TURB_INVALID);
  check_state(it, turb_finish(it, turb_seek(it, TURB_NONE)), 1, STAGES, TURB_ALL); /* before all keys: 0 is deleted */
  CHECK_EQ(turb_finish(it, turb_seek_for_prev(it, TURB_NONE)), TURB_END);
  CHECK_EQ(turb_next(it), TURB_END);
  CHECK_EQ(turb_prev(it), TURB_END);
  CHECK_OK_ERR(turb_iterator_status(it, &err), &err);
  CHECK_EQ(turb_finish(it, turb_seek(it, TURB_STR("l"))), TURB_END);
  CHECK_EQ(turb_finish(it, turb_seek_for_prev(it, TURB_STR("l"))), TURB_READY);
  check_at(it, 1499, expected(1499, STAGES), TURB_ALL);
  turb_iterator_close(it);
  turb_iterator_close(NULL);
  shop_close(&s);
}

/* ---- the work budget ---- */

/* Between the first key and the last all are deleted: a call looks at no more than its budget, and going on arrives. */
static void cross_the_desert(const struct shop *s, uint32_t budget, bool backward) {
  turb_iterator_options options = TURB_ITERATOR_OPTIONS_INIT;
  options.work_budget = budget;
  turb_iterator *it = walk_open(s, &options);
  check_at((turb_finish(it, backward ? turb_last(it) : turb_first(it)), it), backward ? KEYS - 1 : 0, 1, TURB_ALL);
  uint32_t yields = 0;
  turb_state state = backward ? turb_retreat(it) : turb_advance(it);
  while (state == TURB_YIELD || state == TURB_PENDING) {
    check_at(it, backward ? KEYS - 1 : 0, 1, TURB_ALL); /* the old entry is still there */
    yields += state == TURB_YIELD;
    if (state == TURB_PENDING)
      CHECK_OK_ERR(turb_submit(it, &err), &err);
    state = backward ? turb_retreat(it) : turb_advance(it);
  }
  CHECK_EQ(state, TURB_READY);
  check_at(it, backward ? 0 : KEYS - 1, 1, TURB_ALL);
  if (budget)
    CHECK_MSG((yields + 1) * budget >= KEYS - 2, "%u yields of %u entries each", yields, budget);
  else
    CHECK_EQ(yields, 0);
  CHECK(!budget || yields * budget <= 3 * (KEYS + 2 * budget));
  turb_iterator_close(it);
}

TEST(iterator, yields_when_its_work_budget_is_spent) {
  struct shop s;
  shop_begin(&s);
  play_stage(s.c, 1);
  CHECK_OK_ERR(turb_flush(s.db, s.c, &err), &err);
  for (int where = 0; where < 3; where++) { /* deleted in the memtable, in a run above, and by range */
    if (where == 0)
      for (uint32_t i = 1; i + 1 < KEYS; i++)
        delete_key(s.c, i);
    if (where == 1)
      CHECK_OK_ERR(turb_flush(s.db, s.c, &err), &err);
    if (where == 2) {
      for (uint32_t i = 1; i + 1 < KEYS; i++)
        (void)put(s.c, i, 2);
      CHECK_OK_ERR(turb_delete_range(s.c, TURB_STR("k00001"), TURB_STR("k01499"), NULL, &err), &err);
    }
    for (int backward = 0; backward < 2; backward++) {
      cross_the_desert(&s, 0, backward);
      cross_the_desert(&s, 7, backward);
      cross_the_desert(&s, 100, backward);
    }
  }
  shop_close(&s);
}

/* ---- turb_fetch ---- */

static void open_for_keys(struct shop *s, uint32_t stages, turb_iterator **it) {
  shop_begin(s);
  for (uint32_t stage = 1; stage <= stages; stage++)
    play_stage(s->c, stage);
  CHECK_OK_ERR(turb_compact(s->db, s->c, &err), &err);
  CHECK_OK_ERR(turb_close(s->db, &err), &err);
  open_again(s); /* cold: each part needs a read */
  turb_iterator_options options = TURB_ITERATOR_OPTIONS_INIT;
  options.parts = TURB_KEY;
  *it = walk_open(s, &options);
}

TEST(fetch, brings_parts_of_some_entries) {
  struct shop s;
  turb_iterator *it;
  open_for_keys(&s, 4, &it);
  turb_state state = turb_finish(it, turb_first(it));
  uint32_t at = seek_number(0, 1, STAGES, 0, KEYS);
  for (uint32_t n = 0; at != UINT32_MAX; n++, state = turb_next(it), at = seek_number(at + 1, 1, STAGES, 0, KEYS)) {
    check_state(it, state, at, STAGES, TURB_KEY);
    if (n % 3)
      continue;
    const uint32_t parts = n % 4 == 0 ? TURB_VECTOR : n % 4 == 1 ? TURB_ATTRIBUTES : TURB_ALL;
    CHECK_EQ(turb_finish(it, turb_fetch(it, parts)), TURB_READY);
    check_at(it, at, expected(at, STAGES), parts);
    CHECK_EQ(turb_finish(it, turb_fetch(it, parts)), TURB_READY); /* it is there */
    check_at(it, at, expected(at, STAGES), parts);
  }
  CHECK_EQ(state, TURB_END);
  turb_iterator_close(it);
  shop_close(&s);
}

/* What one fetch brought stays while another brings the rest; what was fetched for an entry goes with the fetch for another. */
TEST(fetch, of_one_part_after_the_other) {
  struct shop s;
  turb_iterator *it;
  open_for_keys(&s, 1, &it);
  for (uint32_t at = 10; at < KEYS; at += 97) {
    char key[16];
    CHECK_EQ(turb_finish(it, turb_seek(it, key_of(at, key))), TURB_READY);
    CHECK_EQ(turb_finish(it, turb_fetch(it, TURB_VECTOR)), TURB_READY);
    check_at(it, at, 1, TURB_VECTOR);
    CHECK_EQ(turb_finish(it, turb_fetch(it, TURB_ATTRIBUTES)), TURB_READY);
    check_at(it, at, 1, TURB_ALL);
    CHECK_EQ(turb_next(it), TURB_READY);
    check_at(it, at + 1, 1, TURB_KEY);
    CHECK_EQ(turb_finish(it, turb_fetch(it, TURB_VECTOR)), TURB_READY);
    check_at(it, at + 1, 1, TURB_VECTOR);
    CHECK_EQ(turb_prev(it), TURB_READY);
    check_at(it, at, 1, TURB_KEY);
    CHECK_EQ(turb_finish(it, turb_fetch(it, TURB_ALL)), TURB_READY);
    check_at(it, at, 1, TURB_ALL);
  }
  turb_iterator_close(it);
  shop_close(&s);
}

/* A move while a fetch is pending goes on with the fetch; a seek drops it, and the old entry stays. */
TEST(fetch, pending_holds_the_entry) {
  struct shop s;
  turb_iterator *it;
  open_for_keys(&s, 1, &it);
  uint32_t pending = 0;
  for (uint32_t at = 10; at + 1 < KEYS; at += 61) {
    char key[16];
    CHECK_EQ(turb_finish(it, turb_seek(it, key_of(at, key))), TURB_READY);
    turb_state state = turb_fetch(it, TURB_ALL);
    if (state == TURB_PENDING) {
      pending++;
      state = at % 2 ? turb_advance(it) : turb_retreat(it);
      CHECK_EQ(it->entry->key.size, 6);
      CHECK_MEM_EQ(it->entry->key.data, key, 6);
      if (state == TURB_PENDING && at % 3 == 0) {
        char other[16];
        state = turb_seek(it, key_of(KEYS - 1 - at, other));
        if (state == TURB_PENDING)
          CHECK_MEM_EQ(it->entry->key.data, key, 6);
        CHECK_EQ(turb_finish(it, state), TURB_READY);
        check_at(it, KEYS - 1 - at, 1, TURB_KEY);
        continue;
      }
    }
    CHECK_EQ(turb_finish(it, state), TURB_READY);
    check_at(it, at, 1, TURB_ALL);
    CHECK_EQ(turb_next(it), TURB_READY);
    check_at(it, at + 1, 1, TURB_KEY);
  }
  CHECK_GT(pending, 2);
  turb_iterator_close(it);
  shop_close(&s);
}

/* ---- the page cache ---- */

/* How many reads a walk over everything takes. */
static uint64_t reads_of_a_walk(const struct shop *s, const turb_iterator_options *options) {
  const uint64_t before = stats_of(s).reads;
  turb_iterator *it = walk_open(s, options);
  uint32_t at = 0;
  for (turb_state state = turb_finish(it, turb_first(it)); state == TURB_READY; state = turb_next(it))
    check_at(it, at++, 1, TURB_ALL);
  CHECK_EQ(at, KEYS);
  turb_iterator_close(it);
  return stats_of(s).reads - before;
}

TEST(cache, is_filled_unless_the_reader_says_not) {
  struct shop s;
  shop_begin(&s);
  play_stage(s.c, 1);
  CHECK_OK_ERR(turb_flush(s.db, s.c, &err), &err);
  CHECK_OK_ERR(turb_close(s.db, &err), &err);
  for (int way = 0; way < 3; way++) {
    open_again(&s);
    turb_iterator_options options = TURB_ITERATOR_OPTIONS_INIT;
    options.skip_cache_fill = way == 1;
    options.streaming = way == 2;
    const uint64_t first = reads_of_a_walk(&s, &options), second = reads_of_a_walk(&s, NULL), third = reads_of_a_walk(&s, NULL);
    CHECK_GT(first, 0);
    CHECK_LE(third, 8); /* attributes that lie across two chunks come by themselves */
    if (way == 0)
      CHECK_EQ(second, third);
    else
      CHECK_GT(second, third + 10); /* nothing of rows, attributes and keys was kept */
    CHECK_OK_ERR(turb_close(s.db, &err), &err);
  }
  turb_simulation_free(s.simulation);
}
