// A chunk's rows as one run of bytes, as a checkpoint holds them.
//
// The run has the first `rows` rows: their presence words, row by row; then each column's rows. A mutable column's rows
// are as they are shown, a heap column's are BlockRefs. Then come the blocks that these and the chunk's items lead to:
// a list of them, and their bytes. The run is read and written from its beginning to its end.
#pragma once

#include <vector>

#include "checkpoint/checkpoint_records.h"

namespace shmreplay {

class ChunkBytes {
 public:
  explicit ChunkBytes(const Arena& arena) : arena_(arena) {}

  // `refs`: the rows of the heap columns, one column after the other, instead of those in the chunk; nullptr: those in
  // the chunk. `blocks`: the list of blocks; write() fills it. Both stay the caller's.
  void begin(uint32_t chunk, uint32_t rows, BlockRef* refs, SavedBlock* blocks, uint32_t num_blocks);

  static uint64_t size_of(const Arena& arena, uint32_t rows, uint64_t num_blocks) noexcept;
  uint64_t size() const noexcept { return size_of(arena_, rows_, num_blocks_); }

  void read(uint64_t offset, uint64_t bytes, char* to);
  void write(uint64_t offset, uint64_t bytes, const char* from);

 private:
  // A stretch of the run. Without `cells` its bytes lie in memory as they are; else they are the cells of a mutable
  // column.
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
  std::vector<char> cell_;  // a mutable cell that one read began: its rest comes from the same moment
  const char* cell_row_ = nullptr;
};

}  // namespace shmreplay
