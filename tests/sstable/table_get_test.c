/* Point look-ups against a plain search over the entries. */
#include <errno.h>
#include <stdlib.h>

#include "sstable/table_parts.h"
#include "tests/sstable/table_fixture.h"

static const struct entries_options shapes[] = {
    {.keys = 30000, .versions = 2, .delete_percent = 20},
    {.keys = 3000, .key_bytes = 40, .versions = 6, .delete_percent = 10, .spiky = true},
    {.keys = 300, .key_bytes = 60, .long_key_percent = 60, .versions = 4, .spiky = true},
    {.keys = 5000, .bulk = true},
    {.keys = 1},
};
#define SHAPES (sizeof shapes / sizeof shapes[0])

/* A key of the entries, or one near it. */
static turb_bytes any_key(const struct entries *entries, struct random *random, uint8_t *bytes) {
  const struct entry *entry = &entries->at[random_below(random, entries->count)];
  uint32_t size = entry->key_size;
  memcpy(bytes, entry->key, size);
  switch (random_below(random, 8)) {
  case 0: bytes[size < 4096 ? size++ : 0] = 0; break;
  case 1: size = (uint32_t)random_between(random, 1, size); break;
  case 2: bytes[random_below(random, size)]++; break;
  case 3: bytes[size - 1]--; break;
  default: break;
  }
  return (turb_bytes){bytes, size};
}

static void check_found(const struct table_get *get, const struct entries *entries, turb_bytes key, uint64_t sequence) {
  const int64_t wanted = entries_find(entries, key.data, key.size, sequence);
  if (wanted < 0) {
    CHECK(get->found == NULL);
    return;
  }
  const struct entry *entry = &entries->at[wanted];
  CHECK(get->found != NULL);
  CHECK(key_equal(slot_key(get->found), get->found->key_size, key.data, key.size));
  CHECK_EQ(slot_sequence(get->found), entry->sequence);
  CHECK_EQ(slot_kind(get->found), entry->put ? SLOT_PUT : SLOT_DELETE);
  if (entry->put) {
    CHECK_EQ(get->found->row_hash, entry_hash_of_row(entries, entry));
  }
}

static void check_random(struct table_get *get, struct table *table, const struct entries *entries, struct random *random, int count) {
  for (int i = 0; i < count; i++) {
    uint8_t bytes[4200];
    const turb_bytes key = any_key(entries, random, bytes);
    const uint64_t sequence = random_one_in(random, 2) ? SLOT_SEQUENCE_MAX : random_below(random, 1000000);
    const enum get_state state =
        await_get(get, table_get_start(get, table, key, hash64(key.data, key.size, 0), sequence, random_one_in(random, 4)));
    CHECK_MSG(state == GET_READY, "%s", get->error.message);
    check_found(get, entries, key, sequence);
  }
}

TEST(table_get, finds_what_a_search_finds) {
  for (size_t s = 0; s < SHAPES; s++) {
    struct environment e;
    struct random random;
    random_init(&random, test_seed() + s);
    CHECK(environment_open(&e, TURB_BACKEND_SIMULATED, true, s == 1 ? 4u << 20 : 64u << 20));
    struct entries entries;
    entries_make(&entries, &shapes[s], random_u64(&random));
    struct stored_record record;
    struct table *table = entries_table(&e, &entries, &record);
    struct reads reads;
    struct table_get get;
    reads_init(&reads, e.system, NULL);
    CHECK_OK(table_get_init(&get, &reads, &e.allocator.base, NULL));
    check_random(&get, table, &entries, &random, (int)test_scale(2000, 1000, 20000));
    table_get_close(&get);
    reads_close(&reads);
    table_release(table);
    entries_free(&entries);
    environment_close(&e);
  }
}

/* The filter spares most reads of key pages for keys that are not there, and hides none that is. */
TEST(table_get, asks_the_filter_before_it_reads) {
  struct environment e;
  CHECK(environment_open(&e, TURB_BACKEND_SIMULATED, false, 64u << 20));
  struct entries entries;
  entries_make(&entries, &(struct entries_options){.keys = 30000}, 4);
  struct stored_record record;
  struct table *table = entries_table(&e, &entries, &record);
  struct reads reads;
  struct table_get get;
  reads_init(&reads, e.system, NULL);
  CHECK_OK(table_get_init(&get, &reads, &e.allocator.base, NULL));
  for (uint32_t i = 0; i + 1 < entries.count; i += 5) { /* even numbers are there, odd ones are not */
    uint8_t bytes[20];
    memcpy(bytes, entries.at[i].key, 16);
    bytes[15]++;
    CHECK_EQ(await_get(&get, table_get_start(&get, table, (turb_bytes){bytes, 16}, hash64(bytes, 16, 0), SLOT_SEQUENCE_MAX, false)),
             GET_READY);
    CHECK(get.found == NULL);
  }
  uint32_t resident = 0;
  const uint32_t units = table_unit_count(table, UNIT_KEYS);
  for (uint32_t i = 0; i < units; i++) {
    resident += cache_holds(table_directory(table), table_unit(table, UNIT_KEYS, i));
  }
  CHECK_MSG(resident < units / 2, "%u of %u key pages were read", resident, units);
  table_get_close(&get);
  reads_close(&reads);
  table_release(table);
  entries_free(&entries);
  environment_close(&e);
}

/* Many look-ups of one queue, started anew at any moment. */
TEST(table_get, is_started_anew_at_any_moment) {
  struct environment e;
  struct random random;
  random_init(&random, test_seed());
  CHECK(environment_open(&e, TURB_BACKEND_SIMULATED, true, 3u << 20));
  struct entries entries;
  entries_make(&entries, &shapes[1], random_u64(&random));
  struct stored_record record;
  struct table *table = entries_table(&e, &entries, &record);
  struct reads reads;
  reads_init(&reads, e.system, NULL);
  enum { GETS = 16 };
  struct {
    struct table_get get;
    enum get_state state;
    uint8_t bytes[4200];
    turb_bytes key;
    uint64_t sequence;
    bool open;
  } *gets = calloc(GETS, sizeof *gets);
  for (int n = 0; n < 20000; n++) {
    const size_t i = random_below(&random, GETS);
    switch (random_below(&random, 12)) {
    case 0: CHECK_OK(reads_wait(&reads, NULL)); break;
    case 1: CHECK_OK(reads_submit(&reads, NULL)); break;
    case 2: (void)reads_poll(&reads); break;
    case 3:
      if (gets[i].open) {
        table_get_close(&gets[i].get);
        gets[i].open = false;
        gets[i].state = GET_READY;
      }
      break;
    case 4:
    case 5:
      if (!gets[i].open) {
        CHECK_OK(table_get_init(&gets[i].get, &reads, &e.allocator.base, NULL));
        gets[i].open = true;
      }
      gets[i].key = any_key(&entries, &random, gets[i].bytes);
      gets[i].sequence = random_below(&random, 1000000);
      gets[i].state =
          table_get_start(&gets[i].get, table, gets[i].key, hash64(gets[i].key.data, gets[i].key.size, 0), gets[i].sequence, false);
      break;
    default:
      if (gets[i].open && gets[i].state == GET_PENDING) {
        gets[i].state = table_get_step(&gets[i].get);
        CHECK_NE(gets[i].state, GET_FAILED);
        if (gets[i].state == GET_READY) {
          check_found(&gets[i].get, &entries, gets[i].key, gets[i].sequence);
        }
      }
      break;
    }
  }
  for (size_t i = 0; i < GETS; i++) {
    if (gets[i].open) {
      table_get_close(&gets[i].get);
    }
  }
  free(gets);
  reads_close(&reads);
  table_release(table);
  entries_free(&entries);
  environment_close(&e);
}

TEST(table_get, fails_where_the_disk_fails_and_recovers) {
  struct environment e;
  CHECK(environment_open(&e, TURB_BACKEND_SIMULATED, false, 64u << 20));
  struct entries entries;
  entries_make(&entries, &shapes[1], 4);
  struct stored_record record;
  struct table *table = entries_table(&e, &entries, &record);
  struct reads reads;
  reads_init(&reads, e.system, NULL);
  const uint32_t middle = entries.count / 2;
  const turb_bytes key = {entries.at[middle].key, entries.at[middle].key_size};
  for (uint64_t n = 1;; n++) {
    table_release(table);
    table = entries_open(&e, "t4.tbl", &record);
    struct table_get get;
    CHECK_OK(table_get_init(&get, &reads, &e.allocator.base, NULL));
    turb_simulation_fail_at(e.simulation, turb_simulation_operations(e.simulation) + n, EIO);
    const enum get_state state = await_get(&get, table_get_start(&get, table, key, hash64(key.data, key.size, 0), 1, false));
    turb_simulation_fail_at(e.simulation, 0, 0);
    if (state == GET_FAILED) {
      CHECK_EQ(get.error.status, TURB_IO);
      CHECK(test_contains(get.error.message, "t4.tbl"));
      CHECK_EQ(await_get(&get, table_get_start(&get, table, key, hash64(key.data, key.size, 0), SLOT_SEQUENCE_MAX, false)), GET_READY);
      check_found(&get, &entries, key, SLOT_SEQUENCE_MAX);
    }
    table_get_close(&get);
    if (state == GET_READY) {
      CHECK_GT(n, 3); /* index, filter, key pages with 500 versions */
      break;
    }
  }
  reads_close(&reads);
  table_release(table);
  entries_free(&entries);
  environment_close(&e);
}
