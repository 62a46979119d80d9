// A small pool of chunks and blocks, and a stream that takes them by hand.
#pragma once

#include "chunks/chunk_pool.h"
#include "chunks/streams.h"
#include "support/fixtures.h"

namespace shmreplay::test {

inline ArenaSpec pool_of(uint32_t num_chunks, std::vector<TableSpec> tables = {open_table("a", 100)}) {
  ArenaSpec s = arena_of(std::move(tables), 4, num_chunks);
  s.num_blocks = 16;
  s.block_bytes = 128;
  return s;
}

// A stream that takes chunks by hand.
class Taker {
 public:
  explicit Taker(Arena& arena, uint32_t max_chunks = 100) : arena_(arena) {
    Hold hold(arena_);
    CHECK_EQ(hold.begin(kNow), Status::kOk);
    CHECK_EQ(open_stream(hold, max_chunks, stream_), Status::kOk);
  }

  uint32_t take(bool steal = false) {
    Hold hold(arena_);
    CHECK_EQ(hold.begin(kNow), Status::kOk);
    const StreamRecord& r = arena_.stream(stream_);
    const uint32_t c =
        (steal ? steal_chunk : take_chunk)(hold, arena_.session_index(), r.serial.get(), r.window.get().last);
    if (c != kNone) extend_window(hold, stream_, c);
    return c;
  }

  std::vector<uint32_t> take_all() {
    std::vector<uint32_t> chunks;
    for (uint32_t c = take(); c != kNone; c = take()) chunks.push_back(c);
    return chunks;
  }

  void close() {
    for (bool done = false; !done;) {
      Hold hold(arena_);
      CHECK_EQ(hold.begin(kNow), Status::kOk);
      done = close_stream(hold, stream_, 32);
    }
  }

 private:
  Arena& arena_;
  uint32_t stream_ = kNone;
};

inline uint32_t reclaimed(Arena& arena) {
  uint32_t freed = 0;
  CHECK_EQ(reclaim(arena, kNow, freed), Status::kOk);
  return freed;
}

inline ChunkLife life(Arena& arena, uint32_t chunk) { return arena.chunk(chunk).life.get(); }

}  // namespace shmreplay::test
