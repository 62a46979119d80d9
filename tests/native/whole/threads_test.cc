// Threads as actors and learners on one mapping, because that is what ThreadSanitizer can see. Every row proves itself:
// all its bytes come from one serial number, so a row that changes under a reader is noticed.
#include <algorithm>
#include <atomic>
#include <mutex>

#include "arena/admission.h"
#include "items/rebuild.h"
#include "support/fixtures.h"

namespace shmreplay::test {
namespace {

using Bodies = std::vector<std::function<void()>>;

constexpr uint64_t kRows = kThreadSanitized ? 1'500 : kSanitized ? 4'000 : 20'000;  // that an actor writes

// Serials of actor i begin at (i + 1) << 32.
uint64_t first_serial(uint32_t actor) { return (uint64_t{actor} + 1) << 32; }

// Checks that the rows of an item are neighbours in one stream.
void check_sequences(const Batch& batch, uint32_t n) {
  batch.check_rows();
  for (int64_t i = 0; i < n; ++i) {
    for (uint32_t row = 1; row < batch.picks[static_cast<size_t>(i)].num_steps; ++row) {
      CHECK_EQ(batch.serial(i, row), batch.serial(i, row - 1) + 1);
    }
  }
}

// Counts down the actors of one table. The last one lets those go on that would wait for ever.
class Crew {
 public:
  Crew(World& w, uint32_t size) : world_(w), left_(size) {}
  bool busy() const { return left_ > 0; }
  void leave() {
    if (--left_ == 0) CHECK_EQ(drop_tables(world_.arena, kWhatever), Status::kOk);
  }

 private:
  World& world_;
  std::atomic<uint32_t> left_;
};

// Samples until the table is dropped, and checks every batch.
void sample_until_dropped(World& w, uint32_t table, uint32_t n, uint64_t seed_,
                          const std::function<void(const Batch&, uint32_t)>& look) {
  Learner learner(w.arena, seed_);
  for (;;) {
    Batch batch(w.arena, n);
    const SampleResult r = learner.sample(w.table(table), n, batch, kWhatever, true, 1);
    if (r.done > 0) look(batch, r.done);
    if (r.status == Status::kClosed) return;
    CHECK_EQ(r.status, Status::kOk);
  }
}

void insert_steps(World& w, uint32_t table, uint32_t actor, uint64_t rows) {
  Actor a(w.arena, w.table(table), 0, first_serial(actor));
  int64_t key = 0;
  for (uint64_t i = 0; i < rows; ++i)
    CHECK_EQ(a.try_insert(1 + static_cast<double>(i % 5), kWhatever, key), Status::kOk);
}

void insert_sequences(World& w, uint32_t table, uint32_t actor, uint64_t rows, Random& random) {
  Actor a(w.arena, w.table(table), 6, first_serial(actor));
  for (uint64_t i = 0; i < rows; ++i) {
    a.append();
    int64_t key = 0;
    const auto length = 1 + static_cast<uint32_t>(random.below(a.writer.history().num_steps()));
    CHECK_EQ(a.try_create(w.table(table), length, random.uniform(), kWhatever, key), Status::kOk);
    if (random.chance(0.1)) a.writer.end_episode(true);
  }
}

void read_while_every_chunk_is_reused(const ArenaSpec& spec) {
  World w(spec);
  Crew crew(w, 4);
  Bodies bodies;
  for (uint32_t i = 0; i < 4; ++i) {
    bodies.push_back([&, i] {
      insert_steps(w, 0, i, kRows);
      crew.leave();
    });
  }
  for (uint32_t i = 0; i < 3; ++i) {
    bodies.push_back(
        [&, i] { sample_until_dropped(w, 0, 8, i + 1, [](const Batch& b, uint32_t) { b.check_rows(); }); });
  }
  run_threads(bodies);
  check_healthy(*w.daemon);
  CHECK(w.arena.state().next_retire.get() > kRows);
}

void read_while_the_oldest_go_for_room(const ArenaSpec& spec) {
  World w(spec);
  Crew crew(w, 3);
  Bodies bodies;
  const uint64_t from = seed();
  for (uint32_t i = 0; i < 3; ++i) {
    bodies.push_back([&, i] {
      Random random(from + i);
      insert_sequences(w, 0, i, kRows / 4, random);
      crew.leave();
    });
  }
  for (uint32_t i = 0; i < 2; ++i) bodies.push_back([&, i] { sample_until_dropped(w, 0, 8, i + 1, check_sequences); });
  run_threads(bodies);
  check_healthy(*w.daemon);
  CHECK(w.table().record->evicted_for_room.get() > 0);
}

}  // namespace

TEST(no_reader_ever_sees_a_torn_row_although_every_chunk_is_reused_all_the_time) {
  read_while_every_chunk_is_reused(arena_of({open_table("a", 12, kUniform, kFifo)}, 2, 16));
}

TEST(no_reader_ever_sees_another_rows_value_although_every_block_is_reused_all_the_time) {
  read_while_every_chunk_is_reused(with_values(arena_of({open_table("a", 12, kUniform, kFifo)}, 2, 16), 400));
}

TEST(sequences_stay_whole_while_chunks_run_out_and_the_oldest_go_for_room) {
  read_while_the_oldest_go_for_room(arena_of({open_table("a", 200, kPrioritized, kUniform)}, 2, 40));
}

TEST(values_stay_whole_while_blocks_run_out_and_the_oldest_go_for_room) {
  read_while_the_oldest_go_for_room(with_values(arena_of({open_table("a", 200, kPrioritized, kUniform)}, 2, 400), 500));
}

TEST(a_queue_gives_every_item_to_one_consumer_and_each_blocked_call_ends) {
  World w(arena_of({queue_table("q", 5)}, 2, 8));  // so few chunks that writers wait for them as well
  const uint64_t rows = kRows / 4;
  std::mutex mutex;
  std::vector<uint64_t> seen;
  Bodies bodies;
  for (uint32_t i = 0; i < 3; ++i) bodies.push_back([&, i] { insert_steps(w, 0, i, rows); });
  std::atomic<uint64_t> taken{0};
  for (uint32_t i = 0; i < 3; ++i) {
    bodies.push_back([&] {
      sample_until_dropped(w, 0, 4, 1, [&](const Batch& batch, uint32_t n) {
        batch.check_rows();
        const std::lock_guard<std::mutex> guard(mutex);
        for (uint32_t k = 0; k < n; ++k) seen.push_back(batch.serial(k));
        if ((taken += n) == 3 * rows) CHECK_EQ(drop_tables(w.arena, kWhatever), Status::kOk);
      });
    });
  }
  run_threads(bodies);
  std::sort(seen.begin(), seen.end());
  std::vector<uint64_t> all;
  for (uint32_t i = 0; i < 3; ++i) {
    for (uint64_t k = 0; k < rows; ++k) all.push_back(first_serial(i) + k);
  }
  CHECK(seen == all);
  check_healthy(*w.daemon);
}

TEST(a_ratio_holds_at_every_moment_and_nobody_waits_for_ever) {
  TableSpec t = open_table("a", 100, kPrioritized, kFifo);
  t.samples_per_insert = 2;
  t.min_size_to_sample = 4;
  t.min_diff = 0;
  t.max_diff = 16;
  World w(arena_of({t}, 4, 80));
  Crew crew(w, 2);
  Bodies bodies;
  for (uint32_t i = 0; i < 2; ++i) {
    bodies.push_back([&, i] {
      insert_steps(w, 0, i, kRows / 8);
      crew.leave();
    });
  }
  for (uint32_t i = 0; i < 2; ++i)
    bodies.push_back(
        [&, i] { sample_until_dropped(w, 0, 3, i + 1, [](const Batch& b, uint32_t) { b.check_rows(); }); });
  bodies.push_back([&] {
    while (crew.busy()) {
      Hold hold(w.arena);
      CHECK_EQ(hold.begin(kWhatever), Status::kOk);
      const LimiterReport r = report(*w.table().record);
      CHECK(r.difference() >= 0 && (r.difference() <= 16 || r.inserts - r.deletes <= 4));
    }
  });
  run_threads(bodies);
  check_healthy(*w.daemon);
}

// Everything at once on three tables that share an arena.
TEST(actors_learners_and_administrators_leave_a_healthy_arena) {
  World w(arena_of({open_table("trees", 40, kPrioritized, kMinHeap), open_table("dense", 20, kUniform, kLifo),
                    open_table("seq", 30, kMaxHeap, kFifo)},
                   3, 80));
  const uint64_t from = seed();
  Crew crew(w, 4);
  Bodies bodies;
  for (uint32_t i = 0; i < 2; ++i) {
    bodies.push_back([&, i] {
      for (int part = 0; part < 5; ++part)
        insert_steps(w, i, 10 * i + static_cast<uint32_t>(part), kRows / 40);  // streams come and go
      crew.leave();
    });
    bodies.push_back([&, i] {
      Random random(from + i);
      insert_sequences(w, 2, 20 + i, kRows / 10, random);
      crew.leave();
    });
  }
  for (uint32_t t = 0; t < 3; ++t) {
    bodies.push_back([&, t] {
      Random random(from + 100 + t);
      sample_until_dropped(w, t, 6, t + 1, [&](const Batch& batch, uint32_t n) {
        check_sequences(batch, n);
        std::vector<int64_t> keys;
        std::vector<double> priorities;
        for (uint32_t i = 0; i < n; ++i) keys.push_back(batch.picks[i].key), priorities.push_back(random.uniform());
        uint32_t done = 0;
        const Status s = update_priorities(w.arena, w.table(t), keys.data(), priorities.data(), n, kWhatever, done);
        CHECK(s == Status::kOk || s == Status::kClosed);
        if (random.chance(0.1)) delete_items(w.arena, w.table(t), keys.data(), n, kWhatever, done);
      });
    });
  }
  bodies.push_back([&] {
    Random random(from + 200);
    while (crew.busy()) {
      const TableFacts& t = w.table(static_cast<uint32_t>(random.below(3)));
      Status s = Status::kOk;
      switch (random.below(5)) {
        case 0: s = reset_table(w.arena, t, kWhatever); break;
        case 1:
          s = change_limiter(w.arena, t, {1, -1e9, 1e9, 1 + static_cast<int64_t>(random.below(3)), false},
                             random.chance(0.5), kWhatever);
          break;
        case 2:
          s = change_flags(w.arena, t, kPausedInserts | kPausedSamples, 0, kWhatever);
          if (s == Status::kOk) s = change_flags(w.arena, t, 0, kPausedInserts | kPausedSamples, kWhatever);
          break;
        case 3: s = rebuild(w.arena, kWhatever); break;
        default: live_keys(w.arena, t);
      }
      CHECK(s == Status::kOk || s == Status::kClosed);
      check_healthy(w.arena);
    }
  });
  run_threads(bodies);
  check_healthy(*w.daemon);
}

}  // namespace shmreplay::test
