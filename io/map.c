/* Mapped stretches of files; see map.h for the rules. */
#include "io/map.h"

#include <errno.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/vfs.h>

#include "io/backend.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif
#ifndef XFS_SUPER_MAGIC
#define XFS_SUPER_MAGIC 0x58465342
#endif

/* Rule 1: no copy on write, no compression, no server behind it. ext2 and ext3 have the same number. */
static bool overwrites_in_place(int descriptor) {
  struct statfs system;
  if (fstatfs(descriptor, &system) != 0) {
    return false;
  }
  const unsigned long type = (unsigned long)system.f_type & 0xffffffffu;
  return type == EXT4_SUPER_MAGIC || type == XFS_SUPER_MAGIC || type == TMPFS_MAGIC;
}

turb_status io_file_map(struct io_file *file, uint64_t offset, size_t size, void **memory, turb_error *err) {
  *memory = NULL;
  if (file->system->disk != &io_disk_posix || file->direct || !overwrites_in_place(file->descriptor)) {
    return status_set_file(err, TURB_UNSUPPORTED, file->path, STATUS_NO_OFFSET, "this disk or file system has no safe mappings");
  }
  void *mapped = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file->descriptor, (off_t)offset);
  if (mapped == MAP_FAILED) {
    return status_set_file(err, TURB_UNSUPPORTED, file->path, offset, "the file cannot be mapped");
  }
  if (mlock(mapped, size) != 0 || io_map_prepare(mapped, size, NULL) != TURB_OK) {
    io_file_unmap(mapped, size);
    return status_set_file(err, TURB_UNSUPPORTED, file->path, offset, "the mapping cannot be locked in memory");
  }
  *memory = mapped;
  return TURB_OK;
}

void io_file_unmap(void *memory, size_t size) {
  if (memory != NULL) {
    (void)munmap(memory, size); /* unlocks; fails for wrong arguments alone */
  }
}

turb_status io_map_prepare(void *memory, size_t size, turb_error *err) {
  while (madvise(memory, size, MADV_POPULATE_WRITE) != 0) {
    if (errno != EINTR && errno != EAGAIN) {
      return status_from_errno(err, errno, "prepare a mapping", NULL, STATUS_NO_OFFSET);
    }
  }
  return TURB_OK;
}
