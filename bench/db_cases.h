/* bench/db_cases: the families of bench/db.
 *
 *   db_fill.c     fillseq, fillrandom, overwrite with compact
 *   db_sync.c     fillsync
 *   db_read.c     readrandom, multireadrandom, seekrandom, readwhilewriting, readseq, readreverse: cached and cold
 *   db_build.c    compacted databases to read from, each built once a run
 */
#ifndef TURB_BENCH_DB_CASES_H
#define TURB_BENCH_DB_CASES_H

#include "bench/engine.h"

struct contender { /* an engine at certain settings */
  const struct engine *engine;
  uint32_t variant;
  const char *name;
};

extern const struct contender contender_turbidite, contender_lmdb, contender_rocksdb, contender_rocksdb_large, contender_rocksdb_hash,
    contender_rocksdb_universal, contender_rocksdb_pipelined;

struct shape {
  uint32_t dimension, rows;
};

static inline uint32_t shape_row_bytes(const struct shape *shape) {
  return shape->dimension * 4;
}
static inline double shape_user_bytes(const struct shape *shape) {
  return (double)shape->rows * (KEY_BYTES + shape_row_bytes(shape));
}

/* The folder of a contender's compacted database of that shape, built at the first call; lives for ever. */
const char *database_of(const struct bench_options *bench, const struct contender *contender, const struct shape *shape);
/* Removes what database_of built. */
void database_drop_all(void);

void run_fills(const struct bench_options *bench);
void run_syncs(const struct bench_options *bench);
void run_reads(const struct bench_options *bench);
void run_scans(const struct bench_options *bench);
void run_cold_reads(const struct bench_options *bench);
/* Changes the databases it reads: the last. */
void run_mixed(const struct bench_options *bench);

#endif
