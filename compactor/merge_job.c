/* merge_job.h has the contract, the states and the invariants. */
#include "compactor/merge_job.h"

#include "base/arena.h"
#include "base/clock.h"
#include "iterators/parts.h"
#include "sstable/stream.h"

#define BATCH_REFS 256u
#define BATCH_HELD 256u

#define PIECE_MIN_BYTES (16u << 10)
#define PIECE_MAX_BYTES (1u << 20)
#define SLACK_BYTES     (80u << 10) /* cursors, range deletes, what the tail of a large table grows to */

struct merge_job {
  struct merge_job_options options;
  struct reads reads;
  struct cursor_context context;
  struct cursor *cursor;
  struct parts *parts;
  struct arena arena; /* range deletes */
  struct range_deletes input_ranges, output_ranges;
  struct retention retention;
  bool started, finished, kept;
  /* the batch in hand: refs that are kept, those before `at` written */
  struct cursor_batch batch;
  struct cursor_ref refs[BATCH_REFS];
  struct window *held[BATCH_HELD];
  uint32_t at;
  struct entry_parts entry_parts[BATCH_REFS];
  /* the output being written */
  struct table_writer *writer;
  char *writer_path;
  uint64_t reported_bytes;
  bool has_lower; /* the output's begin is a cut, at `lower` */
  uint16_t lower_size, last_size;
  uint8_t lower[TURB_MAX_KEY_BYTES];
  uint8_t last[TURB_MAX_KEY_BYTES]; /* key written last */
  struct merge_output *outputs;
  size_t output_count, output_capacity;
  uint64_t sum_in, sum_dropped, sum_out;
  uint64_t writer_bytes; /* charged for the writer while there is none, so that streams leave it room */
};

/* ---- opening ---- */

uint64_t merge_job_base_bytes(const struct table_shape *shape, uint64_t budget_limit_bytes) {
  return sizeof(struct merge_job) + table_writer_memory_bytes(shape, budget_limit_bytes) + SLACK_BYTES;
}

uint64_t merge_job_run_bytes(const struct table_shape *shape) {
  return lane_least_bytes(shape, EXTENT_ROWS) + lane_least_bytes(shape, EXTENT_KEYS);
}

/* The pieces of a run's lanes: four of rows (twice where they are unpacked) and four of a quarter of keys fill its share. */
static uint32_t piece_bytes(const struct merge_job_options *o) {
  const uint64_t base = merge_job_base_bytes(o->shape, budget_limit(o->env->budget));
  const uint64_t room = o->memory_bytes > base ? o->memory_bytes - base : 0;
  const uint64_t piece = room / 4 * 3 / (o->run_count + 1) / (o->shape->compression ? 9 : 5); /* a quarter for what tables grow to */
  return piece < PIECE_MIN_BYTES ? PIECE_MIN_BYTES : piece > PIECE_MAX_BYTES ? PIECE_MAX_BYTES : (uint32_t)(piece / 4096 * 4096);
}

static turb_status open_cursor(struct merge_job *self, turb_error *err) {
  const struct merge_job_options *o = &self->options;
  const uint32_t count = o->run_count + (o->memtable != NULL);
  struct cursor **children = mem_alloc_array(o->env->allocator, count, sizeof *children);
  if (!children)
    return status_set(err, TURB_NO_MEMORY, "no memory for a merge of %u runs", count);
  uint32_t opened = 0;
  turb_status status = TURB_OK;
  if (o->memtable)
    status = memtable_cursor_open(&self->context, o->memtable, &children[opened], err);
  if (o->memtable && status == TURB_OK)
    opened++;
  for (uint32_t i = 0; i < o->run_count && status == TURB_OK; i++) {
    status = concat_cursor_open(&self->context, o->runs[i], !o->paged, &children[opened], err);
    opened += status == TURB_OK;
  }
  if (status == TURB_OK)
    status = merge_cursor_open(&self->context, children, opened, &self->cursor, err);
  else
    for (uint32_t i = 0; i < opened; i++)
      cursor_close(children[i]);
  mem_free(o->env->allocator, children, count * sizeof *children);
  return status;
}

/* The range deletes of all inputs, and those of them that the output needs. */
static turb_status gather_ranges(struct merge_job *self, turb_error *err) {
  const struct merge_job_options *o = &self->options;
  size_t sets = o->memtable != NULL;
  for (uint32_t r = 0; r < o->run_count; r++)
    sets += o->runs[r]->count;
  const struct range_deletes **list = mem_alloc_array(o->env->allocator, sets, sizeof *list);
  if (!list)
    return status_set(err, TURB_NO_MEMORY, "no memory for the range deletes of %zu tables", sets);
  size_t n = 0;
  struct range_deletes of_memtable = {0};
  turb_status status = TURB_OK;
  if (o->memtable && memtable_range_delete_count(o->memtable->memtable)) {
    status = memtable_range_deletes_seen(o->memtable->memtable, SLOT_SEQUENCE_MAX,
                                         &(struct range_snapshots){o->snapshots, o->snapshot_count}, &self->arena, &of_memtable, err);
    list[n++] = &of_memtable;
  }
  for (uint32_t r = 0; r < o->run_count; r++)
    for (uint32_t t = 0; t < o->runs[r]->count; t++) {
      const struct range_deletes *deletes = table_range_deletes(o->runs[r]->sources[t].table);
      if (deletes->count)
        list[n++] = deletes;
    }
  if (status == TURB_OK && n)
    status = range_deletes_merge(list, n, NULL, &self->arena, &self->input_ranges, err);
  mem_free(o->env->allocator, list, sets * sizeof *list);
  if (status != TURB_OK || !n)
    return status;
  const struct range_snapshots snapshots = {o->snapshots, o->snapshot_count};
  const uint64_t through = !o->bottom ? 0 : o->snapshot_count ? o->snapshots[0] : UINT64_MAX;
  return range_deletes_drop(&self->input_ranges, &snapshots, through, &self->arena, &self->output_ranges, err);
}

static void count_inputs(struct merge_job *self) {
  const struct merge_job_options *o = &self->options;
  uint64_t entries = o->memtable ? memtable_entries(o->memtable->memtable) : 0;
  uint64_t bytes = o->memtable ? memtable_bytes(o->memtable->memtable) : 0;
  for (uint32_t r = 0; r < o->run_count; r++)
    for (uint32_t t = 0; t < o->runs[r]->count; t++) {
      const struct table_record *record = table_get_record(o->runs[r]->sources[t].table);
      entries += record->entries;
      bytes += record->size_bytes;
      self->sum_in += record->hash_sum;
    }
  atomic_store(&o->progress->entries_total, entries);
  atomic_store(&o->progress->bytes_total, bytes);
}

static void release_writer_bytes(struct merge_job *self) {
  budget_give(self->options.env->budget, BUDGET_JOB, self->writer_bytes);
  self->writer_bytes = 0;
}

/* As far as there is room: the writer says what is missing. */
static void reserve_writer_bytes(struct merge_job *self) {
  struct budget *budget = self->options.env->budget;
  const uint64_t bytes = table_writer_memory_bytes(self->options.shape, budget_limit(budget));
  self->writer_bytes = budget_take(budget, BUDGET_JOB, bytes) ? bytes : 0;
}

turb_status merge_job_open(const struct merge_job_options *options, struct merge_job **job, turb_error *err) {
  *job = NULL;
  const struct table_env *env = options->env;
  if (!budget_take(env->budget, BUDGET_JOB, sizeof(struct merge_job)))
    return status_set(err, TURB_BUDGET, "the memory budget has no room for a merge job");
  struct merge_job *self = mem_alloc_zeroed(env->allocator, sizeof *self);
  if (!self) {
    budget_give(env->budget, BUDGET_JOB, sizeof *self);
    return status_set(err, TURB_NO_MEMORY, "no memory for a merge job");
  }
  self->options = *options;
  reads_init(&self->reads, env->system, NULL);
  self->context = (struct cursor_context){
      .reads = &self->reads, .allocator = env->allocator, .budget = env->budget, .eager = true, .stream_piece_bytes = piece_bytes(options)};
  arena_init(&self->arena, env->allocator, env->budget, BUDGET_JOB, 0);
  self->batch = (struct cursor_batch){.refs = self->refs, .capacity = BATCH_REFS, .held = self->held, .held_capacity = BATCH_HELD};
  count_inputs(self);
  reserve_writer_bytes(self);
  turb_status status = gather_ranges(self, err);
  if (status == TURB_OK)
    status = open_cursor(self, err);
  const struct parts_options parts = {.which = TURB_VECTOR | TURB_ATTRIBUTES,
                                      .run_count = options->source_runs,
                                      .row_bytes = options->shape->row_bytes,
                                      .streaming = !options->paged};
  if (status == TURB_OK)
    status = parts_open(&self->context, &parts, &self->parts, err);
  retention_init(&self->retention, options->snapshots, options->snapshot_count, &self->input_ranges, options->bottom);
  if (status != TURB_OK) {
    merge_job_close(self);
    return status;
  }
  *job = self;
  return TURB_OK;
}

/* ---- outputs ---- */

static turb_status open_writer(struct merge_job *self, turb_error *err) {
  const struct merge_job_options *o = &self->options;
  uint64_t number;
  turb_status status = o->next_file(o->context, &number, &self->writer_path, err);
  if (status != TURB_OK)
    return status;
  release_writer_bytes(self);
  const struct table_writer_options options = {
      .shape = *o->shape, .file_number = number, .collection_id = o->collection_id, .job = o->job, .cut = self->output_count};
  status = table_writer_create(o->env, self->writer_path, &options, &self->writer, err);
  if (status != TURB_OK) {
    mem_free_string(o->env->allocator, self->writer_path);
    self->writer_path = NULL;
  }
  return status;
}

static turb_bytes copy_key(uint8_t **at, turb_bytes key) {
  if (!key.size)
    return TURB_NONE;
  memcpy(*at, key.data, key.size);
  const turb_bytes copy = {*at, key.size};
  *at += key.size;
  return copy;
}

static turb_status add_output(struct merge_job *self, const struct table_record *record, turb_error *err) {
  const turb_allocator *allocator = self->options.env->allocator;
  if (self->output_count == self->output_capacity) {
    const size_t capacity = self->output_capacity ? self->output_capacity * 2 : 8;
    struct merge_output *outputs =
        mem_resize(allocator, self->outputs, self->output_capacity * sizeof *outputs, capacity * sizeof *outputs);
    if (!outputs)
      return status_set(err, TURB_NO_MEMORY, "no memory for the outputs of a merge");
    self->outputs = outputs;
    self->output_capacity = capacity;
  }
  struct merge_output *output = &self->outputs[self->output_count];
  *output = (struct merge_output){.record = *record, .keys_size = record->lower.size + record->upper.size};
  output->keys = mem_alloc(allocator, output->keys_size);
  if (!output->keys)
    return status_set(err, TURB_NO_MEMORY, "no memory for the bounds of a table");
  uint8_t *at = output->keys;
  output->record.lower = copy_key(&at, record->lower);
  output->record.upper = copy_key(&at, record->upper);
  output->path = self->writer_path;
  self->writer_path = NULL;
  self->output_count++;
  self->sum_out += record->hash_sum;
  return TURB_OK;
}

static void report_written(struct merge_job *self, uint64_t bytes) {
  const uint64_t more = bytes - self->reported_bytes;
  if (bytes < self->reported_bytes || !more)
    return;
  atomic_fetch_add_explicit(&self->options.progress->bytes_written, more, memory_order_relaxed);
  self->reported_bytes = bytes;
  if (self->options.pause)
    self->options.pause(self->options.context, more);
}

/* Ends the table being written; the next one begins at `next` (NULL: there is none). */
static turb_status close_writer(struct merge_job *self, const struct slot *next, turb_error *err) {
  struct range_deletes clipped = {0};
  const turb_bytes lower = self->has_lower ? (turb_bytes){self->lower, self->lower_size} : TURB_NONE;
  const turb_bytes upper = next ? slot_key_bytes(next) : TURB_NONE;
  turb_status status = TURB_OK;
  if (self->output_ranges.count)
    status = range_deletes_clip(&self->output_ranges, lower, upper, &self->arena, &clipped, err);
  if (status == TURB_OK && !self->writer && clipped.count)
    status = open_writer(self, err);
  for (size_t i = 0; i < clipped.count && status == TURB_OK; i++)
    status = table_writer_add_range(self->writer, &clipped.fragments[i], err);
  if (status != TURB_OK || !self->writer)
    return status;
  struct table_record record;
  status = table_writer_finish(self->writer, &record, err);
  if (status == TURB_OK) {
    report_written(self, record.size_bytes);
    status = add_output(self, &record, err);
  }
  if (status != TURB_OK)
    return status;
  table_writer_destroy(self->writer);
  self->writer = NULL;
  reserve_writer_bytes(self);
  self->reported_bytes = 0;
  if (next) {
    self->has_lower = true;
    self->lower_size = next->key_size;
    memcpy(self->lower, slot_key(next), next->key_size);
  }
  return TURB_OK;
}

/* Whether the output is full and may end before this entry. */
static bool cuts_here(const struct merge_job *self, const struct slot *slot) {
  return self->writer && table_writer_bytes(self->writer) >= self->options.table_bytes &&
         !key_equal(self->last, self->last_size, slot_key(slot), slot->key_size);
}

static turb_status write_entry(struct merge_job *self, const struct slot *slot, const struct entry_parts *parts, turb_error *err) {
  turb_status status = TURB_OK;
  if (cuts_here(self, slot))
    status = close_writer(self, slot, err);
  if (status == TURB_OK && !self->writer)
    status = open_writer(self, err);
  if (status == TURB_OK)
    status = table_writer_add(self->writer, slot, parts->vector, parts->attributes, err);
  return status;
}

/* ---- the work ---- */

/* Keeps of the batch what the rules retain. */
static void judge(struct merge_job *self) {
  const struct slot *before = NULL;
  uint32_t kept = 0;
  for (uint32_t i = 0; i < self->batch.count; i++) {
    const struct cursor_ref ref = self->refs[i];
    const enum retention_verdict verdict = retention_judge(&self->retention, ref.slot, before);
    before = ref.slot;
    if (verdict == RETAIN)
      self->refs[kept++] = ref;
    else if (!self->options.memtable)
      self->sum_dropped += slot_entry_hash(ref.slot);
  }
  if (before)
    retention_remember(&self->retention, before);
  struct merge_progress *progress = self->options.progress;
  atomic_fetch_add_explicit(&progress->entries_done, self->batch.count, memory_order_relaxed);
  atomic_fetch_add_explicit(&progress->entries_dropped, self->batch.count - kept, memory_order_relaxed);
  const uint64_t total = atomic_load_explicit(&progress->entries_total, memory_order_relaxed);
  const uint64_t bytes = atomic_load_explicit(&progress->bytes_total, memory_order_relaxed);
  if (total)
    atomic_fetch_add_explicit(&progress->bytes_done, (uint64_t)((double)bytes / (double)total * self->batch.count), memory_order_relaxed);
  self->batch.count = kept;
  self->at = 0;
}

/* Fills the batch; *end when the inputs are exhausted. */
static turb_status next_batch(struct merge_job *self, bool *end, turb_error *err) {
  *end = false;
  cursor_batch_release(&self->batch);
  if (!self->started) {
    self->started = true;
    (void)cursor_first(self->cursor);
  }
  while (!self->batch.count) {
    const turb_state state = cursor_await(self->cursor);
    if (state == TURB_FAILED)
      return cursor_error(self->cursor, err);
    if (state == TURB_PENDING)
      return status_set(err, TURB_IO, "reads of a merge could not be submitted");
    if (state == TURB_END) {
      *end = true;
      return TURB_OK;
    }
    (void)cursor_take(self->cursor, &self->batch, false);
  }
  judge(self);
  return TURB_OK;
}

/* Writes the next set of the batch whose parts are in memory. */
static turb_status write_some(struct merge_job *self, turb_error *err) {
  const uint32_t left = self->batch.count - self->at;
  const struct cursor_ref *refs = self->refs + self->at;
  uint32_t resolved = 0;
  parts_begin(self->parts);
  for (;;) {
    const turb_state state = parts_resolve(self->parts, refs, left, false, self->entry_parts, &resolved);
    if (state == TURB_READY)
      break;
    if (state == TURB_FAILED)
      return parts_error(self->parts, err);
    const turb_status status = reads_wait(&self->reads, err);
    if (status != TURB_OK)
      return status;
  }
  for (uint32_t i = 0; i < resolved; i++) {
    const turb_status status = write_entry(self, refs[i].slot, &self->entry_parts[i], err);
    if (status != TURB_OK)
      return status;
    if (i + 1 == resolved || table_writer_bytes(self->writer) >= self->options.table_bytes) {
      self->last_size = refs[i].slot->key_size;
      memcpy(self->last, slot_key(refs[i].slot), refs[i].slot->key_size);
    }
  }
  if (self->writer)
    report_written(self, table_writer_bytes(self->writer));
  self->at += resolved;
  return TURB_OK;
}

static turb_status finish(struct merge_job *self, turb_error *err) {
  const turb_status status = close_writer(self, NULL, err);
  if (status != TURB_OK)
    return status;
  if (!self->options.memtable && self->sum_in != self->sum_dropped + self->sum_out)
    return status_set(err, TURB_CORRUPTION, "the entries that a merge wrote and dropped are not those it read; its output is discarded");
  struct merge_progress *progress = self->options.progress; /* batches were rounded down */
  atomic_store_explicit(&progress->bytes_done, atomic_load_explicit(&progress->bytes_total, memory_order_relaxed), memory_order_relaxed);
  self->finished = true;
  return TURB_OK;
}

turb_status merge_job_step(struct merge_job *self, uint64_t deadline_ns, bool *done, turb_error *err) {
  *done = self->finished;
  while (!self->finished) {
    if (atomic_load_explicit(&self->options.progress->cancelled, memory_order_relaxed))
      return status_set(err, TURB_CANCELLED, "the job was cancelled");
    turb_status status = TURB_OK;
    if (self->at < self->batch.count) {
      status = write_some(self, err);
    } else {
      bool end;
      status = next_batch(self, &end, err);
      if (status == TURB_OK && end)
        status = finish(self, err);
    }
    if (status != TURB_OK)
      return status;
    if (deadline_ns != UINT64_MAX && clock_monotonic_ns() >= deadline_ns)
      break;
  }
  *done = self->finished;
  return TURB_OK;
}

const struct merge_output *merge_job_outputs(const struct merge_job *job, size_t *count) {
  *count = job->output_count;
  return job->outputs;
}

void merge_job_keep(struct merge_job *job) {
  job->kept = true;
}

void merge_job_close(struct merge_job *self) {
  if (!self)
    return;
  const struct table_env *env = self->options.env;
  cursor_batch_release(&self->batch);
  parts_close(self->parts);
  cursor_close(self->cursor);
  reads_close(&self->reads);
  table_writer_destroy(self->writer);
  release_writer_bytes(self);
  if (self->writer_path)
    (void)!io_unlink(env->system, self->writer_path, NULL); /* mostly gone with its writer */
  mem_free_string(env->allocator, self->writer_path);
  for (size_t i = 0; i < self->output_count; i++) {
    struct merge_output *output = &self->outputs[i];
    /* A file that cannot be removed now is a stranger to the manifest, and goes at the next open. */
    if (!self->kept && io_unlink(env->system, output->path, NULL) != TURB_OK)
      logger_write(env->logger, LOGGER_WARNING, "%s could not be removed; the next open does it", output->path);
    mem_free_string(env->allocator, output->path);
    mem_free(env->allocator, output->keys, output->keys_size);
  }
  mem_free(env->allocator, self->outputs, self->output_capacity * sizeof *self->outputs);
  arena_free(&self->arena);
  mem_free(env->allocator, self, sizeof *self);
  budget_give(env->budget, BUDGET_JOB, sizeof *self);
}
