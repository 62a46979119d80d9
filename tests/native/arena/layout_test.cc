#include <algorithm>

#include "support/fixtures.h"

namespace shmreplay::test {
namespace {

std::vector<uint64_t> region_starts(const Offsets& o) {
  return {o.specs, o.lock,  o.log,        o.state,    o.sessions, o.streams,   o.sleepers,
          o.calls, o.save,  o.chunks,     o.blocks,   o.columns,  o.patterns,  o.tables,
          o.items, o.links, o.priorities, o.episodes, o.values,   o.selectors, o.end};
}

ArenaSpec random_spec(Random& random) {
  ArenaSpec s = arena_of({}, 1 + static_cast<uint32_t>(random.below(70)), 1 + static_cast<uint32_t>(random.below(50)));
  s.columns.clear();
  s.num_blocks = static_cast<uint32_t>(random.below(20));
  s.block_bytes = s.num_blocks == 0 ? 0 : 64 * (1 + static_cast<uint32_t>(random.below(4)));
  for (uint64_t n = 1 + random.below(kMaxColumns); n > 0; --n) {
    const uint32_t flags[] = {0, 0, kMutableColumn, s.num_blocks > 0 ? kHeapColumn : 0u,
                              s.num_blocks > 0 ? kPerItemColumn : 0u};
    s.columns.push_back({static_cast<uint32_t>(random.below(200)), flags[random.below(5)]});
  }
  for (uint64_t n = 1 + random.below(4); n > 0; --n) {
    s.tables.push_back(open_table("t" + std::to_string(n), 1 + static_cast<uint32_t>(random.below(600)),
                                  static_cast<uint32_t>(random.below(6)), static_cast<uint32_t>(random.below(6))));
  }
  return s;
}

void expect_refused(ArenaSpec spec, const char* text) { CHECK_THROWS(std::invalid_argument, text, plan_arena(spec)); }

}  // namespace

// A segment of layout 8 is read by every build of layout 8. Changing a number below needs another kLayoutVersion.
TEST(sizes_of_layout_version_8_are_pinned) {
  CHECK_EQ(kLayoutVersion, 8u);
  CHECK_EQ(sizeof(Header), 496u);
  CHECK_EQ(sizeof(LockBlock), 256u);
  CHECK_EQ(sizeof(UndoLog), 128u + 16 * 4096);
  CHECK_EQ(sizeof(ArenaState), 384u);
  CHECK_EQ(sizeof(SessionRecord), 128u);
  CHECK_EQ(sizeof(StreamRecord), 64u);
  CHECK_EQ(sizeof(SleepSlot), 24u);
  CHECK_EQ(sizeof(CallSlot), 128u + 4 * 1024);
  CHECK_EQ(sizeof(ChunkRecord), 64u);
  CHECK_EQ(sizeof(BlockRecord), 16u);
  CHECK_EQ(sizeof(ColumnRecord), 24u);
  CHECK_EQ(sizeof(PatternRecord), 4096u);
  CHECK_EQ(sizeof(ItemRecord), 64u);
  CHECK_EQ(sizeof(ItemLinks), 32u);
  CHECK_EQ(sizeof(EpisodeRecord), 16u);
  CHECK_EQ(sizeof(HeapNode), 24u);
  CHECK_EQ(sizeof(TreeLayout), 104u);
  CHECK_EQ(sizeof(RoleLayout), 128u);
  CHECK_EQ(sizeof(WaitSide), 128u);
  CHECK_EQ(sizeof(News), 128u);
  CHECK_EQ(sizeof(Limiter), 80u);
  CHECK_EQ(sizeof(TableRecord), 2432u);
}

TEST(offsets_of_layout_version_8_are_pinned) {
  CHECK_EQ(offsetof(Header, layout_version), 8u);
  CHECK_EQ(offsetof(Header, layout_hash), 16u);
  CHECK_EQ(offsetof(Header, pid_namespace), 40u);
  CHECK_EQ(offsetof(Header, boot_id), 56u);
  CHECK_EQ(offsetof(Header, instance), 96u);
  CHECK_EQ(offsetof(Header, geometry), 240u);
  CHECK_EQ(offsetof(Header, offsets), 312u);
  CHECK_EQ(offsetof(Header, failed), 488u);
  CHECK_EQ(offsetof(Header, ready), 492u);
  CHECK_EQ(offsetof(LockBlock, session), 136u);
  CHECK_EQ(offsetof(LockBlock, pid), 140u);
  CHECK_EQ(offsetof(LockBlock, num_waits), 152u);
  CHECK_EQ(offsetof(ArenaState, num_rebuilds), 120u);
  CHECK_EQ(offsetof(ArenaState, chunk_waiters), 128u);
  CHECK_EQ(offsetof(ArenaState, chunk_futex), 256u);
  CHECK_EQ(offsetof(SessionRecord, first_take), 40u);
  CHECK_EQ(offsetof(SessionRecord, inserts), 48u);
  CHECK_EQ(offsetof(SessionRecord, room_waits), 88u);
  CHECK_EQ(offsetof(SleepSlot, since_ns), 16u);
  CHECK_EQ(offsetof(CallSlot, since_ns), 16u);
  CHECK_EQ(offsetof(CallSlot, names), 128u);
  CHECK_EQ(offsetof(PatternRecord, blob), 64u);
  CHECK_EQ(offsetof(ItemRecord, counted), 8u);
  CHECK_EQ(offsetof(ItemRecord, place), 16u);
  CHECK_EQ(offsetof(ItemRecord, insert_no), 56u);
  CHECK_EQ(offsetof(TableRecord, item_base), 96u);
  CHECK_EQ(offsetof(TableRecord, shard), 584u);
  CHECK_EQ(offsetof(TableRecord, flags), 640u);
  CHECK_EQ(offsetof(TableRecord, num_views), 792u);
  CHECK_EQ(offsetof(TableRecord, limiter), 896u);
  CHECK_EQ(offsetof(TableRecord, sides), 1024u);
  CHECK_EQ(offsetof(TableRecord, news), 1280u);
  CHECK_EQ(offsetof(TableRecord, longest), 1408u);
}

TEST(words_that_different_processes_write_are_on_lines_of_their_own) {
  CHECK_EQ(offsetof(LockBlock, hold_seq) % 128, 0u);
  CHECK_EQ(offsetof(UndoLog, entries) % 128, 0u);
  CHECK_EQ(offsetof(ArenaState, chunk_waiters) % 128, 0u);
  CHECK_EQ(offsetof(TableRecord, flags) % 128, 0u);
  CHECK_EQ(offsetof(TableRecord, limiter) % 128, 0u);
  CHECK_EQ(offsetof(TableRecord, sides) % 128, 0u);
  CHECK_EQ(offsetof(TableRecord, news) % 128, 0u);
  CHECK_EQ(sizeof(WaitSide) % 128, 0u);
}

#if defined(__x86_64__) && defined(__GLIBC__)
TEST(the_hash_of_layout_version_8_is_pinned) { CHECK_EQ(layout_hash(), 5735381883485795939u); }
#endif

TEST(a_plan_for_a_known_spec_is_pinned) {
  const Plan p = plan_arena(arena_of({open_table("a", 100, kPrioritized, kMinHeap)}, 4, 64));
  CHECK_EQ(p.geometry.chunk_bytes, 384u + 128);
  CHECK_EQ(p.geometry.presence_offset, 384u);
  CHECK_EQ(p.geometry.total_items, 104u);
  CHECK_EQ(p.offsets.specs, 4096u);
  CHECK_EQ(p.offsets.lock, 4224u);
  CHECK_EQ(p.offsets.log, 4480u);
  CHECK_EQ(p.offsets.state, 70144u);
  CHECK_EQ(p.offsets.end % 128, 0u);
  CHECK_EQ(p.data_bytes, 64u * 512);
}

TEST(regions_of_any_plan_lie_one_behind_the_other_on_lines_of_their_own) {
  Random random(seed());
  for (int round = 0; round < 200; ++round) {
    const Plan p = plan_arena(random_spec(random));
    const std::vector<uint64_t> starts = region_starts(p.offsets);
    CHECK(std::is_sorted(starts.begin(), starts.end()));
    for (const uint64_t at : starts) CHECK_EQ(at % 128, 0u);
    CHECK(p.offsets.end <= p.index_bytes && p.index_bytes % 4096 == 0 && p.data_bytes % 4096 == 0);
    CHECK(p.offsets.links - p.offsets.items >= sizeof(ItemRecord) * p.geometry.total_items);
    CHECK(p.offsets.selectors - p.offsets.episodes >= sizeof(EpisodeRecord) * p.geometry.total_items);
  }
}

TEST(columns_of_a_chunk_do_not_overlap_and_begin_on_lines) {
  Random random(seed());
  for (int round = 0; round < 200; ++round) {
    const Plan p = plan_arena(random_spec(random));
    uint64_t end = 0;
    for (const ColumnRecord& c : p.columns) {
      CHECK(c.offset >= end && c.offset % 128 == 0);
      end = c.offset + uint64_t{c.stride} * p.geometry.chunk_steps;
      switch (c.flags) {
        case kHeapColumn: CHECK(c.row_bytes == 8 && c.stride == 8); break;
        case kPerItemColumn: CHECK(c.row_bytes == 0 && c.stride == 0); break;
        case kMutableColumn:
          CHECK(c.stride % 8 == 0 && c.stride >= 8 + 2 * c.row_bytes && c.stride < 8 + 2 * (c.row_bytes + 8));
          break;
        default: CHECK_EQ(c.stride, c.row_bytes);
      }
    }
    CHECK(p.geometry.presence_offset >= end);
    CHECK_EQ(p.geometry.presence_words, (p.geometry.num_columns + 63) / 64);
    const uint64_t presence = uint64_t{p.geometry.presence_words} * 8 * p.geometry.chunk_steps;
    CHECK(p.geometry.presence_offset + presence <= p.geometry.chunk_bytes && p.geometry.chunk_bytes % 128 == 0);
  }
}

TEST(values_of_items_take_place_only_where_a_column_is_per_item) {
  ArenaSpec s = arena_of({open_table("a", 100)});
  const Plan without = plan_arena(s);
  CHECK_EQ(without.offsets.values, without.offsets.selectors);
  s.num_blocks = 10;
  s.block_bytes = 64;
  s.columns.push_back({0, kPerItemColumn});
  const Plan with = plan_arena(s);
  CHECK_EQ(with.offsets.selectors - with.offsets.values, round_up(8 * with.geometry.total_items, 128));
  CHECK_EQ(with.geometry.chunk_bytes, without.geometry.chunk_bytes);
  CHECK_EQ(with.data_bytes, without.data_bytes + round_up(640, 4096));
}

TEST(trees_have_as_many_levels_as_their_leaves_need) {
  const auto levels = [](uint32_t max_size) {
    return place_selectors(max_size, kPrioritized, kFifo, 0, 0).roles[kSampler].sum.num_levels;
  };
  CHECK_EQ(levels(7), 1u);
  CHECK_EQ(levels(8), 2u);
  CHECK_EQ(levels(63), 2u);
  CHECK_EQ(levels(64), 3u);
  CHECK_EQ(levels(511), 3u);
  CHECK_EQ(levels(512), 4u);
  CHECK(levels((1u << 31) - 1) <= static_cast<uint32_t>(kMaxTreeLevels));
}

TEST(selectors_get_only_the_structures_they_use) {
  const SelectorPlacement fifo = place_selectors(100, kFifo, kLifo, 0, 1280);
  CHECK_EQ(fifo.end, 1280u);
  const SelectorPlacement uniform = place_selectors(100, kUniform, kFifo, 0, 1280);
  CHECK_EQ(uniform.roles[kSampler].dense, 1280u);
  CHECK_EQ(uniform.end, 1280u + 512);
  const SelectorPlacement heap = place_selectors(100, kMaxHeap, kMinHeap, 0, 1280);
  CHECK_EQ(heap.roles[kSampler].heap, 1280u);
  CHECK_EQ(heap.roles[kRemover].heap, round_up(1280 + 101 * sizeof(HeapNode), 128));
  const SelectorPlacement prioritized = place_selectors(100, kPrioritized, kFifo, 4096, 1280);
  CHECK_EQ(prioritized.extremes[0].level[0], 4096u);
  CHECK_EQ(prioritized.extremes[1].level[0], 4096u);
}

TEST(a_spec_out_of_range_is_refused_with_its_range) {
  const ArenaSpec good = arena_of({open_table("a", 10)});
  ArenaSpec s = good;
  s.columns.clear();
  expect_refused(s, "1 to 125 columns");
  s = good, s.chunk_steps = 0;
  expect_refused(s, "chunk_steps must be in 1 .. 2^24");
  s = good, s.num_chunks = 0;
  expect_refused(s, "num_chunks must be in 1");
  s = good, s.max_streams = 0;
  expect_refused(s, "max_streams must be in 1");
  s = good, s.max_sessions = 1u << 20;
  expect_refused(s, "max_sessions must be in 1 .. 2^20 - 1");
  s = good, s.tables.clear();
  expect_refused(s, "1 to 64 tables");
  s = good, s.tables[0].max_size = 0;
  expect_refused(s, "max_size must be in 1 .. 2^31 - 1");
  s = good, s.tables[0].name = std::string(72, 'x');
  expect_refused(s, "1 to 71 bytes");
  s = good, s.tables[0].sampler = 6;
  expect_refused(s, "unknown selector kind");
  s = arena_of({open_table("a", (1u << 31) - 1), open_table("b", (1u << 31) - 1)});
  expect_refused(s, "fewer than 2^32 - 1 items together");
  s = good, s.columns.push_back({8, kHeapColumn});
  expect_refused(s, "heap and per-item columns need blocks");
  s = good, s.columns.push_back({8, kHeapColumn | kMutableColumn});
  expect_refused(s, "plain, or one of heap, mutable and per item");
  s = good, s.num_blocks = 4, s.block_bytes = 100;
  expect_refused(s, "a multiple of 64");
  s = good, s.block_bytes = 64;
  expect_refused(s, "0 without blocks");
  s = with_values(good, 4), s.columns.push_back({0, kHeapColumn, 255 * 4 * 64 + 1});
  expect_refused(s, "larger than what the whole heap can hold");
  s.columns.back().packed_bytes = 255 * 4 * 64;
  plan_arena(s);
  s = good, s.specs = std::string(kMaxSpecsBytes + 1, 'x');
  expect_refused(s, "at most 64 MiB");
}

}  // namespace shmreplay::test
