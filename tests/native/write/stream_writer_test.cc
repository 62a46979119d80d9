#include "write/stream_writer.h"

#include <csignal>

#include "chunks/streams_fixture.h"

namespace shmreplay::test {
namespace {

const Wait kTry{kForever, nullptr, true};

std::vector<uint64_t> from_to_serial(uint64_t first, uint64_t last) {
  std::vector<uint64_t> rows;
  for (uint64_t s = first; s <= last; ++s) rows.push_back(s);
  return rows;
}

ArenaSpec one_table(TableSpec table, uint32_t chunk_steps, uint32_t num_chunks) {
  return arena_of({std::move(table)}, chunk_steps, num_chunks);
}

TableSpec with_on_full(TableSpec t, uint32_t on_full) {
  t.on_full = on_full;
  return t;
}

}  // namespace

TEST(items_of_any_length_cross_chunk_borders_unseen) {
  for (const uint32_t chunk_steps : {1u, 3u, 8u}) {
    World w(one_table(open_table("a", 1000), chunk_steps, 200));
    Actor actor(w.arena, w.table(), 10);
    for (uint64_t t = 1; t <= 40; ++t) {
      actor.append();
      for (uint32_t length = 1; length <= std::min<uint64_t>(t, 10); ++length) {
        CHECK_EQ(rows_of(w, actor.create(length)), from_to_serial(t - length + 1, t));
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
      CHECK_EQ(actor.writer.num_steps(), history);
      check_healthy(w.arena);
    }
  }
}

TEST(the_open_row_is_the_newest_step) {
  World w(one_table(open_table("a", 10), 4, 20));
  Actor actor(w.arena, w.table(), 3);
  for (int i = 0; i < 4; ++i) actor.append();
  CHECK_EQ(actor.writer.ensure_row(kNow), Status::kOk);
  CHECK(!actor.writer.row_is_open());
  write_row(actor.writer, w.arena, 5);
  CHECK(actor.writer.row_is_open() && actor.writer.has(0) && !actor.writer.lacks_any());
  CHECK_EQ(actor.writer.num_steps(), 4u);
  CHECK_EQ(rows_of(w, actor.create(4)), from_to_serial(2, 5));
  actor.writer.finish_row();
  CHECK_EQ(actor.writer.num_steps(), 3u);
  CHECK_EQ(actor.writer.episode_steps(), 5u);
}

TEST(the_presence_bits_say_which_columns_a_row_has) {
  World w(one_table(open_table("a", 10), 4, 20));
  Actor actor(w.arena, w.table(), 3);
  actor.append();
  CHECK_EQ(actor.writer.ensure_row(kNow), Status::kOk);
  fill_cell(actor.writer.cell(1), 24, 9);
  actor.writer.mark(1);
  CHECK(actor.writer.lacks_any() && actor.writer.has(1) && !actor.writer.has(0));
  actor.writer.end_episode(false);  // the open row is the final step
  const uint32_t chunk = w.arena.stream(0).window.get().first;
  CHECK_EQ(w.arena.presence(chunk, 0, 0).load(), 0b111u);
  CHECK_EQ(w.arena.presence(chunk, 1, 0).load(), 0b010u);
  CHECK_EQ(actor.writer.num_steps(), 2u);
}

TEST(an_episodes_end_forgets_its_steps_only_if_asked_to) {
  World w(one_table(open_table("a", 10), 4, 20));
  Actor actor(w.arena, w.table(), 8);
  for (int i = 0; i < 3; ++i) actor.append();
  actor.writer.end_episode(false);
  CHECK_EQ(actor.writer.num_steps(), 3u);
  CHECK_EQ(actor.writer.episode_steps(), 0u);
  actor.append();
  CHECK_EQ(rows_of(w, actor.create(4)), from_to_serial(1, 4));
  actor.writer.end_episode(true);
  CHECK_EQ(actor.writer.num_steps(), 0u);
}

TEST(a_run_of_rows_becomes_items_in_their_order) {
  World w(one_table(open_table("a", 500, kPrioritized), 128, 8));
  Actor actor(w.arena, w.table());
  std::vector<int64_t> keys(100, 0);
  const std::vector<double> priorities(100, -1);
  CHECK_EQ(actor.writer.ensure_row(kNow), Status::kOk);
  CHECK(actor.writer.rows_left() >= 100);
  for (uint32_t i = 0; i < 100; ++i) {
    for (uint32_t c = 0; c < 3; ++c) {
      const uint32_t bytes = w.arena.columns()[c].row_bytes;
      fill_cell(actor.writer.cell(c) + i * bytes, bytes, i + 1);
    }
  }
  uint32_t done = 0;
  CHECK_EQ(actor.writer.insert_rows(w.table(), actor.step, priorities.data(), 100, kNow, keys.data(), done),
           Status::kOk);
  CHECK_EQ(done, 100u);
  CHECK_EQ(actor.writer.rows_left(), 28u);
  for (uint64_t i = 0; i < 100; ++i) CHECK_EQ(rows_of(w, keys[i]), from_to_serial(i + 1, i + 1));
  CHECK_EQ(w.arena.priority(find_item(w.arena, w.table(), keys[99])).get(), 1.0);
  check_healthy(w.arena);
}

TEST(a_run_of_rows_that_the_limiter_stops_says_how_many_went_in) {
  World w(one_table(queue_table("q", 10), 64, 8));
  Actor actor(w.arena, w.table());
  std::vector<int64_t> keys(40, 0);
  const std::vector<double> priorities(40, 1);
  const auto run = [&](const Wait& wait) {
    uint32_t done = 77;
    CHECK_EQ(actor.writer.ensure_row(kNow), Status::kOk);
    CHECK_EQ(actor.writer.insert_rows(w.table(), actor.step, priorities.data(), 40, wait, keys.data(), done),
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

TEST(an_item_of_more_chunks_than_a_hold_can_log_is_refused) {
  World w(one_table(open_table("a", 10), 1, 500));
  Actor actor(w.arena, w.table(), kMaxItemChunks + 5);
  for (uint32_t i = 0; i < kMaxItemChunks + 5; ++i) actor.append();
  int64_t key = 0;
  CHECK_EQ(create_item(actor.writer, w.table(), actor.span, kMaxItemChunks + 1, 1, kNow, key), Status::kTooManyChunks);
  CHECK_EQ(rows_of(w, actor.create(kMaxItemChunks)).size(), kMaxItemChunks);
}

// The largest hold there is: a new pattern as large as a record, an item of the most chunks, and a victim of as many,
// all of whose chunks retire with it, in a table that keeps its items.
TEST(the_largest_insert_fits_the_log) {
  for (const uint32_t kind : {kPrioritized, kMinHeap}) {
    TableSpec table = with_on_full(open_table("a", 1, kind, kFifo), kOnFullError);
    World w(one_table(table, 1, 1000));
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

TEST(when_every_stream_is_open_those_of_dead_processes_come_back_to_who_needs_one) {
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

TEST(whole_steps_are_those_behind_the_last_one_that_lacks_a_column) {
  World w(one_table(open_table("a", 10), 4, 20));
  Actor actor(w.arena, w.table(), 5);
  for (int i = 0; i < 3; ++i) actor.append();
  CHECK_EQ(actor.writer.num_whole(), 3u);
  CHECK_EQ(actor.writer.ensure_row(kNow), Status::kOk);
  fill_cell(actor.writer.cell(0), 8, 9);
  actor.writer.mark(0);
  actor.writer.finish_row();
  CHECK_EQ(actor.writer.num_whole(), 0u);
  for (int i = 0; i < 2; ++i) actor.append();
  CHECK_EQ(actor.writer.num_whole(), 2u);
  actor.writer.end_episode(true);
  CHECK_EQ(actor.writer.num_whole(), 0u);
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
  CHECK_EQ(rows_of(w, keys[0], 0), from_to_serial(3, 4));
  CHECK_EQ(rows_of(w, keys[1], 1), from_to_serial(2, 4));
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
  World w(one_table(open_table("a", 100), 1, 500));
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

}  // namespace shmreplay::test
