/* engine/snapshot: sequences that readers fixed. The list is ascending, since a new one is never below the last. */
#include "base/clock.h"
#include "engine/background.h"
#include "engine/db.h"

turb_status turb_snapshot_create(turb_db *db, turb_snapshot **snapshot, turb_error *err) {
  *snapshot = NULL;
  turb_snapshot *s = mem_alloc_zeroed(&db->allocator, sizeof *s);
  if (!s)
    return status_set(err, TURB_NO_MEMORY, "no memory for a snapshot");
  s->db = db;
  s->created_ns = clock_monotonic_ns();
  list_init(&s->link);
  mutex_lock(&db->snapshot_mutex);
  while (db->dropping) { /* the runs of the current version are about to go: with the next version the snapshot sees what is left */
    mutex_unlock(&db->snapshot_mutex);
    mutex_lock(&db->mutex);
    mutex_unlock(&db->mutex);
    mutex_lock(&db->snapshot_mutex);
  }
  s->sequence = atomic_load_explicit(&db->visible_sequence, memory_order_acquire);
  list_push_back(&db->snapshots, &s->link);
  mutex_unlock(&db->snapshot_mutex);
  *snapshot = s;
  return TURB_OK;
}

void turb_snapshot_release(turb_snapshot *snapshot) {
  if (!snapshot)
    return;
  turb_db *db = snapshot->db;
  mutex_lock(&db->snapshot_mutex);
  list_remove(&snapshot->link);
  mutex_unlock(&db->snapshot_mutex);
  mem_free(&db->allocator, snapshot, sizeof *snapshot);
  if (atomic_load_explicit(&db->has_fifo, memory_order_relaxed))
    background_wake(db); /* it may have held runs */
}

uint64_t turb_snapshot_sequence(const turb_snapshot *snapshot) {
  return snapshot->sequence;
}
