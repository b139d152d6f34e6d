/* tests/support/confined: code that must make no system call. */
#ifndef TURB_TESTS_SUPPORT_CONFINED_H
#define TURB_TESTS_SUPPORT_CONFINED_H

#include <stdbool.h>

/* Runs `body` in a child process that may do nothing but read, write and exit (seccomp's strict mode), and checks that it returned true and
 * was not ended for a system call. Sanitizers make calls of their own: under them, and on a system without that mode, nothing is run; the
 * latter is said on standard error. */
void test_confined(bool (*body)(void *context), void *context);

#endif
