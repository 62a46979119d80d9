#include "read/shard_draw.h"

#include <algorithm>
#include <cmath>
#include <csignal>

#include "support/fixtures.h"

namespace shmreplay::test {
namespace {

ArenaSpec shard_spec(uint32_t number, uint32_t sampler) {
  TableSpec t = open_table("t~" + std::to_string(number), 100, sampler);
  t.shard = number;
  return arena_of({t});
}

// What a part puts at which place, and what it says of its items.
class PlacedBatch final : public ShardSink {
 public:
  PlacedBatch(const std::vector<std::unique_ptr<World>>& worlds, uint32_t n)
      : picks(n), filled(n), batch_(worlds[0]->arena, n) {}
  void begin_part(const uint32_t* places, double share, uint64_t) noexcept override {
    places_ = places;
    share_ = share;
  }
  bool prepare(const Pattern& structure, const uint32_t* rows, int64_t done) noexcept override {
    return batch_.prepare(structure, rows, done);
  }
  std::vector<OutputBuffer>& outputs() noexcept override {
    for (OutputBuffer& out : batch_.outputs()) out.places = places_;
    return batch_.outputs();
  }
  void describe(int64_t first, const Pick* drawn, uint32_t n) noexcept override {
    for (uint32_t i = 0; i < n; ++i) {
      const uint32_t place = places_[first + i];
      picks[place] = drawn[i];
      picks[place].probability *= share_;
      ++filled[place];
    }
  }
  // Called when every part is there.
  void finish() {
    for (OutputBuffer& out : batch_.outputs()) out.places = nullptr;
    batch_.check_rows();
  }
  uint64_t serial(uint32_t place) const { return batch_.serial(place); }

  std::vector<Pick> picks;
  std::vector<int> filled;

 private:
  Batch batch_;
  const uint32_t* places_ = nullptr;
  double share_ = 0;
};

// Several arenas of one table, each with an actor.
class Shards {
 public:
  explicit Shards(uint32_t k, uint32_t sampler = kUniform) {
    for (uint32_t i = 0; i < k; ++i) {
      worlds.push_back(std::make_unique<World>(shard_spec(i, sampler)));
      actors.push_back(std::make_unique<Actor>(worlds[i]->arena, worlds[i]->table(), 0, 1 + 1000 * i));
      calls_.push_back(std::make_unique<SampleCall>(worlds[i]->arena));
      calls.push_back(calls_.back().get());
    }
  }
  std::vector<Shard> list() const {
    std::vector<Shard> found;
    for (const auto& w : worlds) found.push_back({&w->arena, &w->table()});
    return found;
  }
  std::vector<std::unique_ptr<World>> worlds;
  std::vector<std::unique_ptr<Actor>> actors;
  std::vector<SampleCall*> calls;

 private:
  std::vector<std::unique_ptr<SampleCall>> calls_;
};

std::vector<double> evenly(uint32_t n) {
  std::vector<double> u(2 * n);
  for (uint32_t i = 0; i < n; ++i) u[i] = (i + 0.5) / n, u[n + i] = 0.5;
  return u;
}

}  // namespace

TEST(a_key_says_its_shard_and_hits_nothing_in_another) {
  for (const uint32_t number : {0u, 1u, 127u}) {
    World w(shard_spec(number, kUniform)), other(shard_spec((number + 1) % 128, kUniform));
    Actor actor(w.arena, w.table());
    const int64_t key = actor.insert();
    CHECK(key > 0);
    CHECK_EQ(static_cast<uint32_t>(key >> kShardShift), number);
    CHECK(find_item(w.arena, w.table(), key) != kNone);
    CHECK_EQ(find_item(w.arena, w.table(), key ^ (int64_t{1} << kShardShift)), kNone);
    CHECK_EQ(find_item(other.arena, other.table(), key), kNone);
    const Pick pick = Learner(w.arena).draw(w.table());
    CHECK_EQ(pick.key, key);
    CHECK_EQ(static_cast<uint32_t>(pick.episode >> kShardShift), number);
  }
  ArenaSpec spec = shard_spec(0, kUniform);
  spec.tables[0].shard = 128;
  CHECK_THROWS(std::invalid_argument, "shard is 128", plan_arena(spec));
}

TEST(every_place_is_filled_once_from_the_shard_that_its_number_picks) {
  Shards s(3, kPrioritized);
  // Totals 10, 0 and 30.
  for (int i = 0; i < 10; ++i) s.actors[0]->insert(1.0);
  for (int i = 0; i < 10; ++i) s.actors[1]->insert(0.0);
  for (int i = 0; i < 10; ++i) s.actors[2]->insert(3.0);
  ShardDraw draw(s.list(), 80);
  PlacedBatch batch(s.worlds, 80);
  CHECK_EQ(draw.draw(s.calls, {.n = 80, .uniforms = evenly(80).data()}, kNow, batch), Status::kOk);
  CHECK_EQ(draw.done(), 80u);
  CHECK_EQ(draw.open(), 0u);
  batch.finish();
  for (uint32_t i = 0; i < 80; ++i) {
    CHECK_EQ(batch.filled[i], 1);
    CHECK_EQ(batch.picks[i].key >> kShardShift, i < 20 ? 0 : 2);
    CHECK_EQ(batch.picks[i].probability, (i < 20 ? 0.25 : 0.75) * 0.1);
    CHECK_EQ(batch.serial(i) / 1000, i < 20 ? 0u : 2u);
  }
  CHECK_EQ(draw.smallest_probability(), 1.0 / 40);
  for (const auto& w : s.worlds) check_healthy(w->arena);
}

TEST(what_a_shard_does_not_admit_is_drawn_from_the_others_in_the_next_round) {
  Shards s(2);
  for (int i = 0; i < 4; ++i) s.actors[0]->insert(), s.actors[1]->insert();
  CHECK_EQ(change_limiter(s.worlds[0]->arena, s.worlds[0]->table(), {1.0, 0.0, 1e300, 1, false}, false, kNow),
           Status::kOk);
  ShardDraw draw(s.list(), 40);
  PlacedBatch batch(s.worlds, 40);
  CHECK_EQ(draw.draw(s.calls, {.n = 40, .uniforms = evenly(40).data()}, kNow, batch), Status::kOk);
  CHECK_EQ(draw.done(), 24u);  // 4 of one and all 20 of the other
  CHECK_EQ(draw.open(), 16u);
  CHECK_EQ(draw.draw(s.calls, {.n = 16, .uniforms = evenly(16).data()}, kNow, batch), Status::kOk);
  CHECK_EQ(draw.open(), 0u);
  std::vector<uint32_t> places = draw.places();
  std::sort(places.begin(), places.end());
  for (uint32_t i = 0; i < 40; ++i) CHECK_EQ(places[i], i), CHECK_EQ(batch.filled[i], 1);
  const auto is_of_first = [](const Pick& p) { return p.key >> kShardShift == 0; };
  CHECK_EQ(std::count_if(batch.picks.begin(), batch.picks.end(), is_of_first), 4);
  for (uint32_t i = 4; i < 20; ++i) CHECK_EQ(batch.picks[i].probability, 0.25);  // the first counts as empty
  batch.finish();
}

TEST(a_wait_for_all_shards_is_ended_by_any_of_them) {
  for (const uint32_t number : {0u, 1u, 2u}) {
    Shards s(3);
    std::vector<std::unique_ptr<Arena>> own;
    std::vector<Shard> shards;
    for (const auto& w : s.worlds) {
      own.push_back(w->client());
      shards.push_back({own.back().get(), &own.back()->table(0)});
    }
    Status status = Status::kTimeout;
    run_threads({[&] { status = ShardDraw(shards, 1).wait(true, kWhatever); },
                 [&] {
                   until([&] {
                     const auto waits = [](const auto& w) { return sleepers(w->table(), kSamples) == 1; };
                     return std::all_of(s.worlds.begin(), s.worlds.end(), waits);
                   });
                   s.actors[number]->insert();
                 }});
    CHECK_EQ(status, Status::kOk);
    for (const auto& w : s.worlds) CHECK_EQ(sleepers(w->table(), kSamples), 0u), check_healthy(w->arena);
  }
}

TEST(a_wait_for_all_shards_ends_in_time_and_by_its_caller) {
  Shards s(3);
  ShardDraw draw(s.list(), 1);
  CHECK_EQ(draw.wait(true, kNow), Status::kTimeout);
  CHECK_EQ(draw.wait(true, {now_ns() + 20'000'000, nullptr}), Status::kTimeout);
  CHECK_EQ(draw.wait(false, {now_ns() + 20'000'000, nullptr}), Status::kTimeout);
  Listener listener;
  listener.interrupt = true;
  CHECK_EQ(draw.wait(true, {kForever, &listener}), Status::kInterrupted);
  for (const auto& w : s.worlds) CHECK_EQ(sleepers(w->table(), kSamples), 0u);
  s.actors[1]->insert();
  CHECK_EQ(draw.wait(true, kNow), Status::kOk);
  CHECK_EQ(drop_tables(s.worlds[2]->arena, kNow), Status::kOk);
  CHECK_EQ(ShardDraw({s.list()[2]}, 1).wait(true, kNow), Status::kClosed);
}

TEST(a_process_that_dies_in_a_wait_for_all_shards_is_counted_off) {
  Shards s(2);
  Child child([&] {
    std::vector<Shard> shards;
    std::vector<std::unique_ptr<Arena>> own;
    for (const auto& w : s.worlds) {
      own.push_back(w->segments.attach());
      const SessionInfo session = open_own_session(*own.back());
      own.push_back(w->segments.attach(session.index, session.generation));
      shards.push_back({own.back().get(), &own.back()->table(0)});
    }
    ShardDraw(shards, 1).wait(true, kWhatever);
  });
  for (const auto& w : s.worlds) until([&] { return sleepers(w->table(), kSamples) == 1; });
  child.send(SIGKILL);
  child.wait();
  for (const auto& w : s.worlds) {
    for (const SessionInfo& info : live_sessions(*w->daemon)) {
      if (info.pid != static_cast<uint32_t>(child.pid())) continue;
      bool reaped = false;
      CHECK_EQ(close_session(*w->daemon, info.index, info.generation, kNow, reaped), Status::kOk);
    }
    CHECK_EQ(sleepers(w->table(), kSamples), 0u);
    check_healthy(w->arena);
  }
}

TEST(live_items_of_all_shards_are_found_by_their_keys) {
  Shards s(2);
  std::vector<int64_t> keys[2];
  for (int i = 0; i < 5; ++i) {
    for (int k = 0; k < 2; ++k) keys[k].push_back(s.actors[k]->insert());
  }
  uint32_t deleted = 0;
  CHECK_EQ(delete_items(s.worlds[0]->arena, s.worlds[0]->table(), &keys[0][2], 1, kNow, deleted), Status::kOk);
  ShardDraw draw(s.list(), 10);
  PlacedBatch batch(s.worlds, 10);
  uint32_t found[5];
  CHECK_EQ(draw.get(0, *s.calls[0], keys[0].data(), 5, kNow, batch, found).done, 4u);
  CHECK_EQ(draw.get(1, *s.calls[1], keys[1].data(), 5, kNow, batch, found).done, 5u);
  CHECK_EQ(draw.done(), 9u);
  for (uint32_t i = 0; i < 9; ++i) {
    const int64_t expected = i < 4 ? keys[0][i < 2 ? i : i + 1] : keys[1][i - 4];
    CHECK_EQ(batch.picks[i].key, expected);
    CHECK(std::abs(batch.picks[i].probability - 1.0 / 9) < 1e-12);
  }
}

}  // namespace shmreplay::test
