#include "write/stream_items.h"

#include "chunks/streams_fixture.h"

namespace shmreplay::test {
namespace {
const Wait kTry{kForever, nullptr, true};
}

TEST(a_run_of_rows_becomes_items_in_their_order) {
  World w(arena_of({open_table("a", 500, kPrioritized)}, 128, 8));
  Actor actor(w.arena, w.table());
  std::vector<int64_t> keys(100, 0);
  const std::vector<double> priorities(100, -1);
  CHECK_EQ(actor.writer.ensure_row(kNow), Status::kOk);
  CHECK(actor.writer.row().rows_left() >= 100);
  for (uint32_t i = 0; i < 100; ++i) {
    for (uint32_t c = 0; c < 3; ++c) {
      const uint32_t bytes = w.arena.columns()[c].row_bytes;
      fill_cell(actor.writer.row().cell(c) + i * bytes, bytes, i + 1);
    }
  }
  uint32_t done = 0;
  CHECK_EQ(actor.writer.items().insert_rows(w.table(), actor.step, priorities.data(), 100, kNow, keys.data(), done),
           Status::kOk);
  CHECK_EQ(done, 100u);
  CHECK_EQ(actor.writer.row().rows_left(), 28u);
  for (uint64_t i = 0; i < 100; ++i) CHECK_EQ(rows_of(w, keys[i]), serials(i + 1, i + 1));
  CHECK_EQ(w.arena.priority(find_item(w.arena, w.table(), keys[99])).get(), 1.0);
  check_healthy(w.arena);
}

TEST(a_run_of_rows_that_the_limiter_stops_says_how_many_went_in) {
  World w(arena_of({queue_table("q", 10)}, 64, 8));
  Actor actor(w.arena, w.table());
  std::vector<int64_t> keys(40, 0);
  const std::vector<double> priorities(40, 1);
  const auto run = [&](const Wait& wait) {
    uint32_t done = 77;
    CHECK_EQ(actor.writer.ensure_row(kNow), Status::kOk);
    CHECK_EQ(actor.writer.items().insert_rows(w.table(), actor.step, priorities.data(), 40, wait, keys.data(), done),
             Status::kTimeout);
    return done;
  };
  CHECK_EQ(run(kNow), 10u);
  CHECK_EQ(run(kNow), 0u);
  CHECK_EQ(run(kTry), 0u);
  CHECK_EQ(live_items(w.table()), 10u);
  CHECK_EQ(sleepers(w.table(), kInserts), 0u);
  check_healthy(w.arena);
}

}  // namespace shmreplay::test
