/* Status names, the rule of the first error, and what messages name. */
#include "base/status.h"

#include <errno.h>

#include "tests/support/test.h"

TEST(status, names_every_code) {
  for (int code = 0; code <= TURB_TOO_LARGE; code++) {
    const char *name = turb_status_name((turb_status)code);
    CHECK(strncmp(name, "TURB_", 5) == 0);
    CHECK(strcmp(name, "TURB_UNKNOWN_STATUS") != 0);
    for (int other = 0; other < code; other++) {
      CHECK(strcmp(name, turb_status_name((turb_status)other)) != 0);
    }
  }
  CHECK_STR_EQ(turb_status_name(TURB_NOT_FOUND), "TURB_NOT_FOUND");
  CHECK_STR_EQ(turb_status_name((turb_status)9999), "TURB_UNKNOWN_STATUS");
}

TEST(status, codes_are_pinned) {
  CHECK_EQ(TURB_OK, 0);
  CHECK_EQ(TURB_CORRUPTION, 4);
  CHECK_EQ(TURB_BUDGET, 8);
  CHECK_EQ(TURB_NOT_A_DATABASE, 15);
  CHECK_EQ(TURB_TOO_LARGE, 21);
}

TEST(status, first_error_wins) {
  turb_error err;
  memset(&err, 0xee, sizeof err);
  status_clear(&err);
  CHECK_EQ(err.status, TURB_OK);
  CHECK_EQ(err.offset, UINT64_MAX);
  CHECK_STATUS(status_set(&err, TURB_OK, "nothing"), TURB_OK);
  CHECK_EQ(err.status, TURB_OK);
  CHECK_STATUS(status_set(&err, TURB_BUSY, "%d readers", 3), TURB_BUSY);
  CHECK_STATUS(status_set_file(&err, TURB_IO, "f", 1, "later"), TURB_IO);
  CHECK_STATUS(status_from_errno(&err, ENOSPC, "write", "f", 1), TURB_NO_SPACE);
  CHECK_EQ(err.status, TURB_BUSY);
  CHECK_EQ(err.os_error, 0);
  CHECK_STR_EQ(err.message, "3 readers");
  CHECK_STR_EQ(err.file, "");
  status_clear(&err);
  CHECK_EQ(err.status, TURB_OK);
  CHECK_STR_EQ(err.message, "");
}

TEST(status, null_error_is_allowed) {
  status_clear(NULL);
  CHECK_STATUS(status_set(NULL, TURB_INVALID, "x"), TURB_INVALID);
  CHECK_STATUS(status_set_file(NULL, TURB_CORRUPTION, "f", 0, "x"), TURB_CORRUPTION);
  CHECK_STATUS(status_from_errno(NULL, EIO, "x", NULL, STATUS_NO_OFFSET), TURB_IO);
  const turb_error from = {TURB_IO, 0, UINT64_MAX, "", ""};
  CHECK_STATUS(status_copy(NULL, &from), TURB_IO);
}

TEST(status, messages_name_file_and_offset) {
  turb_error err = TURB_ERROR_INIT;
  CHECK_STATUS(status_set_file(&err, TURB_CORRUPTION, "db/7.table", 8192, "bad checksum"), TURB_CORRUPTION);
  CHECK_STR_EQ(err.file, "db/7.table");
  CHECK_EQ(err.offset, 8192);
  CHECK_STR_EQ(err.message, "bad checksum (db/7.table, offset 8192)");
  status_clear(&err);
  CHECK_STATUS(status_set_file(&err, TURB_CORRUPTION, "db/7.table", STATUS_NO_OFFSET, "bad"), TURB_CORRUPTION);
  CHECK_STR_EQ(err.message, "bad (db/7.table)");
  status_clear(&err);
  CHECK_STATUS(status_set_file(&err, TURB_CORRUPTION, NULL, 5, "bad"), TURB_CORRUPTION);
  CHECK_STR_EQ(err.message, "bad (offset 5)");
}

TEST(status, long_texts_keep_the_place) {
  char path[1000];
  char text[2000];
  memset(path, 'p', sizeof path);
  memcpy(path + sizeof path - 6, "/tail", 6);
  memset(text, 't', sizeof text);
  text[sizeof text - 1] = '\0';
  turb_error err = TURB_ERROR_INIT;
  CHECK_STATUS(status_set_file(&err, TURB_IO, path, UINT64_MAX - 1, "%s", text), TURB_IO);
  CHECK_EQ(strlen(err.file), sizeof err.file - 1);
  CHECK_EQ(strlen(err.message), sizeof err.message - 1);
  CHECK(test_contains(err.file, "/tail"));
  CHECK(test_contains(err.message, "/tail, offset 18446744073709551614)"));
  CHECK_EQ(err.message[0], 't');
}

TEST(status, maps_system_errors) {
  static const struct {
    int os_error;
    turb_status status;
  } rows[] = {{ENOSPC, TURB_NO_SPACE},       {EDQUOT, TURB_NO_SPACE},   {ENOMEM, TURB_NO_MEMORY}, {EMFILE, TURB_TOO_MANY_FILES},
              {ENFILE, TURB_TOO_MANY_FILES}, {EACCES, TURB_PERMISSION}, {EPERM, TURB_PERMISSION}, {EROFS, TURB_PERMISSION},
              {ENOENT, TURB_NOT_FOUND},      {EEXIST, TURB_EXISTS},     {EIO, TURB_IO},           {EINVAL, TURB_IO}};
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    turb_error err = TURB_ERROR_INIT;
    CHECK_STATUS(status_from_errno(&err, rows[i].os_error, "try", "a/b", 4096), rows[i].status);
    CHECK_EQ(err.os_error, rows[i].os_error);
    CHECK(test_contains(err.message, "try: "));
    CHECK(test_contains(err.message, "a/b"));
    CHECK(test_contains(err.message, "4096"));
    CHECK_STATUS(status_of_errno(-rows[i].os_error), rows[i].status);
  }
  turb_error err = TURB_ERROR_INIT;
  CHECK_STATUS(status_from_errno(&err, 4095, "try", NULL, STATUS_NO_OFFSET), TURB_IO);
  CHECK_STR_EQ(err.message, "try: system error 4095");
}

TEST(status, copies_the_first) {
  turb_error from = TURB_ERROR_INIT;
  turb_error to = TURB_ERROR_INIT;
  CHECK_STATUS(status_copy(&to, &from), TURB_OK);
  CHECK_STATUS(status_set_file(&from, TURB_IO, "f", 3, "x"), TURB_IO);
  CHECK_STATUS(status_copy(&to, &from), TURB_IO);
  CHECK_EQ(to.status, TURB_IO);
  CHECK_EQ(to.offset, 3);
  turb_error late = TURB_ERROR_INIT;
  CHECK_STATUS(status_set(&late, TURB_BUSY, "late"), TURB_BUSY);
  CHECK_STATUS(status_copy(&to, &late), TURB_BUSY);
  CHECK_EQ(to.status, TURB_IO);
}
