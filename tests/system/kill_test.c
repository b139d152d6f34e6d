/* A writer process is killed at random; what it acknowledged is there. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/test.h"

#define DIMENSION 16

static void fill(uint64_t number, float *vector) {
  for (int i = 0; i < DIMENSION; i++)
    vector[i] = (float)((number * 13 + (uint64_t)i) % 1021);
}

static turb_status open_db(const char *path, turb_db **db, turb_collection **collection, turb_error *err) {
  turb_options options = TURB_OPTIONS_INIT;
  options.memory_budget_bytes = 32 << 20;
  options.memtable_bytes = 256 << 10;
  options.table_bytes = 256 << 10;
  options.size_ratio = 4;
  turb_status status = turb_open(path, &options, db, err);
  if (status != TURB_OK)
    return status;
  status = turb_collection_open(*db, "k", collection, NULL);
  if (status != TURB_NOT_FOUND)
    return status;
  turb_collection_options shape = TURB_COLLECTION_OPTIONS_INIT;
  shape.dimension = DIMENSION;
  return turb_collection_create(*db, "k", &shape, collection, err);
}

/* Puts entries with rising numbers and tells each through the pipe after it was acknowledged. */
static void write_for_ever(const char *path, uint64_t first, int pipe_end) {
  turb_db *db;
  turb_collection *collection;
  turb_error err = TURB_ERROR_INIT;
  if (open_db(path, &db, &collection, &err) != TURB_OK)
    _exit(2);
  turb_write_options options = TURB_WRITE_OPTIONS_INIT;
  for (uint64_t n = first;; n++) {
    float vector[DIMENSION];
    fill(n, vector);
    const uint64_t key = __builtin_bswap64(n * UINT64_C(0x9e3779b97f4a7c15));
    options.durability = n % 50 ? TURB_LOGGED : TURB_DURABLE; /* a killed process loses neither */
    if (turb_put(collection, (turb_bytes){&key, sizeof key}, (turb_bytes){vector, sizeof vector}, (turb_bytes){&n, sizeof n}, &options,
                 &err) != TURB_OK)
      _exit(3);
    if (write(pipe_end, &n, sizeof n) != (ssize_t)sizeof n)
      _exit(4);
  }
}

static void verify(const char *path, uint64_t last) {
  turb_db *db;
  turb_collection *collection;
  turb_error err = TURB_ERROR_INIT;
  CHECK_OK_ERR(open_db(path, &db, &collection, &err), &err);
  for (uint64_t n = 1; n <= last; n++) {
    const uint64_t key = __builtin_bswap64(n * UINT64_C(0x9e3779b97f4a7c15));
    float wanted[DIMENSION], vector[DIMENSION];
    uint64_t attribute;
    size_t size;
    fill(n, wanted);
    const turb_status status =
        turb_get(collection, (turb_bytes){&key, sizeof key}, NULL, vector, &attribute, sizeof attribute, &size, NULL, &err);
    CHECK_MSG(status == TURB_OK, "entry %llu of %llu: %s", (unsigned long long)n, (unsigned long long)last, err.message);
    CHECK_MEM_EQ(vector, wanted, sizeof wanted);
    CHECK_EQ(size, sizeof attribute);
    CHECK_EQ(attribute, n);
  }
  CHECK_OK_ERR(turb_close(db, &err), &err);
}

TEST(killed, keeps_what_was_acknowledged) {
  const uint64_t seed = test_seed();
  const char *path = test_path(test_tmpdir(), "db");
  char kept[256];
  (void)snprintf(kept, sizeof kept, "%s", path);
  struct rng {
    uint64_t state;
  } rng = {seed};
  uint64_t last = 0;
  const uint64_t kills = test_scale(8, 4, 50);
  for (uint64_t i = 0; i < kills; i++) {
    int ends[2];
    CHECK_EQ(pipe(ends), 0);
    const pid_t child = fork();
    CHECK_GE(child, 0);
    if (child == 0) {
      close(ends[0]);
      write_for_ever(kept, last + 1, ends[1]);
    }
    close(ends[1]);
    rng.state = rng.state * UINT64_C(6364136223846793005) + 1442695040888963407u;
    (void)usleep((useconds_t)(20000 + (rng.state >> 33) % 150000));
    CHECK_EQ(kill(child, SIGKILL), 0);
    int status;
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK(WIFSIGNALED(status));
    uint64_t n;
    while (read(ends[0], &n, sizeof n) == (ssize_t)sizeof n)
      last = n;
    close(ends[0]);
    if (i % 8 == 7 || i + 1 == kills)
      verify(kept, last);
  }
}
