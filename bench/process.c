/* The process's clocks and counters; files and folders (bench.h). */
#include "bench/bench.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

double now_seconds(void) {
  struct timespec t;
  (void)clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

double thread_seconds(void) {
  struct timespec t;
  (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

double cpu_seconds(void) {
  struct rusage usage;
  if (getrusage(RUSAGE_SELF, &usage) != 0)
    return 0;
  return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) + (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

/* The number behind `name` in a file of /proc, or 0. */
static uint64_t proc_number(const char *path, const char *name) {
  FILE *file = fopen(path, "re");
  if (!file)
    return 0;
  char line[256];
  uint64_t number = 0;
  const size_t length = strlen(name);
  while (fgets(line, sizeof line, file))
    if (!strncmp(line, name, length)) {
      number = strtoull(line + length, NULL, 10);
      break;
    }
  (void)fclose(file);
  return number;
}

uint64_t peak_memory_bytes(void) {
  return proc_number("/proc/self/status", "VmHWM:") * 1024;
}

uint64_t anonymous_memory_bytes(void) {
  return proc_number("/proc/self/status", "RssAnon:") * 1024;
}

uint64_t device_read_bytes(void) {
  return proc_number("/proc/self/io", "read_bytes:");
}

uint64_t process_written_bytes(void) {
  return proc_number("/proc/self/io", "wchar:");
}

/* ---- files ---- */

char *path_join(const char *folder, const char *format, ...) {
  char name[256];
  va_list list;
  va_start(list, format);
  (void)vsnprintf(name, sizeof name, format, list);
  va_end(list);
  const size_t size = strlen(folder) + strlen(name) + 2;
  char *path = bench_alloc(size);
  (void)snprintf(path, size, "%s/%s", folder, name);
  return path;
}

/* Calls `each` for every name in a folder; a missing folder has none. */
static void walk(const char *path, void (*each)(const char *file, const struct stat *info, void *context), void *context) {
  DIR *folder = opendir(path);
  if (!folder)
    return;
  const struct dirent *entry;
  while ((entry = readdir(folder)) != NULL) {
    if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
      continue;
    char *file = path_join(path, "%s", entry->d_name);
    struct stat info;
    if (lstat(file, &info) == 0)
      each(file, &info, context);
    free(file);
  }
  (void)closedir(folder);
}

static void remove_one(const char *file, const struct stat *info, void *context) {
  (void)context;
  if (S_ISDIR(info->st_mode))
    folder_remove(file);
  else
    (void)unlink(file);
}

void folder_remove(const char *path) {
  walk(path, remove_one, NULL);
  (void)rmdir(path);
}

void folder_make(const char *path) {
  if (mkdir(path, 0755) != 0 && errno != EEXIST)
    bench_fail("%s cannot be made: %s", path, strerror(errno));
}

static void add_size(const char *file, const struct stat *info, void *context) {
  (void)file;
  uint64_t *bytes = context;
  if (S_ISREG(info->st_mode))
    *bytes += (uint64_t)info->st_blocks * 512;
}

uint64_t folder_bytes(const char *path) {
  uint64_t bytes = 0;
  walk(path, add_size, &bytes);
  return bytes;
}

static void drop_one(const char *file, const struct stat *info, void *context) {
  (void)context;
  if (!S_ISREG(info->st_mode))
    return;
  const int fd = open(file, O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return;
  (void)fsync(fd);
  (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  (void)close(fd);
}

void folder_drop_cache(const char *path) {
  walk(path, drop_one, NULL);
}

struct largest {
  char *file;
  off_t size;
};

static void keep_largest(const char *file, const struct stat *info, void *context) {
  struct largest *largest = context;
  if (!S_ISREG(info->st_mode) || info->st_size <= largest->size)
    return;
  free(largest->file);
  largest->file = strdup(file);
  largest->size = info->st_size;
}

char *folder_largest_file(const char *path) {
  struct largest largest = {0};
  walk(path, keep_largest, &largest);
  if (!largest.file)
    bench_fail("%s has no file", path);
  return largest.file;
}
