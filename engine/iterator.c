/* iterator.h has the contract, the states and the invariants. */
#include "engine/iterator.h"

#include "base/clock.h"
#include "engine/loop.h"

static struct iterator *of(turb_iterator *iterator) {
  return (struct iterator *)iterator;
}

/* ---- the window ---- */

static turb_state fail(struct iterator *it) {
  it->phase = PHASE_IDLE;
  it->head.entry = it->head.window_begin = it->head.window_end = NULL;
  return it->state = TURB_FAILED;
}

static turb_state end(struct iterator *it) {
  it->phase = PHASE_IDLE;
  it->head.entry = it->head.window_begin = it->head.window_end = NULL;
  return it->state = TURB_END;
}

/* A move begins: the old entry stays readable apart from the window. What was read so far the move finds by itself. */
static void leave(struct iterator *it) {
  list_remove(&it->reads.woken_link);
  if (it->state != TURB_READY && it->phase != PHASE_FETCH)
    return;
  it->old = *it->head.entry;
  memcpy(it->old_key, it->old.key.data, it->old.key.size);
  it->old.key.data = it->old_key;
  it->head.entry = it->head.window_begin = &it->old;
  it->head.window_end = &it->old + 1;
}

/* The window becomes refs [first, first + count) of the stretch. */
static turb_state show(struct iterator *it, uint32_t first, uint32_t count) {
  const struct visible_stretch stretch = visible_cursor_stretch(it->cursor);
  it->first = first;
  it->count = count;
  const uint32_t row_bytes = it->view.version->shape->row_bytes;
  for (uint32_t i = 0; i < count; i++) {
    const struct slot *slot = stretch.refs[first + i].slot;
    const struct entry_parts *parts = &it->resolved[first + i];
    turb_entry *entry = &it->entries[i];
    entry->key = slot_key_bytes(slot);
    entry->sequence = slot_sequence(slot);
    entry->vector = it->which & TURB_VECTOR ? (turb_bytes){parts->vector, row_bytes} : TURB_NONE;
    entry->attributes = it->which & TURB_ATTRIBUTES ? (turb_bytes){parts->attributes, parts->attribute_size} : TURB_NONE;
  }
  it->fetched_entry = NULL;
  it->head.window_begin = it->entries;
  it->head.window_end = it->entries + count;
  it->head.entry = it->backward ? it->entries + count - 1 : it->entries;
  it->taken_at += it->head.entry - it->entries;
  it->phase = PHASE_IDLE;
  return it->state = TURB_READY;
}

/* ---- moves ---- */

/* Brings parts for refs from `first` on (up to `first`, when backward), and shows those that are there. */
static turb_state run_parts(struct iterator *it) {
  const struct visible_stretch stretch = visible_cursor_stretch(it->cursor);
  const uint32_t from = it->backward ? 0 : it->first;
  const uint32_t count = it->backward ? it->first : stretch.count - it->first;
  uint32_t resolved = count;
  if (it->parts) {
    const turb_state state = parts_resolve(it->parts, stretch.refs + from, count, it->backward, it->resolved + from, &resolved);
    if (state == TURB_FAILED) {
      status_forget(&it->error);
      (void)parts_error(it->parts, &it->error);
      return fail(it);
    }
    if (state != TURB_READY)
      return it->state = state;
  }
  return show(it, it->backward ? it->first - resolved : it->first, resolved);
}

static turb_state begin_parts(struct iterator *it, uint32_t first) {
  it->first = first;
  it->phase = PHASE_PARTS;
  if (it->parts)
    parts_begin(it->parts);
  return run_parts(it);
}

/* The visible cursor moved. */
static turb_state after_cursor(struct iterator *it, turb_state state) {
  if (state == TURB_READY)
    return begin_parts(it, it->backward ? visible_cursor_stretch(it->cursor).count : 0);
  if (state == TURB_END)
    return end(it);
  if (state == TURB_FAILED) {
    status_forget(&it->error);
    (void)cursor_error(it->cursor, &it->error);
    return fail(it);
  }
  return it->state = state;
}

static turb_state run_fetch(struct iterator *it);

/* Goes on with what is under way. */
static turb_state go_on(struct iterator *it) {
  (void)reads_poll(&it->reads);
  switch (it->phase) {
  case PHASE_CURSOR: return after_cursor(it, cursor_resume(it->cursor));
  case PHASE_PARTS: return run_parts(it);
  case PHASE_FETCH: return run_fetch(it);
  case PHASE_IDLE: break;
  }
  return it->state;
}

static turb_state relative(struct iterator *it, bool backward) {
  if (it->state == TURB_PENDING || it->state == TURB_YIELD)
    return go_on(it);
  if (it->state != TURB_READY)
    return it->state;
  const uint32_t stretch = visible_cursor_stretch(it->cursor).count;
  const uint32_t at = it->first + (uint32_t)(it->head.entry - it->head.window_begin);
  it->taken_at -= it->head.entry - it->entries + (backward ? -1 : 1); /* counted from where the move leads, until that is shown */
  leave(it);
  it->backward = backward;
  if (backward ? at > 0 : at + 1 < stretch)
    return begin_parts(it, backward ? at : at + 1);
  visible_cursor_select(it->cursor, at);
  it->phase = PHASE_CURSOR;
  return after_cursor(it, visible_cursor_next_stretch(it->cursor, backward));
}

turb_state turb_advance_slow(turb_iterator *iterator) {
  return relative(of(iterator), false);
}
turb_state turb_retreat_slow(turb_iterator *iterator) {
  return relative(of(iterator), true);
}

static bool is_taken(const struct iterator *it) {
  return it->has_taken && it->taken_at == it->head.entry - it->entries;
}

turb_state turb_take(turb_iterator *iterator, bool backward, turb_entry *entries, size_t capacity, uint64_t max_bytes, size_t *count) {
  struct iterator *it = of(iterator);
  *count = 0;
  turb_state state = it->state;
  if (state == TURB_PENDING || state == TURB_YIELD)
    state = go_on(it);
  if (state != TURB_READY || !capacity)
    return state;
  if (is_taken(it)) /* also when what ended just now was a fetch for it */
    state = backward ? turb_retreat(iterator) : turb_advance(iterator);
  if (state != TURB_READY)
    return state;
  const ptrdiff_t at = it->head.entry - it->entries, step = backward ? -1 : 1;
  const ptrdiff_t there = backward ? it->head.entry - it->head.window_begin + 1 : it->head.window_end - it->head.entry;
  const size_t most = capacity < (size_t)there ? capacity : (size_t)there;
  uint64_t bytes = 0;
  size_t n = 0;
  for (; n < most && (!max_bytes || bytes < max_bytes); n++) {
    entries[n] = it->entries[at + (ptrdiff_t)n * step];
    bytes += entries[n].key.size + entries[n].vector.size + entries[n].attributes.size;
  }
  it->has_taken = true;
  it->taken_at = at + (ptrdiff_t)(n - 1) * step;
  iterator->entry = &it->entries[it->taken_at];
  *count = n;
  return TURB_READY;
}

static void begin_seek(struct iterator *it, bool backward) {
  leave(it);
  status_forget(&it->error);
  it->has_taken = false;
  it->backward = backward;
  it->phase = PHASE_CURSOR;
  it->state = TURB_PENDING;
  struct parts *const all[] = {it->parts, it->fetched[0], it->fetched[1]};
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
    if (all[i])
      parts_reset(all[i]);
}

static turb_bytes keep_target(struct iterator *it, turb_bytes key) {
  it->target_size = (uint16_t)(key.size < TURB_MAX_KEY_BYTES ? key.size : TURB_MAX_KEY_BYTES);
  if (it->target_size)
    memcpy(it->target, key.data, it->target_size);
  return (turb_bytes){it->target, it->target_size};
}

turb_state turb_seek(turb_iterator *iterator, turb_bytes key) {
  struct iterator *it = of(iterator);
  if (!key.size)
    return turb_first(iterator);
  begin_seek(it, false);
  return after_cursor(it, cursor_seek(it->cursor, keep_target(it, key), SLOT_SEQUENCE_MAX));
}

turb_state turb_seek_for_prev(turb_iterator *iterator, turb_bytes key) {
  struct iterator *it = of(iterator);
  begin_seek(it, true);
  if (!key.size)
    return end(it); /* no key is empty */
  return after_cursor(it, cursor_seek_before(it->cursor, keep_target(it, key), 0));
}

turb_state turb_first(turb_iterator *iterator) {
  struct iterator *it = of(iterator);
  begin_seek(it, false);
  return after_cursor(it, cursor_first(it->cursor));
}

turb_state turb_last(turb_iterator *iterator) {
  struct iterator *it = of(iterator);
  begin_seek(it, true);
  return after_cursor(it, cursor_last(it->cursor));
}

/* ---- fetch ---- */

/* Rows and attributes are fetched apart, so that what one call brought stays while another brings the rest. */
static struct parts **fetched_parts(struct iterator *it, uint32_t part) {
  return &it->fetched[part == TURB_ATTRIBUTES];
}

/* Goes on with one of the parts that the fetch under way still wants. */
static turb_state fetch_one(struct iterator *it, uint32_t part) {
  const uint32_t place = (uint32_t)(it->fetched_entry - it->entries);
  const struct visible_stretch stretch = visible_cursor_stretch(it->cursor);
  const struct cursor_ref *ref = &stretch.refs[it->first + place];
  struct parts *parts = *fetched_parts(it, part);
  struct entry_parts out;
  uint32_t resolved;
  const turb_state state = parts_resolve(parts, ref, 1, false, &out, &resolved);
  if (state == TURB_FAILED) {
    status_forget(&it->error);
    (void)parts_error(parts, &it->error);
  }
  if (state != TURB_READY)
    return state;
  if (part == TURB_VECTOR)
    it->fetched_entry->vector = (turb_bytes){out.vector, it->view.version->shape->row_bytes};
  else
    it->fetched_entry->attributes = (turb_bytes){out.attributes, out.attribute_size};
  it->fetch_wanted &= ~part;
  it->fetch_done |= part;
  return TURB_READY;
}

static turb_state run_fetch(struct iterator *it) {
  turb_state state = TURB_READY;
  for (uint32_t part = TURB_VECTOR; part <= TURB_ATTRIBUTES; part <<= 1) { /* the reads of both go out together */
    const turb_state one = it->fetch_wanted & part ? fetch_one(it, part) : TURB_READY;
    if (one == TURB_FAILED)
      return fail(it);
    state = one == TURB_READY ? state : one;
  }
  if (state == TURB_READY) {
    it->phase = PHASE_IDLE;
    it->head.window_begin = it->entries;
    it->head.window_end = it->entries + it->count;
  }
  return it->state = state;
}

static turb_status open_parts(struct iterator *it, uint32_t which, struct parts **parts, turb_error *err) {
  const struct parts_options options = {.which = which,
                                        .run_count = it->view.version->source_runs,
                                        .row_bytes = it->view.version->shape->row_bytes,
                                        .streaming = it->streaming && parts == &it->parts};
  return parts_open(&it->context, &options, parts, err);
}

/* The window may be walked back over the entry that was fetched for: its bytes go with the next fetch. */
static void forget_fetched(struct iterator *it) {
  if (!it->fetched_entry)
    return;
  if (!(it->which & TURB_VECTOR))
    it->fetched_entry->vector = TURB_NONE;
  if (!(it->which & TURB_ATTRIBUTES))
    it->fetched_entry->attributes = TURB_NONE;
}

turb_state turb_fetch(turb_iterator *iterator, uint32_t which) {
  struct iterator *it = of(iterator);
  if (it->state == TURB_PENDING || it->state == TURB_YIELD)
    return go_on(it);
  if (it->state != TURB_READY)
    return it->state;
  turb_entry *entry = &it->entries[it->head.entry - it->entries];
  if (entry != it->fetched_entry) {
    forget_fetched(it);
    it->fetched_entry = entry;
    it->fetch_done = it->which;
  }
  it->fetch_wanted = which & (TURB_VECTOR | TURB_ATTRIBUTES) & ~it->fetch_done;
  if (!it->fetch_wanted)
    return TURB_READY;
  for (uint32_t part = TURB_VECTOR; part <= TURB_ATTRIBUTES; part <<= 1) {
    struct parts **parts = fetched_parts(it, part);
    if (!(it->fetch_wanted & part))
      continue;
    if (!*parts && open_parts(it, part, parts, &it->error) != TURB_OK)
      return fail(it);
    parts_begin(*parts);
  }
  it->phase = PHASE_FETCH;
  it->head.window_begin = entry; /* moves within the window wait for the fetch too */
  it->head.window_end = entry + 1;
  return run_fetch(it);
}

/* ---- waiting ---- */

turb_status turb_submit(turb_iterator *iterator, turb_error *err) {
  struct iterator *it = of(iterator);
  return it->loop ? turb_loop_submit(it->loop, err) : reads_submit(&it->reads, err);
}

turb_state turb_await(turb_iterator *iterator) {
  struct iterator *it = of(iterator);
  while (it->state == TURB_PENDING || it->state == TURB_YIELD) {
    if (it->state == TURB_PENDING) {
      turb_error why = TURB_ERROR_INIT;
      if (reads_wait(&it->reads, &why) != TURB_OK && go_on(it) == TURB_PENDING) {
        it->error = why;
        return fail(it);
      }
    }
    if (it->state == TURB_PENDING || it->state == TURB_YIELD)
      (void)go_on(it);
  }
  if (!it->loop)
    reads_submit_ahead(&it->reads);
  return it->state;
}

turb_status turb_iterator_status(const turb_iterator *iterator, turb_error *err) {
  const struct iterator *it = (const struct iterator *)iterator;
  if (it->state != TURB_FAILED)
    return TURB_OK;
  if (it->error.status == TURB_OK)
    return status_set(err, TURB_INVALID, "the iterator is not positioned: begin with a seek");
  return status_copy(err, &it->error);
}

void *turb_iterator_context(const turb_iterator *iterator) {
  return ((const struct iterator *)iterator)->caller_context;
}

/* ---- life ---- */

static turb_status copy_bytes(struct iterator *it, turb_bytes from, turb_bytes *to, turb_error *err) {
  *to = TURB_NONE;
  if (!from.size)
    return TURB_OK;
  if (from.size > TURB_MAX_KEY_BYTES)
    return status_set(err, TURB_TOO_LARGE, "a bound has %zu bytes, and must have at most %d", from.size, TURB_MAX_KEY_BYTES);
  void *copy = arena_copy(&it->arena, from.data, from.size);
  if (!copy)
    return status_set(err, it->arena.failure, "no memory for an iterator's bounds");
  *to = (turb_bytes){copy, from.size};
  return TURB_OK;
}

static turb_status set_bounds(struct iterator *it, const turb_iterator_options *options, turb_error *err) {
  turb_bytes prefix = TURB_NONE;
  turb_status status = copy_bytes(it, options->lower, &it->bounds.lower, err);
  if (status == TURB_OK)
    status = copy_bytes(it, options->upper, &it->bounds.upper, err);
  if (status == TURB_OK)
    status = copy_bytes(it, options->prefix, &prefix, err);
  if (status != TURB_OK || !prefix.size)
    return status;
  uint8_t *scratch = arena_alloc(&it->arena, prefix.size, 1);
  if (!scratch)
    return status_set(err, it->arena.failure, "no memory for an iterator's bounds");
  key_bounds_prefix(&it->bounds, prefix, scratch);
  return TURB_OK;
}

#define PIECE_MIN_BYTES (64u << 10)
#define PIECE_MAX_BYTES (1u << 20)

/* As large as the share holds for all runs: four pieces of rows for each, and four of keys of a quarter the size. */
static uint32_t piece_bytes(const struct iterator *it) {
  const uint64_t bytes = budget_limit(&it->db->stream_budget) / (it->view.version->source_runs + 1) / 5 / 4096 * 4096;
  return bytes < PIECE_MIN_BYTES ? PIECE_MIN_BYTES : bytes > PIECE_MAX_BYTES ? PIECE_MAX_BYTES : (uint32_t)bytes;
}

static turb_status open_cursors(struct iterator *it, const turb_iterator_options *options, turb_error *err) {
  it->context.stream_piece_bytes = piece_bytes(it);
  turb_status status = read_view_range_deletes(&it->view, &it->arena, &it->range_deletes, err);
  struct cursor *cursor = NULL;
  if (status == TURB_OK)
    status = read_view_cursor(&it->view, &it->context, it->streaming, &cursor, err);
  if (status == TURB_OK && (it->bounds.lower.size || it->bounds.upper.size))
    status = bounded_cursor_open(&it->context, cursor, &it->bounds, &cursor, err);
  const struct visible_options visible = {.snapshot = it->view.sequence,
                                          .range_deletes = &it->range_deletes,
                                          .work_budget = options->work_budget,
                                          .wanted = options->filter,
                                          .wanted_context = options->filter_context};
  if (status == TURB_OK)
    status = visible_cursor_open(&it->context, cursor, &visible, &it->cursor, err);
  if (status == TURB_OK && it->which & (TURB_VECTOR | TURB_ATTRIBUTES))
    status = open_parts(it, it->which, &it->parts, err);
  return status;
}

/* Releases what an iterator has, also a half-opened one. */
static void release(struct iterator *it) {
  parts_close(it->parts);
  parts_close(it->fetched[0]);
  parts_close(it->fetched[1]);
  cursor_close(it->cursor);
  reads_close(&it->reads);
  arena_free(&it->arena);
  read_view_release(&it->view);
  budget_give(&it->db->budget, BUDGET_CURSOR, sizeof *it);
  mem_free(&it->db->allocator, it, sizeof *it);
}

static turb_status new_iterator(turb_collection *collection, const turb_iterator_options *options, struct iterator **out, turb_error *err) {
  turb_db *db = collection->db;
  if (!budget_take(&db->budget, BUDGET_CURSOR, sizeof(struct iterator)))
    return status_set(err, TURB_BUDGET, "the memory budget has no room for an iterator");
  struct iterator *it = mem_alloc_zeroed(&db->allocator, sizeof *it);
  if (!it) {
    budget_give(&db->budget, BUDGET_CURSOR, sizeof *it);
    return status_set(err, TURB_NO_MEMORY, "no memory for an iterator");
  }
  it->db = db;
  it->loop = options->loop;
  it->caller_context = options->context;
  it->state = TURB_FAILED;
  it->created_ns = clock_monotonic_ns();
  it->which = options->parts ? options->parts : TURB_ALL;
  it->streaming = options->streaming;
  list_init(&it->link);
  reads_init(&it->reads, db->system, options->loop ? options->loop->ring : NULL);
  if (options->loop)
    reads_join(&it->reads, &options->loop->group);
  it->context = (struct cursor_context){.reads = &it->reads,
                                        .allocator = &db->allocator,
                                        .budget = &db->budget,
                                        .stream_budget = &db->stream_budget,
                                        .fill_cache = !options->skip_cache_fill && !options->streaming};
  arena_init(&it->arena, &db->allocator, &db->budget, BUDGET_CURSOR, 256);
  *out = it;
  return TURB_OK;
}

turb_status turb_iterator_open(turb_collection *collection, const turb_iterator_options *given, turb_iterator **iterator, turb_error *err) {
  *iterator = NULL;
  turb_iterator_options options;
  turb_status status = options_read(given, &options, sizeof options, "turb_iterator_options", err);
  if (status == TURB_OK && options.parts & ~(uint32_t)TURB_ALL)
    status = status_set(err, TURB_INVALID, "parts is %u, and must be of TURB_KEY, TURB_VECTOR, TURB_ATTRIBUTES", options.parts);
  if (status == TURB_OK)
    status = db_check_readable(collection, err);
  if (status == TURB_OK && options.loop && options.loop->db != collection->db)
    status = status_set(err, TURB_INVALID, "the loop is another database's");
  struct iterator *it = NULL;
  if (status == TURB_OK)
    status = new_iterator(collection, &options, &it, err);
  if (status != TURB_OK)
    return status;
  status = read_view_open(collection, options.snapshot, &it->view, err);
  if (status == TURB_OK)
    status = set_bounds(it, &options, err);
  if (status == TURB_OK)
    status = open_cursors(it, &options, err);
  if (status != TURB_OK) {
    release(it);
    return status;
  }
  turb_db *db = it->db;
  atomic_fetch_add(&db->live_iterators, 1);
  mutex_lock(&db->iterator_mutex);
  list_push_back(&db->iterators, &it->link);
  mutex_unlock(&db->iterator_mutex);
  if (it->loop)
    it->loop->iterator_count++;
  *iterator = &it->head;
  return TURB_OK;
}

void turb_iterator_close(turb_iterator *iterator) {
  if (!iterator)
    return;
  struct iterator *it = of(iterator);
  turb_db *db = it->db;
  mutex_lock(&db->iterator_mutex);
  list_remove(&it->link);
  mutex_unlock(&db->iterator_mutex);
  if (it->loop)
    it->loop->iterator_count--;
  release(it);
  atomic_fetch_sub(&db->live_iterators, 1);
}
