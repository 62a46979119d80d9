#include "trees/distinct_draws.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "deaths/crash.h"

namespace shmreplay::test {
namespace {

// Draws batches without replacement from one table.
class Distinct {
 public:
  explicit Distinct(Arena& arena, uint64_t seed_ = 1) : call(arena), arena_(arena), random_(seed_) {}

  SampleResult sample(const TableFacts& table, uint32_t n, Batch& batch, bool count = true,
                      uint32_t at_least = UINT32_MAX, const Wait& wait = kNow) {
    std::vector<double> uniforms(n);
    for (double& u : uniforms) u = random_.uniform();
    SampleOptions options{n, std::min(at_least, n), count, uniforms.data(), nullptr, true};
    options.part = part;
    return call.sample(table, options, wait, batch);
  }

  // The keys drawn. Checks that there are n and that no two are equal.
  std::vector<int64_t> keys(const TableFacts& table, uint32_t n, bool count = true) {
    Batch batch(arena_, n);
    const SampleResult r = sample(table, n, batch, count);
    CHECK_EQ(r.status, Status::kOk);
    CHECK_EQ(r.done, n);
    batch.check_rows();
    std::vector<int64_t> found;
    for (const Pick& pick : batch.picks) found.push_back(pick.key);
    CHECK_EQ(std::set<int64_t>(found.begin(), found.end()).size(), size_t{n});
    return found;
  }

  SampleCall call;
  Part part;

 private:
  Arena& arena_;
  Random random_;
};

uint32_t slot_of(const TableFacts& t, int64_t key) {
  return static_cast<uint32_t>(key & ((int64_t{1} << t.slot_bits) - 1));
}

std::vector<int64_t> in_part(const TableFacts& t, const std::vector<int64_t>& keys, Part part) {
  std::vector<int64_t> mine;
  for (const int64_t key : keys) {
    if (part.has(slot_of(t, key))) mine.push_back(key);
  }
  return mine;
}

std::vector<int64_t> sorted(std::vector<int64_t> keys) {
  std::sort(keys.begin(), keys.end());
  return keys;
}

// χ² of how often each ordered selection of `n` of these weights came, compared with the product of its draws' shares.
void check_selections(const std::map<std::vector<size_t>, int>& came, const std::vector<double>& weights, int rounds) {
  double statistic = 0;
  for (const auto& [selection, times] : came) {
    double left = 0, probability = 1;
    for (const double w : weights) left += w;
    for (const size_t i : selection) {
      probability *= weights[i] / left;
      left -= weights[i];
    }
    const double expected = probability * rounds;
    statistic += (times - expected) * (times - expected) / expected;
  }
  CHECK(chi_square_tail(statistic, static_cast<double>(came.size() - 1)) > 1e-9);
}

void draw_selections(World& w, const std::vector<int64_t>& keys, const std::vector<double>& weights, uint32_t n,
                     size_t possible, Part part = {}) {
  Distinct draws(w.arena, seed());
  draws.part = part;
  std::map<std::vector<size_t>, int> came;
  constexpr int kRounds = 20'000;
  for (int i = 0; i < kRounds; ++i) {
    std::vector<size_t> selection;
    for (const int64_t key : draws.keys(w.table(), n)) {
      selection.push_back(static_cast<size_t>(std::find(keys.begin(), keys.end(), key) - keys.begin()));
    }
    ++came[selection];
  }
  CHECK_EQ(came.size(), possible);
  check_selections(came, weights, kRounds);
}

std::vector<int64_t> insert_all(World& w, const std::vector<double>& priorities) {
  Actor actor(w.arena, w.table());
  std::vector<int64_t> keys;
  for (const double p : priorities) keys.push_back(actor.insert(p));
  return keys;
}

}  // namespace

TEST(uniform_selections_are_all_alike) {
  World w(arena_of({open_table("a", 8)}));
  draw_selections(w, insert_all(w, {1, 1, 1, 1, 1}), {1, 1, 1, 1, 1}, 3, 60);
}

TEST(prioritised_selections_follow_the_weights_of_what_is_left) {
  World w(arena_of({open_table("a", 8, kPrioritized)}));
  draw_selections(w, insert_all(w, {1, 2, 4, 8}), {1, 2, 4, 8}, 4, 24);
}

TEST(where_almost_all_weight_is_drawn_the_rest_still_comes_in_proportion) {
  World w(arena_of({open_table("a", 8, kPrioritized)}));
  // The two heavy ones practically always take the first two draws; the others are picked among those left.
  const std::vector<double> weights = {1e9, 1e9, 1, 2, 4};
  draw_selections(w, insert_all(w, weights), weights, 5, 12);
}

TEST(all_zero_is_uniform_without_replacement_too) {
  World w(arena_of({open_table("a", 8, kPrioritized)}));
  draw_selections(w, insert_all(w, {0, 0, 0, 0}), {1, 1, 1, 1}, 4, 24);
}

TEST(a_whole_table_comes_once_each) {
  for (const uint32_t sampler : {kFifo, kLifo, kUniform, kPrioritized, kMinHeap, kMaxHeap}) {
    World w(arena_of({open_table("a", 700, sampler)}, 8, 256));
    std::vector<double> priorities(700);
    for (size_t i = 0; i < 700; ++i) priorities[i] = std::pow(1.1, static_cast<double>(i));
    const std::vector<int64_t> keys = insert_all(w, priorities);
    Distinct draws(w.arena, seed());
    std::vector<int64_t> drawn = draws.keys(w.table(), 700);
    if (sampler == kFifo || sampler == kMinHeap) CHECK_EQ(drawn, keys);
    if (sampler == kLifo || sampler == kMaxHeap) CHECK_EQ(drawn, std::vector<int64_t>(keys.rbegin(), keys.rend()));
    std::sort(drawn.begin(), drawn.end());
    CHECK_EQ(drawn, live_keys(w.arena, w.table()));
    check_healthy(w.arena);
  }
}

TEST(more_than_there_are_is_refused_before_anything_is_drawn) {
  for (const uint32_t sampler : {kFifo, kLifo, kUniform, kPrioritized, kMinHeap, kMaxHeap}) {
    World w(arena_of({open_table("a", 20, sampler)}));
    insert_all(w, {1, 0, 3, 0, 5});
    Distinct draws(w.arena);
    Batch batch(w.arena, 6);
    const uint64_t there = sampler == kPrioritized ? 3 : 5;
    const SampleResult r = draws.sample(w.table(), static_cast<uint32_t>(there) + 1, batch);
    CHECK_EQ(r.status, Status::kTooFewItems);
    CHECK_EQ(r.done, 0u);
    CHECK_EQ(r.available, there);
    CHECK_EQ(w.table().record->limiter.samples.get(), 0u);
    CHECK_EQ(draws.sample(w.table(), 21, batch).status, Status::kTooFewItems);
    CHECK_EQ(draws.sample(w.table(), 6, batch, true, static_cast<uint32_t>(there)).done, there);
    CHECK(named_chunks(w.arena).empty());
  }
}

TEST(items_that_may_be_sampled_twice_come_once_a_call_and_then_once_more) {
  for (const uint32_t sampler : {kFifo, kLifo, kUniform, kPrioritized, kMinHeap, kMaxHeap}) {
    TableSpec t = open_table("a", 60, sampler);
    t.max_times_sampled = 2;
    World w(arena_of({t}, 4, 64));
    insert_all(w, std::vector<double>(50, 2.0));
    Distinct draws(w.arena, seed());
    draws.keys(w.table(), 50);
    CHECK_EQ(live_items(w.table()), 50u);
    draws.keys(w.table(), 50);
    CHECK_EQ(live_items(w.table()), 0u);
    check_healthy(w.arena);
  }
}

TEST(a_queue_waits_for_items_as_ever) {
  World w(arena_of({queue_table("q", 10)}));
  insert_all(w, {1, 1, 1});
  Distinct draws(w.arena);
  Batch batch(w.arena, 5);
  const SampleResult r = draws.sample(w.table(), 5, batch);
  CHECK_EQ(r.status, Status::kTimeout);
  CHECK_EQ(r.done, 3u);
}

TEST(a_look_at_a_queue_shows_each_item_once) {
  World w(arena_of({queue_table("q", 10)}));
  const std::vector<int64_t> keys = insert_all(w, {1, 1, 1});
  Distinct draws(w.arena);
  CHECK_EQ(draws.keys(w.table(), 3, false), keys);
  CHECK_EQ(live_items(w.table()), 3u);
}

TEST(while_others_insert_delete_and_update_no_item_comes_twice) {
  for (const uint32_t sampler : {kFifo, kLifo, kUniform, kPrioritized, kMinHeap, kMaxHeap}) {
    World w(arena_of({open_table("a", 400, sampler)}, 4, 256));
    Random setup(seed());
    std::vector<double> priorities(400);
    for (double& p : priorities) p = std::exp(20 * setup.uniform());
    insert_all(w, priorities);
    std::atomic<bool> done{false};
    const auto disturber = [&] {
      Random random(7);
      Actor actor(w.arena, w.table());
      while (!done) {
        actor.insert(std::exp(20 * random.uniform()));
        const std::vector<int64_t> live = live_keys(w.arena, w.table());
        uint32_t n = 0;
        const double p = std::exp(20 * random.uniform());
        CHECK_EQ(update_priorities(w.arena, w.table(), &live[random.below(live.size())], &p, 1, kWhatever, n),
                 Status::kOk);
      }
    };
    const auto learner = [&] {
      Distinct draws(w.arena, 3);
      for (int i = 0; i < 40; ++i) {
        Batch batch(w.arena, 300);
        const SampleResult r = draws.sample(w.table(), 300, batch, true, UINT32_MAX, kWhatever);
        CHECK_EQ(r.status, Status::kOk);
        std::set<int64_t> keys;
        for (const Pick& pick : batch.picks) keys.insert(pick.key);
        CHECK_EQ(keys.size(), 300u);
        batch.check_rows();
      }
      done = true;
    };
    run_threads({disturber, learner});
    check_healthy(w.arena);
  }
}

TEST(what_comes_during_a_call_is_drawn_when_the_items_before_it_have_gone) {
  constexpr uint32_t kItems = 3000;  // more than a call draws before it delivers
  for (const uint32_t sampler : {kFifo, kLifo, kUniform, kPrioritized, kMinHeap, kMaxHeap}) {
    World w(arena_of({open_table("a", kItems, sampler)}, 16, 512));
    insert_all(w, std::vector<double>(kItems, 1.0));
    // When the first items are delivered, as many come as are not drawn yet, and take their places.
    class Replacing final : public BatchSink {
     public:
      explicit Replacing(World& world) : batch(world.arena, kItems), w_(world) {}
      bool prepare(const Pattern& structure, const uint32_t* rows, int64_t done) noexcept override {
        return batch.prepare(structure, rows, done);
      }
      std::vector<OutputBuffer>& outputs() noexcept override { return batch.outputs(); }
      void describe(int64_t first, const Pick* picks, uint32_t n) noexcept override {
        batch.describe(first, picks, n);
        if (first == 0) insert_all(w_, std::vector<double>(kItems - n, 1.0));
      }
      Batch batch;

     private:
      World& w_;
    } sink(w);
    SampleCall call(w.arena);
    const std::vector<double> uniforms(kItems, 0.5);
    const SampleOptions options{kItems, kItems, false, uniforms.data(), nullptr, true};
    const SampleResult r = call.sample(w.table(), options, kNow, sink);
    CHECK_EQ(r.status, Status::kOk);
    std::set<int64_t> keys;
    for (const Pick& pick : sink.batch.picks) keys.insert(pick.key);
    CHECK_EQ(keys.size(), size_t{kItems});
  }
}

TEST(a_call_whose_items_lose_their_priority_on_the_way_ends_with_what_it_drew) {
  World w(arena_of({open_table("a", 2000, kPrioritized)}, 8, 512));
  const std::vector<int64_t> keys = insert_all(w, std::vector<double>(2000, 1.0));
  class Meddling final : public BatchSink {
   public:
    Meddling(World& world, const std::vector<int64_t>& all) : batch(world.arena, 2000), w(world), keys_(all) {}
    bool prepare(const Pattern& structure, const uint32_t* rows, int64_t done) noexcept override {
      uint32_t n = 0;
      const std::vector<double> zeros(1999, 0.0);
      CHECK_EQ(update_priorities(w.arena, w.table(), keys_.data() + 1, zeros.data(), 1999, kNow, n), Status::kOk);
      return batch.prepare(structure, rows, done);
    }
    std::vector<OutputBuffer>& outputs() noexcept override { return batch.outputs(); }
    void describe(int64_t first, const Pick* picks, uint32_t n) noexcept override { batch.describe(first, picks, n); }
    Batch batch;
    World& w;
    const std::vector<int64_t>& keys_;
  } sink(w, keys);
  SampleCall call(w.arena);
  const std::vector<double> uniforms(2000, 0.5);
  const SampleOptions options{2000, 2000, false, uniforms.data(), nullptr, true};
  const SampleResult r = call.sample(w.table(), options, kNow, sink);
  CHECK(r.done > 100 && r.done < 2000);
  CHECK_EQ(r.status, Status::kTooFewItems);
  CHECK_EQ(r.available, 1u);
}

TEST(a_call_that_dies_at_any_point_leaves_whole_holds) {
  TableSpec t = open_table("a", 8, kPrioritized);
  t.max_times_sampled = 2;
  CrashLab lab(arena_of({t}, 4, 16));
  insert_all(lab.world, {1e9, 1, 1e8, 2, 1e7, 3});
  Distinct(lab.world.arena).keys(lab.world.table(), 2);  // some go with the next sample
  lab.run("sample without replacement", CrashLab::Holds::kMany, [](Arena& arena) -> std::function<void()> {
    auto* draws = new Distinct(arena, 5);
    auto* batch = new Batch(arena, 6);
    return [=, &arena] { CHECK_EQ(draws->sample(arena.table(0), 6, *batch).status, Status::kOk); };
  });
}

TEST(one_call_without_replacement_follows_from_its_numbers) {
  World w(arena_of({open_table("a", 500, kPrioritized)}, 8, 256));
  std::vector<double> priorities(500);
  for (size_t i = 0; i < 500; ++i) priorities[i] = std::pow(1.05, static_cast<double>(i));
  insert_all(w, priorities);
  Distinct one(w.arena, 9), other(w.arena, 9);
  CHECK_EQ(one.keys(w.table(), 400), other.keys(w.table(), 400));
}

// ---- parts --------------------------------------------------------------------------------------------------------

TEST(parts_of_several_learners_are_disjoint_and_leave_nothing_out) {
  for (const uint32_t sampler : {kUniform, kPrioritized}) {
    for (const uint32_t world_size : {2u, 3u, 7u, 64u}) {
      World w(arena_of({open_table("a", 300, sampler)}, 8, 128));
      std::vector<double> priorities(300);
      for (size_t i = 0; i < 300; ++i) priorities[i] = std::pow(1.1, static_cast<double>(i % 100));
      const std::vector<int64_t> keys = insert_all(w, priorities);
      Distinct draws(w.arena, seed());
      std::vector<int64_t> all;
      for (uint32_t rank = 0; rank < world_size; ++rank) {
        draws.part = {rank, world_size};
        const std::vector<int64_t> mine = in_part(w.table(), keys, draws.part);
        const std::vector<int64_t> drawn = draws.keys(w.table(), static_cast<uint32_t>(mine.size()));
        CHECK_EQ(sorted(drawn), mine);
        all.insert(all.end(), drawn.begin(), drawn.end());
      }
      CHECK_EQ(sorted(all), keys);
      check_healthy(w.arena);
    }
  }
}

TEST(a_few_of_a_large_part_come_as_they_were_asked_for) {
  for (const uint32_t sampler : {kUniform, kPrioritized}) {
    World w(arena_of({open_table("a", 4000, sampler)}, 32, 256));
    insert_all(w, std::vector<double>(4000, 1.0));
    Distinct draws(w.arena, seed());
    for (const Part part : {Part{1, 2}, Part{0, 8}, Part{63, 64}, Part{999, 1000}}) {
      draws.part = part;
      const uint32_t n = std::min(20u, 4000 / part.world_size / 2);
      const std::vector<int64_t> drawn = draws.keys(w.table(), n);
      CHECK_EQ(in_part(w.table(), drawn, part), drawn);
    }
  }
}

TEST(uniform_selections_of_a_part_are_all_alike) {
  World w(arena_of({open_table("a", 12)}));
  const Part part{1, 2};
  const std::vector<int64_t> mine = in_part(w.table(), insert_all(w, std::vector<double>(11, 1.0)), part);
  CHECK_EQ(mine.size(), 5u);
  draw_selections(w, mine, {1, 1, 1, 1, 1}, 3, 60, part);
}

TEST(prioritised_selections_of_a_part_follow_the_weights_of_what_is_left_of_it) {
  World w(arena_of({open_table("a", 12, kPrioritized)}));
  const std::vector<int64_t> keys = insert_all(w, {1, 3, 2, 5, 4, 7, 8, 9});
  draw_selections(w, in_part(w.table(), keys, {0, 2}), {1, 2, 4, 8}, 4, 24, {0, 2});
}

// Others' items have almost all weight: they are passed over, and the rest comes in proportion all the same.
TEST(what_others_have_of_the_weight_does_not_matter) {
  World w(arena_of({open_table("a", 12, kPrioritized)}));
  const std::vector<int64_t> keys = insert_all(w, {1, 1e9, 2, 1e12, 4, 1e10});
  draw_selections(w, in_part(w.table(), keys, {0, 2}), {1, 2, 4}, 2, 6, {0, 2});
}

TEST(more_than_there_are_in_a_part_is_refused_before_anything_is_drawn) {
  for (const uint32_t sampler : {kUniform, kPrioritized}) {
    World w(arena_of({open_table("a", 20, sampler)}));
    insert_all(w, {1, 1, 0, 1, 3, 1, 0, 1});
    Distinct draws(w.arena);
    draws.part = {0, 2};
    Batch batch(w.arena, 5);
    const uint32_t there = sampler == kPrioritized ? 2 : 4;
    const SampleResult r = draws.sample(w.table(), there + 1, batch);
    CHECK_EQ(r.status, Status::kTooFewItems);
    CHECK_EQ(r.done, 0u);
    CHECK_EQ(r.available, uint64_t{there});
    CHECK_EQ(w.table().record->limiter.samples.get(), 0u);
    CHECK_EQ(draws.sample(w.table(), 5, batch, true, 1).done, there);
    CHECK(named_chunks(w.arena).empty());
  }
}

// Also if other parts have more items than a call remembers, so that none of its holds comes to their end.
TEST(a_part_without_any_weight_is_found_to_have_none) {
  for (const uint32_t size : {10u, 1000u, 4000u}) {
    World w(arena_of({open_table("a", size, kPrioritized)}, 32, 256));
    std::vector<double> priorities(size, 1.0);
    for (size_t i = 0; i < size; i += 2) priorities[i] = 0;
    insert_all(w, priorities);
    Distinct draws(w.arena, seed());
    draws.part = {0, 2};
    Batch batch(w.arena, 1);
    const SampleResult r = draws.sample(w.table(), 1, batch);
    CHECK_EQ(r.status, Status::kTooFewItems);
    CHECK_EQ(r.done, 0u);
    CHECK_EQ(r.available, 0u);
    CHECK(named_chunks(w.arena).empty());
  }
}

TEST(the_one_item_of_a_part_that_has_weight_is_found_among_thousands) {
  World w(arena_of({open_table("a", 4000, kPrioritized)}, 32, 256));
  std::vector<double> priorities(4000, 1.0);
  for (size_t i = 0; i < 4000; i += 2) priorities[i] = i == 2222 ? 1e-3 : 0;
  const std::vector<int64_t> keys = insert_all(w, priorities);
  Distinct draws(w.arena, seed());
  draws.part = {0, 2};
  CHECK_EQ(draws.keys(w.table(), 1), std::vector<int64_t>{keys[2222]});
}

TEST(learners_of_a_table_that_consumes_get_their_parts_and_no_more) {
  TableSpec t = open_table("a", 60, kUniform);
  t.max_times_sampled = 1;
  World w(arena_of({t}, 4, 64));
  const std::vector<int64_t> keys = insert_all(w, std::vector<double>(50, 1.0));
  Distinct draws(w.arena, seed());
  draws.part = {1, 2};
  CHECK_EQ(sorted(draws.keys(w.table(), 25)), in_part(w.table(), keys, draws.part));
  CHECK_EQ(sorted(live_keys(w.arena, w.table())), in_part(w.table(), keys, {0, 2}));
  Batch batch(w.arena, 1);
  CHECK_EQ(draws.sample(w.table(), 1, batch).status, Status::kTooFewItems);
  check_healthy(w.arena);
}

TEST(learners_side_by_side_never_draw_each_others_items_whatever_changes) {
  for (const uint32_t sampler : {kUniform, kPrioritized}) {
    World w(arena_of({open_table("a", 400, sampler)}, 4, 256));
    Random setup(seed());
    std::vector<double> priorities(400);
    for (double& p : priorities) p = std::exp(20 * setup.uniform());
    insert_all(w, priorities);
    std::atomic<int> learning{3};
    const auto actor = [&] {
      Random random(7);
      Actor writer(w.arena, w.table());
      while (learning > 0) {
        writer.insert(std::exp(20 * random.uniform()));
        const std::vector<int64_t> live = live_keys(w.arena, w.table());
        uint32_t n = 0;
        const double p = std::exp(20 * random.uniform());
        CHECK_EQ(update_priorities(w.arena, w.table(), &live[random.below(live.size())], &p, 1, kWhatever, n),
                 Status::kOk);
      }
    };
    const auto learner = [&](uint32_t rank) {
      Distinct draws(w.arena, 3 + rank);
      draws.part = {rank, 3};
      for (int i = 0; i < 40; ++i) {
        Batch batch(w.arena, 100);
        CHECK_EQ(draws.sample(w.table(), 100, batch, true, UINT32_MAX, kWhatever).status, Status::kOk);
        std::set<int64_t> keys;
        for (const Pick& pick : batch.picks) {
          CHECK(draws.part.has(slot_of(w.table(), pick.key)));
          keys.insert(pick.key);
        }
        CHECK_EQ(keys.size(), 100u);
        batch.check_rows();
      }
      --learning;
    };
    run_threads({actor, [&] { learner(0); }, [&] { learner(1); }, [&] { learner(2); }});
    check_healthy(w.arena);
  }
}

TEST(a_call_for_a_part_that_dies_at_any_point_leaves_whole_holds) {
  CrashLab lab(arena_of({open_table("a", 8, kPrioritized)}, 4, 16));
  insert_all(lab.world, {1, 1e9, 1, 1e8, 2, 1e7, 3, 2});
  lab.run("sample of a part", CrashLab::Holds::kMany, [](Arena& arena) -> std::function<void()> {
    auto* draws = new Distinct(arena, 5);
    draws->part = {0, 2};
    auto* batch = new Batch(arena, 4);
    return [=, &arena] { CHECK_EQ(draws->sample(arena.table(0), 4, *batch).status, Status::kOk); };
  });
}

TEST(one_call_for_a_part_follows_from_its_numbers) {
  World w(arena_of({open_table("a", 500, kPrioritized)}, 8, 256));
  std::vector<double> priorities(500);
  for (size_t i = 0; i < 500; ++i) priorities[i] = std::pow(1.05, static_cast<double>(i));
  insert_all(w, priorities);
  Distinct one(w.arena, 9), other(w.arena, 9);
  one.part = other.part = {2, 4};
  CHECK_EQ(one.keys(w.table(), 100), other.keys(w.table(), 100));
}

}  // namespace shmreplay::test
