/* Edits and the catalog: encoding there and back, what is refused and changes nothing, atomicity without memory, size. */
#include "engine/catalog.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/hash.h"
#include "tests/support/allocator.h"
#include "tests/support/test.h"

struct fixture {
  struct test_allocator allocator;
  struct catalog catalog;
  struct version_edit edit;
};

static void fixture_init(struct fixture *fixture) {
  test_allocator_init(&fixture->allocator);
  catalog_init(&fixture->catalog, &fixture->allocator.base);
  edit_init(&fixture->edit, &fixture->allocator.base);
}

static void fixture_free(struct fixture *fixture) {
  edit_free(&fixture->edit);
  catalog_free(&fixture->catalog);
  test_allocator_check_empty(&fixture->allocator);
}

static uint64_t state_hash(const struct catalog *catalog) {
  struct version_edit snapshot;
  edit_init(&snapshot, alloc_default());
  CHECK_OK(catalog_snapshot(catalog, &snapshot, NULL));
  const uint64_t hash = hash64(snapshot.payload.data, snapshot.payload.size, 0);
  edit_free(&snapshot);
  return hash;
}

/* Applies the edit being built and begins the next. */
static void apply(struct fixture *fixture) {
  turb_error err = TURB_ERROR_INIT;
  CHECK_OK_ERR(catalog_apply(&fixture->catalog, &fixture->edit, &err), &err);
  edit_clear(&fixture->edit);
}

/* The edit being built is refused with a message that says `what`, and changes nothing. */
static void refused(struct fixture *fixture, const char *what) {
  const uint64_t before = state_hash(&fixture->catalog);
  turb_error err = TURB_ERROR_INIT;
  CHECK_STATUS_ERR(catalog_apply(&fixture->catalog, &fixture->edit, &err), TURB_INVALID, &err);
  CHECK_MSG(test_contains(err.message, what), "\"%s\" does not say \"%s\"", err.message, what);
  CHECK_EQ(state_hash(&fixture->catalog), before);
  edit_clear(&fixture->edit);
}

static const struct catalog_collection plain = {.dimension = 16, .type = TURB_F32, .metric = TURB_L2, .compression_level = -3};

static struct table_record make_table(uint64_t number, uint64_t collection, const char *lower, const char *upper, uint64_t first,
                                      uint64_t last) {
  return (struct table_record){.file_number = number,
                               .collection_id = collection,
                               .size_bytes = 10000 + number,
                               .tail_offset = 8192,
                               .seed = number * 77,
                               .lower = {lower, strlen(lower)},
                               .upper = {upper, strlen(upper)},
                               .upper_inclusive = true,
                               .entries = 10,
                               .puts = 9,
                               .deletes = 1,
                               .smallest_sequence = first,
                               .largest_sequence = last,
                               .hash_sum = UINT64_MAX - number};
}

static void add_table(struct fixture *fixture, uint64_t number, const char *lower, const char *upper, uint64_t first, uint64_t last) {
  const struct table_record table = make_table(number, 1, lower, upper, first, last);
  edit_add_table(&fixture->edit, &table);
}

/* Collection 1 "one", runs 1 (tables 10, 11; sequences 1 to 20) and 2 (table 12; 21 to 30). */
static void base_state(struct fixture *fixture) {
  edit_add_collection(&fixture->edit, 1, "one", &plain);
  add_table(fixture, 10, "a", "f", 1, 10);
  add_table(fixture, 11, "g", "m", 5, 20);
  add_table(fixture, 12, "b", "z", 21, 30);
  edit_add_run(&fixture->edit, 1, 1, 0, 0, (const uint64_t[]){10, 11}, 2);
  edit_add_run(&fixture->edit, 2, 1, 0, 0, (const uint64_t[]){12}, 1);
  edit_set_flushed(&fixture->edit, 1, 30);
  edit_set_oldest_log(&fixture->edit, 13);
  apply(fixture);
}

TEST(catalog, an_edit_of_everything_is_found_again) {
  struct fixture f;
  fixture_init(&f);
  base_state(&f);
  edit_add_partition(&f.edit, 4, 1, TURB_STR(""), TURB_STR("k"), false, 3);
  edit_add_partition(&f.edit, 5, 1, TURB_STR("k"), TURB_NONE, true, 0);
  edit_add_taken(&f.edit, 12, 4);
  edit_add_codebook(&f.edit, 3, 2, 20, 1);
  const struct catalog_segment_table slots[] = {{.file_number = 10, .clip_lower = TURB_STR("b"), .clip_upper = TURB_STR("e")},
                                                {.file_number = 11, .row_base = 9, .clip_open = true}};
  edit_add_segment(&f.edit, 21, 1, 3, 2, 0, slots, 2);
  edit_set_job(&f.edit, 7, CATALOG_JOB_MERGE, 1, (const uint64_t[]){1, 2}, 2, (const struct catalog_cut[]){{0, 22}, {1, 23}}, 2);
  edit_add_time_mark(&f.edit, 25, 1700000000);
  apply(&f);

  const struct catalog_collection *collection = catalog_collection_named(&f.catalog, "one", 3);
  CHECK(collection != NULL && collection == catalog_collection(&f.catalog, 1));
  CHECK_EQ(collection->dimension, 16);
  CHECK_EQ(collection->compression_level, -3);
  CHECK_EQ(collection->flushed_sequence, 30);
  CHECK(catalog_collection_named(&f.catalog, "on", 2) == NULL);
  const struct catalog_table *table = catalog_table(&f.catalog, 11);
  CHECK_EQ(table->run_id, 1);
  CHECK_EQ(table->record.hash_sum, UINT64_MAX - 11);
  CHECK_MEM_EQ(table->record.upper.data, "m", 1);
  const struct catalog_run *run = catalog_run(&f.catalog, 1);
  CHECK_EQ(run->smallest_sequence, 1);
  CHECK_EQ(run->largest_sequence, 20);
  CHECK_EQ(run->entries, 20);
  CHECK(run->tables[1] == table);
  const struct catalog_partition *partition = catalog_partition(&f.catalog, 5);
  CHECK(partition->upper_open && partition->lower.size == 1);
  CHECK(catalog_is_taken(&f.catalog, 12, 4) && !catalog_is_taken(&f.catalog, 12, 5));
  CHECK_EQ(catalog_codebook(&f.catalog, 3, 2)->file_number, 20);
  CHECK(catalog_codebook(&f.catalog, 3, 1) == NULL);
  const struct catalog_segment *segment = catalog_segment(&f.catalog, 21);
  CHECK_EQ(segment->tables[1].row_base, 9);
  CHECK_MEM_EQ(segment->tables[0].clip_upper.data, "e", 1);
  const struct catalog_job *job = catalog_job(&f.catalog, 7);
  CHECK_EQ(job->inputs[1], 2);
  CHECK_EQ(job->cuts[1].file_number, 23);
  CHECK_EQ(f.catalog.counters.next_file, 24);
  CHECK_EQ(f.catalog.counters.next_run, 3);
  CHECK_EQ(f.catalog.counters.next_job, 8);
  CHECK_EQ(f.catalog.counters.last_sequence, 30);
  CHECK_EQ(f.catalog.oldest_log, 13);
  CHECK(catalog_names_file(&f.catalog, 12) && catalog_names_file(&f.catalog, 20) && catalog_names_file(&f.catalog, 21) &&
        catalog_names_file(&f.catalog, 23) && !catalog_names_file(&f.catalog, 24));

  const struct catalog_run **runs = NULL;
  size_t count = 0;
  CHECK_OK(catalog_list_runs(&f.catalog, 1, CATALOG_ALL_PARTITIONS, &runs, &count, NULL));
  CHECK(count == 2 && runs[0]->object.id == 2 && runs[1]->object.id == 1);
  mem_free(&f.allocator.base, runs, count * sizeof *runs);

  /* A snapshot gives the same state, and is the same bytes again. */
  struct version_edit snapshot;
  struct catalog copy;
  edit_init(&snapshot, &f.allocator.base);
  catalog_init(&copy, &f.allocator.base);
  CHECK_OK(catalog_snapshot(&f.catalog, &snapshot, NULL));
  CHECK_OK(catalog_apply(&copy, &snapshot, NULL));
  CHECK_EQ(state_hash(&copy), state_hash(&f.catalog));
  CHECK_EQ(catalog_count(&copy, CATALOG_TABLE), 3);
  edit_free(&snapshot);
  catalog_free(&copy);
  fixture_free(&f);
}

TEST(catalog, what_is_unknown_or_there_already_is_refused) {
  struct fixture f;
  fixture_init(&f);
  base_state(&f);
  edit_remove_run(&f.edit, 9);
  refused(&f, "unknown run 9");
  edit_remove_table(&f.edit, 9);
  refused(&f, "unknown table 9");
  edit_drop_collection(&f.edit, 9);
  refused(&f, "unknown collection 9");
  edit_remove_partition(&f.edit, 9);
  refused(&f, "unknown partition 9");
  edit_remove_segment(&f.edit, 9);
  refused(&f, "unknown segment 9");
  edit_remove_codebook(&f.edit, 9, 1);
  refused(&f, "codebook 9");
  edit_set_flushed(&f.edit, 9, 1);
  refused(&f, "unknown collection 9");
  edit_add_collection(&f.edit, 1, "other", &plain);
  refused(&f, "once more collection 1");
  edit_add_collection(&f.edit, 2, "one", &plain);
  refused(&f, "name of collection 2");
  edit_add_collection(&f.edit, 2, "two", &plain);
  edit_add_collection(&f.edit, 3, "two", &plain);
  refused(&f, "name of collection 3");
  fixture_free(&f);
}

TEST(catalog, runs_and_tables_that_do_not_fit_are_refused) {
  struct fixture f;
  fixture_init(&f);
  base_state(&f);
  add_table(&f, 10, "x", "y", 31, 32);
  refused(&f, "once more table 10");
  add_table(&f, 14, "x", "y", 31, 32);
  refused(&f, "no run holds the new table 14");
  add_table(&f, 14, "y", "x", 31, 32);
  refused(&f, "wrong order of table 14");
  edit_add_run(&f.edit, 3, 1, 0, 0, NULL, 0);
  refused(&f, "no tables in run 3");
  edit_add_run(&f.edit, 3, 1, 0, 0, (const uint64_t[]){99}, 1);
  refused(&f, "table is unknown of run 3");
  edit_add_run(&f.edit, 3, 1, 0, 0, (const uint64_t[]){12}, 1);
  refused(&f, "two runs hold table 12");
  edit_add_run(&f.edit, 3, 8, 0, 0, (const uint64_t[]){12}, 1);
  refused(&f, "collection is unknown of run 3");
  edit_add_run(&f.edit, 3, 1, 8, 0, (const uint64_t[]){12}, 1);
  refused(&f, "partition is unknown of run 3");
  add_table(&f, 14, "p", "r", 31, 32);
  edit_add_run(&f.edit, 3, 1, 0, 0, (const uint64_t[]){14, 14}, 2);
  refused(&f, "two runs hold table 14");
  add_table(&f, 14, "p", "r", 31, 32);
  add_table(&f, 15, "r", "s", 31, 32); /* "r" is in both */
  edit_add_run(&f.edit, 3, 1, 0, 0, (const uint64_t[]){14, 15}, 2);
  refused(&f, "overlap or do not ascend of run 3");
  add_table(&f, 14, "p", "r", 30, 32);
  edit_add_run(&f.edit, 3, 1, 0, 0, (const uint64_t[]){14}, 1);
  refused(&f, "range of run 3");
  edit_remove_table(&f.edit, 12);
  refused(&f, "still holds the removed table 12");
  edit_remove_run(&f.edit, 2);
  refused(&f, "no run holds any more table 12");
  fixture_free(&f);
}

TEST(catalog, partitions_jobs_and_segments_that_do_not_fit_are_refused) {
  struct fixture f;
  fixture_init(&f);
  base_state(&f);
  edit_add_partition(&f.edit, 1, 1, TURB_STR("b"), TURB_STR("b"), false, 0);
  refused(&f, "wrong order of partition 1");
  edit_add_partition(&f.edit, 1, 7, TURB_STR("b"), TURB_STR("c"), false, 0);
  refused(&f, "collection is unknown of partition 1");
  edit_add_partition(&f.edit, 1, 1, TURB_STR("b"), TURB_STR("e"), false, 0);
  edit_add_partition(&f.edit, 2, 1, TURB_STR("d"), TURB_NONE, true, 0);
  refused(&f, "overlaps partition");
  edit_add_taken(&f.edit, 10, 1);
  refused(&f, "unknown table 10");
  edit_set_job(&f.edit, 1, CATALOG_JOB_FLUSH, 9, NULL, 0, NULL, 0);
  refused(&f, "collection is unknown of job 1");
  const struct catalog_segment_table slot = {.file_number = 11, .clip_open = true};
  edit_add_segment(&f.edit, 20, 9, 0, 0, 0, &slot, 1);
  refused(&f, "run is unknown of segment 20");
  edit_add_segment(&f.edit, 20, 1, 0, 0, 2, &slot, 1);
  refused(&f, "beyond the run's of segment 20");
  edit_add_segment(&f.edit, 20, 1, 0, 0, 0, &slot, 1);
  refused(&f, "not the run's of segment 20");
  edit_add_segment(&f.edit, 20, 1, 5, 1, 1, &slot, 1);
  refused(&f, "codebook edition is unknown of segment 20");
  fixture_free(&f);
}

TEST(catalog, the_last_of_many_changes_spoils_all) {
  struct fixture f;
  fixture_init(&f);
  base_state(&f);
  edit_add_collection(&f.edit, 2, "two", &plain);
  edit_set_oldest_log(&f.edit, 99);
  edit_set_flushed(&f.edit, 1, 1000);
  edit_add_time_mark(&f.edit, 1, 1);
  edit_remove_run(&f.edit, 9);
  refused(&f, "unknown run 9");
  fixture_free(&f);
}

TEST(catalog, order_within_an_edit_does_not_matter) {
  struct fixture f;
  fixture_init(&f);
  base_state(&f);
  /* A merge: run before tables, additions before removals; table 11 is moved. */
  edit_add_run(&f.edit, 3, 1, 0, 0, (const uint64_t[]){14, 11}, 2);
  add_table(&f, 14, "a", "f", 1, 30);
  edit_remove_table(&f.edit, 12);
  edit_remove_table(&f.edit, 10);
  edit_remove_run(&f.edit, 2);
  edit_remove_run(&f.edit, 1);
  apply(&f);
  CHECK_EQ(catalog_count(&f.catalog, CATALOG_RUN), 1);
  CHECK_EQ(catalog_count(&f.catalog, CATALOG_TABLE), 2);
  CHECK_EQ(catalog_table(&f.catalog, 11)->run_id, 3);
  /* A run is replaced under its id. */
  add_table(&f, 15, "n", "p", 2, 3);
  edit_add_run(&f.edit, 3, 1, 0, CATALOG_RUN_QUARANTINED, (const uint64_t[]){14, 11, 15}, 3);
  apply(&f);
  CHECK_EQ(catalog_run(&f.catalog, 3)->table_count, 3);
  /* Quarantined runs may share sequences with others. */
  add_table(&f, 16, "a", "b", 2, 3);
  edit_add_run(&f.edit, 4, 1, 0, 0, (const uint64_t[]){16}, 1);
  apply(&f);
  /* Nothing falls. */
  edit_set_counters(&f.edit, &(struct catalog_counters){.next_file = 1});
  edit_set_flushed(&f.edit, 1, 3);
  edit_set_oldest_log(&f.edit, 3);
  apply(&f);
  CHECK_EQ(f.catalog.counters.next_file, 17);
  CHECK_EQ(catalog_collection(&f.catalog, 1)->flushed_sequence, 30);
  CHECK_EQ(f.catalog.oldest_log, 13);
  fixture_free(&f);
}

TEST(catalog, a_drop_takes_all_of_a_collection_along) {
  struct fixture f;
  fixture_init(&f);
  base_state(&f);
  edit_add_collection(&f.edit, 2, "two", &plain);
  struct table_record other = make_table(30, 2, "a", "b", 1, 40);
  edit_add_table(&f.edit, &other);
  edit_add_run(&f.edit, 8, 2, 0, 0, (const uint64_t[]){30}, 1);
  edit_add_partition(&f.edit, 4, 1, TURB_STR("a"), TURB_NONE, true, 0);
  edit_add_partition(&f.edit, 5, 2, TURB_STR("a"), TURB_NONE, true, 0);
  edit_add_taken(&f.edit, 10, 4);
  edit_add_taken(&f.edit, 12, 4);
  edit_set_job(&f.edit, 1, CATALOG_JOB_MERGE, 1, NULL, 0, NULL, 0);
  const struct catalog_segment_table slot = {.file_number = 12, .clip_open = true};
  edit_add_segment(&f.edit, 31, 2, 0, 0, 0, &slot, 1);
  apply(&f);
  edit_drop_collection(&f.edit, 1);
  edit_remove_run(&f.edit, 1); /* may be named as well */
  edit_end_job(&f.edit, 1);
  edit_end_job(&f.edit, 17); /* of which nothing is known */
  apply(&f);
  CHECK_EQ(catalog_count(&f.catalog, CATALOG_COLLECTION), 1);
  CHECK_EQ(catalog_count(&f.catalog, CATALOG_NAME), 1);
  CHECK_EQ(catalog_count(&f.catalog, CATALOG_TABLE), 1);
  CHECK_EQ(catalog_count(&f.catalog, CATALOG_RUN), 1);
  CHECK_EQ(catalog_count(&f.catalog, CATALOG_PARTITION), 1);
  CHECK_EQ(catalog_count(&f.catalog, CATALOG_TAKEN), 0);
  CHECK_EQ(catalog_count(&f.catalog, CATALOG_SEGMENT), 0);
  CHECK_EQ(catalog_count(&f.catalog, CATALOG_JOB), 0);
  CHECK(catalog_table(&f.catalog, 30) != NULL);
  /* The name is free again, in the same edit too. */
  edit_add_collection(&f.edit, 3, "two", &plain);
  edit_drop_collection(&f.edit, 2);
  apply(&f);
  CHECK_EQ(catalog_collection_named(&f.catalog, "two", 3)->object.id, 3);
  CHECK_EQ(f.catalog.counters.next_collection, 4);
  fixture_free(&f);
}

TEST(catalog, ranges_taken_go_with_their_table_or_partition) {
  struct fixture f;
  fixture_init(&f);
  base_state(&f);
  edit_add_partition(&f.edit, 1, 1, TURB_STR("a"), TURB_STR("h"), false, 0);
  edit_add_partition(&f.edit, 2, 1, TURB_STR("h"), TURB_NONE, true, 0);
  edit_add_taken(&f.edit, 12, 1);
  edit_add_taken(&f.edit, 12, 2);
  edit_add_taken(&f.edit, 10, 1);
  apply(&f);
  edit_add_taken(&f.edit, 12, 1);
  refused(&f, "once more from table 12");
  edit_remove_partition(&f.edit, 1);
  apply(&f);
  CHECK(!catalog_is_taken(&f.catalog, 12, 1) && !catalog_is_taken(&f.catalog, 10, 1) && catalog_is_taken(&f.catalog, 12, 2));
  edit_remove_run(&f.edit, 2);
  edit_remove_table(&f.edit, 12);
  apply(&f);
  CHECK_EQ(catalog_count(&f.catalog, CATALOG_TAKEN), 0);
  /* A partition that runs still name cannot go. */
  add_table(&f, 14, "i", "k", 40, 41);
  edit_add_run(&f.edit, 3, 1, 2, 0, (const uint64_t[]){14}, 1);
  apply(&f);
  edit_remove_partition(&f.edit, 2);
  refused(&f, "partition is gone of run 3");
  edit_add_taken(&f.edit, 14, 2);
  refused(&f, "no upper table: 14");
  fixture_free(&f);
}

TEST(catalog, time_marks_are_thinned_with_age) {
  struct fixture f;
  fixture_init(&f);
  uint64_t seconds = 1000;
  for (uint64_t i = 1; i <= 20000; i++) {
    edit_add_time_mark(&f.edit, i, seconds += i % 2 == 0 ? 61 : 10);
    if (i % 100 == 0) {
      apply(&f);
    }
  }
  /* Two in 71 seconds for eight days: the last two days whole, the others two an hour at most, and what came since the last thinning. */
  CHECK(f.catalog.time_mark_count > 4800 && f.catalog.time_mark_count < 4900 + 300 + 1024);
  for (size_t i = 2; i < f.catalog.time_mark_count; i++) {
    CHECK(f.catalog.time_marks[i].sequence > f.catalog.time_marks[i - 1].sequence);
    CHECK(f.catalog.time_marks[i].unix_seconds >= f.catalog.time_marks[i - 2].unix_seconds + 60);
  }
  /* What thinning left tells the time of each sequence, late by less than an hour. */
  seconds = 1000;
  for (uint64_t i = 1; i <= 20000; i++) {
    seconds += i % 2 == 0 ? 61 : 10;
    const uint64_t written_s = catalog_written_by_s(&f.catalog, i);
    CHECK(written_s >= seconds && written_s < seconds + 3600);
  }
  fixture_free(&f);
}

TEST(catalog, a_time_mark_goes_when_those_beside_it_are_near) {
  struct fixture f;
  fixture_init(&f);
  CHECK_EQ(catalog_written_by_s(&f.catalog, 1), 0);
  /* The second is followed by the third in the minute of the first. The time of the fifth and the sequence of the sixth do not fit. */
  static const struct catalog_time_mark marks[] = {{10, 1000}, {20, 1030}, {30, 1050}, {40, 9000}, {50, 8000}, {35, 9100}};
  for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
    edit_add_time_mark(&f.edit, marks[i].sequence, marks[i].unix_seconds);
    apply(&f);
  }
  CHECK_EQ(f.catalog.time_mark_count, 3);
  CHECK_EQ(catalog_written_by_s(&f.catalog, 1), 1000);
  CHECK_EQ(catalog_written_by_s(&f.catalog, 10), 1000);
  CHECK_EQ(catalog_written_by_s(&f.catalog, 11), 1050);
  CHECK_EQ(catalog_written_by_s(&f.catalog, 31), 9000);
  CHECK_EQ(catalog_written_by_s(&f.catalog, 40), 9000);
  CHECK_EQ(catalog_written_by_s(&f.catalog, 41), 0);
  fixture_free(&f);
}

/* ---- compaction ---- */

static const struct catalog_compaction fifo = {
    .policy = TURB_COMPACTION_FIFO, .size_ratio = 4, .fifo_max_bytes = UINT64_C(1) << 50, .ttl_s = 86400};

TEST(catalog, compaction_is_set_replaced_and_goes_with_its_collection) {
  struct fixture f;
  fixture_init(&f);
  base_state(&f);
  CHECK_EQ(catalog_collection(&f.catalog, 1)->compaction.policy, TURB_COMPACTION_DEFAULT);
  edit_set_compaction(&f.edit, 1, &fifo);
  apply(&f);
  const struct catalog_compaction *now = &catalog_collection(&f.catalog, 1)->compaction;
  CHECK_EQ(now->policy, TURB_COMPACTION_FIFO);
  CHECK_EQ(now->size_ratio, 4);
  CHECK_EQ(now->fifo_max_bytes, UINT64_C(1) << 50);
  CHECK_EQ(now->ttl_s, 86400);
  /* A snapshot brings it back, an edit that fails changes nothing. */
  struct catalog copy;
  catalog_init(&copy, f.catalog.allocator);
  CHECK_OK(catalog_snapshot(&f.catalog, &f.edit, NULL));
  CHECK_OK(catalog_apply(&copy, &f.edit, NULL));
  CHECK_EQ(catalog_collection(&copy, 1)->compaction.ttl_s, 86400);
  CHECK_EQ(catalog_collection(&copy, 1)->flushed_sequence, 30);
  catalog_free(&copy);
  edit_clear(&f.edit);
  const struct catalog_compaction none = {0};
  edit_set_compaction(&f.edit, 1, &none);
  edit_set_compaction(&f.edit, 9, &none);
  refused(&f, "tunes the unknown collection 9");
  CHECK_EQ(catalog_collection(&f.catalog, 1)->compaction.ttl_s, 86400);
  edit_set_compaction(&f.edit, 1, &none);
  apply(&f);
  CHECK_EQ(catalog_collection(&f.catalog, 1)->compaction.ttl_s, 0);
  /* In the edit that adds the collection. */
  edit_add_collection(&f.edit, 2, "two", &plain);
  edit_set_compaction(&f.edit, 2, &fifo);
  apply(&f);
  CHECK_EQ(catalog_collection(&f.catalog, 2)->compaction.size_ratio, 4);
  struct catalog_compaction odd = fifo;
  odd.policy = (turb_compaction_policy)5;
  edit_set_compaction(&f.edit, 2, &odd);
  CHECK_STATUS(catalog_apply(&f.catalog, &f.edit, NULL), TURB_NEWER_FORMAT);
  edit_clear(&f.edit);
  odd = fifo;
  odd.size_ratio = 1;
  edit_set_compaction(&f.edit, 2, &odd);
  CHECK_STATUS(catalog_apply(&f.catalog, &f.edit, NULL), TURB_CORRUPTION);
  fixture_free(&f);
}

/* ---- encoding ---- */

TEST(catalog, unknown_tags_odd_and_even) {
  struct fixture f;
  fixture_init(&f);
  edit_add_collection(&f.edit, 1, "one", &plain);
  CHECK_OK(buffer_append_varint(&f.edit.payload, 1000));
  CHECK_OK(buffer_append_sized(&f.edit.payload, "whatever", 8));
  edit_set_flushed(&f.edit, 1, 7);
  /* A field that a later version has made longer. */
  CHECK_OK(buffer_append_varint(&f.edit.payload, EDIT_FLUSHED));
  CHECK_OK(buffer_append_sized(&f.edit.payload, "\x01\x09 and more", 11));
  apply(&f);
  CHECK_EQ(catalog_collection(&f.catalog, 1)->flushed_sequence, 9);
  CHECK_OK(buffer_append_varint(&f.edit.payload, 1001));
  CHECK_OK(buffer_append_sized(&f.edit.payload, "", 0));
  turb_error err = TURB_ERROR_INIT;
  CHECK_STATUS(catalog_apply(&f.catalog, &f.edit, &err), TURB_NEWER_FORMAT);
  CHECK(test_contains(err.message, "1001"));
  edit_clear(&f.edit);
  struct catalog_collection odd = plain;
  odd.type = (turb_type)7;
  edit_add_collection(&f.edit, 2, "two", &odd);
  CHECK_STATUS(catalog_apply(&f.catalog, &f.edit, NULL), TURB_NEWER_FORMAT);
  edit_clear(&f.edit);
  odd.type = TURB_F32;
  odd.metric = TURB_HAMMING;
  edit_add_collection(&f.edit, 2, "two", &odd);
  CHECK_STATUS(catalog_apply(&f.catalog, &f.edit, NULL), TURB_CORRUPTION);
  fixture_free(&f);
}

static void build_all(struct version_edit *edit) {
  edit_add_collection(edit, 1, "one", &plain);
  struct table_record table = make_table(10, 1, "a", "f", 1, 10);
  edit_add_table(edit, &table);
  table = make_table(11, 1, "g", "m", 5, 20);
  table.upper_open = true;
  edit_add_table(edit, &table);
  edit_add_run(edit, 1, 1, 0, 0, (const uint64_t[]){10, 11}, 2);
  edit_add_partition(edit, 4, 1, TURB_STR("a"), TURB_STR("k"), false, 3);
  edit_add_taken(edit, 10, 4);
  edit_add_codebook(edit, 3, 2, 20, 1);
  const struct catalog_segment_table slot = {.file_number = 11, .row_base = 3, .clip_lower = TURB_STR("g"), .clip_upper = TURB_STR("i")};
  edit_add_segment(edit, 21, 1, 3, 2, 1, &slot, 1);
  edit_set_job(edit, 7, CATALOG_JOB_MERGE, 1, (const uint64_t[]){1}, 1, (const struct catalog_cut[]){{0, 22}}, 1);
  edit_set_compaction(edit, 1, &fifo);
  edit_add_time_mark(edit, 25, 1700000000);
}

/* Bytes in a block of their own size; any outcome is right but OK for a cut field, a crash, or a changed catalog after an error. */
TEST(catalog, truncated_and_flipped_edits_are_errors_or_other_edits) {
  struct fixture f;
  fixture_init(&f);
  build_all(&f.edit);
  const size_t size = f.edit.payload.size;
  size_t applied = 0;
  for (size_t i = 0; i < size + 8 * size; i++) {
    const size_t length = i < size ? i : size;
    uint8_t *copy = malloc(length != 0 ? length : 1);
    CHECK(copy != NULL);
    memcpy(copy, f.edit.payload.data, length);
    if (i >= size) {
      copy[(i - size) / 8] ^= (uint8_t)(1u << (i % 8));
    }
    struct catalog catalog;
    catalog_init(&catalog, &f.allocator.base);
    const uint64_t before = state_hash(&catalog);
    const turb_status status = catalog_stage(&catalog, (turb_bytes){copy, length}, NULL);
    if (status == TURB_OK) {
      catalog_commit(&catalog);
      (void)state_hash(&catalog);
      applied++;
    } else {
      CHECK(status == TURB_CORRUPTION || status == TURB_NEWER_FORMAT || status == TURB_INVALID);
      CHECK_EQ(state_hash(&catalog), before);
    }
    struct version_edit decoded;
    edit_init(&decoded, &f.allocator.base);
    if (edit_decode(&decoded, (turb_bytes){copy, length}, NULL) == TURB_OK) {
      CHECK_EQ(decoded.payload.size, length);
    } else {
      CHECK(status == TURB_CORRUPTION || status == TURB_NEWER_FORMAT);
    }
    edit_free(&decoded);
    catalog_free(&catalog);
    free(copy);
  }
  CHECK(applied > 10);
  fixture_free(&f);
}

/* ---- memory ---- */

TEST(catalog, without_memory_nothing_changes) {
  struct fixture f;
  fixture_init(&f);
  base_state(&f);
  edit_add_partition(&f.edit, 1, 1, TURB_STR("a"), TURB_NONE, true, 0);
  edit_add_taken(&f.edit, 10, 1);
  edit_add_taken(&f.edit, 12, 1);
  apply(&f);
  edit_drop_collection(&f.edit, 1);
  build_all(&f.edit);
  edit_clear(&f.edit);
  edit_add_collection(&f.edit, 2, "two", &plain);
  for (uint64_t i = 0; i < 40; i++) {
    char lower[8];
    char upper[8];
    (void)snprintf(lower, sizeof lower, "%03d", (int)(2 * i));
    (void)snprintf(upper, sizeof upper, "%03d", (int)(2 * i + 1));
    struct table_record table = make_table(100 + i, 2, lower, upper, 10 * i + 1, 10 * i + 10);
    edit_add_table(&f.edit, &table);
    edit_add_run(&f.edit, 100 + i, 2, 0, 0, (const uint64_t[]){100 + i}, 1);
    edit_add_time_mark(&f.edit, i + 1, 100 * i);
  }
  edit_drop_collection(&f.edit, 1);
  const uint64_t before = state_hash(&f.catalog);
  for (uint64_t n = 1;; n++) {
    test_allocator_fail_at(&f.allocator, n);
    turb_error err = TURB_ERROR_INIT;
    const turb_status status = catalog_apply(&f.catalog, &f.edit, &err);
    if (!f.allocator.failed) {
      CHECK_OK(status);
      break;
    }
    CHECK_STATUS(status, TURB_NO_MEMORY);
    test_allocator_fail_at(&f.allocator, 0);
    CHECK_EQ(state_hash(&f.catalog), before);
    CHECK_EQ(catalog_count(&f.catalog, CATALOG_TABLE), 3);
  }
  CHECK_EQ(catalog_count(&f.catalog, CATALOG_TABLE), 40);
  CHECK_EQ(catalog_count(&f.catalog, CATALOG_COLLECTION), 1);
  /* An edit that could not be built is refused, too. */
  edit_clear(&f.edit);
  test_allocator_fail_from(&f.allocator, 1);
  for (uint64_t i = 0; i < 1000; i++) {
    edit_set_oldest_log(&f.edit, UINT64_C(1) << 40);
  }
  for (uint64_t i = 0; i < 4000; i++) {
    edit_set_flushed(&f.edit, 2, i);
  }
  CHECK_STATUS(catalog_apply(&f.catalog, &f.edit, NULL), TURB_NO_MEMORY);
  test_allocator_fail_at(&f.allocator, 0);
  fixture_free(&f);
}

/* ---- against a model ---- */

/* Random edits, right and wrong: a wrong one changes nothing, and the state always equals that of its own snapshot. */
TEST(catalog, random_edits_keep_a_catalog_whole) {
  struct random random;
  random_init(&random, test_seed());
  struct fixture f;
  fixture_init(&f);
  edit_add_collection(&f.edit, 1, "one", &plain);
  apply(&f);
  uint64_t next = 10;
  uint64_t sequence = 1;
  size_t refusals = 0;
  for (uint64_t step = 0; step < test_scale(1500, 800, 20000); step++) {
    const struct catalog_run **runs = NULL;
    size_t count = 0;
    CHECK_OK(catalog_list_runs(&f.catalog, 1, CATALOG_ALL_PARTITIONS, &runs, &count, NULL));
    const uint64_t choice = random_below(&random, 10);
    if (choice < 5 || count == 0) { /* a flush, sometimes of no good */
      uint64_t numbers[4];
      const size_t tables = (size_t)random_between(&random, 1, 4);
      for (size_t i = 0; i < tables; i++) {
        char lower[8];
        char upper[8];
        (void)snprintf(lower, sizeof lower, "%c", (char)('a' + 3 * i));
        (void)snprintf(upper, sizeof upper, "%c", (char)('b' + 3 * i + (random_one_in(&random, 40) ? 3 : 0)));
        add_table(&f, numbers[i] = next++, lower, upper, sequence, sequence + 9);
      }
      sequence += random_one_in(&random, 20) ? 0 : 10;
      edit_add_run(&f.edit, next++, 1, 0, 0, numbers, tables - random_one_in(&random, 30));
    } else if (choice < 9) { /* a merge of some neighbours */
      const size_t from = (size_t)random_below(&random, count);
      const size_t to = (size_t)random_between(&random, from, count - 1);
      uint64_t largest = runs[from]->largest_sequence;
      for (size_t i = from; i <= to; i++) {
        edit_remove_run(&f.edit, runs[i]->object.id);
        for (size_t t = 0; t < runs[i]->table_count; t++) {
          if (!random_one_in(&random, 60)) {
            edit_remove_table(&f.edit, runs[i]->table_numbers[t]);
          }
        }
      }
      add_table(&f, next, "a", "z", runs[to]->smallest_sequence, largest);
      edit_add_run(&f.edit, next + 1, 1, 0, 0, (const uint64_t[]){next}, 1);
      next += 2;
    } else { /* a run is lost or moved under another id */
      const struct catalog_run *run = runs[random_below(&random, count)];
      edit_remove_run(&f.edit, run->object.id);
      if (random_one_in(&random, 2)) {
        edit_add_run(&f.edit, next++, 1, 0, 0, run->table_numbers, run->table_count);
      }
    }
    mem_free(&f.allocator.base, runs, count * sizeof *runs);
    const uint64_t before = state_hash(&f.catalog);
    const turb_status status = catalog_apply(&f.catalog, &f.edit, NULL);
    edit_clear(&f.edit);
    if (status != TURB_OK) {
      CHECK_STATUS(status, TURB_INVALID);
      CHECK_EQ(state_hash(&f.catalog), before);
      refusals++;
    }
    if (step % 16 == 0) {
      struct catalog copy;
      catalog_init(&copy, &f.allocator.base);
      CHECK_OK(catalog_snapshot(&f.catalog, &f.edit, NULL));
      CHECK_OK(catalog_apply(&copy, &f.edit, NULL));
      CHECK_EQ(state_hash(&copy), state_hash(&f.catalog));
      edit_clear(&f.edit);
      catalog_free(&copy);
    }
  }
  CHECK(refusals > 10);
  fixture_free(&f);
}

TEST(catalog, a_hundred_thousand_tables_are_quick) {
  const uint64_t tables = test_scale(100000, 20000, 100000);
  struct catalog catalog;
  struct version_edit edit;
  catalog_init(&catalog, alloc_default());
  edit_init(&edit, alloc_default());
  edit_add_collection(&edit, 1, "one", &plain);
  uint64_t *numbers = calloc((size_t)tables, sizeof *numbers);
  CHECK(numbers != NULL);
  for (uint64_t i = 0; i < tables; i++) {
    char lower[16];
    char upper[16];
    (void)snprintf(lower, sizeof lower, "%08d", (int)(2 * i));
    (void)snprintf(upper, sizeof upper, "%08d", (int)(2 * i + 1));
    struct table_record table = make_table(i + 1, 1, lower, upper, i + 1, i + 1);
    edit_add_table(&edit, &table);
    numbers[i] = i + 1;
    if (i % 100 == 99) { /* a thousand runs */
      edit_add_run(&edit, i, 1, 0, 0, numbers + i - 99, 100);
    }
  }
  uint64_t start = clock_thread_cpu_ns();
  CHECK_OK(catalog_apply(&catalog, &edit, NULL));
  const uint64_t load_ns = clock_thread_cpu_ns() - start;
  edit_clear(&edit);
  start = clock_thread_cpu_ns();
  CHECK_OK(catalog_snapshot(&catalog, &edit, NULL));
  const uint64_t snapshot_ns = clock_thread_cpu_ns() - start;
  const size_t snapshot_bytes = edit.payload.size;
  /* Flushes that come and go. */
  start = clock_thread_cpu_ns();
  const uint64_t flushes = 2000;
  for (uint64_t i = 0; i < flushes; i++) {
    edit_clear(&edit);
    struct table_record table = make_table(tables + 1 + i, 1, "a", "b", tables + 1 + i, tables + 1 + i);
    edit_add_table(&edit, &table);
    edit_add_run(&edit, tables + 1 + i, 1, 0, 0, (const uint64_t[]){tables + 1 + i}, 1);
    if (i > 10) {
      edit_remove_run(&edit, tables + i - 10);
      edit_remove_table(&edit, tables + i - 10);
    }
    CHECK_OK(catalog_apply(&catalog, &edit, NULL));
  }
  const uint64_t flush_ns = clock_thread_cpu_ns() - start;
  (void)fprintf(stderr, "%" PRIu64 " tables: load %.1f ms, snapshot %.1f ms (%zu bytes), an edit %.1f us\n", tables, (double)load_ns / 1e6,
                (double)snapshot_ns / 1e6, snapshot_bytes, (double)flush_ns / 1e3 / (double)flushes);
  CHECK(load_ns < UINT64_C(4000000000) && snapshot_ns < UINT64_C(4000000000) && flush_ns < UINT64_C(8000000000));
  edit_free(&edit);
  catalog_free(&catalog);
  free(numbers);
}
