#include "chunks/streams.h"
#include "arena/span.h"

#include "chunks/chunk_pool.h"
#include "support/fixtures.h"

namespace shmreplay::test {
namespace {

ArenaSpec many_streams(uint32_t max_streams) {
  ArenaSpec s = arena_of({open_table("a", 10)}, 4, 64);
  s.max_streams = max_streams;
  return s;
}

uint32_t open_one(Arena& arena, uint32_t max_chunks = 2) {
  Hold hold(arena);
  CHECK_EQ(hold.begin(kNow), Status::kOk);
  uint32_t stream = kNone;
  CHECK_EQ(open_stream(hold, max_chunks, stream), Status::kOk);
  return stream;
}

uint32_t extend(Arena& arena, uint32_t stream) {
  Hold hold(arena);
  CHECK_EQ(hold.begin(kNow), Status::kOk);
  const StreamRecord& r = arena.stream(stream);
  const uint32_t c = take_chunk(hold, arena.session_index(), r.serial.get(), r.window.get().last);
  CHECK(c != kNone);
  extend_window(hold, stream, c);
  return c;
}

bool close_slice(Arena& arena, uint32_t stream, uint32_t slice) {
  Hold hold(arena);
  CHECK_EQ(hold.begin(kNow), Status::kOk);
  return close_stream(hold, stream, slice);
}

uint32_t window_chunks(Arena& arena, uint32_t stream) { return arena.stream(stream).size.get().num_chunks; }

}  // namespace

TEST(a_stream_belongs_to_the_session_that_opened_it_and_has_a_serial_of_its_own) {
  World w(many_streams(3));
  const uint32_t a = open_one(w.arena), b = open_one(w.arena);
  CHECK(a != b);
  CHECK_EQ(w.arena.stream(a).owner.get().session, w.arena.session_index());
  CHECK_EQ(w.arena.stream(a).owner.get().generation, w.arena.session_generation());
  CHECK(w.arena.stream(a).serial.get() != w.arena.stream(b).serial.get());
  check_healthy(w.arena);
}

TEST(when_every_stream_is_open_another_is_refused_until_one_closes) {
  World w(many_streams(2));
  const uint32_t a = open_one(w.arena);
  open_one(w.arena);
  {
    Hold hold(w.arena);
    CHECK_EQ(hold.begin(kNow), Status::kOk);
    uint32_t stream;
    CHECK_EQ(open_stream(hold, 1, stream), Status::kNoStreams);
  }
  CHECK(close_slice(w.arena, a, 10));
  CHECK_EQ(open_one(w.arena), a);
  check_healthy(w.arena);
}

TEST(a_window_keeps_its_newest_chunks_and_lets_the_oldest_go) {
  World w(many_streams(2));
  const uint32_t s = open_one(w.arena, 3);
  const uint32_t first = extend(w.arena, s);
  CHECK_EQ(w.arena.stream(s).window.get().first, first);
  const uint32_t second = extend(w.arena, s);
  extend(w.arena, s);
  CHECK_EQ(window_chunks(w.arena, s), 3u);
  const uint32_t fourth = extend(w.arena, s);
  CHECK_EQ(window_chunks(w.arena, s), 3u);
  CHECK_EQ(w.arena.stream(s).window.get().first, second);
  CHECK_EQ(w.arena.stream(s).window.get().last, fourth);
  CHECK_EQ(static_cast<uint32_t>(w.arena.chunk(first).life.get().state), kChunkRetired);
  check_healthy(w.arena);
}

TEST(a_window_of_one_chunk_moves_from_chunk_to_chunk) {
  World w(many_streams(2));
  const uint32_t s = open_one(w.arena, 1);
  for (int i = 0; i < 5; ++i) {
    const uint32_t c = extend(w.arena, s);
    CHECK_EQ(w.arena.stream(s).window.get().first, c);
    CHECK_EQ(w.arena.stream(s).window.get().last, c);
    CHECK_EQ(window_chunks(w.arena, s), 1u);
    check_healthy(w.arena);
  }
}

TEST(a_stream_closes_in_slices_and_is_whole_between_them) {
  World w(many_streams(2));
  const uint32_t s = open_one(w.arena, 10);
  for (int i = 0; i < 7; ++i) extend(w.arena, s);
  CHECK(!close_slice(w.arena, s, 3));
  CHECK_EQ(window_chunks(w.arena, s), 4u);
  check_healthy(w.arena);
  CHECK(!close_slice(w.arena, s, 3));
  CHECK(close_slice(w.arena, s, 3));
  CHECK_EQ(w.arena.state().num_retired.get(), 7u);
  check_healthy(w.arena);
}

TEST(a_chunk_that_is_closed_early_has_fewer_rows) {
  World w(many_streams(2));
  const uint32_t s = open_one(w.arena, 10);
  const uint32_t c = extend(w.arena, s);
  {
    Hold hold(w.arena);
    CHECK_EQ(hold.begin(kNow), Status::kOk);
    close_chunk(hold, c, 2);
  }
  const uint32_t next = extend(w.arena, s);
  std::vector<std::pair<uint32_t, uint32_t>> runs;
  each_run(w.arena, {c, 1}, 4, [&](uint32_t chunk, uint32_t, uint32_t rows) { runs.emplace_back(chunk, rows); });
  CHECK_EQ(runs.size(), 2u);
  CHECK(runs[0] == std::pair(c, 1u));
  CHECK(runs[1] == std::pair(next, 3u));
}

TEST(reaping_closes_the_streams_of_one_session_and_no_others) {
  World w(many_streams(8));
  const auto other = w.client();
  for (int i = 0; i < 3; ++i) extend(*other, open_one(*other));
  const uint32_t mine = open_one(w.arena);
  extend(w.arena, mine);
  bool reaped = false;
  CHECK_EQ(close_session(*w.daemon, other->session_index(), other->session_generation(), kNow, reaped), Status::kOk);
  CHECK(reaped);
  CHECK_EQ(window_chunks(w.arena, mine), 1u);
  CHECK_EQ(w.arena.state().num_retired.get(), 3u);
  check_healthy(w.arena);
}

// A vector writer opens thousands of streams before it writes a row. Its death must not need more than one hold's log.
TEST(reaping_thousands_of_streams_without_a_chunk_fits_its_holds) {
  World w(many_streams(6000));
  const auto other = w.client();
  for (int i = 0; i < 5000; ++i) open_one(*other);
  bool reaped = false;
  CHECK_EQ(close_session(*w.daemon, other->session_index(), other->session_generation(), kNow, reaped), Status::kOk);
  CHECK(reaped);
  check_healthy(w.arena);
}

}  // namespace shmreplay::test
