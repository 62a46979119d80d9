#include "items/item_table.h"

#include <algorithm>
#include <set>

#include "arena/admission.h"
#include "items/insert.h"
#include "support/table_records.h"

namespace shmreplay::test {
namespace {

bool is_live(World& w, int64_t key, uint32_t table = 0) { return find_item(w.arena, w.table(table), key) != kNone; }

// How many log entries `body` needs in one hold, deferred ones included. The hold is committed.
template <class Body>
uint32_t entries_of(Arena& arena, Body body) {
  Hold hold(arena);
  CHECK_EQ(hold.begin(kNow), Status::kOk);
  body(hold);
  hold.settle();
  return kLogCapacity - hold.room();
}

void check_removal(World& w, uint32_t g) {
  uint32_t bound = 0;
  const auto remove = [&](Hold& hold) {
    bound = removal_entries(hold, g);
    remove_item(hold, w.table(), g, Removal::kDeleted);
  };
  CHECK(entries_of(w.arena, remove) <= bound);
}

// Inserts one more item of the newest item's first step.
void check_insert(World& w, PreparedPattern& pattern, double priority) {
  NewItem item{};
  item.place = w.arena.item(w.table().record->order.get().tail).place.get();
  item.num_steps = 1;
  item.priority = priority;
  entries_of(w.arena, [&](Hold& hold) { CHECK_EQ(intern_pattern(hold, pattern), Status::kOk); });
  item.pattern = pattern.record;
  const uint32_t bound = insert_entries(w.table(), 1);
  int64_t key = 0;
  CHECK(entries_of(w.arena, [&](Hold& hold) { insert_items(hold, w.table(), &item, 1, &key); }) <= bound);
}

}  // namespace

TEST(an_items_counter_of_samples_stays_at_the_largest_number) {
  World w(arena_of({open_table("a", 4)}));
  Actor actor(w.arena, w.table());
  const uint32_t g = find_item(w.arena, w.table(), actor.insert());
  poke(w.arena.item(g).counted, {UINT32_MAX - 1, w.arena.item(g).counted.get().sampler_pos});
  const uint64_t unique = w.table().record->num_unique_samples.get();
  Learner learner(w.arena);
  for (int i = 0; i < 3; ++i) CHECK_EQ(learner.draw(w.table()).times_sampled, UINT32_MAX);
  CHECK_EQ(w.table().record->num_unique_samples.get(), unique);
  check_healthy(w.arena);
}

TEST(a_key_is_positive_finds_its_item_and_sorts_in_insertion_order) {
  World w(arena_of({open_table("a", 50)}));
  Actor actor(w.arena, w.table());
  std::vector<int64_t> keys;
  for (int i = 0; i < 50; ++i) keys.push_back(actor.insert());
  CHECK(std::is_sorted(keys.begin(), keys.end()));
  CHECK(keys.front() >= 1);
  for (const int64_t key : keys) {
    const uint32_t g = find_item(w.arena, w.table(), key);
    CHECK(g != kNone);
    CHECK_EQ(key_of(w.table(), g, w.arena.item(g).seq.get()), key);
  }
  CHECK_EQ(live_keys(w.arena, w.table()), keys);
}

TEST(a_key_that_was_never_given_finds_nothing) {
  World w(arena_of({open_table("a", 50)}));
  Actor actor(w.arena, w.table());
  const int64_t key = actor.insert();
  for (const int64_t wrong :
       {int64_t{0}, int64_t{-1}, INT64_MIN, INT64_MAX, key + 1, key - 1, key + 64, key + (int64_t{1} << 40)}) {
    CHECK(!is_live(w, wrong));
  }
}

TEST(the_key_of_an_evicted_item_stays_stale_for_ever) {
  for (const uint32_t max_size : {1u, 2u, 7u}) {
    World w(arena_of({open_table("a", max_size), open_table("b", max_size)}));
    Actor a(w.arena, w.table(0)), b(w.arena, w.table(1));
    std::vector<int64_t> gone, live;
    std::set<int64_t> ever;
    for (int i = 0; i < 2000; ++i) {
      live.push_back(a.insert());
      const int64_t other = b.insert();
      CHECK(ever.insert(live.back()).second);
      CHECK(!is_live(w, other, 0));  // a key finds nothing in another table
      if (live.size() > max_size) {
        gone.push_back(live.front());
        live.erase(live.begin());
      }
    }
    for (const int64_t key : gone) CHECK(!is_live(w, key));
    for (const int64_t key : live) CHECK(is_live(w, key));
  }
}

TEST(no_key_is_zero_when_the_low_bits_of_the_insertion_number_wrap) {
  for (uint64_t before = 0; before < 5; ++before) {  // some item in slot 0 is the one at the wrap
    World w(arena_of({open_table("a", 3)}));
    const uint32_t seq_bits = 63 - kShardBits - w.table().slot_bits;
    poke(w.arena.state().next_seq, (uint64_t{5} << seq_bits) - before);
    Actor actor(w.arena, w.table());
    for (int i = 0; i < 6; ++i) {
      const int64_t key = actor.insert();
      CHECK(key >= 1);
      CHECK(is_live(w, key));
    }
  }
}

TEST(a_full_table_evicts_what_its_remover_picks) {
  World w(arena_of({open_table("fifo", 3, kUniform, kFifo), open_table("lifo", 3, kUniform, kLifo)}));
  Actor fifo(w.arena, w.table(0)), lifo(w.arena, w.table(1));
  const int64_t oldest = fifo.insert();
  for (int i = 0; i < 3; ++i) fifo.insert();
  CHECK(!is_live(w, oldest));
  CHECK_EQ(live_items(w.table(0)), 3u);
  CHECK_EQ(record(w).evicted.get(), 1u);
  std::vector<int64_t> keys;
  for (int i = 0; i < 4; ++i) keys.push_back(lifo.insert());
  CHECK(is_live(w, keys[2], 1));
  CHECK(!is_live(w, keys[3], 1));  // the newcomer itself is the newest
  check_healthy(w.arena);
}

TEST(the_newcomer_itself_is_evicted_when_the_remover_picks_it) {
  World w(arena_of({open_table("a", 2, kPrioritized, kMinHeap)}));
  Actor actor(w.arena, w.table());
  const int64_t a = actor.insert(5), b = actor.insert(6), low = actor.insert(1);
  CHECK(is_live(w, a) && is_live(w, b) && !is_live(w, low));
  CHECK_EQ(record(w).limiter.inserts.get(), 3u);
  CHECK_EQ(record(w).limiter.deletes.get(), 1u);
  check_healthy(w.arena);
}

TEST(the_newcomer_of_an_episode_may_be_evicted_and_the_episode_goes_on) {
  World w(arena_of({open_table("a", 2, kUniform, kMinHeap)}));
  Actor actor(w.arena, w.table(), 8);
  for (int i = 0; i < 4; ++i) {
    actor.append();
    actor.create(1, 10 - i);  // each lower than those before: from the third on, the new item is evicted itself
    check_healthy(w.arena);
  }
  CHECK_EQ(record(w).num_episodes.get(), 1u);
}

TEST(an_item_sampled_as_often_as_allowed_is_gone) {
  TableSpec t = open_table("a", 10, kFifo);
  t.max_times_sampled = 3;
  World w(arena_of({t}));
  Actor actor(w.arena, w.table());
  Learner learner(w.arena);
  const int64_t first = actor.insert(), second = actor.insert();
  CHECK_EQ(record(w).remaining_samples.get(), 6u);
  for (uint32_t times = 1; times <= 3; ++times) {
    const Pick p = learner.draw(w.table());
    CHECK_EQ(p.key, first);
    CHECK_EQ(p.times_sampled, times);
    CHECK_EQ(record(w).remaining_samples.get(), 6 - times);
  }
  CHECK(!is_live(w, first));
  CHECK_EQ(learner.draw(w.table()).key, second);
  erase(w, {second});
  CHECK_EQ(record(w).remaining_samples.get(), 0u);
  CHECK_EQ(record(w).num_unique_samples.get(), 2u);
  check_healthy(w.arena);
}

TEST(an_item_deleted_unsampled_counts_as_sampled_where_the_limiter_says_so) {
  World w(arena_of({queue_table("q", 4), open_table("a", 10)}));
  Actor queue(w.arena, w.table(0)), other(w.arena, w.table(1));
  std::vector<int64_t> keys;
  for (int i = 0; i < 4; ++i) keys.push_back(queue.insert());
  CHECK(!can_insert(record(w), 1));
  CHECK_EQ(erase(w, {keys[1], keys[2]}), 2u);
  CHECK_EQ(record(w).limiter.samples.get(), 2u);
  CHECK(can_insert(record(w), 2) && !can_insert(record(w), 3));
  erase(w, {other.insert()}, 1);
  CHECK_EQ(record(w, 1).limiter.samples.get(), 0u);
}

TEST(an_item_that_was_sampled_is_not_counted_again_when_deleted) {
  TableSpec t = queue_table("q", 4);
  t.max_times_sampled = 2;
  World w(arena_of({t}));
  Actor actor(w.arena, w.table());
  Learner learner(w.arena);
  const int64_t key = actor.insert();
  learner.draw(w.table());
  erase(w, {key});
  CHECK_EQ(record(w).limiter.samples.get(), 1u);
}

TEST(an_items_step_is_the_index_of_its_first_step_in_the_episode) {
  World w(arena_of({open_table("a", 100)}));
  Actor actor(w.arena, w.table(), 8);
  const auto step = [&](int64_t key) { return w.arena.item(find_item(w.arena, w.table(), key)).step.get(); };
  for (int i = 0; i < 5; ++i) actor.append();
  CHECK_EQ(step(actor.create(3)), 2);
  CHECK_EQ(step(actor.create(5)), 0);
  actor.writer.end_episode(true);
  actor.append();
  CHECK_EQ(step(actor.create(1)), 0);
}

TEST(the_first_item_fixes_the_tables_structure_and_another_one_is_refused) {
  World w(arena_of({open_table("a", 100)}));
  Actor actor(w.arena, w.table(), 8);
  actor.append();
  actor.create(1);
  int64_t key = 0;
  PreparedPattern other(one_step_pattern(w.arena));
  CHECK_EQ(create_item(actor.writer, w.table(), other, 1, 1.0, kNow, key), Status::kStructure);
  CHECK_EQ(live_items(w.table()), 1u);
  check_healthy(w.arena);
}

TEST(the_priority_of_an_item_without_one_is_the_largest_live_one_or_one) {
  World w(arena_of({open_table("p", 100, kPrioritized), open_table("u", 100, kUniform)}));
  Actor p(w.arena, w.table(0)), u(w.arena, w.table(1));
  const auto priority = [&](int64_t key, uint32_t table) {
    return w.arena.priority(find_item(w.arena, w.table(table), key)).get();
  };
  CHECK_EQ(priority(p.insert(-1), 0), 1.0);
  const int64_t large = p.insert(7);
  CHECK_EQ(priority(p.insert(-1), 0), 7.0);
  u.insert(7);
  CHECK_EQ(priority(u.insert(-1), 1), 1.0);
  erase(w, live_keys(w.arena, w.table(0)));
  CHECK(!is_live(w, large));
  p.insert(0);
  CHECK_EQ(priority(p.insert(-1), 0), 1.0);  // all are zero: none is positive
}

TEST(resetting_empties_the_table_in_slices_and_begins_the_counters_anew) {
  World w(arena_of({open_table("a", 100, kPrioritized, kMinHeap)}));
  Actor actor(w.arena, w.table());
  Learner learner(w.arena);
  std::vector<int64_t> keys;
  for (int i = 0; i < 60; ++i) keys.push_back(actor.insert());
  for (int i = 0; i < 5; ++i) learner.draw(w.table());
  int slices = 0;
  for (bool done = false; !done; ++slices) {
    Hold hold(w.arena);
    CHECK_EQ(hold.begin(kNow), Status::kOk);
    done = reset_slice(hold, w.table());
  }
  CHECK(slices > 1);
  CHECK_EQ(live_items(w.table()), 0u);
  CHECK_EQ(record(w).limiter.inserts.get(), 0u);
  CHECK_EQ(record(w).limiter.samples.get(), 0u);
  CHECK_EQ(record(w).limiter.deletes.get(), 0u);
  CHECK_EQ(record(w).num_unique_samples.get(), 0u);
  for (const int64_t key : keys) CHECK(!is_live(w, key));
  CHECK(actor.insert() > keys.back());  // insertion numbers go on: old keys stay stale
  check_healthy(w.arena);
}

TEST(evicting_a_chunk_takes_every_item_that_reaches_into_it_of_any_table) {
  World w(arena_of({open_table("a", 100), open_table("b", 100)}, 4, 32));
  Actor actor(w.arena, w.table(0), 40);
  for (int i = 0; i < 16; ++i) actor.append();  // rows 0..15 in chunks of four
  const uint32_t second = [&] {
    Hold hold(w.arena);
    CHECK_EQ(hold.begin(kNow), Status::kOk);
    return w.arena.chunk(w.arena.stream(0).window.get().first).stream.get().next;
  }();
  const int64_t whole = actor.create(16), from_second = actor.create_in(w.table(1), 12), last_two = actor.create(8);
  actor.writer.close(kNow);
  for (bool done = false; !done;) {
    Hold hold(w.arena);
    CHECK_EQ(hold.begin(kNow), Status::kOk);
    done = evict_chunk_slice(hold, second);
  }
  CHECK(!is_live(w, whole, 0));
  CHECK(!is_live(w, from_second, 1));
  CHECK(is_live(w, last_two, 0));
  CHECK_EQ(static_cast<uint32_t>(w.arena.chunk(second).life.get().state), kChunkRetired);
  CHECK_EQ(record(w, 0).evicted_for_room.get(), 1u);
  CHECK_EQ(record(w, 1).evicted_for_room.get(), 1u);
  check_healthy(w.arena);
}

TEST(evicting_a_chunk_of_many_items_goes_in_slices) {
  World w(arena_of({open_table("a", 600)}, 512, 4));
  Actor actor(w.arena, w.table());
  for (int i = 0; i < 512; ++i) actor.insert();
  const uint32_t chunk = w.arena.state().used_chunks.get().head;
  actor.writer.close(kNow);
  int slices = 0;
  for (bool done = false; !done; ++slices) {
    Hold hold(w.arena);
    CHECK_EQ(hold.begin(kNow), Status::kOk);
    done = evict_chunk_slice(hold, chunk);
  }
  CHECK(slices > 1);
  CHECK_EQ(live_items(w.table()), 0u);
  check_healthy(w.arena);
}

// The room that a hold is asked to leave is an upper bound of what is then logged.
TEST(no_insert_or_removal_logs_more_than_it_announces) {
  Random random(seed());
  for (uint32_t kinds = 0; kinds < 36; ++kinds) {
    TableSpec spec = open_table("a", 20, kinds / 6, kinds % 6);
    spec.on_full = random.chance(0.5) ? kOnFullError : kOnFullEvict;
    World w(arena_of({spec}, 1 + static_cast<uint32_t>(random.below(3)), 700));
    Actor actor(w.arena, w.table(), 24);
    PreparedPattern pattern(whole_pattern(w.arena));
    for (int i = 0; i < 24; ++i) actor.append();
    for (int round = 0; round < 60; ++round) {
      actor.append();
      actor.create(1 + static_cast<uint32_t>(random.below(24)), random.uniform());
      if (random.chance(0.4)) check_removal(w, w.table().record->order.get().head);
      if (live_items(w.table()) > 0) check_insert(w, pattern, random.uniform());
    }
    check_healthy(w.arena);
  }
}

TEST(removing_an_item_twice_is_corruption) {
  World w(arena_of({open_table("a", 10)}));
  Actor actor(w.arena, w.table());
  const uint32_t g = find_item(w.arena, w.table(), actor.insert());
  const auto twice = [&] {
    Hold hold(w.arena);
    CHECK_EQ(hold.begin(kNow), Status::kOk);
    remove_item(hold, w.table(), g, Removal::kDeleted);
    remove_item(hold, w.table(), g, Removal::kDeleted);
  };
  CHECK_THROWS(CorruptIndex, "removed twice", twice());
  CHECK_EQ(live_items(w.table()), 1u);  // rolled back
}

}  // namespace shmreplay::test
