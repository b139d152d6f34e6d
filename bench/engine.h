/* bench/engine: the engines as the benchmarks see them: 16-byte keys, rows of one size. A call that fails ends the process.
 * Threads: put and get from any thread, the rest from the one that opened. */
#ifndef TURB_BENCH_ENGINE_H
#define TURB_BENCH_ENGINE_H

#include "bench/bench.h"

enum durability { DURABLE, LOGGED, UNLOGGED }; /* synced at every put; log with the operating system; no log */

struct engine_options {
  const char *path;
  uint32_t row_bytes; /* a multiple of 4 */
  uint64_t cache_bytes, memtable_bytes;
  bool direct; /* around the page cache where the engine can; else it is dropped */
  enum durability durability;
  uint32_t variant; /* of the engine's settings */
};

struct engine {
  const char *name;
  void *(*open)(const struct engine_options *options);
  void (*close)(void *db);
  void (*put)(void *db, const uint8_t *key, const void *row);
  /* Copies the row out; false when it is not there. */
  bool (*get)(void *db, const uint8_t *key, void *row);
  /* Touches each row; returns how many are there. NULL: the engine has none. */
  size_t (*multi_get)(void *db, size_t count, uint8_t (*keys)[KEY_BYTES], uint64_t *touched);
  /* Goes over everything, touching each key and row; returns the number of entries. */
  uint64_t (*scan)(void *db, bool backward, uint64_t *touched);
  /* Seeks to each key and touches what stands there; returns how many were found. */
  size_t (*seek)(void *db, size_t count, uint8_t (*keys)[KEY_BYTES], uint64_t *touched);
  /* Writes out and merges everything; returns when it is done. */
  void (*compact)(void *db);
  /* Ends what the calling thread's puts began; NULL: nothing to do. */
  void (*end_puts)(void *db);
  /* Bytes written to tables (not to logs) so far; `user_bytes` were put. */
  double (*table_bytes)(void *db, double user_bytes, double entries);
  /* Brings into memory what a cold read of rows alone may have there: indexes, filters, keys. */
  void (*warm_index)(void *db);
};

extern const struct engine engine_turbidite, engine_rocksdb, engine_lmdb;

/* RocksDB's settings, by bits of the variant. */
#define ROCKSDB_LARGE_BLOCKS 1u /* 32 KiB, not 4 */
#define ROCKSDB_HASH_INDEX   2u /* in data blocks */
#define ROCKSDB_UNIVERSAL    4u /* compaction */
#define ROCKSDB_PIPELINED    8u /* writes */

/* What touching a row means: its first and its last byte. */
static inline uint64_t touch(const void *row, size_t row_bytes) {
  const uint8_t *bytes = row;
  return (uint64_t)bytes[0] + bytes[row_bytes - 1];
}

#endif
