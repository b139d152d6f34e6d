/* Lanes: what they hand out is the file, in order, whatever the piece size, the budget and the moment of closing. */
#include <errno.h>
#include <stdlib.h>

#include "sstable/table_parts.h"
#include "tests/sstable/table_fixture.h"

static const struct entries_options shapes[] = {
    {.keys = 20000, .versions = 2, .delete_percent = 10, .attribute_percent = 40, .attribute_bytes = 2000},
    {.keys = 900, .dimension = 300, .key_bytes = 60, .long_key_percent = 30, .attribute_percent = 20},
    {.keys = 100, .dimension = 30000, .attribute_percent = 100, .attribute_bytes = 300000},
    {.keys = 20000, .dimension = 100, .compression = 1},
    {.keys = 300, .dimension = 3000, .type = TURB_F16, .compression = 1},
    {.keys = 20000, .dimension = 12, .type = TURB_BITS, .bulk = true, .attribute_percent = 60},
};
#define SHAPES (sizeof shapes / sizeof shapes[0])

struct walk {
  struct environment e;
  struct entries entries;
  uint32_t *rows;
  struct stored_record record;
  struct table *table;
  struct reads reads;
  struct random random;
};

static void walk_begin(struct walk *w, size_t shape, bool stormy, uint64_t budget) {
  random_init(&w->random, test_seed() + shape);
  CHECK(environment_open(&w->e, TURB_BACKEND_SIMULATED, stormy, budget));
  entries_make(&w->entries, &shapes[shape], random_u64(&w->random));
  w->rows = entries_rows(&w->entries);
  w->table = entries_table(&w->e, &w->entries, &w->record);
  reads_init(&w->reads, w->e.system, NULL);
}

static void walk_end(struct walk *w) {
  reads_close(&w->reads);
  table_release(w->table);
  free(w->rows);
  entries_free(&w->entries);
  environment_close(&w->e);
}

static struct lane *open_lane(struct walk *w, struct lane_options options) {
  struct lane *lane;
  turb_error error = TURB_ERROR_INIT;
  CHECK_OK_ERR(lane_open(w->table, &w->reads, &options, &lane, &error), &error);
  return lane;
}

/* Rows [first, last): each exactly once, as put. */
static void stream_rows(struct walk *w, uint64_t first, uint64_t last, struct lane_options options) {
  options.kind = EXTENT_ROWS;
  options.first_ordinal = first;
  options.last_ordinal = last;
  options.use = BUDGET_CURSOR;
  struct lane *lane = open_lane(w, options);
  uint64_t next = first;
  struct piece piece;
  while (await_piece(&w->reads, lane, &piece, NULL)) {
    CHECK_LE(piece.first_ordinal, next);
    CHECK_GT(piece.first_ordinal + piece.count, next);
    CHECK(next == first || piece.first_ordinal == next);
    for (; next < piece.first_ordinal + piece.count; next++) {
      CHECK_MEM_EQ(piece_row(&piece, table_get_shape(w->table), next), w->entries.at[w->rows[next]].row, w->entries.shape.row_bytes);
    }
    lane_release(lane, piece.data);
  }
  CHECK_EQ(next, last < w->entries.puts ? last : w->entries.puts);
  lane_close(lane);
}

/* Pieces are held and released in any order: two old ones are kept. */
static void stream_keys(struct walk *w, struct lane_options options) {
  options.kind = EXTENT_KEYS;
  options.last_ordinal = table_unit_count(w->table, UNIT_KEYS);
  options.use = BUDGET_JOB;
  struct lane *lane = open_lane(w, options);
  uint32_t next = 0;
  uint64_t unit = 0;
  struct piece piece;
  const void *held[2] = {0};
  while (await_piece(&w->reads, lane, &piece, NULL)) {
    CHECK_EQ(piece.first_ordinal, unit);
    CHECK_EQ((uintptr_t)piece.data % 4096, 0);
    CHECK_EQ(piece.size, piece.count * 4096u);
    for (uint32_t at = 0; at < piece.size;) {
      const struct slot_page *page = (const struct slot_page *)(const void *)(piece.data + at);
      for (uint32_t i = 0; i < page->slot_count; i++, next++) {
        const struct entry *entry = &w->entries.at[next];
        CHECK(key_equal(slot_key(slot_at(page, i)), slot_at(page, i)->key_size, entry->key, entry->key_size));
        CHECK_EQ(slot_sequence(slot_at(page, i)), entry->sequence);
      }
      at += page->units * 4096u;
    }
    unit += piece.count;
    const size_t give = random_below(&w->random, 2);
    if (held[give] != NULL) {
      lane_release(lane, held[give]);
    }
    held[give] = piece.data;
  }
  CHECK_EQ(next, w->entries.count);
  CHECK_EQ(unit, table_unit_count(w->table, UNIT_KEYS));
  for (int i = 0; i < 2; i++) {
    if (held[i] != NULL) {
      lane_release(lane, held[i]);
    }
  }
  lane_close(lane);
}

static void stream_attributes(struct walk *w, struct lane_options options) {
  uint64_t total = 0;
  for (uint32_t i = 0; i < w->entries.count; i++) {
    total += w->entries.at[i].attribute_size;
  }
  options.kind = EXTENT_ATTRIBUTES;
  options.last_ordinal = UINT64_MAX;
  options.use = BUDGET_JOB;
  struct lane *lane = open_lane(w, options);
  uint8_t *all = malloc(total + 1);
  uint64_t next = 0;
  struct piece piece;
  while (await_piece(&w->reads, lane, &piece, NULL)) {
    CHECK_EQ(piece.first_ordinal, next);
    memcpy(all + next, piece.data, piece.count);
    next += piece.count;
    lane_release(lane, piece.data);
  }
  CHECK_EQ(next, total);
  next = 0;
  for (uint32_t i = 0; i < w->entries.count; i++) {
    if (w->entries.at[i].attribute_size != 0) {
      CHECK_MEM_EQ(all + next, w->entries.at[i].attributes, w->entries.at[i].attribute_size);
    }
    next += w->entries.at[i].attribute_size;
  }
  free(all);
  lane_close(lane);
}

TEST(stream, hands_out_the_file_in_order) {
  for (size_t s = 0; s < SHAPES; s++) {
    struct walk w;
    walk_begin(&w, s, true, 128u << 20);
    for (int n = 0; n < 6; n++) {
      const struct lane_options options = {.piece_bytes = n == 0 ? 0 : (uint32_t)random_between(&w.random, 1, 200000),
                                           .depth = (uint32_t)random_between(&w.random, 0, 6),
                                           .verify = n % 2,
                                           .eager = n % 3 == 0};
      const uint64_t a = random_below(&w.random, w.entries.puts), b = random_below(&w.random, w.entries.puts) + 1;
      stream_rows(&w, 0, UINT64_MAX, options);
      stream_rows(&w, a, b > a ? b : a, options);
      stream_keys(&w, options);
      stream_attributes(&w, options);
    }
    walk_end(&w);
  }
}

TEST(stream, runs_on_the_real_backends) {
  static const turb_backend backends[] = {TURB_BACKEND_BLOCKING, TURB_BACKEND_URING};
  for (int b = 0; b < 2; b++) {
    for (size_t s = 0; s < SHAPES; s++) {
      struct walk w;
      random_init(&w.random, test_seed() + s);
      if (!environment_open(&w.e, backends[b], false, 128u << 20)) {
        break;
      }
      entries_make(&w.entries, &shapes[s], random_u64(&w.random));
      w.rows = entries_rows(&w.entries);
      w.table = entries_table(&w.e, &w.entries, &w.record);
      reads_init(&w.reads, w.e.system, NULL);
      stream_rows(&w, 0, UINT64_MAX, (struct lane_options){.verify = true, .eager = true});
      stream_keys(&w, (struct lane_options){.piece_bytes = 20000});
      walk_end(&w);
    }
  }
}

TEST(stream, shrinks_under_a_short_budget) {
  for (size_t s = 0; s < SHAPES; s++) {
    struct walk w;
    walk_begin(&w, s, true, 64u << 20);
    const uint64_t block = w.entries.shape.block_bytes;
    bool refused = false, shrunk = false;
    for (uint64_t room = 16u << 20; room > 4096; room /= 2) {
      budget_set_limit(&w.e.budget, budget_used(&w.e.budget) + room);
      const struct lane_options options = {.kind = EXTENT_ROWS, .last_ordinal = UINT64_MAX, .depth = 6, .use = BUDGET_CURSOR};
      struct lane *lane;
      turb_error error = TURB_ERROR_INIT;
      const turb_status status = lane_open(w.table, &w.reads, &options, &lane, &error);
      if (status == TURB_BUDGET) {
        refused = true;
        CHECK_LT(room, 4 * (2 * block + 12288) + (1u << 20));
        continue;
      }
      CHECK_OK_ERR(status, &error);
      CHECK(!refused);
      CHECK_GE(lane_depth(lane), 3);
      shrunk = shrunk || lane_depth(lane) < 6;
      lane_close(lane);
      budget_set_limit(&w.e.budget, budget_used(&w.e.budget) + room + (1u << 20)); /* for checksum pages */
      stream_rows(&w, 0, UINT64_MAX, options);
    }
    CHECK(shrunk);
    budget_set_limit(&w.e.budget, 64u << 20);
    walk_end(&w);
  }
}

/* Closed at every moment, with reads queued, submitted, done or handed out. */
TEST(stream, is_closed_at_any_moment) {
  for (size_t s = 0; s < SHAPES; s++) {
    struct walk w;
    walk_begin(&w, s, true, 128u << 20);
    for (int n = 0; n < 150; n++) {
      const struct lane_options options = {.kind = random_one_in(&w.random, 2) ? EXTENT_ROWS : EXTENT_KEYS,
                                           .last_ordinal = UINT64_MAX,
                                           .piece_bytes = 30000,
                                           .verify = random_one_in(&w.random, 2),
                                           .eager = random_one_in(&w.random, 2),
                                           .use = BUDGET_JOB};
      struct lane *lane = open_lane(&w, options);
      const uint64_t steps = random_below(&w.random, 12);
      for (uint64_t i = 0; i < steps; i++) {
        struct piece piece;
        bool end;
        const enum load_state state = lane_piece(lane, &piece, &end);
        CHECK_NE(state, LOAD_FAILED);
        if (state == LOAD_READY && !end && random_one_in(&w.random, 2)) {
          lane_release(lane, piece.data);
        }
        if (random_one_in(&w.random, 3)) {
          CHECK_OK(reads_wait(&w.reads, NULL));
        } else if (random_one_in(&w.random, 2)) {
          CHECK_OK(reads_submit(&w.reads, NULL));
        }
      }
      lane_close(lane);
    }
    walk_end(&w);
  }
}

/* ---- damage and failures ------------------------------------------------------------------------------- */

static turb_status stream_to_failure(struct walk *w, enum extent_kind kind, bool verify, turb_error *error) {
  const struct lane_options options = {.kind = kind, .last_ordinal = UINT64_MAX, .piece_bytes = 40000, .verify = verify, .use = BUDGET_JOB};
  struct lane *lane;
  turb_status status = lane_open(w->table, &w->reads, &options, &lane, error);
  if (status != TURB_OK) {
    return status;
  }
  struct piece piece;
  while (await_piece(&w->reads, lane, &piece, error)) {
    lane_release(lane, piece.data);
  }
  status = error->status;
  lane_close(lane);
  return status;
}

TEST(stream, finds_damage) {
  static const enum extent_kind kinds[] = {EXTENT_ROWS, EXTENT_KEYS, EXTENT_ATTRIBUTES, EXTENT_CHECKSUMS};
  for (size_t s = 0; s < SHAPES; s++) {
    struct walk w;
    walk_begin(&w, s, true, 128u << 20);
    char path[512];
    (void)snprintf(path, sizeof path, "%s", io_file_path(table_file(w.table)));
    for (int n = 0; n < 40; n++) {
      const enum extent_kind kind = kinds[random_below(&w.random, 4)];
      const struct spans *spans = &w.table->spans[kind];
      if (spans->count == 0) {
        continue;
      }
      const struct span *span = &spans->at[random_below(&w.random, spans->count)];
      uint64_t size = (uint64_t)span->pages * 4096;
      if (kind == EXTENT_ROWS && w.entries.shape.compression != 0) {
        size = 100;
      } else if (kind == EXTENT_ATTRIBUTES) {
        size = span->count;
      }
      const uint64_t at = span->offset + random_below(&w.random, size);
      CHECK_OK(turb_simulation_flip_bit(w.e.simulation, path, at, 5, NULL));
      turb_error error = TURB_ERROR_INIT;
      CHECK_STATUS_ERR(stream_to_failure(&w, kind, true, &error), TURB_CORRUPTION, &error);
      CHECK_STR_EQ(error.file, path);
      CHECK_LE(error.offset, at + 8192);
      CHECK_OK(turb_simulation_flip_bit(w.e.simulation, path, at, 5, NULL));
      turb_error none = TURB_ERROR_INIT;
      CHECK_OK_ERR(stream_to_failure(&w, kind, true, &none), &none);
    }
    walk_end(&w);
  }
}

TEST(stream, every_operation_and_allocation_fails_once) {
  for (size_t s = 0; s < SHAPES; s += 3) {
    struct walk w;
    walk_begin(&w, s, false, 128u << 20);
    for (int of_allocations = 0; of_allocations < 2; of_allocations++) {
      for (uint64_t n = 1; n < 400; n += 1 + n / 20) {
        table_release(w.table);
        char name[40];
        (void)snprintf(name, sizeof name, "t%llx.tbl", (unsigned long long)w.entries.seed);
        w.table = entries_open(&w.e, name, &w.record);
        if (of_allocations) {
          test_allocator_fail_at(&w.e.allocator, n);
        } else {
          turb_simulation_fail_at(w.e.simulation, turb_simulation_operations(w.e.simulation) + n, EIO);
        }
        turb_error error = TURB_ERROR_INIT;
        const turb_status status = stream_to_failure(&w, EXTENT_ROWS, true, &error);
        const bool failed = w.e.allocator.failed;
        test_allocator_fail_at(&w.e.allocator, 0);
        turb_simulation_fail_at(w.e.simulation, 0, 0);
        if (status == TURB_OK) {
          /* The cache does without memory that it does not get, where it has some to evict. */
          if (!of_allocations || !failed) {
            break;
          }
          continue;
        }
        CHECK_MSG(of_allocations ? status == TURB_NO_MEMORY || status == TURB_BUDGET : status == TURB_IO, "%s", error.message);
        CHECK_EQ(budget_used_for(&w.e.budget, BUDGET_JOB), 0);
      }
    }
    walk_end(&w);
  }
}
