/* Checkpoints: a second folder that opens as a database with everything acknowledged before the call.
 *
 *   tables, segments, codebooks   hard links: they never change
 *   logs that have ended          hard links
 *   the log that takes writes     copied up to its last record: what is durable while writing goes on, the rest under leadership
 *   MANIFEST                      a new file from the catalog of the same moment
 *
 * The moment is under leadership and db->mutex: no write and no install is half done. Versions are held until the files are linked, so
 * that none of them goes. What only
 * memtables have (written with TURB_UNLOGGED) is flushed before. On failure the folder is removed with all in it.
 *
 * Threads: any; several checkpoints may run at once. */
#include <string.h>

#include "engine/job.h"
#include "engine/write.h"

#define COPY_BYTES (256u << 10)

struct checkpoint {
  turb_db *db;
  const char *folder;
  uint8_t *buffer;        /* COPY_BYTES */
  struct io_file *live;   /* the copy of the log that takes writes */
  uint64_t live_number;   /* its log; 0: none */
  uint64_t copied;        /* bytes of it */
  struct catalog catalog; /* of the moment, as are the next */
  struct version **held;
  size_t held_count, held_capacity;
};

/* ---- files ---- */

static turb_status no_memory(turb_error *err) {
  return status_set(err, TURB_NO_MEMORY, "no memory for a checkpoint");
}

static turb_status copy_range(struct checkpoint *c, struct io_file *from, struct io_file *to, uint64_t end, turb_error *err) {
  turb_status status = TURB_OK;
  while (c->copied < end && status == TURB_OK) {
    const size_t size = end - c->copied < COPY_BYTES ? (size_t)(end - c->copied) : COPY_BYTES;
    status = io_file_read(from, c->buffer, size, c->copied, err);
    if (status == TURB_OK)
      status = io_file_write(to, c->buffer, size, c->copied, err);
    if (status == TURB_OK)
      c->copied += size;
  }
  return status;
}

static turb_status open_source(struct checkpoint *c, uint64_t number, struct io_file **file, turb_error *err) {
  *file = NULL;
  char *path = db_path(c->db, NAME_LOG, number);
  const turb_status status = path ? io_file_open(c->db->system, path, IO_OPEN_READ, file, err) : no_memory(err);
  mem_free_string(&c->db->allocator, path);
  return status;
}

static turb_status create_copy(struct checkpoint *c, enum name_kind kind, uint64_t number, struct io_file **file, turb_error *err) {
  *file = NULL;
  char *path = name_path(&c->db->allocator, c->folder, kind, number);
  const turb_status status =
      path ? io_file_open(c->db->system, path, IO_OPEN_READ | IO_OPEN_WRITE | IO_OPEN_CREATE | IO_OPEN_EXCLUSIVE, file, err)
           : no_memory(err);
  mem_free_string(&c->db->allocator, path);
  return status;
}

static turb_status link_file(const struct checkpoint *c, enum name_kind kind, uint64_t number, turb_error *err) {
  char *from = db_path(c->db, kind, number), *to = name_path(&c->db->allocator, c->folder, kind, number);
  const turb_status status = from && to ? io_link(c->db->system, from, to, err) : no_memory(err);
  mem_free_string(&c->db->allocator, from);
  mem_free_string(&c->db->allocator, to);
  return status;
}

/* A log as a whole that may yet be cut and ended by who opens the database for writing: not to be shared. */
static turb_status copy_log(struct checkpoint *c, uint64_t number, turb_error *err) {
  struct io_file *from, *to = NULL;
  uint64_t size = 0;
  turb_status status = open_source(c, number, &from, err);
  if (status == TURB_OK)
    status = create_copy(c, NAME_LOG, number, &to, err);
  if (status == TURB_OK)
    status = io_file_size(from, &size, err);
  c->copied = 0;
  if (status == TURB_OK)
    status = copy_range(c, from, to, size, err);
  if (status == TURB_OK)
    status = io_file_sync(to, err);
  io_file_release(from);
  io_file_release(to);
  return status;
}

/* ---- the log that takes writes ---- */

/* Copies it up to `end`, from where the copy stands. */
static turb_status copy_live(struct checkpoint *c, uint64_t end, turb_error *err) {
  struct io_file *from;
  turb_status status = open_source(c, c->live_number, &from, err);
  if (status == TURB_OK && !c->live)
    status = create_copy(c, NAME_LOG, c->live_number, &c->live, err);
  if (status == TURB_OK)
    status = copy_range(c, from, c->live, end, err);
  io_file_release(from);
  return status;
}

/* The copy is of a log that has ended meanwhile. */
static turb_status drop_live(struct checkpoint *c, turb_error *err) {
  turb_status status = TURB_OK;
  if (c->live) {
    char *path = name_path(&c->db->allocator, c->folder, NAME_LOG, c->live_number);
    status = path ? io_unlink(c->db->system, path, err) : no_memory(err);
    mem_free_string(&c->db->allocator, path);
  }
  io_file_release(c->live);
  c->live = NULL;
  c->live_number = c->copied = 0;
  return status;
}

static turb_status look_at_live(void *context, turb_error *err) {
  struct checkpoint *c = context;
  (void)err;
  c->live_number = c->db->log ? log_writer_number(c->db->log) : 0;
  c->copied = c->db->log ? log_writer_durable(c->db->log) : 0; /* for now: how far to copy */
  return TURB_OK;
}

/* What is durable stands at its place and does not change any more. (The staging area may: its records are at their places when the rest
 * is copied.) */
static turb_status copy_ahead(struct checkpoint *c, turb_error *err) {
  struct writer writer = {.prepare = look_at_live, .context = c, .durability = TURB_UNLOGGED};
  turb_status status = write_submit(c->db, &writer, err);
  if (status != TURB_OK || !c->live_number)
    return status;
  const uint64_t end = c->copied;
  turb_error why = TURB_ERROR_INIT;
  c->copied = 0;
  status = copy_live(c, end, &why);
  if (status == TURB_NOT_FOUND) /* it ended, and went after a flush */
    return drop_live(c, err);
  return status == TURB_OK ? TURB_OK : status_copy(err, &why);
}

/* Under leadership. */
static turb_status finish_live(struct checkpoint *c, turb_error *err) {
  turb_status status = write_sync_log(c->db, err);
  if (status == TURB_OK && log_writer_number(c->db->log) != c->live_number) {
    status = drop_live(c, err);
    c->live_number = log_writer_number(c->db->log);
  }
  return status == TURB_OK ? copy_live(c, log_writer_end(c->db->log), err) : status;
}

/* ---- the moment ---- */

/* The catalog without the records of running jobs. Under db->mutex. */
static turb_status copy_catalog(struct checkpoint *c, turb_error *err) {
  const struct catalog *now = manifest_catalog(c->db->manifest);
  struct version_edit edit;
  edit_init(&edit, &c->db->allocator);
  turb_status status = catalog_snapshot(now, &edit, err);
  if (status == TURB_OK)
    status = catalog_apply(&c->catalog, &edit, err);
  edit_clear(&edit);
  const struct catalog_object *job;
  bool any = false;
  for (size_t at = 0; (job = catalog_next(now, CATALOG_JOB, &at)) != NULL; any = true)
    edit_end_job(&edit, job->id);
  if (status == TURB_OK && any)
    status = catalog_apply(&c->catalog, &edit, err);
  edit_free(&edit);
  return status;
}

/* Under db->mutex. */
static turb_status hold_versions(struct checkpoint *c, turb_error *err) {
  turb_db *db = c->db;
  c->held_capacity = db->collection_count;
  if (!c->held_capacity)
    return TURB_OK;
  c->held = mem_alloc_array(&db->allocator, c->held_capacity, sizeof *c->held);
  if (!c->held)
    return no_memory(err);
  for (size_t i = 0; i < db->collection_count; i++)
    c->held[c->held_count++] = version_retain(db->collections[i]->version);
  return TURB_OK;
}

/* Under db->mutex. */
static turb_status take_logs(struct checkpoint *c, turb_error *err) {
  turb_db *db = c->db;
  turb_status status = TURB_OK;
  for (size_t i = 0; i < db->log_count && status == TURB_OK; i++) {
    const uint64_t number = db->log_numbers[i];
    if (number < c->catalog.oldest_log || number == c->live_number)
      continue;
    status = db->log ? link_file(c, NAME_LOG, number, err) : copy_log(c, number, err);
  }
  return status;
}

static turb_status take_moment(void *context, turb_error *err) {
  struct checkpoint *c = context;
  turb_status status = c->db->log ? finish_live(c, err) : TURB_OK;
  mutex_lock(&c->db->mutex);
  if (status == TURB_OK)
    status = copy_catalog(c, err);
  if (status == TURB_OK)
    status = hold_versions(c, err);
  if (status == TURB_OK)
    status = take_logs(c, err);
  mutex_unlock(&c->db->mutex);
  return status;
}

/* ---- the rest ---- */

static turb_status link_all(const struct checkpoint *c, turb_error *err) {
  static const struct {
    enum catalog_kind kind;
    enum name_kind name;
  } files[] = {{CATALOG_TABLE, NAME_TABLE}, {CATALOG_SEGMENT, NAME_SEGMENT}, {CATALOG_CODEBOOK, NAME_CODEBOOK}};
  turb_status status = TURB_OK;
  for (size_t f = 0; f < sizeof files / sizeof *files; f++) {
    const struct catalog_object *object;
    for (size_t at = 0; status == TURB_OK && (object = catalog_next(&c->catalog, files[f].kind, &at)) != NULL;) {
      const uint64_t number =
          files[f].kind == CATALOG_CODEBOOK ? ((const struct catalog_codebook *)(const void *)object)->file_number : object->id;
      status = link_file(c, files[f].name, number, err);
    }
  }
  return status;
}

/* The folder that a path's last name lies in becomes durable. */
static turb_status sync_parent(turb_db *db, const char *path, turb_error *err) {
  char *parent = mem_strdup(&db->allocator, path);
  if (!parent)
    return no_memory(err);
  const size_t bytes = strlen(parent) + 1;
  size_t end = bytes - 1;
  while (end > 1 && parent[end - 1] == '/')
    end--;
  while (end && parent[end - 1] != '/')
    end--;
  while (end > 1 && parent[end - 1] == '/')
    end--;
  parent[end] = '\0';
  const turb_status status = io_sync_folder(db->system, end ? parent : ".", err);
  mem_free(&db->allocator, parent, bytes);
  return status;
}

/* A reader opens a database by its lock file, and may not make it. */
static turb_status make_lock_file(struct checkpoint *c, turb_error *err) {
  struct io_file *lock;
  const turb_status status = create_copy(c, NAME_LOCK, 0, &lock, err);
  io_file_release(lock);
  return status;
}

static turb_status fill(struct checkpoint *c, turb_error *err) {
  turb_db *db = c->db;
  c->buffer = mem_alloc(&db->allocator, COPY_BYTES);
  turb_status status = c->buffer ? copy_ahead(c, err) : no_memory(err);
  if (status == TURB_OK) {
    struct writer writer = {.prepare = take_moment, .context = c, .durability = TURB_UNLOGGED};
    status = write_submit(db, &writer, err);
  }
  if (status == TURB_OK && c->live)
    status = io_file_sync(c->live, err);
  if (status == TURB_OK)
    status = link_all(c, err);
  if (status == TURB_OK)
    status = make_lock_file(c, err);
  if (status == TURB_OK) {
    mutex_lock(&db->mutex); /* the manifest has one user at a time */
    status = manifest_copy(db->manifest, &c->catalog, c->folder, err);
    mutex_unlock(&db->mutex);
  }
  if (status == TURB_OK)
    status = io_sync_folder(db->system, c->folder, err);
  return status == TURB_OK ? sync_parent(db, c->folder, err) : status;
}

static void remove_file(void *context, const char *name) {
  const struct checkpoint *c = context;
  uint64_t number;
  const enum name_kind kind = name_parse(name, &number);
  char *path = kind == NAME_OTHER ? NULL : name_path(&c->db->allocator, c->folder, kind, number);
  if (path)
    (void)!io_unlink(c->db->system, path, NULL); /* the folder that stays says so */
  mem_free_string(&c->db->allocator, path);
}

/* Only our own names; someone else's file keeps the folder. */
static void remove_folder(const struct checkpoint *c) {
  turb_error why = TURB_ERROR_INIT;
  turb_status status = io_list_folder(c->db->system, c->folder, remove_file, (void *)(uintptr_t)c, &why);
  if (status == TURB_OK)
    status = io_remove_folder(c->db->system, c->folder, &why);
  if (status != TURB_OK)
    logger_write(&c->db->logger, LOGGER_WARNING, "a checkpoint that failed leaves files behind: %s", why.message);
}

static turb_status flush_unlogged(turb_db *db, turb_error *err) {
  if (!atomic_exchange(&db->has_unlogged, false))
    return TURB_OK;
  const turb_status status = turb_flush(db, NULL, err);
  if (status != TURB_OK)
    atomic_store(&db->has_unlogged, true);
  return status;
}

turb_status turb_checkpoint(turb_db *db, const char *path, turb_error *err) {
  if (!path || !*path)
    return status_set(err, TURB_INVALID, "no path is given");
  struct checkpoint c = {.db = db, .folder = path};
  turb_status status = flush_unlogged(db, err);
  if (status == TURB_OK)
    status = io_make_folder(db->system, path, err);
  if (status != TURB_OK)
    return status;
  catalog_init(&c.catalog, &db->allocator);
  status = fill(&c, err);
  io_file_release(c.live);
  for (size_t i = 0; i < c.held_count; i++)
    version_release(c.held[i]);
  mem_free(&db->allocator, c.held, c.held_capacity * sizeof *c.held);
  mem_free(&db->allocator, c.buffer, COPY_BYTES);
  catalog_free(&c.catalog);
  if (status != TURB_OK)
    remove_folder(&c);
  return status;
}
