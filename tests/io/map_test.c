/* Mapped stretches: stores reach the file, and where there is no safe mapping the answer is UNSUPPORTED. */
#include "io/map.h"

#include "tests/support/test.h"

#define PAGE 4096u

static struct io_file *make_file(struct io_system *system, const char *path, unsigned flags) {
  static const uint8_t zeros[2 * PAGE] __attribute__((aligned(4096)));
  struct io_file *file = NULL;
  CHECK_OK(io_file_open(system, path, IO_OPEN_READ | IO_OPEN_WRITE | IO_OPEN_CREATE | flags, &file, NULL));
  CHECK_OK(io_file_write(file, zeros, sizeof zeros, 0, NULL));
  return file;
}

TEST(map, stores_reach_the_file) {
  struct io_system *system = NULL;
  CHECK_OK(io_system_open(&(struct io_system_options){.backend = TURB_BACKEND_BLOCKING}, &system, NULL));
  struct io_file *file = make_file(system, test_path(test_tmpdir(), "file"), 0);
  void *memory = NULL;
  turb_error err = TURB_ERROR_INIT;
  const turb_status status = io_file_map(file, PAGE, PAGE, &memory, &err);
  if (status == TURB_OK) { /* the file system of the tests may have none */
    CHECK_OK(io_map_prepare(memory, PAGE, NULL));
    memcpy((uint8_t *)memory + 100, "stored", 6);
    uint8_t bytes[6];
    CHECK_OK(io_file_read(file, bytes, sizeof bytes, PAGE + 100, NULL));
    CHECK_MEM_EQ(bytes, "stored", 6);
    CHECK_OK(io_file_write(file, "written", 7, PAGE + 200, NULL));
    CHECK_MEM_EQ((uint8_t *)memory + 200, "written", 7);
    CHECK_OK(io_file_sync(file, NULL));
    io_file_unmap(memory, PAGE);
  } else {
    CHECK_STATUS(status, TURB_UNSUPPORTED);
    CHECK(memory == NULL && err.message[0] != '\0');
  }
  io_file_unmap(NULL, 0);
  io_file_release(file);
  io_system_close(system);
}

TEST(map, there_is_none_on_the_simulated_disk_nor_of_direct_files) {
  turb_simulation_options options = TURB_SIMULATION_OPTIONS_INIT;
  turb_simulation *simulation = NULL;
  CHECK_OK(turb_simulation_create(&options, &simulation, NULL));
  struct io_system *system = NULL;
  CHECK_OK(io_system_open(&(struct io_system_options){.backend = TURB_BACKEND_SIMULATED, .simulation = simulation}, &system, NULL));
  struct io_file *file = make_file(system, "/file", 0);
  void *memory = NULL;
  CHECK_STATUS(io_file_map(file, PAGE, PAGE, &memory, NULL), TURB_UNSUPPORTED);
  io_file_release(file);
  io_system_close(system);
  turb_simulation_free(simulation);
  CHECK_OK(io_system_open(&(struct io_system_options){.backend = TURB_BACKEND_BLOCKING}, &system, NULL));
  file = make_file(system, test_path(test_tmpdir(), "file"), IO_OPEN_DIRECT);
  if (io_file_is_direct(file)) {
    CHECK_STATUS(io_file_map(file, PAGE, PAGE, &memory, NULL), TURB_UNSUPPORTED);
  }
  CHECK(memory == NULL);
  io_file_release(file);
  io_system_close(system);
}
