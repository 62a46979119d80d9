#include "arena/layout.h"

#include <algorithm>
#include <stdexcept>

namespace shmreplay {
namespace {

// More than any machine has, and little enough that sums of bytes here cannot wrap.
constexpr uint64_t kMaxDataBytes = uint64_t{1} << 48;
constexpr char kTooMuchData[] = "an arena has at most 2^48 bytes of data";

constexpr uint64_t mix(uint64_t hash, uint64_t value) {
  for (int i = 0; i < 8; ++i) hash = (hash ^ (value >> (8 * i) & 0xff)) * 0x100000001b3;
  return hash;
}

constexpr uint64_t libc_family() {
#if defined(__GLIBC__)
  return 1;  // the robust list's protocol is the libc's; two families do not share a mutex
#else
  return 2;
#endif
}

void require(bool ok, const char* what) {
  if (!ok) throw std::invalid_argument(what);
}

void check_column(const ColumnSpec& c, const ArenaSpec& s) {
  require(c.flags == 0 || c.flags == kHeapColumn || c.flags == kMutableColumn || c.flags == kPerItemColumn,
          "a column is plain, or one of heap, mutable and per item");
  require(c.flags == 0 || c.flags == kMutableColumn || s.num_blocks > 0, "heap and per-item columns need blocks");
  require(c.packed_bytes == 0 || c.flags == kHeapColumn, "only heap columns are packed");
  require(c.row_bytes < 1u << 31 && c.packed_bytes < 1u << 31, "a row of a column has fewer than 2^31 bytes");
  // Writers and readers allocate rows of each packed column, so a size in the segment is believed only within this
  // bound, and at attach only if there is memory for them.
  require(c.packed_bytes <= kMostPacking * s.block_bytes * s.num_blocks,
          "a row of a packed column is larger than what the whole heap can hold of it");
}

void check_spec(const ArenaSpec& s) {
  require(!s.columns.empty() && s.columns.size() <= kMaxColumns,
          "an arena has 1 to 125 columns; join some into arrays");
  require(s.chunk_steps >= 1 && s.chunk_steps <= 1u << 24, "chunk_steps must be in 1 .. 2^24");
  require(s.num_chunks >= 1 && s.num_chunks < kNone, "num_chunks must be in 1 .. 2^32 - 2");
  require(s.max_streams >= 1 && s.max_streams < kNone, "max_streams must be in 1 .. 2^32 - 2");
  require(s.max_sessions >= 1 && s.max_sessions < 1u << 20, "max_sessions must be in 1 .. 2^20 - 1");
  require(s.num_blocks < kNone, "num_blocks must be in 0 .. 2^32 - 2");
  require(s.block_bytes % 64 == 0 && (s.block_bytes > 0) == (s.num_blocks > 0),
          "block_bytes must be a multiple of 64, 0 without blocks");
  require(s.specs.size() <= kMaxSpecsBytes, "the specs of an arena take at most 64 MiB");
  for (const ColumnSpec& c : s.columns) check_column(c, s);
  for (const TableSpec& t : s.tables) {
    if (t.shard < kMaxShards) continue;
    throw std::invalid_argument("table '" + t.name + "': shard is " + std::to_string(t.shard) +
                                "; expected less than 128");
  }
  require(!s.tables.empty() && s.tables.size() <= kMaxTables, "an arena has 1 to 64 tables");
  for (const TableSpec& t : s.tables) {
    require(t.max_size >= 1 && t.max_size < 1u << 31, "max_size must be in 1 .. 2^31 - 1");
    require(!t.name.empty() && t.name.size() < sizeof(TableRecord::name), "a table's name has 1 to 71 bytes");
    require(t.sampler <= kMaxHeap && t.remover <= kMaxHeap, "unknown selector kind");
  }
}

ColumnRecord place_column(const ColumnSpec& c, uint64_t offset) {
  switch (c.flags) {
    case kHeapColumn: return {offset, sizeof(BlockRef), sizeof(BlockRef), c.flags, c.packed_bytes};
    case kPerItemColumn: return {offset, 0, 0, c.flags, 0};
    case kMutableColumn: {
      const uint64_t stride = 8 + 2 * round_up(c.row_bytes, 8);
      require(stride <= UINT32_MAX, "a row of a mutable column has fewer than 2^31 bytes");
      return {offset, c.row_bytes, static_cast<uint32_t>(stride), c.flags, 0};
    }
    default: return {offset, c.row_bytes, c.row_bytes, c.flags, 0};
  }
}

void place_columns(const ArenaSpec& s, Plan& plan) {
  uint64_t at = 0;
  for (const ColumnSpec& c : s.columns) {
    plan.columns.push_back(place_column(c, at));
    at = round_up(at + uint64_t{plan.columns.back().stride} * s.chunk_steps, 128);
    require(at <= kMaxDataBytes, kTooMuchData);
  }
  Geometry& g = plan.geometry;
  g.presence_offset = at;
  g.presence_words = static_cast<uint32_t>((s.columns.size() + 63) / 64);
  g.chunk_bytes = round_up(at + uint64_t{g.presence_words} * 8 * s.chunk_steps, 128);
}

bool has_item_values(const std::vector<ColumnRecord>& columns) {
  return std::any_of(columns.begin(), columns.end(), [](const ColumnRecord& c) { return c.flags == kPerItemColumn; });
}

uint64_t place_tree(uint64_t leaves, bool own_leaves, uint64_t leaf_offset, uint64_t offset, TreeLayout& tree) {
  uint64_t n = round_up(leaves, 8);
  tree.num_levels = 0;
  tree.num_leaves = static_cast<uint32_t>(leaves);
  for (bool leaf = true;; leaf = false) {
    if (leaf && !own_leaves) {
      tree.level[tree.num_levels++] = leaf_offset;
    } else {
      tree.level[tree.num_levels++] = offset;
      offset = round_up(offset + n * 8, 128);
    }
    if (n == 8) return offset;
    n = round_up((n + 7) / 8, 8);
  }
}

}  // namespace

uint64_t layout_hash() noexcept {
  constexpr uint64_t kSizes[] = {sizeof(Header),
                                 sizeof(LockBlock),
                                 sizeof(UndoLog),
                                 sizeof(ArenaState),
                                 sizeof(SessionRecord),
                                 sizeof(StreamRecord),
                                 sizeof(SleepSlot),
                                 sizeof(CallSlot),
                                 sizeof(ChunkRecord),
                                 sizeof(BlockRecord),
                                 sizeof(ColumnRecord),
                                 sizeof(PatternRecord),
                                 sizeof(TableRecord),
                                 sizeof(ItemRecord),
                                 sizeof(ItemLinks),
                                 sizeof(EpisodeRecord),
                                 sizeof(HeapNode),
                                 alignof(TableRecord),
                                 alignof(LockBlock),
                                 sizeof(pthread_mutex_t),
                                 alignof(pthread_mutex_t),
                                 sizeof(void*),
                                 kLogCapacity,
                                 kMaxNames,
                                 kMaxOutputs,
                                 kPatternBytes,
                                 PTHREAD_MUTEX_NORMAL,
                                 PTHREAD_MUTEX_ROBUST,
                                 PTHREAD_PROCESS_SHARED,
                                 libc_family(),
                                 offsetof(TableRecord, limiter),
                                 offsetof(TableRecord, sides),
                                 offsetof(TableRecord, news),
                                 offsetof(TableRecord, longest)};
  uint64_t hash = mix(0xcbf29ce484222325, kLayoutVersion);
  for (uint64_t size : kSizes) hash = mix(hash, size);
  return hash;
}

SelectorPlacement place_selectors(uint32_t max_size, uint32_t sampler, uint32_t remover, uint64_t priorities_offset,
                                  uint64_t offset) {
  SelectorPlacement p{};
  const uint64_t capacity = uint64_t{max_size} + 1;
  p.roles[kSampler].kind = sampler;
  p.roles[kRemover].kind = remover;
  for (RoleLayout& role : p.roles) {
    if (role.kind == kUniform || role.kind == kPrioritized) {
      role.dense = offset;
      offset = round_up(offset + capacity * 4, 128);
    }
    if (role.kind == kPrioritized) offset = place_tree(capacity, true, 0, offset, role.sum);
    if (role.kind == kMinHeap || role.kind == kMaxHeap) {
      role.heap = offset;
      offset = round_up(offset + capacity * sizeof(HeapNode), 128);
    }
  }
  if (sampler == kPrioritized) {
    for (TreeLayout& tree : p.extremes) offset = place_tree(capacity, false, priorities_offset, offset, tree);
  }
  p.end = offset;
  return p;
}

Plan plan_arena(const ArenaSpec& spec) {
  check_spec(spec);
  Plan plan{};
  Geometry& g = plan.geometry;
  g.num_columns = static_cast<uint32_t>(spec.columns.size());
  g.chunk_steps = spec.chunk_steps;
  g.num_chunks = spec.num_chunks;
  g.max_streams = spec.max_streams;
  g.max_sessions = spec.max_sessions;
  g.num_sleep_slots = std::max(256u, 2 * spec.max_sessions);
  g.num_call_slots = std::min(1024u, std::max(64u, spec.max_sessions / 4));
  g.max_patterns = 256;
  g.num_tables = static_cast<uint32_t>(spec.tables.size());
  g.num_blocks = spec.num_blocks;
  g.block_bytes = spec.block_bytes;
  for (const TableSpec& t : spec.tables) g.total_items += round_up(uint64_t{t.max_size} + 1, 8);
  require(g.total_items < kNone, "the tables of one arena hold fewer than 2^32 - 1 items together");
  place_columns(spec, plan);
  require(g.chunk_bytes <= kMaxDataBytes / g.num_chunks, kTooMuchData);
  require(uint64_t{g.block_bytes} * g.num_blocks <= kMaxDataBytes, kTooMuchData);

  Offsets& o = plan.offsets;
  uint64_t at = round_up(sizeof(Header), 4096);
  const auto take = [&at](uint64_t bytes) {
    const uint64_t here = at;
    at = round_up(at + bytes, 128);
    return here;
  };
  o.specs_bytes = spec.specs.size();
  o.specs = take(spec.specs.size());
  o.lock = take(sizeof(LockBlock));
  o.log = take(sizeof(UndoLog));
  o.state = take(sizeof(ArenaState));
  o.sessions = take(sizeof(SessionRecord) * uint64_t{g.max_sessions});
  o.streams = take(sizeof(StreamRecord) * uint64_t{g.max_streams});
  o.sleepers = take(sizeof(SleepSlot) * uint64_t{g.num_sleep_slots});
  o.calls = take(sizeof(CallSlot) * uint64_t{g.num_call_slots});
  o.save = take(sizeof(SaveLease) + save_words(g.num_chunks) * 8);
  o.chunks = take(sizeof(ChunkRecord) * uint64_t{g.num_chunks});
  o.blocks = take(sizeof(BlockRecord) * uint64_t{g.num_blocks});
  o.columns = take(sizeof(ColumnRecord) * uint64_t{g.num_columns});
  o.patterns = take(sizeof(PatternRecord) * uint64_t{g.max_patterns});
  o.tables = take(sizeof(TableRecord) * uint64_t{g.num_tables});
  o.items = take(sizeof(ItemRecord) * g.total_items);
  o.links = take(sizeof(ItemLinks) * g.total_items);
  o.priorities = take(sizeof(Word<double>) * g.total_items);
  o.episodes = take(sizeof(EpisodeRecord) * g.total_items);
  o.values = take(has_item_values(plan.columns) ? sizeof(Word<BlockRef>) * g.total_items : 0);
  o.selectors = at;
  for (const TableSpec& t : spec.tables) at = place_selectors(t.max_size, t.sampler, t.remover, 0, at).end;
  o.end = at;
  plan.index_bytes = round_up(at, 4096);
  plan.data_bytes = round_up(g.chunk_bytes * g.num_chunks + uint64_t{g.block_bytes} * g.num_blocks, 4096);
  return plan;
}

}  // namespace shmreplay
