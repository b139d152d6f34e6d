/* The ground of the tests: see cursor_world.h. */
#include "tests/iterators/cursor_world.h"

#include <stdlib.h>

#include "base/hash.h"
#include "sstable/table_parts.h"

uint64_t world_random(struct world *world, uint64_t below) {
  world->random.value = hash_mix64(world->random.value + UINT64_C(0x9e3779b97f4a7c15));
  return below ? world->random.value % below : world->random.value;
}

static void drop_log(void *context, enum logger_level level, const char *message) {
  (void)context;
  (void)level;
  (void)message;
}

void world_begin(struct world *world, uint64_t seed, uint64_t budget_bytes) {
  memset(world, 0, sizeof *world);
  world->random.value = seed;
  world->next_file = 1;
  world->next_sequence = 1;
  world->logger = (struct logger){.write = drop_log};
  turb_error err = TURB_ERROR_INIT;
  turb_simulation_options options = TURB_SIMULATION_OPTIONS_INIT;
  options.seed = seed;
  options.reorder_percent = 50;
  options.short_percent = 10;
  CHECK_OK_ERR(turb_simulation_create(&options, &world->simulation, &err), &err);
  budget_init(&world->budget, budget_bytes);
  const struct io_system_options system = {
      .backend = TURB_BACKEND_SIMULATED, .simulation = world->simulation, .allocator = alloc_default(), .logger = &world->logger};
  CHECK_OK_ERR(io_system_open(&system, &world->system, &err), &err);
  CHECK_OK_ERR(io_make_folder(world->system, "/t", &err), &err);
  CHECK_OK_ERR(cache_create(alloc_default(), &world->budget, &world->cache, &err), &err);
  world->env = (struct table_env){
      .system = world->system, .allocator = alloc_default(), .budget = &world->budget, .cache = world->cache, .logger = &world->logger};
  reads_init(&world->reads, world->system, NULL);
  world->context = (struct cursor_context){
      .reads = &world->reads, .allocator = alloc_default(), .budget = &world->budget, .fill_cache = world_random(world, 2)};
}

void world_end(struct world *world) {
  reads_close(&world->reads);
  io_system_drain(world->system);
  cache_destroy(world->cache);
  io_system_close(world->system);
  turb_simulation_free(world->simulation);
  for (int use = 0; use < BUDGET_USES; use++)
    CHECK_EQ(budget_used_for(&world->budget, (enum budget_use)use), 0);
}

static int by_entry_order(const void *a, const void *b) {
  const struct world_entry *x = a, *y = b;
  const int c = key_compare(x->key, x->key_size, y->key, y->key_size);
  return c ? c : (x->sequence < y->sequence) - (x->sequence > y->sequence);
}

struct world_list world_make(struct world *world, size_t count) {
  struct world_list list = {.entries = calloc(count ? count : 1, sizeof *list.entries), .count = count};
  for (size_t i = 0; i < count; i++) {
    struct world_entry *e = &list.entries[i];
    memcpy(e->key, "shared", 6);
    e->key_size = (uint16_t)(6 + 1 + world_random(world, 12));
    for (uint16_t b = 6; b < e->key_size; b++)
      e->key[b] = (uint8_t)("\0ab\xff"[world_random(world, 4)]);
    e->sequence = world->next_sequence++;
    e->kind = world_random(world, 5) ? SLOT_PUT : SLOT_DELETE;
  }
  qsort(list.entries, count, sizeof *list.entries, by_entry_order);
  return list;
}

struct world_list world_join(const struct world_list *lists, size_t count) {
  struct world_list all = {0};
  for (size_t i = 0; i < count; i++)
    all.count += lists[i].count;
  all.entries = calloc(all.count ? all.count : 1, sizeof *all.entries);
  size_t at = 0;
  for (size_t i = 0; i < count; i++) {
    memcpy(all.entries + at, lists[i].entries, lists[i].count * sizeof *all.entries);
    at += lists[i].count;
  }
  qsort(all.entries, all.count, sizeof *all.entries, by_entry_order);
  return all;
}

void world_list_free(struct world_list *list) {
  free(list->entries);
  *list = (struct world_list){0};
}

static void add(struct memtable *memtable, const struct world_entry *e) {
  turb_error err = TURB_ERROR_INIT;
  const turb_bytes key = {e->key, e->key_size};
  if (e->kind == SLOT_DELETE) {
    CHECK_OK_ERR(memtable_delete(memtable, key, e->sequence, &err), &err);
    return;
  }
  const float row[WORLD_DIMENSION] = {(float)e->sequence, 1, 2, 3};
  CHECK_OK_ERR(memtable_put(memtable, key, e->sequence, row, hash64(row, sizeof row, 0), TURB_NONE, 0, &err), &err);
}

static struct memtable *new_memtable(struct world *world, struct budget *budget) {
  (void)world;
  const struct memtable_options options = {
      .allocator = alloc_default(), .budget = budget, .row_bytes = WORLD_DIMENSION * 4, .stride = WORLD_DIMENSION * 4};
  struct memtable *memtable;
  turb_error err = TURB_ERROR_INIT;
  CHECK_OK_ERR(memtable_create(&options, &memtable, &err), &err);
  return memtable;
}

struct memtable *world_memtable(struct world *world, const struct world_list *list) {
  struct memtable *memtable = new_memtable(world, &world->budget);
  for (size_t i = 0; i < list->count; i++)
    add(memtable, &list->entries[(i * 7919) % list->count]); /* 7919 is prime, so each comes once unless it divides */
  return memtable;
}

static struct table *write_table(struct world *world, const struct world_list *list, size_t first, size_t last) {
  struct budget unlimited;
  budget_init(&unlimited, UINT64_MAX);
  struct table_env env = world->env;
  env.budget = &unlimited;
  struct memtable *memtable = new_memtable(world, &unlimited);
  for (size_t i = first; i < last; i++)
    add(memtable, &list->entries[i]);
  struct table_writer_options options = {.shape = {.dimension = WORLD_DIMENSION, .type = TURB_F32, .metric = TURB_L2},
                                         .file_number = world->next_file++,
                                         .collection_id = 1,
                                         .job = 1};
  table_shape_derive(&options.shape);
  char path[64];
  (void)snprintf(path, sizeof path, "/t/table-%llu", (unsigned long long)options.file_number);
  struct table_writer *writer;
  turb_error err = TURB_ERROR_INIT;
  CHECK_OK_ERR(table_writer_create(&env, path, &options, &writer, &err), &err);
  for (const struct memtable_node *node = memtable_first(memtable); node; node = memtable_next(node)) {
    const struct slot *slot = memtable_node_slot(node);
    const void *row = slot_kind(slot) == SLOT_PUT ? memtable_row(memtable, slot_row(slot)) : NULL;
    CHECK_OK_ERR(table_writer_add(writer, slot, row, NULL, &err), &err);
  }
  struct table_record record;
  CHECK_OK_ERR(table_writer_finish(writer, &record, &err), &err);
  struct table *table;
  CHECK_OK_ERR(table_open(&world->env, path, &record, &table, &err), &err);
  table_writer_destroy(writer);
  memtable_release(memtable);
  return table;
}

static bool same_key(const struct world_entry *a, const struct world_entry *b) {
  return key_equal(a->key, a->key_size, b->key, b->key_size);
}

struct run_view world_run(struct world *world, const struct world_list *list, size_t tables, uint32_t number) {
  struct run_view run = {.sources = calloc(tables ? tables : 1, sizeof *run.sources)};
  size_t at = 0;
  for (size_t t = 0; t < tables && at < list->count; t++) {
    size_t end = t + 1 == tables ? list->count : at + 1 + world_random(world, 2 * (list->count - at) / (tables - t));
    if (end > list->count)
      end = list->count;
    while (end < list->count && same_key(&list->entries[end - 1], &list->entries[end]))
      end++;
    run.sources[run.count++] = (struct source){.table = write_table(world, list, at, end), .run = number};
    at = end;
  }
  return run;
}

void world_run_free(struct run_view *run) {
  for (uint32_t t = 0; t < run->count; t++)
    table_release(run->sources[t].table);
  free(run->sources);
}

void world_chill(struct world *world) {
  const uint64_t all = budget_limit(&world->budget) - budget_used(&world->budget) + budget_used_for(&world->budget, BUDGET_CACHE);
  if (budget_take(&world->budget, BUDGET_JOB, all))
    budget_give(&world->budget, BUDGET_JOB, all);
}

#define SCRIBBLES 64

void world_forget(struct world *world, struct run_view *run) {
  turb_error err = TURB_ERROR_INIT;
  for (uint32_t t = 0; t < run->count; t++) {
    struct cache_directory *directory = &run->sources[t].table->directory;
    const uint32_t units = directory->unit_count;
    cache_directory_close(directory);
    CHECK_OK_ERR(cache_directory_open(world->cache, units, directory, &err), &err);
  }
  struct cache_memory pages[SCRIBBLES];
  int count = 0;
  while (count < SCRIBBLES && cache_memory_take(world->cache, SLOT_PAGE_BYTES, UNIT_KEYS, true, &pages[count]))
    memset(pages[count++].data, 0xdd, SLOT_PAGE_BYTES);
  while (count)
    cache_memory_give(world->cache, &pages[--count]);
}

bool world_is(const struct slot *slot, const struct world_entry *entry) {
  return key_equal(slot_key(slot), slot->key_size, entry->key, entry->key_size) && slot_sequence(slot) == entry->sequence &&
         slot_kind(slot) == entry->kind;
}
