/*
 * The parser and the help of options; see options.h.
 */
#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"

#define MAX_OPTIONS 48
#define HELP_CODE   1000 /* getopt_long's return for option i is HELP_CODE + 1 + i */
#define HELP_COLUMN 28

static const struct option_spec help_option = {.name = "help", .letter = 'h', .kind = OPTION_FLAG, .help = "this help"};

const char *option_choice_name(const struct option_choice *choices, int value) {
  for (; choices->name != NULL; choices++) {
    if (choices->value == value) {
      return choices->name;
    }
  }
  return "?";
}

int options_refuse(const struct command *command, const char *format, ...) {
  char message[1024];
  va_list arguments;
  va_start(arguments, format);
  (void)vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  (void)fprintf(stderr, "turb %s: %s\nTry 'turb %s --help'.\n", command->name, message, command->name);
  return CLI_USAGE;
}

/* ---- values ---- */

static int refuse_bounds(const struct command *command, const struct option_spec *option, const char *text) {
  return options_refuse(command, "option --%s: '%s' is not a %s from %" PRIu64 " to %" PRIu64, option->name, text,
                        option->kind == OPTION_SIZE ? "size" : "number", option->low, option->high != 0 ? option->high : UINT64_MAX);
}

static bool take_digits(const char *text, uint64_t *value, char **end) {
  if (text[0] < '0' || text[0] > '9') {
    return false;
  }
  errno = 0;
  *value = strtoull(text, end, 10);
  return errno == 0;
}

/* The factor of a size's ending: "64M", "64MiB", "64MB" and "64" are sizes. 0: no such ending. */
static uint64_t size_factor(const char *ending) {
  static const char letters[] = "KMGT";
  if (*ending == '\0' || strcmp(ending, "B") == 0) {
    return 1;
  }
  for (unsigned i = 0; letters[i] != '\0'; i++) {
    if ((ending[0] | 0x20) == (letters[i] | 0x20) && (ending[1] == '\0' || strcmp(ending + 1, "iB") == 0 || strcmp(ending + 1, "B") == 0)) {
      return UINT64_C(1) << (10 * (i + 1));
    }
  }
  return 0;
}

static int set_number(const struct command *command, const struct option_spec *option, const char *text, void *target) {
  uint64_t value = 0;
  char *end = NULL;
  bool good = take_digits(text, &value, &end);
  if (good && option->kind == OPTION_SIZE) {
    const uint64_t factor = size_factor(end);
    good = factor != 0 && !__builtin_mul_overflow(value, factor, &value);
  } else if (good) {
    good = *end == '\0';
  }
  if (!good || value < option->low || (option->high != 0 && value > option->high)) {
    return refuse_bounds(command, option, text);
  }
  memcpy(target, &value, sizeof value);
  return -1;
}

static int set_signed(const struct command *command, const struct option_spec *option, const char *text, void *target) {
  char *end = NULL;
  errno = 0;
  const int64_t value = strtoll(text, &end, 10);
  const int64_t bound = (int64_t)option->high;
  if (errno != 0 || end == text || *end != '\0' || value < -bound || value > bound) {
    return options_refuse(command, "option --%s: '%s' is not a number from -%" PRId64 " to %" PRId64, option->name, text, bound, bound);
  }
  memcpy(target, &value, sizeof value);
  return -1;
}

static int set_float(const struct command *command, const struct option_spec *option, const char *text, void *target) {
  char *end = NULL;
  const struct option_float value = {true, strtod(text, &end)};
  if (end == text || *end != '\0' || !isfinite(value.value)) {
    return options_refuse(command, "option --%s: '%s' is not a number", option->name, text);
  }
  memcpy(target, &value, sizeof value);
  return -1;
}

static int set_choice(const struct command *command, const struct option_spec *option, const char *text, void *target) {
  char names[256] = "";
  size_t used = 0;
  for (const struct option_choice *choice = option->choices; choice->name != NULL; choice++) {
    if (strcmp(choice->name, text) == 0) {
      memcpy(target, &choice->value, sizeof choice->value);
      return -1;
    }
    const int size = snprintf(names + used, sizeof names - used, "%s%s", used != 0 ? ", " : "", choice->name);
    used += size > 0 && (size_t)size < sizeof names - used ? (size_t)size : 0;
  }
  return options_refuse(command, "option --%s: '%s' is none of %s", option->name, text, names);
}

static int set_option(const struct command *command, const struct option_spec *option, const char *text, void *settings) {
  uint8_t *target = (uint8_t *)settings + option->offset;
  if (option->given_offset != 0) {
    *(bool *)((uint8_t *)settings + option->given_offset) = true;
  }
  switch (option->kind) {
  case OPTION_FLAG: *(bool *)target = true; return -1;
  case OPTION_TEXT: memcpy(target, &text, sizeof text); return -1;
  case OPTION_NUMBER:
  case OPTION_SIZE: return set_number(command, option, text, target);
  case OPTION_SIGNED: return set_signed(command, option, text, target);
  case OPTION_FLOAT: return set_float(command, option, text, target);
  case OPTION_CHOICE: return set_choice(command, option, text, target);
  }
  return CLI_USAGE;
}

/* ---- parsing ---- */

struct parser {
  const struct option_spec *specs[MAX_OPTIONS];
  struct option longs[MAX_OPTIONS + 1];
  char letters[2 * MAX_OPTIONS + 2];
  size_t count, letters_size;
};

static void parser_add(struct parser *parser, const struct option_spec *option) {
  if (parser->count == MAX_OPTIONS) {
    return;
  }
  const bool takes = option->kind != OPTION_FLAG;
  parser->specs[parser->count] = option;
  parser->longs[parser->count] =
      (struct option){option->name, takes ? required_argument : no_argument, NULL, HELP_CODE + 1 + (int)parser->count};
  parser->count++;
  if (option->letter != 0) {
    parser->letters[parser->letters_size++] = option->letter;
    if (takes) {
      parser->letters[parser->letters_size++] = ':';
    }
  }
}

static void parser_init(struct parser *parser, const struct command *command) {
  memset(parser, 0, sizeof *parser);
  parser->letters[parser->letters_size++] = ':'; /* missing values are told from unknown options */
  parser_add(parser, &help_option);
  for (const struct option_spec *option = command->options; option != NULL && option->name != NULL; option++) {
    parser_add(parser, option);
  }
  for (size_t i = 0; command->shared != NULL && command->shared[i] != NULL; i++) {
    for (const struct option_spec *option = command->shared[i]; option->name != NULL; option++) {
      parser_add(parser, option);
    }
  }
}

static const struct option_spec *parser_find(const struct parser *parser, int code) {
  if (code > HELP_CODE) {
    return parser->specs[code - HELP_CODE - 1];
  }
  for (size_t i = 0; i < parser->count; i++) {
    if (parser->specs[i]->letter != 0 && parser->specs[i]->letter == code) {
      return parser->specs[i];
    }
  }
  return NULL;
}

static int parser_refuse(const struct command *command, int code, char **arguments) {
  const bool is_long = optopt == 0 || optopt > HELP_CODE;
  const char *problem = code == ':' ? "needs a value" : "is unknown, ambiguous or takes no value";
  if (is_long) {
    return options_refuse(command, "option %s %s", arguments[optind - 1], problem);
  }
  return options_refuse(command, "option -%c %s", optopt, problem);
}

static int check_operands(const struct command *command, int count) {
  if (count < command->min_operands) {
    return options_refuse(command, "too few operands; usage: turb %s [OPTION]... %s", command->name, command->operands);
  }
  if (count > command->max_operands) {
    return options_refuse(command, "too many operands; usage: turb %s [OPTION]... %s", command->name, command->operands);
  }
  return -1;
}

int options_parse(const struct command *command, int count, char **arguments, void *settings, int *operand_count, char ***operands) {
  struct parser parser;
  parser_init(&parser, command);
  optind = 0; /* glibc: begin anew */
  opterr = 0;
  for (int code; (code = getopt_long(count, arguments, parser.letters, parser.longs, NULL)) != -1;) {
    const struct option_spec *option = code == ':' || code == '?' ? NULL : parser_find(&parser, code);
    if (option == NULL) {
      return parser_refuse(command, code, arguments);
    }
    const int refused = option == &help_option ? options_help(command) : set_option(command, option, optarg, settings);
    if (refused >= 0) {
      return refused;
    }
  }
  *operand_count = count - optind;
  *operands = arguments + optind;
  return check_operands(command, *operand_count);
}

/* ---- help ---- */

static void help_choices(struct output *out, const struct option_spec *option) {
  for (const struct option_choice *choice = option->choices; choice != NULL && choice->name != NULL; choice++) {
    output_format(out, "%s%s", choice == option->choices ? ": " : ", ", choice->name);
  }
}

static void help_option_line(struct output *out, const struct option_spec *option) {
  char left[64];
  const bool takes = option->kind != OPTION_FLAG;
  const char letter[] = {option->letter, '\0'};
  (void)snprintf(left, sizeof left, "  %s%s%s--%s%s%s", option->letter != 0 ? "-" : "  ", letter, option->letter != 0 ? ", " : "  ",
                 option->name, takes ? " " : "", takes ? option->argument : "");
  output_format(out, "%-*s  %s", HELP_COLUMN, left, option->help);
  help_choices(out, option);
  output_text(out, "\n");
}

static void help_table(struct output *out, const struct option_spec *options) {
  for (; options != NULL && options->name != NULL; options++) {
    help_option_line(out, options);
  }
}

int options_help(const struct command *command) {
  struct output out;
  output_init(&out, STDOUT_FILENO, false);
  output_format(&out, "Usage: turb %s [OPTION]...%s%s\n%s.\n", command->name, *command->operands != '\0' ? " " : "", command->operands,
                command->summary);
  if (command->details != NULL) {
    output_format(&out, "\n%s\n", command->details);
  }
  output_text(&out, "\nOptions:\n");
  help_table(&out, command->options);
  for (size_t i = 0; command->shared != NULL && command->shared[i] != NULL; i++) {
    help_table(&out, command->shared[i]);
  }
  help_option_line(&out, &help_option);
  return output_finish(&out, CLI_OK);
}
