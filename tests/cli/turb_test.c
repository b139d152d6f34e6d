/* The command turb: what it prints, its exit codes, its messages. */
#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/cli/command.h"
#include "tests/support/test.h"

static const char *make_database(void) {
  static char path[4096];
  (void)snprintf(path, sizeof path, "%s/db", test_tmpdir());
  check_code(turb("create -d %s c --dimension 3", path), 0);
  check_code(turb("put -d %s apple '[1, 2.5, -3]' -a red", path), 0);
  check_code(turb("put -d %s banana 1,2,0.1 --attributes '{\"colour\": \"yellow\"}'", path), 0);
  check_code(turb("put -d %s 0x00ff 4,5,6", path), 0);
  return path;
}

static void check_says(const char *text, const char *part) {
  CHECK_MSG(test_contains(text, part), "'%.1000s' lacks '%s'", text, part);
}

/* ---- help, version, usage ---- */

TEST(turb, help_of_everything) {
  static const char *const names[] = {"create", "drop",    "collections", "put",  "get",    "delete",     "scan", "search", "import",
                                      "flush",  "compact", "stats",       "runs", "verify", "checkpoint", "dump", "set"};
  const struct run *run = turb("--help");
  check_code(run, 0);
  static char overview[1 << 16];
  (void)snprintf(overview, sizeof overview, "%s", run->out);
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    check_says(overview, names[i]);
    run = turb("%s --help", names[i]);
    check_code(run, 0);
    check_says(run->out, "Usage: turb ");
    check_says(run->out, names[i]);
    check_says(run->out, "--help");
    CHECK_STR_EQ(run->err, "");
    run = turb("help %s", names[i]);
    check_code(run, 0);
    check_says(run->out, "Usage: turb ");
    /* A line fits a wide terminal. */
    for (const char *line = run->out; *line != '\0'; line += strcspn(line, "\n") + 1) {
      CHECK_MSG(strcspn(line, "\n") <= 140, "'%.200s'", line);
    }
  }
  run = turb("--version");
  check_code(run, 0);
  char version[64];
  (void)snprintf(version, sizeof version, "turb %d.%d.%d\n", TURB_VERSION_MAJOR, TURB_VERSION_MINOR, TURB_VERSION_PATCH);
  CHECK_STR_EQ(run->out, version);
}

static void check_usage(const struct run *run, const char *part) {
  check_code(run, 2);
  CHECK_STR_EQ(run->out, "");
  check_says(run->err, part);
}

TEST(turb, wrong_usage_is_2_and_says_why) {
  const char *db = make_database();
  check_usage(turb("%s", ""), "Usage");
  check_usage(turb("frob"), "no command 'frob'");
  check_usage(turb("get --frob"), "--frob");
  check_usage(turb("get -Z x"), "-Z");
  check_usage(turb("get --db"), "needs a value");
  check_usage(turb("get -d"), "needs a value");
  check_usage(turb("get -d %s", db), "too few operands");
  check_usage(turb("drop -d %s a b", db), "too many operands");
  check_usage(turb("get apple"), "--db");
  check_usage(turb("create -d %s x", db), "--dimension");
  check_usage(turb("create -d %s x -D 65537", db), "1 to 65536");
  check_usage(turb("create -d %s x -D 3x", db), "'3x'");
  check_usage(turb("create -d %s x -D 3 --type f31", db), "f32, f16, bf16, i8, u8, bits");
  check_usage(turb("create -d %s x -D 3 --metric hamming", db), "turb create");
  check_usage(turb("stats -d %s -m 1K", db), "--memory");
  check_usage(turb("stats -d %s -m 64Q", db), "'64Q'");
  check_usage(turb("put -d %s k 1,2", db), "2 components; collection c has dimension 3");
  check_usage(turb("put -d %s k 1,2,3,4", db), "4 components");
  check_usage(turb("put -d %s k 1,2,x", db), "component 2: 'x'");
  check_usage(turb("put -d %s k 1,nan,2", db), "component 1");
  check_usage(turb("put -d %s k 1,1e39,2", db), "component 1");
  check_usage(turb("put -d %s k '[1,2,3'", db), "brackets");
  check_usage(turb("put -d %s k '[1,2,3] 4'", db), "behind the list");
  check_usage(turb("put -d %s k 0x00", db), "1 bytes; a vector of collection c has 12");
  check_usage(turb("put -d %s 0xzz 1,2,3", db), "hexadecimal");
  check_usage(turb("put -d %s 0x123 1,2,3", db), "even number");
  check_usage(turb("put -d %s '' 1,2,3", db), "0 bytes");
  check_usage(turb("put -d %s -n x 1,2,3", db), "not a number");
  check_usage(turb("put -d %s k", db), "neither a vector");
  check_usage(turb("put -d %s k 1,2,3 --if-absent --if-sequence 4", db), "exclude");
  check_usage(turb("put -d %s k @%s", db, "/dev/zero"), "more than");
  check_usage(turb("delete -d %s", db), "give keys");
  check_usage(turb("delete -d %s --range a", db), "BEGIN and END");
  check_usage(turb("search -d %s", db), "--vector-file");
  check_usage(turb("search -d %s 1,2,3 -k 0", db), "--neighbours");
  check_usage(turb("search -d %s 1,2,3 --radius x", db), "--radius");
}

/* ---- entries ---- */

TEST(turb, get_shows_and_tells_what_is_missing) {
  const char *db = make_database();
  const struct run *run = turb("get -d %s apple", db);
  check_code(run, 0);
  CHECK_STR_EQ(run->out, "key         apple\nsequence    1\nattributes  red\nvector      [1, 2.5, -3]\n");
  run = turb("get -d %s -j banana 0x00ff", db);
  check_code(run, 0);
  CHECK_EQ(check_json_lines(run->out), 2);
  check_says(run->out, "{\"key\":\"banana\",\"sequence\":2,\"attributes\":\"{\\\"colour\\\": \\\"yellow\\\"}\",\"vector\":[1,2,0.1]}");
  check_says(run->out, "{\"key\":\"0x00ff\",");
  run = turb("get -d %s apple none banana", db);
  check_code(run, 1);
  check_says(run->err, "none");
  check_says(run->out, "banana");
  run = turb("get -d %s --raw apple", db);
  check_code(run, 0);
  CHECK_EQ(run->out_size, 12);
  const float wanted[] = {1, 2.5f, -3};
  CHECK_MEM_EQ(run->out, wanted, 12);
}

TEST(turb, put_conditions_and_attributes) {
  const char *db = make_database();
  check_code(turb("put -d %s apple 7,8,9 --if-absent", db), 1);
  check_code(turb("put -d %s pear 7,8,9 --if-absent", db), 0);
  check_code(turb("put -d %s apple 7,8,9 --if-sequence 99", db), 1);
  const struct run *run = turb("put -d %s apple 7,8,9 --if-sequence 1 -j", db);
  check_code(run, 0);
  CHECK_EQ(check_json_lines(run->out), 1);
  check_says(run->out, "\"key\":\"apple\",\"sequence\":");
  check_code(turb("put -d %s apple -a green", db), 0);
  run = turb("get -d %s apple -j", db);
  check_says(run->out, "\"attributes\":\"green\"");
  CHECK_STR_EQ(json_value(run->out, "vector"), "[7,8,9]");
  check_code(turb("put -d %s nothing -a green", db), 1);
}

TEST(turb, vectors_from_files) {
  const char *db = make_database();
  const char *folder = test_tmpdir();
  const char *list = test_path(folder, "list");
  check_code(shell("printf '[1.5,\\n 2.5, 3.5]\\n' >%s && printf '\\0\\0\\200?\\0\\0\\0@\\0\\0@@' >%s.raw", list, list), 0);
  check_code(turb("put -d %s a --vector-file %s", db, list), 0);
  check_code(turb("put -d %s b @%s.raw", db, list), 0);
  check_code(shell("echo 4 5 6 | $T put -d %s c -f - -a @%s.raw", db, list), 0);
  CHECK_STR_EQ(json_value(turb("get -d %s a -j", db)->out, "vector"), "[1.5,2.5,3.5]");
  CHECK_STR_EQ(json_value(turb("get -d %s b -j", db)->out, "vector"), "[1,2,3]");
  const struct run *run = turb("get -d %s c -j", db);
  CHECK_EQ(check_json_lines(run->out), 1);
  CHECK_STR_EQ(json_value(run->out, "vector"), "[4,5,6]");
  CHECK_STR_EQ(json_value(run->out, "attributes"), "\"0x0000803f0000004000004040\"");
  check_code(turb("put -d %s d @%s", db, test_path(folder, "none")), 2);
}

/* Every type gives back what was put, and what is printed reads back as the same bytes. */
TEST(turb, types_round_trip) {
  static const struct {
    const char *type, *vector, *shown;
  } types[] = {
      {"f32", "0.1,-1e-40,3.4e38,16777217", "[0.1,-9.99995e-41,3.4e+38,16777216]"},
      {"f16", "0.1,-6e-8,65504,2049", "[0.1,-5.96e-08,6.55e+04,2048]"},
      {"bf16", "0.1,1e-40,3.3e38,257", "[0.1,9.18e-41,3.3e+38,256]"},
      {"i8", "-128,127,0.5,1.5", "[-128,127,0,2]"},
      {"u8", "0,255,254.5,0.4", "[0,255,254,0]"},
  };
  char path[4096];
  (void)snprintf(path, sizeof path, "%s/db", test_tmpdir());
  for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
    check_code(turb("create -d %s %s -D 4 -t %s", path, types[i].type, types[i].type), 0);
    check_code(turb("put -d %s -c %s k %s%s", path, types[i].type, types[i].vector[0] == '-' ? "-- " : "", types[i].vector), 0);
    const struct run *run = turb("get -d %s -c %s k -j", path, types[i].type);
    check_code(run, 0);
    CHECK_EQ(check_json_lines(run->out), 1);
    CHECK_STR_EQ(json_value(run->out, "vector"), types[i].shown);
    static char shown[1024];
    (void)snprintf(shown, sizeof shown, "%s", json_value(run->out, "vector"));
    check_code(turb("put -d %s -c %s again %s", path, types[i].type, shown), 0);
    check_code(shell("test \"$($T get -d %s -c %s k --raw | od -x)\" = \"$($T get -d %s -c %s again --raw | od -x)\"", path, types[i].type,
                     path, types[i].type),
               0);
  }
  check_usage(turb("put -d %s -c u8 k 0,0,0,255.5", path), "component 3");
  check_usage(turb("put -d %s -c f16 k 0,0,65520,0", path), "component 2");
  check_code(turb("create -d %s bits -D 10 -t bits", path), 0);
  check_code(turb("put -d %s -c bits k 1,0,0,0,0,0,0,0,1,1", path), 0);
  CHECK_STR_EQ(json_value(turb("get -d %s -c bits k -j", path)->out, "vector"), "\"0x0103\"");
  check_code(turb("put -d %s -c bits k 0x0102", path), 0);
  check_usage(turb("put -d %s -c bits k 1,0,0,0,0,0,0,0,1,2", path), "component 9");
  check_usage(turb("get -d %s k", path), "several collections");
}

TEST(turb, delete_by_key_range_and_prefix) {
  const char *db = make_database();
  check_code(turb("delete -d %s apple none", db), 0);
  check_code(turb("get -d %s apple", db), 1);
  for (int i = 0; i < 6; i++) {
    check_code(turb("put -d %s -n %d 1,2,3", db, i), 0);
  }
  check_code(turb("delete -d %s -n --range 1 3", db), 0);
  check_code(turb("delete -d %s --prefix ban", db), 0);
  check_code(turb("delete -d %s --prefix 0x00ff", db), 0);
  CHECK_STR_EQ(turb("scan -d %s -n -k", db)->out, "0\n3\n4\n5\n");
}

TEST(turb, scan) {
  const char *db = make_database();
  const struct run *run = turb("scan -d %s", db);
  check_code(run, 0);
  CHECK_STR_EQ(run->out, "0x00ff\t[4, 5, 6]\t\napple\t[1, 2.5, -3]\tred\nbanana\t[1, 2, 0.1]\t{\"colour\": \"yellow\"}\n");
  run = turb("scan -d %s --json", db);
  check_code(run, 0);
  CHECK_EQ(check_json_lines(run->out), 3);
  CHECK_STR_EQ(turb("scan -d %s -k -r", db)->out, "banana\napple\n0x00ff\n");
  CHECK_STR_EQ(turb("scan -d %s -k --from apple", db)->out, "apple\nbanana\n");
  CHECK_STR_EQ(turb("scan -d %s -k --to banana --limit 1", db)->out, "0x00ff\n");
  CHECK_STR_EQ(turb("scan -d %s -k -p ap", db)->out, "apple\n");
  CHECK_STR_EQ(turb("scan -d %s --count", db)->out, "3\n");
  CHECK_STR_EQ(turb("scan -d %s --count -j", db)->out, "{\"count\":3}\n");
}

TEST(turb, keys_that_are_no_text_come_back_as_they_are_shown) {
  const char *db = make_database();
  check_code(shell("$T put -d %s \"$(printf 'tab\\there')\" 1,2,3 && $T put -d %s \"$(printf 'bad\\377utf')\" 1,2,3", db, db), 0);
  check_code(turb("put -d %s 'gr\xc3\xbc\xc3\x9f \"dich\"' 1,2,3 -a 'a\\b'", db), 0);
  check_code(turb("put -d %s 0x3078 1,2,3", db), 0); /* "0x" as text would be taken for hexadecimal */
  const struct run *run = turb("scan -d %s -j -k", db);
  check_code(run, 0);
  CHECK_EQ(check_json_lines(run->out), 7);
  check_says(run->out, "\"key\":\"0x7461620968657265\"");
  check_says(run->out, "\"key\":\"0x626164ff757466\"");
  check_says(run->out, "\"key\":\"gr\xc3\xbc\xc3\x9f \\\"dich\\\"\"");
  check_says(run->out, "\"key\":\"0x3078\"");
  check_code(turb("get -d %s 0x7461620968657265 0x626164ff757466 0x3078", db), 0);
}

TEST(turb, search) {
  const char *db = make_database();
  const struct run *run = turb("search -d %s 1,2,0 -k 2 -j", db);
  check_code(run, 0);
  CHECK_EQ(check_json_lines(run->out), 2);
  check_says(run->out, "{\"rank\":1,\"distance\":0.0100000");
  check_says(run->out, "\"key\":\"banana\"");
  run = turb("search -d %s --key apple -k 1 --vectors -j --costs", db);
  check_code(run, 0);
  CHECK_EQ(check_json_lines(run->out), 2);
  CHECK_STR_EQ(json_value(run->out, "distance"), "0");
  CHECK_STR_EQ(json_value(run->out, "vector"), "[1,2.5,-3]");
  run = turb("search -d %s 1,2,0 --radius 1 -j", db);
  CHECK_EQ(check_json_lines(run->out), 1);
  run = turb("search -d %s 1,2,0 --prefix a -j", db);
  CHECK_EQ(check_json_lines(run->out), 1);
  check_says(run->out, "apple");
  run = turb("search -d %s 1,2,0", db);
  check_code(run, 0);
  check_says(run->out, "banana");
  check_code(turb("search -d %s --key none", db), 1);
}

/* ---- collections and care ---- */

TEST(turb, collections) {
  const char *db = make_database();
  check_code(turb("create -d %s c -D 3", db), 1);
  check_code(turb("create -d %s other -D 16 -t i8 --metric cosine --compression zstd --level 5", db), 0);
  const struct run *run = turb("collections -d %s -j", db);
  check_code(run, 0);
  CHECK_EQ(check_json_lines(run->out), 2);
  check_says(run->out, "\"name\":\"other\"");
  check_says(run->out, "\"dimension\":16,\"type\":\"i8\",\"metric\":\"cosine\"");
  check_says(run->out, "\"compression\":\"zstd\"");
  check_says(turb("collections -d %s", db)->out, "cosine");
  check_code(turb("drop -d %s other", db), 0);
  check_code(turb("drop -d %s other", db), 1);
  CHECK_EQ(check_json_lines(turb("collections -d %s -j", db)->out), 1);
}

TEST(turb, set_tunes_a_collection) {
  const char *db = make_database();
  CHECK_STR_EQ(json_value(turb("collections -d %s -j", db)->out, "policy"), "\"lazy\"");
  check_usage(turb("set -d %s c", db), "no option");
  check_code(turb("set -d %s nothing --size-ratio 3", db), 1);
  const struct run *run = turb("set -d %s c --policy fifo --max-bytes 1G --ttl 3600 --size-ratio 4 -j", db);
  check_code(run, 0);
  CHECK_EQ(check_json_lines(run->out), 1);
  check_code(turb("set -d %s c --ttl 0", db), 0); /* the rest stays */
  run = turb("collections -d %s -j", db);
  CHECK_STR_EQ(json_value(run->out, "policy"), "\"fifo\"");
  CHECK_STR_EQ(json_value(run->out, "fifo_max_bytes"), "1073741824");
  CHECK_STR_EQ(json_value(run->out, "ttl_s"), "0");
  CHECK_STR_EQ(json_value(run->out, "size_ratio"), "4");
  check_usage(turb("set -d %s c --max-bytes 0", db), "needs one of them");
  check_code(turb("set -d %s c --policy levelled", db), 0);
  run = turb("collections -d %s -j", db);
  CHECK_STR_EQ(json_value(run->out, "policy"), "\"levelled\"");
  CHECK_STR_EQ(json_value(run->out, "fifo_max_bytes"), "0");
  CHECK_STR_EQ(json_value(run->out, "size_ratio"), "4");
  check_says(turb("collections -d %s", db)->out, "levelled");
  check_code(turb("create -d %s events -D 3 --policy fifo --ttl 60", db), 0);
  check_says(turb("collections -d %s -j", db)->out, "\"policy\":\"fifo\"");
  check_says(turb("stats -d %s -j", db)->out, "\"runs_dropped\":0");
}

TEST(turb, flush_compact_runs_stats_verify_checkpoint) {
  const char *db = make_database();
  const struct run *run = turb("flush -d %s -j", db);
  check_code(run, 0);
  CHECK_EQ(check_json_lines(run->out), 1);
  check_code(turb("put -d %s cherry 0,0,0", db), 0);
  check_code(turb("flush -d %s", db), 0);
  run = turb("compact -d %s --json", db);
  check_code(run, 0);
  CHECK_STR_EQ(json_value(run->out, "runs"), "1");
  run = turb("runs -d %s -j", db);
  check_code(run, 0);
  CHECK_EQ(check_json_lines(run->out), 1);
  CHECK_STR_EQ(json_value(run->out, "entries"), "4");
  check_says(turb("runs -d %s", db)->out, "ENTRIES");
  run = turb("stats -d %s -j", db);
  check_code(run, 0);
  CHECK_EQ(check_json_lines(run->out), 1);
  CHECK_STR_EQ(json_value(run->out, "runs"), "1");
  CHECK_STR_EQ(json_value(run->out, "read_only"), "true");
  check_says(turb("stats -d %s --backend blocking", db)->out, "blocking");
  run = turb("verify -d %s -j", db);
  check_code(run, 0);
  CHECK_EQ(check_json_lines(run->out), 1);
  CHECK_STR_EQ(json_value(run->out, "problems"), "0");
  check_code(turb("checkpoint -d %s %s-copy", db, db), 0);
  check_code(turb("checkpoint -d %s %s-copy", db, db), 1);
  CHECK_STR_EQ(turb("scan -d %s-copy --count", db)->out, "4\n");
}

/* The path of a file of the database with this ending, in a static buffer. */
static const char *find_file(const char *db, const char *ending) {
  static char path[8192];
  DIR *folder = opendir(db);
  CHECK(folder != NULL);
  path[0] = '\0';
  for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
    const size_t size = strlen(entry->d_name);
    if (size >= strlen(ending) && strcmp(entry->d_name + size - strlen(ending), ending) == 0) {
      (void)snprintf(path, sizeof path, "%s/%s", db, entry->d_name);
    }
  }
  (void)closedir(folder);
  CHECK_MSG(path[0] != '\0', "no file %s in %s", ending, db);
  return path;
}

static void flip_byte(const char *path, off_t offset) {
  const int fd = open(path, O_RDWR);
  CHECK(fd >= 0);
  uint8_t byte = 0;
  CHECK_EQ(pread(fd, &byte, 1, offset), 1);
  byte ^= 0x40;
  CHECK_EQ(pwrite(fd, &byte, 1, offset), 1);
  CHECK_EQ(close(fd), 0);
}

TEST(turb, corruption_is_3_and_names_the_file) {
  const char *db = make_database();
  check_code(turb("compact -d %s", db), 0);
  const char *table = find_file(db, ".tbl");
  flip_byte(table, 4096 + 4); /* the first vector */
  const struct run *run = turb("verify -d %s -j", db);
  check_code(run, 3);
  CHECK_GE(check_json_lines(run->out), 2);
  check_says(run->out, strrchr(table, '/') + 1);
  check_says(run->out, "\"problem\":");
  run = turb("get -d %s 0x00ff", db);
  check_code(run, 3);
  check_says(run->err, strrchr(table, '/') + 1);
  check_code(turb("scan -d %s", db), 3);
  flip_byte(table, 4096 + 4);
  check_code(turb("verify -d %s", db), 0);
  flip_byte(find_file(db, "MANIFEST"), 20);
  run = turb("scan -d %s", db);
  check_code(run, 3);
  check_says(run->err, "MANIFEST");
}

TEST(turb, dump) {
  const char *db = make_database();
  check_code(turb("compact -d %s", db), 0);
  static const char *const endings[] = {".tbl", ".tlog", "MANIFEST"};
  for (size_t i = 0; i < 3; i++) {
    const char *file = find_file(db, endings[i]);
    const struct run *run = turb("dump %s", file);
    check_code(run, 0);
    CHECK(run->out[0] != '\0');
    run = turb("dump -j %s", file);
    check_code(run, 0);
    CHECK_GE(check_json_lines(run->out), 1);
  }
  const struct run *run = turb("dump %s", test_path(test_tmpdir(), "none"));
  check_code(run, 1);
  check_says(run->err, "none");
  const char *manifest = find_file(db, "MANIFEST");
  flip_byte(manifest, 33);
  run = turb("dump %s", manifest);
  check_code(run, 3);
  check_says(run->err, "MANIFEST");
}

TEST(turb, folders_that_are_no_database) {
  const char *folder = test_tmpdir();
  const struct run *run = turb("scan -d %s/none", folder);
  check_code(run, 1);
  check_says(run->err, "none");
  CHECK_MSG(access(test_path(folder, "none"), F_OK) != 0, "a reading command made a folder");
  check_code(turb("put -d %s/none k 1,2,3", folder), 1);
  check_code(turb("scan -d %s", folder), 1);
}

/* ---- import ---- */

static void write_npy(const char *path, unsigned rows, unsigned dimension) {
  FILE *file = fopen(path, "wb");
  CHECK(file != NULL);
  char header[119];
  memset(header, ' ', sizeof header);
  const int size = snprintf(header, sizeof header, "{'descr': '<f4', 'fortran_order': False, 'shape': (%u, %u), }", rows, dimension);
  header[size] = ' ';
  header[117] = '\n';
  CHECK_EQ(fwrite("\x93NUMPY\x01\x00\x76\x00", 1, 10, file), 10);
  CHECK_EQ(fwrite(header, 1, 118, file), 118);
  for (unsigned i = 0; i < rows * dimension; i++) {
    const float value = (float)i;
    CHECK_EQ(fwrite(&value, sizeof value, 1, file), 1);
  }
  CHECK_EQ(fclose(file), 0);
}

TEST(turb, import) {
  const char *folder = test_tmpdir();
  char path[4096];
  (void)snprintf(path, sizeof path, "%s/rows.npy", folder);
  write_npy(path, 500, 3);
  const struct run *run = turb("import --describe %s -j", path);
  check_code(run, 0);
  CHECK_EQ(check_json_lines(run->out), 1);
  CHECK_STR_EQ(json_value(run->out, "rows"), "500");
  run = turb("import -d %s/db -c rows --create %s %s -j", folder, path, path);
  check_code(run, 0);
  CHECK_EQ(check_json_lines(run->out), 2);
  CHECK_STR_EQ(run->err, "");
  CHECK_STR_EQ(turb("scan -d %s/db --count", folder)->out, "1000\n");
  run = turb("get -d %s/db -n 501 -j", folder);
  CHECK_STR_EQ(json_value(run->out, "vector"), "[3,4,5]");
  CHECK_STR_EQ(json_value(run->out, "key"), "501");
  check_code(turb("import -d %s/db %s --first-row 400 --rows 101", folder, path), 1);
  check_code(turb("import -d %s/db --labels %s %s", folder, path, path), 1);
  check_code(turb("create -d %s/db narrow -D 3 -t u8", folder), 0);
  run = turb("import -d %s/db -c narrow %s --batch-rows 10", folder, path);
  check_code(run, 1);
  check_says(run->err, "row 85: component 1 is 256, which u8 cannot hold");
  check_says(run->err, "80 rows were written before");
  CHECK_EQ(truncate(path, 1000), 0);
  run = turb("import -d %s/db -c rows %s", folder, path);
  check_code(run, 3);
  check_says(run->err, path);
}

TEST(turb, progress_only_on_a_terminal) {
  const char *folder = test_tmpdir();
  char path[4096];
  (void)snprintf(path, sizeof path, "%s/rows.npy", folder);
  write_npy(path, 2000, 3);
  CHECK_STR_EQ(turb("import -d %s/db -c rows --create %s", folder, path)->err, "");
  use_terminal(true);
  const struct run *run = turb("import -d %s/db -c rows %s --batch-rows 10", folder, path);
  check_code(run, 0);
  check_says(run->err, "import [");
  check_says(run->err, "/ 2,000 rows");
  check_says(run->err, "left");
  CHECK_STR_EQ(turb("import -d %s/db -c rows %s --quiet", folder, path)->err, "");
  use_terminal(false);
}

/* ---- pipes ---- */

TEST(turb, a_reader_that_goes_away_is_no_failure) {
  const char *folder = test_tmpdir();
  char path[4096];
  (void)snprintf(path, sizeof path, "%s/rows.npy", folder);
  write_npy(path, 20000, 3);
  check_code(turb("import -d %s/db -c rows --create %s", folder, path), 0);
  const struct run *run = shell("{ $T scan -d %s/db -j; echo code $? >&2; } | head -n 1", folder);
  check_code(run, 0);
  CHECK_EQ(check_json_lines(run->out), 1);
  CHECK_STR_EQ(run->err, "code 0\n");
  run = shell("$T scan -d %s/db >/dev/full", folder);
  check_code(run, 1);
  check_says(run->err, "standard output");
  run = shell("$T --help >/dev/full");
  check_code(run, 1);
  check_code(turb("put -d %s/db k 1,2,3", folder), 0); /* the database was closed as always */
}

TEST(turb, one_writer_many_readers) {
  const char *db = make_database();
  /* A reader that waits for its reader holds the shared lock meanwhile. */
  const struct run *run = shell("$T scan -d %s -k | { sleep 0.3; $T scan -d %s --count; cat >/dev/null; }", db, db);
  check_code(run, 0);
  CHECK_STR_EQ(run->out, "3\n");
  run = turb("put -d %s k 1,2,3 --read-only", db);
  check_code(run, 1);
}
