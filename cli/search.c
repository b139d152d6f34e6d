/*
 * turb search: the nearest neighbours of one vector.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "database.h"

struct search_settings {
  struct database_settings database;
  uint64_t k;
  struct option_float radius;
  const char *lower, *upper, *prefix;
  const char *key;
  const char *vector_file;
  bool exact, vectors, costs;
};
#define AT(field) offsetof(struct search_settings, field)

static const struct option_spec search_options[] = {
    {.name = "neighbours",
     .letter = 'k',
     .kind = OPTION_NUMBER,
     .offset = AT(k),
     .argument = "K",
     .help = "how many (10)",
     .low = 1,
     .high = 1u << 20},
    {.name = "radius", .kind = OPTION_FLOAT, .offset = AT(radius), .argument = "R", .help = "only at this distance or nearer"},
    {.name = "from", .kind = OPTION_TEXT, .offset = AT(lower), .argument = "KEY", .help = "only this key and those after it"},
    {.name = "to", .kind = OPTION_TEXT, .offset = AT(upper), .argument = "KEY", .help = "only keys before this one"},
    {.name = "prefix", .letter = 'p', .kind = OPTION_TEXT, .offset = AT(prefix), .argument = "KEY", .help = "only keys that begin so"},
    {.name = "key", .kind = OPTION_TEXT, .offset = AT(key), .argument = "KEY", .help = "search with the vector of this entry"},
    {.name = "vector-file",
     .letter = 'f',
     .kind = OPTION_TEXT,
     .offset = AT(vector_file),
     .argument = "FILE",
     .help = "read the vector as a list from a file (- is standard input)"},
    {.name = "exact", .kind = OPTION_FLAG, .offset = AT(exact), .help = "scan everything, whatever the index"},
    {.name = "vectors", .kind = OPTION_FLAG, .offset = AT(vectors), .help = "show the neighbours' vectors"},
    {.name = "costs", .kind = OPTION_FLAG, .offset = AT(costs), .help = "show what the search cost"},
    {.name = NULL}};

static const struct option_spec *const shared[] = {collection_options, key_options, database_options, output_options, NULL};

struct query {
  struct value vector, lower, upper, prefix;
};

static int query_of_key(const struct session *session, const struct search_settings *settings, struct value *vector) {
  struct problem problem;
  struct value key;
  if (!value_parse_key(settings->key, settings->database.number_keys, &key, &problem)) {
    return session_refuse(session, "--key", &problem);
  }
  turb_error err = TURB_ERROR_INIT;
  vector->size = session->info.row_bytes;
  vector->data = malloc(vector->size);
  turb_read_options options = TURB_READ_OPTIONS_INIT;
  options.parts = TURB_VECTOR;
  const turb_status status = vector->data == NULL
                                 ? TURB_NO_MEMORY
                                 : turb_get(session->collection, value_bytes(key), &options, vector->data, NULL, 0, NULL, NULL, &err);
  free(key.data);
  err.status = status;
  return status == TURB_OK ? -1 : session_fail(session, &err);
}

static int query_parse(const struct session *session, const struct search_settings *settings, int count, char **operands,
                       struct query *query) {
  struct problem problem;
  if ((count != 0) + (settings->key != NULL) + (settings->vector_file != NULL) != 1) {
    return options_refuse(session->command, "give VECTOR, --key or --vector-file, and only one of them");
  }
  if (count != 0 && !value_parse_vector(operands[0], &session->info, &query->vector, &problem)) {
    return session_refuse(session, "vector", &problem);
  }
  if (settings->vector_file != NULL && !value_read_vector(settings->vector_file, &session->info, &query->vector, &problem)) {
    return session_refuse(session, "vector", &problem);
  }
  const bool numbers = settings->database.number_keys;
  if ((settings->lower != NULL && !value_parse_key(settings->lower, numbers, &query->lower, &problem)) ||
      (settings->upper != NULL && !value_parse_key(settings->upper, numbers, &query->upper, &problem)) ||
      (settings->prefix != NULL && !value_parse_key(settings->prefix, numbers, &query->prefix, &problem))) {
    return session_refuse(session, "key range", &problem);
  }
  return settings->key != NULL ? query_of_key(session, settings, &query->vector) : -1;
}

static void print_hit(struct output *out, const struct session *session, const struct search_settings *settings, size_t rank,
                      const turb_hit *hit) {
  const bool numbers = settings->database.number_keys;
  if (!out->json) {
    output_format(out, "%4zu  %-14.9g  ", rank, (double)hit->distance);
    value_print_key(out, hit->key, numbers);
    output_text(out, "\t");
    output_printable(out, hit->attributes);
    if (settings->vectors) {
      output_text(out, "\t");
      value_print_vector(out, &session->info, hit->vector, 0);
    }
    output_text(out, "\n");
    return;
  }
  output_begin(out);
  output_json_number(out, "rank", rank);
  output_json_double(out, "distance", (double)hit->distance);
  value_json_key(out, "key", hit->key, numbers);
  output_json_number(out, "sequence", hit->sequence);
  output_json_bytes(out, "attributes", hit->attributes);
  if (settings->vectors) {
    output_name(out, "vector");
    value_print_vector(out, &session->info, hit->vector, 0);
  }
  output_end(out);
}

static int print_costs(struct output *out, const struct session *session, const turb_result *result) {
  turb_costs costs = {.size = sizeof costs};
  turb_error err = TURB_ERROR_INIT;
  if (turb_result_costs(result, &costs, &err) != TURB_OK) {
    return session_fail(session, &err);
  }
  if (!out->json) {
    output_format(out,
                  "distances %" PRIu64 ", rows streamed %" PRIu64 ", bytes read %" PRIu64 ", hidden %" PRIu64 ", filtered %" PRIu64 "%s\n",
                  costs.distances, costs.rows_streamed, costs.bytes_read, costs.hidden, costs.filtered,
                  costs.short_reason == TURB_SHORT_FEW_MATCH ? ", fewer match than asked for" : "");
    return CLI_OK;
  }
  output_begin(out);
  output_json_number(out, "distances", costs.distances);
  output_json_number(out, "rows_streamed", costs.rows_streamed);
  output_json_number(out, "bytes_read", costs.bytes_read);
  output_json_number(out, "hidden", costs.hidden);
  output_json_number(out, "filtered", costs.filtered);
  output_json_bool(out, "few_match", costs.short_reason == TURB_SHORT_FEW_MATCH);
  output_end(out);
  return CLI_OK;
}

static int search(struct output *out, const struct session *session, const struct search_settings *settings, const struct query *query) {
  turb_search_options options = TURB_SEARCH_OPTIONS_INIT;
  options.k = (uint32_t)settings->k;
  options.mode = settings->exact ? TURB_SEARCH_EXACT : TURB_SEARCH_DEFAULT;
  options.has_radius = settings->radius.given;
  options.radius = (float)settings->radius.value;
  options.lower = value_bytes(query->lower);
  options.upper = value_bytes(query->upper);
  options.prefix = value_bytes(query->prefix);
  options.parts = TURB_KEY | TURB_ATTRIBUTES | (settings->vectors ? (uint32_t)TURB_VECTOR : 0);
  turb_result *result = NULL;
  turb_error err = TURB_ERROR_INIT;
  if (turb_search(session->collection, value_bytes(query->vector), &options, &result, &err) != TURB_OK) {
    return session_fail(session, &err);
  }
  for (size_t i = 0; i < turb_result_count(result) && output_open(out); i++) {
    print_hit(out, session, settings, i + 1, turb_result_hit(result, i));
  }
  const int code = settings->costs ? print_costs(out, session, result) : CLI_OK;
  turb_result_free(result);
  return code;
}

static int search_run(struct output *out, void *given, int count, char **operands) {
  const struct search_settings *settings = given;
  struct session session = {0};
  int code = session_open(&session, &command_search, &settings->database, SESSION_READ);
  if (code >= 0) {
    return code;
  }
  struct query query;
  memset(&query, 0, sizeof query);
  code = query_parse(&session, settings, count, operands, &query);
  if (code < 0) {
    code = search(out, &session, settings, &query);
  }
  free(query.vector.data);
  free(query.lower.data);
  free(query.upper.data);
  free(query.prefix.data);
  return session_close(&session, code);
}

const struct command command_search = {
    .name = "search",
    .operands = "VECTOR | --key KEY | --vector-file FILE",
    .summary = "Finds the entries nearest to a vector",
    .details = "VECTOR is given as for put. Text has a line a neighbour: rank, distance, key and attributes. Distances are squared for l2\n"
               "and negated dot products for inner-product; smaller is nearer.",
    .options = search_options,
    .shared = shared,
    .max_operands = 1,
    .settings_bytes = sizeof(struct search_settings),
    .run = search_run,
};
