/* engine/event: what the embedder is told: events, log lines, and the checks that every call begins with. */
#include "base/clock.h"
#include "engine/db.h"

void db_send_event(turb_db *db, turb_event event) {
  if (!db->options.on_event)
    return;
  event.size = sizeof event;
  if (!event.text)
    event.text = "";
  db->options.on_event(db->options.callback_context, &event);
}

uint64_t db_unix_s(const turb_db *db) {
  const uint64_t fixed = atomic_load_explicit(&db->fixed_unix_s, memory_order_relaxed);
  return fixed ? fixed : clock_realtime_ns() / CLOCK_NS_PER_SECOND;
}

char *db_path(const turb_db *db, enum name_kind kind, uint64_t number) {
  return name_path(&db->allocator, db->path, kind, number);
}

turb_collection *db_collection(turb_db *db, uint64_t id) {
  size_t low = 0, high = db->collection_count;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if (db->collections[middle]->id < id)
      low = middle + 1;
    else
      high = middle;
  }
  return low < db->collection_count && db->collections[low]->id == id ? db->collections[low] : NULL;
}

turb_status db_check_readable(turb_collection *collection, turb_error *err) {
  if (!collection)
    return status_set(err, TURB_INVALID, "no collection is given");
  if (!atomic_load_explicit(&collection->dropped, memory_order_relaxed))
    return TURB_OK;
  return status_set(err, TURB_NOT_FOUND, "the collection %s was dropped", collection->name);
}

turb_status db_check_writable(turb_db *db, turb_error *err) {
  if (db->options.read_only)
    return status_set(err, TURB_READ_ONLY, "%s is open read-only", db->path);
  if (!atomic_load_explicit(&db->log_failed, memory_order_relaxed))
    return TURB_OK;
  return status_set(err, TURB_READ_ONLY, "a sync of the log of %s failed: it takes no more writes until it is opened again", db->path);
}
