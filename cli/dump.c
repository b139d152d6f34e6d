/*
 * turb dump: what a table, a log or a manifest says, without opening the database.
 */
#include "command.h"
#include "database.h"

static const struct option_spec *const shared[] = {output_options, NULL};

static bool print_line(void *context, const char *text) {
  struct output *out = context;
  output_text(out, text);
  output_text(out, "\n");
  return output_open(out);
}

static int dump_run(struct output *out, void *given, int count, char **operands) {
  (void)given;
  const struct session session = {.command = &command_dump};
  int code = CLI_OK;
  for (int i = 0; i < count && output_open(out); i++) {
    turb_error err = TURB_ERROR_INIT;
    const turb_dump_format format = out->json ? TURB_DUMP_JSON : TURB_DUMP_TEXT;
    if (turb_dump_file(operands[i], format, print_line, out, &err) != TURB_OK) {
      const int failed = session_fail(&session, &err);
      code = failed > code ? failed : code;
    }
  }
  return code;
}

const struct command command_dump = {
    .name = "dump",
    .operands = "FILE...",
    .summary = "Describes tables, logs and manifests",
    .details = "Files are told apart by their content. Exit code 3 when one is damaged; what could be read of it is shown.",
    .shared = shared,
    .min_operands = 1,
    .max_operands = CLI_ANY_OPERANDS,
    .settings_bytes = sizeof(struct database_settings),
    .run = dump_run,
};
