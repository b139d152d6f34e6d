/* confined.h has the contract. */
#include "tests/support/confined.h"

#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/test.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED true
#else
#define SANITIZED false
#endif

#define NO_STRICT_MODE 77

void test_confined(bool (*body)(void *context), void *context) {
  if (SANITIZED)
    return;
  fflush(NULL);
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) != 0)
      _exit(NO_STRICT_MODE);
    (void)syscall(SYS_exit, body(context) ? 0 : 1);
  }
  int status = 0;
  CHECK_EQ(waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == NO_STRICT_MODE) {
    fprintf(stderr, "this system has no strict mode of seccomp\n");
    return;
  }
  CHECK_MSG(!WIFSIGNALED(status), "what must make no system call made one (signal %d)", WTERMSIG(status));
  CHECK_EQ(WEXITSTATUS(status), 0);
}
