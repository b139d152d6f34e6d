/*
 * The demonstration behind `make demo`: Fashion-MNIST through the whole engine, checked against a brute force of its own.
 *
 *   1. Imports the 60,000 training images (784 x u8) with their labels as attributes, over several flushes.
 *   2. Changes the collection: deletes rows one by one and as a range, puts their images back under new keys, and swaps
 *      the images of other rows. What should be there is kept beside, in plain arrays.
 *   3. Compares a share of the answers while the tree has many runs; compacts; reopens.
 *   4. Compares every row, and the answers to all 10,000 test images (k = 10, exact), with the arrays; classifies.
 *   5. Has every byte of the files verified.
 *
 * The brute force shares nothing with the library: own reading of the files, 16-bit integer loops, and the
 * library's contract for answers: nearest first by the distance as a float, ties by key.
 *
 * Usage: fashion_demo FOLDER-OF-THE-DATA-SET NEW-DATABASE. The last line of standard output is one JSON object.
 */
#include <endian.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <turbidite/turbidite.h>
#include <zlib.h>

enum {
  ROWS = 60000,
  QUERIES = 10000,
  DIMENSION = 784,
  K = 10,
  CLASSES = 10,
  THREADS = 2,
  SAMPLE = 500,        /* queries compared while there are many runs */
  SEARCH_BATCH = 500,  /* queries a call */
  BLOCK = 32,          /* queries that the brute force holds in the cache */
  LANES = 4,           /* of them against one row at once */
  DELETE_EVERY = 50,   /* these rows are deleted one by one */
  RANGE_BEGIN = 58000, /* and these as a range */
  RANGE_END = 59000,
  SWAP_EVERY = 7, /* the images of rows n and n + 1 are swapped */
};

/* One row that should be there. */
struct item {
  uint64_t key;
  uint32_t image;
};

struct answer {
  float distance[K];
  uint64_t key[K];
};

struct demo {
  const char *data;
  const char *path;
  turb_db *db;
  turb_collection *images;
  uint8_t *train, *train_labels, *test, *test_labels;
  struct item *items; /* ROWS of them, by key */
  int16_t *wide_rows; /* the items' images, in their order */
  int16_t *wide_queries;
  struct answer *truth;
  struct answer *found;
  uint8_t *guesses;
  double import_seconds, search_seconds;
  uint64_t rows; /* counted by a scan of the reopened database */
};

static double now(void) {
  struct timespec time;
  (void)clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

__attribute__((format(printf, 1, 2), noreturn)) static void give_up(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  (void)fprintf(stderr, "demo: ");
  (void)vfprintf(stderr, format, arguments);
  (void)fprintf(stderr, "\n");
  va_end(arguments);
  (void)printf("{\"demo\":\"failed\"}\n");
  exit(1);
}

static void must(turb_status status, const turb_error *err) {
  if (status != TURB_OK) {
    give_up("%s: %s", turb_status_name(status), err->message);
  }
}

static void *take(size_t size) {
  void *memory = aligned_alloc(64, (size + 63) & ~(size_t)63);
  if (memory == NULL) {
    give_up("out of memory");
  }
  return memory;
}

/* ---- the data set ---- */

static void file_path(const struct demo *demo, const char *name, char path[4096]) {
  if (snprintf(path, 4096, "%s/%s", demo->data, name) >= 4096) {
    give_up("%s: too long", demo->data);
  }
}

/* The bytes behind an idx header of `header` bytes. */
static uint8_t *read_data(const struct demo *demo, const char *name, unsigned header, size_t size) {
  char path[4096];
  uint8_t skipped[16];
  file_path(demo, name, path);
  gzFile file = gzopen(path, "rb");
  uint8_t *bytes = take(size);
  if (file == NULL || gzread(file, skipped, header) != (int)header || gzread(file, bytes, (unsigned)size) != (int)size) {
    give_up("%s: cannot be read", path);
  }
  (void)gzclose(file);
  return bytes;
}

static void read_data_set(struct demo *demo) {
  demo->train = read_data(demo, "train-images-idx3-ubyte.gz", 16, (size_t)ROWS * DIMENSION);
  demo->train_labels = read_data(demo, "train-labels-idx1-ubyte.gz", 8, ROWS);
  demo->test = read_data(demo, "t10k-images-idx3-ubyte.gz", 16, (size_t)QUERIES * DIMENSION);
  demo->test_labels = read_data(demo, "t10k-labels-idx1-ubyte.gz", 8, QUERIES);
}

/* ---- the database ---- */

static void open_database(struct demo *demo) {
  turb_options options = TURB_OPTIONS_INIT;
  options.memory_budget_bytes = 256u << 20;
  options.memtable_bytes = 8u << 20; /* small, so that there are several flushes */
  turb_error err = TURB_ERROR_INIT;
  must(turb_open(demo->path, &options, &demo->db, &err), &err);
}

static void import(struct demo *demo) {
  turb_error err = TURB_ERROR_INIT;
  turb_collection_options collection = TURB_COLLECTION_OPTIONS_INIT;
  collection.dimension = DIMENSION;
  collection.type = TURB_U8;
  must(turb_collection_create(demo->db, "fashion", &collection, &demo->images, &err), &err);
  char images[4096], labels[4096];
  file_path(demo, "train-images-idx3-ubyte.gz", images);
  file_path(demo, "train-labels-idx1-ubyte.gz", labels);
  turb_import_options options = TURB_IMPORT_OPTIONS_INIT;
  options.labels_path = labels;
  uint64_t rows = 0;
  const double start = now();
  must(turb_import(demo->images, images, &options, &rows, &err), &err);
  demo->import_seconds = now() - start;
  if (rows != ROWS) {
    give_up("%llu rows were imported", (unsigned long long)rows);
  }
  (void)printf("imported %d images in %.2f s\n", ROWS, demo->import_seconds);
}

static void put(struct demo *demo, turb_batch *batch, uint64_t key, uint32_t image) {
  const uint64_t big = htobe64(key);
  const char label = (char)('0' + demo->train_labels[image]);
  turb_error err = TURB_ERROR_INIT;
  must(turb_batch_put(batch, demo->images, (turb_bytes){&big, sizeof big}, (turb_bytes){demo->train + (size_t)image * DIMENSION, DIMENSION},
                      (turb_bytes){&label, 1}, &err),
       &err);
}

static int by_key(const void *a, const void *b) {
  const struct item *x = a;
  const struct item *y = b;
  return (x->key > y->key) - (x->key < y->key);
}

/* Step 2, in the database and in the items alike. */
static void change(struct demo *demo) {
  turb_error err = TURB_ERROR_INIT;
  turb_batch *batch = NULL;
  must(turb_batch_create(demo->db, &batch, &err), &err);
  const uint64_t begin = htobe64(RANGE_BEGIN), end = htobe64(RANGE_END);
  must(turb_batch_delete_range(batch, demo->images, (turb_bytes){&begin, sizeof begin}, (turb_bytes){&end, sizeof end}, &err), &err);
  unsigned deleted = RANGE_END - RANGE_BEGIN, swapped = 0;
  for (uint32_t row = 0; row < ROWS; row++) {
    demo->items[row] = (struct item){row, row};
    const bool in_range = row >= RANGE_BEGIN && row < RANGE_END;
    if (in_range || row % DELETE_EVERY == 0) {
      const uint64_t big = htobe64((uint64_t)row);
      if (!in_range) {
        must(turb_batch_delete(batch, demo->images, (turb_bytes){&big, sizeof big}, &err), &err);
        deleted++;
      }
      demo->items[row].key = ROWS + (uint64_t)row;
      put(demo, batch, demo->items[row].key, row);
    }
  }
  for (uint32_t row = 0; row + 1 < ROWS; row += SWAP_EVERY) {
    struct item *pair = demo->items + row;
    pair[0].image = row + 1;
    pair[1].image = row;
    put(demo, batch, pair[0].key, pair[0].image);
    put(demo, batch, pair[1].key, pair[1].image);
    swapped += 2;
  }
  must(turb_write(demo->db, batch, NULL, &err), &err);
  turb_batch_free(batch);
  qsort(demo->items, ROWS, sizeof *demo->items, by_key);
  (void)printf("deleted %u rows (%d of them as a range) and put them back under new keys, swapped the images of %u rows\n", deleted,
               RANGE_END - RANGE_BEGIN, swapped);
}

static bool print_run(void *context, const turb_run_info *run) {
  const unsigned number = ++*(unsigned *)context;
  (void)printf("  run %u: %u tables, %llu entries, %.1f MiB\n", number, run->tables, (unsigned long long)run->entries,
               (double)run->bytes / 1048576);
  return true;
}

static void show_tree(struct demo *demo, const char *when) {
  turb_error err = TURB_ERROR_INIT;
  turb_stats stats = {.size = sizeof stats};
  unsigned runs = 0;
  (void)printf("the tree %s:\n", when);
  must(turb_list_runs(demo->images, print_run, &runs, &err), &err);
  must(turb_get_stats(demo->db, &stats, &err), &err);
  const double user = (double)stats.user_bytes_written;
  if (stats.user_bytes_written != 0) {
    const double tables = (double)(stats.flush_bytes_written + stats.merge_bytes_written);
    (void)printf("  %u runs, %.1f MiB on disk; written per user byte: %.2f to tables, %.2f to the log; %llu flushes, %llu merges\n", runs,
                 (double)stats.disk_bytes / 1048576, tables / user, (double)stats.log_bytes_written / user,
                 (unsigned long long)stats.flushes, (unsigned long long)stats.merges);
  }
}

static void compact_and_reopen(struct demo *demo) {
  turb_error err = TURB_ERROR_INIT;
  const double start = now();
  must(turb_compact(demo->db, demo->images, &err), &err);
  (void)printf("compacted in %.2f s\n", now() - start);
  show_tree(demo, "after the compaction");
  must(turb_close(demo->db, &err), &err);
  const double reopen = now();
  open_database(demo);
  must(turb_collection_open(demo->db, "fashion", &demo->images, &err), &err);
  (void)printf("reopened in %.3f s\n", now() - reopen);
}

/* Every row in order: key, vector, label. */
static void check_rows(struct demo *demo) {
  turb_error err = TURB_ERROR_INIT;
  turb_iterator_options options = TURB_ITERATOR_OPTIONS_INIT;
  options.streaming = true;
  turb_iterator *iterator = NULL;
  must(turb_iterator_open(demo->images, &options, &iterator, &err), &err);
  turb_state state = turb_finish(iterator, turb_first(iterator));
  for (; state == TURB_READY; state = turb_next(iterator)) {
    const turb_entry *entry = iterator->entry;
    if (demo->rows == ROWS) {
      give_up("the database has more rows than it should");
    }
    const struct item *item = demo->items + demo->rows++;
    const uint64_t key = htobe64(item->key);
    const char label = (char)('0' + demo->train_labels[item->image]);
    if (entry->key.size != sizeof key || memcmp(entry->key.data, &key, sizeof key) != 0 || entry->vector.size != DIMENSION ||
        memcmp(entry->vector.data, demo->train + (size_t)item->image * DIMENSION, DIMENSION) != 0 || entry->attributes.size != 1 ||
        *(const char *)entry->attributes.data != label) {
      give_up("row %llu is not what it should be", (unsigned long long)item->key);
    }
  }
  if (state == TURB_FAILED) {
    must(turb_iterator_status(iterator, &err), &err);
  }
  turb_iterator_close(iterator);
}

static void verify(struct demo *demo) {
  turb_error err = TURB_ERROR_INIT;
  turb_verify_report report = {.size = sizeof report};
  const double start = now();
  must(turb_verify(demo->db, NULL, NULL, &report, &err), &err);
  (void)printf("verified %llu files, %.1f MiB, in %.2f s\n", (unsigned long long)report.files, (double)report.bytes / 1048576,
               now() - start);
}

/* ---- the brute force ---- */

struct share { /* of the queries, for one thread */
  struct demo *demo;
  unsigned first, end;
};

/* Runs work over [0, queries) on THREADS threads, in shares of whole blocks. */
static void in_parallel(struct demo *demo, unsigned queries, void *(*work)(void *)) {
  pthread_t threads[THREADS];
  struct share shares[THREADS];
  const unsigned each = (queries / THREADS + BLOCK - 1) / BLOCK * BLOCK;
  for (unsigned i = 0; i < THREADS; i++) {
    const unsigned first = i * each < queries ? i * each : queries;
    shares[i] = (struct share){demo, first, i + 1 == THREADS || first + each > queries ? queries : first + each};
    if (pthread_create(&threads[i], NULL, work, &shares[i]) != 0) {
      give_up("no thread");
    }
  }
  for (unsigned i = 0; i < THREADS; i++) {
    (void)pthread_join(threads[i], NULL);
  }
}

#if defined(__x86_64__) && defined(__gnu_linux__)
__attribute__((target_clones("arch=skylake-avx512", "avx2", "default")))
#endif
static void
squared_distances(const int16_t *restrict row, const int16_t *restrict queries, int32_t *restrict distances) {
  int32_t a = 0, b = 0, c = 0, d = 0;
  for (unsigned i = 0; i < DIMENSION; i++) {
    const int16_t of_a = (int16_t)(row[i] - queries[i]);
    const int16_t of_b = (int16_t)(row[i] - queries[DIMENSION + i]);
    const int16_t of_c = (int16_t)(row[i] - queries[2 * DIMENSION + i]);
    const int16_t of_d = (int16_t)(row[i] - queries[3 * DIMENSION + i]);
    a += of_a * of_a;
    b += of_b * of_b;
    c += of_c * of_c;
    d += of_d * of_d;
  }
  distances[0] = a;
  distances[1] = b;
  distances[2] = c;
  distances[3] = d;
}

/* Rows come by rising key, so that of equal distances the first one stays. */
static void keep(struct answer *answer, unsigned *count, float distance, uint64_t key) {
  if (*count == K && !(distance < answer->distance[K - 1])) {
    return;
  }
  unsigned at = *count < K ? (*count)++ : K - 1;
  for (; at != 0 && distance < answer->distance[at - 1]; at--) {
    answer->distance[at] = answer->distance[at - 1];
    answer->key[at] = answer->key[at - 1];
  }
  answer->distance[at] = distance;
  answer->key[at] = key;
}

static void *brute_force_share(void *context) {
  const struct share *share = context;
  struct demo *demo = share->demo;
  for (unsigned block = share->first; block < share->end; block += BLOCK) {
    unsigned counts[BLOCK] = {0};
    const unsigned size = share->end - block < BLOCK ? share->end - block : BLOCK;
    for (unsigned row = 0; row < ROWS; row++) {
      for (unsigned i = 0; i < size; i += LANES) {
        int32_t distances[LANES];
        squared_distances(demo->wide_rows + (size_t)row * DIMENSION, demo->wide_queries + (size_t)(block + i) * DIMENSION, distances);
        for (unsigned j = 0; j < LANES; j++) {
          keep(demo->truth + block + i + j, counts + i + j, (float)distances[j], demo->items[row].key);
        }
      }
    }
  }
  return NULL;
}

static void widen(const uint8_t *from, int16_t *to) {
  for (unsigned i = 0; i < DIMENSION; i++) {
    to[i] = from[i];
  }
}

static void brute_force(struct demo *demo) {
  const double start = now();
  for (unsigned i = 0; i < ROWS; i++) {
    widen(demo->train + (size_t)demo->items[i].image * DIMENSION, demo->wide_rows + (size_t)i * DIMENSION);
  }
  for (unsigned i = 0; i < QUERIES; i++) {
    widen(demo->test + (size_t)i * DIMENSION, demo->wide_queries + (size_t)i * DIMENSION);
  }
  in_parallel(demo, QUERIES, brute_force_share);
  (void)printf("brute force over the arrays: %.2f s\n", now() - start);
}

/* ---- search ---- */

/* The label that most neighbours have; of equally many, the one whose neighbour is nearest. */
static uint8_t classify(const turb_result *result) {
  unsigned votes[CLASSES] = {0};
  uint8_t best = 0;
  bool any = false;
  for (size_t i = 0; i < turb_result_count(result); i++) {
    const turb_bytes label = turb_result_hit(result, i)->attributes;
    if (label.size == 1 && *(const char *)label.data >= '0' && *(const char *)label.data <= '9') {
      votes[*(const char *)label.data - '0']++;
    }
  }
  for (size_t i = 0; i < turb_result_count(result); i++) {
    const turb_bytes text = turb_result_hit(result, i)->attributes;
    if (text.size == 1 && *(const char *)text.data >= '0' && *(const char *)text.data <= '9') {
      const uint8_t label = (uint8_t)(*(const char *)text.data - '0');
      if (!any || votes[label] > votes[best]) {
        best = label;
        any = true;
      }
    }
  }
  return best;
}

static void take_answer(struct demo *demo, unsigned query, const turb_result *result) {
  struct answer *answer = demo->found + query;
  memset(answer, 0xff, sizeof *answer); /* what is missing agrees with nothing */
  for (size_t i = 0; i < turb_result_count(result) && i < K; i++) {
    const turb_hit *hit = turb_result_hit(result, i);
    uint64_t key = UINT64_MAX;
    if (hit->key.size == sizeof key) {
      memcpy(&key, hit->key.data, sizeof key);
      key = be64toh(key);
    }
    answer->key[i] = key;
    answer->distance[i] = hit->distance;
  }
  demo->guesses[query] = classify(result);
}

static void *search_share(void *context) {
  const struct share *share = context;
  struct demo *demo = share->demo;
  turb_result *results[SEARCH_BATCH];
  for (unsigned first = share->first; first < share->end; first += SEARCH_BATCH) {
    const unsigned count = share->end - first < SEARCH_BATCH ? share->end - first : SEARCH_BATCH;
    turb_search_options options = TURB_SEARCH_OPTIONS_INIT;
    options.k = K;
    options.mode = TURB_SEARCH_EXACT;
    options.parts = TURB_KEY | TURB_ATTRIBUTES;
    turb_error err = TURB_ERROR_INIT;
    must(turb_search_batch(demo->images, count, demo->test + (size_t)first * DIMENSION, &options, results, &err), &err);
    for (unsigned i = 0; i < count; i++) {
      take_answer(demo, first + i, results[i]);
      turb_result_free(results[i]);
    }
  }
  return NULL;
}

/* Key by key and distance by distance. */
static bool same_answer(const struct answer *a, const struct answer *b) {
  for (unsigned i = 0; i < K; i++) {
    if (a->key[i] != b->key[i] || !(a->distance[i] == b->distance[i])) {
      return false;
    }
  }
  return true;
}

/* How many of the first `queries` answers are the truth. */
static unsigned agreeing(const struct demo *demo, unsigned queries) {
  unsigned count = 0;
  for (unsigned i = 0; i < queries; i++) {
    count += same_answer(&demo->found[i], &demo->truth[i]);
  }
  return count;
}

static void search_sample(struct demo *demo) {
  in_parallel(demo, SAMPLE, search_share);
  (void)printf("%u of %d answers agree while the tree has many runs\n", agreeing(demo, SAMPLE), SAMPLE);
  if (agreeing(demo, SAMPLE) != SAMPLE) {
    give_up("answers are wrong before the compaction");
  }
}

static void search_all(struct demo *demo) {
  const double start = now();
  in_parallel(demo, QUERIES, search_share);
  demo->search_seconds = now() - start;
  (void)printf("searched %d images exactly (k = %d, %d threads) in %.2f s\n", QUERIES, K, THREADS, demo->search_seconds);
}

static int report(const struct demo *demo) {
  unsigned right = 0;
  for (unsigned i = 0; i < QUERIES; i++) {
    right += demo->guesses[i] == demo->test_labels[i];
  }
  const unsigned agree = agreeing(demo, QUERIES);
  const bool good = agree == QUERIES && demo->rows == ROWS;
  (void)printf("%u of %d answers agree with the brute force; %u images are classified rightly\n", agree, QUERIES, right);
  (void)printf("{\"demo\":\"%s\",\"rows\":%llu,\"queries\":%d,\"exact_agreement\":%.*f,\"accuracy\":%.4f,\"import_rows_per_s\":%.0f,"
               "\"queries_per_s\":%.0f}\n",
               good ? "ok" : "failed", (unsigned long long)demo->rows, QUERIES, agree == QUERIES ? 1 : 6, (double)agree / QUERIES,
               (double)right / QUERIES, ROWS / demo->import_seconds, QUERIES / demo->search_seconds);
  return good ? 0 : 1;
}

int main(int count, char **arguments) {
  static struct demo demo;
  if (count != 3) {
    (void)fprintf(stderr, "usage: %s FOLDER-OF-THE-DATA-SET NEW-DATABASE\n", arguments[0]);
    return 2;
  }
  (void)setvbuf(stdout, NULL, _IOLBF, 0);
  demo.data = arguments[1];
  demo.path = arguments[2];
  demo.items = take(ROWS * sizeof *demo.items);
  demo.wide_rows = take((size_t)ROWS * DIMENSION * sizeof(int16_t));
  demo.wide_queries = take((size_t)QUERIES * DIMENSION * sizeof(int16_t));
  demo.truth = take(QUERIES * sizeof *demo.truth);
  demo.found = take(QUERIES * sizeof *demo.found);
  demo.guesses = take(QUERIES);
  memset(demo.truth, 0, QUERIES * sizeof *demo.truth);
  read_data_set(&demo);
  open_database(&demo);
  import(&demo);
  change(&demo);
  show_tree(&demo, "before the compaction");
  brute_force(&demo);
  search_sample(&demo);
  compact_and_reopen(&demo);
  check_rows(&demo);
  search_all(&demo);
  verify(&demo);
  turb_error err = TURB_ERROR_INIT;
  must(turb_close(demo.db, &err), &err);
  return report(&demo);
}
