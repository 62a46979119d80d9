// The blocks that a writer has of one of its chunks, and the values it writes to them.
//
// Blocks are taken under the lock, for all values of a row at once; values are written without it. If a row or an item
// does not go in, its blocks are taken back and used for the next: a call that is repeated for ever takes no more
// blocks than one call.
#pragma once

#include <vector>

#include "arena/hold.h"
#include "chunks/block_heap.h"

namespace shmreplay {

class ValueWriter {
 public:
  ValueWriter(Arena& arena, const TableFacts& table) noexcept : arena_(arena), table_(table) {}

  // Sets the chunk that values are for from now on. Spare blocks of the chunk before are freed when that chunk is.
  void use_chunk(uint32_t chunk);

  // Makes sure that at least n blocks are spare, for the stream `stream`. Waits as for a chunk. While it waits it has
  // given back its spare blocks: two writers that each kept some and waited for more would wait for each other.
  // kValueTooLarge: the whole heap has fewer blocks.
  Status secure(uint32_t stream, uint64_t n, const Wait& wait);

  // Writes a value to spare blocks, of which there must be enough. `row` and `column` say whose value it is; column
  // kNone: an item's.
  BlockRef write(uint32_t row, uint32_t column, const char* bytes, uint32_t num_bytes);

  // Forgets the values of rows before this one: they can no longer be taken back.
  void keep_before(uint32_t row) {
    if (!written_.empty()) keep_rows(row);
  }

  // Takes back the values written last, while take(row, column) says so.
  template <class Take>
  void take_back(Take take) noexcept {
    while (!written_.empty() && take(written_.back().row, written_.back().column)) take_back_last();
  }
  void take_back_last() noexcept {
    num_used_ -= written_.back().num_blocks;
    written_.pop_back();
  }

 private:
  struct Written { uint32_t row, column, num_blocks; };
  Status try_secure(uint32_t stream, uint64_t n, const Wait& wait, bool& found);
  Status take_slice(uint32_t stream, uint64_t n, const Wait& wait, bool& found);
  Status give_back_spare(const Wait& wait);
  void keep_rows(uint32_t row);
  uint64_t num_spare() const noexcept { return blocks_.size() - num_used_; }

  Arena& arena_;
  const TableFacts& table_;
  uint32_t chunk_ = kNone, generation_ = 0;
  std::vector<uint32_t> blocks_;  // in the order taken; the first num_used_ have values, the others are spare
  size_t num_used_ = 0;
  std::vector<Written> written_;  // those values, in the order written
};

}  // namespace shmreplay
