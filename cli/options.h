/*
 * Declarative options: a table says what an option is called, what it takes, its bounds and where in the command's
 * settings it goes. Parsing is libc's getopt_long; this adds values, bounds, messages and help.
 *
 * Invariants
 *   1. A value that does not parse as a whole, or lies outside its bounds, is refused with option, value and bounds.
 *   2. Settings are written only by options that were given; zeroed settings are the defaults.
 *
 * Threads: the main thread alone (getopt_long has state of its own).
 */
#ifndef TURB_CLI_OPTIONS_H
#define TURB_CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum option_kind {
  OPTION_FLAG = 1, /* bool */
  OPTION_TEXT,     /* const char * */
  OPTION_NUMBER,   /* uint64_t, low to high */
  OPTION_SIZE,     /* uint64_t, with K, M, G or T for powers of 1024, low to high */
  OPTION_SIGNED,   /* int64_t, -high to high */
  OPTION_FLOAT,    /* struct option_float */
  OPTION_CHOICE,   /* int, one of choices */
};

struct option_choice {
  const char *name; /* NULL ends the list */
  int value;
};

struct option_float {
  bool given;
  double value;
};

struct option_spec {
  const char *name; /* NULL ends a table */
  char letter;      /* or 0 */
  enum option_kind kind;
  size_t offset;        /* into the settings */
  const char *argument; /* what help calls the value */
  const char *help;
  uint64_t low, high; /* high 0: no bound */
  const struct option_choice *choices;
  size_t given_offset; /* of a bool that is set when the option is given; 0: none */
};

struct command;

/*
 * Parses count arguments after the command's name into settings. Returns -1 to go on, with the operands, or
 * the exit code: 0 when help was asked for and printed, 2 after a message.
 */
int options_parse(const struct command *command, int count, char **arguments, void *settings, int *operand_count, char ***operands);

/* Prints a command's help to standard output; returns the exit code. */
int options_help(const struct command *command);

/* A message "turb COMMAND: …" and a pointer to help on standard error; returns the exit code for wrong usage. */
int options_refuse(const struct command *command, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The name of a choice's value, or "?". */
const char *option_choice_name(const struct option_choice *choices, int value);

#endif
