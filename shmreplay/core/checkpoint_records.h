// What a checkpoint's sections hold beside msgpack: fixed little-endian records, and how a chunk's rows become bytes.
// docs/checkpoints.md describes the file for people; the two are changed together, with the format's version.
#pragma once

#include <bit>
#include <vector>

#include "arena.h"

namespace shmreplay {

static_assert(std::endian::native == std::endian::little, "a checkpoint's records are written as they lie");

struct SavedItem {
  uint64_t seq;
  double priority;
  uint64_t episode;
  int64_t step;
  uint64_t insert_no, touch;
  uint32_t slot, times_sampled;
  uint32_t chunk, row, num_steps;
  uint32_t pattern;
  uint32_t before, after;             // padding
  uint32_t sampler_pos, remover_pos;  // in dense arrays, whose order draws go by
  uint32_t episode_slot;              // of the table; kNone: an episode of its own
  uint32_t value_block, value_bytes;  // a BlockRef, {kNone, 0}: no values
  uint32_t reserved;
};

// Free slots first, first + 1, ... in the order that items get them: a sum tree draws by slots.
struct SavedRun {
  uint32_t first, count;
};

struct SavedChunk {
  uint64_t stream_serial;
  uint32_t chunk, rows;       // rows as in ChunkLife
  uint32_t saved_rows;        // rows that items show; the others are not in the file
  uint32_t prev, next;        // neighbours in the stream, as far as they are saved
  uint32_t reserved;
};

// A part of one chunk's bytes; its header, then `bytes` of them. A chunk's parts follow one another from offset 0 on.
struct SavedPiece {
  uint32_t chunk, rows;
  uint32_t num_blocks, reserved;
  uint64_t offset, bytes;
};

struct SavedBlock {
  uint32_t block, next;       // the one behind it in its chunk's chain, kNone: none of those saved
};

static_assert(sizeof(SavedItem) == 104 && sizeof(SavedChunk) == 32 && sizeof(SavedPiece) == 32 && sizeof(SavedRun) == 8);

// A table's words that neither its specs nor its items tell.
struct SavedTable {
  uint64_t next_insert_no = 1, next_touch = 1;
  uint64_t num_deleted_episodes = 0, num_unique_samples = 0, evicted = 0, evicted_for_room = 0;
  uint64_t remover_rng = 0, inserts = 0, samples = 0, uncounted = 0;
  uint32_t structure_pattern = kNone, most_chunks = 0;
  double sampler_exponent = 1, remover_exponent = 1;
  double samples_per_insert = 1, min_diff = 0, max_diff = 0, offset = 0;
  int64_t min_size_to_sample = 1;
  bool count_deletes = false;
  std::vector<uint32_t> longest;  // rows of each output
};

// Calls visit(name, field) for each of them; the names are those in the file.
template <class Table, class Visit>
void each_field(Table& t, Visit visit) {
  visit("next_insert_no", t.next_insert_no);
  visit("next_touch", t.next_touch);
  visit("num_deleted_episodes", t.num_deleted_episodes);
  visit("num_unique_samples", t.num_unique_samples);
  visit("evicted", t.evicted);
  visit("evicted_for_room", t.evicted_for_room);
  visit("remover_rng", t.remover_rng);
  visit("inserts", t.inserts);
  visit("samples", t.samples);
  visit("uncounted", t.uncounted);
  visit("structure_pattern", t.structure_pattern);
  visit("most_chunks", t.most_chunks);
  visit("sampler_exponent", t.sampler_exponent);
  visit("remover_exponent", t.remover_exponent);
  visit("samples_per_insert", t.samples_per_insert);
  visit("min_diff", t.min_diff);
  visit("max_diff", t.max_diff);
  visit("offset", t.offset);
  visit("min_size_to_sample", t.min_size_to_sample);
  visit("count_deletes", t.count_deletes);
  visit("longest", t.longest);
}

SavedTable saved_table(const TableRecord& record);

// The first `rows` rows of a chunk as one run of bytes: presence words row by row; each column's rows, a mutable one's as they
// show, a heap column's as BlockRefs; then the blocks that these and the chunk's items lead to, a list of them and their bytes.
// Whoever reads or writes goes through it from its beginning to its end.
class ChunkBytes {
 public:
  explicit ChunkBytes(const Arena& arena) : arena_(arena) {}

  // `refs`: the rows of the heap columns, one column behind the other, instead of those in the chunk; nullptr: those.
  // `blocks`: the list; who writes has it filled by what it writes. Both stay the caller's.
  void begin(uint32_t chunk, uint32_t rows, BlockRef* refs, SavedBlock* blocks, uint32_t num_blocks);

  static uint64_t size_of(const Arena& arena, uint32_t rows, uint64_t num_blocks) noexcept;
  uint64_t size() const noexcept { return size_of(arena_, rows_, num_blocks_); }

  void read(uint64_t offset, uint64_t bytes, char* to);
  void write(uint64_t offset, uint64_t bytes, const char* from);

 private:
  // A stretch of the run. Plain: it lies so in memory. Else cells of a mutable column.
  struct Part {
    char* memory;
    uint64_t size;
    const ColumnRecord* cells;
  };
  template <class Visit>
  void each_part(uint64_t offset, uint64_t bytes, Visit visit) const;
  template <class Visit>
  static void each_cell(const Part& part, uint64_t offset, uint64_t bytes, Visit visit);

  const Arena& arena_;
  uint32_t chunk_ = kNone, rows_ = 0, num_blocks_ = 0;
  BlockRef* refs_ = nullptr;
  SavedBlock* blocks_ = nullptr;
  std::vector<char> cell_;       // a mutable cell that one read began: its rest comes from the same moment
  const char* cell_row_ = nullptr;
};

// Keeps the part of the data segment small that a process has mapped which goes through all of it once.
class TouchedData {
 public:
  explicit TouchedData(const Arena& arena) noexcept : arena_(arena) {}
  void add(uint64_t bytes) noexcept;

 private:
  static constexpr uint64_t kMost = 8u << 20;
  const Arena& arena_;
  uint64_t bytes_ = 0;  // of pages touched since they were left last
};

}  // namespace shmreplay
