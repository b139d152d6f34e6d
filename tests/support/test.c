/*
 * Checks, seeds, scale and folders of the test harness; see test.h for the rules.
 *
 * State is per process, and each test has a process of its own.
 */
#include "tests/support/test.h"

#include <ftw.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/lsan_interface.h>
#define TEST_FINDS_LEAKS
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#include <sanitizer/lsan_interface.h>
#define TEST_FINDS_LEAKS
#endif
#endif

#define TMPDIR_MAX 64
#define PATH_BYTES 4096

static struct {
  const char *suite;
  const char *name;
  pthread_t thread;
  pid_t process;
  bool seeded;
  uint64_t seed;
  unsigned folder_count;
  char folders[TMPDIR_MAX][256];
} current;

#ifndef TURB_PLAIN_RUNNER
static void on_alarm(int signal_number) {
  (void)signal_number;
  static const char text[] = "test: time limit reached\n";
  (void)!write(STDERR_FILENO, text, sizeof text - 1);
  _exit(98);
}

/* Our own runner watches from outside, because ThreadSanitizer holds signals back. */
static void limit_time(unsigned seconds) {
  if (test_scale_kind() != TEST_SOAK) {
    (void)signal(SIGALRM, on_alarm);
    (void)alarm(seconds);
  }
}
#else
static void limit_time(unsigned seconds) {
  (void)seconds;
}
#endif

static int remove_entry(const char *path, const struct stat *status, int kind, struct FTW *walk) {
  (void)status;
  (void)kind;
  (void)walk;
  (void)chmod(path, 0700);
  (void)remove(path);
  return 0;
}

static void remove_folders(void) {
  if (getpid() != current.process || getenv("TURB_TEST_KEEP") != NULL) {
    return; /* a child of the test leaves the test's folders alone */
  }
  for (unsigned i = 0; i < current.folder_count; i++) {
    (void)nftw(current.folders[i], remove_entry, 16, FTW_DEPTH | FTW_PHYS);
  }
  current.folder_count = 0;
}

void test_begin(const char *suite, const char *name, unsigned timeout_seconds) {
  current.suite = suite;
  current.name = name;
  current.thread = pthread_self();
  current.process = getpid();
  limit_time(timeout_seconds);
}

void test_end(void) {
  remove_folders();
#ifdef TEST_FINDS_LEAKS
  /* At exit it would be too late: Criterion has reported the test by then. */
  if (__lsan_do_recoverable_leak_check() != 0) {
    test_fail(current.suite, 0, "memory leaked");
  }
#endif
}

/* ---- checks ---- */

void test_fail(const char *file, int line, const char *format, ...) {
  char message[2048];
  va_list arguments;
  va_start(arguments, format);
  (void)vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  fprintf(stderr, "%s:%d: %s.%s: check failed: %s\n", file, line, current.suite != NULL ? current.suite : "?",
          current.name != NULL ? current.name : "?", message);
  if (current.seeded) {
    fprintf(stderr, "%s.%s: replay with TURB_SEED=%" PRIu64 "\n", current.suite, current.name, current.seed);
  }
  fflush(stderr);
#ifndef TURB_PLAIN_RUNNER
  if (getpid() == current.process && pthread_equal(pthread_self(), current.thread)) {
    remove_folders();
    cr_assert_fail("%s:%d: %s", file, line, message);
  }
#endif
  if (getpid() == current.process) {
    remove_folders();
  }
  _exit(99);
}

static bool relation_holds(const char *relation, int order) {
  switch (relation[0]) {
  case '=': return order == 0;
  case '!': return order != 0;
  case '<': return relation[1] == '=' ? order <= 0 : order < 0;
  default: return relation[1] == '=' ? order >= 0 : order > 0;
  }
}

void test_check_i64(const char *file, int line, const char *text, const char *relation, int64_t a, int64_t b) {
  if (!relation_holds(relation, (a > b) - (a < b))) {
    test_fail(file, line, "%s (%" PRId64 " and %" PRId64 ")", text, a, b);
  }
}

void test_check_u64(const char *file, int line, const char *text, const char *relation, uint64_t a, uint64_t b) {
  if (!relation_holds(relation, (a > b) - (a < b))) {
    test_fail(file, line, "%s (%" PRIu64 " and %" PRIu64 ")", text, a, b);
  }
}

void test_check_str(const char *file, int line, const char *text, const char *a, const char *b) {
  if (a == NULL || b == NULL || strcmp(a, b) != 0) {
    test_fail(file, line, "%s (\"%s\" and \"%s\")", text, a != NULL ? a : "(null)", b != NULL ? b : "(null)");
  }
}

void test_check_mem(const char *file, int line, const char *text, const void *a, const void *b, size_t size) {
  if (size == 0) {
    return;
  }
  const uint8_t *a_bytes = a;
  const uint8_t *b_bytes = b;
  if (a == NULL || b == NULL) {
    test_fail(file, line, "%s (NULL, %zu bytes wanted)", text, size);
  }
  for (size_t i = 0; i < size; i++) {
    if (a_bytes[i] != b_bytes[i]) {
      test_fail(file, line, "%s (byte %zu of %zu: %02x and %02x)", text, i, size, a_bytes[i], b_bytes[i]);
    }
  }
}

void test_check_near(const char *file, int line, const char *text, double a, double b, double tolerance) {
  const double difference = a > b ? a - b : b - a;
  if (!(difference <= tolerance) && a != b) {
    test_fail(file, line, "%s (%.17g and %.17g, tolerance %g)", text, a, b, tolerance);
  }
}

void test_check_status(const char *file, int line, const char *text, turb_status got, turb_status wanted, const turb_error *err) {
  if (got != wanted) {
    test_fail(file, line, "%s is %s, not %s%s%s", text, turb_status_name(got), turb_status_name(wanted), err != NULL ? ": " : "",
              err != NULL ? err->message : "");
  }
}

bool test_contains(const char *text, const char *part) {
  return strstr(text, part) != NULL;
}

/* ---- seeds and scale ---- */

uint64_t test_seed(void) {
  if (!current.seeded) {
    const char *given = getenv("TURB_SEED");
    if (given != NULL && *given != '\0') {
      current.seed = strtoull(given, NULL, 0);
    } else if (getrandom(&current.seed, sizeof current.seed, 0) != (ssize_t)sizeof current.seed) {
      current.seed = (uint64_t)getpid();
    }
    current.seeded = true;
    fprintf(stderr, "%s.%s: TURB_SEED=%" PRIu64 "\n", current.suite, current.name, current.seed);
  }
  return current.seed;
}

enum test_scale_kind test_scale_kind(void) {
  const char *scale = getenv("TURB_TEST_SCALE");
  if (scale == NULL || strcmp(scale, "fast") == 0) {
    return TEST_FAST;
  }
  if (strcmp(scale, "short") == 0) {
    return TEST_SHORT;
  }
  return strcmp(scale, "soak") == 0 ? TEST_SOAK : TEST_FULL;
}

uint64_t test_scale(uint64_t fast, uint64_t short_share, uint64_t full) {
  switch (test_scale_kind()) {
  case TEST_FAST: return fast;
  case TEST_SHORT: return short_share;
  case TEST_FULL: return full;
  case TEST_SOAK: break;
  }
  const char *factor = getenv("TURB_SOAK");
  return full * (factor != NULL && *factor != '\0' ? strtoull(factor, NULL, 0) : 20);
}

/* ---- folders ---- */

const char *test_tmpdir(void) {
  const char *parent = getenv("TURB_TEST_TMPDIR");
  if (parent == NULL || *parent == '\0') {
    parent = getenv("TMPDIR");
  }
  if (parent == NULL || *parent == '\0') {
    parent = "/tmp";
  }
  CHECK(current.folder_count < TMPDIR_MAX);
  char *folder = current.folders[current.folder_count];
  const int size = snprintf(folder, sizeof current.folders[0], "%s/turb-test-XXXXXX", parent);
  CHECK(size > 0 && (size_t)size < sizeof current.folders[0]);
  CHECK_MSG(mkdtemp(folder) != NULL, "cannot make a folder in %s", parent);
  current.folder_count++;
  return folder;
}

const char *test_path(const char *folder, const char *name) {
  static _Thread_local char paths[16][PATH_BYTES];
  static _Thread_local unsigned turn;
  char *path = paths[turn++ % 16];
  CHECK(snprintf(path, PATH_BYTES, "%s/%s", folder, name) < PATH_BYTES);
  return path;
}
