#include "write/vector_writer.h"

#include "chunks/chunk_pool.h"
#include "chunks/streams_fixture.h"

namespace shmreplay::test {
namespace {

ArenaSpec spec_of(std::vector<TableSpec> tables, uint32_t chunk_steps = 4, uint32_t num_chunks = 200) {
  ArenaSpec s = arena_of(std::move(tables), chunk_steps, num_chunks);
  s.max_streams = 80;
  return s;
}

}  // namespace

TEST(items_of_all_streams_go_into_as_few_holds_as_fit) {
  World w(spec_of({open_table("a", 1000)}));
  {
    Fleet fleet(w.arena, {newest(w.arena, 0, 1)}, 64);
    const uint64_t before = num_holds(w.arena);
    CHECK_EQ(fleet.append(kNow), Status::kOk);
    CHECK_EQ(num_holds(w.arena) - before, 1u + 1u + 2u);  // streams opened; chunks taken; items, 32 a hold
    const uint64_t opened = num_holds(w.arena);
    CHECK_EQ(fleet.append(kNow), Status::kOk);
    CHECK_EQ(num_holds(w.arena) - opened, 2u);
    CHECK_EQ(live_items(w.table()), 128u);
    for (uint32_t i = 0; i < 64; ++i) {
      CHECK_EQ(rows_of(w, fleet.writer.at(i).keys().front()), std::vector<uint64_t>{Fleet::serial(i, 1)});
    }
    check_healthy(w.arena);
    const uint64_t closing = num_holds(w.arena);
    CHECK_EQ(fleet.writer.close(kNow), Status::kOk);
    CHECK(num_holds(w.arena) - closing <= 2u);
  }
  check_healthy(w.arena);
}

TEST(a_limiter_admits_whole_streams_in_their_order) {
  World w(spec_of({queue_table("q", 5)}));
  Fleet fleet(w.arena, {newest(w.arena, 0, 1), newest(w.arena, 0, 1)}, 4);
  CHECK_EQ(fleet.append(kNow), Status::kTimeout);
  CHECK_EQ(fleet.progress.done, 2u);
  CHECK_EQ(fleet.progress.at, 2u);
  CHECK_EQ(fleet.writer.at(2).stream().blocking_table(), 0u);
  CHECK_EQ(live_items(w.table()), 4u);
  CHECK(!fleet.writer.at(2).stream().row().is_open());
  Learner learner(w.arena);
  Batch batch(w.arena, 4);
  CHECK_EQ(learner.sample(w.table(), 4, batch).done, 4u);
  const auto rest = VectorWriter::Rows(fleet.everybody).subspan(2);
  CHECK_EQ(fleet.append(rest, kNow), Status::kOk);
  CHECK_EQ(fleet.progress.done, 2u);
  CHECK_EQ(sleepers(w.table(), kInserts), 0u);
  check_healthy(w.arena);
}

TEST(a_refused_stream_leaves_all_of_them_as_they_were) {
  World w(spec_of({open_table("a", 100)}));
  ItemRule rule = newest(w.arena, 0, 1);
  rule.priority = {PriorityKind::kColumn, 0, 0};
  Fleet fleet(w.arena, {rule}, 5);
  CHECK_EQ(fleet.append(kNow), Status::kOk);
  VectorWriter::Progress progress;
  const auto bad = [&](StreamWriter& stream, uint32_t i) { write_row(stream, w.arena, i == 3 ? UINT64_MAX : 7); };
  // A serial whose bits are all ones is a NaN when it is read as a double.
  CHECK_EQ(fleet.writer.append(fleet.everybody, {bad, nullptr}, true, -1, kNow, progress), Status::kBadPriority);
  CHECK_EQ(progress.done, 0u);
  CHECK_EQ(progress.at, 3u);
  CHECK_EQ(live_items(w.table()), 5u);
  for (const auto& row : fleet.everybody) CHECK_EQ(fleet.writer.at(row.stream).stream().history().episode_steps(), 1u);
  CHECK_EQ(fleet.append(kNow), Status::kOk);
  check_healthy(w.arena);
}

TEST(ends_put_in_what_is_cut_and_begin_episodes_anew) {
  World w(spec_of({open_table("a", 100)}));
  Fleet fleet(w.arena, {newest(w.arena, 0, 3, AtEnd::kShorten)}, 3);
  for (int k = 0; k < 2; ++k) CHECK_EQ(fleet.append(kNow), Status::kOk);
  VectorWriter::Progress progress;
  const std::vector<VectorWriter::Row> some{{0, 0}, {2, 2}};
  CHECK_EQ(fleet.writer.end_episodes(some, nullptr, true, -1, kNow, progress), Status::kOk);
  CHECK_EQ(progress.done, 2u);
  CHECK_EQ(fleet.writer.at(0).num_in(), 2u);
  CHECK_EQ(rows_of(w, fleet.writer.at(2).keys()[0]), (std::vector<uint64_t>{3000, 3001}));
  CHECK_EQ(rows_of(w, fleet.writer.at(2).keys()[1]), std::vector<uint64_t>{3001});
  CHECK_EQ(fleet.writer.at(0).stream().history().num_steps(), 0u);
  CHECK_EQ(fleet.writer.at(1).stream().history().num_steps(), 2u);
  check_healthy(w.arena);
}

TEST(streams_for_which_there_are_chunks_do_not_wait_for_the_others) {
  TableSpec keeps = queue_table("q", 60);
  World w(spec_of({keeps}, 1, 20));
  Fleet fleet(w.arena, {newest(w.arena, 0, 1)}, 6, 1);
  Status s = Status::kOk;
  while (s == Status::kOk) s = fleet.append(kNow);
  CHECK_EQ(s, Status::kTimeout);
  CHECK_EQ(fleet.writer.at(fleet.everybody[fleet.progress.at].stream).stream().blocking_table(), kNone);
  CHECK_EQ(live_items(w.table()) % 6, fleet.progress.done);
  CHECK_EQ(w.arena.state().num_free.get(), 0u);
  const auto left = static_cast<uint32_t>(live_items(w.table()));
  Learner learner(w.arena);
  Batch batch(w.arena, left);
  CHECK_EQ(learner.sample(w.table(), left, batch).done, left);
  CHECK_EQ(fleet.append(VectorWriter::Rows(fleet.everybody).subspan(fleet.progress.done), kNow), Status::kOk);
  check_healthy(w.arena);
}

TEST(fleets_and_a_consumer_get_along) {
  constexpr uint32_t kStreams = 8;
  constexpr int kSteps = kSanitized ? 30 : 200;
  World w(spec_of({open_table("a", 50), queue_table("q", 12)}, 2, 120));
  const auto fleet = [&] {
    Fleet mine(w.arena, {newest(w.arena, 0, 2), newest(w.arena, 1, 1)}, kStreams, 3);
    for (int k = 0; k < kSteps; ++k) CHECK_EQ(mine.append(kWhatever), Status::kOk);
  };
  const auto consumer = [&] {
    Learner learner(w.arena);
    for (uint32_t left = 2 * kStreams * kSteps; left > 0; --left) {
      Batch batch(w.arena, 1);
      CHECK_EQ(learner.sample(w.table(1), 1, batch, kWhatever).status, Status::kOk);
      batch.check_rows();
    }
  };
  run_threads({fleet, fleet, consumer});
  CHECK_EQ(live_items(w.table(0)), 50u);
  CHECK_EQ(live_items(w.table(1)), 0u);
  check_healthy(w.arena);
}

// There are blocks for a few rows only. The other rows go in when the oldest items have made room, and no call waits
// for itself.
TEST(values_of_many_streams_go_in_as_far_as_there_are_blocks) {
  ArenaSpec spec = with_values(spec_of({open_table("a", 1000)}, 2), 400);
  spec.columns.pop_back();  // rules bring nothing
  World w(spec);
  {
    Fleet fleet(w.arena, {newest(w.arena, 0, 1)}, 6, 1);
    for (int round = 0; round < 60; ++round) {
      CHECK_EQ(fleet.append(kWhatever), Status::kOk);
      for (const int64_t key : live_keys(w.arena, w.table())) rows_of(w, key);
      if (round % 10 == 0) check_healthy(w.arena);
    }
    CHECK(w.table().record->evicted_for_room.get() > 100);
  }
  CHECK_EQ(reset_table(w.arena, w.table(), kNow), Status::kOk);
  uint32_t freed = 0;
  CHECK_EQ(reclaim(w.arena, kNow, freed), Status::kOk);
  CHECK_EQ(w.arena.state().num_free_blocks.get(), 400u);
}

}  // namespace shmreplay::test
