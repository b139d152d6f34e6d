/*
 * The commands of turb: each is one constant struct, found by main.c, which parses its options, checks the number
 * of operands and runs it.
 *
 * Exit codes: 0 done; 1 not found, or it failed; 2 the command line is wrong; 3 stored bytes are damaged.
 *
 * Threads: commands run on the main thread; callbacks of the library that come on others say so.
 */
#ifndef TURB_CLI_COMMAND_H
#define TURB_CLI_COMMAND_H

#include "options.h"
#include "output.h"

enum {
  CLI_OK = 0,
  CLI_FAILED = 1,
  CLI_USAGE = 2,
  CLI_CORRUPT = 3,
};

#define CLI_ANY_OPERANDS 1000000

struct command {
  const char *name;
  const char *operands;                    /* for the usage line */
  const char *summary;                     /* one line, for the list of commands */
  const char *details;                     /* paragraphs for the command's own help, or NULL */
  const struct option_spec *options;       /* its own, or NULL */
  const struct option_spec *const *shared; /* NULL-terminated: tables of database.h */
  int min_operands, max_operands;
  size_t settings_bytes;                                                      /* the struct that options write to, zeroed at first */
  int (*run)(struct output *out, void *settings, int count, char **operands); /* returns an exit code */
};

extern const struct command command_create, command_drop, command_collections, command_put, command_delete, command_get, command_scan,
    command_search, command_import, command_flush, command_compact, command_checkpoint, command_verify, command_stats, command_runs,
    command_dump, command_set;

#endif
