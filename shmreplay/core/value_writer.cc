#include "value_writer.h"

#include <algorithm>

#include "room.h"

namespace shmreplay {

void ValueWriter::use_chunk(uint32_t chunk) {
  const uint32_t generation = arena_.chunk(chunk).life.get().generation;
  if (chunk == chunk_ && generation == generation_) return;
  chunk_ = chunk;
  generation_ = generation;
  blocks_.clear();
  written_.clear();
  num_used_ = 0;
}

// A slice of n blocks, if there are so many in all: who takes a part and waits for the rest may wait for his like.
Status ValueWriter::try_take(uint64_t n, const Wait& wait, bool& found) {
  const size_t before = blocks_.size();
  const auto count = static_cast<uint32_t>(std::min<uint64_t>(n, kTakeBlocks));
  blocks_.resize(before + count);
  Status s;
  {
    Hold hold(arena_);
    s = enter_table(hold, table_, wait);
    found = s == Status::kOk && arena_.state().num_free_blocks.get() >= n &&
            take_blocks(hold, chunk_, count, blocks_.data() + before);
  }
  if (!found) blocks_.resize(before);
  return s;
}

Status ValueWriter::secure(uint64_t n, const Wait& wait) {
  if (n > arena_.geometry().num_blocks) return Status::kBlobTooLarge;
  while (num_spare() < n) {
    const auto missing = [&] { return n - num_spare(); };
    const Status s = take_room(
        arena_, table_, wait, [&](bool& found) { return try_take(missing(), wait, found); },
        [&] { return arena_.state().num_free_blocks.get() >= missing(); });
    if (s != Status::kOk) return s;
  }
  return Status::kOk;
}

BlockRef ValueWriter::write(uint32_t row, uint32_t column, const char* bytes, uint32_t num_bytes) {
  const auto count = static_cast<uint32_t>(blocks_of(arena_, num_bytes));
  const BlockRef ref = write_value(arena_, blocks_.data() + num_used_, bytes, num_bytes);
  written_.push_back({row, column, count});
  num_used_ += count;
  return ref;
}

void ValueWriter::keep_rows(uint32_t row) {
  size_t values = 0, blocks = 0;
  for (; values < written_.size() && written_[values].row < row; ++values) blocks += written_[values].num_blocks;
  written_.erase(written_.begin(), written_.begin() + static_cast<ptrdiff_t>(values));
  blocks_.erase(blocks_.begin(), blocks_.begin() + static_cast<ptrdiff_t>(blocks));
  num_used_ -= blocks;
}

}  // namespace shmreplay
