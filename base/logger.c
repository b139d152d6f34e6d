/* Formatting for the logging hook; see logger.h. */
#include "base/logger.h"

#include <stdarg.h>
#include <stdio.h>

void logger_write(const struct logger *logger, enum logger_level level, const char *format, ...) {
  if (!logger_wants(logger, level)) {
    return;
  }
  char message[LOGGER_MESSAGE_BYTES];
  va_list arguments;
  va_start(arguments, format);
  (void)vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  logger->write(logger->context, level, message);
}
