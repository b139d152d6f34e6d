/* Files, names, locks and buffers, on every backend. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/io/disk.h"

#define READ_WRITE (IO_OPEN_READ | IO_OPEN_WRITE)
#define NEW_FILE   (READ_WRITE | IO_OPEN_CREATE | IO_OPEN_TRUNCATE)

static void create(const struct disk *disk, const char *name) {
  io_file_release(disk_file(disk, name, NEW_FILE));
}

/* ---- files ---- */

static void open_flags(struct disk *disk) {
  struct io_file *file = NULL;
  turb_error error = TURB_ERROR_INIT;
  CHECK_STATUS(io_file_open(disk->system, disk_path(disk, "a"), IO_OPEN_READ, &file, &error), TURB_NOT_FOUND);
  CHECK(file == NULL);
  CHECK(test_contains(error.message, "/a"));
  CHECK_EQ(error.os_error, ENOENT);
  file = disk_file(disk, "a", READ_WRITE | IO_OPEN_CREATE | IO_OPEN_EXCLUSIVE);
  CHECK_OK(io_file_write(file, "hello", 5, 0, NULL));
  struct io_file *second = NULL;
  CHECK_STATUS(io_file_open(disk->system, disk_path(disk, "a"), READ_WRITE | IO_OPEN_CREATE | IO_OPEN_EXCLUSIVE, &second, NULL),
               TURB_EXISTS);
  second = disk_file(disk, "a", READ_WRITE | IO_OPEN_CREATE);
  uint64_t size = 0;
  CHECK_OK(io_file_size(second, &size, NULL));
  CHECK_EQ(size, 5);
  io_file_release(second);
  second = disk_file(disk, "a", NEW_FILE);
  CHECK_OK(io_file_size(file, &size, NULL));
  CHECK_EQ(size, 0);
  io_file_release(second);
  CHECK(io_file_retain(file) == file);
  io_file_release(file);
  CHECK_STR_EQ(io_file_path(file), disk_path(disk, "a"));
  io_file_release(file);
  io_file_release(NULL);
  CHECK_STATUS(io_file_open(disk->system, disk_path(disk, "none/b"), NEW_FILE, &file, NULL), TURB_NOT_FOUND);
}

TEST(file, opens_as_its_flags_say) {
  disk_each(open_flags);
}

static void read_short(struct disk *disk) {
  struct io_file *file = disk_file(disk, "short", NEW_FILE);
  static uint8_t data[10000];
  static uint8_t in[10000];
  disk_fill(data, sizeof data, 4);
  CHECK_OK(io_file_write(file, data, sizeof data, 3, NULL));
  CHECK_OK(io_file_read(file, in, sizeof in, 3, NULL));
  CHECK_MEM_EQ(in, data, sizeof data);
  turb_error error = TURB_ERROR_INIT;
  CHECK_STATUS(io_file_read(file, in, 200, 9903, &error), TURB_CORRUPTION);
  CHECK(test_contains(error.message, "truncated"));
  CHECK(test_contains(error.file, "short"));
  CHECK_EQ(error.offset, 9903);
  io_file_release(file);
  file = disk_file(disk, "short", IO_OPEN_READ);
  CHECK_STATUS(io_file_write(file, data, 1, 0, NULL), TURB_IO);
  io_file_release(file);
}

TEST(file, read_beyond_the_end_is_corruption_with_place) {
  disk_each(read_short);
}

static void sizes(struct disk *disk) {
  struct io_file *file = disk_file(disk, "sizes", NEW_FILE);
  static uint8_t data[9000];
  uint64_t size = 0;
  uint64_t allocated = 0;
  memset(data, 0xab, sizeof data);
  CHECK_OK(io_file_write(file, data, sizeof data, 0, NULL));
  CHECK_OK(io_file_truncate(file, 5000, NULL));
  CHECK_OK(io_file_truncate(file, 9000, NULL)); /* what was cut off does not come back */
  CHECK_OK(io_file_read(file, data, 9000, 0, NULL));
  CHECK_EQ(data[4999], 0xab);
  for (size_t i = 5000; i < 9000; i++) {
    CHECK_EQ(data[i], 0);
  }
  CHECK_OK(io_file_allocate(file, 0, 100000, false, NULL));
  CHECK_OK(io_file_size(file, &size, NULL));
  CHECK_EQ(size, 9000);
  CHECK_OK(io_file_allocate(file, 0, 100000, true, NULL));
  CHECK_OK(io_file_sync(file, NULL));
  CHECK_OK(io_stat(disk->system, disk_path(disk, "sizes"), &size, &allocated, NULL));
  CHECK_EQ(size, 100000);
  CHECK_GE(allocated, 100000);
  CHECK_OK(io_stat(disk->system, disk_path(disk, "sizes"), NULL, NULL, NULL));
  io_file_release(file);
}

TEST(file, truncates_and_reserves) {
  disk_each(sizes);
}

static void direct(struct disk *disk) {
  struct io_file *file = disk_file(disk, "direct", NEW_FILE | IO_OPEN_DIRECT);
  uint8_t *data = disk_buffer(disk, 65536);
  uint8_t *in = disk_buffer(disk, 65536);
  disk_fill(data, 65536, 4);
  CHECK_OK(io_file_write(file, data, 65536, 4096, NULL));
  CHECK_OK(io_file_read(file, in, 65536, 4096, NULL));
  CHECK_MEM_EQ(in, data, 65536);
  if (disk->simulation != NULL) {
    CHECK(io_file_is_direct(file));
  }
  io_file_release(file);
  disk_buffer_free(disk, data, 65536);
  disk_buffer_free(disk, in, 65536);
}

TEST(file, transfers_directly) {
  disk_each(direct);
}

/* A file system that knows no O_DIRECT, by the hook; and the machine's tmpfs, whichever way it has. */
TEST(file, direct_falls_back_to_buffered) {
  for (int kind = 0; kind < DISK_KINDS; kind++) {
    struct disk disk;
    if (disk_open(&disk, (enum disk_kind)kind, &(struct io_system_options){.refused_direct = true})) {
      struct io_file *file = disk_file(&disk, "f", READ_WRITE | IO_OPEN_CREATE | IO_OPEN_EXCLUSIVE | IO_OPEN_DIRECT);
      CHECK(!io_file_is_direct(file));
      CHECK_OK(io_file_write(file, "odd", 3, 1, NULL));
      io_file_release(file);
      struct io_ring *ring = NULL;
      CHECK_OK(io_ring_lease(disk.system, &ring, NULL));
      struct tracked open = {.op = {.kind = IO_OPEN, .complete = tracked_complete, .path = disk_path(&disk, "g")}};
      open.op.owner = &open;
      open.op.open_flags = READ_WRITE | IO_OPEN_CREATE | IO_OPEN_EXCLUSIVE | IO_OPEN_DIRECT;
      CHECK_OK(io_ring_run(ring, &open.op, NULL));
      CHECK(!io_file_is_direct(open.op.opened));
      io_file_release(open.op.opened);
      io_ring_return(ring);
      disk_close(&disk);
    }
  }
}

static void tmpfs(struct disk *disk) {
  char path[64];
  (void)snprintf(path, sizeof path, "/dev/shm/turb-io-%d", (int)getpid());
  if (disk->simulation != NULL || access("/dev/shm", W_OK) != 0) {
    return;
  }
  struct io_file *file = NULL;
  CHECK_OK(io_file_open(disk->system, path, NEW_FILE | IO_OPEN_EXCLUSIVE | IO_OPEN_DIRECT, &file, NULL));
  uint8_t *data = disk_buffer(disk, 8192);
  struct io_ring *ring = NULL;
  CHECK_OK(io_ring_lease(disk->system, &ring, NULL));
  struct tracked write = tracked_transfer(IO_WRITE, file, data, 8192, 4096);
  tracked_queue(ring, &write);
  tracked_wait(ring, &write);
  CHECK_OK(io_op_status(&write.op, NULL));
  struct tracked read = tracked_transfer(IO_READ, file, data, 8192, 8192);
  tracked_queue(ring, &read);
  tracked_wait(ring, &read);
  CHECK_OK(io_op_status(&read.op, NULL));
  CHECK_EQ(read.op.done, 4096);
  io_ring_return(ring);
  io_file_release(file);
  CHECK_OK(io_unlink(disk->system, path, NULL));
  disk_buffer_free(disk, data, 8192);
}

TEST(file, direct_works_on_tmpfs) {
  disk_each(tmpfs);
}

static void count_names(void *context, const char *name) {
  CHECK(strcmp(name, ".") != 0 && strcmp(name, "..") != 0);
  (*(unsigned *)context)++;
}

static void remove_name(void *context, const char *name) {
  struct disk *disk = context;
  char path[64];
  (void)snprintf(path, sizeof path, "many/%s", name);
  CHECK_OK(io_unlink(disk->system, disk_path(disk, path), NULL));
}

/* A listing whose names are removed as they come leaves none out. */
static void removal(struct disk *disk) {
  CHECK_OK(io_make_folder(disk->system, disk_path(disk, "many"), NULL));
  for (int i = 0; i < 300; i++) {
    char path[64];
    (void)snprintf(path, sizeof path, "many/file-%d", i);
    create(disk, path);
  }
  CHECK_OK(io_list_folder(disk->system, disk_path(disk, "many"), remove_name, disk, NULL));
  CHECK_OK(io_remove_folder(disk->system, disk_path(disk, "many"), NULL));
}

TEST(file, names_may_go_while_they_are_listed) {
  disk_each(removal);
}

static void names(struct disk *disk) {
  struct io_system *system = disk->system;
  turb_error error = TURB_ERROR_INIT;
  CHECK_OK(io_make_folder(system, disk_path(disk, "sub"), NULL));
  CHECK_STATUS(io_make_folder(system, disk_path(disk, "sub"), &error), TURB_EXISTS);
  CHECK(test_contains(error.message, "sub"));
  create(disk, "sub/a");
  create(disk, "sub/b");
  unsigned count = 0;
  CHECK_OK(io_list_folder(system, disk_path(disk, "sub"), count_names, &count, NULL));
  CHECK_EQ(count, 2);
  CHECK_STATUS(io_list_folder(system, disk_path(disk, "none"), count_names, &count, NULL), TURB_NOT_FOUND);
  CHECK_STATUS(io_remove_folder(system, disk_path(disk, "sub"), NULL), TURB_IO); /* not empty */
  CHECK_OK(io_link(system, disk_path(disk, "sub/a"), disk_path(disk, "sub/c"), NULL));
  CHECK_STATUS(io_link(system, disk_path(disk, "sub/a"), disk_path(disk, "sub/c"), NULL), TURB_EXISTS);
  CHECK_STATUS(io_link(system, disk_path(disk, "sub/x"), disk_path(disk, "sub/y"), NULL), TURB_NOT_FOUND);
  CHECK_OK(io_rename(system, disk_path(disk, "sub/a"), disk_path(disk, "sub/b"), NULL));
  CHECK_STATUS(io_rename(system, disk_path(disk, "sub/a"), disk_path(disk, "sub/b"), NULL), TURB_NOT_FOUND);
  CHECK_OK(io_rename(system, disk_path(disk, "sub/b"), disk_path(disk, "b"), NULL)); /* to another folder */
  CHECK_OK(io_link(system, disk_path(disk, "b"), disk_path(disk, "same"), NULL));
  CHECK_OK(io_rename(system, disk_path(disk, "b"), disk_path(disk, "same"), NULL)); /* two names of one file: both stay */
  CHECK_OK(io_unlink(system, disk_path(disk, "same"), NULL));
  CHECK_OK(io_unlink(system, disk_path(disk, "sub/c"), NULL));
  CHECK_STATUS(io_unlink(system, disk_path(disk, "sub/c"), NULL), TURB_NOT_FOUND);
  CHECK_OK(io_sync_folder(system, disk_path(disk, "sub"), NULL));
  CHECK_STATUS(io_sync_folder(system, disk_path(disk, "none"), NULL), TURB_NOT_FOUND);
  CHECK_OK(io_remove_folder(system, disk_path(disk, "sub"), NULL));
  CHECK_STATUS(io_remove_folder(system, disk_path(disk, "sub"), NULL), TURB_NOT_FOUND);
  CHECK_OK(io_unlink(system, disk_path(disk, "b"), NULL));
  CHECK_OK(io_sync_folder(system, disk->folder, NULL));
  uint64_t size = 1;
  CHECK_STATUS(io_stat(system, disk_path(disk, "b"), &size, NULL, NULL), TURB_NOT_FOUND);
  CHECK_EQ(size, 0);
}

TEST(file, names_come_and_go) {
  disk_each(names);
}

static void locks(struct disk *disk) {
  const char *path = disk_path(disk, "LOCK");
  struct io_lock *first = NULL;
  struct io_lock *second = NULL;
  struct io_lock *third = NULL;
  turb_error error = TURB_ERROR_INIT;
  CHECK_STATUS(io_lock(disk->system, path, true, &first, NULL), TURB_NOT_FOUND); /* shared: an existing one only */
  CHECK_OK(io_lock(disk->system, path, false, &first, NULL));
  CHECK_STATUS(io_lock(disk->system, path, false, &second, &error), TURB_LOCKED);
  CHECK(second == NULL);
  CHECK(test_contains(error.message, "LOCK"));
  CHECK_STATUS(io_lock(disk->system, path, true, &second, NULL), TURB_LOCKED);
  io_unlock(first);
  CHECK_OK(io_lock(disk->system, path, true, &first, NULL));
  CHECK_OK(io_lock(disk->system, path, true, &second, NULL));
  CHECK_STATUS(io_lock(disk->system, path, false, &third, NULL), TURB_LOCKED);
  io_unlock(first);
  CHECK_STATUS(io_lock(disk->system, path, false, &third, NULL), TURB_LOCKED);
  io_unlock(second);
  CHECK_OK(io_lock(disk->system, path, false, &third, NULL));
  io_unlock(third);
  io_unlock(NULL);
}

TEST(file, locks_exclude_also_within_a_process) {
  disk_each(locks);
}

/* A shared lock needs nothing to be written: also as a user who may not write. */
TEST(file, shared_lock_on_a_read_only_file) {
  struct disk disk;
  CHECK(disk_open(&disk, DISK_BLOCKING, NULL));
  create(&disk, "LOCK");
  CHECK_EQ(chmod(disk_path(&disk, "LOCK"), 0444), 0);
  CHECK_EQ(chmod(disk.folder, 0555), 0);
  const pid_t child = fork();
  if (child == 0) {
    /* From within: the folders above may be closed to that user. */
    if (chdir(disk.folder) != 0 || (getuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0))) {
      _exit(9);
    }
    struct io_lock *lock = NULL;
    struct io_lock *none = NULL;
    const bool shared = io_lock(disk.system, "LOCK", true, &lock, NULL) == TURB_OK;
    const bool refused = io_lock(disk.system, "LOCK", false, &none, NULL) == TURB_PERMISSION;
    _exit(shared && refused ? 0 : 1);
  }
  int status = 0;
  CHECK_EQ(waitpid(child, &status, 0), child);
  CHECK_EQ(chmod(disk.folder, 0755), 0);
  CHECK(WIFEXITED(status));
  CHECK_EQ(WEXITSTATUS(status), 0);
  disk_close(&disk);
}

/* ---- syncs that fail ---- */

static void poisoned(struct disk *disk) {
  if (disk->simulation == NULL) {
    return;
  }
  struct io_file *file = disk_file(disk, "poisoned", NEW_FILE);
  struct io_file *other = disk_file(disk, "other", NEW_FILE);
  struct io_ring *ring = NULL;
  CHECK_OK(io_ring_lease(disk->system, &ring, NULL));
  CHECK_OK(io_file_write(file, "abc", 3, 0, NULL));
  CHECK_OK(io_file_sync(file, NULL));
  turb_simulation_fail_at(disk->simulation, turb_simulation_operations(disk->simulation) + 1, ENOSPC);
  turb_error error = TURB_ERROR_INIT;
  CHECK_STATUS(io_file_sync(file, &error), TURB_NO_SPACE);
  CHECK(test_contains(error.message, "poisoned"));
  const uint64_t before = turb_simulation_operations(disk->simulation);
  CHECK_STATUS(io_file_sync(file, NULL), TURB_NO_SPACE);
  struct tracked write = tracked_transfer(IO_WRITE, file, (void *)(uintptr_t) "xyz", 3, 0);
  struct tracked sync = tracked_sync(file);
  struct tracked good = tracked_sync(other);
  write.op.flags = IO_OP_LINKED;
  tracked_queue(ring, &write);
  tracked_queue(ring, &sync);
  tracked_queue(ring, &good);
  CHECK_OK(io_ring_wait(ring, 3, IO_NO_TIMEOUT, NULL));
  CHECK_OK(io_op_status(&write.op, NULL));
  CHECK_STATUS(io_op_status(&sync.op, NULL), TURB_NO_SPACE);
  CHECK_OK(io_op_status(&good.op, NULL));
  CHECK_EQ(turb_simulation_operations(disk->simulation), before + 2); /* the sync was not tried again */
  /* On the ring, the same. */
  struct tracked failing = tracked_sync(other);
  turb_simulation_fail_at(disk->simulation, turb_simulation_operations(disk->simulation) + 1, EIO);
  tracked_queue(ring, &failing);
  tracked_wait(ring, &failing);
  CHECK_STATUS(io_op_status(&failing.op, NULL), TURB_IO);
  CHECK_STATUS(io_file_sync(other, NULL), TURB_IO);
  const uint64_t tried = turb_simulation_operations(disk->simulation);
  tracked_queue(ring, &failing);
  tracked_wait(ring, &failing);
  CHECK_STATUS(io_op_status(&failing.op, NULL), TURB_IO);
  CHECK_EQ(turb_simulation_operations(disk->simulation), tried);
  io_ring_return(ring);
  io_file_release(other);
  io_file_release(file);
}

TEST(file, failed_sync_is_final) {
  disk_each(poisoned);
}

/* ---- buffers ---- */

TEST(buffer, is_aligned_charged_and_bounded) {
  struct test_allocator allocator;
  struct budget budget;
  test_allocator_init(&allocator);
  budget_init(&budget, 16384);
  void *buffer = NULL;
  void *second = NULL;
  CHECK_OK(io_buffer_alloc(&allocator.base, &budget, BUDGET_CURSOR, 5000, &buffer, NULL));
  CHECK_EQ((uintptr_t)buffer % IO_DIRECT_ALIGNMENT, 0);
  CHECK_EQ(budget_used_for(&budget, BUDGET_CURSOR), 8192);
  turb_error error = TURB_ERROR_INIT;
  CHECK_STATUS(io_buffer_alloc(&allocator.base, &budget, BUDGET_CURSOR, 8193, &second, &error), TURB_BUDGET);
  CHECK(second == NULL);
  test_allocator_fail_at(&allocator, 1);
  CHECK_STATUS(io_buffer_alloc(&allocator.base, &budget, BUDGET_CURSOR, 8192, &second, NULL), TURB_NO_MEMORY);
  CHECK_STATUS(io_buffer_alloc(&allocator.base, NULL, BUDGET_CURSOR, SIZE_MAX, &second, NULL), TURB_NO_MEMORY);
  io_buffer_free(&allocator.base, &budget, BUDGET_CURSOR, buffer, 5000);
  io_buffer_free(&allocator.base, &budget, BUDGET_CURSOR, NULL, 1);
  CHECK_EQ(budget_used(&budget), 0);
  test_allocator_check_empty(&allocator);
}
