/* Trees of cursors over a world (iterators.h). */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "bench/iterators.h"
#include "iterators/visible_cursor.h"

/* Keys of all sets lie between these. */
static const struct key_bounds wide_bounds = {.lower = {"\0", 1}, .upper = {"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 10}};

static struct cursor *wrapped(struct tree *tree, const struct tree_options *options, struct cursor *cursor) {
  switch (options->kind) {
  case TREE_SPLIT: break;
  case TREE_BOXED: return boxed_cursor_open(&tree->context, cursor);
  case TREE_ALWAYS_AWAIT: return await_cursor_open(&tree->context, cursor);
  }
  return cursor;
}

/* The run's entries in a memtable. */
static struct memtable *make_memtable(const struct data_set *set, uint32_t run, struct budget *budget) {
  const uint32_t row_bytes = data_row_bytes(set);
  const struct memtable_options options = {.allocator = alloc_default(), .budget = budget, .row_bytes = row_bytes, .stride = row_bytes};
  struct memtable *memtable;
  turb_error error = TURB_ERROR_INIT;
  bench_check(memtable_create(&options, &memtable, &error), &error);
  struct data_entry entry;
  for (uint32_t table = 0; table < set->tables; table++) {
    uint32_t *order = data_order(set, run, table);
    for (uint32_t i = 0; i < set->entries; i++) {
      data_at(set, run, table, order, i, &entry);
      bench_check(memtable_put(memtable, (turb_bytes){entry.key, entry.key_size}, entry.sequence, entry.row,
                               hash64(entry.row, row_bytes, 0), TURB_NONE, 0, &error),
                  &error);
    }
    free(order);
  }
  return memtable;
}

static struct cursor *open_memtable(struct tree *tree, uint32_t run) {
  struct cursor *cursor;
  turb_error error = TURB_ERROR_INIT;
  tree->memtable_source = (struct source){.memtable = make_memtable(tree->world->set, run, &tree->world->budget), .run = run};
  bench_check(memtable_cursor_open(&tree->context, &tree->memtable_source, &cursor, &error), &error);
  return cursor;
}

/* A run; in a union the first is a memtable, the second a bounded one, the third (when it has but one table) a bare table. */
static struct cursor *open_child(struct tree *tree, const struct tree_options *options, uint32_t at) {
  const uint32_t run = options->first_run + at;
  struct run_view *view = &tree->world->runs[run];
  struct cursor *cursor;
  turb_error error = TURB_ERROR_INIT;
  if (options->union_children && at == 0)
    return open_memtable(tree, run);
  if (options->union_children && at == 2 && view->count == 1) {
    bench_check(table_cursor_open(&tree->context, &view->sources[0], options->streaming, &cursor, &error), &error);
    return cursor;
  }
  bench_check(concat_cursor_open(&tree->context, view, options->streaming, &cursor, &error), &error);
  if (options->union_children && at == 1)
    bench_check(bounded_cursor_open(&tree->context, cursor, &wide_bounds, &cursor, &error), &error);
  return cursor;
}

void tree_open(struct tree *tree, struct world *world, const struct tree_options *options) {
  turb_error error = TURB_ERROR_INIT;
  memset(tree, 0, sizeof *tree);
  tree->world = world;
  reads_init(&tree->reads, world->system, NULL);
  tree->context = (struct cursor_context){.reads = &tree->reads,
                                          .allocator = alloc_default(),
                                          .budget = &world->budget,
                                          .fill_cache = !options->streaming,
                                          .eager = options->streaming};
  struct cursor **children = bench_alloc(options->runs * sizeof(struct cursor *));
  for (uint32_t i = 0; i < options->runs; i++)
    children[i] = wrapped(tree, options, open_child(tree, options, i));
  bench_check(merge_cursor_open(&tree->context, children, options->runs, &tree->top, &error), &error);
  free(children);
  if (options->runs > 1) /* a merge of one is its child, which is wrapped */
    tree->top = wrapped(tree, options, tree->top);
  if (options->visible) {
    const struct visible_options visible = {.snapshot = SLOT_SEQUENCE_MAX};
    bench_check(visible_cursor_open(&tree->context, tree->top, &visible, &tree->top, &error), &error);
    tree->top = wrapped(tree, options, tree->top);
  }
  if (options->parts) {
    const struct parts_options parts = {
        .which = TURB_VECTOR, .run_count = world->run_count, .row_bytes = data_row_bytes(world->set), .streaming = options->streaming};
    bench_check(parts_open(&tree->context, &parts, &tree->parts, &error), &error);
  }
}

void tree_close(struct tree *tree) {
  parts_close(tree->parts);
  cursor_close(tree->top);
  memtable_release(tree->memtable_source.memtable);
  reads_close(&tree->reads);
}
