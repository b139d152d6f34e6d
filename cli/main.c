/*
 * turb: the command over turbidite. Finds the command, parses its options into fresh settings, runs it.
 *
 * A pipe that its reader closed ends a command quietly: SIGPIPE is ignored, the failed write is remembered by the
 * output, and the database is closed as always.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "database.h"

static const struct command *const commands[] = {
    &command_create, &command_set,  &command_drop,   &command_collections, &command_put,   &command_get,
    &command_delete, &command_scan, &command_search, &command_import,      &command_flush, &command_compact,
    &command_stats,  &command_runs, &command_verify, &command_checkpoint,  &command_dump,
};
#define COMMANDS (sizeof commands / sizeof commands[0])

static const struct command *find_command(const char *name) {
  for (size_t i = 0; i < COMMANDS; i++) {
    if (strcmp(commands[i]->name, name) == 0) {
      return commands[i];
    }
  }
  return NULL;
}

static void print_overview(struct output *out) {
  output_text(out, "Usage: turb COMMAND [OPTION]... [OPERAND]...\n"
                   "Stores vectors by key in a turbidite database, reads and searches them, and looks after the files.\n\nCommands:\n");
  for (size_t i = 0; i < COMMANDS; i++) {
    output_format(out, "  %-12s  %s\n", commands[i]->name, commands[i]->summary);
  }
  output_text(out, "\n'turb COMMAND --help' tells a command's operands and options; 'turb --version' the version.\n"
                   "The database is named by --db PATH or the variable TURB_DB.\n"
                   "Exit codes: 0 done, 1 not found or failed, 2 wrong usage, 3 stored bytes are damaged.\n");
}

static int print_version(struct output *out) {
  output_format(out, "turb %d.%d.%d\n", TURB_VERSION_MAJOR, TURB_VERSION_MINOR, TURB_VERSION_PATCH);
  return output_finish(out, CLI_OK);
}

static int run_command(const struct command *command, int count, char **arguments) {
  void *settings = calloc(1, command->settings_bytes);
  struct output *out = malloc(sizeof *out);
  int code = CLI_FAILED;
  if (settings == NULL || out == NULL) {
    (void)fprintf(stderr, "turb: out of memory\n");
  } else {
    int operand_count = 0;
    char **operands = NULL;
    code = options_parse(command, count, arguments, settings, &operand_count, &operands);
    if (code < 0) {
      output_init(out, STDOUT_FILENO, ((const struct database_settings *)settings)->json);
      code = output_finish(out, command->run(out, settings, operand_count, operands));
    }
  }
  free(out);
  free(settings);
  return code;
}

static int refuse_command(const char *name) {
  (void)fprintf(stderr, "turb: no command '%s'\nTry 'turb --help'.\n", name);
  return CLI_USAGE;
}

int main(int count, char **arguments) {
  static struct output out;
  (void)signal(SIGPIPE, SIG_IGN);
  if (count < 2) {
    output_init(&out, STDERR_FILENO, false);
    print_overview(&out);
    return output_finish(&out, CLI_USAGE);
  }
  output_init(&out, STDOUT_FILENO, false);
  const char *name = arguments[1];
  if (strcmp(name, "--version") == 0 || strcmp(name, "version") == 0) {
    return print_version(&out);
  }
  const bool help = strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0;
  if (help && count == 2) {
    print_overview(&out);
    return output_finish(&out, CLI_OK);
  }
  const struct command *command = find_command(help ? arguments[2] : name);
  if (command == NULL) {
    return refuse_command(help ? arguments[2] : name);
  }
  return help ? options_help(command) : run_command(command, count - 1, arguments + 1);
}
