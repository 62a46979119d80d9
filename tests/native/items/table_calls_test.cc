#include "items/table_calls.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/leaf_weights.h"
#include "support/fixtures.h"

namespace shmreplay::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::vector<int64_t> insert(Actor& actor, int n) {
  std::vector<int64_t> keys;
  for (int i = 0; i < n; ++i) keys.push_back(actor.insert());
  return keys;
}

}  // namespace

TEST(the_first_priority_that_is_not_one_is_found) {
  World w(arena_of({open_table("a", 10, kUniform)}));
  const TableFacts& t = w.table();
  const double good[] = {0, 1, kMaxPriority, 5e-324};
  CHECK_EQ(first_bad_priority(t, good, 4), kAllGood);
  CHECK_EQ(first_bad_priority(t, good, 0), kAllGood);
  for (const double bad :
       {std::nan(""), kInfinity, -kInfinity, -1.0, -5e-324, std::nextafter(kMaxPriority, kInfinity)}) {
    const double some[] = {0, 1, bad, std::nan("")};
    CHECK_EQ(first_bad_priority(t, some, 4), 2u);
  }
}

// A priority whose power no leaf holds would count as much as one at the edge.
TEST(a_priority_whose_power_no_leaf_can_hold_is_none) {
  TableSpec spec = open_table("a", 10, kPrioritized);
  for (const double exponent : {0.0, 0.5, 1.0, 2.0, 3.0, 50.0}) {
    spec.sampler_exponent = exponent;
    World w(arena_of({spec}));
    const PriorityRange range = priority_range(exponent);
    const double within[] = {0, 1, std::max(range.least * (1 + 1e-12), 5e-324),
                             std::min(range.most * (1 - 1e-12), 1e279)};
    CHECK_EQ(first_bad_priority(w.table(), within, 4), kAllGood);
    for (const double p : within) {
      const double weight = leaf_weight(p, exponent);
      CHECK(p == 0 || (weight >= kLeastWeight && weight <= kMostWeight));
    }
    const double below = range.least * (1 - 1e-9), above = range.most * (1 + 1e-9);
    if (below > 0) CHECK_EQ(first_bad_priority(w.table(), &below, 1), 0u);
    if (above < kMaxPriority) CHECK_EQ(first_bad_priority(w.table(), &above, 1), 0u);
  }
}

TEST(an_exponent_that_a_live_priority_does_not_go_with_is_refused_and_changes_nothing) {
  World w(arena_of({open_table("a", 10, kPrioritized)}));
  Actor actor(w.arena, w.table());
  const std::vector<int64_t> keys = insert(actor, 2);
  for (const double p : {1e100, 1e-100}) {
    const double priorities[] = {p, 1};
    uint32_t updated = 0;
    CHECK_EQ(update_priorities(w.arena, w.table(), keys.data(), priorities, 2, kNow, updated), Status::kOk);
    CHECK_EQ(set_priority_exponent(w.arena, w.table(), 3, kNow), Status::kBadPriority);
    CHECK_EQ(w.table().record->reweigh_left.get(), 0u);
    CHECK_EQ(set_priority_exponent(w.arena, w.table(), 2, kNow), Status::kOk);
  }
  check_healthy(w.arena);
}

TEST(priorities_are_updated_by_key_and_stale_keys_are_skipped) {
  World w(arena_of({open_table("a", 100, kPrioritized)}));
  Actor actor(w.arena, w.table());
  std::vector<int64_t> keys = insert(actor, 40);
  uint32_t deleted = 0, updated = 0;
  CHECK_EQ(delete_items(w.arena, w.table(), keys.data(), 5, kNow, deleted), Status::kOk);
  std::vector<double> priorities(40);
  for (size_t i = 0; i < 40; ++i) priorities[i] = static_cast<double>(i);
  CHECK_EQ(update_priorities(w.arena, w.table(), keys.data(), priorities.data(), 40, kNow, updated), Status::kOk);
  CHECK_EQ(updated, 35u);
  for (size_t i = 5; i < 40; ++i)
    CHECK_EQ(w.arena.priority(find_item(w.arena, w.table(), keys[i])).get(), priorities[i]);
  check_healthy(w.arena);
}

TEST(a_key_given_twice_in_one_update_ends_with_its_last_priority) {
  World w(arena_of({open_table("a", 10, kPrioritized, kMinHeap)}));
  Actor actor(w.arena, w.table());
  const int64_t key = actor.insert();
  const int64_t keys[] = {key, key, key};
  const double priorities[] = {5, 0, 3};
  uint32_t updated = 0;
  CHECK_EQ(update_priorities(w.arena, w.table(), keys, priorities, 3, kNow, updated), Status::kOk);
  CHECK_EQ(updated, 3u);
  CHECK_EQ(w.arena.priority(find_item(w.arena, w.table(), key)).get(), 3.0);
  check_healthy(w.arena);
}

TEST(deleting_counts_each_item_once) {
  World w(arena_of({open_table("a", 100)}));
  Actor actor(w.arena, w.table());
  std::vector<int64_t> keys = insert(actor, 50);
  keys.insert(keys.end(), keys.begin(), keys.begin() + 20);
  uint32_t deleted = 0;
  CHECK_EQ(delete_items(w.arena, w.table(), keys.data(), static_cast<uint32_t>(keys.size()), kNow, deleted),
           Status::kOk);
  CHECK_EQ(deleted, 50u);
  CHECK_EQ(live_items(w.table()), 0u);
  check_healthy(w.arena);
}

// A group of the longest possible items does not fit one hold: the call takes more holds.
TEST(deleting_items_of_many_chunks_takes_as_many_holds_as_it_needs) {
  World w(arena_of({open_table("a", 100)}, 1, 2000));
  Actor actor(w.arena, w.table(), kMaxItemChunks);
  std::vector<int64_t> keys;
  for (int i = 0; i < 8; ++i) {
    for (uint32_t k = 0; k < kMaxItemChunks; ++k) actor.append();
    keys.push_back(actor.create(kMaxItemChunks));
  }
  actor.writer.close(kNow);
  uint32_t deleted = 0;
  CHECK_EQ(delete_items(w.arena, w.table(), keys.data(), 8, kNow, deleted), Status::kOk);
  CHECK_EQ(deleted, 8u);
  CHECK_EQ(w.arena.state().num_used.get(), 0u);
  check_healthy(w.arena);
}

TEST(a_reset_empties_the_table_and_leaves_its_limiter_and_others_alone) {
  World w(arena_of({open_table("a", 100), open_table("b", 100)}));
  Actor a(w.arena, w.table(0)), b(w.arena, w.table(1));
  insert(a, 50);
  insert(b, 3);
  CHECK_EQ(reset_table(w.arena, w.table(0), kNow), Status::kOk);
  CHECK_EQ(live_items(w.table(0)), 0u);
  CHECK_EQ(live_items(w.table(1)), 3u);
  CHECK_EQ(w.table(0).record->flags.get(), 0u);
  check_healthy(w.arena);
}

TEST(live_keys_are_those_of_the_live_items_in_insertion_order) {
  World w(arena_of({open_table("a", 30, kUniform, kUniform)}));
  Actor actor(w.arena, w.table());
  const std::vector<int64_t> ever = insert(actor, 300);
  const std::vector<int64_t> keys = live_keys(w.arena, w.table());
  CHECK_EQ(keys.size(), 30u);
  CHECK(std::is_sorted(keys.begin(), keys.end()));
  for (const int64_t key : keys) CHECK(std::binary_search(ever.begin(), ever.end(), key));
}

TEST(more_samples_than_a_queue_holds_are_not_admitted_at_once) {
  World w(arena_of({queue_table("q", 5)}));
  Actor actor(w.arena, w.table());
  CHECK(!can_sample_now(w.arena, w.table(), 1));
  insert(actor, 3);
  CHECK(can_sample_now(w.arena, w.table(), 3));
  CHECK(!can_sample_now(w.arena, w.table(), 4));
}

TEST(what_a_call_deletes_on_its_way_is_foreseen_where_the_order_decides) {
  for (const uint32_t sampler : {kFifo, kLifo}) {
    for (uint32_t before = 0; before < 8; ++before) {
      for (uint32_t n = 1; n < 22; ++n) {
        TableSpec t = open_table("a", 10, sampler);
        t.max_times_sampled = 3;
        t.min_size_to_sample = 4;
        World w(arena_of({t}));
        Actor actor(w.arena, w.table());
        insert(actor, 7);
        Learner learner(w.arena);
        Batch first(w.arena, 10), batch(w.arena, n);
        if (before > 0) CHECK_EQ(learner.sample(w.table(), before, first).done, before);
        const bool foreseen = can_sample_now(w.arena, w.table(), n);
        CHECK_EQ(learner.sample(w.table(), n, batch).done == n, foreseen);
      }
    }
  }
}

}  // namespace shmreplay::test
