/*
 * Readers of the index while its writer stands still in the midst of its work: it pauses between the single stores that shift a block.
 *
 * The file is included, not linked, so that it can be paused.
 */
#include <sched.h>

static _Thread_local unsigned pause_every; /* 0: never; set in the writer's thread */
static _Thread_local unsigned pause_count;

static void index_pause(void) {
  if (pause_every != 0 && ++pause_count % pause_every == 0) {
    sched_yield();
  }
}
#define MEMTABLE_INDEX_PAUSE() index_pause()
#include "memtable/index.c" /* NOLINT(bugprone-suspicious-include) */

#include <stdlib.h>

#include "base/hash.h"
#include "base/thread.h"
#include "tests/support/test.h"

#define READERS 2
#define ENTRIES 20000u

struct record {
  struct slot slot;
  struct memtable_node node;
  uint8_t more[32]; /* of the key, which begins over the node's padding */
};

struct shared {
  struct memtable_index index;
  struct record *records; /* of sequence i + 1 at i */
  _Atomic uint64_t visible;
  _Atomic bool done;
  uint64_t entries;
  unsigned style;
  uint64_t seed;
};

static turb_bytes record_key(const struct record *record) {
  return (turb_bytes){memtable_node_key(&record->node), record->node.key_size};
}

static void record_fill(const struct shared *shared, struct record *record, uint64_t sequence) {
  const uint64_t mixed = hash_mix64(sequence + shared->seed);
  uint8_t key[24] = {0};
  size_t size = 16;
  char digits[24];
  switch (shared->style) {
  case 0: memcpy(key, &mixed, 8); break;
  case 1:
    snprintf(digits, sizeof digits, "%016" PRIu64, mixed % 100000);
    memcpy(key, digits, 16);
    break;
  default:
    size = 1 + mixed % 23;
    key[(mixed >> 8) % size] = (uint8_t)(mixed >> 32);
    break;
  }
  record->slot.sequence_kind = sequence << 8 | SLOT_PUT;
  record->node.slot_distance = offsetof(struct record, node) - offsetof(struct record, slot);
  record->node.key_size = (uint16_t)size;
  memcpy((uint8_t *)record + offsetof(struct record, node) + MEMTABLE_NODE_BYTES, key, size);
}

static void writer_main(void *context) {
  struct shared *shared = context;
  pause_every = 7;
  for (uint64_t i = 0; i < shared->entries; i++) {
    struct record *record = &shared->records[i];
    struct memtable_place place;
    record_fill(shared, record, i + 1);
    memtable_index_find(&shared->index, record_key(record), i + 1, &place);
    memtable_index_insert(&shared->index, &place, &record->node);
    atomic_store_explicit(&shared->visible, i + 1, memory_order_release);
  }
  atomic_store_explicit(&shared->done, true, memory_order_release);
}

static void reader_main(void *context) {
  struct shared *shared = context;
  struct random random;
  random_init(&random, shared->seed + 1);
  while (!atomic_load_explicit(&shared->done, memory_order_acquire)) {
    const uint64_t visible = atomic_load_explicit(&shared->visible, memory_order_acquire);
    if (visible == 0) {
      continue;
    }
    const uint64_t sequence = random_between(&random, 1, visible);
    const turb_bytes key = record_key(&shared->records[sequence - 1]);
    struct memtable_node *after = NULL;
    struct memtable_node *before = memtable_index_search(&shared->index, key, sequence, &after);
    CHECK(after == &shared->records[sequence - 1].node);
    CHECK(before == &shared->index.head || node_compare(before, key, sequence) < 0);
  }
}

static void pauses_test(unsigned style) {
  struct budget budget;
  struct memtable_memory memory;
  budget_init(&budget, UINT64_MAX);
  memtable_memory_init(&memory, alloc_default(), &budget, NULL, 4096, 256 << 10);
  static struct shared shared;
  shared = (struct shared){.style = style, .seed = test_seed(), .entries = test_scale(ENTRIES / 8, ENTRIES / 16, ENTRIES)};
  shared.records = calloc(shared.entries, sizeof *shared.records);
  CHECK(shared.records != NULL);
  memtable_index_init(&shared.index, &memory);
  struct thread writer = {.started = false};
  struct thread readers[READERS] = {{.started = false}};
  for (int i = 0; i < READERS; i++) {
    CHECK_OK(thread_start(&readers[i], "reader", reader_main, &shared, NULL));
  }
  CHECK_OK(thread_start(&writer, "writer", writer_main, &shared, NULL));
  thread_join(&writer);
  for (int i = 0; i < READERS; i++) {
    thread_join(&readers[i]);
  }
  CHECK(memtable_index_valid(&shared.index));
  CHECK_EQ(shared.index.unindexed, 0);
  memtable_memory_free(&memory);
  free(shared.records);
}

TEST(index_threads, random_keys) {
  pauses_test(0);
}
TEST(index_threads, keys_with_a_common_beginning) {
  pauses_test(1);
}
TEST(index_threads, keys_that_extend_each_other) {
  pauses_test(2);
}
