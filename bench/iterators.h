/* bench/iterators: what the files of the iterators' benchmark share.
 *
 *   iterators_data.c    sets of entries: keys, rows, and their tables on disk
 *   iterators_world.c   a set opened without an engine; everything resident, or nothing
 *   iterators_tree.c    trees of cursors over a world
 *   iterators_wrap.c    what a tree costs when every next is an operation of its own, or enters a state machine
 *   iterators_walk.c    contestants: walks over a tree
 *   iterators_floor.c   contestants: the bare loser tree over the same pages
 *   iterators_rival.c   contestants: RocksDB and LevelDB over the same entries
 *   iterators_misses.c  branch misses, where they are counted
 *   iterators_rows.c    contests of walks and their rows
 *   iterators_remote.c  contestants: walks by the binary without link-time optimisation; instructions counted by callgrind
 *   iterators_shape.c   what the cases over a resident world have in common
 *   iterators_levels.c  cases (a), (b), (c): Hummock's shapes
 *   iterators_merge.c   case (d): k runs
 *   iterators_cold.c    case (e): a cold scan
 *   iterators_public.c  (a) and (d) through the public iterator
 *   iterators_bench.c   the cases in turn
 *
 * A resident world is opened once, in a process that has no threads; contestants are forked from it and share its memory. A walk over
 * it does no I/O, so no ring is ever used by two of them.
 */
#ifndef TURB_BENCH_ITERATORS_H
#define TURB_BENCH_ITERATORS_H

#include "bench/bench.h"
#include "iterators/cursor.h"
#include "iterators/parts.h"
#include "turbidite/turbidite.h"

#ifdef __cplusplus
#error "rivals in C++ include bench/iterators_rival.h alone"
#endif

/* ---- data ---- */

#define DATA_KEY_MAX 32u

enum data_keys {
  DATA_RANDOM,      /* 16 bytes; runs lie at random among each other */
  DATA_LEVELS,      /* 31 bytes; every run has the same keys, newer ones in the runs before */
  DATA_INTERLEAVED, /* 17 bytes; every next entry is another run's */
};

struct data_set {
  const char *name;
  enum data_keys keys;
  uint32_t runs, tables, entries; /* tables a run, entries a table */
  uint32_t dimension;             /* f32 */
};

struct data_entry {
  uint8_t key[DATA_KEY_MAX];
  uint32_t key_size;
  uint64_t sequence;
  const void *row;
};

/* Order of a table's entries, for sets whose keys are random (else NULL); release with free. */
uint32_t *data_order(const struct data_set *set, uint32_t run, uint32_t table);
/* Entry `i` of a table, in key order. */
void data_at(const struct data_set *set, uint32_t run, uint32_t table, const uint32_t *order, uint32_t i, struct data_entry *entry);
/* Writes the tables of the first `runs` runs into `folder`. */
void data_write(const struct data_set *set, const char *folder, uint32_t runs);
char *data_path(const struct data_set *set, const char *folder, uint32_t run, uint32_t table);
static inline uint32_t data_row_bytes(const struct data_set *set) {
  return set->dimension * 4;
}

/* ---- worlds ---- */

struct world {
  const struct data_set *set;
  const char *folder;
  struct budget budget;
  struct io_system *system;
  struct cache *cache;
  struct table_env env;
  uint32_t run_count;
  struct run_view *runs;
};

struct world *world_open(const struct data_set *set, const char *folder, uint32_t runs, uint64_t budget_bytes);
/* Brings keys, and rows where wanted, into the cache; ends the process when not all of it stays there. */
void world_warm(struct world *world, bool rows);

/* ---- trees ---- */

enum tree_kind {
  TREE_SPLIT,        /* as it is */
  TREE_BOXED,        /* every next of every level is an operation on the heap that completes through a callback */
  TREE_ALWAYS_AWAIT, /* every next of every level enters a state machine behind a call */
};

struct tree_options {
  enum tree_kind kind;
  uint32_t first_run, runs;
  bool visible;        /* newest versions alone */
  bool streaming;      /* large reads past the cache */
  bool parts;          /* rows too */
  bool union_children; /* of unlike kinds: a memtable, a table, a bounded run, runs */
};

struct tree {
  struct world *world;
  struct reads reads;
  struct cursor_context context;
  struct cursor *top;
  struct parts *parts;
  struct source memtable_source;
};

void tree_open(struct tree *tree, struct world *world, const struct tree_options *options);
void tree_close(struct tree *tree);
/* Pass-through cursors; the child is theirs. */
struct cursor *boxed_cursor_open(struct cursor_context *context, struct cursor *child);
struct cursor *await_cursor_open(struct cursor_context *context, struct cursor *child);

/* ---- contestants ---- */

struct walk_case {
  struct world *world;
  struct tree_options tree;
  bool batch;       /* many entries a call */
  bool touch;       /* rows too */
  bool no_lto;      /* by the other binary */
  uint32_t repeats; /* whole walks a pass */
  uint64_t entries; /* that a walk must yield */
};

/* Worker jobs; the argument is a struct walk_case, which lives until the worker ends. Operations are entries that go in. */
struct worker_job walk_job(const struct walk_case *what);
struct worker_job floor_job(const struct walk_case *what);
/* The same walk by another binary, the one without link-time optimisation. */
struct worker_job remote_job(const struct walk_case *what);
/* What `--serve` means: does such a walk for the process at the other end of standard input and output. */
int remote_serve(void);
/* Instructions an entry that goes in, counted by callgrind; 0 when there is no callgrind. */
double remote_instructions(const struct walk_case *what);
/* One walk over a tree that is open; returns what it yielded. */
uint64_t walk_tree(struct tree *tree, bool batch, bool touch, uint64_t *sum);

struct rival_case {
  const struct data_set *set;
  const char *folder; /* of the rival's database */
  uint32_t runs;
  uint32_t variant;
  bool touch, direct;
  uint64_t entries;
};
/* Builds `runs` overlapping files, nothing compacted. */
void rocksdb_build(const struct rival_case *what);
void leveldb_build(const struct rival_case *what);
struct worker_job rocksdb_job(const struct rival_case *what);
struct worker_job leveldb_job(const struct rival_case *what);

/* ---- rows ---- */

/* A resident pass: all contestants of a round run on one core, another one in the next round, since cores differ in speed; what counts is
 * the thread's time on it, which other work on the machine does not add to. */
double resident_begin(uint32_t round);
void resident_stop(double begin, double operations, struct sample *sample);

/* A counter of this thread's mispredicted branches, -1 when the machine has none; what it shows, 0 for none. */
int branch_misses_open(void);
double branch_misses_read(int counter);

void walks_init(struct contest *contest, const struct bench_options *bench, const char *what, uint32_t rounds);
size_t walks_find(const struct contest *contest, const char *name); /* contest->count when it is not there */
double walks_ns(const struct contest *contest, size_t contestant);  /* an input entry; the median */
void walks_row_begin(const struct contest *contest, size_t contestant);
void walks_rows(const struct contest *contest);
/* How many times faster `name` is than the best whose name begins with `against` (met when at least `least`), and how many times as long
 * it takes as `against` (met when at most `most`). A target of NULL: none. No row when one of the two did not take part. */
void walks_faster_row(const struct contest *contest, const char *name, const char *against, double least, const char *target);
void walks_slower_row(const struct contest *contest, const char *name, const char *against, double most, const char *target);

/* ---- shapes: what the cases over a resident world have in common ---- */

struct shape {
  const struct bench_options *bench;
  struct world *world;
  char name[64];
  uint32_t runs, rounds;
  bool visible, touch;
  bool counted;                                   /* instructions too, in a full run */
  bool floor, variants, unions, prefetch, remote; /* which contestants there are besides split and batch */
  char *rocksdb[2], *leveldb;                     /* their folders; NULL: not built */
  uint64_t entries;                               /* that a walk yields */
  struct walk_case walks[16];
  struct rival_case rivals[3];
  size_t walk_count;
};

/* Runs the contest and prints a row a contestant, and what the split gains. `target`: the gains have targets. */
void shape_run(struct shape *shape, struct contest *contest, bool target);
void shape_build_rivals(struct shape *shape, bool both_blocks);
void shape_remove_rivals(struct shape *shape);
/* Writes a set's tables, opens them in a child, everything resident, and calls `run` there; then removes them. */
void shape_stage(const struct bench_options *bench, const struct data_set *set, bool rows,
                 void (*run)(const struct bench_options *bench, struct world *world));

/* ---- cases: each is a family of rows ---- */

void levels_cases(const struct bench_options *bench);      /* (a) */
void interleaved_cases(const struct bench_options *bench); /* (b) */
void single_cases(const struct bench_options *bench);      /* (c) */
void merge_cases(const struct bench_options *bench);       /* (d) */
void cold_cases(const struct bench_options *bench);        /* (e) */
void public_cases(const struct bench_options *bench);      /* (a) and (d) through the public iterator */

/* What reading a key means: its last byte. */
static inline uint64_t touch_key(const struct slot *slot) {
  return slot_key(slot)[slot->key_size - 1];
}

#endif
