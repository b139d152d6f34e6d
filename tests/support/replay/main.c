/*
 * Replays a fuzz target over files: each argument is a file or a folder of files. Linked with the target in
 * the place of the fuzzer, so that what was found once is a test for ever, with any compiler.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static unsigned replayed;

static int replay_file(const char *path) {
  FILE *file = fopen(path, "rb");
  struct stat status;
  if (file == NULL || fstat(fileno(file), &status) != 0) {
    perror(path);
    return 1;
  }
  /* Exactly as large as the input: reading behind it is an error that AddressSanitizer sees. */
  const size_t size = (size_t)status.st_size;
  uint8_t *data = malloc(size != 0 ? size : 1);
  const size_t got = data != NULL ? fread(data, 1, size, file) : 0;
  (void)fclose(file);
  if (data == NULL || got != size) {
    fprintf(stderr, "%s: cannot be read\n", path);
    free(data);
    return 1;
  }
  fprintf(stderr, "replay %s\n", path); /* before the call: a crash names its input */
  (void)LLVMFuzzerTestOneInput(data, size);
  free(data);
  replayed++;
  return 0;
}

static int replay(const char *path) {
  struct stat status;
  if (stat(path, &status) != 0) {
    perror(path);
    return 1;
  }
  if (!S_ISDIR(status.st_mode)) {
    return replay_file(path);
  }
  struct dirent **entries = NULL;
  const int count = scandir(path, &entries, NULL, alphasort);
  int failed = count < 0;
  for (int i = 0; i < count; i++) {
    char inner[4096];
    if (entries[i]->d_name[0] != '.' && snprintf(inner, sizeof inner, "%s/%s", path, entries[i]->d_name) < (int)sizeof inner) {
      failed |= replay(inner);
    }
    free(entries[i]);
  }
  free(entries);
  return failed;
}

int main(int count, char **arguments) {
  int failed = 0;
  for (int i = 1; i < count; i++) {
    failed |= replay(arguments[i]);
  }
  fprintf(stderr, "[====] Synthesis: Tested: %u | Passing: %u | Failing: 0 | Crashing: 0 \n", replayed, replayed);
  return failed;
}
