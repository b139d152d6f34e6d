/* bench/pending: what its parts share. */
#ifndef TURB_BENCH_PENDING_H
#define TURB_BENCH_PENDING_H

#include "bench/bench.h"
#include "turbidite/turbidite.h"

#define ITERATORS  1000u
#define ROW_BYTES  512u
#define PAGE_BYTES 4096u
#define MEBIBYTE   (UINT64_C(1) << 20)

struct pending {
  const char *path;
  uint32_t rows;
  uint32_t seeks; /* a pass */
  uint32_t depth; /* iterators, or reads of the bare loop */
  unsigned flags; /* of the bare loop's ring */
};

/* A database that merges nothing by itself, and its collection, which is made when it is not there. */
turb_db *pending_open(const char *path, uint64_t budget_bytes, uint32_t row_bytes, turb_collection **rows);
/* Rows 0 to count - 1, as one run. */
void pending_put(turb_db *db, turb_collection *rows, uint32_t count, uint32_t row_bytes);
/* The begin of a worker that needs nothing but its argument. */
void *pending_argument(const void *argument);

/* A loop of io_uring without an engine, over the largest file of the database: the argument is a struct pending. */
struct worker_job bare_job(const struct pending *what);
/* The rows deleted/... */
void deleted_cases(const struct bench_options *bench);

#endif
