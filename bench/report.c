/* Options and rows (bench.h). */
#include "bench/bench.h"

#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- failure and words ---- */

void bench_fail(const char *format, ...) {
  va_list list;
  va_start(list, format);
  (void)fflush(stdout);
  (void)fputs("bench: ", stderr);
  (void)vfprintf(stderr, format, list);
  (void)fputc('\n', stderr);
  va_end(list);
  _exit(1);
}

void bench_say(const char *format, ...) {
  va_list list;
  va_start(list, format);
  (void)vfprintf(stderr, format, list);
  (void)fputc('\n', stderr);
  va_end(list);
}

void *bench_alloc(size_t bytes) {
  void *memory = calloc(1, bytes ? bytes : 1);
  if (!memory)
    bench_fail("no memory for %zu bytes", bytes);
  return memory;
}

/* ---- rows ---- */

static const char *bench_name = "bench";

/* Names are ours, but a path or an error may be in a text. */
static void put_string(const char *text) {
  (void)putchar('"');
  for (; *text; text++) {
    if (*text == '"' || *text == '\\')
      (void)putchar('\\');
    (void)putchar((unsigned char)*text < 0x20 ? ' ' : *text);
  }
  (void)putchar('"');
}

static void put_number(double value) {
  if (!isfinite(value))
    (void)fputs("null", stdout);
  else if (fabs(value) >= 1000 || value == floor(value))
    printf("%.0f", value);
  else
    printf("%.4g", value);
}

void row_begin(const char *unit, double value, const char *format, ...) {
  char name[160];
  va_list list;
  va_start(list, format);
  (void)vsnprintf(name, sizeof name, format, list);
  va_end(list);
  (void)fputs("{\"bench\":", stdout);
  put_string(bench_name);
  (void)fputs(",\"case\":", stdout);
  put_string(name);
  (void)fputs(",\"value\":", stdout);
  put_number(value);
  (void)fputs(",\"unit\":", stdout);
  put_string(unit);
}

void row_number(const char *name, double value) {
  printf(",\"%s\":", name);
  put_number(value);
}

void row_text(const char *name, const char *text) {
  printf(",\"%s\":", name);
  put_string(text);
}

void row_target(const char *words, bool met) {
  row_text("target", words);
  printf(",\"met\":%s", met ? "true" : "false");
}

void row_end(void) {
  (void)fputs("}\n", stdout);
  if (fflush(stdout) != 0)
    bench_fail("standard output takes no more");
}

/* ---- options ---- */

static void usage(const char *name) {
  bench_say("usage: %s [--quick] [--only FAMILY] [--dir FOLDER] [--rounds N]\n"
            "  --quick     targets alone, less work, under 50 seconds (also: QUICK=1 in the environment)\n"
            "  --only      only families whose name contains FAMILY\n"
            "  --dir       where a scratch folder is made and removed again (default: the current folder)\n"
            "  --rounds    rounds of every contest",
            name);
}

/* The value of an option, or the end. */
static const char *value_of(int argc, char **argv, int at, const char *name) {
  if (at + 1 < argc)
    return argv[at + 1];
  usage(name);
  bench_fail("%s needs a value", argv[at]);
}

static void read_arguments(int argc, char **argv, const char *name, struct bench_options *options, const char **folder) {
  const char *quick = getenv("QUICK");
  options->quick = quick && *quick && strcmp(quick, "0") != 0;
  for (int i = 1; i < argc; i++) {
    if (!strcmp(argv[i], "--quick")) {
      options->quick = true;
    } else if (!strcmp(argv[i], "--only")) {
      options->only = value_of(argc, argv, i++, name);
    } else if (!strcmp(argv[i], "--dir")) {
      *folder = value_of(argc, argv, i++, name);
    } else if (!strcmp(argv[i], "--rounds")) {
      const char *text = value_of(argc, argv, i++, name);
      char *rest;
      const unsigned long rounds = strtoul(text, &rest, 10);
      if (*rest || rounds < 1 || rounds > CONTEST_MAX_ROUNDS)
        bench_fail("--rounds is %s, and must be from 1 to %d", text, CONTEST_MAX_ROUNDS);
      options->rounds = (uint32_t)rounds;
    } else {
      usage(name);
      bench_fail("what is %s?", argv[i]);
    }
  }
}

bool bench_wants(const struct bench_options *options, const char *family) {
  return !options->only || strstr(family, options->only);
}

int bench_main(int argc, char **argv, const char *name, void (*run)(const struct bench_options *options)) {
  struct bench_options options = {0};
  const char *folder = ".";
  bench_name = name;
  read_arguments(argc, argv, name, &options, &folder);
  char *scratch = path_join(folder, "scratch-%s-%d", name, (int)getpid());
  folder_make(scratch);
  options.folder = scratch;
  (void)signal(SIGINT, SIG_IGN); /* an interrupt ends the child; this process tidies up */
  (void)signal(SIGTERM, SIG_IGN);
  (void)fflush(stdout);
  const pid_t child = fork();
  if (child < 0)
    bench_fail("no process can be made");
  if (child == 0) {
    (void)signal(SIGINT, SIG_DFL);
    (void)signal(SIGTERM, SIG_DFL);
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
    work_prepare();
    run(&options);
    (void)fflush(stdout);
    _exit(0);
  }
  int state = 0;
  while (waitpid(child, &state, 0) < 0) {}
  folder_remove(scratch);
  free(scratch);
  return WIFEXITED(state) ? WEXITSTATUS(state) : 1;
}
