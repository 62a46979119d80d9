#include "trees/reweigh.h"

#include <cmath>

#include "base/leaf_weights.h"
#include "deaths/crash.h"
#include "items/rebuild.h"

namespace shmreplay::test {
namespace {

constexpr uint32_t kItems = 300;  // three slices, the last one short

ArenaSpec prioritised(uint32_t max_size = kItems) {
  TableSpec t = open_table("a", max_size, kPrioritized);
  t.sampler_exponent = 1;
  return arena_of({t}, 16, 64);
}

std::vector<int64_t> fill(World& w, uint32_t n = kItems) {
  Actor actor(w.arena, w.table());
  std::vector<int64_t> keys;
  for (uint32_t i = 0; i < n; ++i) keys.push_back(actor.insert(i % 7 == 0 ? 0 : 1.0 + i));
  return keys;
}

double leaf(const World& w, uint32_t slot) { return SumTree(w.arena, w.table().roles[kSampler].sum).leaf(slot); }

uint32_t left(const World& w) { return w.table().record->reweigh_left.get(); }

// Checks that every leaf has that exponent.
void check_leaves(World& w, double exponent) {
  CHECK_EQ(left(w), 0u);
  for (uint32_t slot = 0; slot < w.table().capacity; ++slot) {
    CHECK_EQ(leaf(w, slot),
             leaf_weight(w.arena.priority(static_cast<uint32_t>(w.table().item_base + slot)).get(), exponent));
  }
  check_healthy(w.arena);
}

// Leaves the change as a caller would that died after its first hold.
void begin_change(World& w, double exponent) {
  Hold hold(w.arena);
  CHECK_EQ(hold.begin(kNow), Status::kOk);
  hold.set(w.table().record->exponents[kSampler], exponent);
  hold.set(w.table().record->reweigh_left, w.table().capacity);
}

}  // namespace

TEST(every_leaf_follows_the_new_exponent) {
  World w(prioritised());
  fill(w);
  for (const double exponent : {0.6, 0.0, 2.0, 1.0}) {
    CHECK_EQ(set_priority_exponent(w.arena, w.table(), exponent, kNow), Status::kOk);
    check_leaves(w, exponent);
  }
  World empty(prioritised(1));
  CHECK_EQ(set_priority_exponent(empty.arena, empty.table(), 0.5, kNow), Status::kOk);
  fill(empty, 1);
  check_leaves(empty, 0.5);
}

TEST(a_call_that_meets_a_change_does_one_slice_of_it_and_its_own_work) {
  World w(prioritised());
  const std::vector<int64_t> keys = fill(w);
  begin_change(w, 0.5);
  CHECK_EQ(left(w), kItems + 1);
  Learner learner(w.arena);
  Batch batch(w.arena, 8);
  CHECK_EQ(learner.sample(w.table(), 8, batch).status, Status::kOk);
  CHECK_EQ(left(w), 256u);
  check_healthy(w.arena);
  const double priority = 50;
  uint32_t n = 0;
  CHECK_EQ(update_priorities(w.arena, w.table(), &keys[3], &priority, 1, kNow, n), Status::kOk);
  CHECK_EQ(left(w), 128u);
  CHECK_EQ(leaf(w, 3), leaf_weight(50, 0.5));  // an updated item follows at once
  CHECK_EQ(leaf(w, 4), leaf_weight(5, 1));
  check_healthy(w.arena);
  CHECK_EQ(delete_items(w.arena, w.table(), &keys[9], 1, kNow, n), Status::kOk);
  check_leaves(w, 0.5);
}

TEST(draws_meanwhile_report_the_probability_of_the_leaf_they_met) {
  World w(prioritised());
  fill(w);
  begin_change(w, 0.5);
  SampleCall call(w.arena);
  for (int i = 0; i < 3; ++i) {
    Batch batch(w.arena, 12);
    Learner learner(w.arena, static_cast<uint64_t>(i));
    CHECK_EQ(learner.sample(w.table(), 12, batch).status, Status::kOk);
    const double total = SumTree(w.arena, w.table().roles[kSampler].sum).total();
    for (const Pick& pick : batch.picks) {
      const uint32_t slot = find_item(w.arena, w.table(), pick.key) - static_cast<uint32_t>(w.table().item_base);
      CHECK_EQ(pick.probability, leaf(w, slot) / total);
    }
  }
  check_leaves(w, 0.5);
}

TEST(a_second_change_starts_over) {
  World w(prioritised());
  fill(w);
  begin_change(w, 0.5);
  Learner learner(w.arena);
  (void)learner.draw(w.table());
  begin_change(w, 3.0);
  CHECK_EQ(left(w), kItems + 1);
  CHECK_EQ(set_priority_exponent(w.arena, w.table(), 0.25, kNow), Status::kOk);
  check_leaves(w, 0.25);
}

TEST(inserts_deletes_and_a_reset_go_on_during_a_change) {
  World w(prioritised());
  fill(w);
  begin_change(w, 0.5);
  CHECK_EQ(reset_table(w.arena, w.table(), kNow), Status::kOk);
  check_healthy(w.arena);
  fill(w, 40);
  Learner learner(w.arena);
  for (int i = 0; i < 4; ++i) (void)learner.draw(w.table());
  check_leaves(w, 0.5);
}

TEST(a_rebuild_in_the_middle_of_a_change_makes_every_leaf_by_the_new_exponent) {
  World w(prioritised());
  fill(w);
  begin_change(w, 0.5);
  CHECK_EQ(rebuild(w.arena, kNow), Status::kOk);
  check_leaves(w, 0.5);
}

TEST(a_change_that_dies_at_any_point_is_finished_by_others) {
  TableSpec t = open_table("a", kItems, kPrioritized);
  CrashLab lab(arena_of({t}, 16, 64));
  fill(lab.world);
  const Operation changes = [](Arena& arena) -> std::function<void()> {
    return [&arena] { CHECK_EQ(set_priority_exponent(arena, arena.table(0), 0.5, kNow), Status::kOk); };
  };
  lab.run("change of exponent", CrashLab::Holds::kMany, changes);
  lab.save();
  for (int64_t k = 1; lab.perform(changes, k); k += kSanitized ? 1499 : 97) {
    lab.recover();
    Learner learner(lab.world.arena);
    for (int i = 0; i < 3; ++i) (void)learner.draw(lab.world.table());
    // If it died before its first hold was committed, there is no change.
    check_leaves(lab.world, lab.world.table().record->exponents[kSampler].get());
    lab.restore();
  }
}

TEST(everybody_goes_on_while_the_exponent_changes_again_and_again) {
  World w(prioritised());
  fill(w);
  std::atomic<int> done{0};
  const auto changer = [&] {
    Random random(1);
    while (done < 2) CHECK_EQ(set_priority_exponent(w.arena, w.table(), random.uniform(), kWhatever), Status::kOk);
  };
  const auto learner = [&] {
    Learner l(w.arena);
    for (int i = 0; i < 300; ++i) {
      Batch batch(w.arena, 32);
      CHECK_EQ(l.sample(w.table(), 32, batch, kWhatever).status, Status::kOk);
      for (const Pick& pick : batch.picks) CHECK(pick.probability > 0 && pick.probability <= 1);
    }
    ++done;
  };
  const auto actor = [&] {
    Actor a(w.arena, w.table(), 0, 1000);
    for (int i = 0; i < 2000; ++i) {
      int64_t key = 0;
      CHECK_EQ(a.try_insert(1.0 + i % 5, kWhatever, key), Status::kOk);
    }
    ++done;
  };
  run_threads({changer, learner, actor});
  check_healthy(w.arena);
}

}  // namespace shmreplay::test
