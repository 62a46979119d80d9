// SIGKILL at every named point of what several streams do in one hold: see crash.h.
#include "chunks/chunk_pool.h"
#include "chunks/streams_fixture.h"
#include "deaths/crash.h"

namespace shmreplay::test {
namespace {

using Holds = CrashLab::Holds;

ArenaSpec lab_spec() {
  ArenaSpec s = arena_of(
      {open_table("trees", 8, kPrioritized, kMinHeap), queue_table("queue", 8), open_table("dense", 5)}, 2, 40);
  s.max_streams = 8;
  s.max_sessions = 4;
  return s;
}

// The child's own fleet, which has written `steps` rows in each stream. It lives until the child ends.
Fleet& fleet_of(Arena& arena, uint32_t num_streams, int steps) {
  auto* fleet = new Fleet(arena, {newest(arena, 0, 3), newest(arena, 2, 1)}, num_streams, 4);
  for (int k = 0; k < steps; ++k) CHECK_EQ(fleet->append(kNow), Status::kOk);
  return *fleet;
}

Operation appends(uint32_t num_streams, int steps_before) {
  return [=](Arena& arena) -> std::function<void()> {
    Fleet& fleet = fleet_of(arena, num_streams, steps_before);
    return [&fleet] { CHECK_EQ(fleet.append(kNow), Status::kOk); };
  };
}

}  // namespace

TEST(items_of_several_streams_happen_together_or_not_at_all) {
  CrashLab(lab_spec()).run("rows of three streams with two items each", Holds::kOne, appends(3, 3));
}

TEST(items_that_were_held_back_go_in_together_or_not_at_all) {
  CrashLab(lab_spec()).run("items of four rows", Holds::kOne, [](Arena& arena) -> std::function<void()> {
    auto* writer =
        new RuleWriter(arena, arena.table(0), 4, facts_of(arena), {newest(arena, 0, 3), newest(arena, 2, 1)}, 4);
    CHECK_EQ(writer->stream().open(kNow), Status::kOk);
    const auto append = [writer, &arena](uint64_t serial) {
      ItemRule::Missing missing{};
      CHECK_EQ(writer->stream().ensure_row(kNow), Status::kOk);
      writer->begin(WriterCall::kAppend);
      write_row(writer->stream(), arena, serial);
      CHECK_EQ(writer->look_at_row(-1, missing), Status::kOk);
      size_t at = 0;
      const bool waits = writer->may_hold_back();
      CHECK_EQ(waits ? writer->hold_back() : RuleWriter::insert({&writer, 1}, kNow, at), Status::kOk);
      CHECK(writer->conclude());
      CHECK_EQ(waits, serial < 4);
    };
    for (uint64_t serial = 1; serial < 4; ++serial) append(serial);
    return [append] { append(4); };
  });
}

TEST(chunks_for_several_streams_are_taken_together_or_not_at_all) {
  CrashLab(lab_spec()).run("rows that begin chunks", Holds::kMany, appends(3, 2));
  CrashLab(lab_spec()).run("chunks of five streams", Holds::kOne, [](Arena& arena) -> std::function<void()> {
    Fleet& fleet = fleet_of(arena, 5, 2);
    return [&fleet] {
      std::vector<StreamSteps*> streams;
      for (const auto& row : fleet.everybody) streams.push_back(&fleet.writer.at(row.stream).stream().steps());
      uint32_t ready = 0;
      CHECK_EQ(StreamGroup(streams).ensure_rows(kNow, ready), Status::kOk);
      CHECK_EQ(ready, 5u);
    };
  });
}

TEST(chunks_side_by_side_are_taken_with_their_repeated_rows_together_or_not_at_all) {
  CrashLab(lab_spec()).run("rows that are repeated", Holds::kMany, [](Arena& arena) -> std::function<void()> {
    Fleet& fleet = *new Fleet(arena, {unroll(arena, 0, 1), newest(arena, 2, 2)}, 3, 4);
    for (int k = 0; k < 4; ++k) CHECK_EQ(fleet.append(kNow), Status::kOk);
    return [&fleet] { CHECK_EQ(fleet.append(kNow), Status::kOk); };
  });
  // The run is taken out of the middle of a list, whose order is 2 5 1 3 0 6.
  CrashLab(lab_spec()).run("a run of chunks", Holds::kOne, [](Arena& arena) -> std::function<void()> {
    std::vector<StreamSteps*> streams;
    for (int i = 0; i < 8; ++i) {
      auto* writer = new RuleWriter(arena, arena.table(0), 4, facts_of(arena), {unroll(arena, 0, 1)});
      uint32_t ready = 0;
      streams.push_back(&writer->stream().steps());
      CHECK_EQ(writer->stream().open(kNow), Status::kOk);
      CHECK_EQ(StreamGroup({&streams.back(), 1}).ensure_rows(kNow, ready), Status::kOk);
    }
    std::vector<StreamSteps*> wanting;
    for (const int i : {6, 0, 3, 1, 5, 2}) {
      CHECK_EQ(StreamGroup({&streams[static_cast<size_t>(i)], 1}).close(kNow), Status::kOk);
      if (wanting.size() < 3) wanting.push_back(streams[static_cast<size_t>(i)]);
    }
    uint32_t freed = 0;
    CHECK_EQ(reclaim(arena, kNow, freed), Status::kOk);
    CHECK_EQ(StreamGroup(wanting).open(kNow), Status::kOk);
    return [wanting] {
      uint32_t ready = 0;
      CHECK_EQ(StreamGroup(wanting).ensure_rows(kNow, ready), Status::kOk);
      CHECK_EQ(ready, 3u);
    };
  });
}

TEST(several_streams_open_together_or_not_at_all) {
  CrashLab(lab_spec()).run("open six streams", Holds::kOne, [](Arena& arena) -> std::function<void()> {
    Fleet& fleet = *new Fleet(arena, {newest(arena, 0, 3)}, 6, 4);
    return [&fleet] {
      std::vector<StreamSteps*> streams;
      for (const auto& row : fleet.everybody) streams.push_back(&fleet.writer.at(row.stream).stream().steps());
      CHECK_EQ(StreamGroup(streams).open(kNow), Status::kOk);
    };
  });
}

TEST(several_streams_close_hold_by_hold_and_each_is_whole) {
  CrashLab(lab_spec()).run("close five streams", Holds::kMany, [](Arena& arena) -> std::function<void()> {
    Fleet& fleet = fleet_of(arena, 5, 5);
    return [&fleet] { CHECK_EQ(fleet.writer.close(kNow), Status::kOk); };
  });
}

TEST(ends_of_several_episodes_happen_hold_by_hold_and_each_is_whole) {
  CrashLab(lab_spec()).run("ends of three episodes", Holds::kOne, [](Arena& arena) -> std::function<void()> {
    auto* fleet = new Fleet(arena, {newest(arena, 0, 3, AtEnd::kPad)}, 3, 4);
    for (int k = 0; k < 2; ++k) CHECK_EQ(fleet->append(kNow), Status::kOk);
    return [fleet] {
      VectorWriter::Progress progress;
      CHECK_EQ(fleet->writer.end_episodes(fleet->everybody, nullptr, true, -1, kNow, progress), Status::kOk);
    };
  });
}

TEST(arrays_go_in_hold_by_hold_and_each_is_whole) {
  // With a rule and without one. There are so few rows that one hold takes the items of each call, so that the points
  // do not depend on the clock's ticks.
  for (const uint32_t num_rows : {9u, 2u}) {
    CrashLab(lab_spec()).run("extend", Holds::kMany, [=](Arena& arena) -> std::function<void()> {
      std::vector<ItemRule> rules;
      if (num_rows > 2) rules.push_back(newest(arena, 0, 2));
      auto* writer = new RuleWriter(arena, arena.table(0), 20, facts_of(arena), rules);
      static const std::vector<char> zeros(1024, 0);
      static ExtendRows rows{{}, nullptr, 0};
      rows.num_rows = num_rows;
      rows.columns.assign(arena.geometry().num_columns, zeros.data());
      return [=] {
        Extend extend(*writer, rows, true, num_rows > 2);
        CHECK_EQ(extend.run(kNow), Status::kOk);
        CHECK_EQ(extend.keys().size(), rules.empty() ? num_rows : num_rows - 1);
      };
    });
  }
  CrashLab::print_totals();
}

}  // namespace shmreplay::test
