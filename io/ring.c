/*
 * Rings: from operations to requests and back, for every carrier.
 *
 *              io_ring_queue        io_ring_submit                      carrier                      io_ring_poll
 *   IDLE ───────────────> QUEUED ───────────────> SUBMITTED: pieces ─────────────> ... all ended: ready ────────> DONE, complete()
 *                            │                       ↑    │ short, EINTR, EAGAIN, next piece
 *                            │ cancelled             └────┘ (ring->again)
 *                            └────────────────────────────────────────────────────> ready
 *
 * A submitted operation has one request from beginning to end, its first; a transfer above IO_PIECE_BYTES takes more while there are some to spare,
 * so that its pieces run beside each other, and goes on with the one it has when there are none.
 *
 * Chains (IO_OP_LINKED). op->next, free once the operation has left the queue, names the one that follows. Where every member is one piece and the
 * carrier has room for all, the chain goes to the carrier linked, in one submission; otherwise each member is held here until the one before went
 * well. A carrier breaks a chain also where we would not (a short transfer that is resumed, a read that met the end of its file): a follower that
 * comes back as cancelled is then held, and put again when what it follows has ended well.
 *
 * Invariants
 *  1. unused_count >= queued: a queued operation always finds a request, so that io_ring_submit takes no memory and cannot fail half-way.
 *  2. in_flight = operations that are QUEUED, SUBMITTED or ready. complete() is called from io_ring_poll and what calls it alone, once per
 *     operation, and the ring does not touch the operation afterwards.
 *  3. A request is in exactly one of these places: unused, the carrier (in_carrier), ring->again, or at rest (held, or waiting for pieces).
 *  4. A follower ends after what it follows.
 *  5. While an operation is SUBMITTED op->slot is its first request's number, or READY_SLOT once it is ready. While QUEUED it is 1 when the next
 *     in the queue is linked to it, else 0.
 * Threads: one at a time, as in io.h.
 */
#include <assert.h>
#include <errno.h>
#include <sched.h>
#include <string.h>

#include "base/clock.h"
#include "io/backend.h"
#include "io/buffer.h"

#define READY_SLOT UINT32_MAX

/* Requests beyond one per operation, for further pieces of large transfers. */
#define SPARE_REQUESTS 16u

#define MIN_REGISTERED_BYTES (64u << 10)

/* ---- operations that ended ---- */

static void ready_push(struct io_ring *ring, struct io_op *op, int os_error) {
  op->status = status_of_errno(os_error);
  op->os_error = os_error;
  op->state = IO_OP_SUBMITTED; /* also what was cancelled in the queue, so that cancelling again does not look for it there */
  op->slot = READY_SLOT;
  op->next = NULL;
  if (ring->ready_tail != NULL) {
    ring->ready_tail->next = op;
  } else {
    ring->ready_head = op;
  }
  ring->ready_tail = op;
}

static size_t complete_ready(struct io_ring *ring) {
  size_t count = 0;
  while (ring->ready_head != NULL) {
    struct io_op *op = ring->ready_head;
    ring->ready_head = op->next;
    if (ring->ready_head == NULL) {
      ring->ready_tail = NULL;
    }
    op->next = NULL;
    op->state = IO_OP_DONE;
    ring->in_flight--;
    ring->completed++;
    count++;
    op->complete(op); /* the owner's again */
  }
  return count;
}

/* ---- requests ---- */

static struct io_request *request_take(struct io_ring *ring) {
  assert(ring->unused_count > 0);
  struct io_request *request = &ring->requests[ring->unused[--ring->unused_count]];
  memset(request, 0, sizeof *request);
  return request;
}

static void request_give(struct io_ring *ring, struct io_request *request) {
  assert(!request->in_carrier);
  request->op = NULL;
  ring->unused[ring->unused_count++] = io_request_number(ring, request);
}

static void again_push(struct io_ring *ring, struct io_request *request) {
  request->next = NULL;
  if (ring->again_tail != NULL) {
    ring->again_tail->next = request;
  } else {
    ring->again_head = request;
  }
  ring->again_tail = request;
}

static void request_put(struct io_ring *ring, struct io_request *request, bool linked) {
  request->linked = linked;
  request->in_carrier = true;
  ring->carried++;
  ring->carrier->put(ring, request);
}

static struct io_request *first_request(struct io_ring *ring, const struct io_op *op) {
  return &ring->requests[op->slot];
}

static bool is_transfer(const struct io_op *op) {
  return op->kind == IO_READ || op->kind == IO_WRITE;
}

/* Makes the next piece of a transfer in the given request. */
static void piece_make(struct io_request *first, struct io_request *request, struct io_op *op) {
  const uint32_t left = op->size - first->issued;
  request->op = op;
  request->kind = op->kind;
  request->file = op->file;
  request->fixed = (op->flags & IO_OP_FIXED_BUFFER) != 0;
  request->data = (uint8_t *)op->data + first->issued;
  request->offset = op->offset + first->issued;
  request->size = left < IO_PIECE_BYTES ? left : IO_PIECE_BYTES;
  request->attempts = 0;
  request->busy = true;
  first->issued += request->size;
  first->pieces++;
}

/* More pieces of a transfer, as far as there are requests to spare. */
static void pieces_spread(struct io_ring *ring, struct io_request *first) {
  while (first->issued < first->op->size && first->error == 0 && first->end == first->op->size && !first->cancelled) {
    struct io_request *request = first;
    if (first->busy) {
      if (ring->unused_count <= ring->queued) {
        return;
      }
      request = request_take(ring);
    }
    piece_make(first, request, first->op);
    again_push(ring, request);
  }
}

/* ---- the end of an operation, and what follows it ---- */

static void count_op(struct io_ring *ring, const struct io_op *op) {
  switch (op->kind) {
  case IO_READ:
    ring->counters.reads++;
    ring->counters.read_bytes += op->done;
    break;
  case IO_WRITE:
    ring->counters.writes++;
    ring->counters.write_bytes += op->done;
    break;
  case IO_SYNC: ring->counters.syncs++; break;
  default: break;
  }
}

/* What keeps an operation that was held from beginning now. */
static int held_error(const struct io_request *first) {
  return first->kind == IO_SYNC ? atomic_load_explicit(&first->file->sync_error, memory_order_relaxed) : first->error;
}

/* Ends a submitted operation; then its follower, when that was held here and must not run, and so on down the chain. */
static void op_end(struct io_ring *ring, struct io_request *first, int os_error) {
  for (;;) {
    struct io_op *op = first->op;
    struct io_op *follower = op->next;
    assert(first->link != IO_LINK_WAITING);
    count_op(ring, op);
    if (op->file != NULL && op->kind != IO_OPEN && op->kind != IO_UNLINK) {
      io_file_release(op->file);
    }
    request_give(ring, first);
    ready_push(ring, op, os_error);
    if (follower == NULL) {
      return;
    }
    first = first_request(ring, follower);
    first->link = os_error == 0 ? IO_LINK_CLEAR : IO_LINK_BROKEN;
    if (!first->held) {
      return; /* in the carrier: its result is looked at when it comes */
    }
    first->held = false;
    if (os_error != 0 || first->cancelled) {
      os_error = ECANCELED;
    } else {
      os_error = held_error(first);
    }
    if (os_error == 0) {
      first->link = IO_LINK_NONE;
      again_push(ring, first);
      if (is_transfer(follower)) {
        pieces_spread(ring, first);
      }
      return;
    }
    if (first->kind == IO_OPEN && first->file != NULL) {
      io_file_discard(first->file);
    }
  }
}

static void transfer_end(struct io_ring *ring, struct io_request *first) {
  first->op->done = first->end;
  int error = first->error;
  if (error == 0 && first->cancelled && first->end == first->op->size && first->issued < first->op->size) {
    error = ECANCELED; /* cancelled between pieces */
    first->op->done = first->issued;
  }
  op_end(ring, first, error);
}

/* A piece has ended, at `end` bytes after the operation's beginning. */
static void piece_end(struct io_ring *ring, struct io_request *request, uint32_t end, int os_error, bool stopped) {
  struct io_request *first = first_request(ring, request->op);
  first->pieces--;
  request->busy = false;
  if (os_error != 0 && first->error == 0) {
    first->error = os_error;
  }
  if (stopped && end < first->end) {
    first->end = end;
  }
  if (request != first) {
    request_give(ring, request);
  }
  pieces_spread(ring, first);
  if (first->pieces == 0) {
    transfer_end(ring, first);
  }
}

static void transfer_finish(struct io_ring *ring, struct io_request *request, int64_t result) {
  const struct io_op *op = request->op;
  const uint32_t position = (uint32_t)(request->offset - op->offset);
  if (result < 0) {
    piece_end(ring, request, position, (int)-result, true);
    return;
  }
  size_t counts = (size_t)result;
  assert(counts <= request->size);
  if (counts == request->size) {
    piece_end(ring, request, position + request->size, 0, false);
    return;
  }
  bool ended = false;
  const int os_error = io_file_short(request->file, op->kind == IO_WRITE, request->offset, (size_t)result, &counts, &ended);
  if (os_error != 0 || ended) {
    piece_end(ring, request, position + (uint32_t)result, os_error, true);
    return;
  }
  request->attempts = counts == 0 ? (uint16_t)(request->attempts + 1) : 0;
  if (request->attempts == IO_ATTEMPTS) {
    piece_end(ring, request, position, EIO, true);
    return;
  }
  if (first_request(ring, op)->cancelled) {
    piece_end(ring, request, position + (uint32_t)counts, ECANCELED, true);
    return;
  }
  request->data += counts;
  request->offset += counts;
  request->size -= (uint32_t)counts;
  again_push(ring, request);
}

static void open_finish(struct io_ring *ring, struct io_request *request, int os_error) {
  struct io_op *op = request->op;
  struct io_file *file = request->file;
  if (os_error == EINVAL && file->direct) {
    /* As in posix_open: the file was made before O_DIRECT was refused, so EXCLUSIVE has done its work. */
    file->direct = false;
    if ((file->flags & IO_OPEN_CREATE) != 0) {
      file->flags &= ~(unsigned)IO_OPEN_EXCLUSIVE;
    }
    again_push(ring, request);
    return;
  }
  if (os_error != 0) {
    io_file_discard(file);
  } else {
    io_file_opened(file);
    op->opened = file;
  }
  op_end(ring, request, os_error);
}

/* A request has ended for good. */
static void request_result(struct io_ring *ring, struct io_request *request, int64_t result) {
  const int os_error = result < 0 ? (int)-result : 0;
  switch (request->kind) {
  case IO_READ:
  case IO_WRITE: transfer_finish(ring, request, result); break;
  case IO_OPEN: open_finish(ring, request, os_error); break;
  case IO_SYNC: op_end(ring, request, os_error == ECANCELED ? os_error : io_file_sync_result(request->file, os_error)); break;
  default: op_end(ring, request, os_error); break;
  }
}

void io_ring_finish(struct io_ring *ring, struct io_request *request, int64_t result) {
  assert(request->in_carrier);
  request->in_carrier = false;
  ring->carried--;
  struct io_request *first = first_request(ring, request->op);
  if (result == -EINTR || result == -EAGAIN) {
    if (!first->cancelled && ++request->attempts < IO_ATTEMPTS) {
      again_push(ring, request);
      return;
    }
    result = first->cancelled ? -ECANCELED : result;
  }
  if (result == -ECANCELED && first->link == IO_LINK_WAITING) {
    /* The carrier broke the chain. Whether that stands is for what went before to say; also one that was cancelled itself must not end before
     * that, which still names it. */
    first->held = true;
    return;
  }
  if (result == -ECANCELED && first->link == IO_LINK_CLEAR && !first->cancelled) {
    first->link = IO_LINK_NONE; /* it goes alone now: cancelled once more is an error */
    again_push(ring, request);
    return;
  }
  request_result(ring, request, result);
}
/* ---- queueing ---- */

static void check_op(const struct io_ring *ring, const struct io_op *op) {
  assert(op->state == IO_OP_IDLE || op->state == IO_OP_DONE);
  assert(op->kind >= IO_READ && op->kind <= IO_UNLINK && op->complete != NULL);
  assert(!is_transfer(op) || !op->file->direct || ((uintptr_t)op->data | op->size | op->offset) % IO_DIRECT_ALIGNMENT == 0);
  assert((op->flags & IO_OP_FIXED_BUFFER) == 0 ||
         ((uint8_t *)op->data >= (uint8_t *)ring->buffer && (uint8_t *)op->data + op->size <= (uint8_t *)ring->buffer + ring->buffer_size));
  (void)ring;
  (void)op;
}

bool io_ring_queue(struct io_ring *ring, struct io_op *op) {
  check_op(ring, op);
  if (ring->in_flight == ring->entries || ring->closing) {
    return false;
  }
  op->state = IO_OP_QUEUED;
  op->status = TURB_OK;
  op->os_error = 0;
  op->done = 0;
  op->opened = NULL;
  op->slot = (op->flags & IO_OP_LINKED) != 0;
  op->next = NULL;
  if (ring->queue_tail != NULL) {
    ring->queue_tail->next = op;
  } else {
    ring->queue_head = op;
  }
  ring->queue_tail = op;
  ring->queued++;
  ring->in_flight++;
  return true;
}

static struct io_op *queue_pop(struct io_ring *ring) {
  struct io_op *op = ring->queue_head;
  ring->queue_head = op->next;
  if (ring->queue_head == NULL) {
    ring->queue_tail = NULL;
  }
  ring->queued--;
  return op;
}

/* ---- submission ---- */

/* Gives an operation its request. Returns errno when it ends before it began. */
static int op_begin(struct io_ring *ring, struct io_op *op) {
  struct io_request *first = request_take(ring);
  op->state = IO_OP_SUBMITTED;
  op->slot = io_request_number(ring, first);
  op->next = NULL;
  first->op = op;
  first->kind = op->kind;
  first->file = op->file;
  first->end = op->size;
  if (op->kind == IO_OPEN) {
    first->file = io_file_prepare(ring->system, op->path, op->open_flags);
    return first->file == NULL ? ENOMEM : 0;
  }
  if (op->kind == IO_UNLINK) {
    first->file = NULL;
    return 0;
  }
  io_file_retain(op->file);
  if (op->kind == IO_SYNC) {
    return atomic_load_explicit(&op->file->sync_error, memory_order_relaxed);
  }
  piece_make(first, first, op);
  return 0;
}

/* Whether the queue's first `count` operations can go to the carrier as one linked chain. */
static bool chain_fits(struct io_ring *ring, uint32_t count) {
  if (count == 1) {
    return true;
  }
  const struct io_op *op = ring->queue_head;
  for (uint32_t i = 0; i < count; i++, op = op->next) {
    const bool simple = !is_transfer(op) || op->size <= IO_PIECE_BYTES;
    const bool sound = op->kind != IO_SYNC || atomic_load_explicit(&op->file->sync_error, memory_order_relaxed) == 0;
    if (!simple || !sound || op->kind == IO_OPEN) {
      return false;
    }
  }
  return count <= ring->carrier->space(ring);
}

static uint32_t chain_length(const struct io_ring *ring) {
  uint32_t count = 1;
  for (const struct io_op *op = ring->queue_head; op->slot != 0 && op->next != NULL; op = op->next) {
    count++;
  }
  return count;
}

/* Takes a chain (mostly of one) out of the queue. The carrier has space for one request at least. */
static void chain_begin(struct io_ring *ring, uint32_t count) {
  const bool together = chain_fits(ring, count);
  struct io_op *before = NULL;
  struct io_op *failed = NULL;
  int os_error = 0;
  for (uint32_t i = 0; i < count; i++) {
    struct io_op *op = queue_pop(ring);
    const int op_error = op_begin(ring, op);
    struct io_request *first = first_request(ring, op);
    if (before != NULL) {
      before->next = op;
      first->link = IO_LINK_WAITING;
      first->held = !together;
    }
    if (op_error != 0 && failed == NULL) {
      failed = op;
      os_error = op_error;
    }
    if (failed == NULL && !first->held) {
      request_put(ring, first, together && i + 1 < count);
      if (is_transfer(op) && first->issued < op->size) {
        pieces_spread(ring, first);
      }
    } else {
      first->held = first->link == IO_LINK_WAITING;
    }
    before = op;
  }
  if (failed != NULL) {
    /* Either the head, or a member behind operations that run: then it ends in its turn, with its own error or, after a failure, as cancelled. */
    struct io_request *first = first_request(ring, failed);
    first->error = os_error;
    if (!first->held) {
      op_end(ring, first, os_error);
    }
  }
}

/* Puts all that is due. Returns errno when the carrier is full and takes nothing. */
static int put_all(struct io_ring *ring) {
  while (ring->again_head != NULL || ring->queue_head != NULL) {
    const uint32_t chain = ring->again_head != NULL ? 1 : chain_length(ring);
    uint32_t space = ring->carrier->space(ring);
    if (space == 0 || (space < chain && ring->carried != 0)) {
      const int os_error = ring->carrier->flush(ring);
      if (os_error != 0) {
        return os_error;
      }
      space = ring->carrier->space(ring);
      if (space == 0) {
        return EBUSY;
      }
    }
    struct io_request *request = ring->again_head;
    if (request == NULL) {
      chain_begin(ring, chain);
      continue;
    }
    ring->again_head = request->next;
    if (ring->again_head == NULL) {
      ring->again_tail = NULL;
    }
    if (first_request(ring, request->op)->cancelled) {
      request_result(ring, request, -ECANCELED);
    } else {
      request_put(ring, request, false);
    }
  }
  return 0;
}

static turb_status submit_failed(int os_error, turb_error *err) {
  return status_from_errno(err, os_error, "submit to the ring", NULL, STATUS_NO_OFFSET);
}

turb_status io_ring_submit(struct io_ring *ring, turb_error *err) {
  int os_error = put_all(ring);
  if (os_error == 0) {
    os_error = ring->carrier->flush(ring);
  }
  return os_error == 0 ? TURB_OK : submit_failed(os_error, err);
}

/* ---- completion ---- */

size_t io_ring_poll(struct io_ring *ring) {
  assert(!ring->completing);
  ring->completing = true;
  ring->carrier->reap(ring);
  if (ring->again_head != NULL && put_all(ring) == 0) {
    /* A failure leaves them to the next submission. */
    (void)ring->carrier->flush(ring);
  }
  const size_t count = complete_ready(ring);
  ring->completing = false;
  if (count != 0) {
    io_system_count(ring->system, &ring->counters);
  }
  return count;
}

turb_status io_ring_wait(struct io_ring *ring, size_t count, uint64_t timeout_ns, turb_error *err) {
  const uint64_t begin = ring->completed;
  const uint64_t deadline = timeout_ns == IO_NO_TIMEOUT ? IO_NO_TIMEOUT : clock_monotonic_ns() + timeout_ns;
  int os_error = 0;
  for (;;) {
    const size_t done = (size_t)(ring->completed - begin);
    if (done >= count || ring->in_flight == 0) {
      return io_ring_submit(ring, err);
    }
    if (os_error != 0 && os_error != ETIME) {
      return submit_failed(os_error, err);
    }
    if (os_error == ETIME) {
      return status_set(err, TURB_TIMED_OUT, "%zu of %zu operations completed in time", done, count);
    }
    os_error = put_all(ring);
    if (ring->ready_head != NULL || os_error != 0) {
      (void)io_ring_poll(ring);
      continue;
    }
    uint64_t left = IO_NO_TIMEOUT;
    if (deadline != IO_NO_TIMEOUT) {
      const uint64_t now = clock_monotonic_ns();
      left = now < deadline ? deadline - now : 0;
    }
    assert(ring->carried != 0);
    const size_t wanted = count - done;
    os_error = ring->carrier->wait(ring, wanted < ring->carried ? (uint32_t)wanted : ring->carried, left);
    (void)io_ring_poll(ring);
  }
}

turb_status io_ring_run(struct io_ring *ring, struct io_op *op, turb_error *err) {
  while (!io_ring_queue(ring, op)) {
    const turb_status status = io_ring_wait(ring, 1, IO_NO_TIMEOUT, err);
    if (status != TURB_OK) {
      return status;
    }
  }
  while (op->state != IO_OP_DONE) {
    const turb_status status = io_ring_wait(ring, 1, IO_NO_TIMEOUT, err);
    if (status != TURB_OK) {
      return status;
    }
  }
  return io_op_status(op, err);
}

/* ---- cancellation ---- */

/* Takes op and what is linked behind it out of the queue; they end as cancelled. */
static void cancel_queued(struct io_ring *ring, struct io_op *op) {
  struct io_op *before = NULL;
  for (struct io_op *at = ring->queue_head; at != op; at = at->next) {
    before = at;
  }
  bool linked = true;
  while (linked && op != NULL) {
    struct io_op *follower = op->next;
    linked = op->slot != 0;
    ring->queued--;
    ready_push(ring, op, ECANCELED);
    op = follower;
  }
  if (before != NULL) {
    before->next = op;
    before->slot = 0; /* what comes now is no part of its chain */
  } else {
    ring->queue_head = op;
  }
  if (op == NULL) {
    ring->queue_tail = before;
  }
}

static void cancel_submitted(struct io_ring *ring, struct io_op *op) {
  struct io_request *first = first_request(ring, op);
  first->cancelled = true;
  for (uint32_t i = 0; i < ring->request_count; i++) {
    struct io_request *request = &ring->requests[i];
    if (request->in_carrier && request->op == op) {
      ring->carrier->cancel(ring, request);
    }
  }
}

void io_ring_cancel(struct io_ring *ring, struct io_op *op) {
  if (op->state == IO_OP_QUEUED) {
    cancel_queued(ring, op);
  } else if (op->state == IO_OP_SUBMITTED && op->slot != READY_SLOT && !first_request(ring, op)->cancelled) {
    cancel_submitted(ring, op);
  }
}

/* ---- making and destroying ---- */

/* A registered buffer as large as the process may lock: half of it after each refusal. None is no failure. */
static void make_buffer(struct io_ring *ring) {
  struct io_system *system = ring->system;
  size_t size = io_buffer_round(system->options.registered_buffer_bytes);
  for (; size >= MIN_REGISTERED_BYTES; size = io_buffer_round(size / 2)) {
    void *data = NULL;
    if (io_buffer_alloc(&system->allocator, system->budget, BUDGET_METADATA, size, &data, NULL) != TURB_OK) {
      continue;
    }
    const bool refused = system->options.refused_register_bytes != 0 && size >= system->options.refused_register_bytes;
    if ((refused ? ENOMEM : ring->carrier->register_buffer(ring, data, size)) == 0) {
      ring->buffer = data;
      ring->buffer_size = size;
      uint64_t most = atomic_load(&system->registered_buffer_bytes);
      while (size > most && !atomic_compare_exchange_weak(&system->registered_buffer_bytes, &most, size)) {}
      return;
    }
    io_buffer_free(&system->allocator, system->budget, BUDGET_METADATA, data, size);
  }
}

static bool may_fall_back(int os_error) {
  switch (os_error) {
  case ENOSYS: /* an old kernel, or a filter */
  case EPERM:  /* a filter, or kernel.io_uring_disabled */
  case EACCES: /* a security module */
  case EINVAL: /* an old kernel */
  case ENOMEM: /* locked memory, before Linux 5.12 */
  case EMFILE: /* a ring is a descriptor, a blocking one is not */
  case ENFILE:
  case EOPNOTSUPP: return true;
  default: return false;
  }
}

static void ring_free(struct io_ring *ring) {
  struct io_system *system = ring->system;
  const turb_allocator *allocator = &system->allocator;
  mem_free(allocator, ring->requests, ring->request_count * sizeof *ring->requests);
  mem_free(allocator, ring->unused, ring->request_count * sizeof *ring->unused);
  if (system->budget != NULL) {
    budget_give(system->budget, BUDGET_METADATA, ring->charged);
  }
  mem_free(allocator, ring, sizeof *ring);
}

static turb_status ring_allocate(struct io_system *system, uint32_t entries, struct io_ring **out, turb_error *err) {
  const uint32_t requests = entries + SPARE_REQUESTS;
  /* With the memory that the kernel shares: a submission entry has 64 bytes, and there are two completions of 16 for each. */
  const uint64_t charged = sizeof(struct io_ring) + requests * (sizeof(struct io_request) + sizeof(uint32_t) + 96);
  if (system->budget != NULL && !budget_take(system->budget, BUDGET_METADATA, charged)) {
    return status_set(err, TURB_BUDGET, "the memory budget has no room for a ring of %u operations", entries);
  }
  struct io_ring *ring = mem_alloc_zeroed(&system->allocator, sizeof *ring);
  if (ring == NULL) {
    if (system->budget != NULL) {
      budget_give(system->budget, BUDGET_METADATA, charged);
    }
    return status_set(err, TURB_NO_MEMORY, "no memory for a ring of %u operations", entries);
  }
  ring->system = system;
  ring->entries = entries;
  ring->charged = charged;
  ring->request_count = requests;
  list_init(&ring->link);
  ring->requests = mem_alloc_array(&system->allocator, requests, sizeof *ring->requests);
  ring->unused = mem_alloc_array(&system->allocator, requests, sizeof *ring->unused);
  if (ring->requests == NULL || ring->unused == NULL) {
    ring_free(ring);
    return status_set(err, TURB_NO_MEMORY, "no memory for a ring of %u operations", entries);
  }
  for (uint32_t i = 0; i < requests; i++) {
    ring->unused[i] = requests - 1 - i;
  }
  ring->unused_count = requests;
  *out = ring;
  return TURB_OK;
}

turb_status io_ring_create(struct io_system *system, const struct io_ring_options *options, struct io_ring **out, turb_error *err) {
  *out = NULL;
  const uint32_t entries = options->entries != 0 ? options->entries : system->options.ring_entries;
  struct io_ring *ring = NULL;
  const turb_status status = ring_allocate(system, entries, &ring, err);
  if (status != TURB_OK) {
    return status;
  }
  ring->pollable = options->pollable;
  ring->carrier = system->carrier;
  int os_error = ring->carrier->create(ring, options, ring->request_count);
  if (os_error != 0 && system->automatic && ring->carrier == &io_carrier_uring && may_fall_back(os_error)) {
    const int refusal = os_error;
    ring->carrier = &io_carrier_blocking;
    os_error = ring->carrier->create(ring, options, ring->request_count);
    if (os_error == 0) {
      io_system_fell_back(system, refusal);
    }
  }
  if (os_error != 0) {
    ring_free(ring);
    return status_from_errno(err, os_error, "set up a ring", NULL, STATUS_NO_OFFSET);
  }
  atomic_fetch_add(&system->rings, 1);
  if (options->fixed_buffer && ring->carrier->grants_buffer) {
    make_buffer(ring);
  }
  *out = ring;
  return TURB_OK;
}

static void cancel_everything(struct io_ring *ring) {
  while (ring->queue_head != NULL) {
    cancel_queued(ring, ring->queue_head);
  }
  for (uint32_t i = 0; i < ring->request_count; i++) {
    struct io_request *request = &ring->requests[i];
    if (request->op != NULL) {
      first_request(ring, request->op)->cancelled = true;
    }
    if (request->in_carrier) {
      ring->carrier->cancel(ring, request);
    }
  }
}

void io_ring_destroy(struct io_ring *ring) {
  if (ring == NULL) {
    return;
  }
  assert(!ring->completing && !ring->leased);
  struct io_system *system = ring->system;
  ring->closing = true;
  cancel_everything(ring);
  while (ring->in_flight != 0) {
    if (io_ring_wait(ring, ring->in_flight, IO_NO_TIMEOUT, NULL) != TURB_OK) {
      /* The kernel takes no more: what it never saw comes back, the rest completes by itself. */
      ring->carrier->withdraw(ring);
      (void)io_ring_poll(ring);
      (void)sched_yield();
    }
  }
  io_system_count(system, &ring->counters);
  ring->carrier->destroy(ring);
  io_buffer_free(&system->allocator, system->budget, BUDGET_METADATA, ring->buffer, ring->buffer_size);
  ring_free(ring);
  atomic_fetch_sub(&system->rings, 1);
}

/* ---- questions ---- */

size_t io_ring_in_flight(const struct io_ring *ring) {
  return ring->in_flight;
}

size_t io_ring_room(const struct io_ring *ring) {
  return ring->closing ? 0 : ring->entries - ring->in_flight;
}

int io_ring_descriptor(const struct io_ring *ring) {
  return ring->pollable ? ring->carrier->descriptor(ring) : -1;
}

void *io_ring_fixed_buffer(struct io_ring *ring, size_t *size) {
  *size = ring->buffer_size;
  return ring->buffer;
}

struct io_system *io_ring_system(struct io_ring *ring) {
  return ring->system;
}

turb_status io_op_status(const struct io_op *op, turb_error *err) {
  static const char *const verbs[] = {"?", "read", "write", "sync", "open", "remove file"};
  assert(op->state == IO_OP_DONE);
  if (op->status == TURB_OK) {
    return TURB_OK;
  }
  const bool named = op->kind == IO_OPEN || op->kind == IO_UNLINK;
  const char *path = named ? op->path : io_file_path(op->file);
  return status_from_errno(err, op->os_error, verbs[op->kind], path, is_transfer(op) ? op->offset : STATUS_NO_OFFSET);
}
