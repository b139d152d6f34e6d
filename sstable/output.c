/* Sequential writing; states and invariants in output.h. */
#include "sstable/output.h"

#include <assert.h>
#include <string.h>

#define PAGE_BYTES         4096u
#define ALLOCATE_MIN_BYTES (UINT64_C(1) << 20)
#define ALLOCATE_MAX_BYTES (UINT64_C(64) << 20)

void output_init(struct output *output, struct io_system *system, struct io_file *file, void *memory, size_t buffer_bytes) {
  *output = (struct output){.system = system, .file = file, .buffer_bytes = buffer_bytes};
  status_clear(&output->failure);
  for (unsigned i = 0; i < OUTPUT_BUFFERS; i++) {
    output->buffers[i].data = (uint8_t *)memory + i * buffer_bytes;
  }
}

static void on_written(struct io_op *op) {
  struct output *output = op->owner;
  for (unsigned i = 0; i < OUTPUT_BUFFERS; i++) {
    if (&output->buffers[i].op == op) {
      output->buffers[i].in_flight = false;
    }
  }
  (void)!io_op_status(op, &output->failure);
}

/* Until the buffer is free, or a write failed. */
static turb_status wait_for(struct output *output, const struct output_buffer *buffer, turb_error *err) {
  while (buffer->in_flight) {
    const turb_status status = io_ring_wait(output->ring, 1, IO_NO_TIMEOUT, &output->failure);
    if (status != TURB_OK) {
      return status_copy(err, &output->failure);
    }
  }
  return status_copy(err, &output->failure);
}

/*
 * Space for [.., end), in steps that grow with the file: few calls, contiguous on disk, little to cut off at the end. The size is set along with it: writes
 * behind the end of a file wait for each other. A disk that is too full for the step may have room for what is needed.
 */
static turb_status allocate(struct output *output, uint64_t end, turb_error *err) {
  if (end <= output->allocated_bytes) {
    return TURB_OK;
  }
  uint64_t step = output->allocated_bytes;
  step = step < ALLOCATE_MIN_BYTES ? ALLOCATE_MIN_BYTES : step > ALLOCATE_MAX_BYTES ? ALLOCATE_MAX_BYTES : step;
  const uint64_t begin = output->allocated_bytes;
  const uint64_t wish = end - begin > step ? end - begin : step;
  turb_error first;
  status_clear(&first);
  turb_status status = io_file_allocate(output->file, begin, wish, true, &first);
  if (status == TURB_OK) {
    output->allocated_bytes = begin + wish;
    return TURB_OK;
  }
  if (status != TURB_NO_SPACE) {
    return status_copy(err, &first);
  }
  status = io_file_allocate(output->file, begin, end - begin, true, err);
  if (status == TURB_OK) {
    output->allocated_bytes = end;
  }
  return status;
}

static turb_status submit(struct output *output, struct output_buffer *buffer, size_t size, turb_error *err) {
  turb_status status = allocate(output, output->offset + size, err);
  if (status != TURB_OK) {
    return status;
  }
  if (output->ring == NULL) {
    status = io_ring_lease(output->system, &output->ring, err);
    if (status != TURB_OK) {
      return status;
    }
  }
  buffer->op = (struct io_op){.kind = IO_WRITE,
                              .file = output->file,
                              .data = buffer->data,
                              .size = (uint32_t)size,
                              .offset = output->offset,
                              .complete = on_written,
                              .owner = output};
  if (!io_ring_queue(output->ring, &buffer->op)) {
    return status_set(err, TURB_IO, "no room in a ring for a write"); /* a ring takes far more than our few */
  }
  buffer->in_flight = true;
  return io_ring_submit(output->ring, err);
}

/* Sends the current buffer's whole pages off and goes on in the next one, with the bytes behind them. */
static turb_status rotate(struct output *output, turb_error *err) {
  struct output_buffer *full = &output->buffers[output->current];
  const unsigned next_index = (output->current + 1) % OUTPUT_BUFFERS;
  struct output_buffer *next = &output->buffers[next_index];
  const size_t whole = output->fill / PAGE_BYTES * PAGE_BYTES;
  const size_t rest = output->fill - whole;
  turb_status status = submit(output, full, whole, err);
  if (status != TURB_OK) {
    return status;
  }
  output->current = next_index;
  output->offset += whole;
  output->fill = rest;
  status = wait_for(output, next, err);
  if (status == TURB_OK) {
    memcpy(next->data, full->data + whole, rest);
  }
  return status;
}

/* A failure stays: what it left out cannot be written later. */
static turb_status keep(struct output *output, turb_status status, turb_error *own, turb_error *err) {
  if (status != TURB_OK) {
    (void)!status_copy(&output->failure, own);
    (void)!status_copy(err, own);
  }
  return status;
}

turb_status output_reserve(struct output *output, size_t size, uint8_t **at, turb_error *err) {
  *at = NULL;
  assert(size <= output->buffer_bytes - PAGE_BYTES);
  if (output->failure.status != TURB_OK) {
    return status_copy(err, &output->failure);
  }
  if (size > output->buffer_bytes - output->fill) {
    turb_error own;
    status_clear(&own);
    const turb_status status = rotate(output, &own);
    if (status != TURB_OK) {
      return keep(output, status, &own, err);
    }
  }
  *at = output->buffers[output->current].data + output->fill;
  return TURB_OK;
}

turb_status output_append(struct output *output, const void *data, size_t size, turb_error *err) {
  const uint8_t *from = data;
  while (size != 0) {
    size_t room = output->buffer_bytes - output->fill;
    uint8_t *at = NULL;
    const turb_status status = output_reserve(output, room != 0 ? 1 : PAGE_BYTES, &at, err);
    if (status != TURB_OK) {
      return status;
    }
    assert(at != NULL);
    room = output->buffer_bytes - output->fill;
    const size_t part = size < room ? size : room;
    memcpy(at, from, part);
    output_advance(output, part);
    from += part;
    size -= part;
  }
  return TURB_OK;
}

turb_status output_align(struct output *output, turb_error *err) {
  const size_t rest = (size_t)(output_position(output) % PAGE_BYTES);
  if (rest == 0) {
    return TURB_OK;
  }
  uint8_t *at = NULL;
  const turb_status status = output_reserve(output, PAGE_BYTES - rest, &at, err);
  if (status == TURB_OK) {
    assert(at != NULL);
    memset(at, 0, PAGE_BYTES - rest);
    output_advance(output, PAGE_BYTES - rest);
  }
  return status;
}

static turb_status finish(struct output *output, turb_error *err) {
  turb_status status = output->fill != 0 ? rotate(output, err) : TURB_OK;
  for (unsigned i = 0; i < OUTPUT_BUFFERS && status == TURB_OK; i++) {
    status = wait_for(output, &output->buffers[i], err);
  }
  if (status == TURB_OK && output->allocated_bytes != output->offset) {
    status = io_file_truncate(output->file, output->offset, err);
  }
  return status == TURB_OK ? io_file_sync(output->file, err) : status;
}

turb_status output_finish(struct output *output, turb_error *err) {
  assert(output_position(output) % PAGE_BYTES == 0);
  if (output->failure.status != TURB_OK) {
    return status_copy(err, &output->failure);
  }
  turb_error own;
  status_clear(&own);
  return keep(output, finish(output, &own), &own, err);
}

void output_close(struct output *output) {
  if (output->ring == NULL) {
    return;
  }
  for (unsigned i = 0; i < OUTPUT_BUFFERS; i++) {
    while (output->buffers[i].in_flight) {
      /* Where the ring itself fails, nothing can be done but to ask again: the kernel may still read the buffer. */
      if (io_ring_wait(output->ring, 1, IO_NO_TIMEOUT, NULL) != TURB_OK) {
        io_ring_cancel(output->ring, &output->buffers[i].op);
      }
    }
  }
  io_ring_return(output->ring);
  output->ring = NULL;
}
