/* write.h has the contract, the states and the invariants. */
#include "engine/write.h"

#include <assert.h>

#include "base/hash.h"
#include "engine/background.h"
#include "engine/collection.h"
#include "engine/job.h"

#define GROUP_MAX_WRITERS     128u
#define GROUP_MAX_BYTES       (1u << 20)
#define GROUP_MAX_COLLECTIONS 16u
#define COMPANY_SHARE         2 /* a leader waits for company up to this part of a sync's time */
#define COMPANY_MOST_NS       (2 * CLOCK_NS_PER_MS)
#define LOGS_MAX              16u /* more of them: the holder of the oldest is sealed */
#define SEALED_MAX            2u  /* memtables of a collection that wait for their flush before writers wait too */

struct need { /* of one collection in a group */
  turb_collection *collection;
  uint64_t id;
  size_t entries, bytes;
};

struct group {
  struct writer *writers[GROUP_MAX_WRITERS];
  size_t count;
  struct need needs[GROUP_MAX_COLLECTIONS];
  size_t need_count;
  uint32_t operations;
  uint64_t user_bytes;
  bool sync, log;
};

/* ---- making room ---- */

static uint32_t sealed_count(const turb_collection *collection) {
  uint32_t count = 0;
  for (const struct memtable_slot *m = collection->memtables; m; m = m->older)
    count += m->sealed;
  return count;
}

/* Puts an empty memtable before the newest; the log it belongs to is there already. */
turb_status write_push_memtable(turb_collection *collection, uint64_t first_log, turb_error *err) {
  turb_db *db = collection->db;
  struct memtable_slot *slot;
  turb_status status = collection_new_memtable(collection, first_log, &slot, err);
  if (status != TURB_OK)
    return status;
  mutex_lock(&db->mutex);
  slot->older = collection->memtables;
  collection->memtables = slot;
  struct version *version;
  status = version_build(collection, collection->version, &version, err);
  if (status == TURB_OK) {
    if (slot->older)
      slot->older->sealed = true;
    version_install(collection, version);
  } else {
    collection->memtables = slot->older;
    collection_free_memtable(db, slot);
  }
  mutex_unlock(&db->mutex);
  if (status == TURB_OK)
    background_wake(db);
  return status;
}

/* The number of the next log, with room to remember it. */
static turb_status logs_reserve(turb_db *db, uint64_t *number, turb_error *err) {
  turb_status status = TURB_OK;
  mutex_lock(&db->mutex);
  *number = db->next_file++;
  if (db->log_count == db->log_capacity) {
    const size_t capacity = db->log_capacity ? db->log_capacity * 2 : 16;
    uint64_t *numbers = mem_resize(&db->allocator, db->log_numbers, db->log_capacity * sizeof *numbers, capacity * sizeof *numbers);
    if (numbers) {
      db->log_numbers = numbers;
      db->log_capacity = capacity;
    } else {
      status = status_set(err, TURB_NO_MEMORY, "no memory for the list of logs");
    }
  }
  mutex_unlock(&db->mutex);
  return status;
}

/* A new log takes over: created before the old one names it as the next, the old one ended before the first append. */
static turb_status switch_log(turb_db *db, turb_error *err) {
  uint64_t number;
  turb_status status = logs_reserve(db, &number, err);
  if (status != TURB_OK)
    return status;
  const struct log_writer_options options = {.system = db->system,
                                             .allocator = &db->allocator,
                                             .folder = db->path,
                                             .database_id = manifest_database_id(db->manifest),
                                             .number = number,
                                             .first_sequence = db->last_sequence + 1};
  struct log_writer *next;
  status = log_writer_create(&options, &next, err);
  if (status != TURB_OK)
    return status;
  struct log_writer *old = db->log;
  status = log_writer_finish(old, number, err);
  if (status != TURB_OK) {
    /* The new log stays, empty: the end that names it may be in the old one. The next open removes it when nothing does. */
    log_writer_close(next);
    if (status == TURB_UNKNOWN_OUTCOME)
      background_log_failed(db, err);
    return status;
  }
  atomic_store(&db->durable_sequence, db->last_sequence);
  mutex_lock(&db->mutex);
  db->log = next;
  db->log_numbers[db->log_count++] = number;
  mutex_unlock(&db->mutex);
  log_writer_close(old);
  return TURB_OK;
}

turb_status write_switch_memtable(turb_collection *collection, turb_error *err) {
  if (!collection->memtables)
    return TURB_OK; /* dropped */
  const struct memtable *newest = collection->memtables->memtable;
  if (!memtable_entries(newest) && !memtable_range_delete_count(newest))
    return TURB_OK;
  const turb_status status = switch_log(collection->db, err);
  return status == TURB_OK ? write_push_memtable(collection, log_writer_number(collection->db->log), err) : status;
}

/* Many logs lie about: the collection whose memtable in use holds the oldest; else NULL. */
static turb_collection *holder_of_old_log(turb_db *db) {
  turb_collection *holder = NULL;
  mutex_lock(&db->mutex);
  const uint64_t oldest = db->log_count > LOGS_MAX ? job_oldest_log(db) : 0;
  for (size_t i = 0; i < db->collection_count && oldest && !holder; i++) {
    turb_collection *c = db->collections[i];
    const struct memtable_slot *newest = c->memtables;
    if (atomic_load(&c->dropped) || !newest || newest->sealed || newest->first_log != oldest)
      continue;
    if (memtable_entries(newest->memtable) || memtable_range_delete_count(newest->memtable))
      holder = c;
  }
  mutex_unlock(&db->mutex);
  return holder;
}

/* Seals the memtable; when logs pile up, also the one that keeps the oldest. */
static turb_status seal(void *context, turb_error *err) {
  turb_collection *collection = context;
  const turb_status status = write_switch_memtable(collection, err);
  turb_collection *holder = status == TURB_OK ? holder_of_old_log(collection->db) : NULL;
  return holder ? write_switch_memtable(holder, err) : status;
}

turb_status write_seal(turb_collection *collection, turb_error *err) {
  struct writer writer = {.prepare = seal, .context = collection, .durability = TURB_UNLOGGED};
  return write_submit(collection->db, &writer, err);
}

/* Waits for flushes until the collection may seal another memtable. */
static turb_status wait_for_flushes(turb_collection *collection, turb_error *err) {
  turb_db *db = collection->db;
  mutex_lock(&db->mutex);
  const bool waits = sealed_count(collection) >= SEALED_MAX;
  mutex_unlock(&db->mutex);
  return waits ? background_wait_for_flush(collection, SEALED_MAX - 1, err) : TURB_OK;
}

/* Reserves what the group needs of one collection. */
static turb_status make_room(turb_db *db, const struct need *need, turb_error *err) {
  turb_collection *collection = need->collection;
  turb_status status = TURB_OK;
  if (memtable_bytes(collection->memtables->memtable) >= db->options.memtable_bytes) {
    status = wait_for_flushes(collection, err);
    if (status == TURB_OK) {
      background_wait_for_merges(collection);
      status = seal(collection, err);
    }
    if (status != TURB_OK)
      return status;
  }
  for (;;) {
    turb_error attempt = TURB_ERROR_INIT;
    status = memtable_reserve(collection->memtables->memtable, need->entries, need->bytes, &attempt);
    if (status != TURB_BUDGET)
      return status == TURB_OK ? TURB_OK : status_copy(err, &attempt);
    /* The budget is short: what is sealed is flushed; when nothing is, the largest memtable is sealed. */
    bool more;
    const turb_status freed = background_free_memory(db, &more, err);
    if (freed != TURB_OK)
      return freed;
    if (!more)
      return status_copy(err, &attempt);
  }
}

/* ---- the log ---- */

turb_status write_sync_log(turb_db *db, turb_error *err) {
  turb_error why = TURB_ERROR_INIT;
  const turb_status status = log_writer_sync(db->log, &why);
  atomic_fetch_add_explicit(&db->counters.log_syncs, 1, memory_order_relaxed);
  if (status == TURB_OK) {
    atomic_store(&db->durable_sequence, db->last_sequence);
    return TURB_OK;
  }
  if (status == TURB_UNKNOWN_OUTCOME)
    background_log_failed(db, &why);
  return status_copy(err, &why);
}

/* ---- the group ---- */

static struct need *find_need(turb_db *db, struct group *group, uint64_t id) {
  for (size_t i = group->need_count; i-- > 0;)
    if (group->needs[i].id == id)
      return &group->needs[i];
  if (group->need_count == GROUP_MAX_COLLECTIONS)
    return NULL;
  struct need *need = &group->needs[group->need_count++];
  mutex_lock(&db->mutex);
  *need = (struct need){.collection = db_collection(db, id), .id = id};
  if (need->collection && !need->collection->memtables)
    need->collection = NULL;
  mutex_unlock(&db->mutex);
  return need;
}

/* Adds a writer's needs; false when the group has no room for them. */
static bool add_needs(turb_db *db, struct group *group, const struct batch *batch) {
  struct batch_reader reader;
  struct batch_operation operation;
  bool more;
  batch_reader_open_operations(&reader, batch_operations(batch), batch_count(batch), 1);
  while (batch_reader_next(&reader, &operation, &more, NULL) == TURB_OK && more) {
    struct need *need = find_need(db, group, operation.collection_id);
    if (!need)
      return false;
    need->entries++;
    need->bytes += memtable_need(operation.key.size + operation.end.size, operation.attributes.size);
    group->user_bytes += operation.key.size + operation.row.size + operation.attributes.size;
  }
  return true;
}

static bool may_join(const struct group *group, const struct writer *writer) {
  const struct writer *leader = group->writers[0];
  return !writer->prepare && !leader->prepare && batch_bytes(writer->batch) < GROUP_MAX_BYTES / 2;
}

/* Collects the writers that queue behind the leader. Under write_mutex. */
static void gather(turb_db *db, struct group *group) {
  size_t bytes = batch_bytes(group->writers[0]->batch);
  for (struct list *link = list_next(&db->writers, &group->writers[0]->link); link; link = list_next(&db->writers, link)) {
    struct writer *writer = LIST_ENTRY(link, struct writer, link);
    if (group->count == GROUP_MAX_WRITERS || !may_join(group, writer))
      break;
    bytes += batch_bytes(writer->batch);
    if (bytes > GROUP_MAX_BYTES)
      break;
    group->writers[group->count++] = writer;
  }
}

/* What the group's writers ask for together. False when it has to be made smaller. */
static bool plan(turb_db *db, struct group *group) {
  group->need_count = 0;
  group->operations = 0;
  group->user_bytes = 0;
  group->sync = group->log = false;
  for (size_t i = 0; i < group->count; i++) {
    const struct writer *writer = group->writers[i];
    if (!add_needs(db, group, writer->batch))
      return false;
    group->operations += batch_count(writer->batch);
    group->sync |= writer->durability == TURB_DURABLE;
    group->log |= writer->durability != TURB_UNLOGGED;
  }
  return true;
}

static turb_status append_group(turb_db *db, const struct group *group, uint64_t first, turb_error *err) {
  uint8_t header[BATCH_HEADER_BYTES];
  turb_bytes pieces[GROUP_MAX_WRITERS + 1];
  batch_write_header(header, first, group->operations);
  pieces[0] = (turb_bytes){header, sizeof header};
  for (size_t i = 0; i < group->count; i++)
    pieces[i + 1] = batch_operations(group->writers[i]->batch);
  const uint64_t begin = log_writer_end(db->log);
  turb_status status = log_writer_append(db->log, group->sync ? LOG_APPEND_SYNCED : LOG_APPEND_LOGGED, pieces, group->count + 1, NULL, err);
  if (status == TURB_OK && group->sync) {
    const uint64_t start_ns = clock_monotonic_ns();
    status = log_writer_sync(db->log, err);
    db->sync_ns = (db->sync_ns * 3 + (clock_monotonic_ns() - start_ns)) / 4;
    atomic_fetch_add_explicit(&db->counters.log_syncs, 1, memory_order_relaxed);
  }
  atomic_fetch_add_explicit(&db->counters.log_bytes_written, log_writer_end(db->log) - begin, memory_order_relaxed);
  if (status == TURB_UNKNOWN_OUTCOME)
    background_log_failed(db, err);
  return status;
}

turb_status write_apply(turb_collection *collection, const struct batch_operation *operation, turb_error *err) {
  struct memtable *memtable = collection->memtables->memtable;
  switch (operation->kind) {
  case BATCH_PUT:
    return memtable_put(memtable, operation->key, operation->sequence, operation->row.data,
                        hash64(operation->row.data, operation->row.size, 0), operation->attributes,
                        operation->attributes.size ? (uint32_t)hash64(operation->attributes.data, operation->attributes.size, 0) : 0, err);
  case BATCH_DELETE: return memtable_delete(memtable, operation->key, operation->sequence, err);
  case BATCH_DELETE_RANGE: return memtable_delete_range(memtable, operation->key, operation->end, operation->sequence, err);
  }
  assert(false);
  return status_set(err, TURB_INVALID, "an operation of kind %d", (int)operation->kind);
}

/* Room was reserved, so nothing can fail here. */
static void apply_group(turb_db *db, struct group *group, uint64_t first) {
  for (size_t i = 0; i < group->count; i++) {
    struct writer *writer = group->writers[i];
    struct batch_reader reader;
    struct batch_operation operation;
    bool more;
    writer->first_sequence = first;
    batch_reader_open_operations(&reader, batch_operations(writer->batch), batch_count(writer->batch), first);
    while (batch_reader_next(&reader, &operation, &more, NULL) == TURB_OK && more) {
      const struct need *need = find_need(db, group, operation.collection_id);
      if (!need->collection)
        continue; /* dropped for good */
      const turb_status status = write_apply(need->collection, &operation, NULL);
      assert(status == TURB_OK);
      (void)status;
    }
    first += batch_count(writer->batch);
  }
}

/* A memtable pins logs from that of its first entry on. */
static void note_first_log(turb_db *db, const struct group *group) {
  for (size_t i = 0; i < group->need_count; i++) {
    turb_collection *collection = group->needs[i].collection;
    if (!collection)
      continue;
    const struct memtable *memtable = collection->memtables->memtable;
    if (memtable_entries(memtable) || memtable_range_delete_count(memtable))
      continue;
    mutex_lock(&db->mutex);
    collection->memtables->first_log = log_writer_number(db->log);
    mutex_unlock(&db->mutex);
  }
}

/* Log, memtables, visibility. */
static turb_status commit(turb_db *db, struct group *group, turb_error *err) {
  turb_status status = db_check_writable(db, err);
  if (status != TURB_OK)
    return status;
  for (size_t i = 0; i < group->need_count && status == TURB_OK; i++)
    if (group->needs[i].collection)
      status = make_room(db, &group->needs[i], err);
  if (status != TURB_OK)
    return status;
  const uint64_t first = db->last_sequence + 1, last = db->last_sequence + group->operations;
  if (last > SLOT_SEQUENCE_MAX)
    return status_set(err, TURB_TOO_LARGE, "the database's sequence numbers are used up");
  if (group->log)
    status = append_group(db, group, first, err);
  else
    atomic_store_explicit(&db->has_unlogged, true, memory_order_relaxed);
  if (status != TURB_OK)
    return status;
  note_first_log(db, group);
  apply_group(db, group, first);
  db->last_sequence = last;
  atomic_store_explicit(&db->visible_sequence, last, memory_order_release);
  if (group->sync)
    atomic_store(&db->durable_sequence, last);
  atomic_fetch_add_explicit(&db->counters.user_bytes_written, group->user_bytes, memory_order_relaxed);
  atomic_fetch_add_explicit(&db->counters.write_groups, 1, memory_order_relaxed);
  return TURB_OK;
}

/* Lets the memtables of dropped collections go. Only here, before a group is planned, nobody may be writing to one. */
static void release_dropped(turb_db *db) {
  if (!atomic_exchange(&db->has_dropped, false))
    return;
  mutex_lock(&db->mutex);
  for (size_t i = 0; i < db->collection_count; i++) {
    turb_collection *c = db->collections[i];
    if (!atomic_load(&c->dropped) || !c->memtables)
      continue;
    for (struct memtable_slot *m = c->memtables; m; m = m->older)
      m->sealed = m->flushed = true;
    job_refresh_version(c);
    if (c->memtables) /* no memory for the version: the next leader tries again */
      atomic_store(&db->has_dropped, true);
  }
  mutex_unlock(&db->mutex);
}

/* Runs the leader's group; the group's writers have their results then. */
static void lead(turb_db *db, struct group *group) {
  release_dropped(db);
  struct writer *leader = group->writers[0];
  turb_error error = TURB_ERROR_INIT;
  turb_status status = TURB_OK;
  if (leader->prepare)
    status = leader->prepare(leader->context, &error);
  if (status == TURB_OK && leader->batch && batch_count(leader->batch)) {
    if (!plan(db, group)) { /* more collections than a group knows: the leader alone, then */
      group->count = 1;
      if (!plan(db, group))
        status = status_set(&error, TURB_TOO_LARGE, "a batch over more than %u collections", GROUP_MAX_COLLECTIONS);
    }
    if (status == TURB_OK)
      status = commit(db, group, &error);
    if (status == TURB_BUDGET && group->count > 1) { /* what is too much together may fit alone */
      status_clear(&error);
      group->count = 1;
      (void)plan(db, group);
      status = commit(db, group, &error);
    }
  }
  for (size_t i = 0; i < group->count; i++) {
    group->writers[i]->status = status;
    if (status != TURB_OK)
      group->writers[i]->error = error;
  }
}

/* The writers of the group before, told that theirs is durable, mostly come again at once. Without this they would find the next group gone without
 * them, and two halves would take turns with a sync each. Called by the first in the list, with the mutex. */
static void wait_for_company(turb_db *db, struct writer *leader) {
  if (leader->prepare || leader->durability != TURB_DURABLE || db->writer_count >= db->company)
    return;
  const uint64_t most_ns = db->sync_ns / COMPANY_SHARE;
  db->awaited = db->company < GROUP_MAX_WRITERS ? db->company : GROUP_MAX_WRITERS;
  mutex_unlock(&db->write_mutex);
  const bool posted = semaphore_wait_until(&leader->turn, clock_monotonic_ns() + (most_ns < COMPANY_MOST_NS ? most_ns : COMPANY_MOST_NS));
  mutex_lock(&db->write_mutex);
  if (!db->awaited && !posted)
    semaphore_wait(&leader->turn); /* they came as the time was over */
  db->awaited = 0;
}

/* Enters the list; when the first waits for company and this one makes it complete, the first goes on. */
static bool enter(turb_db *db, struct writer *writer) {
  struct list *first = list_first(&db->writers);
  list_init(&writer->link);
  list_push_back(&db->writers, &writer->link);
  db->writer_count++;
  if (db->awaited && db->writer_count >= db->awaited) {
    db->awaited = 0;
    semaphore_post(&LIST_ENTRY(first, struct writer, link)->turn);
  }
  return !first;
}

/* The group's writers leave the list with their results, and the next leads. Those that wait are told outside the mutex, which they need not take
 * again: being woken is most of what a small write costs. A member is gone with its post. */
static void end_group(turb_db *db, struct group *group, const struct writer *leader) {
  mutex_lock(&db->write_mutex);
  db->company = db->writer_count;
  for (size_t i = 0; i < group->count; i++) {
    list_remove(&group->writers[i]->link);
    group->writers[i]->done = true;
  }
  db->writer_count -= (uint32_t)group->count;
  struct list *next = list_first(&db->writers);
  mutex_unlock(&db->write_mutex);
  if (next)
    semaphore_post(&LIST_ENTRY(next, struct writer, link)->turn);
  for (size_t i = 0; i < group->count; i++)
    if (group->writers[i] != leader)
      semaphore_post(&group->writers[i]->turn);
}

turb_status write_submit(turb_db *db, struct writer *writer, turb_error *err) {
  writer->done = false;
  semaphore_init(&writer->turn);
  mutex_lock(&db->write_mutex);
  bool leads = enter(db, writer);
  if (!leads) {
    mutex_unlock(&db->write_mutex);
    semaphore_wait(&writer->turn);
    leads = !writer->done;
    if (leads)
      mutex_lock(&db->write_mutex);
  }
  if (leads) {
    struct group group;
    wait_for_company(db, writer);
    group.count = 1;
    group.writers[0] = writer;
    if (!writer->prepare)
      gather(db, &group);
    mutex_unlock(&db->write_mutex);
    lead(db, &group);
    end_group(db, &group, writer);
  }
  semaphore_destroy(&writer->turn);
  if (writer->status != TURB_OK)
    return status_copy(err, &writer->error);
  return TURB_OK;
}
