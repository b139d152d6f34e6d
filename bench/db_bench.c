/* bench/db: puts, gets and scans side by side with RocksDB and LMDB. docs/benchmarks.md says what each row is. */
#include "bench/db_cases.h"

static void run(const struct bench_options *options) {
  run_syncs(options);
  run_fills(options);
  run_reads(options);
  run_scans(options);
  run_cold_reads(options);
  run_mixed(options);
  database_drop_all();
}

int main(int argc, char **argv) {
  return bench_main(argc, argv, "db", run);
}
