/* The simulated disk of the tests; see sim_world.h. */
#include "tests/engine/sim_world.h"

#include <stdlib.h>

static void open_system(struct sim_world *world) {
  CHECK_OK(io_system_open(&(struct io_system_options){.backend = TURB_BACKEND_SIMULATED, .simulation = world->simulation}, &world->system,
                          NULL));
}

void sim_world_open(struct sim_world *world, uint64_t seed, uint64_t capacity_bytes) {
  turb_simulation_options options = TURB_SIMULATION_OPTIONS_INIT;
  options.seed = seed;
  options.capacity_bytes = capacity_bytes;
  CHECK_OK(turb_simulation_create(&options, &world->simulation, NULL));
  open_system(world);
  CHECK_OK(io_make_folder(world->system, WORLD_FOLDER, NULL));
  CHECK_OK(io_sync_folder(world->system, "/", NULL));
}

void sim_world_restart(struct sim_world *world) {
  io_system_close(world->system);
  turb_simulation_restart(world->simulation);
  open_system(world);
}

void sim_world_reopen(struct sim_world *world) {
  io_system_close(world->system);
  open_system(world);
}

void sim_world_close(struct sim_world *world) {
  io_system_close(world->system);
  turb_simulation_free(world->simulation);
}

uint64_t sim_world_size(const struct sim_world *world, const char *path) {
  uint64_t size = 0;
  CHECK_OK(io_stat(world->system, path, &size, NULL, NULL));
  return size;
}

void sim_world_read(const struct sim_world *world, const char *path, uint64_t offset, void *to, size_t size) {
  struct io_file *file = NULL;
  CHECK_OK(io_file_open(world->system, path, IO_OPEN_READ, &file, NULL));
  CHECK_OK(io_file_read(file, to, size, offset, NULL));
  io_file_release(file);
}

void sim_world_write(const struct sim_world *world, const char *path, uint64_t offset, const void *data, size_t size) {
  struct io_file *file = NULL;
  CHECK_OK(io_file_open(world->system, path, IO_OPEN_READ | IO_OPEN_WRITE | IO_OPEN_CREATE, &file, NULL));
  CHECK_OK(io_file_write(file, data, size, offset, NULL));
  CHECK_OK(io_file_sync(file, NULL));
  io_file_release(file);
}

uint8_t *sim_world_load(const struct sim_world *world, const char *path, size_t *size) {
  *size = (size_t)sim_world_size(world, path);
  uint8_t *data = malloc(*size + 1);
  CHECK(data != NULL);
  if (*size != 0) {
    sim_world_read(world, path, 0, data, *size);
  }
  return data;
}

void sim_world_store(const struct sim_world *world, const char *path, const uint8_t *data, size_t size) {
  struct io_file *file = NULL;
  CHECK_OK(io_file_open(world->system, path, IO_OPEN_READ | IO_OPEN_WRITE | IO_OPEN_CREATE | IO_OPEN_TRUNCATE, &file, NULL));
  if (size != 0) {
    CHECK_OK(io_file_write(file, data, size, 0, NULL));
  }
  io_file_release(file);
}
