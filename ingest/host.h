/*
 * What import needs of an open database beyond the public calls; the one place of this folder that knows the
 * engine's insides.
 *
 * Threads: any.
 */
#ifndef TURB_INGEST_HOST_H
#define TURB_INGEST_HOST_H

#include "base/budget.h"
#include "base/status.h"

struct ingest_host {
  turb_db *db;
  const turb_allocator *allocator;
  struct budget *budget;
  turb_durability durability; /* of writes that do not say */
};

/* Borrowed from the collection's database; valid until it is closed. */
void ingest_host_of(turb_collection *collection, struct ingest_host *host);

#endif
