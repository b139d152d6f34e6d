/*
 * The disk of the io_uring and the blocking backend: the operating system's files.
 *
 * Threads: any; each call is one or two system calls and no state.
 */
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/backend.h"

#define FOLDER_MODE 0755

static int result_of(int outcome) {
  return outcome == 0 ? 0 : errno;
}

static int posix_make_folder(struct io_system *system, const char *path) {
  (void)system;
  return result_of(mkdir(path, FOLDER_MODE));
}

static int posix_remove_folder(struct io_system *system, const char *path) {
  (void)system;
  return result_of(rmdir(path));
}

static int posix_list_folder(struct io_system *system, const char *path, void (*each)(void *context, const char *name), void *context) {
  (void)system;
  DIR *folder = opendir(path);
  if (folder == NULL) {
    return errno;
  }
  int error = 0;
  for (;;) {
    errno = 0;
    const struct dirent *entry = readdir(folder);
    if (entry == NULL) {
      error = errno; /* 0 at the end */
      break;
    }
    if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
      each(context, entry->d_name);
    }
  }
  (void)closedir(folder);
  return error;
}

static int posix_rename(struct io_system *system, const char *from, const char *to) {
  (void)system;
  return result_of(rename(from, to));
}

static int posix_link(struct io_system *system, const char *from, const char *to) {
  (void)system;
  return result_of(link(from, to));
}

static int posix_unlink(struct io_system *system, const char *path) {
  (void)system;
  return result_of(unlink(path));
}

static int posix_sync_folder(struct io_system *system, const char *path) {
  (void)system;
  const int descriptor = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) {
    return errno;
  }
  int error = 0;
  while (fsync(descriptor) != 0) {
    if (errno != EINTR) {
      error = errno;
      break;
    }
  }
  (void)close(descriptor);
  return error;
}

static int posix_stat(struct io_system *system, const char *path, uint64_t *size, uint64_t *allocated) {
  (void)system;
  struct stat status;
  if (stat(path, &status) != 0) {
    return errno;
  }
  *size = (uint64_t)status.st_size;
  *allocated = (uint64_t)status.st_blocks * 512; /* the unit of st_blocks, whatever the file system's block */
  return 0;
}

int io_posix_open_flags(unsigned flags, bool direct) {
  int result = O_CLOEXEC;
  if ((flags & IO_OPEN_WRITE) != 0) {
    result |= (flags & IO_OPEN_READ) != 0 ? O_RDWR : O_WRONLY;
  } else {
    result |= O_RDONLY;
  }
  if ((flags & IO_OPEN_CREATE) != 0) {
    result |= O_CREAT;
  }
  if ((flags & IO_OPEN_EXCLUSIVE) != 0) {
    result |= O_EXCL;
  }
  if ((flags & IO_OPEN_TRUNCATE) != 0) {
    result |= O_TRUNC;
  }
  return direct ? result | O_DIRECT : result;
}

void io_posix_identify(struct io_file *file) {
  struct stat status;
  if (fstat(file->descriptor, &status) == 0) {
    file->device = (uint64_t)status.st_dev;
    file->inode = (uint64_t)status.st_ino;
  }
}

static int posix_open(struct io_file *file) {
  for (;;) {
    const int descriptor = open(file->path, io_posix_open_flags(file->flags, file->direct), IO_FILE_MODE);
    if (descriptor >= 0) {
      file->descriptor = descriptor;
      return 0;
    }
    const int error = errno;
    if (error == EINVAL && file->direct) {
      /* The file system knows no direct transfers. O_CREAT may have made the file before that was found out; EXCLUSIVE has to let it pass. */
      file->direct = false;
      if ((file->flags & IO_OPEN_CREATE) != 0) {
        file->flags &= ~(unsigned)IO_OPEN_EXCLUSIVE;
      }
    } else if (error != EINTR) {
      return error;
    }
  }
}

static void posix_close(struct io_file *file) {
  (void)close(file->descriptor); /* what matters was synced, and Linux closes also when it reports an error */
  file->descriptor = -1;
}

static int posix_lock(struct io_lock *lock) {
  /* flock and not fcntl: its locks belong to the open file description, so that two openers in one process exclude each other, and closing another
   * descriptor of the file does not drop them. A shared lock must work on a read-only medium. */
  const int flags = lock->shared ? O_RDONLY : O_RDWR | O_CREAT;
  const int descriptor = open(lock->path, flags | O_CLOEXEC, IO_FILE_MODE);
  if (descriptor < 0) {
    return errno;
  }
  while (flock(descriptor, (lock->shared ? LOCK_SH : LOCK_EX) | LOCK_NB) != 0) {
    if (errno != EINTR) {
      const int error = errno;
      (void)close(descriptor);
      return error;
    }
  }
  lock->descriptor = descriptor;
  return 0;
}

static void posix_unlock(struct io_lock *lock) {
  (void)flock(lock->descriptor, LOCK_UN); /* a forked child may hold the description open */
  (void)close(lock->descriptor);
}

static int posix_size(struct io_file *file, uint64_t *size) {
  struct stat status;
  if (fstat(file->descriptor, &status) != 0) {
    return errno;
  }
  *size = (uint64_t)status.st_size;
  return 0;
}

static int posix_truncate(struct io_file *file, uint64_t size) {
  while (ftruncate(file->descriptor, (off_t)size) != 0) {
    if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

static int posix_allocate(struct io_file *file, uint64_t offset, uint64_t size, bool extend) {
  while (fallocate(file->descriptor, extend ? 0 : FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)size) != 0) {
    if (errno == EOPNOTSUPP || errno == ENOSYS) {
      return EOPNOTSUPP;
    }
    if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

static int64_t posix_read(struct io_file *file, void *data, size_t size, uint64_t offset) {
  const ssize_t moved = pread(file->descriptor, data, size, (off_t)offset);
  return moved >= 0 ? moved : -(int64_t)errno;
}

static int64_t posix_write(struct io_file *file, const void *data, size_t size, uint64_t offset) {
  const ssize_t moved = pwrite(file->descriptor, data, size, (off_t)offset);
  return moved >= 0 ? moved : -(int64_t)errno;
}

static int posix_sync(struct io_file *file) {
  /* Not repeated on EINTR by chance only: fdatasync is not interruptible on the file systems that matter, and a sync that failed is final. */
  return result_of(fdatasync(file->descriptor));
}

const struct io_disk io_disk_posix = {
    .make_folder = posix_make_folder,
    .remove_folder = posix_remove_folder,
    .list_folder = posix_list_folder,
    .rename = posix_rename,
    .link = posix_link,
    .unlink = posix_unlink,
    .sync_folder = posix_sync_folder,
    .stat = posix_stat,
    .open = posix_open,
    .close = posix_close,
    .lock = posix_lock,
    .unlock = posix_unlock,
    .size = posix_size,
    .truncate = posix_truncate,
    .allocate = posix_allocate,
    .read = posix_read,
    .write = posix_write,
    .sync = posix_sync,
};
