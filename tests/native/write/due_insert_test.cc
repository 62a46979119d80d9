#include "write/due_insert.h"

#include "chunks/streams_fixture.h"

namespace shmreplay::test {
namespace {

// A few streams with steps behind them, and a run of items for each.
class Runs {
 public:
  Runs(World& w, std::vector<uint32_t> items) : keys(items.size()) {
    for (size_t i = 0; i < items.size(); ++i) {
      actors.push_back(std::make_unique<Actor>(w.arena, w.table(0), 8, 100 * (i + 1)));
      for (int k = 0; k < 4; ++k) actors.back()->append();
      due.emplace_back(items[i], DueItem{0, &actors.back()->span, 1, 2, {0, 0}, 1.0});
      keys[i].resize(items[i]);
    }
    for (size_t i = 0; i < items.size(); ++i)
      runs.push_back({&actors[i]->writer, due[i].data(), keys[i].data(), items[i]});
  }
  std::vector<std::unique_ptr<Actor>> actors;
  std::vector<std::vector<DueItem>> due;
  std::vector<std::vector<int64_t>> keys;
  std::vector<DueRun> runs;
};

}  // namespace

TEST(runs_without_items_take_no_lock) {
  World w(arena_of({open_table("a", 100)}));
  Runs runs(w, {0, 0});
  const uint64_t before = num_holds(w.arena);
  CHECK_EQ(DueInsert(w.arena, runs.runs, kNow).run(), Status::kOk);
  CHECK_EQ(num_holds(w.arena), before);
}

TEST(runs_go_in_in_their_order_each_with_rows_of_its_own_stream) {
  World w(arena_of({open_table("a", 100)}));
  Runs runs(w, {2, 0, 3});
  CHECK_EQ(DueInsert(w.arena, runs.runs, kNow).run(), Status::kOk);
  CHECK_EQ(live_items(w.table()), 5u);
  for (size_t i = 0; i < 3; ++i) {
    CHECK_EQ(runs.runs[i].done, runs.runs[i].n);
    for (const int64_t key : runs.keys[i])
      CHECK_EQ(rows_of(w, key), (std::vector<uint64_t>{100 * (i + 1) + 1, 100 * (i + 1) + 2}));
  }
  check_healthy(w.arena);
}

TEST(a_misfit_of_any_run_keeps_all_of_them_out) {
  World w(arena_of({open_table("a", 100)}));
  Runs runs(w, {2, 2, 2});
  runs.due[1][1].pattern = &runs.actors[1]->step;
  DueInsert insert(w.arena, runs.runs, kNow);
  CHECK_EQ(insert.run(), Status::kStructure);
  CHECK_EQ(insert.at(), 1u);
  CHECK_EQ(live_items(w.table()), 0u);
}

TEST(a_run_that_is_not_admitted_whole_is_not_begun) {
  World w(arena_of({queue_table("q", 5)}));
  Runs runs(w, {3, 3, 1});
  {
    DueInsert insert(w.arena, runs.runs, kNow);
    CHECK_EQ(insert.run(), Status::kTimeout);
    CHECK_EQ(insert.at(), 1u);
  }
  CHECK_EQ(live_items(w.table()), 3u);
  CHECK_EQ(runs.actors[1]->writer.blocking_table(), 0u);
  CHECK_EQ(sleepers(w.table(), kInserts), 0u);
  check_healthy(w.arena);
}

TEST(a_run_larger_than_a_limiter_ever_admits_goes_in_bit_by_bit) {
  World w(arena_of({queue_table("q", 5)}));
  Runs runs(w, {12});
  for (const uint32_t done : {5u, 10u, 12u}) {
    CHECK_EQ(DueInsert(w.arena, runs.runs, kNow).run(), done < 12 ? Status::kTimeout : Status::kOk);
    CHECK_EQ(runs.runs[0].done, done);
    Learner learner(w.arena);
    const auto n = static_cast<uint32_t>(live_items(w.table()));
    Batch batch(w.arena, n);
    CHECK_EQ(learner.sample(w.table(), n, batch).done, n);
  }
}

TEST(of_a_run_as_many_go_into_an_empty_table_as_are_admitted_since_nobody_can_sample_before) {
  TableSpec t = open_table("a", 100);
  t.min_diff = -2;
  t.max_diff = 4;  // room for 6 after samples, of which there are none before items
  World w(arena_of({t}));
  Runs runs(w, {5});
  CHECK_EQ(DueInsert(w.arena, runs.runs, kNow).run(), Status::kTimeout);
  CHECK_EQ(runs.runs[0].done, 4u);
  Learner learner(w.arena);
  Batch batch(w.arena, 6);
  CHECK_EQ(learner.sample(w.table(), 6, batch).done, 6u);
  CHECK_EQ(DueInsert(w.arena, runs.runs, kNow).run(), Status::kOk);
  CHECK_EQ(live_items(w.table()), 5u);
  check_healthy(w.arena);
}

TEST(uncounted_items_ask_no_limiter_and_leave_its_difference) {
  TableSpec t = open_table("a", 10);
  t.max_diff = 2;
  World w(arena_of({t}));
  Runs runs(w, {8, 8});
  CHECK_EQ(DueInsert(w.arena, runs.runs, kNow, false).run(), Status::kOk);
  CHECK_EQ(live_items(w.table()), 10u);  // the others were evicted
  CHECK_EQ(report(*w.table().record).difference(), 0.0);
  CHECK_EQ(report(*w.table().record).uncounted, 16u);
  check_healthy(w.arena);
  CHECK_EQ(reset_table(w.arena, w.table(), kNow), Status::kOk);
  CHECK_EQ(report(*w.table().record).uncounted, 0u);
  check_healthy(w.arena);
}

}  // namespace shmreplay::test
