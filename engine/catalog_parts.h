/*
 * What catalog.c and catalog_apply.c share: the hash tables, and the stages of an object.
 *
 *   (new) --edit staged--> ARRIVING --commit--> SETTLED --edit staged--> LEAVING --commit--> (released)
 *                              +--rollback--> (released)                     +--rollback--> SETTLED
 *
 * The committed state is what is SETTLED or LEAVING; the staged one what is SETTLED or ARRIVING. At most one object of an id is in either.
 * Threads: as the catalog's.
 */
#ifndef TURB_ENGINE_CATALOG_PARTS_H
#define TURB_ENGINE_CATALOG_PARTS_H

#include <stddef.h>

#include "engine/catalog.h"

enum catalog_object_stage { CATALOG_SETTLED = 0, CATALOG_ARRIVING = 1, CATALOG_LEAVING = 2 };

/* Makes room for more objects. False: no memory, nothing changed. */
bool catalog_map_reserve(struct catalog_map *map, const turb_allocator *allocator, size_t more);
/* There is room. */
void catalog_map_insert(struct catalog_map *map, struct catalog_object *object);
/* This very object, which is there. */
void catalog_map_remove(struct catalog_map *map, const struct catalog_object *object);
/* The object of an id in the committed or the staged state, or NULL. */
struct catalog_object *catalog_map_find(const struct catalog_map *map, uint64_t id, uint64_t second_id, bool staged);
/* A collection by its name in either state. */
struct catalog_collection *catalog_find_name(const struct catalog *catalog, const char *name, size_t name_size, bool staged);
uint64_t catalog_name_hash(const char *name, size_t name_size);

static inline bool catalog_is_in(const struct catalog_object *object, bool staged) {
  return object->stage != (staged ? CATALOG_LEAVING : CATALOG_ARRIVING);
}

static inline struct catalog_collection *catalog_collection_of_name(struct catalog_object *name_object) {
  return (struct catalog_collection *)(void *)((char *)name_object - offsetof(struct catalog_collection, name_object));
}

#endif
