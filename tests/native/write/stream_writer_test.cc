#include "write/stream_writer.h"

#include <csignal>

#include "chunks/streams_fixture.h"

namespace shmreplay::test {
namespace {

ArenaSpec one_table(TableSpec table, uint32_t chunk_steps, uint32_t num_chunks) {
  return arena_of({std::move(table)}, chunk_steps, num_chunks);
}

}  // namespace

TEST(items_of_any_length_cross_chunk_borders_unseen) {
  for (const uint32_t chunk_steps : {1u, 3u, 8u}) {
    World w(one_table(open_table("a", 1000), chunk_steps, 200));
    Actor actor(w.arena, w.table(), 10);
    for (uint64_t t = 1; t <= 40; ++t) {
      actor.append();
      for (uint32_t length = 1; length <= std::min<uint64_t>(t, 10); ++length) {
        CHECK_EQ(rows_of(w, actor.create(length)), serials(t - length + 1, t));
      }
    }
    check_healthy(w.arena);
  }
}

TEST(the_window_holds_the_history_and_the_row_being_written_and_no_more) {
  for (const uint32_t chunk_steps : {1u, 3u, 8u}) {
    for (const uint32_t history : {0u, 1u, 3u, 8u, 9u, 17u}) {
      World w(one_table(open_table("a", 10), chunk_steps, 100));
      Actor actor(w.arena, w.table(), history);
      for (int i = 0; i < 60; ++i) actor.append();
      CHECK_EQ(w.arena.stream(0).size.get().num_chunks, (history + chunk_steps - 1) / chunk_steps + 1);
      CHECK_EQ(actor.writer.history().num_steps(), history);
      check_healthy(w.arena);
    }
  }
}

TEST(closing_twice_is_closing_once_and_retires_what_nobody_needs) {
  World w(one_table(open_table("a", 10), 4, 20));
  Actor actor(w.arena, w.table(), 40);
  for (int i = 0; i < 40; ++i) actor.append();
  CHECK_EQ(actor.writer.close(kNow), Status::kOk);
  CHECK(!actor.writer.is_open());
  CHECK_EQ(actor.writer.close(kNow), Status::kOk);
  CHECK_EQ(w.arena.state().num_retired.get(), 10u);
  check_healthy(w.arena);
}

TEST(a_writer_closes_with_its_scope) {
  World w(one_table(open_table("a", 10), 4, 20));
  {
    Actor actor(w.arena, w.table(), 4);
    actor.append();
  }
  CHECK_EQ(w.arena.state().num_used.get(), 0u);
}

TEST(a_writer_of_a_damaged_index_can_still_be_destroyed) {
  World w(one_table(open_table("a", 10), 4, 20));
  {
    Actor actor(w.arena, w.table(), 4);
    actor.append();
    poke(w.arena.stream(0).window, {77, 77});
  }
  CHECK(w.arena.failed());
}

TEST(a_reaped_session_can_not_write_on) {
  World w(one_table(open_table("a", 10), 4, 20));
  Actor actor(w.arena, w.table());
  actor.insert();
  bool reaped = false;
  CHECK_EQ(close_session(*w.daemon, w.arena.session_index(), w.arena.session_generation(), kNow, reaped), Status::kOk);
  int64_t key = 0;
  CHECK_EQ(actor.try_insert(1, kNow, key), Status::kSessionLost);
  CHECK_EQ(live_items(w.table()), 1u);
}

TEST(when_every_stream_is_open_a_writer_can_not_open) {
  World w(one_table(open_table("a", 10), 4, 40));
  std::vector<std::unique_ptr<StreamWriter>> writers;
  for (int i = 0; i < 16; ++i) {
    writers.push_back(std::make_unique<StreamWriter>(w.arena, w.table(), 0));
    CHECK_EQ(writers.back()->open(kNow), Status::kOk);
  }
  StreamWriter late(w.arena, w.table(), 0);
  CHECK_EQ(late.open(kNow), Status::kNoStreams);
  writers.pop_back();
  CHECK_EQ(late.open(kNow), Status::kOk);
}

TEST(when_all_streams_are_open_those_of_dead_processes_are_taken_back) {
  World w(arena_of({open_table("a", 10)}));
  Child gone([&] {
    const SessionInfo info = open_own_session(*w.segments.attach());
    const auto arena = w.segments.attach(info.index, info.generation);
    std::vector<std::unique_ptr<StreamWriter>> writers;
    for (uint32_t i = 0; i < arena->geometry().max_streams; ++i) {
      writers.push_back(std::make_unique<StreamWriter>(*arena, arena->table(0), 0));
      CHECK_EQ(writers.back()->open(kNow), Status::kOk);
    }
    raise(SIGKILL);
  });
  CHECK(gone.killed());
  StreamWriter writer(w.arena, w.table(), 0);
  CHECK_EQ(writer.open(kNow), Status::kOk);
  check_healthy(w.arena);
}

}  // namespace shmreplay::test
