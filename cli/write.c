/*
 * turb put and delete.
 */
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "database.h"

static const struct option_spec *const shared[] = {collection_options, key_options, database_options, write_options, output_options, NULL};

/* ---- put ---- */

struct put_settings {
  struct database_settings database;
  const char *attributes;
  const char *vector_file;
  bool if_absent;
  bool has_sequence;
  uint64_t sequence;
};
#define AT(field) offsetof(struct put_settings, field)

static const struct option_spec put_options[] = {
    {.name = "attributes",
     .letter = 'a',
     .kind = OPTION_TEXT,
     .offset = AT(attributes),
     .argument = "BYTES",
     .help = "text, 0xHEX or @FILE"},
    {.name = "vector-file",
     .letter = 'f',
     .kind = OPTION_TEXT,
     .offset = AT(vector_file),
     .argument = "FILE",
     .help = "read the vector as a list from a file (- is standard input)"},
    {.name = "if-absent", .kind = OPTION_FLAG, .offset = AT(if_absent), .help = "only when the key is not there"},
    {.name = "if-sequence",
     .kind = OPTION_NUMBER,
     .offset = AT(sequence),
     .given_offset = AT(has_sequence),
     .argument = "N",
     .help = "only when this is the key's sequence number"},
    {.name = NULL}};

struct put {
  struct value key, vector, attributes;
  bool has_vector;
};

static int put_parse(const struct session *session, const struct put_settings *settings, int count, char **operands, struct put *put) {
  struct problem problem;
  if (!value_parse_key(operands[0], settings->database.number_keys, &put->key, &problem)) {
    return session_refuse(session, "key", &problem);
  }
  if (settings->attributes != NULL && !value_parse_attributes(settings->attributes, &put->attributes, &problem)) {
    return session_refuse(session, "attributes", &problem);
  }
  put->has_vector = count == 2 || settings->vector_file != NULL;
  if (count == 2 && settings->vector_file != NULL) {
    return options_refuse(session->command, "the vector is given twice");
  }
  if (count == 2 && !value_parse_vector(operands[1], &session->info, &put->vector, &problem)) {
    return session_refuse(session, "vector", &problem);
  }
  if (settings->vector_file != NULL && !value_read_vector(settings->vector_file, &session->info, &put->vector, &problem)) {
    return session_refuse(session, "vector", &problem);
  }
  if (!put->has_vector && settings->attributes == NULL) {
    return options_refuse(session->command, "neither a vector nor --attributes are given");
  }
  if (!put->has_vector && (settings->if_absent || settings->has_sequence)) {
    return options_refuse(session->command, "--if-absent and --if-sequence need a vector");
  }
  return -1;
}

static turb_status put_write(const struct session *session, const struct put_settings *settings, const struct put *put, uint64_t *sequence,
                             turb_error *err) {
  turb_write_options options = TURB_WRITE_OPTIONS_INIT;
  options.sequence = sequence;
  const turb_bytes key = value_bytes(put->key);
  const turb_bytes vector = value_bytes(put->vector);
  const turb_bytes attributes = value_bytes(put->attributes);
  if (!put->has_vector) {
    return turb_update_attributes(session->collection, key, attributes, &options, err);
  }
  if (settings->if_absent) {
    return turb_put_if_absent(session->collection, key, vector, attributes, &options, err);
  }
  if (settings->has_sequence) {
    return turb_put_if_sequence(session->collection, key, vector, attributes, settings->sequence, &options, err);
  }
  return turb_put(session->collection, key, vector, attributes, &options, err);
}

static int put_run(struct output *out, void *given, int count, char **operands) {
  const struct put_settings *settings = given;
  if (settings->if_absent && settings->has_sequence) {
    return options_refuse(&command_put, "--if-absent and --if-sequence exclude each other");
  }
  struct session session = {0};
  int code = session_open(&session, &command_put, &settings->database, SESSION_WRITE);
  if (code >= 0) {
    return code;
  }
  struct put put;
  memset(&put, 0, sizeof put);
  code = put_parse(&session, settings, count, operands, &put);
  uint64_t sequence = 0;
  if (code < 0) {
    turb_error err = TURB_ERROR_INIT;
    code = put_write(&session, settings, &put, &sequence, &err) == TURB_OK ? CLI_OK : session_fail(&session, &err);
  }
  code = session_close(&session, code); /* acknowledged before it is told */
  if (code == CLI_OK && out->json) {
    output_begin(out);
    value_json_key(out, "key", value_bytes(put.key), settings->database.number_keys);
    output_json_number(out, "sequence", sequence);
    output_end(out);
  }
  free(put.key.data);
  free(put.vector.data);
  free(put.attributes.data);
  return code;
}

const struct command command_put = {
    .name = "put",
    .operands = "KEY [VECTOR]",
    .summary = "Puts an entry, or replaces it",
    .details =
        "KEY is text, or bytes as 0xHEX. VECTOR is a list such as '[1, 2.5, -3]' or 1,2.5,3 (write -- before one that begins\n"
        "with a minus sign), the bytes of the row as 0xHEX, or those of a file as @FILE. Without a vector, the attributes of an entry\n"
        "that is there are replaced. Exit code 1 when a condition does not hold.",
    .options = put_options,
    .shared = shared,
    .min_operands = 1,
    .max_operands = 2,
    .settings_bytes = sizeof(struct put_settings),
    .run = put_run,
};

/* ---- delete ---- */

struct delete_settings {
  struct database_settings database;
  bool range;
  const char *prefix;
};

static const struct option_spec delete_options[] = {{.name = "range",
                                                     .kind = OPTION_FLAG,
                                                     .offset = offsetof(struct delete_settings, range),
                                                     .help = "delete all keys from the first operand to before the second"},
                                                    {.name = "prefix",
                                                     .kind = OPTION_TEXT,
                                                     .offset = offsetof(struct delete_settings, prefix),
                                                     .argument = "KEY",
                                                     .help = "delete all keys that begin so"},
                                                    {.name = NULL}};

static int delete_keys(const struct session *session, const struct delete_settings *settings, int count, char **operands) {
  int code = -1;
  for (int i = 0; i < count && code < 0; i++) {
    struct problem problem;
    struct value key;
    turb_error err = TURB_ERROR_INIT;
    if (!value_parse_key(operands[i], settings->database.number_keys, &key, &problem)) {
      return session_refuse(session, "key", &problem);
    }
    if (turb_delete(session->collection, value_bytes(key), NULL, &err) != TURB_OK) {
      code = session_fail(session, &err);
    }
    free(key.data);
  }
  return code;
}

/* The key after all that begin with the prefix; empty where there is none. */
static void prefix_end(struct value *prefix) {
  uint8_t *bytes = prefix->data;
  while (prefix->size != 0 && bytes[prefix->size - 1] == 0xff) {
    prefix->size--;
  }
  if (prefix->size != 0) {
    bytes[prefix->size - 1]++;
  }
}

static int delete_range(const struct session *session, const struct delete_settings *settings, const char *begin_text,
                        const char *end_text) {
  struct value begin = {NULL, 0};
  struct value end = {NULL, 0};
  struct problem problem;
  const bool numbers = settings->database.number_keys;
  int code = -1;
  if (!value_parse_key(begin_text, numbers, &begin, &problem) || !value_parse_key(end_text, numbers, &end, &problem)) {
    code = session_refuse(session, "key", &problem);
  } else {
    if (settings->prefix != NULL) {
      prefix_end(&end);
    }
    turb_error err = TURB_ERROR_INIT;
    if (turb_delete_range(session->collection, value_bytes(begin), value_bytes(end), NULL, &err) != TURB_OK) {
      code = session_fail(session, &err);
    }
  }
  free(begin.data);
  free(end.data);
  return code;
}

static int delete_run(struct output *out, void *given, int count, char **operands) {
  (void)out;
  const struct delete_settings *settings = given;
  if (settings->prefix != NULL ? settings->range || count != 0 : settings->range ? count != 2 : count == 0) {
    return options_refuse(&command_delete, "give keys, or --range with BEGIN and END, or --prefix alone");
  }
  struct session session = {0};
  int code = session_open(&session, &command_delete, &settings->database, SESSION_WRITE);
  if (code >= 0) {
    return code;
  }
  if (settings->prefix != NULL) {
    code = delete_range(&session, settings, settings->prefix, settings->prefix);
  } else if (settings->range) {
    code = delete_range(&session, settings, operands[0], operands[1]);
  } else {
    code = delete_keys(&session, settings, count, operands);
  }
  return session_close(&session, code < 0 ? CLI_OK : code);
}

const struct command command_delete = {
    .name = "delete",
    .operands = "KEY... | --range BEGIN END | --prefix KEY",
    .summary = "Deletes keys, or a range of them",
    .details = "A key that is not there is no error.",
    .options = delete_options,
    .shared = shared,
    .max_operands = CLI_ANY_OPERANDS,
    .settings_bytes = sizeof(struct delete_settings),
    .run = delete_run,
};
