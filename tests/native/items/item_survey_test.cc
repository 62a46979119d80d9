#include "items/item_survey.h"

#include <unistd.h>

#include <algorithm>
#include <set>

#include "support/fixtures.h"

namespace shmreplay::test {
namespace {

std::vector<int64_t> insert(Actor& actor, int n) {
  std::vector<int64_t> keys;
  for (int i = 0; i < n; ++i) keys.push_back(actor.insert(i + 1));
  return keys;
}

Origin origin_of(World& w, int64_t key) {
  std::optional<Origin> found;
  CHECK_EQ(find_origin(w.arena, w.table(), key, kNow, found), Status::kOk);
  CHECK(found.has_value());
  return *found;
}

uint64_t number_of(World& w, int64_t key) {
  uint64_t number = 0;
  CHECK_EQ(find_insert_number(w.arena, w.table(), key, kNow, number), Status::kOk);
  return number;
}

}  // namespace

TEST(a_survey_of_a_small_table_has_every_live_item_with_its_numbers) {
  World w(arena_of({open_table("a", 8, kPrioritized)}));
  Actor actor(w.arena, w.table());
  const std::vector<int64_t> keys = insert(actor, 11);  // three were evicted
  Learner learner(w.arena);
  Batch batch(w.arena, 20);
  CHECK_EQ(learner.sample(w.table(), 20, batch).status, Status::kOk);
  const Survey survey = survey_items(w.arena, w.table(), 100);
  CHECK(survey.stride == 1 && survey.items.size() == 8);
  uint32_t times = 0;
  for (const SurveyedItem& item : survey.items) {
    const auto at = std::find(keys.begin(), keys.end(), item.key) - keys.begin();
    CHECK(at >= 3 && at < 11);
    CHECK_EQ(item.age, 10 - at);
    CHECK_EQ(item.priority, static_cast<double>(at + 1));
    times += item.times_sampled;
  }
  CHECK_EQ(times, 20u);
}

TEST(a_survey_of_a_large_table_looks_at_no_more_than_it_may_and_all_over_it) {
  World w(arena_of({open_table("a", 600)}, 4, 400));
  Actor actor(w.arena, w.table());
  insert(actor, 600);
  const Survey survey = survey_items(w.arena, w.table(), 50);
  CHECK(survey.stride == 12 && survey.items.size() == 50);
  const auto [youngest, oldest] =
      std::minmax_element(survey.items.begin(), survey.items.end(),
                          [](const SurveyedItem& x, const SurveyedItem& y) { return x.age < y.age; });
  CHECK(youngest->age < 12 && oldest->age >= 588);
}

TEST(a_survey_of_an_empty_table_is_empty) {
  World w(arena_of({open_table("a", 8)}));
  CHECK(survey_items(w.arena, w.table(), 1).items.empty());
}

TEST(a_survey_of_a_damaged_table_ends) {
  World w(arena_of({open_table("a", 8)}));
  Actor actor(w.arena, w.table());
  insert(actor, 3);
  poke(w.table().record->size, UINT64_MAX);
  CHECK_EQ(survey_items(w.arena, w.table(), 100).items.size(), 3u);
}

TEST(an_items_origin_is_its_stream_and_the_process_that_wrote_it) {
  World w(arena_of({open_table("a", 100, kPrioritized)}));
  Actor one(w.arena, w.table()), other(w.arena, w.table());
  insert(one, 2);
  const int64_t key = other.insert(5);
  insert(one, 3);
  const Origin found = origin_of(w, key);
  CHECK(found.insert_no == 3 && found.age == 3 && found.step == 0 && found.num_steps == 1);
  CHECK(found.times_sampled == 0 && found.priority == 5);
  CHECK_EQ(found.writer_pid, static_cast<uint32_t>(getpid()));
  CHECK(found.stream != origin_of(w, one.insert()).stream);
}

TEST(an_item_that_is_gone_has_no_origin) {
  World w(arena_of({open_table("a", 2)}));
  Actor actor(w.arena, w.table());
  const int64_t key = actor.insert();
  insert(actor, 2);
  for (const int64_t none : {key, int64_t{0}, int64_t{-1}, INT64_MAX}) {
    std::optional<Origin> found;
    CHECK_EQ(find_origin(w.arena, w.table(), none, kNow, found), Status::kOk);
    CHECK(!found.has_value());
  }
}

TEST(an_item_whose_process_has_left_is_nobodys_though_another_has_its_session_now) {
  World w(arena_of({open_table("a", 100)}));
  std::unique_ptr<Arena> first = w.client();
  int64_t key = 0;
  {
    Actor actor(*first, first->table(0));
    key = actor.insert();
  }
  CHECK(origin_of(w, key).writer_pid != 0);
  bool reaped = false;
  CHECK_EQ(close_session(*w.daemon, first->session_index(), first->session_generation(), kNow, reaped), Status::kOk);
  CHECK_EQ(origin_of(w, key).writer_pid, 0u);
  const std::unique_ptr<Arena> next = w.client();
  CHECK_EQ(next->session_index(), first->session_index());
  CHECK_EQ(origin_of(w, key).writer_pid, 0u);
  Actor actor(*next, next->table(0));
  CHECK(origin_of(w, actor.insert()).writer_pid != 0);
}

TEST(a_key_tells_which_insert_gave_it) {
  for (const uint32_t size : {1u, 3u, 8u}) {
    World w(arena_of({open_table("a", size, kUniform, size == 8 ? kLifo : kFifo)}, 2, 24));
    Actor actor(w.arena, w.table());
    std::vector<int64_t> keys;
    for (int i = 0; i < 20; ++i) keys.push_back(actor.insert());
    for (size_t i = 0; i < keys.size(); ++i) CHECK_EQ(number_of(w, keys[i]), i + 1);
    Learner learner(w.arena);
    const Pick pick = learner.draw(w.table());
    CHECK_EQ(pick.insert_no, number_of(w, pick.key));
  }
}

}  // namespace shmreplay::test
