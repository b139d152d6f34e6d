/* bench/iterators: what an entry costs on its way through the cursors: beside a bare loser tree over the same pages, beside the same tree
 * without the split, beside RocksDB's and LevelDB's iterators. docs/benchmarks.md says what each row is. */
#include <string.h>

#include "bench/iterators.h"

static void run(const struct bench_options *bench) {
  levels_cases(bench);
  merge_cases(bench);
  public_cases(bench);
  cold_cases(bench);
  interleaved_cases(bench);
  single_cases(bench);
}

int main(int argc, char **argv) {
  if (argc > 1 && !strcmp(argv[1], "--serve"))
    return remote_serve();
  return bench_main(argc, argv, "iterators", run);
}
