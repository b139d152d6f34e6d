/* Checks of candidates (search.h): does the view see this row?
 *
 *   IDLE --add--> ROW (its slot) --> [OWN_TABLE: a newer version may end the page before] --> RUNS <-> IN_RUN --> DECIDED --the candidates
 *   are told--> IDLE
 *
 * What decides: the slot's sequence, the slot before it, range deletes, newer memtables, newer runs, in the order of what they cost.
 * Checks that wait for reads are in `busy`. */
#include "base/hash.h"
#include "engine/search.h"

enum check_result { CHECK_DECIDED, CHECK_WAITS, CHECK_FAILED };

static void decide(struct search_check *check, bool visible) {
  check->visible = visible;
  check->stage = SEARCH_DECIDED;
}

static turb_bytes key_of(const struct search_check *check) {
  return slot_key_bytes(check->slot);
}

/* Is there a version of the key in a memtable newer than the source? Memtables have the lowest run numbers. */
static bool in_newer_memtable(const struct search *s, const struct search_check *check) {
  const struct version *version = s->view.version;
  for (uint32_t i = 0; i < version->memtable_count && i < check->source->run; i++) {
    const struct memtable *memtable = version->memtables[i].memtable;
    if (memtable_entries(memtable) && memtable_get(memtable, key_of(check), s->view.sequence))
      return true;
  }
  return false;
}

/* The slot is known, and nothing before it in its own table is newer. */
static void look_around(const struct search *s, struct search_check *check) {
  const uint64_t sequence = slot_sequence(check->slot);
  if (read_view_cover(&s->view, key_of(check)) > sequence || in_newer_memtable(s, check)) {
    decide(check, false);
    return;
  }
  check->stage = SEARCH_RUNS;
  check->run = 0;
}

static void check_memtable_row(const struct search *s, struct search_check *check) {
  const struct memtable *memtable = check->source->memtable;
  check->slot = memtable_row_slot(memtable, check->row);
  if (slot_sequence(check->slot) > s->view.sequence || memtable_get(memtable, key_of(check), s->view.sequence) != check->slot)
    decide(check, false);
  else
    look_around(s, check);
}

/* The slot of a table's row was found: is the version before it newer, and in the view? */
static enum get_state after_row(const struct search *s, struct search_check *check) {
  check->slot = check->find.slot;
  const turb_bytes key = key_of(check);
  if (slot_sequence(check->slot) > s->view.sequence) {
    decide(check, false);
    return GET_READY;
  }
  const struct slot *before = table_row_find_before(&check->find);
  if (before && slot_sequence(before) <= s->view.sequence && key_equal(slot_key(before), before->key_size, key.data, key.size)) {
    decide(check, false);
    return GET_READY;
  }
  if (!before && check->find.continues) {
    check->stage = SEARCH_OWN_TABLE;
    return table_get_start(&check->get, check->source->table, key, 0, s->view.sequence, true);
  }
  look_around(s, check);
  return GET_READY;
}

static void after_own_table(const struct search *s, struct search_check *check) {
  if (!check->get.found || slot_sequence(check->get.found) != slot_sequence(check->slot))
    decide(check, false);
  else
    look_around(s, check);
}

/* Starts the look-up in the next newer run that may hold the key; or there is none. */
static enum get_state next_run(const struct search *s, struct search_check *check) {
  const struct version *version = s->view.version;
  const turb_bytes key = key_of(check);
  for (; version->memtable_count + check->run < check->source->run; check->run++) {
    const struct run_view *run = &version->runs[check->run].view;
    const uint32_t at = run_view_find(run, key);
    if (at == run->count)
      continue;
    struct table *table = run->sources[at].table;
    const turb_bytes smallest = table_smallest_key(table);
    if (key_compare(key.data, key.size, smallest.data, smallest.size) < 0)
      continue;
    if (!check->hashed)
      check->hash = hash64(key.data, key.size, 0);
    check->hashed = true;
    check->stage = SEARCH_IN_RUN;
    return table_get_start(&check->get, table, key, check->hash, s->view.sequence, false);
  }
  decide(check, true);
  return GET_READY;
}

static void after_run(struct search_check *check) {
  if (check->get.found) {
    decide(check, false);
    return;
  }
  check->run++;
  check->stage = SEARCH_RUNS;
}

static enum check_result step(const struct search *s, struct search_check *check, turb_error *err) {
  enum get_state state = GET_READY;
  bool in_get = false; /* the state is of check->get */
  while (state == GET_READY && check->stage != SEARCH_DECIDED) {
    switch (check->stage) {
    case SEARCH_ROW:
      in_get = false;
      state = table_row_find_step(&check->find);
      if (state == GET_READY) {
        state = after_row(s, check);
        in_get = check->stage == SEARCH_OWN_TABLE;
      }
      break;
    case SEARCH_OWN_TABLE:
    case SEARCH_IN_RUN:
      in_get = true;
      state = table_get_step(&check->get);
      if (state == GET_READY && check->stage == SEARCH_OWN_TABLE)
        after_own_table(s, check);
      else if (state == GET_READY)
        after_run(check);
      break;
    case SEARCH_RUNS:
      in_get = true;
      state = next_run(s, check);
      break;
    case SEARCH_IDLE:
    case SEARCH_DECIDED: assert(false); return CHECK_FAILED;
    }
  }
  if (state == GET_PENDING)
    return CHECK_WAITS;
  if (state == GET_READY)
    return CHECK_DECIDED;
  (void)status_copy(err, in_get ? &check->get.error : &check->find.error);
  return CHECK_FAILED;
}

/* ---- candidates ---- */

static struct search_found found_of(const struct search_check *check) {
  const struct slot *slot = check->slot;
  return (struct search_found){.source = check->source,
                               .key = slot_key_bytes(slot),
                               .sequence = slot_sequence(slot),
                               .row = check->row,
                               .row_hash = slot->row_hash,
                               .attribute_offset = slot_attribute_offset(slot),
                               .attribute_size = slot_attribute_size(slot),
                               .attribute_hash = slot->attribute_hash};
}

/* A decided row meets its query, whose threshold may have fallen meanwhile. */
static turb_status tell(struct search *s, const struct search_check *check, uint32_t query, float distance, turb_error *err) {
  struct search_heap *heap = &s->heaps[query];
  if (!check->visible) {
    heap->hidden++;
    return TURB_OK;
  }
  const struct search_found found = found_of(check);
  if (!search_heap_wants(heap, distance, found.key))
    return TURB_OK;
  if (s->options.filter && !s->options.filter(s->options.filter_context, found.key, found.sequence)) {
    heap->filtered++;
    return TURB_OK;
  }
  return search_heap_put(heap, &s->memory, distance, &found, err);
}

/* A check that waited is decided: its candidates leave `waiting`. */
static turb_status tell_waiting(struct search *s, uint16_t number, turb_error *err) {
  turb_status status = TURB_OK;
  for (uint32_t i = 0; i < s->waiting_count;) {
    const struct search_waiting waiting = s->waiting[i];
    if (waiting.check != number) {
      i++;
      continue;
    }
    s->waiting[i] = s->waiting[--s->waiting_count];
    if (status == TURB_OK)
      status = tell(s, &s->checks[number], waiting.query, waiting.distance, err);
  }
  return status;
}

static turb_status step_busy(struct search *s, turb_error *err) {
  for (uint32_t i = 0; i < s->busy_count;) {
    const uint16_t number = s->busy[i];
    turb_error why = TURB_ERROR_INIT;
    const enum check_result result = step(s, &s->checks[number], &why);
    if (result == CHECK_WAITS) {
      i++;
      continue;
    }
    s->busy[i] = s->busy[--s->busy_count];
    turb_status status = result == CHECK_FAILED ? status_copy(err, &why) : tell_waiting(s, number, err);
    s->checks[number].stage = SEARCH_IDLE;
    s->idle[s->idle_count++] = number;
    if (status != TURB_OK)
      return status;
  }
  return TURB_OK;
}

turb_status search_checks_poll(struct search *s, turb_error *err) {
  if (!s->busy_count)
    return TURB_OK;
  (void)reads_poll(&s->reads);
  turb_status status = step_busy(s, err);
  if (status == TURB_OK && s->reads.queued)
    status = reads_submit(&s->reads, err);
  return status;
}

/* Waits until at most `most` are left. */
static turb_status wait_for(struct search *s, uint32_t most, turb_error *err) {
  turb_status status = TURB_OK;
  while (s->busy_count > most && status == TURB_OK) {
    status = reads_wait(&s->reads, err);
    if (status == TURB_OK)
      status = step_busy(s, err);
  }
  return status;
}

turb_status search_checks_drain(struct search *s, turb_error *err) {
  return wait_for(s, 0, err);
}

/* The candidate waits with a check that is under way. */
static turb_status await_check(struct search *s, uint16_t number, uint32_t query, float distance, turb_error *err) {
  s->waiting[s->waiting_count++] = (struct search_waiting){number, query, distance};
  return s->waiting_count == s->waiting_capacity ? wait_for(s, 0, err) : TURB_OK;
}

static bool find_busy(const struct search *s, const struct source *source, uint64_t row, uint16_t *number) {
  for (uint32_t i = 0; i < s->busy_count; i++) {
    const struct search_check *check = &s->checks[s->busy[i]];
    *number = s->busy[i];
    if (check->row == row && check->source == source)
      return true;
  }
  return false;
}

turb_status search_checks_add(struct search *s, const struct source *source, uint64_t row, uint32_t query, float distance,
                              turb_error *err) {
  uint16_t number;
  if (s->busy_count && s->query_count > 1 && find_busy(s, source, row, &number))
    return await_check(s, number, query, distance, err);
  turb_status status = s->idle_count ? TURB_OK : wait_for(s, SEARCH_CHECKS - 1, err);
  if (status != TURB_OK)
    return status;
  number = s->idle[--s->idle_count];
  struct search_check *check = &s->checks[number];
  check->source = source;
  check->row = row;
  check->stage = SEARCH_ROW;
  check->hashed = false;
  turb_error why = TURB_ERROR_INIT;
  enum check_result result = CHECK_DECIDED;
  if (source->memtable) {
    check_memtable_row(s, check);
    result = step(s, check, &why);
  } else {
    const enum get_state state = table_row_find_start(&check->find, source->table, row);
    if (state == GET_FAILED) {
      (void)status_copy(&why, &check->find.error);
      result = CHECK_FAILED;
    } else {
      result = state == GET_PENDING ? CHECK_WAITS : step(s, check, &why);
    }
  }
  if (result == CHECK_WAITS) {
    s->busy[s->busy_count++] = number;
    return await_check(s, number, query, distance, err);
  }
  status = result == CHECK_FAILED ? status_copy(err, &why) : tell(s, check, query, distance, err);
  check->stage = SEARCH_IDLE;
  s->idle[s->idle_count++] = number;
  return status;
}

/* ---- life ---- */

turb_status search_checks_open(struct search *s, turb_error *err) {
  void *taken;
  turb_status status = search_take(&s->memory, SEARCH_CHECKS * sizeof *s->checks, &taken, err);
  if (status != TURB_OK)
    return status;
  s->checks = taken;
  s->waiting_capacity = SEARCH_CHECKS * (s->query_count < SEARCH_BLOCK ? s->query_count : SEARCH_BLOCK);
  for (uint32_t i = 0; i < SEARCH_CHECKS; i++) {
    struct search_check *check = &s->checks[i];
    *check = (struct search_check){.stage = SEARCH_IDLE};
    table_row_find_init(&check->find, &s->reads, s->memory.allocator);
    (void)!table_get_init(&check->get, &s->reads, s->memory.allocator, NULL);
    s->idle[s->idle_count++] = (uint16_t)(SEARCH_CHECKS - 1 - i);
  }
  status = search_take(&s->memory, s->waiting_capacity * sizeof *s->waiting, &taken, err);
  s->waiting = taken;
  return status;
}

void search_checks_close(struct search *s) {
  for (uint32_t i = 0; i < SEARCH_CHECKS && s->checks; i++) {
    table_row_find_close(&s->checks[i].find);
    table_get_close(&s->checks[i].get);
  }
  search_give(&s->memory, s->checks, SEARCH_CHECKS * sizeof *s->checks);
  search_give(&s->memory, s->waiting, s->waiting_capacity * sizeof *s->waiting);
}
