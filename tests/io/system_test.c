/* Systems: the choice of the backend and what happens where the machine refuses something. */
#include <errno.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/io/disk.h"

#define READ_WRITE (IO_OPEN_READ | IO_OPEN_WRITE)
#define NEW_FILE   (READ_WRITE | IO_OPEN_CREATE | IO_OPEN_TRUNCATE)

/* Whether this machine lets us have io_uring at all. */
static bool has_uring(void) {
  struct io_system *system = NULL;
  if (io_system_open(&(struct io_system_options){.backend = TURB_BACKEND_URING}, &system, NULL) != TURB_OK) {
    (void)fprintf(stderr, "io_uring is not to be had here\n");
    return false;
  }
  io_system_close(system);
  return true;
}

/* Runs body in a child, which must exit with 0: what it does to itself stays there. */
static void in_child(void (*body)(const char *folder)) {
  const char *folder = test_tmpdir();
  (void)fflush(NULL);
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    body(folder);
    _exit(0);
  }
  int status = 0;
  CHECK_EQ(waitpid(child, &status, 0), child);
  CHECK_MSG(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child ended with status %x", (unsigned)status);
}

#define IN_CHILD(condition)                                                                                                                \
  do {                                                                                                                                     \
    if (!(condition)) {                                                                                                                    \
      (void)fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                                                \
      _exit(1);                                                                                                                            \
    }                                                                                                                                      \
  } while (0)

/* A system call answers with an errno from here on, as a container's profile does it. */
static void forbid(unsigned number, unsigned os_error) {
  struct sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0 /* offsetof(struct seccomp_data, nr) */),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | os_error),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = {.len = sizeof filter / sizeof filter[0], .filter = filter};
  IN_CHILD(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
  IN_CHILD(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

static void no_completion(struct io_op *op) {
  (*(unsigned *)op->owner)++;
}

/* Writes and reads through a leased ring. */
static bool works(struct io_system *system, const char *folder) {
  struct io_file *file = NULL;
  struct io_ring *ring = NULL;
  unsigned completions = 0;
  static uint8_t data[4096];
  bool good =
      io_file_open(system, test_path(folder, "w"), NEW_FILE, &file, NULL) == TURB_OK && io_ring_lease(system, &ring, NULL) == TURB_OK;
  if (good) {
    struct io_op op = {.kind = IO_WRITE, .file = file, .data = data, .size = sizeof data, .complete = no_completion, .owner = &completions};
    good = io_ring_run(ring, &op, NULL) == TURB_OK && op.done == sizeof data;
    op.kind = IO_READ;
    good = good && io_ring_run(ring, &op, NULL) == TURB_OK && op.done == sizeof data && completions == 2;
    io_ring_return(ring);
  }
  io_file_release(file);
  return good;
}

/* ---- io_uring refused ---- */

TEST(system, says_which_backend_it_has) {
  struct io_system *system = NULL;
  struct io_stats stats;
  CHECK_OK(io_system_open(&(struct io_system_options){.backend = TURB_BACKEND_AUTO}, &system, NULL));
  io_system_stats(system, &stats);
  CHECK(stats.backend == TURB_BACKEND_URING || (stats.backend == TURB_BACKEND_BLOCKING && stats.fell_back));
  CHECK(works(system, test_tmpdir()));
  io_system_close(system);
  CHECK_OK(io_system_open(&(struct io_system_options){.backend = TURB_BACKEND_BLOCKING}, &system, NULL));
  io_system_stats(system, &stats);
  CHECK_EQ(stats.backend, TURB_BACKEND_BLOCKING);
  CHECK(!stats.fell_back);
  io_system_close(system);
  turb_error error = TURB_ERROR_INIT;
  CHECK_STATUS(io_system_open(&(struct io_system_options){.backend = TURB_BACKEND_SIMULATED}, &system, &error), TURB_INVALID);
  CHECK(test_contains(error.message, "simulation"));
  CHECK(system == NULL);
  CHECK_STATUS(io_system_open(&(struct io_system_options){.backend = 9}, &system, NULL), TURB_INVALID);
  CHECK_STATUS(io_system_open(&(struct io_system_options){.ring_entries = 5000}, &system, NULL), TURB_INVALID);
}

TEST(system, auto_falls_back_when_set_up_is_refused) {
  static const int refusals[] = {ENOSYS, EPERM, EACCES, ENOMEM, EINVAL, EMFILE};
  for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
    struct io_system *system = NULL;
    struct io_stats stats;
    struct io_system_options options = {.refused_uring_errno = refusals[i]};
    CHECK_OK(io_system_open(&options, &system, NULL));
    io_system_stats(system, &stats);
    CHECK_EQ(stats.backend, TURB_BACKEND_BLOCKING);
    CHECK(stats.fell_back);
    CHECK_EQ(stats.fallback_errno, refusals[i]);
    CHECK(works(system, test_tmpdir()));
    io_system_close(system);
    /* Who asks for io_uring by name gets the refusal, in words. */
    options.backend = TURB_BACKEND_URING;
    turb_error error = TURB_ERROR_INIT;
    CHECK_NE(io_system_open(&options, &system, &error), TURB_OK);
    CHECK_EQ(error.os_error, refusals[i]);
    CHECK(system == NULL);
  }
}

static void under_seccomp(const char *folder, unsigned os_error) {
  forbid(SYS_io_uring_setup, os_error);
  struct io_system *system = NULL;
  struct io_stats stats;
  IN_CHILD(io_system_open(&(struct io_system_options){.backend = TURB_BACKEND_URING}, &system, NULL) != TURB_OK);
  IN_CHILD(io_system_open(&(struct io_system_options){.backend = TURB_BACKEND_AUTO}, &system, NULL) == TURB_OK);
  io_system_stats(system, &stats);
  IN_CHILD(stats.backend == TURB_BACKEND_BLOCKING && stats.fell_back && stats.fallback_errno == (int)os_error);
  IN_CHILD(works(system, folder));
  io_system_close(system);
}

static void under_seccomp_eperm(const char *folder) {
  under_seccomp(folder, EPERM);
}

static void under_seccomp_enosys(const char *folder) {
  under_seccomp(folder, ENOSYS);
}

TEST(system, auto_falls_back_under_seccomp) {
  in_child(under_seccomp_eperm);
  in_child(under_seccomp_enosys);
}

/* The filter comes when the system is open and its pool is empty: rings made from then on are blocking ones. */
static void filter_comes_later(const char *folder) {
  struct io_system *system = NULL;
  IN_CHILD(io_system_open(&(struct io_system_options){.backend = TURB_BACKEND_AUTO}, &system, NULL) == TURB_OK);
  struct io_ring *first = NULL;
  IN_CHILD(io_ring_lease(system, &first, NULL) == TURB_OK);
  forbid(SYS_io_uring_setup, EPERM);
  IN_CHILD(works(system, folder));
  struct io_stats stats;
  io_system_stats(system, &stats);
  IN_CHILD(stats.backend == TURB_BACKEND_URING && stats.fell_back && stats.fallback_errno == EPERM);
  io_ring_return(first);
  IN_CHILD(works(system, folder)); /* the first one is still good */
  io_system_close(system);
}

TEST(system, ring_refused_later_is_made_blocking) {
  if (has_uring()) {
    in_child(filter_comes_later);
  }
}

/* The kernel takes no more submissions: they fail with the cause, stay queued, and destroying the ring completes each once. */
static void enter_forbidden(const char *folder) {
  struct io_system *system = NULL;
  struct io_file *file = NULL;
  struct io_ring *ring = NULL;
  IN_CHILD(io_system_open(&(struct io_system_options){.backend = TURB_BACKEND_URING}, &system, NULL) == TURB_OK);
  IN_CHILD(io_file_open(system, test_path(folder, "f"), NEW_FILE, &file, NULL) == TURB_OK);
  IN_CHILD(io_ring_create(system, &(struct io_ring_options){.entries = 8}, &ring, NULL) == TURB_OK);
  forbid(SYS_io_uring_enter, ENOMEM);
  static uint8_t data[4 << 20];
  struct io_op ops[8];
  unsigned completions[8] = {0};
  for (size_t i = 0; i < 8; i++) {
    ops[i] = (struct io_op){.kind = IO_WRITE, .file = file, .data = data, .size = i == 0 ? sizeof data : 512, .complete = no_completion};
    ops[i].owner = &completions[i];
    ops[i].flags = i == 3 ? IO_OP_LINKED : 0;
    IN_CHILD(io_ring_queue(ring, &ops[i]));
  }
  turb_error error = TURB_ERROR_INIT;
  IN_CHILD(io_ring_submit(ring, &error) == TURB_NO_MEMORY);
  IN_CHILD(error.os_error == ENOMEM);
  IN_CHILD(io_ring_wait(ring, 1, IO_NO_TIMEOUT, NULL) == TURB_NO_MEMORY);
  IN_CHILD(io_ring_wait(ring, 1, 1000000, NULL) == TURB_NO_MEMORY);
  IN_CHILD(io_ring_poll(ring) == 0);
  IN_CHILD(io_ring_in_flight(ring) == 8);
  io_ring_cancel(ring, &ops[5]);
  io_ring_destroy(ring);
  for (size_t i = 0; i < 8; i++) {
    IN_CHILD(completions[i] == 1 && ops[i].status == TURB_CANCELLED);
  }
  io_file_release(file);
  io_system_close(system);
}

TEST(system, refused_submission_loses_nothing) {
  if (has_uring()) {
    in_child(enter_forbidden);
  }
}

/* ---- limits ---- */

static size_t granted(struct io_system *system) {
  struct io_ring *ring = NULL;
  size_t size = 0;
  IN_CHILD(io_ring_create(system, &(struct io_ring_options){.fixed_buffer = true}, &ring, NULL) == TURB_OK);
  const bool there = io_ring_fixed_buffer(ring, &size) != NULL;
  IN_CHILD(there == (size != 0));
  struct io_stats stats;
  io_system_stats(system, &stats);
  IN_CHILD(stats.registered_buffer_bytes == size);
  io_ring_destroy(ring);
  return size;
}

TEST(system, registered_buffer_shrinks_by_halves) {
  if (!has_uring()) {
    return;
  }
  static const struct {
    uint64_t wish, refused;
    size_t granted;
  } cases[] = {{1 << 20, 0, 1 << 20}, {1 << 20, 400000, 262144}, {1 << 20, 1, 0}, {1 << 20, 65537, 65536}, {1 << 20, 65536, 0}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    struct io_system *system = NULL;
    const struct io_system_options options = {
        .backend = TURB_BACKEND_URING, .registered_buffer_bytes = cases[i].wish, .refused_register_bytes = cases[i].refused};
    CHECK_OK(io_system_open(&options, &system, NULL));
    CHECK_EQ(granted(system), cases[i].granted);
    io_system_close(system);
  }
}

/* As an ordinary user with little memory to lock. The kernel counts what all rings of a user lock, so that a bound is all that can be said. */
static void little_memory_to_lock(const char *folder) {
  struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
  struct __user_cap_data_struct none[2] = {{0}};
  const struct rlimit limit = {.rlim_cur = 300 << 10, .rlim_max = 300 << 10};
  IN_CHILD(setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
  IN_CHILD(syscall(SYS_capset, &header, none) == 0);
  struct io_system *system = NULL;
  IN_CHILD(io_system_open(&(struct io_system_options){.backend = TURB_BACKEND_URING, .registered_buffer_bytes = 1 << 20}, &system, NULL) ==
           TURB_OK);
  const size_t size = granted(system);
  (void)fprintf(stderr, "300 KiB to lock: %zu bytes registered\n", size);
  IN_CHILD(size <= 256 << 10);
  IN_CHILD(works(system, folder));
  io_system_close(system);
}

TEST(system, registered_buffer_obeys_the_limit_of_locked_memory) {
  if (has_uring()) {
    in_child(little_memory_to_lock);
  }
}

static void no_descriptors_left(const char *folder) {
  struct io_system *system = NULL;
  struct io_file *file = NULL;
  IN_CHILD(io_system_open(&(struct io_system_options){.backend = TURB_BACKEND_AUTO}, &system, NULL) == TURB_OK);
  IN_CHILD(io_file_open(system, test_path(folder, "f"), NEW_FILE, &file, NULL) == TURB_OK);
  struct io_ring *first = NULL;
  IN_CHILD(io_ring_lease(system, &first, NULL) == TURB_OK);
  const struct rlimit limit = {.rlim_cur = 3, .rlim_max = 3};
  IN_CHILD(setrlimit(RLIMIT_NOFILE, &limit) == 0);
  struct io_file *more = NULL;
  turb_error error = TURB_ERROR_INIT;
  IN_CHILD(io_file_open(system, test_path(folder, "g"), NEW_FILE, &more, &error) == TURB_TOO_MANY_FILES);
  IN_CHILD(more == NULL);
  /* A ring needs a descriptor too; reads go on without. */
  struct io_ring *second = NULL;
  IN_CHILD(io_ring_lease(system, &second, NULL) == TURB_OK);
  unsigned completions = 0;
  static uint8_t data[512];
  struct io_op op = {.kind = IO_WRITE, .file = file, .data = data, .size = 512, .complete = no_completion, .owner = &completions};
  IN_CHILD(io_ring_run(second, &op, NULL) == TURB_OK && completions == 1);
  struct io_op open = {
      .kind = IO_OPEN, .path = test_path(folder, "f"), .open_flags = IO_OPEN_READ, .complete = no_completion, .owner = &completions};
  IN_CHILD(io_ring_run(first, &open, NULL) == TURB_TOO_MANY_FILES && open.opened == NULL);
  io_ring_return(second);
  io_ring_return(first);
  io_file_release(file);
  io_system_close(system);
}

TEST(system, full_table_of_descriptors_fails_opens_and_no_reads) {
  in_child(no_descriptors_left);
}

TEST(system, ring_is_charged_and_refused_by_the_budget) {
  struct budget budget;
  struct io_system *system = NULL;
  budget_init(&budget, 200 << 10);
  turb_error error = TURB_ERROR_INIT;
  CHECK_OK(io_system_open(&(struct io_system_options){.budget = &budget, .ring_entries = 256}, &system, NULL));
  CHECK_GT(budget_used(&budget), 256 * sizeof(void *));
  struct io_ring *ring = NULL;
  CHECK_STATUS(io_ring_create(system, &(struct io_ring_options){.entries = 4096}, &ring, &error), TURB_BUDGET);
  CHECK(ring == NULL);
  CHECK(test_contains(error.message, "budget"));
  /* A buffer that the budget has no room for is not granted; the ring works without. */
  CHECK_OK(io_ring_create(system, &(struct io_ring_options){.entries = 8, .fixed_buffer = true}, &ring, NULL));
  size_t size = 0;
  (void)io_ring_fixed_buffer(ring, &size);
  CHECK_LE(size, 200 << 10);
  io_ring_destroy(ring);
  io_system_close(system);
  CHECK_EQ(budget_used(&budget), 0);
}

/* ---- every allocation fails once ---- */

struct attempt {
  struct test_allocator allocator;
  turb_status status; /* the first failure */
};

static void note(struct attempt *attempt, turb_status status) {
  if (attempt->status == TURB_OK) {
    attempt->status = status;
  }
}

/* A little of everything; whatever fails, the rest goes on with what there is. */
static void everything(struct attempt *attempt, turb_backend backend, turb_simulation *simulation, const char *folder) {
  struct io_system *system = NULL;
  note(attempt,
       io_system_open(&(struct io_system_options){.backend = backend, .simulation = simulation, .allocator = &attempt->allocator.base},
                      &system, NULL));
  if (system == NULL) {
    return;
  }
  struct io_lock *lock = NULL;
  struct io_file *file = NULL;
  struct io_ring *ring = NULL;
  static uint8_t data[20000];
  note(attempt, io_lock(system, test_path(folder, "LOCK"), false, &lock, NULL));
  note(attempt, io_file_open(system, test_path(folder, "f"), NEW_FILE, &file, NULL));
  note(attempt, io_ring_create(system, &(struct io_ring_options){.entries = 8, .pollable = true, .fixed_buffer = true}, &ring, NULL));
  if (ring != NULL) {
    unsigned completions = 0;
    unsigned queued = 0;
    struct io_op ops[5] = {
        {.kind = IO_OPEN, .path = test_path(folder, "g"), .open_flags = NEW_FILE},
        {.kind = IO_WRITE, .flags = IO_OP_LINKED, .data = data, .size = sizeof data},
        {.kind = IO_OPEN, .flags = IO_OP_LINKED, .path = test_path(folder, "h"), .open_flags = NEW_FILE},
        {.kind = IO_SYNC},
        {.kind = IO_UNLINK, .path = test_path(folder, "none")},
    };
    for (size_t i = 0; i < 5; i++) {
      ops[i].complete = no_completion;
      ops[i].owner = &completions;
      ops[i].file = file;
      if (file != NULL || (i != 1 && i != 3)) {
        CHECK(io_ring_queue(ring, &ops[i]));
        queued++;
      }
    }
    CHECK_OK(io_ring_wait(ring, queued, IO_NO_TIMEOUT, NULL));
    CHECK_EQ(completions, queued);
    for (size_t i = 0; i < 4; i++) {
      if (ops[i].state == IO_OP_DONE && ops[i].status != TURB_CANCELLED) {
        note(attempt, ops[i].status);
      }
      io_file_release(ops[i].opened);
    }
  }
  io_ring_destroy(ring);
  note(attempt, io_rename(system, test_path(folder, "f"), test_path(folder, "renamed"), NULL));
  note(attempt, io_sync_folder(system, folder, NULL));
  io_file_release(file);
  io_unlock(lock);
  io_system_close(system);
}

static void each_allocation_fails(turb_backend backend) {
  struct attempt attempt;
  const int descriptors = disk_count_descriptors();
  test_allocator_init(&attempt.allocator);
  for (uint64_t n = 1;; n++) {
    attempt.status = TURB_OK;
    turb_simulation *simulation = NULL;
    const char *folder = backend == TURB_BACKEND_SIMULATED ? "/" : test_tmpdir();
    test_allocator_fail_at(&attempt.allocator, n);
    if (backend == TURB_BACKEND_SIMULATED) {
      turb_simulation_options options = TURB_SIMULATION_OPTIONS_INIT;
      options.allocator = &attempt.allocator.base;
      note(&attempt, turb_simulation_create(&options, &simulation, NULL));
    }
    if (backend != TURB_BACKEND_SIMULATED || simulation != NULL) {
      everything(&attempt, backend, simulation, folder);
    }
    if (simulation != NULL) {
      turb_simulation_restart(simulation);
    }
    turb_simulation_free(simulation);
    test_allocator_check_empty(&attempt.allocator);
    CHECK_EQ(disk_count_descriptors(), descriptors);
    if (!attempt.allocator.failed) {
      CHECK_OK(attempt.status);
      CHECK_GT(n, 10);
      break;
    }
    /* A registered buffer is a wish: without memory for it all goes on. */
    CHECK(attempt.status == TURB_NO_MEMORY || attempt.status == TURB_OK || attempt.status == TURB_NOT_FOUND);
  }
}

TEST(system, each_allocation_fails_once) {
  if (has_uring()) {
    each_allocation_fails(TURB_BACKEND_URING);
  }
  each_allocation_fails(TURB_BACKEND_BLOCKING);
  each_allocation_fails(TURB_BACKEND_SIMULATED);
}
