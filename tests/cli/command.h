/*
 * Runs the built command as a user would: in a process of its own, with what it prints caught.
 *
 * The command is that of the same build: two folders above the test's own binary.
 */
#ifndef TURB_TESTS_CLI_COMMAND_H
#define TURB_TESTS_CLI_COMMAND_H

#include <stdbool.h>
#include <stddef.h>

struct run {
  int code; /* exit code; -signal when a signal ended it */
  char out[1 << 16];
  char err[1 << 14];
  size_t out_size;
};

/* Runs turb with the words of a printf-like format, split at blanks; a word in 'single quotes' may hold blanks. */
const struct run *turb(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The same through /bin/sh, with turb's path in $T. */
const struct run *shell(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* From here on standard error is a terminal, or a pipe again. */
void use_terminal(bool wanted);

/* Ends the test unless the code is the wanted one; prints what the command said. */
void check_code(const struct run *run, int code);

/* Whether every line is one JSON object and nothing else; how many there are. */
size_t check_json_lines(const char *text);

/* The text after "name": on the first line that has it, up to a comma or brace; in a static buffer. */
const char *json_value(const char *text, const char *name);

#endif
