/* File names; see name.h. */
#include "engine/name.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct name_form {
  const char *prefix;
  const char *suffix; /* NULL: the prefix is the whole name */
};

static const struct name_form forms[] = {
    [NAME_LOCK] = {"LOCK", NULL},
    [NAME_MANIFEST] = {"MANIFEST", NULL},
    [NAME_MANIFEST_TEMPORARY] = {"MANIFEST.tmp", NULL},
    [NAME_LOG] = {"log-", ".tlog"},
    [NAME_TABLE] = {"table-", ".tbl"},
    [NAME_SEGMENT] = {"segment-", ".tseg"},
    [NAME_CODEBOOK] = {"codebook-", ".tcb"},
};
#define NAME_DIGITS 12

void name_format(char name[NAME_BYTES], enum name_kind kind, uint64_t number) {
  const struct name_form *form = &forms[kind];
  if (form->suffix == NULL) {
    (void)snprintf(name, NAME_BYTES, "%s", form->prefix);
  } else {
    (void)snprintf(name, NAME_BYTES, "%s%0*" PRIu64 "%s", form->prefix, NAME_DIGITS, number, form->suffix);
  }
}

/* Decimal digits, NAME_DIGITS or more of them (more: without leading zeros), followed by suffix and nothing else. */
static bool name_parse_number(const char *text, const char *suffix, uint64_t *number) {
  uint64_t value = 0;
  size_t digits = 0;
  for (; text[digits] >= '0' && text[digits] <= '9'; digits++) {
    if (__builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, (uint64_t)(text[digits] - '0'), &value)) {
      return false;
    }
  }
  if (digits < NAME_DIGITS || (digits > NAME_DIGITS && text[0] == '0') || strcmp(text + digits, suffix) != 0) {
    return false;
  }
  *number = value;
  return true;
}

enum name_kind name_parse(const char *name, uint64_t *number) {
  *number = 0;
  for (int kind = NAME_LOCK; kind <= NAME_CODEBOOK; kind++) {
    const struct name_form *form = &forms[kind];
    if (form->suffix == NULL) {
      if (strcmp(name, form->prefix) == 0) {
        return (enum name_kind)kind;
      }
      continue;
    }
    const size_t size = strlen(form->prefix);
    if (strncmp(name, form->prefix, size) == 0 && name_parse_number(name + size, form->suffix, number)) {
      return (enum name_kind)kind;
    }
  }
  return NAME_OTHER;
}

char *name_path(const turb_allocator *allocator, const char *folder, enum name_kind kind, uint64_t number) {
  char name[NAME_BYTES];
  name_format(name, kind, number);
  const size_t folder_size = strlen(folder);
  const size_t name_size = strlen(name);
  char *path = mem_alloc(allocator, folder_size + 1 + name_size + 1);
  if (path == NULL) {
    return NULL;
  }
  memcpy(path, folder, folder_size);
  path[folder_size] = '/';
  memcpy(path + folder_size + 1, name, name_size);
  path[folder_size + 1 + name_size] = 0;
  return path;
}
