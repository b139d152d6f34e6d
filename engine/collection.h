/* engine/collection: handles of collections. They live until the database closes; a dropped one only says so. */
#ifndef TURB_ENGINE_COLLECTION_H
#define TURB_ENGINE_COLLECTION_H

#include "engine/db.h"

/* A handle for what the catalog describes, with an empty memtable and its version; added to db->collections. Under db->mutex, or while opening. */
TURB_MUST_CHECK turb_status collection_add(turb_db *db, const struct catalog_collection *from, turb_collection **collection, turb_error *err);
/* Releases a handle that nobody uses any more. */
void collection_free(turb_collection *collection);

#endif
