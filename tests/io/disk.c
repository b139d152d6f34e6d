/* See disk.h. */
#include "tests/io/disk.h"

#include <dirent.h>
#include <stdlib.h>

const char *disk_name(enum disk_kind kind) {
  switch (kind) {
  case DISK_URING: return "io_uring";
  case DISK_BLOCKING: return "blocking";
  case DISK_CALM: return "simulated, calm";
  case DISK_STORMY: return "simulated, stormy";
  case DISK_KINDS: break;
  }
  return "?";
}

int disk_count_descriptors(void) {
  DIR *folder = opendir("/proc/self/fd");
  CHECK(folder != NULL);
  int count = 0;
  while (readdir(folder) != NULL) {
    count++;
  }
  (void)closedir(folder);
  return count;
}

bool disk_open(struct disk *disk, enum disk_kind kind, const struct io_system_options *given) {
  memset(disk, 0, sizeof *disk);
  disk->kind = kind;
  disk->descriptors = disk_count_descriptors();
  test_allocator_init(&disk->allocator);
  budget_init(&disk->budget, 256u << 20);
  struct io_system_options options = given != NULL ? *given : (struct io_system_options){.ring_entries = 0};
  options.allocator = &disk->allocator.base;
  options.budget = &disk->budget;
  if (kind == DISK_URING || kind == DISK_BLOCKING) {
    options.backend = kind == DISK_URING ? TURB_BACKEND_URING : TURB_BACKEND_BLOCKING;
    disk->folder = test_tmpdir();
  } else {
    options.backend = TURB_BACKEND_SIMULATED;
    turb_simulation_options simulation = TURB_SIMULATION_OPTIONS_INIT;
    simulation.seed = kind == DISK_STORMY ? test_seed() : 1;
    simulation.reorder_percent = kind == DISK_STORMY ? 60 : 0;
    simulation.short_percent = kind == DISK_STORMY ? 40 : 0;
    simulation.allocator = &disk->allocator.base;
    CHECK_OK(turb_simulation_create(&simulation, &disk->simulation, NULL));
    options.simulation = disk->simulation;
    disk->folder = "db";
  }
  turb_error error = TURB_ERROR_INIT;
  const turb_status status = io_system_open(&options, &disk->system, &error);
  if (status != TURB_OK && kind == DISK_URING) {
    (void)fprintf(stderr, "io_uring is not to be had here, its share is left out: %s\n", error.message);
    return false;
  }
  CHECK_OK_ERR(status, &error);
  if (disk->simulation != NULL) {
    CHECK_OK(io_make_folder(disk->system, disk->folder, NULL));
    CHECK_OK(io_sync_folder(disk->system, "/", NULL));
  }
  return true;
}

void disk_close(struct disk *disk) {
  io_system_close(disk->system);
  turb_simulation_free(disk->simulation);
  test_allocator_check_empty(&disk->allocator);
  CHECK_EQ(budget_used(&disk->budget), 0);
  CHECK_EQ(disk_count_descriptors(), disk->descriptors);
}

void disk_each(void (*body)(struct disk *disk)) {
  for (int kind = 0; kind < DISK_KINDS; kind++) {
    struct disk disk;
    (void)fprintf(stderr, "[%s]\n", disk_name((enum disk_kind)kind));
    if (disk_open(&disk, (enum disk_kind)kind, NULL)) {
      body(&disk);
      disk_close(&disk);
    }
  }
}

const char *disk_path(const struct disk *disk, const char *name) {
  return test_path(disk->folder, name);
}

struct io_file *disk_file(const struct disk *disk, const char *name, unsigned flags) {
  struct io_file *file = NULL;
  turb_error error = TURB_ERROR_INIT;
  CHECK_OK_ERR(io_file_open(disk->system, disk_path(disk, name), flags, &file, &error), &error);
  return file;
}

void disk_fill(void *data, size_t size, uint64_t seed) {
  struct random random;
  random_init(&random, seed);
  random_fill(&random, data, size);
}

uint8_t *disk_buffer(const struct disk *disk, size_t size) {
  (void)disk;
  void *buffer = NULL;
  CHECK_OK(io_buffer_alloc(alloc_default(), NULL, BUDGET_JOB, size, &buffer, NULL));
  memset(buffer, 0xee, io_buffer_round(size));
  return buffer;
}

void disk_buffer_free(const struct disk *disk, uint8_t *buffer, size_t size) {
  (void)disk;
  io_buffer_free(alloc_default(), NULL, BUDGET_JOB, buffer, size);
}

void tracked_complete(struct io_op *op) {
  struct tracked *tracked = op->owner;
  CHECK_EQ(op->state, IO_OP_DONE);
  CHECK_EQ(tracked->completions, 0);
  tracked->completions++;
}

static struct tracked tracked_make(enum io_op_kind kind, struct io_file *file) {
  return (struct tracked){.op = {.kind = (uint8_t)kind, .file = file, .complete = tracked_complete}};
}

struct tracked tracked_transfer(enum io_op_kind kind, struct io_file *file, void *data, uint32_t size, uint64_t offset) {
  struct tracked tracked = tracked_make(kind, file);
  tracked.op.data = data;
  tracked.op.size = size;
  tracked.op.offset = offset;
  return tracked;
}

struct tracked tracked_sync(struct io_file *file) {
  return tracked_make(IO_SYNC, file);
}

void tracked_queue(struct io_ring *ring, struct tracked *tracked) {
  tracked->op.owner = tracked;
  tracked->completions = 0;
  tracked->ring = ring;
  CHECK(io_ring_queue(ring, &tracked->op));
}

void tracked_wait(struct io_ring *ring, struct tracked *tracked) {
  while (tracked->completions == 0) {
    CHECK_OK(io_ring_wait(ring, 1, IO_NO_TIMEOUT, NULL));
  }
}
