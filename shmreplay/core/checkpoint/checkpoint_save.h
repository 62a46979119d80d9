// Saves an arena as it is at one instant, while all other calls go on.
//
//   CheckpointSave save(arena);                    // memory for a copy of the index, touched before the lock is taken
//   save.take(session, generation, wait, busy);    // one hold: the copy, and a lease on every chunk that items show
//   while (save.fill(buffer, room, wait).part != SavedPart::kEnd) ...
//
// fill() first copies the chunks, so that they are withheld for as short a time as possible. The oldest chunks come
// first, because they are retired first. When free chunks run short, the retired chunks that wait only for their copy
// come first. A chunk's bit is cleared when the chunk is copied. Then fill() writes the items and the chunks' records
// from its copy of the index.
//
// Rows that an item shows never change, except in mutable columns. So what is copied later is what was there at the
// instant. The presence words of such rows are final too. Rows that no item shows yet may be written meanwhile; they
// are left out. A mutable cell is copied whole, as it is at some moment before its chunk's bit is cleared. A value in
// the block heap is saved if the copy of the index says that its blocks belong to the chunk. A cell that was never
// written leads to other blocks, and has no value.
#pragma once

#include <string_view>
#include <vector>

#include "arena/hold.h"
#include "checkpoint/chunk_bytes.h"
#include "checkpoint/touched_data.h"

namespace shmreplay {

class CheckpointSave {
 public:
  struct Slice {
    SavedPart part;
    uint32_t table;  // of kItems and kFreeSlots
    uint64_t bytes;
  };

  // Throws std::system_error if there is no memory for the copy.
  explicit CheckpointSave(Arena& arena);
  ~CheckpointSave();
  CheckpointSave(const CheckpointSave&) = delete;
  CheckpointSave& operator=(const CheckpointSave&) = delete;

  // Finishes resets that are under way, then copies. kClosed if a table was dropped. `busy`: another session is saving,
  // and nothing was taken.
  Status take(uint32_t session, uint32_t generation, const Wait& wait, bool& busy);

  // The next slice of the file, of one kind. `room` must be at least kMinRoom. An empty slice is not the end.
  static constexpr uint64_t kMinRoom = 4096;
  Status fill(char* buffer, uint64_t room, const Wait& wait, Slice& slice);

  // A writer needed the chunks: what the last fill() returned is worthless.
  bool was_given_up() const noexcept { return given_up_; }

  uint64_t total_bytes() const noexcept { return total_bytes_; }  // about how many fill() will return
  uint64_t num_chunks() const noexcept { return num_chunks_; }
  uint64_t chunks_taken() const noexcept;  // by writers since the instant
  uint64_t next_seq() const noexcept { return next_seq_; }
  uint64_t next_stream_serial() const noexcept { return next_stream_serial_; }
  const TableRecord& table(uint32_t i) const { return at<TableRecord>(arena_.offsets().tables)[i]; }
  const PatternRecord& pattern(uint32_t i) const { return at<PatternRecord>(arena_.offsets().patterns)[i]; }
  std::string_view blob(const PatternRecord& p) const {
    if (p.blob_bytes.get() > kPatternWords * 8) corrupt("a pattern's size");
    return {reinterpret_cast<const char*>(p.blob), p.blob_bytes.get()};
  }
  const Arena& arena() const noexcept { return arena_; }

 private:
  // Reads the copy; `offset` is one of the segment.
  template <class T>
  const T* at(uint64_t offset) const {
    return reinterpret_cast<const T*>(image_ + (offset - arena_.offsets().chunks));
  }
  const ChunkRecord& chunk(uint32_t c) const {
    if (c >= arena_.geometry().num_chunks) corrupt("chunk index");
    return at<ChunkRecord>(arena_.offsets().chunks)[c];
  }
  void copy_index(Hold& hold, uint32_t session, uint32_t generation) noexcept;
  void count_rows();
  uint64_t fill_pieces(char* buffer, uint64_t room, const Wait& wait, Status& status);
  bool next_piece_chunk(const Wait& wait, Status& status);
  void begin_chunk(uint32_t c);
  bool add_blocks(uint32_t c, BlockRef ref);
  void add_blocks_of_rows(uint32_t c);
  void add_blocks_of_items(uint32_t c);
  void link_blocks();
  bool is_short_of_chunks() const noexcept;
  Status find_wanted(const Wait& wait);
  uint64_t fill_items(char* buffer, uint64_t room, uint32_t table);
  uint64_t fill_free_slots(char* buffer, uint64_t room, uint32_t table);
  uint64_t fill_chunks(char* buffer, uint64_t room);
  uint32_t rows_of(uint32_t c) const {
    if (c >= rows_.size()) corrupt("chunk index");
    return rows_[c];
  }
  uint32_t saved_neighbour(uint32_t c) const { return c != kNone && rows_of(c) > 0 ? c : kNone; }

  static constexpr uint32_t kWanted = 64;  // chunks found at once

  Arena& arena_;
  char* image_ = nullptr;
  uint64_t image_bytes_;
  uint32_t session_ = kNone, generation_ = 0;
  uint64_t next_seq_ = 0, next_stream_serial_ = 0, next_take_ = 0, num_free_ = 0;
  uint32_t oldest_ = kNone;     // of the used chunks
  std::vector<uint32_t> rows_;  // of each chunk that items show; 0: not saved
  std::vector<bool> is_copied_;
  uint64_t total_bytes_ = 0, num_chunks_ = 0;
  bool given_up_ = false;

  SavedPart part_ = SavedPart::kPieces;
  uint32_t in_order_ = kNone;  // the next chunk by age: of the pieces, then of the records
  uint32_t copying_ = kNone;
  ChunkBytes bytes_;  // of that chunk
  std::vector<BlockRef> refs_;
  std::vector<SavedBlock> blocks_;
  uint64_t offset_ = 0;  // of its bytes
  std::vector<uint32_t> wanted_;
  bool looked_ = false;  // for wanted ones, in this fill()
  TouchedData touched_;
  uint32_t table_ = 0, slot_ = 0;
  uint32_t free_ = kNone;  // the next free item
  uint64_t walked_ = 0;    // of the list of a table's free items, then of chunks
};

}  // namespace shmreplay
