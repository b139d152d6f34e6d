/*
 * The options that commands share, opening and closing the database with them, and the way from the library's
 * errors to messages and exit codes.
 *
 * Invariants
 *   1. Commands that only read open the database read-only, so that they run beside each other and change nothing.
 *   2. A session is closed on every path, and a failed close is told.
 *
 * Threads: the main thread; the library's events may come on others and touch the progress bar alone.
 */
#ifndef TURB_CLI_DATABASE_H
#define TURB_CLI_DATABASE_H

#include "command.h"
#include "progress.h"
#include "value.h"

/* The first member of every command's settings: the shared tables write here. */
struct database_settings {
  const char *path;
  const char *collection;
  uint64_t memory_bytes;
  int durability; /* turb_durability, 0: default */
  int backend;    /* turb_backend */
  bool read_only;
  bool salvage;
  bool json;
  bool quiet;
  bool number_keys;
};

extern const struct option_spec database_options[];   /* --db, --memory, --backend, --read-only, --salvage */
extern const struct option_spec write_options[];      /* --durability */
extern const struct option_spec collection_options[]; /* --collection */
extern const struct option_spec key_options[];        /* --number-keys */
extern const struct option_spec output_options[];     /* --json */
extern const struct option_spec quiet_options[];      /* --quiet */

extern const struct option_choice type_choices[], metric_choices[], index_choices[], compression_choices[], backend_choices[],
    durability_choices[];

enum session_mode {
  SESSION_READ,      /* read-only */
  SESSION_READ_ALL,  /* the same, without a collection */
  SESSION_WRITE,     /* the database must be there */
  SESSION_WRITE_ALL, /* the same, without a collection */
  SESSION_CREATE,    /* makes the database when it is missing; no collection */
};

struct session {
  const struct command *command;
  const struct database_settings *settings;
  turb_db *db;
  turb_collection *collection;
  turb_collection_info info;
  struct progress *progress; /* that events of jobs feed, or NULL */
};

/*
 * Opens the database and, in the modes with one, the collection: the one named or the only one there is. Returns
 * -1, or the exit code after a message. Release on -1: session_close.
 */
int session_open(struct session *session, const struct command *command, const struct database_settings *settings, enum session_mode mode);

/* The same for a collection by name. */
int session_open_collection(struct session *session, const char *name);

/* Closes; returns code, or that of the failed close when code is 0. */
int session_close(struct session *session, int code);

/* Tells an error; returns its exit code. */
int session_fail(const struct session *session, const turb_error *err);

/* The exit code of a status. */
int status_exit_code(turb_status status);

/* Tells what is wrong with a value; returns the code for wrong usage. */
int session_refuse(const struct session *session, const char *what, const struct problem *problem);

/* "12.3 MiB" */
const char *size_text(uint64_t bytes, char text[32]);

#endif
