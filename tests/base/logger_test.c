/* The logging hook: levels, formatting, cutting. */
#include "base/logger.h"

#include "tests/support/test.h"

struct sink {
  unsigned count;
  enum logger_level level;
  char text[LOGGER_MESSAGE_BYTES + 16];
};

static void sink_write(void *context, enum logger_level level, const char *message) {
  struct sink *sink = context;
  sink->count++;
  sink->level = level;
  (void)snprintf(sink->text, sizeof sink->text, "%s", message);
}

TEST(logger, writes_up_to_its_level) {
  struct sink sink = {0};
  const struct logger logger = {.write = sink_write, .context = &sink, .level = LOGGER_WARNING};
  logger_write(&logger, LOGGER_INFO, "no %d", 1);
  CHECK_EQ(sink.count, 0);
  logger_write(&logger, LOGGER_ERROR, "yes %d", 2);
  logger_write(&logger, LOGGER_WARNING, "yes %d", 3);
  CHECK_EQ(sink.count, 2);
  CHECK_EQ(sink.level, LOGGER_WARNING);
  CHECK_STR_EQ(sink.text, "yes 3");
  CHECK(!logger_wants(&logger, LOGGER_DEBUG));
}

TEST(logger, without_a_hook_drops_all) {
  const struct logger logger = {.level = LOGGER_DEBUG};
  logger_write(&logger, LOGGER_ERROR, "no");
  logger_write(NULL, LOGGER_ERROR, "no");
  CHECK(!logger_wants(NULL, LOGGER_ERROR));
}

TEST(logger, cuts_long_messages) {
  char text[3 * LOGGER_MESSAGE_BYTES];
  memset(text, 'x', sizeof text);
  text[sizeof text - 1] = '\0';
  struct sink sink = {0};
  const struct logger logger = {.write = sink_write, .context = &sink, .level = LOGGER_DEBUG};
  logger_write(&logger, LOGGER_DEBUG, "%s", text);
  CHECK_EQ(strlen(sink.text), LOGGER_MESSAGE_BYTES - 1);
}
