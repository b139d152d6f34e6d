/*
 * The simulated disk, as io/simulated.c uses it. Its public calls (turb_simulation_...) are in turbidite.h, section 10.
 *
 * Every call returns 0 or errno, transfers bytes or -errno. A handle is an opening of one file, good until the power is cut or the disk restarted;
 * then everything done through it fails with EIO, and closing it is all that is left.
 *
 * Threads: any; one mutex.
 */
#ifndef TURB_IO_SIMULATION_H
#define TURB_IO_SIMULATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "turbidite/turbidite.h"

struct simulation_handle;

int simulation_make_folder(turb_simulation *simulation, const char *path);
int simulation_remove_folder(turb_simulation *simulation, const char *path);
int simulation_list_folder(turb_simulation *simulation, const char *path, void (*each)(void *context, const char *name), void *context);
int simulation_rename(turb_simulation *simulation, const char *from, const char *to);
int simulation_link(turb_simulation *simulation, const char *from, const char *to);
int simulation_unlink(turb_simulation *simulation, const char *path);
int simulation_sync_folder(turb_simulation *simulation, const char *path);
int simulation_stat(turb_simulation *simulation, const char *path, uint64_t *size, uint64_t *allocated);

/* flags: enum io_open_flags. */
int simulation_open(turb_simulation *simulation, const char *path, unsigned flags, struct simulation_handle **handle);
void simulation_close(struct simulation_handle *handle);
/* EWOULDBLOCK when it is held against us. Released by simulation_unlock; a restart forgets all locks. */
int simulation_lock(turb_simulation *simulation, const char *path, bool shared, struct simulation_handle **handle);
void simulation_unlock(struct simulation_handle *handle);

/* A number for the file whatever its name, not 0. */
uint64_t simulation_inode(const struct simulation_handle *handle);
int simulation_size(struct simulation_handle *handle, uint64_t *size);
int simulation_truncate(struct simulation_handle *handle, uint64_t size);
int simulation_allocate(struct simulation_handle *handle, uint64_t offset, uint64_t size, bool extend);
/* At most `size` bytes, fewer by the seed and the short_percent of the disk. */
int64_t simulation_read(struct simulation_handle *handle, void *data, size_t size, uint64_t offset);
int64_t simulation_write(struct simulation_handle *handle, const void *data, size_t size, uint64_t offset);
int simulation_sync(struct simulation_handle *handle);

/* The scheduler's dice: a number below `bound`; and whether to hold a completion back. */
uint64_t simulation_draw(turb_simulation *simulation, uint64_t bound);
bool simulation_holds_back(turb_simulation *simulation);

#endif
