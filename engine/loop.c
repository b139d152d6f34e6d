/* loop.h has the contract, the states and the invariants. */
#include "engine/loop.h"

#include "base/clock.h"
#include "engine/iterator.h"

turb_status turb_loop_open(turb_db *db, turb_loop **out, turb_error *err) {
  *out = NULL;
  turb_loop *loop = mem_alloc_zeroed(&db->allocator, sizeof *loop);
  if (!loop)
    return status_set(err, TURB_NO_MEMORY, "no memory for a loop");
  loop->db = db;
  reads_group_init(&loop->group);
  const struct io_ring_options options = {.pollable = true};
  const turb_status status = io_ring_create(db->system, &options, &loop->ring, err);
  if (status != TURB_OK) {
    mem_free(&db->allocator, loop, sizeof *loop);
    return status;
  }
  atomic_fetch_add(&db->live_loops, 1);
  *out = loop;
  return TURB_OK;
}

turb_status turb_loop_close(turb_loop *loop, turb_error *err) {
  if (!loop)
    return TURB_OK;
  if (loop->iterator_count)
    return status_set(err, TURB_BUSY, "%zu iterators are open on the loop", loop->iterator_count);
  turb_db *db = loop->db;
  io_ring_destroy(loop->ring); /* reads of closed iterators may still be under way: it takes them in */
  mem_free(&db->allocator, loop, sizeof *loop);
  atomic_fetch_sub(&db->live_loops, 1);
  return TURB_OK;
}

int turb_loop_descriptor(const turb_loop *loop) {
  return io_ring_descriptor(loop->ring);
}

turb_status turb_loop_submit(turb_loop *loop, turb_error *err) {
  reads_group_hand_over(&loop->group);
  return io_ring_submit(loop->ring, err);
}

size_t turb_loop_poll(turb_loop *loop) {
  return io_ring_poll(loop->ring);
}

#define PREFETCHED     64u /* iterators; more would push the first ones out again */
#define ITERATOR_LINES 7u

/* Many iterators are more than caches hold, and a move waits for one line of memory after the other: those of all that were given out come
 * together. */
static void prefetch_iterators(turb_iterator *const *iterators, size_t count) {
  for (size_t i = 0; i < count; i++) {
    const struct iterator *it = (const struct iterator *)iterators[i];
    prefetch_lines(it, ITERATOR_LINES);
    __builtin_prefetch(&it->entries[0]);
    __builtin_prefetch(&it->resolved[0]);
    __builtin_prefetch(&it->target_size);
    __builtin_prefetch(&it->old_key);
  }
  for (uint32_t depth = 0; depth < CURSOR_PREFETCH_DEPTHS; depth++) {
    for (size_t i = 0; i < count; i++) {
      const struct iterator *it = (const struct iterator *)iterators[i];
      cursor_prefetch(it->cursor, depth);
      if (it->parts)
        parts_prefetch(it->parts, depth);
    }
  }
}

size_t turb_loop_ready(turb_loop *loop, turb_iterator **iterators, size_t capacity) {
  (void)io_ring_poll(loop->ring);
  size_t count = 0;
  while (count < capacity) {
    struct list *link = list_pop_front(&loop->group.woken);
    if (!link)
      break;
    struct iterator *it = LIST_ENTRY(link, struct iterator, reads.woken_link);
    if (it->state == TURB_PENDING) /* else what came was read ahead */
      iterators[count++] = &it->head;
  }
  prefetch_iterators(iterators, count < PREFETCHED ? count : PREFETCHED);
  return count;
}

turb_status turb_loop_wait(turb_loop *loop, int timeout_ms, turb_error *err) {
  const turb_status status = turb_loop_submit(loop, err);
  if (status != TURB_OK)
    return status;
  return io_ring_wait(loop->ring, 1, timeout_ms < 0 ? IO_NO_TIMEOUT : (uint64_t)timeout_ms * CLOCK_NS_PER_MS, err);
}
