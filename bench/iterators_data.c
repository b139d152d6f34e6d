/* Sets of entries and their tables (iterators.h). What an entry holds follows from its set, run, table and place alone. */
#include <stdalign.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/coding.h"
#include "base/hash.h"
#include "bench/iterators.h"
#include "sstable/writer.h"

struct keyed {
  uint64_t key;
  uint32_t id;
};

static int by_key(const void *a, const void *b) {
  const struct keyed *x = a, *y = b;
  return x->key != y->key ? (x->key > y->key) - (x->key < y->key) : (x->id > y->id) - (x->id < y->id);
}

static uint64_t first_id(const struct data_set *set, uint32_t run, uint32_t table) {
  return ((uint64_t)run * set->tables + table) * set->entries;
}

uint32_t *data_order(const struct data_set *set, uint32_t run, uint32_t table) {
  if (set->keys != DATA_RANDOM)
    return NULL;
  struct keyed *keyed = bench_alloc(set->entries * sizeof *keyed);
  for (uint32_t i = 0; i < set->entries; i++)
    keyed[i] = (struct keyed){work_mix(first_id(set, run, table) + i + 1), i};
  qsort(keyed, set->entries, sizeof *keyed, by_key);
  uint32_t *order = bench_alloc(set->entries * sizeof *order);
  for (uint32_t i = 0; i < set->entries; i++)
    order[i] = keyed[i].id;
  free(keyed);
  return order;
}

void data_at(const struct data_set *set, uint32_t run, uint32_t table, const uint32_t *order, uint32_t i, struct data_entry *entry) {
  const uint64_t id = first_id(set, run, table) + (order ? order[i] : i);
  char text[64];
  switch (set->keys) {
  case DATA_RANDOM:
    work_key(id, false, entry->key);
    entry->key_size = KEY_BYTES;
    break;
  case DATA_LEVELS: /* as long as Hummock's own: a table's name and number, then the row's */
    entry->key_size = (uint32_t)snprintf(text, sizeof text, "hummock-test-00001:%012u", table * set->entries + i);
    memcpy(entry->key, text, entry->key_size);
    break;
  case DATA_INTERLEAVED:
    entry->key_size = (uint32_t)snprintf(text, sizeof text, "k%016u", i * set->runs + run);
    memcpy(entry->key, text, entry->key_size);
    break;
  }
  entry->sequence = set->runs - run;
  entry->row = work_row(id, data_row_bytes(set));
}

char *data_path(const struct data_set *set, const char *folder, uint32_t run, uint32_t table) {
  return path_join(folder, "%s-%u-%u", set->name, run, table);
}

/* ---- writing ---- */

/* A page with one slot: what a writer takes an entry from. */
struct one_slot {
  alignas(SLOT_PAGE_BYTES) uint8_t bytes[SLOT_PAGE_BYTES];
};

static const struct slot *make_slot(struct one_slot *memory, const struct data_entry *entry, uint32_t row_bytes) {
  struct slot_page *page = (struct slot_page *)memory->bytes;
  struct slot *slot = (struct slot *)(page + 1);
  *page = (struct slot_page){.slot_count = 1, .units = 1};
  *slot = (struct slot){.prefix = key_prefix8(entry->key, entry->key_size),
                        .sequence_kind = entry->sequence << 8 | SLOT_PUT,
                        .row_hash = hash64(entry->row, row_bytes, 0),
                        .key_offset = sizeof *page + sizeof *slot,
                        .key_size = (uint16_t)entry->key_size};
  memcpy(memory->bytes + slot->key_offset, entry->key, entry->key_size);
  return slot;
}

static void write_table(const struct table_env *env, const struct data_set *set, const char *folder, uint32_t run, uint32_t table) {
  static struct one_slot memory;
  turb_error error = TURB_ERROR_INIT;
  struct table_writer_options options = {.shape = {.dimension = set->dimension, .type = TURB_F32, .metric = TURB_L2},
                                         .file_number = first_id(set, run, table) + 1,
                                         .collection_id = 1,
                                         .job = 1};
  table_shape_derive(&options.shape);
  char *path = data_path(set, folder, run, table);
  struct table_writer *writer;
  bench_check(table_writer_create(env, path, &options, &writer, &error), &error);
  uint32_t *order = data_order(set, run, table);
  struct data_entry entry;
  for (uint32_t i = 0; i < set->entries; i++) {
    data_at(set, run, table, order, i, &entry);
    bench_check(table_writer_add(writer, make_slot(&memory, &entry, data_row_bytes(set)), entry.row, NULL, &error), &error);
  }
  struct table_record record;
  bench_check(table_writer_finish(writer, &record, &error), &error);
  table_writer_destroy(writer);
  free(order);
  free(path);
}

struct write_work {
  const struct data_set *set;
  const char *folder;
  uint32_t runs;
};

static void *begin_write(const void *argument) {
  return (void *)(uintptr_t)argument;
}

static void write_all(void *argument, uint32_t round, struct sample *sample) {
  const struct write_work *work = argument;
  (void)round;
  (void)sample;
  turb_error error = TURB_ERROR_INIT;
  static struct budget budget;
  budget_init(&budget, UINT64_C(1) << 32);
  struct table_env env = {.allocator = alloc_default(), .budget = &budget};
  const struct io_system_options system = {.allocator = env.allocator};
  bench_check(io_system_open(&system, &env.system, &error), &error);
  bench_check(cache_create(env.allocator, &budget, &env.cache, &error), &error);
  for (uint32_t run = 0; run < work->runs; run++)
    for (uint32_t table = 0; table < work->set->tables; table++)
      write_table(&env, work->set, work->folder, run, table);
}

void data_write(const struct data_set *set, const char *folder, uint32_t runs) {
  const struct write_work work = {set, folder, runs};
  const struct worker_job job = {begin_write, write_all, NULL, &work};
  struct sample sample;
  folder_make(folder);
  worker_run(&job, 0, &sample);
}
