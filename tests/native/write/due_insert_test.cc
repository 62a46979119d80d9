#include "write/due_insert.h"

#include "arena/admission.h"
#include "chunks/streams_fixture.h"

namespace shmreplay::test {
namespace {

const Wait kTry{kForever, nullptr, true};

// A few streams that have written steps, and a run of items for each.
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
      runs.push_back({&actors[i]->writer.items(), due[i].data(), keys[i].data(), items[i]});
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

TEST(items_that_are_due_together_go_into_their_tables_in_one_hold_or_not_at_all) {
  World w(arena_of({open_table("a", 100), queue_table("q", 2)}));
  Actor actor(w.arena, w.table(0), 8);
  for (int i = 0; i < 4; ++i) actor.append();
  DueItem due[] = {
      {0, &actor.span, 2, 2, {0, 0}, 1}, {1, &actor.span, 1, 3, {0, 0}, 1}, {1, &actor.span, 3, 1, {0, 0}, 1}};
  int64_t keys[3] = {};
  uint32_t done = 0;
  CHECK_EQ(insert_due(actor.writer, due, 3, kNow, keys, done), Status::kOk);
  CHECK_EQ(done, 3u);
  CHECK_EQ(rows_of(w, keys[0], 0), serials(3, 4));
  CHECK_EQ(rows_of(w, keys[1], 1), serials(2, 4));
  const auto episode = [&](int64_t key, uint32_t t) {
    return w.arena.item(find_item(w.arena, w.table(t), key)).episode.get();
  };
  CHECK_EQ(episode(keys[0], 0), episode(keys[2], 1));
  for (const Wait& wait : {kNow, kTry}) {  // the queue is full: the other table gets nothing either
    CHECK_EQ(insert_due(actor.writer, due, 3, wait, keys, done), Status::kTimeout);
    CHECK_EQ(done, 0u);
    CHECK_EQ(actor.writer.blocking_table(), 1u);
  }
  CHECK_EQ(live_items(w.table(0)), 1u);
  CHECK_EQ(sleepers(w.table(1), kInserts), 0u);
  check_healthy(w.arena);
}

TEST(items_that_are_due_together_wait_together) {
  World w(arena_of({open_table("a", 100), queue_table("q", 1)}));
  const auto writer = [&] {
    Actor actor(w.arena, w.table(0), 8);
    actor.append();
    DueItem due[] = {{0, &actor.span, 0, 1, {0, 0}, 1}, {1, &actor.span, 0, 1, {0, 0}, 1}};
    int64_t keys[2];
    uint32_t done = 0;
    for (int i = 0; i < 50; ++i) CHECK_EQ(insert_due(actor.writer, due, 2, kWhatever, keys, done), Status::kOk);
  };
  const auto consumer = [&] {
    Learner learner(w.arena);
    for (uint64_t i = 1; i <= 50; ++i) {
      Batch batch(w.arena, 1);
      CHECK_EQ(learner.sample(w.table(1), 1, batch, kWhatever).status, Status::kOk);
      CHECK(live_items(w.table(0)) >= i);
    }
  };
  run_threads({writer, consumer});
  CHECK_EQ(live_items(w.table(0)), 50u);
  check_healthy(w.arena);
}

TEST(no_item_goes_in_when_one_of_those_due_has_another_structure) {
  World w(arena_of({open_table("a", 100), open_table("b", 100)}));
  Actor actor(w.arena, w.table(0), 8);
  actor.append();
  DueItem due[] = {
      {0, &actor.span, 0, 1, {0, 0}, 1}, {1, &actor.span, 0, 1, {0, 0}, 1}, {1, &actor.step, 0, 1, {0, 0}, 1}};
  int64_t keys[3];
  uint32_t done = 0;
  CHECK_EQ(insert_due(actor.writer, due, 3, kNow, keys, done), Status::kStructure);
  CHECK_EQ(live_items(w.table(0)) + live_items(w.table(1)), 0u);
}

TEST(more_items_than_one_hold_can_log_go_in_hold_by_hold) {
  World w(arena_of({open_table("a", 100)}, 1, 500));
  Actor actor(w.arena, w.table(), 100);
  for (int i = 0; i < 100; ++i) actor.append();
  std::vector<DueItem> due(40, {0, &actor.span, 0, 100, {0, 0}, 1});
  std::vector<int64_t> keys(40);
  uint32_t done = 0;
  CHECK_EQ(insert_due(actor.writer, due.data(), 40, kNow, keys.data(), done), Status::kOk);
  CHECK_EQ(done, 40u);
  CHECK_EQ(rows_of(w, keys[39]).size(), 100u);
  check_healthy(w.arena);
}

TEST(an_item_of_more_chunks_than_a_hold_can_log_is_refused) {
  World w(arena_of({open_table("a", 10)}, 1, 500));
  Actor actor(w.arena, w.table(), kMaxItemChunks + 5);
  for (uint32_t i = 0; i < kMaxItemChunks + 5; ++i) actor.append();
  int64_t key = 0;
  CHECK_EQ(create_item(actor.writer, w.table(), actor.span, kMaxItemChunks + 1, 1, kNow, key), Status::kTooManyChunks);
  CHECK_EQ(rows_of(w, actor.create(kMaxItemChunks)).size(), kMaxItemChunks);
}

// The largest hold there is: a new pattern as large as a record, an item of the most chunks, and a victim of as many
// chunks, all of which retire with it, in a table that keeps its items.
TEST(the_largest_insert_fits_the_log) {
  for (const uint32_t kind : {kPrioritized, kMinHeap}) {
    TableSpec table = open_table("a", 1, kind, kFifo);
    table.on_full = kOnFullError;
    World w(arena_of({table}, 1, 1000));
    Actor actor(w.arena, w.table(), kMaxItemChunks);
    for (int round = 0; round < 3; ++round) {
      for (uint32_t i = 0; i < 2 * kMaxItemChunks; ++i) actor.append();  // the last item's chunks leave the window
      Pattern large = whole_pattern(w.arena);
      large.outputs.assign(200, {0, 0, 1, 0, 0});
      large.slices.assign(50, from_to(round, round + 1));
      PreparedPattern pattern(large);
      int64_t key = 0;
      CHECK_EQ(create_item(actor.writer, w.table(), pattern, kMaxItemChunks, 1, kNow, key), Status::kOk);
      CHECK_EQ(live_items(w.table()), 1u);
    }
    check_healthy(w.arena);
  }
}

}  // namespace shmreplay::test
