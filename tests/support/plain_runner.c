/*
 * The plain runner: every test in a child process, one after the other, and Criterion's kind of closing line.
 *
 * Arguments: parts of "suite.name" to run (all when none); --list; --no-fork for a debugger.
 */
#ifdef TURB_PLAIN_RUNNER

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/support/test.h"

static struct test_case *first_test;

void test_register(struct test_case *test) {
  test->next = first_test;
  first_test = test;
}

/* Constructors run in the order of the source in each file; the list was built from its front. */
static struct test_case *reverse(struct test_case *test) {
  struct test_case *reversed = NULL;
  while (test != NULL) {
    struct test_case *next = test->next;
    test->next = reversed;
    reversed = test;
    test = next;
  }
  return reversed;
}

static bool is_wanted(const struct test_case *test, int count, char **filters) {
  char name[512];
  (void)snprintf(name, sizeof name, "%s.%s", test->suite, test->name);
  bool filtered = false;
  for (int i = 1; i < count; i++) {
    if (filters[i][0] != '-') {
      filtered = true;
      if (strstr(name, filters[i]) != NULL) {
        return true;
      }
    }
  }
  return !filtered;
}

/* Waits for child, and ends it when its time is over. False when waiting failed. */
static bool wait_for(const struct test_case *test, pid_t child, int *status) {
  const uint64_t limit_ns = clock_monotonic_ns() + test->timeout_seconds * CLOCK_NS_PER_SECOND;
  struct timespec pause = {.tv_nsec = 200000};
  for (;;) {
    const pid_t ended = waitpid(child, status, WNOHANG);
    if (ended != 0) {
      return ended == child;
    }
    if (test_scale_kind() != TEST_SOAK && clock_monotonic_ns() > limit_ns) {
      fprintf(stderr, "%s.%s: time limit of %u s reached\n", test->suite, test->name, test->timeout_seconds);
      (void)kill(child, SIGKILL);
      return waitpid(child, status, 0) == child;
    }
    (void)nanosleep(&pause, NULL);
    pause.tv_nsec = pause.tv_nsec < 10000000 ? pause.tv_nsec * 2 : pause.tv_nsec;
  }
}

/* Runs one test in a child; false when the child did not end with 0. */
static bool run_forked(const struct test_case *test) {
  fflush(NULL);
  const pid_t child = fork();
  if (child == 0) {
    test->run();
    exit(0);
  }
  int status = 0;
  if (child < 0 || !wait_for(test, child, &status)) {
    perror("test: fork");
    return false;
  }
  if (WIFSIGNALED(status)) {
    fprintf(stderr, "%s.%s: ended by signal %d\n", test->suite, test->name, WTERMSIG(status));
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static bool has_flag(int count, char **arguments, const char *flag) {
  for (int i = 1; i < count; i++) {
    if (strcmp(arguments[i], flag) == 0) {
      return true;
    }
  }
  return false;
}

int main(int count, char **arguments) {
  const bool list = has_flag(count, arguments, "--list");
  const bool no_fork = has_flag(count, arguments, "--no-fork");
  unsigned tested = 0;
  unsigned passed = 0;
  for (struct test_case *test = reverse(first_test); test != NULL; test = test->next) {
    if (!is_wanted(test, count, arguments)) {
      continue;
    }
    if (list) {
      printf("%s.%s\n", test->suite, test->name);
      continue;
    }
    tested++;
    const uint64_t start_ns = clock_monotonic_ns();
    bool good = true;
    if (no_fork) {
      test->run();
    } else {
      good = run_forked(test);
    }
    passed += good;
    if (!good || getenv("TURB_TEST_VERBOSE") != NULL) {
      fprintf(stderr, "[%s] %s::%s: (%.2fs)\n", good ? "PASS" : "FAIL", test->suite, test->name,
              (double)(clock_monotonic_ns() - start_ns) / 1e9);
    }
  }
  if (!list) {
    fprintf(stderr, "[====] Synthesis: Tested: %u | Passing: %u | Failing: %u | Crashing: 0 \n", tested, passed, tested - passed);
  }
  return passed == tested ? 0 : 1;
}

#endif
typedef int test_plain_runner_translation_unit; /* never empty */
