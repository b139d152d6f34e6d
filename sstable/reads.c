/* The queue of a tree of cursors (load.h); reads.h has the way of an operation.
 *
 * Invariants
 *  1. queued = operations in the list; in_flight = operations in the ring that are waited for (orphans are not counted).
 *  2. A queue of a group is in group->queued while queued > 0, and in group->woken from a completion until its owner takes it out.
 *  3. A leased ring is held from the first submission until nothing is queued or in flight, and only by the thread that awaits.
 */
#include "sstable/reads.h"

#include <assert.h>
#include <stddef.h>

void reads_init(struct reads *reads, struct io_system *system, struct io_ring *ring) {
  *reads = (struct reads){.system = system, .ring = ring};
  list_init(&reads->queued_link);
  list_init(&reads->woken_link);
}

void reads_group_init(struct reads_group *group) {
  list_init(&group->queued);
  list_init(&group->woken);
}

void reads_join(struct reads *reads, struct reads_group *group) {
  assert(reads->ring != NULL && reads->queued == 0);
  reads->group = group;
}

void reads_add(struct reads *reads, struct io_op *op) {
  assert(!reads_in_ring(op));
  op->next = NULL;
  if (reads->queue_tail != NULL) {
    reads->queue_tail->next = op;
  } else {
    reads->queue_head = op;
  }
  reads->queue_tail = op;
  reads->queued++;
  if (reads->group != NULL && reads->queued == 1) {
    list_push_back(&reads->group->queued, &reads->queued_link);
  }
}

void reads_remove(struct reads *reads, struct io_op *op) {
  struct io_op *before = NULL;
  struct io_op *at = reads->queue_head;
  while (at != op) {
    assert(at != NULL);
    before = at;
    at = at->next;
  }
  if (before != NULL) {
    before->next = op->next;
  } else {
    reads->queue_head = op->next;
  }
  if (reads->queue_tail == op) {
    reads->queue_tail = before;
  }
  op->next = NULL;
  if (--reads->queued == 0) {
    list_remove(&reads->queued_link);
  }
}

void reads_done(struct reads *reads) {
  assert(reads->in_flight > 0);
  reads->in_flight--;
  reads->completed++;
}

void reads_wake(struct reads *reads) {
  if (reads->group != NULL && !list_is_linked(&reads->woken_link)) {
    list_push_back(&reads->group->woken, &reads->woken_link);
  }
}

void reads_forget(struct reads *reads) {
  assert(reads->in_flight > 0);
  reads->in_flight--;
}

/* A leased ring goes back as soon as nothing needs it. */
static void give_back(struct reads *reads) {
  if (reads->leased && reads->in_flight == 0 && reads->queued == 0) {
    io_ring_return(reads->ring);
    reads->ring = NULL;
    reads->leased = false;
  }
}

static void hand_over(struct reads *reads) {
  while (reads->queue_head != NULL) {
    struct io_op *op = reads->queue_head;
    struct io_op *next = op->next; /* the ring uses the link */
    if (!io_ring_queue(reads->ring, op)) {
      break; /* full: the rest goes when completions have made room */
    }
    reads->queue_head = next;
    if (next == NULL) {
      reads->queue_tail = NULL;
    }
    reads->queued--;
    reads->in_flight++;
  }
  if (reads->queued == 0) {
    list_remove(&reads->queued_link);
  }
}

void reads_group_hand_over(struct reads_group *group) {
  for (struct list *link; (link = list_first(&group->queued)) != NULL;) {
    struct reads *reads = LIST_ENTRY(link, struct reads, queued_link);
    hand_over(reads);
    if (reads->queued != 0) {
      return; /* the ring is full */
    }
  }
}

turb_status reads_submit(struct reads *reads, turb_error *err) {
  if (reads->queued == 0 && reads->in_flight == 0) {
    return TURB_OK;
  }
  if (reads->ring == NULL) {
    const turb_status status = io_ring_lease(reads->system, &reads->ring, err);
    if (status != TURB_OK) {
      return status;
    }
    reads->leased = true;
  }
  hand_over(reads);
  return io_ring_submit(reads->ring, err);
}

void reads_submit_ahead(struct reads *reads) {
  turb_error ignored = TURB_ERROR_INIT;
  if (reads->queued != 0) {
    (void)!reads_submit(reads, &ignored);
  }
}

turb_status reads_wait(struct reads *reads, turb_error *err) {
  const uint64_t completed = reads->completed;
  for (;;) {
    turb_status status = reads_submit(reads, err);
    if (status != TURB_OK) {
      return status;
    }
    if (reads->completed != completed || (reads->in_flight == 0 && reads->queued == 0)) {
      break;
    }
    /* With nothing of ours in the ring its room is taken by others: one of theirs completes as well. */
    status = io_ring_wait(reads->ring, 1, IO_NO_TIMEOUT, err);
    if (status != TURB_OK) {
      return status;
    }
  }
  list_remove(&reads->woken_link);
  give_back(reads);
  return TURB_OK;
}

size_t reads_poll(struct reads *reads) {
  if (list_is_linked(&reads->woken_link)) {
    list_remove(&reads->woken_link);
    return 1; /* its news is there: no look at the ring, which may take a system call */
  }
  if (reads->ring == NULL || (reads->in_flight == 0 && reads->queued == 0)) {
    return 0;
  }
  const uint64_t completed = reads->completed;
  (void)io_ring_poll(reads->ring);
  list_remove(&reads->woken_link);
  const size_t count = (size_t)(reads->completed - completed);
  give_back(reads);
  return count;
}

void reads_close(struct reads *reads) {
  assert(reads->in_flight == 0 && reads->queued == 0); /* loads are idle or abandoned */
  give_back(reads);
  list_remove(&reads->queued_link);
  list_remove(&reads->woken_link);
  reads->ring = NULL;
}
