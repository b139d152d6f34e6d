/*
 * turb get and scan.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "database.h"

#define TEXT_COMPONENTS 8 /* shown of a long vector, unless --full */

static const struct option_spec *const shared[] = {collection_options, key_options, database_options, output_options, NULL};

/* ---- get ---- */

struct get_settings {
  struct database_settings database;
  bool raw;
};

static const struct option_spec get_options[] = {
    {.name = "raw", .kind = OPTION_FLAG, .offset = offsetof(struct get_settings, raw), .help = "write the vectors' bytes alone"},
    {.name = NULL}};

static void get_print(struct output *out, const struct session *session, const struct get_settings *settings, turb_bytes key,
                      const turb_pinned *pinned) {
  const bool numbers = settings->database.number_keys;
  if (settings->raw) {
    output_bytes(out, pinned->vector.data, pinned->vector.size);
  } else if (out->json) {
    output_begin(out);
    value_json_key(out, "key", key, numbers);
    output_json_number(out, "sequence", pinned->sequence);
    output_json_bytes(out, "attributes", pinned->attributes);
    output_name(out, "vector");
    value_print_vector(out, &session->info, pinned->vector, 0);
    output_end(out);
  } else {
    output_text(out, "key         ");
    value_print_key(out, key, numbers);
    output_format(out, "\nsequence    %" PRIu64 "\nattributes  ", pinned->sequence);
    output_printable(out, pinned->attributes);
    output_text(out, "\nvector      ");
    value_print_vector(out, &session->info, pinned->vector, 0);
    output_text(out, "\n");
  }
}

static int get_one(struct output *out, const struct session *session, const struct get_settings *settings, const char *text) {
  struct problem problem;
  struct value key;
  if (!value_parse_key(text, settings->database.number_keys, &key, &problem)) {
    return session_refuse(session, "key", &problem);
  }
  turb_pinned pinned;
  memset(&pinned, 0, sizeof pinned);
  turb_error err = TURB_ERROR_INIT;
  const turb_status status = turb_get_pinned(session->collection, value_bytes(key), NULL, &pinned, &err);
  int code = CLI_OK;
  if (status == TURB_OK) {
    get_print(out, session, settings, value_bytes(key), &pinned);
    turb_pinned_release(&pinned);
  } else if (status == TURB_NOT_FOUND) {
    (void)fprintf(stderr, "turb get: no entry has the key '%s'\n", text);
    code = CLI_FAILED;
  } else {
    code = session_fail(session, &err);
  }
  free(key.data);
  return code;
}

static int get_run(struct output *out, void *given, int count, char **operands) {
  const struct get_settings *settings = given;
  struct session session = {0};
  int code = session_open(&session, &command_get, &settings->database, SESSION_READ);
  if (code >= 0) {
    return code;
  }
  code = CLI_OK;
  for (int i = 0; i < count && output_open(out) && code <= CLI_FAILED; i++) {
    const int one = get_one(out, &session, settings, operands[i]);
    code = one > code ? one : code; /* a missing key does not keep the others from being shown */
  }
  return session_close(&session, code);
}

const struct command command_get = {
    .name = "get",
    .operands = "KEY...",
    .summary = "Shows entries by key",
    .details = "Exit code 1 when a key is not there; the others are shown all the same.",
    .options = get_options,
    .shared = shared,
    .min_operands = 1,
    .max_operands = CLI_ANY_OPERANDS,
    .settings_bytes = sizeof(struct get_settings),
    .run = get_run,
};

/* ---- scan ---- */

struct scan_settings {
  struct database_settings database;
  const char *lower, *upper, *prefix;
  uint64_t limit;
  bool reverse, keys_only, count, full;
};
#define AT(field) offsetof(struct scan_settings, field)

static const struct option_spec scan_options[] = {
    {.name = "from", .kind = OPTION_TEXT, .offset = AT(lower), .argument = "KEY", .help = "begin at this key"},
    {.name = "to", .kind = OPTION_TEXT, .offset = AT(upper), .argument = "KEY", .help = "end before this key"},
    {.name = "prefix", .letter = 'p', .kind = OPTION_TEXT, .offset = AT(prefix), .argument = "KEY", .help = "only keys that begin so"},
    {.name = "limit",
     .letter = 'l',
     .kind = OPTION_NUMBER,
     .offset = AT(limit),
     .argument = "N",
     .help = "at most so many entries",
     .low = 1},
    {.name = "reverse", .letter = 'r', .kind = OPTION_FLAG, .offset = AT(reverse), .help = "from the last key to the first"},
    {.name = "keys-only", .letter = 'k', .kind = OPTION_FLAG, .offset = AT(keys_only), .help = "neither vectors nor attributes"},
    {.name = "count", .kind = OPTION_FLAG, .offset = AT(count), .help = "only how many entries there are"},
    {.name = "full", .kind = OPTION_FLAG, .offset = AT(full), .help = "all components of a vector in text, not only the first 8"},
    {.name = NULL}};

/* Bounds on the heap, released together. */
struct bounds {
  struct value lower, upper, prefix;
};

static int scan_bounds(const struct session *session, const struct scan_settings *settings, struct bounds *bounds) {
  const struct {
    const char *text;
    struct value *value;
    const char *name;
  } parts[] = {{settings->lower, &bounds->lower, "--from"},
               {settings->upper, &bounds->upper, "--to"},
               {settings->prefix, &bounds->prefix, "--prefix"}};
  for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
    struct problem problem;
    if (parts[i].text != NULL && !value_parse_key(parts[i].text, settings->database.number_keys, parts[i].value, &problem)) {
      return session_refuse(session, parts[i].name, &problem);
    }
  }
  return -1;
}

static void scan_print(struct output *out, const struct session *session, const struct scan_settings *settings, const turb_entry *entry) {
  const bool numbers = settings->database.number_keys;
  if (!out->json) {
    value_print_key(out, entry->key, numbers);
    if (!settings->keys_only) {
      output_text(out, "\t");
      value_print_vector(out, &session->info, entry->vector, settings->full ? 0 : TEXT_COMPONENTS);
      output_text(out, "\t");
      output_printable(out, entry->attributes);
    }
    output_text(out, "\n");
    return;
  }
  output_begin(out);
  value_json_key(out, "key", entry->key, numbers);
  output_json_number(out, "sequence", entry->sequence);
  if (!settings->keys_only) {
    output_json_bytes(out, "attributes", entry->attributes);
    output_name(out, "vector");
    value_print_vector(out, &session->info, entry->vector, 0);
  }
  output_end(out);
}

/* Walks the iterator; *rows counts what it met. */
static turb_status scan_walk(struct output *out, const struct session *session, const struct scan_settings *settings,
                             turb_iterator *iterator, uint64_t *rows, turb_error *err) {
  turb_state state = turb_finish(iterator, settings->reverse ? turb_last(iterator) : turb_first(iterator));
  while (state == TURB_READY && output_open(out)) {
    (*rows)++;
    if (!settings->count) {
      scan_print(out, session, settings, iterator->entry);
    }
    if (settings->limit != 0 && *rows == settings->limit) {
      return TURB_OK;
    }
    state = settings->reverse ? turb_prev(iterator) : turb_next(iterator);
  }
  return state == TURB_FAILED ? turb_iterator_status(iterator, err) : TURB_OK;
}

static int scan_collection(struct output *out, const struct session *session, const struct scan_settings *settings,
                           const struct bounds *bounds) {
  turb_iterator_options options = TURB_ITERATOR_OPTIONS_INIT;
  options.parts = settings->keys_only || settings->count ? TURB_KEY : TURB_ALL;
  options.lower = value_bytes(bounds->lower);
  options.upper = value_bytes(bounds->upper);
  options.prefix = value_bytes(bounds->prefix);
  options.skip_cache_fill = true;
  turb_iterator *iterator = NULL;
  turb_error err = TURB_ERROR_INIT;
  if (turb_iterator_open(session->collection, &options, &iterator, &err) != TURB_OK) {
    return session_fail(session, &err);
  }
  uint64_t rows = 0;
  const turb_status status = scan_walk(out, session, settings, iterator, &rows, &err);
  turb_iterator_close(iterator);
  if (status != TURB_OK) {
    return session_fail(session, &err);
  }
  if (settings->count && out->json) {
    output_begin(out);
    output_json_number(out, "count", rows);
    output_end(out);
  } else if (settings->count) {
    output_format(out, "%" PRIu64 "\n", rows);
  }
  return CLI_OK;
}

static int scan_run(struct output *out, void *given, int count, char **operands) {
  (void)count;
  (void)operands;
  const struct scan_settings *settings = given;
  struct session session = {0};
  int code = session_open(&session, &command_scan, &settings->database, SESSION_READ);
  if (code >= 0) {
    return code;
  }
  struct bounds bounds;
  memset(&bounds, 0, sizeof bounds);
  code = scan_bounds(&session, settings, &bounds);
  if (code < 0) {
    code = scan_collection(out, &session, settings, &bounds);
  }
  free(bounds.lower.data);
  free(bounds.upper.data);
  free(bounds.prefix.data);
  return session_close(&session, code);
}

const struct command command_scan = {
    .name = "scan",
    .operands = "",
    .summary = "Shows the entries in the order of keys",
    .details = "Text has a line an entry: key, vector and attributes, separated by tabs.",
    .options = scan_options,
    .shared = shared,
    .settings_bytes = sizeof(struct scan_settings),
    .run = scan_run,
};
