/* Opening and closing, options, and what users get wrong: each has its own error, naming what is wrong. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/test.h"

static turb_error err;

static turb_error *fresh(void) {
  err = (turb_error)TURB_ERROR_INIT;
  return &err;
}

/* The test's one database; each test runs in a process of its own. */
static const char *new_path(void) {
  static char path[512];
  if (path[0])
    return path;
  (void)snprintf(path, sizeof path, "%s/db", test_tmpdir());
  return path;
}

static turb_db *open_small(const char *path) {
  turb_options options = TURB_OPTIONS_INIT;
  options.memory_budget_bytes = 16 << 20;
  turb_db *db;
  CHECK_OK_ERR(turb_open(path, &options, &db, fresh()), &err);
  return db;
}

static turb_collection *make(turb_db *db, const char *name, uint32_t dimension) {
  turb_collection_options options = TURB_COLLECTION_OPTIONS_INIT;
  options.dimension = dimension;
  turb_collection *collection;
  CHECK_OK_ERR(turb_collection_create(db, name, &options, &collection, fresh()), &err);
  return collection;
}

static void put(turb_collection *collection, const char *key, float value) {
  const float vector[2] = {value, -value};
  CHECK_OK_ERR(turb_put(collection, (turb_bytes){key, strlen(key)}, (turb_bytes){vector, sizeof vector}, TURB_NONE, NULL, fresh()), &err);
}

TEST(open, refuses_options_out_of_bounds_by_name) {
  static const struct {
    const char *name;
    size_t offset, size;
    uint64_t value;
  } cases[] = {
      {"memory_budget_bytes", offsetof(turb_options, memory_budget_bytes), 8, 1 << 20},
      {"memtable_bytes", offsetof(turb_options, memtable_bytes), 8, 1000},
      {"table_bytes", offsetof(turb_options, table_bytes), 8, 1},
      {"size_ratio", offsetof(turb_options, size_ratio), 4, 1},
      {"max_space_amplification_percent", offsetof(turb_options, max_space_amplification_percent), 4, 5000},
      {"ring_entries", offsetof(turb_options, ring_entries), 4, 1 << 20},
      {"durability", offsetof(turb_options, durability), 4, 9},
      {"backend", offsetof(turb_options, backend), 4, 77},
      {"worker_threads", offsetof(turb_options, worker_threads), 4, 1000},
      {"simulation", offsetof(turb_options, backend), 4, TURB_BACKEND_SIMULATED},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    turb_options options = TURB_OPTIONS_INIT;
    memcpy((char *)&options + cases[i].offset, &cases[i].value, cases[i].size);
    turb_db *db = (turb_db *)1;
    CHECK_STATUS_ERR(turb_open(new_path(), &options, &db, fresh()), TURB_INVALID, &err);
    CHECK(db == NULL);
    CHECK_MSG(test_contains(err.message, cases[i].name), "%s is not named: %s", cases[i].name, err.message);
  }
}

TEST(open, refuses_unknown_options_and_missing_sizes) {
  struct {
    turb_options known;
    uint64_t unknown;
  } options = {.known = TURB_OPTIONS_INIT};
  options.known.size = sizeof options;
  turb_db *db;
  CHECK_OK_ERR(turb_open(new_path(), &options.known, &db, fresh()), &err); /* a tail of zeros is fine */
  CHECK_OK(turb_close(db, NULL));
  options.unknown = 1;
  CHECK_STATUS_ERR(turb_open(new_path(), &options.known, &db, fresh()), TURB_INVALID, &err);
  options.known.size = 0;
  CHECK_STATUS_ERR(turb_open(new_path(), &options.known, &db, fresh()), TURB_INVALID, &err);
}

TEST(open, tells_apart_what_is_no_database) {
  turb_options options = TURB_OPTIONS_INIT;
  turb_db *db;
  options.create_if_missing = false;
  CHECK_STATUS_ERR(turb_open(new_path(), &options, &db, fresh()), TURB_NOT_FOUND, &err);
  CHECK_NE(access(new_path(), F_OK), 0); /* and nothing was littered */
  CHECK_EQ(mkdir(new_path(), 0755), 0);
  int fd = open(test_path(new_path(), "MANIFEST"), O_CREAT | O_WRONLY, 0644);
  CHECK_EQ(write(fd, "something else altogether, not ours at all", 42), 42);
  close(fd);
  CHECK_STATUS_ERR(turb_open(new_path(), NULL, &db, fresh()), TURB_NOT_A_DATABASE, &err);
  CHECK_EQ(unlink(test_path(new_path(), "MANIFEST")), 0);
  fd = open(test_path(new_path(), "log-000000000001.tlog"), O_CREAT | O_WRONLY, 0644);
  close(fd);
  CHECK_STATUS_ERR(turb_open(new_path(), NULL, &db, fresh()), TURB_NOT_A_DATABASE, &err);
}

TEST(open, holds_a_lock) {
  turb_db *db = open_small(new_path()), *second;
  CHECK_STATUS_ERR(turb_open(new_path(), NULL, &second, fresh()), TURB_LOCKED, &err);
  turb_options options = TURB_OPTIONS_INIT;
  options.read_only = true;
  CHECK_STATUS_ERR(turb_open(new_path(), &options, &second, fresh()), TURB_LOCKED, &err);
  CHECK_OK(turb_close(db, NULL));
  turb_db *readers[2];
  CHECK_OK_ERR(turb_open(new_path(), &options, &readers[0], fresh()), &err);
  CHECK_OK_ERR(turb_open(new_path(), &options, &readers[1], fresh()), &err);
  CHECK_STATUS_ERR(turb_open(new_path(), NULL, &second, fresh()), TURB_LOCKED, &err);
  CHECK_OK(turb_close(readers[0], NULL));
  CHECK_OK(turb_close(readers[1], NULL));
  options = (turb_options)TURB_OPTIONS_INIT;
  options.error_if_exists = true;
  CHECK_STATUS_ERR(turb_open(new_path(), &options, &db, fresh()), TURB_EXISTS, &err);
}

TEST(open, read_only_sees_the_log_and_writes_nothing) {
  turb_db *db = open_small(new_path());
  turb_collection *c = make(db, "c", 2);
  put(c, "in a table", 1);
  CHECK_OK_ERR(turb_flush(db, NULL, fresh()), &err);
  put(c, "in the log", 2);
  CHECK_OK(turb_close(db, NULL));
  turb_options options = TURB_OPTIONS_INIT;
  options.read_only = true;
  CHECK_OK_ERR(turb_open(new_path(), &options, &db, fresh()), &err);
  CHECK_OK_ERR(turb_collection_open(db, "c", &c, fresh()), &err);
  float vector[2];
  CHECK_OK_ERR(turb_get(c, TURB_STR("in a table"), NULL, vector, NULL, 0, NULL, NULL, fresh()), &err);
  CHECK_OK_ERR(turb_get(c, TURB_STR("in the log"), NULL, vector, NULL, 0, NULL, NULL, fresh()), &err);
  CHECK_STATUS_ERR(turb_put(c, TURB_STR("x"), (turb_bytes){vector, sizeof vector}, TURB_NONE, NULL, fresh()), TURB_READ_ONLY, &err);
  CHECK_STATUS_ERR(turb_flush(db, NULL, fresh()), TURB_READ_ONLY, &err);
  CHECK_STATUS_ERR(turb_collection_drop(db, "c", fresh()), TURB_READ_ONLY, &err);
  CHECK_OK(turb_close(db, NULL));
}

/* The log holds more than a memtable takes: recovery flushes on its way, before there are workers. */
TEST_TIMEOUT(open, recovers_more_than_a_memtable, 60) {
  turb_options options = TURB_OPTIONS_INIT;
  options.memory_budget_bytes = 64 << 20;
  options.memtable_bytes = 16 << 20;
  options.durability = TURB_LOGGED;
  turb_db *db;
  CHECK_OK_ERR(turb_open(new_path(), &options, &db, fresh()), &err);
  turb_collection *c = make(db, "c", 256);
  static float vector[256];
  for (uint32_t i = 0; i < 3000; i++) {
    vector[0] = (float)i;
    CHECK_OK_ERR(turb_put(c, (turb_bytes){&i, sizeof i}, (turb_bytes){vector, sizeof vector}, TURB_NONE, NULL, fresh()), &err);
  }
  CHECK_OK(turb_close(db, NULL));
  options.memtable_bytes = 256 << 10;
  for (int workers = 1; workers >= -1; workers -= 2) {
    options.worker_threads = workers;
    CHECK_OK_ERR(turb_open(new_path(), &options, &db, fresh()), &err);
    CHECK_OK_ERR(turb_collection_open(db, "c", &c, fresh()), &err);
    for (uint32_t i = 0; i < 3000; i += 7) {
      CHECK_OK_ERR(turb_get(c, (turb_bytes){&i, sizeof i}, NULL, vector, NULL, 0, NULL, NULL, fresh()), &err);
      CHECK_EQ((uint32_t)vector[0], i);
    }
    CHECK_OK(turb_close(db, NULL));
  }
}

TEST(open, close_is_busy_with_live_objects) {
  turb_db *db = open_small(new_path());
  turb_collection *c = make(db, "c", 2);
  put(c, "a", 1);
  turb_iterator *iterator;
  CHECK_OK_ERR(turb_iterator_open(c, NULL, &iterator, fresh()), &err);
  CHECK_STATUS_ERR(turb_close(db, fresh()), TURB_BUSY, &err);
  turb_iterator_close(iterator);
  turb_snapshot *snapshot;
  CHECK_OK_ERR(turb_snapshot_create(db, &snapshot, fresh()), &err);
  CHECK_STATUS_ERR(turb_close(db, fresh()), TURB_BUSY, &err);
  turb_snapshot_release(snapshot);
  turb_pinned pinned;
  CHECK_OK_ERR(turb_get_pinned(c, TURB_STR("a"), NULL, &pinned, fresh()), &err);
  CHECK_STATUS_ERR(turb_close(db, fresh()), TURB_BUSY, &err);
  turb_pinned_release(&pinned);
  turb_pinned_release(&pinned);
  turb_batch *batch;
  CHECK_OK_ERR(turb_batch_create(db, &batch, fresh()), &err);
  CHECK_STATUS_ERR(turb_close(db, fresh()), TURB_BUSY, &err);
  turb_batch_free(batch);
  turb_loop *loop;
  CHECK_OK_ERR(turb_loop_open(db, &loop, fresh()), &err);
  CHECK_STATUS_ERR(turb_close(db, fresh()), TURB_BUSY, &err);
  CHECK_OK_ERR(turb_loop_close(loop, fresh()), &err);
  CHECK_OK_ERR(turb_close(db, fresh()), &err);
}

TEST(open, a_folder_without_permission) {
  if (geteuid() == 0) { /* root passes every permission: act as somebody else */
    const char *path = new_path();
    char parent[512];
    (void)snprintf(parent, sizeof parent, "%.*s", (int)(strlen(path) - 3), path);
    CHECK_EQ(chmod(parent, 0755), 0);
    CHECK_EQ(seteuid(65534), 0);
  }
  turb_db *db;
  CHECK_STATUS_ERR(turb_open(new_path(), NULL, &db, fresh()), TURB_PERMISSION, &err);
  CHECK_NE(err.file[0], 0);
  if (getuid() == 0)
    CHECK_EQ(seteuid(0), 0);
}

TEST(open, too_many_open_files) {
  turb_db *db = open_small(new_path());
  turb_collection *c = make(db, "c", 2);
  put(c, "kept", 1);
  CHECK_OK(turb_close(db, NULL));
  const struct rlimit few = {3, 3};
  struct rlimit before;
  CHECK_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const struct rlimit lower = {few.rlim_cur, before.rlim_max};
  CHECK_EQ(setrlimit(RLIMIT_NOFILE, &lower), 0);
  turb_options options = TURB_OPTIONS_INIT;
  options.backend = TURB_BACKEND_BLOCKING;
  const turb_status status = turb_open(new_path(), &options, &db, fresh());
  CHECK_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  CHECK_STATUS_ERR(status, TURB_TOO_MANY_FILES, &err);
  db = open_small(new_path());
  CHECK_OK_ERR(turb_collection_open(db, "c", &c, fresh()), &err);
  CHECK_OK_ERR(turb_get(c, TURB_STR("kept"), NULL, NULL, NULL, 0, NULL, NULL, fresh()), &err);
  CHECK_OK(turb_close(db, NULL));
}

TEST(open, a_file_of_another_database) {
  static char other[512];
  (void)snprintf(other, sizeof other, "%s/other", test_tmpdir());
  for (int i = 0; i < 2; i++) {
    turb_db *db = open_small(i ? other : new_path());
    put(make(db, "c", 2), "k", (float)i);
    CHECK_OK_ERR(turb_flush(db, NULL, fresh()), &err);
    CHECK_OK(turb_close(db, NULL));
  }
  /* Both have the same numbers; the tables change places. */
  char command[2048];
  (void)snprintf(command, sizeof command, "cd %s && t=$(basename $(ls table-*)) && cp %s/$t $t", new_path(), other);
  CHECK_EQ(system(command), 0);
  turb_db *db;
  const turb_status status = turb_open(new_path(), NULL, &db, fresh());
  CHECK(status == TURB_NOT_A_DATABASE || status == TURB_CORRUPTION);
  CHECK(test_contains(err.file, "table-"));
}

TEST(open, a_newer_format) {
  turb_db *db = open_small(new_path());
  CHECK_OK(turb_close(db, NULL));
  const int fd = open(test_path(new_path(), "MANIFEST"), O_RDWR);
  const uint32_t version = 99;
  CHECK_EQ(pwrite(fd, &version, sizeof version, 8), (ssize_t)sizeof version);
  close(fd);
  const turb_status status = turb_open(new_path(), NULL, &db, fresh());
  CHECK_MSG(status == TURB_NEWER_FORMAT || status == TURB_CORRUPTION, "%s", turb_status_name(status));
  CHECK(test_contains(err.file, "MANIFEST"));
}
