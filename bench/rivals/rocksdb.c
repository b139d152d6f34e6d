/* RocksDB through its C interface as a contestant (engine.h). No compression, as ours; whole-key filters of 10 bits; files stay open. The filters and indexes
 * are outside the block cache, on top of what it may take. */
#include <rocksdb/c.h>
#include <stdlib.h>
#include <string.h>

#include "bench/engine.h"

struct rival {
  rocksdb_t *db;
  rocksdb_column_family_handle_t *family;
  rocksdb_options_t *options;
  rocksdb_cache_t *cache;
  rocksdb_writeoptions_t *write;
  rocksdb_readoptions_t *read;
  uint32_t row_bytes;
};

static void check(char *error) {
  if (error)
    bench_fail("rocksdb: %s", error);
}

static void set_tables(struct rival *rival, const struct engine_options *given) {
  rocksdb_block_based_table_options_t *table = rocksdb_block_based_options_create();
  rival->cache = rocksdb_cache_create_lru(given->cache_bytes);
  rocksdb_block_based_options_set_block_cache(table, rival->cache);
  rocksdb_block_based_options_set_block_size(table, given->variant & ROCKSDB_LARGE_BLOCKS ? 32768 : 4096);
  rocksdb_block_based_options_set_filter_policy(table, rocksdb_filterpolicy_create_bloom_full(10));
  rocksdb_block_based_options_set_format_version(table, 5);
  if (given->variant & ROCKSDB_HASH_INDEX)
    rocksdb_block_based_options_set_data_block_index_type(table, rocksdb_block_based_table_data_block_index_type_binary_search_and_hash);
  rocksdb_options_set_block_based_table_factory(rival->options, table);
  rocksdb_block_based_options_destroy(table);
}

static void set_options(struct rival *rival, const struct engine_options *given) {
  rocksdb_options_t *options = rival->options = rocksdb_options_create();
  rocksdb_options_set_create_if_missing(options, 1);
  rocksdb_options_set_compression(options, rocksdb_no_compression);
  rocksdb_options_increase_parallelism(options, 2);
  rocksdb_options_set_max_open_files(options, -1);
  rocksdb_options_set_write_buffer_size(options, given->memtable_bytes);
  rocksdb_options_set_recycle_log_file_num(options, 4);
  if (given->variant & ROCKSDB_PIPELINED)
    rocksdb_options_set_enable_pipelined_write(options, 1);
  if (given->variant & ROCKSDB_UNIVERSAL)
    rocksdb_options_set_compaction_style(options, rocksdb_universal_compaction);
  if (given->direct)
    rocksdb_options_set_use_direct_reads(options, 1);
  set_tables(rival, given);
}

static void *open_rival(const struct engine_options *given) {
  struct rival *rival = bench_alloc(sizeof *rival);
  rival->row_bytes = given->row_bytes;
  set_options(rival, given);
  rival->write = rocksdb_writeoptions_create();
  rocksdb_writeoptions_set_sync(rival->write, given->durability == DURABLE);
  rocksdb_writeoptions_disable_WAL(rival->write, given->durability == UNLOGGED);
  rival->read = rocksdb_readoptions_create();
  char *error = NULL;
  const char *name = "default";
  const rocksdb_options_t *family_options = rival->options;
  rival->db = rocksdb_open_column_families(rival->options, given->path, 1, &name, &family_options, &rival->family, &error);
  check(error);
  return rival;
}

static void close_rival(void *db) {
  struct rival *rival = db;
  rocksdb_column_family_handle_destroy(rival->family);
  rocksdb_close(rival->db);
  rocksdb_readoptions_destroy(rival->read);
  rocksdb_writeoptions_destroy(rival->write);
  rocksdb_options_destroy(rival->options);
  rocksdb_cache_destroy(rival->cache);
  free(rival);
}

static void put(void *db, const uint8_t *key, const void *row) {
  const struct rival *rival = db;
  char *error = NULL;
  rocksdb_put(rival->db, rival->write, (const char *)key, KEY_BYTES, row, rival->row_bytes, &error);
  check(error);
}

static bool get(void *db, const uint8_t *key, void *row) {
  const struct rival *rival = db;
  char *error = NULL;
  rocksdb_pinnableslice_t *found = rocksdb_get_pinned(rival->db, rival->read, (const char *)key, KEY_BYTES, &error);
  check(error);
  if (!found)
    return false;
  size_t size;
  const char *value = rocksdb_pinnableslice_value(found, &size);
  memcpy(row, value, size);
  rocksdb_pinnableslice_destroy(found);
  return true;
}

#define MULTI_MAX 256

static size_t multi_get(void *db, size_t count, uint8_t (*keys)[KEY_BYTES], uint64_t *touched) {
  const struct rival *rival = db;
  const char *names[MULTI_MAX];
  size_t sizes[MULTI_MAX];
  rocksdb_pinnableslice_t *values[MULTI_MAX];
  char *errors[MULTI_MAX];
  if (!count || count > MULTI_MAX)
    return 0;
  for (size_t i = 0; i < count; i++) {
    names[i] = (const char *)keys[i];
    sizes[i] = KEY_BYTES;
  }
  rocksdb_batched_multi_get_cf(rival->db, rival->read, rival->family, count, names, sizes, values, errors, false);
  size_t found = 0;
  for (size_t i = 0; i < count; i++) {
    check(errors[i]);
    if (!values[i])
      continue;
    size_t size;
    const char *value = rocksdb_pinnableslice_value(values[i], &size);
    *touched += touch(value, size);
    rocksdb_pinnableslice_destroy(values[i]);
    found++;
  }
  return found;
}

static uint64_t scan(void *db, bool backward, uint64_t *touched) {
  const struct rival *rival = db;
  rocksdb_iterator_t *it = rocksdb_create_iterator(rival->db, rival->read);
  uint64_t count = 0, sum = 0;
  for (backward ? rocksdb_iter_seek_to_last(it) : rocksdb_iter_seek_to_first(it); rocksdb_iter_valid(it);
       backward ? rocksdb_iter_prev(it) : rocksdb_iter_next(it)) {
    size_t key_size, size;
    const char *key = rocksdb_iter_key(it, &key_size);
    const char *value = rocksdb_iter_value(it, &size);
    sum += (uint8_t)key[key_size - 1] + touch(value, size);
    count++;
  }
  char *error = NULL;
  rocksdb_iter_get_error(it, &error);
  check(error);
  rocksdb_iter_destroy(it);
  *touched += sum;
  return count;
}

static size_t seek(void *db, size_t count, uint8_t (*keys)[KEY_BYTES], uint64_t *touched) {
  const struct rival *rival = db;
  rocksdb_iterator_t *it = rocksdb_create_iterator(rival->db, rival->read);
  size_t found = 0;
  for (size_t i = 0; i < count; i++) {
    rocksdb_iter_seek(it, (const char *)keys[i], KEY_BYTES);
    if (!rocksdb_iter_valid(it))
      continue;
    size_t size;
    const char *value = rocksdb_iter_value(it, &size);
    *touched += touch(value, size);
    found++;
  }
  rocksdb_iter_destroy(it);
  return found;
}

static void compact(void *db) {
  const struct rival *rival = db;
  char *error = NULL;
  rocksdb_flushoptions_t *flush = rocksdb_flushoptions_create();
  rocksdb_flushoptions_set_wait(flush, 1);
  rocksdb_flush(rival->db, flush, &error);
  check(error);
  rocksdb_flushoptions_destroy(flush);
  rocksdb_compact_range(rival->db, NULL, 0, NULL, 0);
}

/* From its own report, which gives gigabytes with two digits; small amounts are what the process wrote less the log. */
static double table_bytes(void *db, double user_bytes, double entries) {
  const struct rival *rival = db;
  char *text = rocksdb_property_value(rival->db, "rocksdb.stats");
  const char *line = text ? strstr(text, "Cumulative compaction: ") : NULL;
  const double gib = line ? strtod(line + strlen("Cumulative compaction: "), NULL) : 0;
  free(text);
  const double log_overhead = 23; /* bytes a record, with its share of block headers */
  return gib > 0.5 ? gib * (1 << 30) : (double)process_written_bytes() - user_bytes - entries * log_overhead;
}

static void warm_index(void *db) { /* read when files are opened */
  (void)db;
}

const struct engine engine_rocksdb = {.name = "rocksdb",
                                      .open = open_rival,
                                      .close = close_rival,
                                      .put = put,
                                      .get = get,
                                      .multi_get = multi_get,
                                      .scan = scan,
                                      .seek = seek,
                                      .compact = compact,
                                      .table_bytes = table_bytes,
                                      .warm_index = warm_index};
