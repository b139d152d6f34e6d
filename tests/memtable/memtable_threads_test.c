/*
 * One writer and several readers of a memtable.
 *
 * Sequence number i stands for one write that follows from i alone, and the writer publishes the last one that is visible: so a reader
 * can say what it must find. Every RANGE_EVERY-th is a range delete, every DELETE_EVERY-th a delete.
 */
#include <stdlib.h>

#include "base/arena.h"
#include "base/hash.h"
#include "base/thread.h"
#include "memtable/memtable.h"
#include "memtable/pool.h"
#include "tests/support/test.h"

#define READERS      3
#define ROW_BYTES    24u
#define RANGE_EVERY  29
#define DELETE_EVERY 7
#define KEY_BYTES    40u

enum kind { PUT, DELETE, RANGE };

struct shared {
  struct memtable *memtable;
  _Atomic uint64_t visible;
  _Atomic bool done;
  uint64_t writes;
  uint64_t seed;
  unsigned style;
};

struct reader {
  struct thread thread;
  struct shared *shared;
  uint64_t seed;
  uint64_t rounds;
};

static enum kind kind_of(uint64_t i) {
  return i % RANGE_EVERY == 0 ? RANGE : i % DELETE_EVERY == 0 ? DELETE : PUT;
}

static size_t key_of(const struct shared *shared, uint64_t i, uint8_t *key) {
  const uint64_t mixed = hash_mix64(i + shared->seed);
  switch (shared->style) {
  case 0: memcpy(key, &mixed, 8); return 8;
  case 1: return (size_t)snprintf((char *)key, KEY_BYTES, "prefix-%018" PRIu64, mixed % 5000); /* versions */
  case 2: return (size_t)snprintf((char *)key, KEY_BYTES, "%020" PRIu64, i);                   /* ascending */
  default: /* stretches of zeros that extend each other */
    memset(key, 0, KEY_BYTES);
    key[mixed % 23] = (uint8_t)(mixed >> 32);
    return 1 + mixed % 23;
  }
}

static void row_of(uint64_t i, uint8_t row[ROW_BYTES]) {
  for (unsigned b = 0; b < ROW_BYTES; b += 8) {
    const uint64_t value = hash_mix64(i * 3 + b);
    memcpy(row + b, &value, 8);
  }
}

static void range_of(uint64_t i, uint8_t begin[2], uint8_t end[2]) {
  begin[0] = (uint8_t)(hash_mix64(i) % 200);
  begin[1] = 7;
  end[0] = (uint8_t)(begin[0] + 3);
  end[1] = 0;
}

static void write_one(struct shared *shared, uint64_t i) {
  uint8_t key[KEY_BYTES], row[ROW_BYTES], begin[2], end[2];
  const size_t size = key_of(shared, i, key);
  switch (kind_of(i)) {
  case PUT:
    row_of(i, row);
    CHECK_OK(memtable_put(shared->memtable, (turb_bytes){key, size}, i, row, hash64(row, ROW_BYTES, 0), (turb_bytes){row, i % ROW_BYTES}, 0,
                          NULL));
    break;
  case DELETE: CHECK_OK(memtable_delete(shared->memtable, (turb_bytes){key, size}, i, NULL)); break;
  case RANGE:
    range_of(i, begin, end);
    CHECK_OK(memtable_delete_range(shared->memtable, (turb_bytes){begin, 2}, (turb_bytes){end, 2}, i, NULL));
    break;
  }
}

static void writer_main(void *context) {
  struct shared *shared = context;
  for (uint64_t i = 1; i <= shared->writes; i++) {
    write_one(shared, i);
    if (i % 3 == 0 || i == shared->writes) { /* several become visible at once */
      atomic_store_explicit(&shared->visible, i, memory_order_release);
    }
  }
  atomic_store_explicit(&shared->done, true, memory_order_release);
}

/* A slot is complete, and says what its sequence stands for. */
static void check_slot(const struct shared *shared, const struct slot *slot) {
  uint8_t key[KEY_BYTES], row[ROW_BYTES];
  const uint64_t i = slot_sequence(slot);
  const size_t size = key_of(shared, i, key);
  CHECK_EQ(slot->key_size, size);
  CHECK_MEM_EQ(slot_key(slot), key, size);
  CHECK_EQ(slot_kind(slot), kind_of(i) == PUT ? SLOT_PUT : SLOT_DELETE);
  if (kind_of(i) == PUT) {
    row_of(i, row);
    CHECK_MEM_EQ(memtable_row(shared->memtable, slot_row(slot)), row, ROW_BYTES);
    CHECK_EQ(slot_attribute_size(slot), i % ROW_BYTES);
    CHECK_MEM_EQ(memtable_attributes(shared->memtable, slot), row, i % ROW_BYTES);
  }
}

static uint64_t point_entries(uint64_t visible) {
  return visible - visible / RANGE_EVERY;
}

/* A whole walk: ascending, complete, and with every entry that was visible when it began. */
static void check_walk(const struct shared *shared, bool backward) {
  const uint64_t visible = atomic_load_explicit(&shared->visible, memory_order_acquire);
  const struct memtable_node *node = backward ? memtable_last(shared->memtable) : memtable_first(shared->memtable);
  const struct slot *previous = NULL;
  uint64_t seen = 0;
  while (node != NULL) {
    const struct slot *slot = memtable_node_slot(node);
    if (previous != NULL) {
      const int order = slot_compare(previous, slot);
      CHECK(backward ? order > 0 : order < 0);
    }
    if ((slot_sequence(slot) & 15) == 0) {
      check_slot(shared, slot);
    }
    seen += slot_sequence(slot) <= visible;
    previous = slot;
    node = backward ? memtable_previous(shared->memtable, node) : memtable_next(node);
  }
  CHECK_EQ(seen, point_entries(visible));
}

static void check_lookup(const struct shared *shared, struct random *random) {
  uint8_t key[KEY_BYTES];
  const uint64_t visible = atomic_load_explicit(&shared->visible, memory_order_acquire);
  if (visible == 0) {
    return;
  }
  const uint64_t i = random_between(random, 1, visible);
  if (kind_of(i) == RANGE) {
    uint8_t begin[2], end[2];
    range_of(i, begin, end);
    CHECK_EQ(memtable_range_cover(shared->memtable, (turb_bytes){begin, 2}, i), i);
    CHECK_GE(memtable_range_cover(shared->memtable, (turb_bytes){begin, 2}, visible), i);
    return;
  }
  const turb_bytes target = {key, key_of(shared, i, key)};
  const struct slot *slot = memtable_get(shared->memtable, target, i);
  CHECK(slot != NULL);
  CHECK_EQ(slot_sequence(slot), i);
  check_slot(shared, slot);
  const struct memtable_node *before = memtable_before(shared->memtable, target, i);
  CHECK(before == NULL || slot_compare_target(memtable_node_slot(before), target, i) < 0);
  const struct memtable_node *after = memtable_lower_bound(shared->memtable, target, SLOT_SEQUENCE_MAX);
  CHECK(after != NULL && slot_compare_target(memtable_node_slot(after), target, SLOT_SEQUENCE_MAX) >= 0);
}

static void check_rows(const struct shared *shared, struct random *random) {
  const uint64_t rows = memtable_rows(shared->memtable);
  if (rows == 0) {
    return;
  }
  uint64_t count = 0;
  const uint64_t row = random_below(random, rows);
  const uint8_t *run = memtable_row_run(shared->memtable, row, &count);
  CHECK(count != 0);
  const uint64_t last = row + count - 1;
  const struct slot *slot = memtable_row_slot(shared->memtable, last);
  CHECK_EQ(slot_row(slot), last);
  check_slot(shared, slot);
  CHECK(memtable_row(shared->memtable, last) == run + (count - 1) * ROW_BYTES);
}

static void check_fragments(const struct shared *shared) {
  struct arena arena;
  struct range_deletes deletes;
  const uint64_t visible = atomic_load_explicit(&shared->visible, memory_order_acquire);
  const struct range_snapshots none = {NULL, 0};
  arena_init(&arena, alloc_default(), NULL, BUDGET_CURSOR, 0);
  CHECK_OK(memtable_range_deletes_seen(shared->memtable, visible, &none, &arena, &deletes, NULL));
  CHECK(range_deletes_valid(&deletes));
  for (uint64_t i = RANGE_EVERY; i <= visible; i += RANGE_EVERY * 13) {
    uint8_t begin[2], end[2];
    range_of(i, begin, end);
    const uint64_t cover = range_deletes_cover(&deletes, (turb_bytes){begin, 2}, visible);
    CHECK_GE(cover, i);
    CHECK_EQ(cover, memtable_range_cover(shared->memtable, (turb_bytes){begin, 2}, visible));
  }
  arena_free(&arena);
}

static void reader_main(void *context) {
  struct reader *reader = context;
  const struct shared *shared = reader->shared;
  struct random random;
  random_init(&random, reader->seed);
  bool done = false;
  while (!done) {
    done = atomic_load_explicit(&shared->done, memory_order_acquire); /* one more round behind the end */
    for (int i = 0; i < 200; i++) {
      check_lookup(shared, &random);
    }
    check_rows(shared, &random);
    check_walk(shared, (reader->rounds & 1) != 0);
    if (reader->rounds % 4 == 0) {
      check_fragments(shared);
    }
    reader->rounds++;
  }
}

static void threads_test(unsigned style) {
  struct budget budget;
  struct memtable_pool pool;
  budget_init(&budget, UINT64_MAX);
  memtable_pool_init(&pool, alloc_default(), &budget, 8 << 20);
  const struct memtable_options options = {
      .allocator = alloc_default(), .budget = &budget, .pool = &pool, .row_bytes = ROW_BYTES, .stride = ROW_BYTES};
  const uint64_t seed = test_seed();
  for (int table = 0; table < 2; table++) { /* the second in memory of the first */
    struct shared shared = {.writes = test_scale(30000, 15000, 200000), .seed = seed + (uint64_t)table, .style = style};
    CHECK_OK(memtable_create(&options, &shared.memtable, NULL));
    struct reader readers[READERS] = {{.shared = NULL}};
    struct thread writer = {.started = false};
    for (int i = 0; i < READERS; i++) {
      readers[i].shared = &shared;
      readers[i].seed = seed + 100 + (uint64_t)i;
      CHECK_OK(thread_start(&readers[i].thread, "reader", reader_main, &readers[i], NULL));
    }
    CHECK_OK(thread_start(&writer, "writer", writer_main, &shared, NULL));
    thread_join(&writer);
    for (int i = 0; i < READERS; i++) {
      thread_join(&readers[i].thread);
      CHECK_GE(readers[i].rounds, 1);
    }
    CHECK(memtable_valid(shared.memtable));
    CHECK_EQ(memtable_entries(shared.memtable), point_entries(shared.writes));
    memtable_release(shared.memtable);
  }
  memtable_pool_free(&pool);
  CHECK_EQ(budget_used(&budget), 0);
}

TEST(memtable_threads, random_keys) {
  threads_test(0);
}
TEST(memtable_threads, versions_of_keys_with_a_common_beginning) {
  threads_test(1);
}
TEST(memtable_threads, ascending_keys) {
  threads_test(2);
}
TEST(memtable_threads, keys_that_extend_each_other) {
  threads_test(3);
}

/* References may be dropped by any thread. */
static void release_main(void *context) {
  memtable_release(context);
}

TEST(memtable_threads, the_last_reference_frees) {
  struct budget budget;
  budget_init(&budget, UINT64_MAX);
  const struct memtable_options options = {.allocator = alloc_default(), .budget = &budget, .row_bytes = 4, .stride = 4};
  struct memtable *memtable = NULL;
  CHECK_OK(memtable_create(&options, &memtable, NULL));
  CHECK_OK(memtable_put(memtable, TURB_STR("k"), 1, "row", 0, TURB_NONE, 0, NULL));
  struct thread threads[4] = {{.started = false}};
  for (int i = 0; i < 4; i++) {
    CHECK_OK(thread_start(&threads[i], "release", release_main, memtable_retain(memtable), NULL));
  }
  memtable_release(memtable);
  for (int i = 0; i < 4; i++) {
    thread_join(&threads[i]);
  }
  CHECK_EQ(budget_used(&budget), 0);
}
