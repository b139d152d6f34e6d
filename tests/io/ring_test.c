/* Rings: one suite for every backend. */
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/io/disk.h"

#define MIB        (1u << 20)
#define READ_WRITE (IO_OPEN_READ | IO_OPEN_WRITE)
#define NEW_FILE   (READ_WRITE | IO_OPEN_CREATE | IO_OPEN_TRUNCATE)

static struct io_ring *lease(const struct disk *disk) {
  struct io_ring *ring = NULL;
  CHECK_OK(io_ring_lease(disk->system, &ring, NULL));
  return ring;
}

static struct io_ring *make_ring(const struct disk *disk, uint32_t entries, bool pollable) {
  struct io_ring *ring = NULL;
  CHECK_OK(io_ring_create(disk->system, &(struct io_ring_options){.entries = entries, .pollable = pollable}, &ring, NULL));
  return ring;
}

/* A file of size bytes from disk_fill(…, seed). */
static struct io_file *filled_file(const struct disk *disk, const char *name, size_t size, uint64_t seed, unsigned flags) {
  struct io_file *file = disk_file(disk, name, NEW_FILE | flags);
  uint8_t *data = disk_buffer(disk, size);
  disk_fill(data, size, seed);
  CHECK_OK(io_file_write(file, data, size, 0, NULL));
  disk_buffer_free(disk, data, size);
  return file;
}

/* ---- transfers ---- */

static void large_transfer(struct disk *disk, unsigned flags) {
  const uint32_t size = 16 * MIB;
  struct io_file *file = disk_file(disk, "large", NEW_FILE | flags);
  uint8_t *out = disk_buffer(disk, size);
  uint8_t *in = disk_buffer(disk, size);
  disk_fill(out, size, 1);
  struct io_ring *ring = lease(disk);
  struct tracked write = tracked_transfer(IO_WRITE, file, out, size, 8192);
  tracked_queue(ring, &write);
  tracked_wait(ring, &write);
  CHECK_OK(io_op_status(&write.op, NULL));
  CHECK_EQ(write.op.done, size);
  struct tracked read = tracked_transfer(IO_READ, file, in, size, 8192);
  tracked_queue(ring, &read);
  tracked_wait(ring, &read);
  CHECK_OK(io_op_status(&read.op, NULL));
  CHECK_EQ(read.op.done, size);
  CHECK_MEM_EQ(in, out, size);
  /* The end of the file in the midst of several pieces. */
  struct tracked over = tracked_transfer(IO_READ, file, in, size, 10 * MIB);
  tracked_queue(ring, &over);
  tracked_wait(ring, &over);
  CHECK_OK(io_op_status(&over.op, NULL));
  CHECK_EQ(over.op.done, 6 * MIB + 8192);
  CHECK_MEM_EQ(in, out + 10 * MIB - 8192, over.op.done);
  CHECK_EQ(io_ring_in_flight(ring), 0);
  io_ring_return(ring);
  io_file_release(file);
  disk_buffer_free(disk, out, size);
  disk_buffer_free(disk, in, size);
}

static void large_transfers(struct disk *disk) {
  large_transfer(disk, 0);
  large_transfer(disk, IO_OPEN_DIRECT);
}

TEST(ring, moves_16_mib_as_one_operation) {
  disk_each(large_transfers);
}

#define LARGE_COUNT 3
#define LARGE_BYTES (10 * MIB + 512)

/* More pieces than there are requests to spare: the transfers go on with what they have. */
static void several_large(struct disk *disk) {
  struct io_file *file = disk_file(disk, "several", NEW_FILE);
  uint8_t *out = disk_buffer(disk, LARGE_COUNT * LARGE_BYTES);
  uint8_t *in = disk_buffer(disk, LARGE_COUNT * LARGE_BYTES);
  disk_fill(out, LARGE_COUNT * LARGE_BYTES, 13);
  struct io_ring *ring = make_ring(disk, LARGE_COUNT, false);
  struct tracked ops[LARGE_COUNT];
  for (int pass = 0; pass < 2; pass++) {
    for (size_t i = 0; i < LARGE_COUNT; i++) {
      const uint64_t at = i * (uint64_t)LARGE_BYTES;
      ops[i] = tracked_transfer(pass == 0 ? IO_WRITE : IO_READ, file, (pass == 0 ? out : in) + at, LARGE_BYTES, at);
      tracked_queue(ring, &ops[i]);
    }
    CHECK_OK(io_ring_wait(ring, LARGE_COUNT, IO_NO_TIMEOUT, NULL));
    for (size_t i = 0; i < LARGE_COUNT; i++) {
      CHECK_EQ(ops[i].completions, 1);
      CHECK_OK(io_op_status(&ops[i].op, NULL));
      CHECK_EQ(ops[i].op.done, LARGE_BYTES);
    }
  }
  CHECK_MEM_EQ(in, out, LARGE_COUNT * LARGE_BYTES);
  io_ring_destroy(ring);
  io_file_release(file);
  disk_buffer_free(disk, out, LARGE_COUNT * LARGE_BYTES);
  disk_buffer_free(disk, in, LARGE_COUNT * LARGE_BYTES);
}

TEST(ring, several_large_transfers_share_the_spare_requests) {
  disk_each(several_large);
}

static void end_of_file(struct disk *disk, unsigned flags) {
  struct io_file *file = filled_file(disk, "end", 3 * 4096, 7, flags);
  CHECK_OK(io_file_truncate(file, 9000, NULL));
  uint8_t *in = disk_buffer(disk, 16384);
  uint8_t *wanted = disk_buffer(disk, 3 * 4096);
  disk_fill(wanted, 3 * 4096, 7);
  struct io_ring *ring = lease(disk);
  static const struct {
    uint64_t offset;
    uint32_t size, done;
  } cases[] = {{0, 16384, 9000}, {8192, 4096, 808}, {12288, 4096, 0}, {0, 8192, 8192}, {4096, 0, 0}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    struct tracked read = tracked_transfer(IO_READ, file, in, cases[i].size, cases[i].offset);
    tracked_queue(ring, &read);
    tracked_wait(ring, &read);
    CHECK_OK(io_op_status(&read.op, NULL));
    CHECK_EQ(read.op.done, cases[i].done);
    CHECK_MEM_EQ(in, wanted + (cases[i].done != 0 ? cases[i].offset : 0), cases[i].done);
  }
  io_ring_return(ring);
  io_file_release(file);
  disk_buffer_free(disk, in, 16384);
  disk_buffer_free(disk, wanted, 3 * 4096);
}

static void ends_of_files(struct disk *disk) {
  end_of_file(disk, 0);
  end_of_file(disk, IO_OPEN_DIRECT);
}

TEST(ring, read_at_the_end_of_a_file_is_ok_and_short) {
  disk_each(ends_of_files);
}

#define SCATTERED 200

/* Many operations in flight, completing in any order, each into its own place. */
static void scattered(struct disk *disk) {
  static uint8_t out[SCATTERED][4096] __attribute__((aligned(4096)));
  static uint8_t in[SCATTERED][4096] __attribute__((aligned(4096)));
  disk_fill(out, sizeof out, 3);
  struct io_file *file = disk_file(disk, "scattered", NEW_FILE | IO_OPEN_DIRECT);
  struct io_ring *ring = make_ring(disk, SCATTERED, false);
  struct tracked *ops = calloc(SCATTERED, sizeof *ops);
  for (int pass = 0; pass < 2; pass++) {
    for (size_t i = 0; i < SCATTERED; i++) {
      ops[i] = tracked_transfer(pass == 0 ? IO_WRITE : IO_READ, file, pass == 0 ? out[i] : in[i], 4096, (SCATTERED - 1 - i) * 4096);
      tracked_queue(ring, &ops[i]);
    }
    CHECK_EQ(io_ring_room(ring), 0);
    CHECK_OK(io_ring_wait(ring, SCATTERED, IO_NO_TIMEOUT, NULL));
    CHECK_EQ(io_ring_in_flight(ring), 0);
    for (size_t i = 0; i < SCATTERED; i++) {
      CHECK_EQ(ops[i].completions, 1);
      CHECK_OK(io_op_status(&ops[i].op, NULL));
    }
  }
  CHECK_MEM_EQ(in, out, sizeof out);
  struct io_stats stats;
  io_system_stats(disk->system, &stats);
  CHECK_EQ(stats.reads, SCATTERED);
  CHECK_EQ(stats.read_bytes, sizeof in);
  CHECK_EQ(stats.writes, SCATTERED);
  CHECK_EQ(stats.write_bytes, sizeof out);
  if (disk->kind == DISK_URING || disk->kind == DISK_BLOCKING) {
    CHECK_LT(stats.submissions, SCATTERED); /* batched */
  }
  free(ops);
  io_ring_destroy(ring);
  io_file_release(file);
}

TEST(ring, completes_each_of_many_into_its_own_memory) {
  disk_each(scattered);
}

/* ---- room, poll, wait ---- */

static void room(struct disk *disk) {
  struct io_file *file = filled_file(disk, "room", 4096, 1, 0);
  struct io_ring *ring = make_ring(disk, 8, false);
  static uint8_t data[9][64];
  struct tracked ops[9];
  for (size_t i = 0; i < 8; i++) {
    CHECK_EQ(io_ring_room(ring), 8 - i);
    ops[i] = tracked_transfer(IO_READ, file, data[i], 64, i * 64);
    tracked_queue(ring, &ops[i]);
  }
  ops[8] = tracked_transfer(IO_READ, file, data[8], 64, 0);
  CHECK(!io_ring_queue(ring, &ops[8].op));
  CHECK_EQ(ops[8].op.state, IO_OP_IDLE);
  CHECK_EQ(io_ring_in_flight(ring), 8);
  CHECK_EQ(io_ring_poll(ring), 0); /* nothing is submitted */
  CHECK_OK(io_ring_submit(ring, NULL));
  for (size_t done = 0; done < 8;) {
    done += io_ring_poll(ring); /* never waits, and gets there */
  }
  CHECK_EQ(io_ring_room(ring), 8);
  for (size_t i = 0; i < 8; i++) {
    CHECK_EQ(ops[i].completions, 1);
    CHECK_EQ(ops[i].op.done, 64);
  }
  /* With nothing in flight there is nothing to wait for. */
  CHECK_OK(io_ring_wait(ring, 5, IO_NO_TIMEOUT, NULL));
  /* io_ring_run on a full ring makes room first. */
  for (size_t i = 0; i < 8; i++) {
    ops[i] = tracked_transfer(IO_READ, file, data[i], 64, 0);
    tracked_queue(ring, &ops[i]);
  }
  ops[8].op.owner = &ops[8];
  CHECK_OK(io_ring_run(ring, &ops[8].op, NULL));
  CHECK_EQ(ops[8].completions, 1);
  io_ring_destroy(ring);
  for (size_t i = 0; i < 8; i++) {
    CHECK_EQ(ops[i].completions, 1);
  }
  io_file_release(file);
}

TEST(ring, takes_as_many_operations_as_it_has_entries) {
  disk_each(room);
}

static void by_epoll(struct disk *disk) {
  struct io_file *file = filled_file(disk, "epoll", 64 * 4096, 5, IO_OPEN_DIRECT);
  struct io_ring *ring = make_ring(disk, 64, true);
  const int descriptor = io_ring_descriptor(ring);
  CHECK_GE(descriptor, 0);
  const int poller = epoll_create1(EPOLL_CLOEXEC);
  struct epoll_event event = {.events = EPOLLIN};
  CHECK_EQ(epoll_ctl(poller, EPOLL_CTL_ADD, descriptor, &event), 0);
  CHECK_EQ(epoll_wait(poller, &event, 1, 0), 0);
  uint8_t *data = disk_buffer(disk, 64 * 4096);
  struct tracked ops[64];
  for (int round = 0; round < 50; round++) {
    for (size_t i = 0; i < 64; i++) {
      ops[i] = tracked_transfer(IO_READ, file, data + i * 4096, 4096, i * 4096);
      tracked_queue(ring, &ops[i]);
    }
    CHECK_OK(io_ring_submit(ring, NULL));
    while (io_ring_in_flight(ring) != 0) {
      int ready = epoll_wait(poller, &event, 1, 10000);
      CHECK(ready == 1 || (ready < 0 && errno == EINTR));
      (void)io_ring_poll(ring);
    }
    CHECK_EQ(epoll_wait(poller, &event, 1, 0), 0); /* quiet again */
  }
  for (size_t i = 0; i < 64; i++) {
    CHECK_EQ(ops[i].completions, 1);
  }
  (void)close(poller);
  io_ring_destroy(ring);
  io_file_release(file);
  disk_buffer_free(disk, data, 64 * 4096);
}

TEST(ring, descriptor_wakes_an_event_loop) {
  disk_each(by_epoll);
}

struct again {
  struct io_op op;
  struct io_ring *ring;
  unsigned left;
};

static void queue_again(struct io_op *op) {
  struct again *again = op->owner;
  if (again->left-- > 1) {
    op->offset += 512;
    CHECK(io_ring_queue(again->ring, op));
    CHECK_OK(io_ring_submit(again->ring, NULL));
  }
}

static void from_completion(struct disk *disk) {
  struct io_file *file = filled_file(disk, "again", 65536, 9, 0);
  struct io_ring *ring = lease(disk);
  static uint8_t data[512];
  struct again again = {
      .op = {.kind = IO_READ, .file = file, .data = data, .size = 512, .complete = queue_again}, .ring = ring, .left = 100};
  again.op.owner = &again;
  CHECK(io_ring_queue(ring, &again.op));
  CHECK_OK(io_ring_wait(ring, 100, IO_NO_TIMEOUT, NULL));
  CHECK_EQ(again.left, 0);
  CHECK_EQ(again.op.offset, 99 * 512);
  io_ring_return(ring);
  io_file_release(file);
}

TEST(ring, operation_may_be_queued_again_as_it_completes) {
  disk_each(from_completion);
}

/* Two rings of one thread, with the same file and interleaved submissions: each completes its own. */
static void two_rings(struct disk *disk) {
  struct io_file *file = filled_file(disk, "two", 64 * 4096, 11, IO_OPEN_DIRECT);
  struct io_ring *rings[2] = {make_ring(disk, 64, false), lease(disk)};
  uint8_t *data = disk_buffer(disk, 64 * 4096);
  uint8_t *wanted = disk_buffer(disk, 64 * 4096);
  disk_fill(wanted, 64 * 4096, 11);
  struct tracked ops[64];
  for (size_t i = 0; i < 64; i++) {
    ops[i] = tracked_transfer(IO_READ, file, data + i * 4096, 4096, i * 4096);
    tracked_queue(rings[i % 2], &ops[i]);
    if (i % 8 == 7) {
      CHECK_OK(io_ring_submit(rings[0], NULL));
      CHECK_OK(io_ring_submit(rings[1], NULL));
    }
  }
  CHECK_OK(io_ring_wait(rings[1], 32, IO_NO_TIMEOUT, NULL));
  CHECK_EQ(io_ring_in_flight(rings[0]), 32); /* waiting on the other completes none of them */
  for (size_t i = 0; i < 64; i++) {
    CHECK_EQ(ops[i].completions, i % 2);
  }
  CHECK_OK(io_ring_wait(rings[0], 32, IO_NO_TIMEOUT, NULL));
  CHECK_MEM_EQ(data, wanted, 64 * 4096);
  io_ring_destroy(rings[0]);
  io_ring_return(rings[1]);
  io_file_release(file);
  disk_buffer_free(disk, data, 64 * 4096);
  disk_buffer_free(disk, wanted, 64 * 4096);
}

TEST(ring, completions_of_two_rings_never_mix) {
  disk_each(two_rings);
}

/* ---- chains ---- */

static void write_and_sync(struct disk *disk, uint32_t size) {
  struct io_file *file = disk_file(disk, "chain", NEW_FILE);
  uint8_t *data = disk_buffer(disk, size);
  disk_fill(data, size, size);
  struct io_ring *ring = lease(disk);
  struct tracked write = tracked_transfer(IO_WRITE, file, data, size, 100);
  struct tracked sync = tracked_sync(file);
  write.op.flags = IO_OP_LINKED;
  tracked_queue(ring, &write);
  tracked_queue(ring, &sync);
  tracked_wait(ring, &sync);
  CHECK_EQ(write.completions, 1);
  CHECK_OK(io_op_status(&write.op, NULL));
  CHECK_OK(io_op_status(&sync.op, NULL));
  CHECK_EQ(write.op.done, size);
  io_ring_return(ring);
  io_file_release(file);
  if (disk->simulation != NULL) {
    /* What the sync saw was the whole write. */
    CHECK_OK(io_sync_folder(disk->system, disk->folder, NULL));
    turb_simulation_restart(disk->simulation);
    file = disk_file(disk, "chain", IO_OPEN_READ);
    uint8_t *in = disk_buffer(disk, size);
    CHECK_OK(io_file_read(file, in, size, 100, NULL));
    CHECK_MEM_EQ(in, data, size);
    disk_buffer_free(disk, in, size);
    io_file_release(file);
  }
  disk_buffer_free(disk, data, size);
}

static void writes_and_syncs(struct disk *disk) {
  write_and_sync(disk, 100);
  write_and_sync(disk, 70000);
  write_and_sync(disk, 3 * MIB + 5);
}

TEST(ring, linked_sync_covers_the_write_before_it) {
  disk_each(writes_and_syncs);
}

/* A member fails: those before it went well, those behind it are cancelled, and the next chain is not touched. */
static void broken_chain(struct disk *disk) {
  struct io_file *file = filled_file(disk, "broken", 65536, 1, 0);
  struct io_file *readable = disk_file(disk, "broken", IO_OPEN_READ);
  static uint8_t data[4096];
  struct io_ring *ring = lease(disk);
  for (int repeat = 0; repeat < 20; repeat++) {
    struct tracked ops[6] = {
        tracked_transfer(IO_READ, file, data, 4096, 0),     tracked_transfer(IO_WRITE, readable, data, 4096, 0),
        tracked_transfer(IO_WRITE, file, data, 4096, 8192), tracked_sync(file),
        tracked_transfer(IO_READ, file, data, 512, 512),    tracked_sync(file),
    };
    for (size_t i = 0; i < 6; i++) {
      ops[i].op.flags = i == 3 || i == 5 ? 0 : IO_OP_LINKED;
      tracked_queue(ring, &ops[i]);
    }
    CHECK_OK(io_ring_wait(ring, 6, IO_NO_TIMEOUT, NULL));
    static const turb_status wanted[6] = {TURB_OK, TURB_IO, TURB_CANCELLED, TURB_CANCELLED, TURB_OK, TURB_OK};
    for (size_t i = 0; i < 6; i++) {
      CHECK_EQ(ops[i].completions, 1);
      CHECK_STATUS(io_op_status(&ops[i].op, NULL), wanted[i]);
    }
    CHECK_EQ(ops[1].op.os_error, EBADF);
  }
  turb_error error = TURB_ERROR_INIT;
  struct tracked bad = tracked_transfer(IO_WRITE, readable, data, 4096, 12288);
  bad.op.owner = &bad;
  CHECK_STATUS(io_ring_run(ring, &bad.op, &error), TURB_IO);
  CHECK(test_contains(error.message, "broken"));
  CHECK_EQ(error.offset, 12288);
  CHECK_EQ(error.os_error, EBADF);
  io_ring_return(ring);
  io_file_release(readable);
  io_file_release(file);
}

TEST(ring, failure_cancels_the_rest_of_its_chain_alone) {
  disk_each(broken_chain);
}

/* The kernel breaks a chain at a read that the end of the file cut short; for us that read went well. */
static void chain_over_the_end(struct disk *disk) {
  struct io_file *file = filled_file(disk, "over", 1000, 1, 0);
  static uint8_t data[4096];
  struct io_ring *ring = make_ring(disk, 8, false);
  for (int repeat = 0; repeat < 20; repeat++) {
    struct tracked ops[4] = {
        tracked_transfer(IO_READ, file, data, 4096, 500),
        tracked_transfer(IO_READ, file, data, 4096, 2000),
        tracked_transfer(IO_WRITE, file, data, 100, 0),
        tracked_sync(file),
    };
    for (size_t i = 0; i < 4; i++) {
      ops[i].op.flags = i == 3 ? 0 : IO_OP_LINKED;
      tracked_queue(ring, &ops[i]);
    }
    CHECK_OK(io_ring_wait(ring, 4, IO_NO_TIMEOUT, NULL));
    for (size_t i = 0; i < 4; i++) {
      CHECK_EQ(ops[i].completions, 1);
      CHECK_OK(io_op_status(&ops[i].op, NULL));
    }
    CHECK_EQ(ops[0].op.done, 500);
    CHECK_EQ(ops[1].op.done, 0);
  }
  io_ring_destroy(ring);
  io_file_release(file);
}

TEST(ring, chain_goes_on_behind_a_read_at_the_end_of_a_file) {
  disk_each(chain_over_the_end);
}

/* Chains as long as the ring, of small and large members, and a link flag with nothing behind it. */
static void long_chain(struct disk *disk) {
  struct io_file *file = disk_file(disk, "long", NEW_FILE);
  uint8_t *data = disk_buffer(disk, 2 * MIB);
  struct io_ring *ring = make_ring(disk, 8, false);
  for (int large = 0; large < 2; large++) {
    struct tracked ops[8];
    for (size_t i = 0; i < 8; i++) {
      const uint32_t size = large != 0 && i % 3 == 0 ? 2 * MIB : 512;
      ops[i] = tracked_transfer(i % 2 == 0 ? IO_WRITE : IO_READ, file, data, size, 0);
      ops[i].op.flags = IO_OP_LINKED;
      tracked_queue(ring, &ops[i]);
    }
    CHECK_OK(io_ring_wait(ring, 8, IO_NO_TIMEOUT, NULL));
    for (size_t i = 0; i < 8; i++) {
      CHECK_EQ(ops[i].completions, 1);
      CHECK_OK(io_op_status(&ops[i].op, NULL));
      CHECK_EQ(ops[i].op.done, ops[i].op.size);
    }
  }
  io_ring_destroy(ring);
  io_file_release(file);
  disk_buffer_free(disk, data, 2 * MIB);
}

TEST(ring, chain_may_fill_the_ring) {
  disk_each(long_chain);
}

/* ---- cancellation ---- */

static void cancel_before_submission(struct disk *disk) {
  struct io_file *file = filled_file(disk, "cancel", 4096, 1, 0);
  struct io_file *readable = disk_file(disk, "cancel", IO_OPEN_READ);
  static uint8_t data[64];
  struct io_ring *ring = lease(disk);
  struct tracked ops[5];
  for (size_t i = 0; i < 5; i++) {
    ops[i] = i == 1 ? tracked_transfer(IO_WRITE, readable, data, 64, 0) : tracked_transfer(IO_READ, file, data, 64, 0);
    ops[i].op.flags = i < 3 ? IO_OP_LINKED : 0; /* 0 to 3 are a chain */
    tracked_queue(ring, &ops[i]);
  }
  io_ring_cancel(ring, &ops[2].op);
  io_ring_cancel(ring, &ops[2].op); /* twice is once */
  CHECK_EQ(ops[2].completions, 0);
  CHECK_EQ(io_ring_poll(ring), 2);
  CHECK_STATUS(io_op_status(&ops[2].op, NULL), TURB_CANCELLED);
  CHECK_STATUS(io_op_status(&ops[3].op, NULL), TURB_CANCELLED);
  io_ring_cancel(ring, &ops[2].op); /* done: nothing */
  CHECK_OK(io_ring_wait(ring, 3, IO_NO_TIMEOUT, NULL));
  CHECK_OK(io_op_status(&ops[0].op, NULL));
  CHECK_STATUS(io_op_status(&ops[1].op, NULL), TURB_IO);
  CHECK_OK(io_op_status(&ops[4].op, NULL)); /* no part of the chain that failed, though it is next to it now */
  for (size_t i = 0; i < 5; i++) {
    CHECK_EQ(ops[i].completions, 1);
  }
  io_ring_return(ring);
  io_file_release(readable);
  io_file_release(file);
}

TEST(ring, cancels_what_is_queued) {
  disk_each(cancel_before_submission);
}

/* The write before it is cut short and resumed, which breaks the chain in the carrier: the sync must not end first. */
TEST(ring, cancelled_follower_ends_behind_what_it_follows) {
  for (uint64_t seed = 0; seed < 50; seed++) {
    turb_simulation *simulation = NULL;
    struct io_system *system = NULL;
    struct io_file *file = NULL;
    struct io_ring *ring = NULL;
    turb_simulation_options options = TURB_SIMULATION_OPTIONS_INIT;
    options.seed = seed;
    options.short_percent = 100;
    CHECK_OK(turb_simulation_create(&options, &simulation, NULL));
    CHECK_OK(io_system_open(&(struct io_system_options){.backend = TURB_BACKEND_SIMULATED, .simulation = simulation}, &system, NULL));
    CHECK_OK(io_file_open(system, "f", NEW_FILE, &file, NULL));
    CHECK_OK(io_ring_lease(system, &ring, NULL));
    static uint8_t data[5000];
    struct tracked write = tracked_transfer(IO_WRITE, file, data, sizeof data, 0);
    struct tracked sync = tracked_sync(file);
    write.op.flags = IO_OP_LINKED;
    tracked_queue(ring, &write);
    tracked_queue(ring, &sync);
    CHECK_OK(io_ring_submit(ring, NULL));
    io_ring_cancel(ring, &sync.op);
    while (io_ring_in_flight(ring) != 0) {
      (void)io_ring_poll(ring);
      CHECK(sync.completions <= write.completions);
    }
    CHECK_OK(io_op_status(&write.op, NULL));
    io_ring_return(ring);
    io_file_release(file);
    io_system_close(system);
    turb_simulation_free(simulation);
  }
}

#define FLYING 48

static void cancel_in_flight(struct disk *disk) {
  struct io_file *file = filled_file(disk, "flying", FLYING * 65536, 1, IO_OPEN_DIRECT);
  uint8_t *data = disk_buffer(disk, FLYING * 65536);
  struct tracked ops[FLYING];
  struct io_ring *ring = make_ring(disk, FLYING, false);
  for (int repeat = 0; repeat < 20; repeat++) {
    for (size_t i = 0; i < FLYING; i++) {
      ops[i] = tracked_transfer(IO_READ, file, data + i * 65536, 65536, i * 65536);
      ops[i].op.flags = i % 3 == 0 ? IO_OP_LINKED : 0;
      tracked_queue(ring, &ops[i]);
    }
    CHECK_OK(io_ring_submit(ring, NULL));
    for (size_t i = 0; i < FLYING; i++) {
      io_ring_cancel(ring, &ops[i].op);
    }
    CHECK_OK(io_ring_wait(ring, FLYING, IO_NO_TIMEOUT, NULL));
    for (size_t i = 0; i < FLYING; i++) {
      CHECK_EQ(ops[i].completions, 1);
      const turb_status status = io_op_status(&ops[i].op, NULL);
      CHECK(status == TURB_CANCELLED || (status == TURB_OK && ops[i].op.done == 65536));
    }
  }
  /* Destroyed with everything in flight: each completes before it returns. */
  for (size_t i = 0; i < FLYING; i++) {
    ops[i] = tracked_transfer(IO_READ, file, data + i * 65536, 65536, i * 65536);
    ops[i].op.flags = i % 5 == 0 ? IO_OP_LINKED : 0;
    tracked_queue(ring, &ops[i]);
    if (i == FLYING / 2) {
      CHECK_OK(io_ring_submit(ring, NULL));
    }
  }
  io_ring_destroy(ring);
  for (size_t i = 0; i < FLYING; i++) {
    CHECK_EQ(ops[i].completions, 1);
  }
  io_file_release(file);
  disk_buffer_free(disk, data, FLYING * 65536);
}

TEST(ring, cancels_and_destroys_with_reads_in_flight) {
  disk_each(cancel_in_flight);
}

static void destroy_large(struct disk *disk) {
  struct io_file *file = disk_file(disk, "big", NEW_FILE | IO_OPEN_DIRECT);
  uint8_t *data = disk_buffer(disk, 16 * MIB);
  for (int cancel = 0; cancel < 2; cancel++) {
    struct io_ring *ring = make_ring(disk, 4, false);
    struct tracked write = tracked_transfer(IO_WRITE, file, data, 16 * MIB, 0);
    struct tracked sync = tracked_sync(file);
    write.op.flags = IO_OP_LINKED;
    tracked_queue(ring, &write);
    tracked_queue(ring, &sync);
    CHECK_OK(io_ring_submit(ring, NULL));
    if (cancel != 0) {
      io_ring_cancel(ring, &write.op);
    }
    io_ring_destroy(ring);
    CHECK_EQ(write.completions, 1);
    CHECK_EQ(sync.completions, 1);
    CHECK(sync.op.status == TURB_CANCELLED || write.op.status == TURB_OK);
  }
  io_file_release(file);
  disk_buffer_free(disk, data, 16 * MIB);
}

TEST(ring, destroys_with_a_large_transfer_in_pieces) {
  disk_each(destroy_large);
}

/* A read that would never end, of a pipe without a writer's data. */
TEST(ring, blocked_read_times_out_and_is_cancelled) {
  struct disk disk;
  if (!disk_open(&disk, DISK_URING, NULL)) {
    return;
  }
  CHECK_EQ(mkfifo(disk_path(&disk, "pipe"), 0600), 0);
  struct io_file *pipe = disk_file(&disk, "pipe", READ_WRITE);
  struct io_ring *ring = lease(&disk);
  static uint8_t data[64];
  struct tracked read = tracked_transfer(IO_READ, pipe, data, 64, 0);
  struct tracked sync = tracked_sync(pipe);
  read.op.flags = IO_OP_LINKED;
  tracked_queue(ring, &read);
  tracked_queue(ring, &sync);
  turb_error error = TURB_ERROR_INIT;
  CHECK_STATUS(io_ring_wait(ring, 1, 2000000, &error), TURB_TIMED_OUT);
  CHECK_STATUS(io_ring_wait(ring, 1, 0, NULL), TURB_TIMED_OUT);
  CHECK_EQ(io_ring_in_flight(ring), 2);
  io_ring_cancel(ring, &read.op);
  CHECK_OK(io_ring_wait(ring, 2, IO_NO_TIMEOUT, NULL));
  CHECK_STATUS(io_op_status(&read.op, &error), TURB_CANCELLED);
  CHECK_STATUS(io_op_status(&sync.op, NULL), TURB_CANCELLED);
  io_ring_return(ring);
  struct io_ring *other = make_ring(&disk, 8, false);
  tracked_queue(other, &read);
  CHECK_OK(io_ring_submit(other, NULL));
  io_ring_destroy(other); /* would hang if it waited for the read */
  CHECK_EQ(read.completions, 1);
  io_file_release(pipe);
  disk_close(&disk);
}

/* ---- opens, unlinks, buffers ---- */

static void open_and_unlink(struct disk *disk) {
  struct io_ring *ring = lease(disk);
  struct tracked open = {.op = {.kind = IO_OPEN, .complete = tracked_complete, .path = disk_path(disk, "opened")}};
  struct tracked unlink = {.op = {.kind = IO_UNLINK, .complete = tracked_complete, .path = disk_path(disk, "opened")}};
  open.op.owner = &open;
  unlink.op.owner = &unlink;
  turb_error error = TURB_ERROR_INIT;
  open.op.open_flags = IO_OPEN_READ;
  CHECK_STATUS(io_ring_run(ring, &open.op, &error), TURB_NOT_FOUND);
  CHECK(test_contains(error.message, "opened"));
  CHECK(open.op.opened == NULL);
  CHECK_STATUS(io_ring_run(ring, &unlink.op, NULL), TURB_NOT_FOUND);
  open.op.open_flags = READ_WRITE | IO_OPEN_CREATE | IO_OPEN_EXCLUSIVE | IO_OPEN_DIRECT;
  open.completions = 0;
  CHECK_OK(io_ring_run(ring, &open.op, NULL));
  struct io_file *file = open.op.opened;
  CHECK(file != NULL);
  CHECK_STR_EQ(io_file_path(file), open.op.path);
  uint8_t *data = disk_buffer(disk, 4096);
  CHECK_OK(io_file_write(file, data, 4096, 0, NULL));
  open.completions = 0;
  CHECK_STATUS(io_ring_run(ring, &open.op, NULL), TURB_EXISTS);
  unlink.completions = 0;
  CHECK_OK(io_ring_run(ring, &unlink.op, NULL));
  CHECK_STATUS(io_stat(disk->system, open.op.path, NULL, NULL, NULL), TURB_NOT_FOUND);
  CHECK_OK(io_file_read(file, data, 4096, 0, NULL)); /* without a name and alive */
  io_file_release(file);
  io_ring_return(ring);
  disk_buffer_free(disk, data, 4096);
}

TEST(ring, opens_and_unlinks) {
  disk_each(open_and_unlink);
}

static void fixed(struct disk *disk) {
  struct io_file *file = filled_file(disk, "fixed", 2 * MIB, 21, IO_OPEN_DIRECT);
  struct io_ring *ring = NULL;
  CHECK_OK(io_ring_create(disk->system, &(struct io_ring_options){.fixed_buffer = true}, &ring, NULL));
  size_t size = 0;
  uint8_t *buffer = io_ring_fixed_buffer(ring, &size);
  struct io_stats stats;
  io_system_stats(disk->system, &stats);
  CHECK_EQ(stats.registered_buffer_bytes, size);
  if (buffer == NULL) {
    CHECK_EQ(size, 0);
  } else if (size >= 2 * MIB) {
    CHECK_EQ((uintptr_t)buffer % 4096, 0);
    struct tracked read = tracked_transfer(IO_READ, file, buffer, 2 * MIB, 0);
    read.op.flags = IO_OP_FIXED_BUFFER;
    tracked_queue(ring, &read);
    tracked_wait(ring, &read);
    CHECK_OK(io_op_status(&read.op, NULL));
    uint8_t *wanted = disk_buffer(disk, 2 * MIB);
    disk_fill(wanted, 2 * MIB, 21);
    CHECK_MEM_EQ(buffer, wanted, 2 * MIB);
    struct tracked write = tracked_transfer(IO_WRITE, file, buffer + 4096, 8192, 0);
    write.op.flags = IO_OP_FIXED_BUFFER;
    tracked_queue(ring, &write);
    tracked_wait(ring, &write);
    CHECK_OK(io_op_status(&write.op, NULL));
    disk_buffer_free(disk, wanted, 2 * MIB);
  }
  CHECK_EQ(buffer != NULL, disk->kind != DISK_BLOCKING);
  io_ring_destroy(ring);
  io_file_release(file);
}

TEST(ring, reads_into_its_registered_buffer) {
  disk_each(fixed);
}

/* The file outlives its owner's reference while an operation needs it. */
static void released_in_flight(struct disk *disk) {
  struct io_file *file = filled_file(disk, "gone", 4096, 2, 0);
  static uint8_t data[4096];
  struct io_ring *ring = lease(disk);
  struct tracked read = tracked_transfer(IO_READ, file, data, 4096, 0);
  tracked_queue(ring, &read);
  CHECK_OK(io_ring_submit(ring, NULL));
  io_file_release(file);
  tracked_wait(ring, &read);
  CHECK_EQ(read.op.status, TURB_OK);
  CHECK_EQ(read.op.done, 4096);
  io_ring_return(ring);
}

TEST(ring, operation_in_flight_keeps_its_file) {
  disk_each(released_in_flight);
}
