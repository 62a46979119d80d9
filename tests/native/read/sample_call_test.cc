#include "read/sample_call.h"

#include <algorithm>
#include <set>

#include "support/fixtures.h"

namespace shmreplay::test {
namespace {

ArenaSpec limited(uint32_t max_size, double min_diff, double max_diff) {
  TableSpec t = open_table("a", max_size);
  t.min_diff = min_diff;
  t.max_diff = max_diff;
  return arena_of({t});
}

uint64_t counted_samples(World& w) { return w.table().record->limiter.samples.get(); }

std::vector<int64_t> insert(Actor& actor, int n, double priority = 1) {
  std::vector<int64_t> keys;
  for (int i = 0; i < n; ++i) keys.push_back(actor.insert(priority));
  return keys;
}

// A sink that lets the test do something between the draw and the gather of a part.
class Meddling final : public BatchSink {
 public:
  Meddling(Batch& batch, std::function<void()> meddle) : batch_(batch), meddle_(std::move(meddle)) {}
  bool prepare(const Pattern& structure, const uint32_t* rows, int64_t done) noexcept override {
    meddle_();
    ++parts;
    return batch_.prepare(structure, rows, done);
  }
  std::vector<OutputBuffer>& outputs() noexcept override { return batch_.outputs(); }
  void describe(int64_t first, const Pick* picks, uint32_t n) noexcept override { batch_.describe(first, picks, n); }
  int parts = 0;

 private:
  Batch& batch_;
  std::function<void()> meddle_;
};

SampleResult sample_into(World& w, BatchSink& sink, uint32_t n) {
  SampleCall call(w.arena);
  const std::vector<double> uniforms(n, 0.5);
  return call.sample(w.table(), {n, n, true, uniforms.data()}, kNow, sink);
}

}  // namespace

TEST(a_batch_shows_whole_rows_and_describes_each_item) {
  World w(arena_of({open_table("a", 100, kPrioritized)}));
  Actor actor(w.arena, w.table());
  const std::vector<int64_t> keys = insert(actor, 10, 2.0);
  Learner learner(w.arena);
  Batch batch(w.arena, 64);
  const SampleResult r = learner.sample(w.table(), 64, batch);
  CHECK_EQ(r.status, Status::kOk);
  CHECK_EQ(r.done, 64u);
  CHECK_NEAR(r.smallest_probability, 0.1, 1e-15);
  batch.check_rows();
  uint64_t times = 0;
  for (int64_t i = 0; i < 64; ++i) {
    const Pick& p = batch.picks[static_cast<size_t>(i)];
    const auto serial = batch.serial(i);
    CHECK_EQ(p.key, keys[serial - 1]);
    CHECK_EQ(p.priority, 2.0);
    CHECK_NEAR(p.probability, 0.1, 1e-15);
    CHECK_EQ(p.table_size, 10u);
    CHECK_EQ(p.age, static_cast<int64_t>(10 - serial));
    CHECK_EQ(p.step, 0);
    CHECK(p.times_sampled >= 1);
    times = std::max<uint64_t>(times, p.times_sampled);
  }
  CHECK(times > 1);
  CHECK_EQ(counted_samples(w), 64u);
}

TEST(an_empty_table_admits_nobody) {
  World w(limited(100, 0, 10));
  Learner learner(w.arena);
  Batch batch(w.arena, 1);
  const SampleResult r = learner.sample(w.table(), 1, batch);
  CHECK_EQ(r.status, Status::kTimeout);
  CHECK_EQ(r.done, 0u);
}

TEST(a_call_that_times_out_delivers_what_it_drew) {
  World w(arena_of({queue_table("q", 10)}));
  Actor actor(w.arena, w.table());
  const std::vector<int64_t> keys = insert(actor, 3);
  Learner learner(w.arena);
  Batch batch(w.arena, 5);
  const SampleResult r = learner.sample(w.table(), 5, batch);
  CHECK_EQ(r.status, Status::kTimeout);
  CHECK_EQ(r.done, 3u);
  for (int64_t i = 0; i < 3; ++i) {
    CHECK_EQ(batch.picks[static_cast<size_t>(i)].key, keys[static_cast<size_t>(i)]);
    CHECK_EQ(batch.serial(i), static_cast<uint64_t>(i) + 1);
  }
  CHECK_EQ(live_items(w.table()), 0u);
  CHECK_EQ(sleepers(w.table(), kSamples), 0u);
  check_healthy(w.arena);
}

TEST(fewer_items_are_enough_once_at_least_so_many_are_drawn) {
  World w(arena_of({queue_table("q", 10)}));
  Actor actor(w.arena, w.table());
  insert(actor, 3);
  Learner learner(w.arena);
  Batch batch(w.arena, 5);
  SampleResult r = learner.sample(w.table(), 5, batch, kNow, true, 2);
  CHECK_EQ(r.status, Status::kOk);
  CHECK_EQ(r.done, 3u);
  insert(actor, 1);
  r = learner.sample(w.table(), 5, batch, kNow, true, 2);
  CHECK_EQ(r.status, Status::kTimeout);
  CHECK_EQ(r.done, 1u);
}

TEST(the_limiter_admits_a_call_up_to_its_bound_exactly) {
  World w(limited(100, 0, 1000));
  Actor actor(w.arena, w.table());
  insert(actor, 40);
  Learner learner(w.arena);
  Batch batch(w.arena, 60);
  CHECK_EQ(learner.sample(w.table(), 60, batch).done, 40u);
  CHECK_EQ(counted_samples(w), 40u);
}

TEST(a_look_that_does_not_count_needs_no_permission_and_moves_nothing) {
  World w(limited(100, 0, 1000));
  Actor actor(w.arena, w.table());
  insert(actor, 4);
  Learner learner(w.arena);
  Batch batch(w.arena, 50);
  const SampleResult r = learner.sample(w.table(), 50, batch, kNow, false);
  CHECK_EQ(r.status, Status::kOk);
  CHECK_EQ(r.done, 50u);
  batch.check_rows();
  CHECK_EQ(batch.picks[49].times_sampled, 0u);
  CHECK_EQ(counted_samples(w), 0u);
  CHECK_EQ(w.table().record->num_unique_samples.get(), 0u);
}

TEST(a_look_at_a_consuming_table_consumes_nothing) {
  World w(arena_of({queue_table("q", 10)}));
  Actor actor(w.arena, w.table());
  const std::vector<int64_t> keys = insert(actor, 2);
  Learner learner(w.arena);
  for (int i = 0; i < 3; ++i) CHECK_EQ(learner.draw(w.table(), false).key, keys[0]);
  CHECK_EQ(live_items(w.table()), 2u);
}

TEST(a_batch_of_thousands_comes_in_parts_and_nobody_can_tell) {
  World w(arena_of({open_table("a", 100)}, 4, 64));
  Actor actor(w.arena, w.table(), 8);
  for (int i = 0; i < 50; ++i) {
    actor.append();
    actor.create(std::min(static_cast<uint32_t>(i) + 1, 6u));
  }
  Learner learner(w.arena);
  Batch batch(w.arena, 5000);
  Meddling sink(batch, [] {});
  std::vector<double> uniforms(5000);
  Random random(seed());
  for (double& u : uniforms) u = random.uniform();
  SampleCall call(w.arena);
  CHECK_EQ(call.sample(w.table(), {5000, 5000, true, uniforms.data()}, kNow, sink).done, 5000u);
  CHECK(sink.parts > 4);
  batch.check_rows();
  std::set<int64_t> keys;
  for (int64_t i = 0; i < 5000; ++i) {
    const Pick& p = batch.picks[static_cast<size_t>(i)];
    keys.insert(p.key);
    CHECK_EQ(batch.length(0, i), static_cast<int32_t>(p.num_steps));
    for (uint32_t row = 0; row < 6; ++row) {
      CHECK_EQ(batch.real(0, i, row), row < p.num_steps);
      CHECK_EQ(batch.serial(i, row), row < p.num_steps ? static_cast<uint64_t>(p.step) + 1 + row : 0);
    }
  }
  CHECK_EQ(keys.size(), 50u);
}

TEST(items_of_many_chunks_fill_a_lease_and_come_in_parts) {
  World w(arena_of({open_table("a", 100)}, 1, 400));
  Actor actor(w.arena, w.table(), kMaxItemChunks);
  for (uint32_t i = 0; i < kMaxItemChunks; ++i) actor.append();
  actor.create(kMaxItemChunks);
  Learner learner(w.arena);
  Batch batch(w.arena, 20);
  CHECK_EQ(learner.sample(w.table(), 20, batch).done, 20u);
  batch.check_rows();
  CHECK_EQ(batch.serial(19, kMaxItemChunks - 1), kMaxItemChunks);
}

TEST(a_longer_item_that_comes_between_two_parts_widens_the_batch) {
  World w(arena_of({open_table("a", 100, kLifo)}, 4, 64));
  Actor actor(w.arena, w.table(), 8);
  for (int i = 0; i < 6; ++i) actor.append();
  actor.create(2);
  Batch batch(w.arena, 2000);
  bool longer = false;
  Meddling sink(batch, [&] {
    if (!longer) actor.create(6);
    longer = true;
  });
  CHECK_EQ(sample_into(w, sink, 2000).done, 2000u);
  CHECK_EQ(batch.rows(0), 6u);
  CHECK_EQ(batch.length(0, 0), 2);
  CHECK_EQ(batch.length(0, 1999), 6);
  CHECK(!batch.real(0, 0, 2) && batch.real(0, 1999, 5));
  CHECK_EQ(batch.serial(0, 1), 6u);
  CHECK_EQ(batch.serial(1999, 0), 1u);
}

TEST(a_batch_of_some_outputs_with_steps_first_is_widened_too) {
  World w(arena_of({open_table("a", 100, kLifo)}, 4, 64));
  Actor actor(w.arena, w.table(), 8);
  for (int i = 0; i < 6; ++i) actor.append();
  actor.create(2);
  Batch batch(w.arena, 2000);
  batch.time_major = true;
  batch.only = {0, 2};
  bool longer = false;
  Meddling sink(batch, [&] {
    if (!longer) actor.create(6);
    longer = true;
  });
  CHECK_EQ(sample_into(w, sink, 2000).done, 2000u);
  batch.check_rows();
  CHECK_EQ(batch.outputs().size(), 2u);
  CHECK_EQ(batch.rows(1), 6u);
  CHECK(!batch.real(1, 0, 2) && batch.real(1, 1999, 5));
  CHECK_EQ(batch.serial(0, 1), 6u);
  CHECK_EQ(batch.serial(1999, 0), 1u);
}

TEST(an_item_longer_than_the_batch_may_be_is_not_drawn) {
  World w(arena_of({queue_table("q", 10)}, 4, 64));
  Actor actor(w.arena, w.table(), 8);
  for (int i = 0; i < 6; ++i) actor.append();
  actor.create(2);
  SampleCall call(w.arena);
  const std::vector<uint32_t> most = {9, 9, 4};
  const std::vector<double> uniforms(4, 0.5);
  Batch batch(w.arena, 4);
  const SampleOptions options{4, 4, true, uniforms.data(), &most};
  SampleResult r = call.sample(w.table(), options, kNow, batch);
  CHECK_EQ(r.status, Status::kTimeout);
  CHECK_EQ(r.done, 1u);
  actor.create(5);
  r = call.sample(w.table(), options, kNow, batch);
  CHECK_EQ(r.status, Status::kTooLong);
  CHECK_EQ(r.done, 0u);
  CHECK_EQ(live_items(w.table()), 1u);
  CHECK(named_chunks(w.arena).empty());
}

TEST(what_a_tables_items_look_like_is_known_from_the_first_one_on) {
  World w(arena_of({open_table("a", 10)}, 4, 64));
  SampleCall call(w.arena);
  const Pattern* found = nullptr;
  CHECK_EQ(call.structure(w.table(), false, true, kNow, found), Status::kOk);
  CHECK(found == nullptr);
  CHECK_EQ(call.structure(w.table(), true, true, kNow, found), Status::kTimeout);
  CHECK_EQ(sleepers(w.table(), kSamples), 0u);
  const auto learner = [&] {
    SampleCall own(w.arena);
    const Pattern* pattern = nullptr;
    CHECK_EQ(own.structure(w.table(), true, true, kWhatever, pattern), Status::kOk);
    CHECK_EQ(pattern->outputs.size(), 3u);
    CHECK_EQ(own.rows(), (std::vector<uint32_t>{2, 2, 2}));
  };
  const auto actor = [&] {
    until([&] { return sleepers(w.table(), kSamples) == 1; });
    Actor a(w.arena, w.table(), 8);
    a.append(), a.append();
    a.create(2);
  };
  run_threads({learner, actor});
  CHECK_EQ(counted_samples(w), 0u);
}

TEST(what_was_drawn_is_gathered_whole_although_it_was_evicted_meanwhile) {
  World w(arena_of({open_table("a", 8)}, 2, 8));
  Actor actor(w.arena, w.table());
  insert(actor, 8);
  Batch batch(w.arena, 100);
  // By then the chunks that the batch has named are retired, but not reused.
  Meddling sink(batch, [&] { insert(actor, 8); });
  CHECK_EQ(sample_into(w, sink, 100).done, 100u);
  batch.check_rows();
  for (int64_t i = 0; i < 100; ++i) CHECK(batch.serial(i) <= 8);
}

TEST(a_sink_that_has_no_room_ends_the_call_and_its_lease) {
  World w(arena_of({open_table("a", 8)}));
  Actor actor(w.arena, w.table());
  insert(actor, 3);
  Batch batch(w.arena, 2);
  batch.refuses = true;
  CHECK_EQ(sample_into(w, batch, 2).status, Status::kInterrupted);
  CHECK(named_chunks(w.arena).empty());
}

TEST(getting_answers_the_live_ones_in_the_order_asked_for) {
  World w(arena_of({open_table("a", 8)}));
  Actor actor(w.arena, w.table());
  const std::vector<int64_t> keys = insert(actor, 20);  // the first twelve were evicted
  const std::vector<int64_t> asked = {keys[19], keys[3], keys[12], keys[15], 0, keys[19], -7, keys[13]};
  SampleCall call(w.arena);
  Batch batch(w.arena, 8);
  std::vector<uint32_t> found(8, kNone);
  const SampleResult r = call.get(w.table(), asked.data(), 8, kNow, batch, found.data());
  CHECK_EQ(r.status, Status::kOk);
  CHECK_EQ(r.done, 5u);
  found.resize(5);
  CHECK_EQ(found, (std::vector<uint32_t>{0, 2, 3, 5, 7}));
  const uint64_t serials[] = {20, 13, 16, 20, 14};
  for (int64_t i = 0; i < 5; ++i) CHECK_EQ(batch.serial(i), serials[i]);
  CHECK_EQ(counted_samples(w), 0u);
}

TEST(getting_thousands_of_keys_keeps_their_order) {
  World w(arena_of({open_table("a", 300)}, 8, 64));
  Actor actor(w.arena, w.table());
  const std::vector<int64_t> keys = insert(actor, 300);
  Random random(seed());
  std::vector<int64_t> asked(3000);
  std::vector<uint32_t> found(3000);
  for (int64_t& key : asked) key = keys[random.below(300)];
  SampleCall call(w.arena);
  Batch batch(w.arena, 3000);
  CHECK_EQ(call.get(w.table(), asked.data(), 3000, kNow, batch, found.data()).done, 3000u);
  batch.check_rows();
  for (size_t i = 0; i < 3000; ++i) {
    CHECK_EQ(batch.picks[i].key, asked[i]);
    CHECK_EQ(found[i], i);
  }
  CHECK(named_chunks(w.arena).empty());
}

// The steps that each item spans, for whatever items are looked up.
class Spans final : public ViewSink {
 public:
  bool take(const DrawnItems& part, bool stays) noexcept override {
    for (uint32_t i = 0; i < part.n; ++i) {
      keys.push_back(part.picks[i].key);
      rows.push_back(part.patterns.at(part.picks[i].pattern).rows(0, num_positions(part.picks[i])));
    }
    any_stays = any_stays || stays;
    return !refuses;
  }
  std::vector<int64_t> keys;
  std::vector<uint64_t> rows;
  bool any_stays = false, refuses = false;
};

TEST(looking_up_finds_what_getting_finds_and_copies_nothing) {
  World w(arena_of({open_table("a", 300)}, 8, 64));
  Actor actor(w.arena, w.table());
  const std::vector<int64_t> keys = insert(actor, 400);  // the first hundred were evicted
  Random random(seed());
  std::vector<int64_t> asked(2000);
  std::vector<uint32_t> found(2000), looked_up(2000);
  for (int64_t& key : asked) key = keys[random.below(400)];
  SampleCall call(w.arena);
  Batch batch(w.arena, 2000);
  Spans spans;
  const SampleResult got = call.get(w.table(), asked.data(), 2000, kNow, batch, found.data());
  const SampleResult r = call.look_up(w.table(), asked.data(), 2000, kNow, spans, looked_up.data());
  CHECK_EQ(r.status, Status::kOk);
  CHECK_EQ(r.done, got.done);
  found.resize(got.done);
  looked_up.resize(r.done);
  CHECK_EQ(looked_up, found);
  CHECK_EQ(spans.keys.size(), size_t{r.done});
  for (uint32_t i = 0; i < r.done; ++i) {
    CHECK_EQ(spans.keys[i], asked[found[i]]);
    CHECK_EQ(spans.rows[i], 1u);
  }
  CHECK(!spans.any_stays);
  CHECK_EQ(counted_samples(w), 0u);
  CHECK(named_chunks(w.arena).empty());
  spans.refuses = true;
  CHECK_EQ(call.look_up(w.table(), asked.data(), 2000, kNow, spans, looked_up.data()).status, Status::kInterrupted);
  CHECK(named_chunks(w.arena).empty());
}

TEST(more_patterns_than_a_cache_takes_at_once_need_more_holds_and_nothing_else) {
  World w(arena_of({open_table("a", 100, kFifo)}));
  Actor actor(w.arena, w.table(), 30);
  for (int i = 0; i < 30; ++i) actor.append();
  for (int32_t i = 0; i < 30; ++i) {
    Pattern p = whole_pattern(w.arena);
    for (Slice& s : p.slices) s = from_to(i, i + 1);
    PreparedPattern prepared(p);
    int64_t key = 0;
    CHECK_EQ(create_item(actor.writer, w.table(), prepared, 30, 1, kNow, key), Status::kOk);
  }
  const std::vector<int64_t> keys = live_keys(w.arena, w.table());
  SampleCall call(w.arena);
  Batch batch(w.arena, 30);
  std::vector<uint32_t> found(30);
  CHECK_EQ(call.get(w.table(), keys.data(), 30, kNow, batch, found.data()).done, 30u);
  for (int64_t i = 0; i < 30; ++i) CHECK_EQ(batch.serial(i), static_cast<uint64_t>(i) + 1);
}

TEST(without_a_free_call_slot_a_call_that_never_waits_is_refused) {
  World w(arena_of({open_table("a", 8)}));
  Actor actor(w.arena, w.table());
  insert(actor, 3);
  std::vector<std::unique_ptr<Lease>> leases;
  for (uint32_t i = 0; i < w.arena.geometry().num_call_slots; ++i) {
    leases.push_back(std::make_unique<Lease>(w.arena));
    Hold hold(w.arena);
    CHECK_EQ(hold.begin(kNow), Status::kOk);
    CHECK_EQ(leases.back()->take(hold), Status::kOk);
  }
  Learner learner(w.arena);
  Batch batch(w.arena, 1);
  CHECK_EQ(learner.sample(w.table(), 1, batch).status, Status::kNoCallSlots);
}

TEST(a_call_that_must_not_wait_at_all_does_not_sleep_either) {
  World w(limited(100, 0, 10));
  Learner learner(w.arena);
  Batch batch(w.arena, 1);
  CHECK_EQ(learner.sample(w.table(), 1, batch, {kForever, nullptr, true}).status, Status::kTimeout);
}

TEST(a_sleeping_call_has_nothing_named_and_wakes_with_an_insert) {
  World w(arena_of({queue_table("q", 10)}));
  const auto learner = [&] {
    Learner l(w.arena);
    Batch batch(w.arena, 4);
    CHECK_EQ(l.sample(w.table(), 4, batch, kWhatever).status, Status::kOk);
    batch.check_rows();
  };
  const auto actor = [&] {
    Actor a(w.arena, w.table());
    insert(a, 2);
    until([&] { return sleepers(w.table(), kSamples) == 1 && live_items(w.table()) == 0; });
    CHECK(named_chunks(w.arena).empty());
    insert(a, 2);
  };
  run_threads({learner, actor});
  CHECK_EQ(live_items(w.table()), 0u);
}

TEST(a_long_call_asks_now_and_then_whether_it_is_interrupted) {
  World w(arena_of({open_table("a", 8)}));
  Actor actor(w.arena, w.table());
  insert(actor, 3);
  Listener listener;
  listener.interrupt = true;
  constexpr uint32_t kLong = 1u << 23;  // draws: they take far more than a tenth of a second
  class Endless final : public BatchSink {
   public:
    explicit Endless(Batch& batch) : batch_(batch) {}
    bool prepare(const Pattern& structure, const uint32_t* rows, int64_t) noexcept override {
      return batch_.prepare(structure, rows, 0);
    }
    std::vector<OutputBuffer>& outputs() noexcept override {
      shifted_ = batch_.outputs();
      for (OutputBuffer& out : shifted_) {
        out.data -= first * out.rows * out.row_bytes;  // every part is written to the same place
        out.lengths -= first;
      }
      return shifted_;
    }
    void describe(int64_t begin, const Pick*, uint32_t n) noexcept override { first = begin + n; }
    int64_t first = 0;

   private:
    Batch& batch_;
    std::vector<OutputBuffer> shifted_;
  };
  Batch batch(w.arena, 2048);
  Endless sink(batch);
  const std::vector<double> uniforms(kLong, 0.5);
  SampleCall call(w.arena);
  const SampleResult r = call.sample(w.table(), {kLong, kLong, true, uniforms.data()}, {kForever, &listener}, sink);
  CHECK_EQ(r.status, Status::kInterrupted);
  CHECK(r.done > 0);
}

}  // namespace shmreplay::test
