/* The public calls of search.h: options and queries are checked, a view is taken, the scan runs, answers are made. */
#include "engine/search.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "engine/write.h"

#define DEFAULT_K 10u

/* ---- options ---- */

static turb_status check_bound(turb_bytes bound, const char *name, turb_error *err) {
  if (bound.size <= TURB_MAX_KEY_BYTES)
    return TURB_OK;
  return status_set(err, TURB_TOO_LARGE, "%s has %zu bytes, and must have at most %d", name, bound.size, TURB_MAX_KEY_BYTES);
}

static turb_status read_options(const turb_search_options *given, turb_search_options *options, turb_error *err) {
  turb_status status = options_read(given, options, sizeof *options, "turb_search_options", err);
  if (status != TURB_OK)
    return status;
  if (!options->k)
    options->k = DEFAULT_K;
  if (options->k > SEARCH_MAX_K)
    return status_set(err, TURB_INVALID, "k is %u, and must be from 1 to %u", options->k, SEARCH_MAX_K);
  if (options->mode != TURB_SEARCH_DEFAULT && options->mode != TURB_SEARCH_EXACT)
    return status_set(err, TURB_INVALID, "mode is %d, and must be from %d to %d", (int)options->mode, TURB_SEARCH_DEFAULT,
                      TURB_SEARCH_EXACT);
  if (options->has_radius && isnan(options->radius))
    return status_set(err, TURB_INVALID, "radius is not a number");
  if (options->parts & ~(uint32_t)TURB_ALL)
    return status_set(err, TURB_INVALID, "parts is %u, and must be of TURB_KEY, TURB_VECTOR, TURB_ATTRIBUTES", options->parts);
  status = check_bound(options->lower, "lower", err);
  if (status == TURB_OK)
    status = check_bound(options->upper, "upper", err);
  return status == TURB_OK ? check_bound(options->prefix, "prefix", err) : status;
}

static turb_status check_queries(turb_collection *collection, size_t count, const uint8_t *queries, turb_error *err) {
  const uint32_t row_bytes = collection->shape.row_bytes;
  for (size_t i = 0; i < count; i++) {
    turb_error why = TURB_ERROR_INIT;
    const turb_status status = write_check_vector(collection, (turb_bytes){queries + i * row_bytes, row_bytes}, &why);
    if (status != TURB_OK)
      return count == 1 ? status_copy(err, &why) : status_set(err, status, "query %zu: %s", i, why.message);
  }
  return TURB_OK;
}

/* ---- life ---- */

static turb_status take_queries(struct search *s, const uint8_t *queries, turb_error *err) {
  const struct table_shape *shape = &s->collection->shape;
  const struct kernel *kernel = kernel_choose(shape->metric, shape->type, KERNEL_AUTO);
  if (!kernel)
    return status_set(err, TURB_UNSUPPORTED, "no kernel for metric %d of type %d", (int)shape->metric, (int)shape->type);
  const size_t each = (kernel_query_scratch_bytes(kernel, shape->dimension) + 63) / 64 * 64;
  void *taken = NULL;
  turb_status status = TURB_OK;
  if (each) {
    status = search_take(&s->memory, each * s->query_count, &s->query_scratch, err);
    s->query_scratch_bytes = each * s->query_count;
  }
  if (status == TURB_OK)
    status = search_take(&s->memory, s->query_count * sizeof *s->queries, &taken, err);
  s->queries = taken;
  if (status == TURB_OK) {
    status = search_take(&s->memory, s->query_count * sizeof *s->query_pointers, &taken, err);
    s->query_pointers = taken;
  }
  for (uint32_t q = 0; q < s->query_count && status == TURB_OK; q++) {
    void *scratch = each ? (uint8_t *)s->query_scratch + q * each : NULL;
    kernel_query_init(&s->queries[q], kernel, queries + (size_t)q * shape->row_bytes, shape->dimension, scratch);
    s->query_pointers[q] = &s->queries[q];
  }
  return status;
}

static turb_status take_heaps(struct search *s, turb_error *err) {
  void *taken;
  turb_status status = search_take(&s->memory, s->query_count * sizeof *s->heaps, &taken, err);
  if (status != TURB_OK)
    return status;
  s->heaps = taken;
  for (uint32_t q = 0; q < s->query_count; q++)
    search_heap_init(&s->heaps[q], s->options.k, s->options.has_radius ? s->options.radius : INFINITY);
  status = search_take(&s->memory, SEARCH_DISTANCES * sizeof *s->distances, &taken, err);
  s->distances = taken;
  assert(s->query_count != 0);
  const uint32_t together = s->query_count < SEARCH_BLOCK ? s->query_count : SEARCH_BLOCK;
  s->chunk_rows = SEARCH_DISTANCES / together < SEARCH_CHUNK_ROWS ? SEARCH_DISTANCES / together : SEARCH_CHUNK_ROWS;
  return status;
}

static turb_status take_bounds(struct search *s, turb_error *err) {
  s->bounds = (struct key_bounds){s->options.lower, s->options.upper};
  if (!s->options.prefix.size)
    return TURB_OK;
  void *taken;
  const turb_status status = search_take(&s->memory, TURB_MAX_KEY_BYTES, &taken, err);
  s->bound_scratch = taken;
  if (status == TURB_OK)
    key_bounds_prefix(&s->bounds, s->options.prefix, s->bound_scratch);
  return status;
}

static void search_close(struct search *s) {
  for (uint32_t q = 0; q < s->query_count && s->heaps; q++)
    search_heap_free(&s->heaps[q], &s->memory);
  search_checks_close(s);
  reads_close(&s->reads);
  search_give(&s->memory, s->heaps, s->query_count * sizeof *s->heaps);
  search_give(&s->memory, s->distances, SEARCH_DISTANCES * sizeof *s->distances);
  search_give(&s->memory, s->query_scratch, s->query_scratch_bytes);
  search_give(&s->memory, s->queries, s->query_count * sizeof *s->queries);
  search_give(&s->memory, s->query_pointers, s->query_count * sizeof *s->query_pointers);
  search_give(&s->memory, s->bound_scratch, TURB_MAX_KEY_BYTES);
  read_view_release(&s->view);
}

static turb_status search_open(struct search *s, turb_collection *collection, size_t count, const uint8_t *queries,
                               const turb_search_options *given, turb_error *err) {
  *s = (struct search){.collection = collection};
  turb_status status = db_check_readable(collection, err);
  if (status == TURB_OK)
    status = read_options(given, &s->options, err);
  if (status == TURB_OK && count > UINT32_MAX / 2)
    status = status_set(err, TURB_TOO_LARGE, "%zu queries", count);
  if (status == TURB_OK)
    status = check_queries(collection, count, queries, err);
  if (status == TURB_OK)
    status = read_view_open(collection, s->options.snapshot, &s->view, err);
  if (status != TURB_OK)
    return status;
  s->db = collection->db;
  s->memory = (struct search_memory){&s->db->allocator, &s->db->budget};
  s->query_count = (uint32_t)count;
  reads_init(&s->reads, s->db->system, NULL);
  status = take_bounds(s, err);
  if (status == TURB_OK)
    status = take_queries(s, queries, err);
  if (status == TURB_OK)
    status = take_heaps(s, err);
  if (status == TURB_OK)
    status = search_checks_open(s, err);
  if (status != TURB_OK)
    search_close(s);
  return status;
}

static turb_status run(turb_collection *collection, size_t count, const uint8_t *queries, const turb_search_options *given,
                       turb_result **results, turb_error *err) {
  struct search search;
  turb_status status = search_open(&search, collection, count, queries, given, err);
  if (status != TURB_OK)
    return status;
  status = search_scan(&search, err);
  for (size_t i = 0; i < count && status == TURB_OK; i++)
    status = search_result_make(&search, (uint32_t)i, &results[i], err);
  for (size_t i = 0; i < count && status != TURB_OK; i++) {
    turb_result_free(results[i]);
    results[i] = NULL;
  }
  search_close(&search);
  return status;
}

/* ---- the public calls ---- */

turb_status turb_search(turb_collection *collection, turb_bytes query, const turb_search_options *options, turb_result **result,
                        turb_error *err) {
  *result = NULL;
  turb_status status = db_check_readable(collection, err);
  if (status == TURB_OK)
    status = write_check_vector(collection, query, err);
  return status == TURB_OK ? run(collection, 1, query.data, options, result, err) : status;
}

turb_status turb_search_batch(turb_collection *collection, size_t count, const void *queries, const turb_search_options *options,
                              turb_result **results, turb_error *err) {
  for (size_t i = 0; i < count; i++)
    results[i] = NULL;
  if (!count) {
    turb_search_options checked;
    const turb_status status = db_check_readable(collection, err);
    return status == TURB_OK ? read_options(options, &checked, err) : status;
  }
  if (!queries)
    return status_set(err, TURB_INVALID, "no queries are given");
  return run(collection, count, queries, options, results, err);
}
