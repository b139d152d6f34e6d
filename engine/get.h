/* engine/get: point reads, one key or many, as one state machine a key.
 *
 *   for each memtable, then each run, newest first: look the key up; the first version at or below the view's sequence decides
 *   -> a delete, or a range delete above it: NOT_FOUND
 *   -> a put: its row and attributes are brought
 */
#ifndef TURB_ENGINE_GET_H
#define TURB_ENGINE_GET_H

#include "engine/db.h"

/* The newest version at the view as a pinned entry (release: turb_pinned_release). NOT_FOUND without a message. Blocks. The view may be
 * released before the pin. */
TURB_MUST_CHECK turb_status get_pinned(const struct read_view *view, turb_bytes key, uint32_t parts, bool fill_cache, turb_pinned *pinned,
                                       turb_error *err);

#endif
