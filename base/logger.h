/*
 * The logging hook. The library never prints: it hands finished messages to the embedder's callback, and
 * without one they are dropped before they are formatted.
 *
 * Threads: the callback is called by the thread that logs, so by several at once; a logger is not changed
 * while in use.
 */
#ifndef TURB_BASE_LOGGER_H
#define TURB_BASE_LOGGER_H

#include <stdbool.h>
#include <stddef.h>

enum logger_level {
  LOGGER_ERROR = 1, /* something was lost or stopped */
  LOGGER_WARNING = 2,
  LOGGER_INFO = 3,
  LOGGER_DEBUG = 4
};

/* message lives for the call only. Must not call back into the database. */
typedef void (*logger_write_fn)(void *context, enum logger_level level, const char *message);

struct logger {
  logger_write_fn write; /* NULL: everything is dropped */
  void *context;
  enum logger_level level; /* the least important level that is written */
};

/* Longer messages are cut. */
#define LOGGER_MESSAGE_BYTES 1024

static inline bool logger_wants(const struct logger *logger, enum logger_level level) {
  return logger != NULL && logger->write != NULL && level <= logger->level;
}

/* Formats and hands over one message without a line end; logger may be NULL. */
void logger_write(const struct logger *logger, enum logger_level level, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
