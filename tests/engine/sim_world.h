/*
 * A simulated disk with one folder, for the tests of log and manifest.
 *
 * Threads: one.
 */
#ifndef TURB_TESTS_ENGINE_SIM_WORLD_H
#define TURB_TESTS_ENGINE_SIM_WORLD_H

#include "io/io.h"
#include "tests/support/allocator.h"
#include "tests/support/test.h"

#define WORLD_FOLDER "/db"

struct sim_world {
  turb_simulation *simulation;
  struct io_system *system;
};

void sim_world_open(struct sim_world *world, uint64_t seed, uint64_t capacity_bytes);
/* Power off (if it is not) and on again. */
void sim_world_restart(struct sim_world *world);
/* As a killed process and a new one: the power stays on. */
void sim_world_reopen(struct sim_world *world);
void sim_world_close(struct sim_world *world);

uint64_t sim_world_size(const struct sim_world *world, const char *path);
/* size bytes at offset. */
void sim_world_read(const struct sim_world *world, const char *path, uint64_t offset, void *to, size_t size);
/* Writes, making the file when it is missing, and syncs. */
void sim_world_write(const struct sim_world *world, const char *path, uint64_t offset, const void *data, size_t size);
/* A copy of the file, malloc'ed. */
uint8_t *sim_world_load(const struct sim_world *world, const char *path, size_t *size);
/* Makes the file hold just these bytes. */
void sim_world_store(const struct sim_world *world, const char *path, const uint8_t *data, size_t size);

#endif
