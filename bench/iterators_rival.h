/* bench/iterators_rival: LevelDB seen from C; the part of it that C++ has to do. Keys and rows come one by one, in key order within a
 * run. All of it ends the process when it fails. */
#ifndef TURB_BENCH_ITERATORS_RIVAL_H
#define TURB_BENCH_ITERATORS_RIVAL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct merge_leveldb;

/* Nothing is ever compacted while it is open, and it is never closed: the process ends instead. What was written before is one more file
 * of level 0. */
struct merge_leveldb *merge_leveldb_open(const char *path, size_t cache_bytes);
void merge_leveldb_put(struct merge_leveldb *rival, const void *key, size_t key_size, const void *row, size_t row_size);
/* All puts so far are with the operating system. */
void merge_leveldb_write(struct merge_leveldb *rival);
int merge_leveldb_files(struct merge_leveldb *rival);
/* Goes over everything; reads each key, and each row when row_bytes is not 0. */
uint64_t merge_leveldb_scan(struct merge_leveldb *rival, size_t row_bytes, uint64_t *touched);

#ifdef __cplusplus
}
#endif

#endif
