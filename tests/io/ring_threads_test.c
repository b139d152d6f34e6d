/* Rings and systems used by several threads. */
#include <poll.h>
#include <stdlib.h>

#include "base/thread.h"
#include "tests/io/disk.h"

#define READ_WRITE (IO_OPEN_READ | IO_OPEN_WRITE)
#define NEW_FILE   (READ_WRITE | IO_OPEN_CREATE | IO_OPEN_TRUNCATE)

#define THREADS 4
#define PAGES   64
#define PAGE    4096u
#define DEPTH   16

/* ---- threads that lease rings in turn ---- */

struct worker {
  struct thread thread;
  struct disk *disk;
  struct io_file *file;
  const uint8_t *wanted;
  uint64_t seed;
  uint64_t rounds;
};

static void read_some(struct worker *worker, struct random *random, uint8_t *data) {
  struct io_ring *ring = NULL;
  CHECK_OK(io_ring_lease(worker->disk->system, &ring, NULL));
  CHECK_EQ(io_ring_in_flight(ring), 0);
  struct tracked ops[DEPTH];
  const size_t depth = 1 + (size_t)random_below(random, DEPTH);
  for (size_t i = 0; i < depth; i++) {
    ops[i] = tracked_transfer(IO_READ, worker->file, data + i * PAGE, PAGE, random_below(random, PAGES) * PAGE);
    tracked_queue(ring, &ops[i]);
  }
  CHECK_OK(io_ring_wait(ring, depth, IO_NO_TIMEOUT, NULL));
  for (size_t i = 0; i < depth; i++) {
    CHECK_EQ(ops[i].completions, 1);
    CHECK_OK(io_op_status(&ops[i].op, NULL));
    CHECK_EQ(ops[i].op.done, PAGE);
    CHECK_MEM_EQ(data + i * PAGE, worker->wanted + ops[i].op.offset, PAGE);
  }
  io_ring_return(ring);
}

static void worker_main(void *context) {
  struct worker *worker = context;
  struct random random;
  random_init(&random, worker->seed);
  uint8_t *data = disk_buffer(worker->disk, DEPTH * PAGE);
  char path[256];
  (void)snprintf(path, sizeof path, "%s/own-%d", worker->disk->folder, (int)worker->seed);
  for (uint64_t round = 0; round < worker->rounds; round++) {
    read_some(worker, &random, data);
    if (round % 16 == 0) {
      struct io_file *own = NULL;
      struct io_stats stats;
      CHECK_OK(io_file_open(worker->disk->system, path, NEW_FILE, &own, NULL));
      CHECK_OK(io_file_write(own, data, PAGE, 0, NULL));
      CHECK_OK(io_file_sync(own, NULL));
      io_file_release(own);
      CHECK_OK(io_unlink(worker->disk->system, path, NULL));
      io_system_stats(worker->disk->system, &stats);
      CHECK_GE(stats.reads, round);
    }
  }
  disk_buffer_free(worker->disk, data, DEPTH * PAGE);
}

static void lease_in_turn(struct disk *disk) {
  uint8_t *wanted = disk_buffer(disk, PAGES * PAGE);
  disk_fill(wanted, PAGES * PAGE, 1);
  struct io_file *file = disk_file(disk, "shared", NEW_FILE | IO_OPEN_DIRECT);
  CHECK_OK(io_file_write(file, wanted, PAGES * PAGE, 0, NULL));
  struct worker workers[THREADS];
  memset(workers, 0, sizeof workers);
  for (size_t i = 0; i < THREADS; i++) {
    workers[i] =
        (struct worker){.disk = disk, .file = io_file_retain(file), .wanted = wanted, .seed = i, .rounds = test_scale(100, 50, 1000)};
    CHECK_OK(thread_start(&workers[i].thread, "reader", worker_main, &workers[i], NULL));
  }
  for (size_t i = 0; i < THREADS; i++) {
    thread_join(&workers[i].thread);
    io_file_release(workers[i].file);
  }
  io_file_release(file);
  disk_buffer_free(disk, wanted, PAGES * PAGE);
}

TEST(ring_threads, lease_rings_in_turn) {
  disk_each(lease_in_turn);
}

/* ---- one ring handed from thread to thread, with operations in flight ---- */

struct hand_over {
  struct thread thread;
  struct io_ring *ring;
  bool submits;
  size_t waits_for;
};

static void hand_over_main(void *context) {
  struct hand_over *hand_over = context;
  if (hand_over->submits) {
    CHECK_OK(io_ring_submit(hand_over->ring, NULL));
  }
  CHECK_OK(io_ring_wait(hand_over->ring, hand_over->waits_for, IO_NO_TIMEOUT, NULL));
}

static void hand_around(struct disk *disk) {
  struct io_file *file = disk_file(disk, "handed", NEW_FILE);
  uint8_t *data = disk_buffer(disk, DEPTH * PAGE);
  CHECK_OK(io_file_write(file, data, DEPTH * PAGE, 0, NULL));
  struct io_ring *ring = NULL;
  CHECK_OK(io_ring_create(disk->system, &(struct io_ring_options){.pollable = true}, &ring, NULL));
  struct tracked ops[DEPTH];
  for (uint64_t round = 0; round < test_scale(50, 20, 500); round++) {
    for (size_t i = 0; i < DEPTH; i++) {
      ops[i] = tracked_transfer(IO_READ, file, data + i * PAGE, PAGE, i * PAGE);
      tracked_queue(ring, &ops[i]);
    }
    if (round % 2 == 0) {
      CHECK_OK(io_ring_submit(ring, NULL));
    }
    struct hand_over first = {.ring = ring, .submits = true, .waits_for = DEPTH / 2};
    struct hand_over second = {.ring = ring, .waits_for = 0};
    CHECK_OK(thread_start(&first.thread, "first", hand_over_main, &first, NULL));
    thread_join(&first.thread); /* it ends with operations of its own in flight */
    second.waits_for = io_ring_in_flight(ring);
    CHECK_OK(thread_start(&second.thread, "second", hand_over_main, &second, NULL));
    thread_join(&second.thread);
    for (size_t i = 0; i < DEPTH; i++) {
      CHECK_EQ(ops[i].completions, 1);
      CHECK_EQ(ops[i].op.done, PAGE);
    }
  }
  io_ring_destroy(ring);
  io_file_release(file);
  disk_buffer_free(disk, data, DEPTH * PAGE);
}

TEST(ring_threads, ring_is_handed_on_with_operations_in_flight) {
  disk_each(hand_around);
}

/* ---- the blocking pool: rings of many threads, cancelled and destroyed at any moment ---- */

static void destroyer_main(void *context) {
  struct worker *worker = context;
  struct random random;
  random_init(&random, worker->seed);
  uint8_t *data = disk_buffer(worker->disk, DEPTH * PAGE);
  for (uint64_t round = 0; round < worker->rounds; round++) {
    struct io_ring *ring = NULL;
    CHECK_OK(io_ring_create(worker->disk->system, &(struct io_ring_options){.entries = DEPTH, .pollable = round % 2 == 0}, &ring, NULL));
    struct tracked ops[DEPTH];
    for (size_t i = 0; i < DEPTH; i++) {
      ops[i] = tracked_transfer(IO_READ, worker->file, data + i * PAGE, PAGE, random_below(&random, PAGES) * PAGE);
      ops[i].op.flags = random_one_in(&random, 3) ? IO_OP_LINKED : 0;
      tracked_queue(ring, &ops[i]);
    }
    CHECK_OK(io_ring_submit(ring, NULL));
    io_ring_cancel(ring, &ops[random_below(&random, DEPTH)].op);
    for (uint64_t polls = random_below(&random, 4); polls != 0; polls--) {
      (void)io_ring_poll(ring);
    }
    if (round % 2 == 0 && io_ring_in_flight(ring) != 0 && random_one_in(&random, 2)) {
      struct pollfd poller = {.fd = io_ring_descriptor(ring), .events = POLLIN};
      (void)poll(&poller, 1, 100);
    }
    io_ring_destroy(ring);
    for (size_t i = 0; i < DEPTH; i++) {
      CHECK_EQ(ops[i].completions, 1);
    }
  }
  disk_buffer_free(worker->disk, data, DEPTH * PAGE);
}

static void destroy_at_any_moment(struct disk *disk) {
  struct io_file *file = disk_file(disk, "shared", NEW_FILE);
  uint8_t *data = disk_buffer(disk, PAGES * PAGE);
  CHECK_OK(io_file_write(file, data, PAGES * PAGE, 0, NULL));
  disk_buffer_free(disk, data, PAGES * PAGE);
  struct worker workers[THREADS];
  memset(workers, 0, sizeof workers);
  const uint64_t seed = test_seed();
  for (size_t i = 0; i < THREADS; i++) {
    workers[i] = (struct worker){.disk = disk, .file = file, .seed = seed + i, .rounds = test_scale(100, 50, 1000)};
    CHECK_OK(thread_start(&workers[i].thread, "destroyer", destroyer_main, &workers[i], NULL));
  }
  for (size_t i = 0; i < THREADS; i++) {
    thread_join(&workers[i].thread);
  }
  io_file_release(file);
}

TEST(ring_threads, rings_are_destroyed_at_any_moment) {
  disk_each(destroy_at_any_moment);
}
