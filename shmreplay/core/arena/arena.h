// One mapped arena: both segments, and bounds-checked access to everything in them.
//
// Geometry, offsets and the tables' constants are copied into private memory at attach and checked there. So a damaged
// index can at worst hold wrong words; it can never move a boundary. An index that was read from shared memory goes
// through an accessor here. If it is out of range, the accessor throws CorruptIndex, the core's only exception. The
// hold that the exception leaves is rolled back, and the segment is marked failed.
#pragma once

#include <cstring>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "arena/layout.h"
#include "arena/turns.h"
#include "base/calls_in_flight.h"

namespace shmreplay {

inline constexpr uint64_t kCacheBytes = 32u << 20;  // about how much of what a core wrote may still be in its caches

class CorruptIndex : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

[[noreturn]] void corrupt(const char* what);

// The segment has another layout, boot or namespace, or it is not one of ours.
class AttachError : public std::runtime_error {
 public:
  enum class Kind { kLayout, kFailed };
  AttachError(Kind k, const std::string& what) : std::runtime_error(what), kind(k) {}
  Kind kind;
};

// Private, constant facts of one table.
struct TableFacts {
  std::string name;
  uint32_t index, max_size, capacity, max_times_sampled, slot_bits, on_full, item_steps, shard;
  uint64_t item_base;
  RoleLayout roles[2];
  TreeLayout extremes[2];
  TableRecord* record;
  bool consumes() const { return max_times_sampled > 0; }
  bool prioritized() const { return roles[kSampler].kind == kPrioritized; }
};

class Arena {
 public:
  // Maps both segments and checks the header; the descriptors may be closed afterwards. `session` kNone: the daemon,
  // whose holds are not tied to a session. `published` false: an arena that is still being filled, which no other
  // process can map. Throws AttachError; std::system_error if the kernel refuses, which says nothing of the segment.
  Arena(int index_fd, int data_fd, uint32_t session, uint32_t generation, bool published = true);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // The arena is filled. From now on other processes may map it.
  void publish() const;

  const Geometry& geometry() const { return geometry_; }
  const std::string& instance() const { return instance_; }
  const std::string& name() const { return name_; }
  const std::string& specs() const { return specs_; }
  uint32_t session_index() const { return session_; }
  uint32_t session_generation() const { return generation_; }
  uint32_t pid() const { return pid_; }
  bool forked() const;  // this mapping was made by the parent of the process that asks

  Header& header() const { return *at<Header>(0); }
  LockBlock& lock() const { return *at<LockBlock>(offsets_.lock); }
  UndoLog& log() const { return *at<UndoLog>(offsets_.log); }
  ArenaState& state() const { return *at<ArenaState>(offsets_.state); }

  SessionRecord& session(uint32_t i) const {
    return element<SessionRecord>(offsets_.sessions, i, geometry_.max_sessions);
  }
  StreamRecord& stream(uint32_t i) const { return element<StreamRecord>(offsets_.streams, i, geometry_.max_streams); }
  SleepSlot& sleeper(uint32_t i) const { return element<SleepSlot>(offsets_.sleepers, i, geometry_.num_sleep_slots); }
  CallSlot& call(uint32_t i) const { return element<CallSlot>(offsets_.calls, i, geometry_.num_call_slots); }
  SaveLease& save_lease() const { return *at<SaveLease>(offsets_.save); }
  // The bit of chunk i is bit i % 64.
  std::atomic<uint64_t>& save_word(uint32_t i) const {
    return element<std::atomic<uint64_t>>(offsets_.save + sizeof(SaveLease), i / 64, save_words(geometry_.num_chunks));
  }
  ChunkRecord& chunk(uint32_t i) const { return element<ChunkRecord>(offsets_.chunks, i, geometry_.num_chunks); }
  BlockRecord& block(uint32_t i) const { return element<BlockRecord>(offsets_.blocks, i, geometry_.num_blocks); }
  PatternRecord& pattern(uint32_t i) const {
    return element<PatternRecord>(offsets_.patterns, i, geometry_.max_patterns);
  }
  ItemRecord& item(uint32_t g) const { return element<ItemRecord>(offsets_.items, g, geometry_.total_items); }
  ItemLinks& links(uint32_t g) const { return element<ItemLinks>(offsets_.links, g, geometry_.total_items); }
  Word<double>& priority(uint32_t g) const {
    return element<Word<double>>(offsets_.priorities, g, geometry_.total_items);
  }
  // What item g brought for the per-item columns; only if has_values().
  Word<BlockRef>& values(uint32_t g) const {
    return element<Word<BlockRef>>(offsets_.values, g, geometry_.total_items);
  }
  bool has_values() const noexcept { return has_values_; }
  EpisodeRecord& episode(uint32_t g) const {
    return element<EpisodeRecord>(offsets_.episodes, g, geometry_.total_items);
  }
  const TableFacts& table(uint32_t i) const {
    if (i >= tables_.size()) corrupt("table index");
    return tables_[i];
  }
  uint32_t num_tables() const { return static_cast<uint32_t>(tables_.size()); }
  const TableFacts& table_of(uint32_t g) const;  // of the item with global index g

  const std::vector<ColumnRecord>& columns() const { return columns_; }
  // The numbers of the mutable columns; mostly there are none.
  const std::vector<uint32_t>& mutable_columns() const { return mutable_columns_; }
  char* chunk_data(uint32_t i) const {
    if (i >= geometry_.num_chunks) corrupt("chunk index");
    return data_ + geometry_.chunk_bytes * i;
  }
  char* row(uint32_t chunk, uint32_t column, uint32_t row) const {
    return chunk_data(chunk) + columns_[column].offset + uint64_t{columns_[column].stride} * row;
  }
  // One bit for each column: which cells of a row are written. One process writes them; others read neighbouring bits.
  std::atomic<uint64_t>& presence(uint32_t chunk, uint32_t row, uint32_t word) const {
    return reinterpret_cast<std::atomic<uint64_t>*>(
        chunk_data(chunk) + geometry_.presence_offset)[uint64_t{row} * geometry_.presence_words + word];
  }
  char* block_data(uint32_t i) const {
    if (i >= geometry_.num_blocks) corrupt("block index");
    return data_ + geometry_.chunk_bytes * geometry_.num_chunks + uint64_t{geometry_.block_bytes} * i;
  }

  template <class T>
  T* at(uint64_t offset) const {
    return reinterpret_cast<T*>(index_ + offset);
  }
  char* index() const { return index_; }
  char* data() const { return data_; }
  uint64_t index_bytes() const { return index_bytes_; }
  uint64_t data_bytes() const { return data_bytes_; }
  // Whether a row that is written now will have left all caches before its place is written again.
  bool exceeds_caches() const noexcept { return data_bytes_ > kCacheBytes; }
  const Offsets& offsets() const { return offsets_; }

  bool failed() const { return header().failed.load(std::memory_order_acquire) != 0; }
  // SYNC POINT with failed(): a reader that sees the flag sees the words as they were when the flag was raised.
  void mark_failed() const { header().failed.store(1, std::memory_order_release); }
  bool mlock_index() const;
  // Unmaps the pages of the data segment, which count as this process's memory until then. They cost little to get
  // back.
  void leave_data() const noexcept;

  // The calls of this mapping: see calls_in_flight.h.
  CallsInFlight& calls() const noexcept { return calls_; }
  // Called between two holds of one call.
  void give_way() const noexcept { turns_.give_way(lock()); }

 private:
  template <class T>
  T& element(uint64_t offset, uint64_t i, uint64_t n) const {
    if (i >= n) corrupt("index out of range");
    return at<T>(offset)[i];
  }
  void map(int index_fd, int data_fd);
  void check_header(bool published) const;
  void copy_facts();
  Plan plan_again() const;
  void copy_table(uint32_t index, uint64_t item_base, uint64_t& selectors);
  void populate() const;

  char* index_ = nullptr;
  char* data_ = nullptr;
  uint64_t index_bytes_ = 0, data_bytes_ = 0;
  Geometry geometry_{};
  Offsets offsets_{};
  std::string instance_, name_, specs_;
  std::vector<ColumnRecord> columns_;
  std::vector<uint32_t> mutable_columns_;
  bool has_values_ = false;
  std::vector<TableFacts> tables_;
  uint32_t session_, generation_, pid_;
  uint64_t fork_epoch_;
  mutable CallsInFlight calls_;
  mutable Turns turns_;
};

// What a header says, for a daemon that decides whether to adopt a segment. Never throws for a damaged one;
// std::system_error if the kernel does not let it be read.
struct HeaderReport {
  bool magic_ok = false, failed = false;
  uint32_t ready = 0;  // 1; 0: not formatted to the end, or not published. Any other number is damage
  uint32_t layout_version = 0;
  uint64_t layout_hash = 0, index_bytes = 0, data_bytes = 0, pid_namespace = 0;
  std::string instance, name, boot_id, specs;
};
HeaderReport inspect_header(int index_fd);

}  // namespace shmreplay
