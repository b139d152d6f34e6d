/* File names there and back, and what is not ours. */
#include "engine/name.h"

#include "tests/support/test.h"

TEST(name, what_is_formatted_is_parsed) {
  const uint64_t numbers[] = {0, 1, 999999999999, 1000000000000, UINT64_MAX};
  for (int kind = NAME_LOCK; kind <= NAME_CODEBOOK; kind++) {
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
      char name[NAME_BYTES];
      uint64_t number = 7;
      name_format(name, (enum name_kind)kind, numbers[i]);
      CHECK_EQ(name_parse(name, &number), kind);
      CHECK_EQ(number, kind >= NAME_LOG ? numbers[i] : 0);
    }
  }
  char name[NAME_BYTES];
  name_format(name, NAME_LOG, 12);
  CHECK_STR_EQ(name, "log-000000000012.tlog");
  char *path = name_path(alloc_default(), "/a/b", NAME_TABLE, 3);
  CHECK_STR_EQ(path, "/a/b/table-000000000003.tbl");
  mem_free_string(alloc_default(), path);
}

TEST(name, other_names_are_left_alone) {
  const char *names[] = {"",
                         "lock",
                         "MANIFEST.tm",
                         "MANIFEST.tmp2",
                         "log-12.tlog",
                         "log-000000000012.tlog.bak",
                         "log-00000000001x.tlog",
                         "log-0000000000012.tlog",
                         "log--00000000012.tlog",
                         "log-99999999999999999999.tlog",
                         "table-000000000001.tlog",
                         "segment-.tseg",
                         "codebook-000000000001"};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    uint64_t number = 1;
    CHECK_MSG(name_parse(names[i], &number) == NAME_OTHER, "%s", names[i]);
    CHECK_EQ(number, 0);
  }
}
