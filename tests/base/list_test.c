/* The intrusive list. */
#include "base/list.h"

#include "tests/support/test.h"

struct item {
  int value;
  struct list link;
};

static int value_of(struct list *link) {
  return link != NULL ? LIST_ENTRY(link, struct item, link)->value : -1;
}

TEST(list, keeps_order) {
  struct list list;
  struct item items[4] = {{0, {0}}, {1, {0}}, {2, {0}}, {3, {0}}};
  list_init(&list);
  CHECK(list_is_empty(&list));
  CHECK(list_first(&list) == NULL && list_last(&list) == NULL && list_pop_front(&list) == NULL);
  list_push_back(&list, &items[1].link);
  list_push_back(&list, &items[3].link);
  list_push_front(&list, &items[0].link);
  list_insert_before(&items[3].link, &items[2].link);
  int expected = 0;
  for (struct list *link = list_first(&list); link != NULL; link = list_next(&list, link)) {
    CHECK_EQ(value_of(link), expected++);
  }
  CHECK_EQ(expected, 4);
  for (struct list *link = list_last(&list); link != NULL; link = list_prev(&list, link)) {
    CHECK_EQ(value_of(link), --expected);
  }
  CHECK_EQ(expected, 0);
  list_remove(&items[2].link);
  CHECK(!list_is_linked(&items[2].link));
  list_remove(&items[2].link); /* harmless */
  CHECK(list_is_linked(&items[1].link));
  CHECK_EQ(value_of(list_pop_front(&list)), 0);
  CHECK_EQ(value_of(list_pop_front(&list)), 1);
  CHECK_EQ(value_of(list_pop_front(&list)), 3);
  CHECK(list_is_empty(&list));
}

TEST(list, splices) {
  struct list a;
  struct list b;
  struct item items[4] = {{0, {0}}, {1, {0}}, {2, {0}}, {3, {0}}};
  list_init(&a);
  list_init(&b);
  list_splice(&a, &b);
  CHECK(list_is_empty(&a));
  for (int i = 0; i < 4; i++) {
    list_push_back(i < 2 ? &a : &b, &items[i].link);
  }
  list_splice(&a, &b);
  CHECK(list_is_empty(&b));
  for (int i = 0; i < 4; i++) {
    CHECK_EQ(value_of(list_pop_front(&a)), i);
  }
  CHECK(list_is_empty(&a));
}
