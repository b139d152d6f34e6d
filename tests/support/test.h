/*
 * How a test is written.
 *
 *   TEST(block, refuses_a_short_page) {
 *     CHECK_OK(block_open(…));
 *     CHECK_EQ(count, 3);
 *   }
 *
 * The same source runs under Criterion (release, asan) and, with TURB_PLAIN_RUNNER, under our own runner
 * (tsan, where Criterion's sandbox does not start). Each test runs in a process of its own.
 *
 * Rules
 *   1. A failed check ends the test. It may stand in a helper function and on any thread: on another thread
 *      than the test's it ends the process, which both runners report as a failure.
 *   2. Every test has a time limit (TEST: 600 s; TEST_TIMEOUT states one). None counts under soak.
 *   3. A random test takes its seed from test_seed(), which prints it; TURB_SEED=… replays it.
 *   4. Amounts of work come from test_scale(), so that one source serves make check, make test and make soak.
 *
 * Environment: TURB_TEST_SCALE (fast, short, full, soak; fast when unset), TURB_SEED, TURB_SOAK (factor of
 * soak over full, 20), TURB_TEST_TMPDIR (else TMPDIR, else /tmp), TURB_TEST_KEEP=1 keeps the folders.
 */
#ifndef TURB_TESTS_SUPPORT_TEST_H
#define TURB_TESTS_SUPPORT_TEST_H

#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/random.h"
#include "turbidite/turbidite.h"

#define TEST_DEFAULT_SECONDS 600

#ifdef TURB_PLAIN_RUNNER

struct test_case {
  const char *suite;
  const char *name;
  void (*run)(void);
  unsigned timeout_seconds;
  struct test_case *next;
};
void test_register(struct test_case *test);

#define TEST_TIMEOUT(suite_name, test_name, seconds)                                                                                       \
  static void suite_name##_##test_name##_body(void);                                                                                       \
  static void suite_name##_##test_name##_run(void) {                                                                                       \
    test_begin(#suite_name, #test_name, seconds);                                                                                          \
    suite_name##_##test_name##_body();                                                                                                     \
    test_end();                                                                                                                            \
  }                                                                                                                                        \
  __attribute__((constructor)) static void suite_name##_##test_name##_register(void) {                                                     \
    static struct test_case test = {#suite_name, #test_name, suite_name##_##test_name##_run, seconds, NULL};                               \
    test_register(&test);                                                                                                                  \
  }                                                                                                                                        \
  static void suite_name##_##test_name##_body(void)

#else

#include <criterion/criterion.h>

#define TEST_TIMEOUT(suite_name, test_name, seconds)                                                                                       \
  static void suite_name##_##test_name##_body(void);                                                                                       \
  Test(suite_name, test_name) {                                                                                                            \
    test_begin(#suite_name, #test_name, seconds);                                                                                          \
    suite_name##_##test_name##_body();                                                                                                     \
    test_end();                                                                                                                            \
  }                                                                                                                                        \
  static void suite_name##_##test_name##_body(void)

#endif

#define TEST(suite_name, test_name) TEST_TIMEOUT(suite_name, test_name, TEST_DEFAULT_SECONDS)

/* Called by TEST around each body. */
void test_begin(const char *suite, const char *name, unsigned timeout_seconds);
void test_end(void);

/* ---- checks: each ends the test when it does not hold ---- */

__attribute__((format(printf, 3, 4))) _Noreturn void test_fail(const char *file, int line, const char *format, ...);
void test_check_i64(const char *file, int line, const char *text, const char *relation, int64_t a, int64_t b);
void test_check_u64(const char *file, int line, const char *text, const char *relation, uint64_t a, uint64_t b);
void test_check_str(const char *file, int line, const char *text, const char *a, const char *b);
void test_check_mem(const char *file, int line, const char *text, const void *a, const void *b, size_t size);
void test_check_status(const char *file, int line, const char *text, turb_status got, turb_status wanted, const turb_error *err);
void test_check_near(const char *file, int line, const char *text, double a, double b, double tolerance);

/* Ends the test with a message. */
#define FAIL(...) test_fail(__FILE__, __LINE__, __VA_ARGS__)

#define CHECK(condition)                                                                                                                   \
  do {                                                                                                                                     \
    if (!(condition)) {                                                                                                                    \
      test_fail(__FILE__, __LINE__, "%s", #condition);                                                                                     \
    }                                                                                                                                      \
  } while (0)

/* CHECK with a message: CHECK_MSG(a < b, "row %zu", row). */
#define CHECK_MSG(condition, ...)                                                                                                          \
  do {                                                                                                                                     \
    if (!(condition)) {                                                                                                                    \
      test_fail(__FILE__, __LINE__, __VA_ARGS__);                                                                                          \
    }                                                                                                                                      \
  } while (0)

/*
 * Integers, booleans and enums of any width; both values are printed. The comparison is that of 64-bit
 * unsigned numbers when either side is an unsigned 64-bit type, else of signed ones, and equal constants
 * of different width are equal.
 */
#define TEST_IS_U64(x) _Generic((x), unsigned long : 1, unsigned long long : 1, default : 0)
#define TEST_COMPARE(a, relation, b)                                                                                                       \
  ((TEST_IS_U64(a) || TEST_IS_U64(b)) ? test_check_u64(__FILE__, __LINE__, #a " " relation " " #b, relation, (uint64_t)(a), (uint64_t)(b)) \
                                      : test_check_i64(__FILE__, __LINE__, #a " " relation " " #b, relation, (int64_t)(a), (int64_t)(b)))

#define CHECK_EQ(a, b) TEST_COMPARE(a, "==", b)
#define CHECK_NE(a, b) TEST_COMPARE(a, "!=", b)
#define CHECK_LT(a, b) TEST_COMPARE(a, "<", b)
#define CHECK_LE(a, b) TEST_COMPARE(a, "<=", b)
#define CHECK_GT(a, b) TEST_COMPARE(a, ">", b)
#define CHECK_GE(a, b) TEST_COMPARE(a, ">=", b)

/* Terminated strings; bytes; doubles within a tolerance. */
#define CHECK_STR_EQ(a, b)          test_check_str(__FILE__, __LINE__, #a " == " #b, a, b)
#define CHECK_MEM_EQ(a, b, size)    test_check_mem(__FILE__, __LINE__, #a " == " #b, a, b, size)
#define CHECK_NEAR(a, b, tolerance) test_check_near(__FILE__, __LINE__, #a " ~ " #b, a, b, tolerance)

/* A status; the _ERR forms print the error's message too. */
#define CHECK_OK(call)                      test_check_status(__FILE__, __LINE__, #call, call, TURB_OK, NULL)
#define CHECK_OK_ERR(call, err)             test_check_status(__FILE__, __LINE__, #call, call, TURB_OK, err)
#define CHECK_STATUS(call, wanted)          test_check_status(__FILE__, __LINE__, #call, call, wanted, NULL)
#define CHECK_STATUS_ERR(call, wanted, err) test_check_status(__FILE__, __LINE__, #call, call, wanted, err)

/* True when text holds part; for messages that must name something. */
bool test_contains(const char *text, const char *part);

/* ---- seeds and scale ---- */

/* TURB_SEED, or a fresh number; printed with the test's name, once a test. */
uint64_t test_seed(void);

enum test_scale_kind { TEST_FAST, TEST_SHORT, TEST_FULL, TEST_SOAK };
enum test_scale_kind test_scale_kind(void);

/* The amount for the scale in force; soak is full × TURB_SOAK. */
uint64_t test_scale(uint64_t fast, uint64_t short_share, uint64_t full);

/* ---- folders ---- */

/* A fresh empty folder, removed with all in it when the test ends. The path lives until then. */
const char *test_tmpdir(void);

/* folder/name in one of 16 static buffers used in turn: good for an argument, not to keep. */
const char *test_path(const char *folder, const char *name);

#endif
