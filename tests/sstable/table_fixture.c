/* See table_fixture.h. */
#include "tests/sstable/table_fixture.h"

#include <stdlib.h>

#include "base/hash.h"

bool environment_open(struct environment *e, turb_backend backend, bool stormy, uint64_t budget_bytes) {
  memset(e, 0, sizeof *e);
  test_allocator_init(&e->allocator);
  budget_init(&e->budget, budget_bytes);
  struct io_system_options options = {.backend = backend, .allocator = &e->allocator.base, .ring_entries = 64};
  if (backend == TURB_BACKEND_SIMULATED) {
    turb_simulation_options simulation = TURB_SIMULATION_OPTIONS_INIT;
    simulation.seed = stormy ? test_seed() : 1;
    simulation.reorder_percent = stormy ? 50 : 0;
    simulation.short_percent = stormy ? 30 : 0;
    simulation.allocator = &e->allocator.base;
    CHECK_OK(turb_simulation_create(&simulation, &e->simulation, NULL));
    options.simulation = e->simulation;
    e->folder = "db";
  } else {
    e->folder = test_tmpdir();
  }
  turb_error error = TURB_ERROR_INIT;
  const turb_status status = io_system_open(&options, &e->system, &error);
  if (status != TURB_OK && backend == TURB_BACKEND_URING) {
    (void)fprintf(stderr, "io_uring is not to be had here: %s\n", error.message);
    return false;
  }
  CHECK_OK_ERR(status, &error);
  if (e->simulation != NULL) {
    CHECK_OK(io_make_folder(e->system, e->folder, NULL));
  }
  CHECK_OK_ERR(cache_create(&e->allocator.base, &e->budget, &e->cache, &error), &error);
  e->env = (struct table_env){.system = e->system, .allocator = &e->allocator.base, .budget = &e->budget, .cache = e->cache};
  memcpy(e->env.database_id, "0123456789abcdef", 16);
  return true;
}

void environment_drop_cache(struct environment *e) {
  io_system_drain(e->system);
  cache_destroy(e->cache);
  CHECK_EQ(budget_used(&e->budget), 0);
  CHECK_OK(cache_create(&e->allocator.base, &e->budget, &e->cache, NULL));
  e->env.cache = e->cache;
}

void environment_close(struct environment *e) {
  io_system_drain(e->system);
  struct cache_stats stats;
  cache_get_stats(e->cache, &stats);
  CHECK_EQ(stats.pinned_frames, 0);
  CHECK_EQ(stats.frames, 0); /* all directories are closed */
  CHECK_EQ(stats.bytes, budget_used_for(&e->budget, BUDGET_CACHE));
  cache_destroy(e->cache);
  io_system_close(e->system);
  turb_simulation_free(e->simulation);
  CHECK_EQ(budget_used(&e->budget), 0);
  test_allocator_check_empty(&e->allocator);
}

const char *environment_path(const struct environment *e, const char *name) {
  return test_path(e->folder, name);
}

/* ---- entries ---- */

static void make_key(const struct entries_options *o, struct random *random, uint32_t number, struct entry *entry) {
  uint8_t bytes[4200];
  uint32_t size;
  if (o->key_bytes == 0) {
    size = (uint32_t)snprintf((char *)bytes, sizeof bytes, "key%013u", number * 2);
  } else {
    /* Ascending by their first bytes; few letters, so that prefixes repeat. */
    size = (uint32_t)snprintf((char *)bytes, sizeof bytes, "%x", number + (1u << 24));
    const uint32_t more = (uint32_t)random_below(random, o->key_bytes);
    for (uint32_t i = 0; i < more; i++) {
      bytes[size++] = (uint8_t)random_below(random, 2);
    }
    if (random_below(random, 100) < o->long_key_percent) {
      const uint32_t wanted = (uint32_t)random_between(random, 3000, 4096);
      while (size < wanted) {
        bytes[size++] = 'x';
      }
    }
  }
  entry->key = malloc(size);
  memcpy(entry->key, bytes, size);
  entry->key_size = size;
}

static void fill_entry(const struct entries_options *o, struct random *random, struct entries *entries, struct entry *entry) {
  entry->put = random_below(random, 100) >= o->delete_percent;
  if (!entry->put) {
    return;
  }
  entry->row = malloc(entries->shape.row_bytes);
  random_fill(random, entry->row, entries->shape.row_bytes);
  for (uint32_t i = 0; i < entries->shape.row_bytes; i += 2) {
    entry->row[i] &= 3; /* so that zstd finds something */
  }
  entries->puts++;
  if (random_below(random, 100) < o->attribute_percent) {
    const uint32_t most = o->attribute_bytes != 0 ? o->attribute_bytes : 100;
    entry->attribute_size = (uint32_t)random_between(random, 1, random_one_in(random, 4) ? most : (most + 7) / 8);
    entry->attributes = malloc(entry->attribute_size);
    random_fill(random, entry->attributes, entry->attribute_size);
  }
}

void entries_make(struct entries *entries, const struct entries_options *o, uint64_t seed) {
  memset(entries, 0, sizeof *entries);
  struct random random;
  random_init(&random, seed);
  entries->seed = seed;
  entries->bulk = o->bulk;
  entries->shape = (struct table_shape){.dimension = o->dimension != 0 ? o->dimension : 8,
                                        .type = o->type != 0 ? o->type : TURB_F32,
                                        .metric = TURB_L2,
                                        .compression = o->compression,
                                        .compression_level = 1};
  table_shape_derive(&entries->shape);
  const uint32_t versions = o->versions != 0 ? o->versions : 1;
  entries->at = calloc((size_t)o->keys * versions + 500, sizeof *entries->at);
  for (uint32_t k = 0; k < o->keys; k++) {
    uint32_t count = o->bulk ? 1 : (uint32_t)random_between(&random, 1, versions);
    if (o->spiky && k == o->keys / 2) {
      count = 500;
    }
    uint64_t sequence = 1000000;
    for (uint32_t v = 0; v < count; v++) {
      struct entry *entry = &entries->at[entries->count++];
      if (v == 0) {
        make_key(o, &random, k, entry);
      } else {
        entry->key_size = entry[-1].key_size;
        entry->key = malloc(entry->key_size);
        memcpy(entry->key, entry[-1].key, entry->key_size);
      }
      sequence -= random_between(&random, 1, 1000);
      entry->sequence = o->bulk ? 77 : sequence;
      fill_entry(o, &random, entries, entry);
    }
  }
}

void entries_free(struct entries *entries) {
  for (uint32_t i = 0; i < entries->count; i++) {
    free(entries->at[i].key);
    free(entries->at[i].row);
    free(entries->at[i].attributes);
  }
  free(entries->at);
  memset(entries, 0, sizeof *entries);
}

int64_t entries_find(const struct entries *entries, const void *key, size_t size, uint64_t sequence) {
  uint32_t low = 0, high = entries->count;
  while (low < high) {
    const uint32_t middle = low + (high - low) / 2;
    const struct entry *entry = &entries->at[middle];
    const int order = key_compare(entry->key, entry->key_size, key, size);
    if (order < 0 || (order == 0 && entry->sequence > sequence)) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low < entries->count && key_equal(entries->at[low].key, entries->at[low].key_size, key, size) ? (int64_t)low : -1;
}

uint32_t *entries_rows(const struct entries *entries) {
  uint32_t *rows = malloc((entries->puts + 1) * sizeof *rows);
  uint32_t count = 0;
  for (uint32_t i = 0; i < entries->count; i++) {
    if (entries->at[i].put) {
      rows[count++] = i;
    }
  }
  return rows;
}

uint64_t entry_hash_of_row(const struct entries *entries, const struct entry *entry) {
  return hash64(entry->row, entries->shape.row_bytes, 0);
}

/* ---- tables ---- */

static void add_entry(struct table_writer *writer, const struct entries *entries, const struct entry *entry) {
  static _Alignas(4096) uint8_t page[8192];
  struct slot_page *header = (struct slot_page *)(void *)page;
  struct slot *slot = (struct slot *)(void *)(header + 1);
  memset(page, 0, sizeof *header + sizeof *slot);
  memcpy(page + 128, entry->key, entry->key_size);
  slot->key_offset = 128;
  slot->key_size = (uint16_t)entry->key_size;
  slot->sequence_kind = entry->sequence << 8 | (entry->put ? SLOT_PUT : SLOT_DELETE);
  slot->row_hash = entry->put ? entry_hash_of_row(entries, entry) : 0;
  slot->attribute_hash = entry->attribute_size != 0 ? (uint32_t)hash64(entry->attributes, entry->attribute_size, 0) : 0;
  slot->attribute_size_row_delta = entry->attribute_size;
  turb_error error = TURB_ERROR_INIT;
  CHECK_OK_ERR(table_writer_add(writer, slot, entry->row, entry->attributes, &error), &error);
}

void entries_write(struct environment *e, const struct entries *entries, const char *name, struct stored_record *record) {
  const struct table_writer_options options = {
      .shape = entries->shape, .file_number = 5, .collection_id = 9, .job = entries->seed, .cut = 1, .bulk_sequence_mode = entries->bulk};
  struct table_writer *writer;
  turb_error error = TURB_ERROR_INIT;
  CHECK_OK_ERR(table_writer_create(&e->env, environment_path(e, name), &options, &writer, &error), &error);
  for (uint32_t i = 0; i < entries->count; i++) {
    add_entry(writer, entries, &entries->at[i]);
  }
  CHECK_OK_ERR(table_writer_finish(writer, &record->record, &error), &error);
  if (entries->bulk) {
    record->record.bulk_sequence = 77;
  }
  memcpy(record->lower, record->record.lower.data, record->record.lower.size);
  memcpy(record->upper, record->record.upper.data, record->record.upper.size);
  record->record.lower.data = record->lower;
  record->record.upper.data = record->upper;
  table_writer_destroy(writer);
}

struct table *entries_open(struct environment *e, const char *name, const struct stored_record *record) {
  struct table *table;
  turb_error error = TURB_ERROR_INIT;
  CHECK_OK_ERR(table_open(&e->env, environment_path(e, name), record != NULL ? &record->record : NULL, &table, &error), &error);
  return table;
}

struct table *entries_table(struct environment *e, const struct entries *entries, struct stored_record *record) {
  char name[40];
  (void)snprintf(name, sizeof name, "t%llx.tbl", (unsigned long long)entries->seed);
  entries_write(e, entries, name, record);
  return entries_open(e, name, record);
}

/* ---- awaiting ---- */

enum load_state await_load(struct reads *reads, struct load *load, enum load_state state) {
  while (state == LOAD_WAITING) {
    CHECK_OK(reads_wait(reads, NULL));
    state = load_state(load);
  }
  return state;
}

enum get_state await_get(struct table_get *get, enum get_state state) {
  while (state == GET_PENDING) {
    CHECK_OK(reads_wait(get->reads, NULL));
    state = table_get_step(get);
  }
  return state;
}

bool await_piece(struct reads *reads, struct lane *lane, struct piece *piece, turb_error *failure) {
  bool end;
  enum load_state state;
  while ((state = lane_piece(lane, piece, &end)) == LOAD_WAITING) {
    CHECK_OK(reads_wait(reads, NULL));
  }
  if (state == LOAD_FAILED) {
    turb_error error = TURB_ERROR_INIT;
    (void)lane_error(lane, failure != NULL ? failure : &error);
    CHECK_MSG(failure != NULL, "the lane failed: %s", error.message);
    return false;
  }
  CHECK_EQ(state, LOAD_READY);
  return !end;
}
