// check_invariants() finds what is wrong, and reports each kind of damage in its own words.
#include <algorithm>

#include "chunks/block_pool.h"
#include "chunks/chunk_pool.h"
#include "items/check.h"
#include "support/fixtures.h"

namespace shmreplay::test {
namespace {

// Tables of every structure, with items, episodes, chunks in every state, a sleeper and blocks.
class Scene {
 public:
  Scene()
      : world(spec()),
        arena(world.arena),
        table(*world.table(0).record),
        actor_(arena, world.table(0), 9),
        blocked_(arena, world.table(1), kSamples, kNow) {
    for (int i = 0; i < 30; ++i) {
      actor_.append();
      actor_.create(std::min(actor_.writer.history().num_steps(), 5u), i % 7);
    }
    free_some_chunks();
    Hold hold(arena);
    CHECK_EQ(hold.begin(kNow), Status::kOk);
    blocked_.join(hold);
    uint32_t blocks[4];
    CHECK(take_blocks(hold, used(), 4, blocks));
  }

  uint32_t used() const { return arena.state().used_chunks.get().head; }
  uint32_t window_end() const { return arena.stream(0).window.get().last; }
  uint32_t oldest() const { return table.order.get().head; }
  uint32_t newest() const { return table.order.get().tail; }
  HeapNode& heap(uint64_t i) const { return arena.at<HeapNode>(world.table(0).roles[kRemover].heap)[i]; }

  World world;
  Arena& arena;
  TableRecord& table;

 private:
  static ArenaSpec spec() {
    TableSpec t = open_table("a", 20, kPrioritized, kMinHeap);
    ArenaSpec s = arena_of({t, queue_table("q", 5)}, 4, 16);
    s.num_blocks = 8;
    s.block_bytes = 128;
    return s;
  }
  void free_some_chunks() {
    const std::vector<int64_t> keys = live_keys(arena, world.table(0));
    uint32_t n = 0;
    CHECK_EQ(delete_items(arena, world.table(0), keys.data(), static_cast<uint32_t>(keys.size()) - 6, kNow, n),
             Status::kOk);
    CHECK_EQ(reclaim(arena, kNow, n), Status::kOk);
    CHECK(n > 0);
  }

  Actor actor_;
  Blocked blocked_;
};

template <class Damage>
void expect_found(Damage damage, const std::string& text) {
  Scene s;
  check_healthy(s.arena);
  damage(s);
  std::vector<std::string> faults;
  CHECK_EQ(check_invariants(*s.world.daemon, kNow, faults), Status::kOk);
  const bool found = std::any_of(faults.begin(), faults.end(),
                                 [&](const std::string& f) { return f.find(text) != std::string::npos; });
  if (!found) fail(__FILE__, __LINE__, "'" + text + "' is not among " + shown(faults));
  s.arena.mark_failed();  // so that the scene's writer does not close into the damage
}

}  // namespace

TEST(wrong_counters_of_a_table_are_found) {
  expect_found([](Scene& s) { poke(s.table.limiter.inserts, 1); }, "I - D is");
  expect_found([](Scene& s) { poke(s.table.size, 5); }, "items in the order list is 6, expected 5");
  expect_found([](Scene& s) { poke(s.table.size, 21); }, "is over max_size");
  expect_found([](Scene& s) { poke(s.table.num_episodes, 3); }, "num_episodes is 3");
  expect_found([](Scene& s) { poke(s.world.table(1).record->remaining_samples, 3); }, "remaining samples is 3");
}

TEST(damaged_lists_of_items_are_found) {
  expect_found([](Scene& s) { poke(s.arena.links(s.newest()).order, {kNone, kNone}); }, "backward link");
  expect_found([](Scene& s) { poke(s.table.order, {s.oldest(), s.oldest()}); }, "the order list's tail");
  expect_found([](Scene& s) { poke(s.arena.item(s.newest()).seq, 1); }, "not in order of their seq");
  expect_found([](Scene& s) { poke(s.arena.state().next_seq, 2); }, "an item newer than next_seq");
  expect_found([](Scene& s) { poke(s.table.free_item, kNone); }, "free slots is 0");
  expect_found([](Scene& s) { poke(s.arena.priority(s.table.free_item.get()), 5); }, "a free slot has a priority");
  expect_found([](Scene& s) { poke(s.arena.links(s.oldest()).order, {kNone, 4'000'000}); }, "the walk left the index");
}

TEST(damaged_priorities_and_their_trees_and_heaps_are_found) {
  expect_found([](Scene& s) { poke(s.arena.priority(s.newest()), -1); }, "has priority -1");
  expect_found([](Scene& s) { poke(s.arena.priority(s.newest()), 77); }, "sum tree leaf");
  expect_found([](Scene& s) { poke(s.table.num_positive, 77); }, "items of positive priority is 77");
  expect_found([](Scene& s) { poke(s.arena.at<Word<double>>(s.world.table(0).roles[kSampler].sum.level[1])[0], 77); },
               "a node of the sum tree");
  expect_found([](Scene& s) { poke(s.arena.at<Word<double>>(s.world.table(0).extremes[1].level[1])[0], 77); },
               "a node of the trees of extremes");
  expect_found([](Scene& s) { poke(s.heap(0).priority, 100); }, "heap order at node 1");
  expect_found([](Scene& s) { poke(s.heap(3).item, s.heap(4).item.get()); }, "heap position of an item");
  expect_found([](Scene& s) { poke(s.arena.item(s.newest()).counted, {0, 9'999}); }, "dense position of an item");
}

TEST(damaged_chunks_are_found) {
  expect_found([](Scene& s) { poke(s.arena.chunk(s.used()).refs, {99, 0}); }, "item references is 99");
  expect_found([](Scene& s) { poke(s.arena.chunk(s.used()).refs, {s.arena.chunk(s.used()).refs.get().items, 5}); },
               "window references is 5");
  expect_found([](Scene& s) { poke(s.arena.chunk(s.used()).life, {kChunkRetired, 0, 4, 0}); },
               "is used without references");
  expect_found(
      [](Scene& s) { poke(s.arena.chunk(s.arena.state().free_chunks.get().head).life, {kChunkFree, 1, 0, 0}); },
      "repeats a row that it does not have");
  expect_found([](Scene& s) { poke(s.arena.chunk(s.used()).items, {kNone, 0}); }, "items that begin in it is 0");
  expect_found([](Scene& s) { poke(s.arena.chunk(s.used()).items, {s.arena.chunk(s.used()).items.get().first, 7}); },
               "of tables that keep items is 7");
  expect_found([](Scene& s) { poke(s.arena.chunk(s.window_end()).stream, {kNone, kNone}); }, "neighbour in the stream");
  expect_found([](Scene& s) { poke(s.arena.chunk(s.used()).stamp, 1'000'000); }, "not in the order taken");
  expect_found([](Scene& s) { poke(s.arena.state().used_chunks, {s.used(), s.used()}); }, "the used list's tail");
  expect_found([](Scene& s) { poke(s.arena.state().num_free, 3); }, "num_free is 3");
  expect_found([](Scene& s) { poke(s.arena.state().chunk_owners, kNone); }, "in the list of those with free chunks");
}

TEST(damaged_blocks_patterns_streams_and_sleepers_are_found) {
  expect_found([](Scene& s) { poke(s.arena.block(s.arena.chunk(s.used()).writer.get().first_block).owner, {1, 1}); },
               "belongs to another chunk");
  expect_found([](Scene& s) { poke(s.arena.state().free_blocks, kNone); }, "owned and free blocks is 4");
  expect_found([](Scene& s) { poke(s.arena.state().num_free_blocks, 3); }, "num_free_blocks is 3, expected 4");
  expect_found([](Scene& s) { poke(s.arena.state().num_reserved_blocks, 3); }, "num_reserved_blocks is 3, expected 0");
  expect_found([](Scene& s) { poke(s.arena.stream(0).reserved_blocks, 9); }, "more blocks are reserved than are free");
  expect_found([](Scene& s) { poke(s.arena.stream(s.arena.state().free_streams.get()).reserved_blocks, 1); },
               "is closed and has reserved blocks");
  expect_found([](Scene& s) { poke(s.arena.pattern(0).usage, {1, 1}); }, "references to pattern 0 is 1");
  expect_found([](Scene& s) { poke(s.arena.state().free_streams, kNone); }, "free streams is 0");
  expect_found(
      [](Scene& s) { poke(s.arena.session(s.arena.stream(0).owner.get().session).state, {kSessionAlive, 99}); },
      "stream 0 has no session");
  expect_found([](Scene& s) { poke(s.world.table(1).record->sides[kSamples].sleepers, 3); },
               "sleepers of table 'q' is 3");
  expect_found([](Scene& s) { poke(s.arena.state().free_sleepers, kNone); }, "free sleep slots is 0");
}

}  // namespace shmreplay::test
