/* Recovery of all logs of a database and the chain that they form; see log.h. */
#include <stdlib.h>

#include "engine/log_format.h"
#include "engine/name.h"

struct listing {
  struct log_set *set;
  uint64_t oldest;
  turb_status status;
};

static void list_name(void *context, const char *name) {
  struct listing *listing = context;
  struct log_set *set = listing->set;
  uint64_t number = 0;
  if (listing->status != TURB_OK || name_parse(name, &number) != NAME_LOG || number < listing->oldest) {
    return;
  }
  if (set->count == set->capacity) {
    const size_t capacity = set->capacity != 0 ? 2 * set->capacity : 8;
    struct log_recovery *logs = mem_resize(set->allocator, set->logs, set->capacity * sizeof *logs, capacity * sizeof *logs);
    if (logs == NULL) {
      listing->status = TURB_NO_MEMORY;
      return;
    }
    set->logs = logs;
    set->capacity = capacity;
  }
  set->logs[set->count++] = (struct log_recovery){.number = number};
}

static int compare_numbers(const void *a, const void *b) {
  const uint64_t left = ((const struct log_recovery *)a)->number;
  const uint64_t right = ((const struct log_recovery *)b)->number;
  return (left > right) - (left < right);
}

static turb_status list_logs(const struct log_recovery_options *options, uint64_t oldest, struct log_set *set, turb_error *err) {
  struct listing listing = {.set = set, .oldest = oldest, .status = TURB_OK};
  turb_status status = io_list_folder(options->system, options->folder, list_name, &listing, err);
  if (status == TURB_OK && listing.status != TURB_OK) {
    status = status_set(err, listing.status, "no memory to list the logs");
  }
  if (status == TURB_OK && set->count > 1) {
    qsort(set->logs, set->count, sizeof *set->logs, compare_numbers);
  }
  return status;
}

/* ---- the chain ---- */

/* A break of the chain: an error, or with salvage a message. */
static turb_status chain_breaks(const struct log_recovery_options *options, uint64_t number, uint64_t offset, const char *what,
                                uint64_t other, turb_error *err) {
  char name[NAME_BYTES];
  name_format(name, NAME_LOG, number);
  if (options->salvage) {
    logger_write(options->logger, LOGGER_ERROR, "%s/%s: %s %llu; salvage goes on", options->folder, name, what, (unsigned long long)other);
    return TURB_OK;
  }
  char *path = name_path(options->allocator, options->folder, NAME_LOG, number);
  const turb_status status =
      status_set_file(err, TURB_CORRUPTION, path != NULL ? path : name, offset, "%s %llu", what, (unsigned long long)other);
  mem_free_string(options->allocator, path);
  return status;
}

/* Does the end of a log before j name j? Then it was in use, or about to be. */
static bool is_named(const struct log_set *set, size_t j) {
  for (size_t i = 0; i < j; i++) {
    if (set->logs[i].ended && set->logs[i].next_number == set->logs[j].number) {
      return true;
    }
  }
  return false;
}

/*
 * Before log i, which holds records, is taken in: do those before it lead to it? An empty log that nothing names is passed over: it was
 * made in vain
 * (its creation failed late), and another one took its place.
 */
static turb_status check_chain_to(const struct log_recovery_options *options, const struct log_set *set, size_t i, turb_error *err) {
  bool first = true;
  for (size_t j = 0; j < i; j++) {
    const struct log_recovery *log = &set->logs[j];
    if (log->unused) {
      continue;
    }
    turb_status status = TURB_OK;
    if (!log->ended && (log->records != 0 || first || is_named(set, j))) {
      status = chain_breaks(options, log->number, log->end, "the log has no end, but records follow in log", set->logs[i].number, err);
    } else if (log->ended && log->next_number > set->logs[i].number) {
      status = chain_breaks(options, log->number, log->end, "the log's next is not the one with the records that follow, log",
                            set->logs[i].number, err);
    }
    if (status != TURB_OK) {
      return status;
    }
    first = false;
  }
  return TURB_OK;
}

/* Each end names a log that is there. */
static turb_status check_ends(const struct log_recovery_options *options, const struct log_set *set, turb_error *err) {
  for (size_t i = 0; i < set->count; i++) {
    const struct log_recovery *log = &set->logs[i];
    if (!log->ended) {
      continue;
    }
    bool found = false;
    for (size_t j = i + 1; j < set->count && !found; j++) {
      found = set->logs[j].number == log->next_number && !set->logs[j].unused;
    }
    if (!found) {
      const turb_status status = chain_breaks(options, log->number, log->end - LOG_RECORD_BYTES - LOG_END_PAYLOAD_BYTES,
                                              "a log is missing: number", log->next_number, err);
      if (status != TURB_OK) {
        return status;
      }
    }
  }
  return TURB_OK;
}

/* Delivers a log's records once the chain to it is checked: the check has to come before its first one. */
struct chained {
  const struct log_recovery_options *options;
  const struct log_set *set;
  size_t index;
  bool checked;
};

static turb_status chained_record(void *context, const struct log_record *record, turb_error *err) {
  struct chained *chained = context;
  if (!chained->checked && record->type == LOG_BATCH) {
    chained->checked = true;
    const turb_status status = check_chain_to(chained->options, chained->set, chained->index, err);
    if (status != TURB_OK) {
      return status;
    }
  }
  return chained->options->record != NULL ? chained->options->record(chained->options->context, record, err) : TURB_OK;
}

static void chained_skipped(void *context, const char *file, uint64_t offset, uint64_t bytes) {
  const struct chained *chained = context;
  if (chained->options->skipped != NULL) {
    chained->options->skipped(chained->options->context, file, offset, bytes);
  }
}

turb_status log_set_recover(const struct log_recovery_options *options, uint64_t oldest, struct log_set *set, turb_error *err) {
  *set = (struct log_set){.allocator = options->allocator};
  turb_status status = list_logs(options, oldest, set, err);
  if (status == TURB_OK && oldest != 0 && (set->count == 0 || set->logs[0].number != oldest)) {
    status = chain_breaks(options, oldest, STATUS_NO_OFFSET, "a log that is still needed is missing: number", oldest, err);
  }
  for (size_t i = 0; i < set->count && status == TURB_OK; i++) {
    struct chained chained = {.options = options, .set = set, .index = i};
    struct log_recovery_options inner = *options;
    inner.record = chained_record;
    inner.skipped = chained_skipped;
    inner.context = &chained;
    status = log_recover(&inner, set->logs[i].number, &set->logs[i], err);
  }
  return status == TURB_OK ? check_ends(options, set, err) : status;
}

turb_status log_set_seal(const struct log_recovery_options *options, struct log_set *set, uint64_t next_number, turb_error *err) {
  for (size_t i = 0; i < set->count; i++) {
    struct log_recovery *log = &set->logs[i];
    if (log->ended || log->unused) {
      continue;
    }
    uint64_t next = next_number;
    for (size_t j = i + 1; j < set->count; j++) {
      if (!set->logs[j].unused) {
        next = set->logs[j].number;
        break;
      }
    }
    const turb_status status = log_seal(options, log, next, err);
    if (status != TURB_OK) {
      return status;
    }
  }
  return TURB_OK;
}

void log_set_free(struct log_set *set) {
  mem_free(set->allocator, set->logs, set->capacity * sizeof *set->logs);
  *set = (struct log_set){.allocator = set->allocator};
}
