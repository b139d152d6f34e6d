/* LMDB as a contestant (engine.h). Puts that need not be durable share transactions of 1,000; gets share read transactions of as many. Its memory is the map of
 * the file, so the page cache is its cache. */
#include <lmdb.h>
#include <stdlib.h>
#include <string.h>

#include "bench/engine.h"

#define BATCH 1000u

struct rival {
  MDB_env *env;
  MDB_dbi table;
  size_t row_bytes;
  enum durability durability;
  MDB_txn *writing;
  uint32_t written;
  MDB_txn *reading;
  uint32_t read;
};

static void check(int code) {
  if (code != MDB_SUCCESS)
    bench_fail("lmdb: %s", mdb_strerror(code));
}

static void *open_rival(const struct engine_options *given) {
  struct rival *rival = bench_alloc(sizeof *rival);
  rival->row_bytes = given->row_bytes;
  rival->durability = given->durability;
  folder_make(given->path);
  check(mdb_env_create(&rival->env));
  check(mdb_env_set_mapsize(rival->env, (size_t)32 << 30));
  check(mdb_env_open(rival->env, given->path,
                     MDB_NOTLS | (given->durability == DURABLE ? 0u : MDB_NOSYNC) | (given->direct ? MDB_NORDAHEAD : 0u), 0644));
  MDB_txn *txn;
  check(mdb_txn_begin(rival->env, NULL, 0, &txn));
  check(mdb_dbi_open(txn, NULL, 0, &rival->table));
  check(mdb_txn_commit(txn));
  return rival;
}

static void end_writing(struct rival *rival) {
  if (rival->writing)
    check(mdb_txn_commit(rival->writing));
  rival->writing = NULL;
  rival->written = 0;
}

/* The transaction that gets share. */
static MDB_txn *reading(struct rival *rival) {
  if (!rival->reading) {
    check(mdb_txn_begin(rival->env, NULL, MDB_RDONLY, &rival->reading));
  } else if (++rival->read == BATCH) {
    rival->read = 0;
    mdb_txn_reset(rival->reading);
    check(mdb_txn_renew(rival->reading));
  }
  return rival->reading;
}

static void end_reading(struct rival *rival) {
  if (rival->reading)
    mdb_txn_abort(rival->reading);
  rival->reading = NULL;
}

static void close_rival(void *db) {
  struct rival *rival = db;
  end_writing(rival);
  end_reading(rival);
  mdb_env_close(rival->env);
  free(rival);
}

static void put_in(struct rival *rival, MDB_txn *txn, const uint8_t *key, const void *row) {
  MDB_val k = {KEY_BYTES, (void *)(uintptr_t)key}, v = {rival->row_bytes, (void *)(uintptr_t)row};
  check(mdb_put(txn, rival->table, &k, &v, 0));
}

static void put(void *db, const uint8_t *key, const void *row) {
  struct rival *rival = db;
  if (rival->durability == DURABLE) {
    MDB_txn *txn;
    check(mdb_txn_begin(rival->env, NULL, 0, &txn));
    put_in(rival, txn, key, row);
    check(mdb_txn_commit(txn));
    return;
  }
  if (!rival->writing)
    check(mdb_txn_begin(rival->env, NULL, 0, &rival->writing));
  put_in(rival, rival->writing, key, row);
  if (++rival->written == BATCH)
    end_writing(rival);
}

static bool get(void *db, const uint8_t *key, void *row) {
  struct rival *rival = db;
  MDB_val k = {KEY_BYTES, (void *)(uintptr_t)key}, v;
  const int code = mdb_get(reading(rival), rival->table, &k, &v);
  if (code == MDB_NOTFOUND)
    return false;
  check(code);
  memcpy(row, v.mv_data, v.mv_size);
  return true;
}

static size_t multi_get(void *db, size_t count, uint8_t (*keys)[KEY_BYTES], uint64_t *touched) {
  struct rival *rival = db;
  size_t found = 0;
  for (size_t i = 0; i < count; i++) {
    MDB_val k = {KEY_BYTES, keys[i]}, v;
    const int code = mdb_get(reading(rival), rival->table, &k, &v);
    if (code == MDB_NOTFOUND)
      continue;
    check(code);
    *touched += touch(v.mv_data, v.mv_size);
    found++;
  }
  return found;
}

static uint64_t scan(void *db, bool backward, uint64_t *touched) {
  struct rival *rival = db;
  MDB_cursor *cursor;
  check(mdb_cursor_open(reading(rival), rival->table, &cursor));
  uint64_t count = 0, sum = 0;
  MDB_val k, v;
  int code;
  while ((code = mdb_cursor_get(cursor, &k, &v, backward ? MDB_PREV : MDB_NEXT)) == MDB_SUCCESS) {
    sum += ((const uint8_t *)k.mv_data)[KEY_BYTES - 1] + touch(v.mv_data, v.mv_size);
    count++;
  }
  if (code != MDB_NOTFOUND)
    check(code);
  mdb_cursor_close(cursor);
  *touched += sum;
  return count;
}

static size_t seek(void *db, size_t count, uint8_t (*keys)[KEY_BYTES], uint64_t *touched) {
  struct rival *rival = db;
  MDB_cursor *cursor;
  check(mdb_cursor_open(reading(rival), rival->table, &cursor));
  size_t found = 0;
  for (size_t i = 0; i < count; i++) {
    MDB_val k = {KEY_BYTES, keys[i]}, v;
    if (mdb_cursor_get(cursor, &k, &v, MDB_SET_RANGE) != MDB_SUCCESS)
      continue;
    *touched += touch(v.mv_data, v.mv_size);
    found++;
  }
  mdb_cursor_close(cursor);
  return found;
}

static void end_puts(void *db) {
  end_writing(db);
}

static void compact(void *db) { /* one tree already; what was put goes to the disk */
  struct rival *rival = db;
  end_writing(rival);
  check(mdb_env_sync(rival->env, 1));
}

static double table_bytes(void *db, double user_bytes, double entries) {
  (void)db;
  (void)user_bytes;
  (void)entries;
  return (double)process_written_bytes();
}

static void warm_index(void *db) {
  (void)db;
}

const struct engine engine_lmdb = {.name = "lmdb",
                                   .open = open_rival,
                                   .close = close_rival,
                                   .put = put,
                                   .get = get,
                                   .multi_get = multi_get,
                                   .scan = scan,
                                   .seek = seek,
                                   .compact = compact,
                                   .end_puts = end_puts,
                                   .table_bytes = table_bytes,
                                   .warm_index = warm_index};
