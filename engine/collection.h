/* engine/collection: handles of collections. They live until the database closes; a dropped one only says so. */
#ifndef TURB_ENGINE_COLLECTION_H
#define TURB_ENGINE_COLLECTION_H

#include "engine/db.h"

/* A handle for what the catalog describes, with an empty memtable and its version; added to db->collections. Under db->mutex, or while
 * opening. */
TURB_MUST_CHECK turb_status collection_add(turb_db *db, const struct catalog_collection *from, turb_collection **collection,
                                           turb_error *err);
/* An empty memtable for the collection, whose entries will begin in log `first_log`; not in its list yet. */
TURB_MUST_CHECK turb_status collection_new_memtable(turb_collection *collection, uint64_t first_log, struct memtable_slot **slot,
                                                    turb_error *err);
void collection_free_memtable(turb_db *db, struct memtable_slot *slot);
/* Releases a handle that nobody uses any more. */
void collection_free(turb_collection *collection);

#endif
