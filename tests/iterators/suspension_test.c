/* The suspension sweep: every kind of tree runs every kind of move over cold pages, and is stopped at its n-th suspension (PENDING or YIELD)
 * for each n until the moves end without one. What happens there is the manner: another seek, the end of the cursor, a failing read, reads
 * that come one by one, resumes without need, other calls that go on with the move. The old entry is looked at each time; afterwards a tree
 * that lives yields what a fresh one would. (A memtable alone never suspends; it is a child here.) */
#include <errno.h>

#include "tests/iterators/ground.h"

enum manner {
  MANNER_SEEK,    /* dropped for another seek */
  MANNER_CLOSE,   /* closed with reads in flight */
  MANNER_FAIL,    /* a read fails */
  MANNER_POLL,    /* from here on completions are taken as they come, with resumes in between */
  MANNER_RESUME,  /* resumed many times before anything has come */
  MANNER_ADVANCE, /* advance or retreat go on with the move, and begin no other */
  MANNER_TAKE,    /* a batch goes on with the move, then takes */
  MANNERS
};

enum op { OP_SEEK, OP_SEEK_BEFORE, OP_FIRST, OP_LAST, OP_ADVANCE, OP_RETREAT, OP_TAKE, OP_TAKE_BACK, OP_STOP };

struct step {
  enum op op;
  uint32_t count;  /* of relative moves */
  uint32_t target; /* of seeks: eighths of the expected entries */
  bool cold;       /* the cache is emptied before */
};

#define STEPS_MAX 8
static const struct step scripts[][STEPS_MAX] = {
    {{.op = OP_SEEK, .target = 2, .cold = true}, {.op = OP_ADVANCE, .count = 5000}, {.op = OP_STOP}},
    {{.op = OP_SEEK_BEFORE, .target = 6, .cold = true}, {.op = OP_RETREAT, .count = 5000}, {.op = OP_STOP}},
    {{.op = OP_FIRST, .cold = true}, {.op = OP_TAKE, .count = 200}, {.op = OP_STOP}},
    {{.op = OP_LAST, .cold = true}, {.op = OP_TAKE_BACK, .count = 200}, {.op = OP_STOP}},
    {{.op = OP_SEEK, .target = 4, .cold = true},
     {.op = OP_ADVANCE, .count = 30},
     {.op = OP_RETREAT, .count = 90, .cold = true},
     {.op = OP_ADVANCE, .count = 60, .cold = true},
     {.op = OP_TAKE_BACK, .count = 2, .cold = true},
     {.op = OP_TAKE, .count = 2, .cold = true},
     {.op = OP_STOP}},
    {{.op = OP_SEEK, .target = 1, .cold = true},
     {.op = OP_SEEK_BEFORE, .target = 7, .cold = true},
     {.op = OP_SEEK, .target = 3, .cold = true},
     {.op = OP_FIRST, .cold = true},
     {.op = OP_LAST, .cold = true},
     {.op = OP_SEEK, .target = 6},
     {.op = OP_SEEK_BEFORE, .target = 0, .cold = true},
     {.op = OP_STOP}},
};
#define SCRIPTS (sizeof scripts / sizeof scripts[0])

struct sweep {
  struct ground ground;
  enum tree_kind kind;
  struct world_list expected;
  struct cursor *cursor;
  ptrdiff_t at;
  enum manner manner;
  uint32_t stop_at; /* the number of the suspension; 0: none */
  uint32_t suspensions;
  bool stopped; /* the manner ended the script */
  uint64_t budget[BUDGET_USES];
};

static turb_error err;
static turb_error *fresh(void) {
  err = (turb_error)TURB_ERROR_INIT;
  return &err;
}

static const struct world_entry *entry_at(const struct sweep *s, ptrdiff_t at) {
  return at >= 0 && (size_t)at < s->expected.count ? &s->expected.entries[at] : NULL;
}

static bool is_suspended(turb_state state) {
  return state == TURB_PENDING || state == TURB_YIELD;
}

static bool is_backward(enum op op) {
  return op == OP_SEEK_BEFORE || op == OP_LAST || op == OP_RETREAT || op == OP_TAKE_BACK;
}

static void check_at(const struct sweep *s, turb_state state) {
  if (state == TURB_FAILED) {
    (void)!cursor_error(s->cursor, fresh());
    FAIL("failed: %s", err.message);
  }
  const struct world_entry *e = entry_at(s, s->at);
  CHECK_EQ(state, e ? TURB_READY : TURB_END);
  CHECK_EQ(s->cursor->state, state);
  if (e)
    CHECK_MSG(world_is(s->cursor->slot, e), "at %td: sequence %" PRIu64 ", not %" PRIu64, s->at, slot_sequence(s->cursor->slot),
              e->sequence);
}

/* ---- seeks, and what must follow them ---- */

/* Begins an absolute move and says where it ends. */
static turb_state begin_seek(struct sweep *s, enum op op, size_t entry) {
  if (op == OP_FIRST) {
    s->at = 0;
    return cursor_first(s->cursor);
  }
  if (op == OP_LAST) {
    s->at = (ptrdiff_t)s->expected.count - 1;
    return cursor_last(s->cursor);
  }
  const struct world_entry *e = &s->expected.entries[entry < s->expected.count ? entry : s->expected.count - 1];
  const turb_bytes key = {e->key, e->key_size};
  const bool whole = tree_knows_whole_keys(s->kind);
  if (op == OP_SEEK) {
    const uint64_t sequence = whole ? SLOT_SEQUENCE_MAX : e->sequence;
    s->at = list_lower_bound(&s->expected, key, sequence);
    return cursor_seek(s->cursor, key, sequence);
  }
  const uint64_t sequence = whole ? 0 : e->sequence;
  s->at = list_lower_bound(&s->expected, key, sequence) - 1;
  return cursor_seek_before(s->cursor, key, sequence);
}

/* Waits a move out, looking at the old entry; nothing special happens. */
static turb_state wait_out(struct sweep *s, turb_state state, const struct slot *old, const struct world_entry *old_entry) {
  while (is_suspended(state)) {
    if (old)
      CHECK_MSG(world_is(old, old_entry), "the old entry is gone while a move is pending");
    if (state == TURB_PENDING)
      CHECK_OK_ERR(reads_wait(&s->ground.world.reads, fresh()), &err);
    state = cursor_resume(s->cursor);
  }
  return state;
}

/* A seek and a walk both ways: as a fresh cursor would. */
static void check_good_as_new(struct sweep *s, const struct slot *old, const struct world_entry *old_entry) {
  static const enum op first_moves[] = {OP_SEEK, OP_SEEK_BEFORE, OP_FIRST, OP_LAST};
  const enum op op = first_moves[world_random(&s->ground.world, 4)];
  check_at(s, wait_out(s, begin_seek(s, op, world_random(&s->ground.world, s->expected.count)), old, old_entry));
  for (int pass = 0; pass < 2; pass++) {
    for (int i = 0; i < 70 && s->cursor->state == TURB_READY; i++) {
      const struct slot *from = s->cursor->slot;
      const struct world_entry *from_entry = entry_at(s, s->at);
      s->at += is_backward(op) ? -1 : 1;
      check_at(s, wait_out(s, is_backward(op) ? cursor_retreat(s->cursor) : cursor_advance(s->cursor), from, from_entry));
    }
    ground_chill(&s->ground);
    check_at(s, wait_out(s, begin_seek(s, op, world_random(&s->ground.world, s->expected.count)), NULL, NULL));
  }
}

/* ---- manners ---- */

static void stop_by_closing(struct sweep *s) {
  if (s->stop_at % 2)
    CHECK_OK_ERR(reads_submit(&s->ground.world.reads, fresh()), &err);
  cursor_close(s->cursor);
  s->cursor = NULL;
  ground_check_empty(&s->ground, s->budget);
}

/* A failed cursor says why, and stays so until a seek. */
static void check_failed(struct sweep *s) {
  CHECK_STATUS_ERR(cursor_error(s->cursor, fresh()), TURB_IO, &err);
  CHECK_NE(err.file[0], 0);
  CHECK_NE(err.offset, UINT64_MAX);
  CHECK_EQ(cursor_resume(s->cursor), TURB_FAILED);
  CHECK_EQ(cursor_advance(s->cursor), TURB_FAILED);
  CHECK_EQ(cursor_retreat(s->cursor), TURB_FAILED);
  struct cursor_ref refs[4];
  struct window *held[4];
  struct cursor_batch batch = {.refs = refs, .capacity = 4, .held = held, .held_capacity = 4};
  CHECK_EQ(cursor_take(s->cursor, &batch, false), TURB_FAILED);
  CHECK_EQ(batch.count, 0);
  CHECK_EQ(s->cursor->state, TURB_FAILED);
}

#define TAKEN_MAX 37

/* Takes entries from where the cursor stands or a pending move ends; the place of the first is s->at. */
static turb_state take(struct sweep *s, bool backward, uint32_t capacity) {
  struct cursor_ref refs[TAKEN_MAX];
  struct window *held[96];
  struct cursor_batch batch = {.refs = refs, .capacity = capacity, .held = held, .held_capacity = 96};
  const turb_state state = cursor_take(s->cursor, &batch, backward);
  for (uint32_t i = 0; i < batch.count; i++) {
    CHECK(entry_at(s, s->at) != NULL);
    CHECK_MSG(world_is(refs[i].slot, entry_at(s, s->at)), "entry %u of a batch", i);
    s->at += backward ? -1 : 1;
  }
  cursor_batch_release(&batch);
  return state;
}

static turb_state resume_for_nothing(struct sweep *s, turb_state state) {
  const struct reads *reads = &s->ground.world.reads;
  const uint32_t under_way = reads->queued + reads->in_flight;
  for (int i = 0; i < 50 && state == TURB_PENDING; i++) {
    state = cursor_resume(s->cursor);
    CHECK_EQ(state, TURB_PENDING);
    CHECK_EQ(reads->queued + reads->in_flight, under_way);
  }
  return state;
}

/* The calls that go on with a pending move. */
static turb_state go_on_by(struct sweep *s, turb_state state, bool backward) {
  if (state == TURB_PENDING)
    for (int i = 0; i < 3; i++)
      CHECK_EQ(i % 2 ? cursor_retreat(s->cursor) : cursor_advance(s->cursor), TURB_PENDING);
  if (state == TURB_PENDING)
    CHECK_OK_ERR(reads_wait(&s->ground.world.reads, fresh()), &err);
  if (s->manner == MANNER_TAKE)
    return take(s, backward, 5);
  return s->stop_at % 2 ? cursor_advance(s->cursor) : cursor_retreat(s->cursor);
}

static turb_state take_as_they_come(struct sweep *s, turb_state state) {
  struct reads *reads = &s->ground.world.reads;
  if (state == TURB_PENDING) {
    CHECK_OK_ERR(reads_submit(reads, fresh()), &err);
    if (!reads_poll(reads) && world_random(&s->ground.world, 4) == 0)
      CHECK_OK_ERR(reads_wait(reads, fresh()), &err);
  }
  return cursor_resume(s->cursor);
}

/* Suspension number `stop_at` was reached. */
static turb_state meddle(struct sweep *s, turb_state state, const struct slot *old, const struct world_entry *old_entry, bool backward) {
  turb_simulation *simulation = s->ground.world.simulation;
  switch (s->manner) {
  case MANNER_SEEK:
    s->stopped = true;
    if (s->stop_at % 3 == 0 && state == TURB_PENDING) /* with some of its reads there already */
      CHECK_OK_ERR(reads_wait(&s->ground.world.reads, fresh()), &err);
    check_good_as_new(s, old, old_entry);
    return s->cursor->state;
  case MANNER_CLOSE:
    s->stopped = true;
    stop_by_closing(s);
    return TURB_END;
  case MANNER_FAIL:
    turb_simulation_fail_at(simulation, turb_simulation_operations(simulation) + 1 + world_random(&s->ground.world, 3), EIO);
    return state;
  case MANNER_RESUME: return resume_for_nothing(s, state);
  case MANNER_ADVANCE:
  case MANNER_TAKE: return go_on_by(s, state, backward);
  case MANNER_POLL:
  case MANNERS: break;
  }
  return state;
}

/* Goes on with a move until it is done; `old` is where the cursor stood. */
static turb_state finish(struct sweep *s, turb_state state, const struct slot *old, const struct world_entry *old_entry, bool backward) {
  while (is_suspended(state) && !s->stopped) {
    if (old)
      CHECK_MSG(world_is(old, old_entry), "the old entry is gone while a move is pending");
    s->suspensions++;
    if (s->suspensions % 4 == 0)
      ground_chill(&s->ground); /* what nobody holds is gone now */
    if (s->suspensions == s->stop_at) {
      const ptrdiff_t at = s->at;
      state = meddle(s, state, old, old_entry, backward);
      if (s->stopped)
        return state;
      if (s->at != at)
        old = NULL; /* a batch took it */
      if (!is_suspended(state))
        break;
      if (s->manner == MANNER_TAKE || s->manner == MANNER_ADVANCE)
        continue;
    }
    if (s->manner == MANNER_POLL && s->stop_at && s->suspensions >= s->stop_at) {
      state = take_as_they_come(s, state);
      continue;
    }
    if (state == TURB_PENDING)
      CHECK_OK_ERR(reads_wait(&s->ground.world.reads, fresh()), &err);
    state = cursor_resume(s->cursor);
  }
  if (state == TURB_FAILED && s->manner == MANNER_FAIL && s->stop_at && s->suspensions >= s->stop_at) {
    check_failed(s);
    check_good_as_new(s, NULL, NULL);
    s->stopped = true;
  }
  return state;
}

/* ---- scripts ---- */

static void run_move(struct sweep *s, const struct step *step) {
  const bool placed = s->cursor->state == TURB_READY;
  const struct slot *old = placed ? s->cursor->slot : NULL;
  const struct world_entry *old_entry = placed ? entry_at(s, s->at) : NULL;
  turb_state state;
  if (step->op == OP_TAKE || step->op == OP_TAKE_BACK) {
    state = take(s, step->op == OP_TAKE_BACK, TAKEN_MAX);
    old = NULL;
  } else if (step->op == OP_ADVANCE) {
    s->at++;
    state = cursor_advance(s->cursor);
  } else if (step->op == OP_RETREAT) {
    s->at--;
    state = cursor_retreat(s->cursor);
  } else {
    state = begin_seek(s, step->op, s->expected.count * step->target / 8);
  }
  state = finish(s, state, old, old_entry, is_backward(step->op));
  if (!s->stopped)
    check_at(s, state);
}

/* Runs the script up to the stop; returns how many suspensions there were. */
static uint32_t run_script(struct sweep *s, const struct step *script) {
  ground_chill(&s->ground);
  ground_note_budget(&s->ground, s->budget);
  s->cursor = ground_open(&s->ground, s->kind);
  s->suspensions = 0;
  s->stopped = false;
  for (const struct step *step = script; step->op != OP_STOP && !s->stopped; step++) {
    if (step->cold)
      ground_chill(&s->ground);
    const uint32_t count = step->count ? step->count : 1;
    for (uint32_t i = 0; i < count && !s->stopped && (!step->count || s->cursor->state == TURB_READY); i++)
      run_move(s, step);
  }
  turb_simulation_fail_at(s->ground.world.simulation, 0, 0);
  if (!s->stopped && s->stop_at)
    check_good_as_new(s, NULL, NULL);
  cursor_close(s->cursor);
  ground_check_empty(&s->ground, s->budget);
  return s->suspensions;
}

static void sweep_kind(enum tree_kind kind) {
  const uint64_t seed = test_seed(), rounds = test_scale(1, 1, 35);
  uint64_t stops = 0;
  for (uint64_t round = 0; round < rounds; round++) {
    struct sweep s = {.kind = kind};
    ground_begin(&s.ground, seed + round);
    s.expected = ground_expected(&s.ground, kind);
    for (size_t script = 0; script < SCRIPTS; script++) {
      for (int manner = 0; manner < MANNERS; manner++) {
        s.manner = (enum manner)manner;
        s.stop_at = 1;
        while (run_script(&s, scripts[script]) >= s.stop_at)
          s.stop_at++;
        stops += s.stop_at - 1;
      }
    }
    world_list_free(&s.expected);
    ground_end(&s.ground);
  }
  CHECK_GT(stops, rounds * MANNERS * SCRIPTS);
}

TEST(suspension, table) {
  sweep_kind(TREE_TABLE);
}
TEST(suspension, table_streaming) {
  sweep_kind(TREE_STREAM);
}
TEST(suspension, concat) {
  sweep_kind(TREE_CONCAT);
}
TEST(suspension, concat_streaming) {
  sweep_kind(TREE_CONCAT_STREAM);
}
TEST(suspension, merge_of_two) {
  sweep_kind(TREE_MERGE_TWO);
}
TEST(suspension, merge) {
  sweep_kind(TREE_MERGE);
}
TEST(suspension, merge_streaming) {
  sweep_kind(TREE_MERGE_STREAM);
}
TEST(suspension, bounded) {
  sweep_kind(TREE_BOUNDED);
}
TEST(suspension, visible) {
  sweep_kind(TREE_VISIBLE);
}
TEST(suspension, visible_bounded) {
  sweep_kind(TREE_VISIBLE_BOUNDED);
}
TEST(suspension, filtered) {
  sweep_kind(TREE_FILTERED);
}
