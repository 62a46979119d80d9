#include "items/insert.h"

#include "support/fixtures.h"

namespace shmreplay::test {
namespace {

// `n` new items that show the newest item's step again, each an episode of its own.
std::vector<NewItem> newcomers(World& w, PreparedPattern& pattern, uint32_t n) {
  const Place newest = w.arena.item(w.table().record->order.get().tail).place.get();
  std::vector<NewItem> items(n, NewItem{1.0, newest, 1, pattern.record});
  for (NewItem& item : items) item.own_episode = true;
  return items;
}

// How many of the items one call of insert_items() puts in, in a hold of its own.
uint32_t put_in(World& w, std::vector<NewItem>& items, std::vector<int64_t>& keys) {
  keys.assign(items.size(), 0);
  Hold hold(w.arena);
  CHECK_EQ(hold.begin(kNow), Status::kOk);
  return insert_items(hold, w.table(), items.data(), static_cast<uint32_t>(items.size()), keys.data());
}

}  // namespace

TEST(many_go_in_at_once_where_the_oldest_give_up_their_slots) {
  World w(arena_of({open_table("a", 6)}));
  Actor actor(w.arena, w.table());
  std::vector<int64_t> old, keys;
  for (int i = 0; i < 6; ++i) old.push_back(actor.insert());
  std::vector<NewItem> items = newcomers(w, actor.step, 4);
  CHECK_EQ(put_in(w, items, keys), 4u);
  for (int i = 0; i < 4; ++i) CHECK_EQ(find_item(w.arena, w.table(), old[static_cast<size_t>(i)]), kNone);
  for (const int64_t key : keys) CHECK(find_item(w.arena, w.table(), key) != kNone);
  CHECK_EQ(live_items(w.table()), 6u);
  check_healthy(w.arena);
}

TEST(one_goes_in_where_there_is_a_free_slot_or_another_remover) {
  World free_slot(arena_of({open_table("a", 6)})), lifo(arena_of({open_table("a", 2, kUniform, kLifo)}));
  for (World* w : {&free_slot, &lifo}) {
    Actor actor(w->arena, w->table());
    for (int i = 0; i < 2; ++i) actor.insert();
    std::vector<int64_t> keys;
    std::vector<NewItem> items = newcomers(*w, actor.step, 3);
    CHECK_EQ(put_in(*w, items, keys), 1u);
    CHECK(keys[0] > 0 && keys[1] == 0);
    check_healthy(w->arena);
  }
  CHECK_EQ(live_items(free_slot.table()), 3u);
  CHECK_EQ(live_items(lifo.table()), 2u);
}

// Both ways: into a free slot, and in the place of the oldest.
TEST(an_item_leaves_its_episode_for_the_next_one_of_it) {
  World w(arena_of({open_table("a", 3)}));
  Actor actor(w.arena, w.table());
  actor.insert();
  std::vector<int64_t> keys;
  NewItem item = newcomers(w, actor.step, 1).front();
  item.own_episode = false;
  for (int i = 0; i < 5; ++i) {
    std::vector<NewItem> one{item};
    CHECK_EQ(put_in(w, one, keys), 1u);
    if (i > 0) CHECK(one[0].episode == item.episode && one[0].episode_slot == item.episode_slot);
    item = one[0];
    const uint32_t g = find_item(w.arena, w.table(), keys[0]);
    CHECK_EQ(w.arena.item(g).episode.get(), item.episode);
  }
  CHECK_EQ(w.arena.episode(item.episode_slot).use.get().items, 3u);
  CHECK_EQ(w.table().record->num_episodes.get(), 1u);
  check_healthy(w.arena);
}

}  // namespace shmreplay::test
