#include "arena/span.h"

#include "support/fixtures.h"

namespace shmreplay::test {
namespace {

struct Run {
  uint32_t chunk, row, rows;
  bool operator==(const Run&) const = default;
};
using Runs = std::vector<Run>;

// Links full chunks to one stream, in that order. With `repeats`, the last row of each is also the first of the next.
void link(World& w, const std::vector<uint32_t>& chunks, bool repeats) {
  for (size_t i = 0; i < chunks.size(); ++i) {
    const bool is_last = i + 1 == chunks.size();
    poke(w.arena.chunk(chunks[i]).life, {kChunkUsed, repeats && !is_last ? 1u : 0u, 4, 0});
    poke(w.arena.chunk(chunks[i]).stream, {kNone, is_last ? kNone : chunks[i + 1]});
  }
}

Runs runs_of(World& w, Place place, uint32_t num_steps) {
  Runs runs;
  each_run(w.arena, place, num_steps,
           [&](uint32_t chunk, uint32_t row, uint32_t rows) { runs.push_back({chunk, row, rows}); });
  return runs;
}

}  // namespace

TEST(a_span_is_visited_chunk_by_chunk_in_the_order_of_its_stream) {
  World w(arena_of({open_table("a", 10)}, 4, 300));
  link(w, {7, 2, 9}, false);
  CHECK(runs_of(w, {7, 1}, 2) == Runs({{7, 1, 2}}));
  CHECK(runs_of(w, {7, 1}, 9) == Runs({{7, 1, 3}, {2, 0, 4}, {9, 0, 2}}));
  CHECK(runs_of(w, {2, 3}, 1) == Runs({{2, 3, 1}}));
  CHECK(runs_of(w, {2, 3}, 0).empty());
}

TEST(a_span_that_goes_on_after_a_repeated_row_reads_it_in_the_next_chunk_and_one_that_ends_there_stays) {
  World w(arena_of({open_table("a", 10)}, 4, 300));
  link(w, {7, 2}, true);
  CHECK(runs_of(w, {7, 1}, 3) == Runs({{7, 1, 3}}));
  CHECK(runs_of(w, {7, 1}, 4) == Runs({{7, 1, 2}, {2, 0, 2}}));
  CHECK(runs_of(w, {7, 3}, 2) == Runs({{2, 0, 2}}));
}

TEST(a_walk_of_an_items_runs_ends_however_damaged_its_record_is) {
  World w(arena_of({open_table("a", 10)}, 1, 300));
  const auto walk = [&](Place place, uint32_t steps) {
    each_run(w.arena, place, steps, [](uint32_t, uint32_t, uint32_t) {});
  };
  for (uint32_t c = 0; c < 300; ++c) {
    poke(w.arena.chunk(c).life, {kChunkUsed, 0, 1, 0});
    poke(w.arena.chunk(c).stream, {kNone, (c + 1) % 3});
  }
  CHECK_THROWS(CorruptIndex, "spans too many chunks", walk({0, 0}, 4'000'000));
  CHECK_THROWS(CorruptIndex, "after its chunk's rows", walk({0, 1}, 1));
  CHECK_THROWS(CorruptIndex, "index out of range", walk({300, 0}, 1));
  poke(w.arena.chunk(5).life, {kChunkUsed, 0, 77, 0});  // more rows than a chunk has
  CHECK_THROWS(CorruptIndex, "after its chunk's rows", walk({5, 0}, 1));
}

}  // namespace shmreplay::test
