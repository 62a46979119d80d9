#include "items/episodes.h"

#include "support/table_records.h"

namespace shmreplay::test {

TEST(episodes_are_counted_while_they_have_items_and_deleted_once) {
  World w(arena_of({open_table("a", 100), open_table("b", 100)}));
  Actor actor(w.arena, w.table(0), 8);
  std::vector<int64_t> first;
  for (int i = 0; i < 3; ++i) {
    actor.append();
    first.push_back(actor.create(1));
    actor.create_in(w.table(1), 1);
  }
  CHECK_EQ(record(w, 0).num_episodes.get(), 1u);
  CHECK_EQ(record(w, 1).num_episodes.get(), 1u);
  actor.writer.end_episode(true);
  actor.append();
  const int64_t second = actor.create(1);
  CHECK_EQ(record(w).num_episodes.get(), 2u);
  const auto episode = [&](int64_t key) { return w.arena.item(find_item(w.arena, w.table(), key)).episode.get(); };
  CHECK_EQ(episode(first[0]), episode(first[2]));
  CHECK(episode(first[0]) != episode(second));
  erase(w, {first[0], first[1]});
  CHECK_EQ(record(w).num_episodes.get(), 2u);
  CHECK_EQ(record(w).num_deleted_episodes.get(), 0u);
  erase(w, {first[2]});
  CHECK_EQ(record(w).num_episodes.get(), 1u);
  CHECK_EQ(record(w).num_deleted_episodes.get(), 1u);
  check_healthy(w.arena);
}

TEST(one_step_items_are_episodes_of_their_own) {
  World w(arena_of({open_table("a", 100)}));
  Actor actor(w.arena, w.table());
  std::vector<int64_t> keys;
  for (int i = 0; i < 5; ++i) keys.push_back(actor.insert());
  CHECK_EQ(record(w).num_episodes.get(), 5u);
  erase(w, keys);
  CHECK_EQ(record(w).num_episodes.get(), 0u);
  CHECK_EQ(record(w).num_deleted_episodes.get(), 5u);
}

}  // namespace shmreplay::test
