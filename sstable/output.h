/*
 * sstable/output: a file written front to end through a few large buffers, with several writes in flight.
 *
 *   buffer:  FILLING --full--> IN FLIGHT --completion--> FREE --next in turn--> FILLING
 *
 * Bytes are appended, or written in place: output_reserve gives contiguous room at the current position, output_advance makes it part of the file.
 * What is reserved and not advanced is lost at the next other call.
 *
 * Invariants
 *   1. Writes begin and end at page borders; a buffer that is sent off takes the bytes behind its last border along to the next one.
 *   2. Space is allocated ahead of the writes; the file's size is right only after output_finish.
 *   3. The first failed write is kept: every later call returns it.
 *
 * Threads: one thread from the first append to output_close (a ring is leased in between).
 */
#ifndef TURB_SSTABLE_OUTPUT_H
#define TURB_SSTABLE_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "io/io.h"

#define OUTPUT_BUFFERS 3

struct output;

struct output_buffer {
  struct io_op op;
  uint8_t *data;
  bool in_flight;
};

struct output {
  struct io_system *system;
  struct io_file *file; /* borrowed */
  struct io_ring *ring; /* leased from the first write on */
  struct output_buffer buffers[OUTPUT_BUFFERS];
  size_t buffer_bytes;
  unsigned current;
  size_t fill;              /* of the current buffer */
  uint64_t offset;          /* in the file, of the current buffer's begin */
  uint64_t allocated_bytes; /* of the file */
  turb_error failure;
};

/* `memory`: OUTPUT_BUFFERS x buffer_bytes, page-aligned, the caller's; buffer_bytes is a multiple of a page. Takes nothing else until the first write. */
void output_init(struct output *output, struct io_system *system, struct io_file *file, void *memory, size_t buffer_bytes);

/* Where the next byte goes. */
static inline uint64_t output_position(const struct output *output) {
  return output->offset + output->fill;
}

/* Contiguous room for size (at most buffer_bytes - 4,096) bytes at the current position, aligned as the position is; may wait for a write. */
TURB_MUST_CHECK turb_status output_reserve(struct output *output, size_t size, uint8_t **at, turb_error *err);
static inline void output_advance(struct output *output, size_t size) {
  output->fill += size;
}

TURB_MUST_CHECK turb_status output_append(struct output *output, const void *data, size_t size, turb_error *err);

/* Zeros up to the next page border. */
TURB_MUST_CHECK turb_status output_align(struct output *output, turb_error *err);

/* The position is at a page border: writes what is left, waits for all writes, cuts the file to the position and syncs it. */
TURB_MUST_CHECK turb_status output_finish(struct output *output, turb_error *err);

/* Waits for what is in flight and gives the ring back. Safe after init and after any failure. */
void output_close(struct output *output);

#endif
