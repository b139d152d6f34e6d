/* Runs the built command and looks at JSON; see command.h. */
#include "tests/cli/command.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/test.h"

#define MAX_WORDS 64

static struct run result;
static bool terminal;

void use_terminal(bool wanted) {
  terminal = wanted;
}

static const char *turb_path(void) {
  static char path[4096];
  const ssize_t size = readlink("/proc/self/exe", path, sizeof path - 16);
  CHECK(size > 0);
  path[size] = '\0';
  for (int i = 0; i < 3; i++) { /* OUT/tests/cli/this_test */
    char *slash = strrchr(path, '/');
    CHECK(slash != NULL);
    *slash = '\0';
  }
  memcpy(path + strlen(path), "/turb", sizeof "/turb");
  CHECK_MSG(access(path, X_OK) == 0, "%s is not built", path);
  return path;
}

static void catch_output(int out, int err) {
  struct pollfd pipes[2] = {{out, POLLIN, 0}, {err, POLLIN, 0}};
  char *to[2] = {result.out, result.err};
  const size_t capacity[2] = {sizeof result.out - 1, sizeof result.err - 1};
  size_t used[2] = {0, 0};
  while (pipes[0].fd >= 0 || pipes[1].fd >= 0) {
    CHECK(poll(pipes, 2, -1) >= 0 || errno == EINTR);
    for (int i = 0; i < 2; i++) {
      if (pipes[i].fd < 0 || pipes[i].revents == 0) {
        continue;
      }
      char dropped[4096];
      const size_t room = capacity[i] - used[i];
      const ssize_t got = room != 0 ? read(pipes[i].fd, to[i] + used[i], room) : read(pipes[i].fd, dropped, sizeof dropped);
      if (got <= 0) {
        pipes[i].fd = -1;
      } else if (room != 0) {
        used[i] += (size_t)got;
      }
    }
  }
  result.out[used[0]] = '\0';
  result.err[used[1]] = '\0';
  result.out_size = used[0];
}

/* A pseudo-terminal in the place of a pipe. */
static void open_terminal(int ends[2]) {
  ends[0] = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  CHECK(ends[0] >= 0 && grantpt(ends[0]) == 0 && unlockpt(ends[0]) == 0);
  ends[1] = open(ptsname(ends[0]), O_RDWR | O_NOCTTY | O_CLOEXEC);
  CHECK(ends[1] >= 0);
}

static const struct run *run(const char *program, char **words) {
  int out[2], err[2];
  CHECK(pipe2(out, O_CLOEXEC) == 0);
  if (terminal) {
    open_terminal(err);
  } else {
    CHECK(pipe2(err, O_CLOEXEC) == 0);
  }
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    const int null = open("/dev/null", O_RDONLY);
    (void)dup2(null, STDIN_FILENO);
    (void)dup2(out[1], STDOUT_FILENO);
    (void)dup2(err[1], STDERR_FILENO);
    (void)setenv("T", turb_path(), 1);
    (void)unsetenv("TURB_DB");
    (void)execv(program, words);
    _exit(127);
  }
  (void)close(out[1]);
  (void)close(err[1]);
  catch_output(out[0], err[0]);
  (void)close(out[0]);
  (void)close(err[0]);
  int status = 0;
  CHECK_EQ(waitpid(child, &status, 0), child);
  result.code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  return &result;
}

const struct run *turb(const char *format, ...) {
  static char line[16384];
  va_list arguments;
  va_start(arguments, format);
  CHECK(vsnprintf(line, sizeof line, format, arguments) < (int)sizeof line);
  va_end(arguments);
  char *words[MAX_WORDS + 1];
  char name[] = "turb";
  size_t count = 0;
  words[count++] = name;
  for (char *at = line; *at != '\0';) {
    at += strspn(at, " ");
    if (*at == '\0') {
      break;
    }
    CHECK(count < MAX_WORDS);
    const bool quoted = *at == '\'';
    words[count++] = at += quoted;
    at += strcspn(at, quoted ? "'" : " ");
    if (*at != '\0') {
      *at++ = '\0';
    }
  }
  words[count] = NULL;
  return run(turb_path(), words);
}

const struct run *shell(const char *format, ...) {
  static char line[16384];
  va_list arguments;
  va_start(arguments, format);
  CHECK(vsnprintf(line, sizeof line, format, arguments) < (int)sizeof line);
  va_end(arguments);
  char program[] = "/bin/sh";
  char option[] = "-c";
  char *words[] = {program, option, line, NULL};
  return run(program, words);
}

void check_code(const struct run *run_result, int code) {
  CHECK_MSG(run_result->code == code, "exit code %d, not %d; out: %.400s; err: %.1000s", run_result->code, code, run_result->out,
            run_result->err);
}

/* ---- JSON: a checker of its own, for nothing but objects of strings, numbers, arrays of numbers, words ---- */

static const char *skip_string(const char *at) {
  CHECK(*at == '"');
  for (at++; *at != '"'; at++) {
    CHECK((unsigned char)*at >= 0x20);
    if (*at == '\\') {
      at++;
      CHECK(*at != '\0' && strchr("\"\\/bfnrtu", *at) != NULL);
      if (*at == 'u') {
        CHECK(strspn(at + 1, "0123456789abcdef") >= 4);
        at += 4;
      }
    }
  }
  return at + 1;
}

static const char *skip_value(const char *at);

static const char *skip_list(const char *at, char end, bool named) {
  at++;
  while (*at != end) {
    if (named) {
      at = skip_string(at);
      CHECK(*at == ':');
      at++;
    }
    at = skip_value(at);
    CHECK(*at == ',' || *at == end);
    CHECK(*at != ',' || at[1] != end);
    at += *at == ',';
  }
  return at + 1;
}

static const char *skip_value(const char *at) {
  static const char *const words[] = {"true", "false", "null"};
  if (*at == '"') {
    return skip_string(at);
  }
  if (*at == '{' || *at == '[') {
    return skip_list(at, *at == '{' ? '}' : ']', *at == '{');
  }
  for (size_t i = 0; i < 3; i++) {
    if (strncmp(at, words[i], strlen(words[i])) == 0) {
      return at + strlen(words[i]);
    }
  }
  char *end = NULL;
  CHECK_MSG(*at == '-' || (*at >= '0' && *at <= '9'), "no JSON value at '%.40s'", at);
  (void)strtod(at, &end);
  return end;
}

size_t check_json_lines(const char *text) {
  size_t count = 0;
  while (*text != '\0') {
    CHECK_MSG(*text == '{', "no JSON object at '%.60s'", text);
    text = skip_value(text);
    CHECK(*text == '\n');
    text++;
    count++;
  }
  return count;
}

const char *json_value(const char *text, const char *name) {
  static char value[1024];
  char wanted[128];
  (void)snprintf(wanted, sizeof wanted, "\"%s\":", name);
  const char *found = strstr(text, wanted);
  CHECK_MSG(found != NULL, "no %s in '%.200s'", name, text);
  found += strlen(wanted);
  size_t size = strcspn(found, ",}\n");
  if (*found == '[') {
    size = strcspn(found, "]") + 1;
  }
  CHECK(snprintf(value, sizeof value, "%.*s", (int)size, found) < (int)sizeof value);
  return value;
}
