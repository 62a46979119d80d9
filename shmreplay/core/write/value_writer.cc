#include "write/value_writer.h"

#include <algorithm>

#include "chunks/block_pool.h"
#include "items/enter_table.h"
#include "write/room.h"

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

// Takes as many of the missing blocks as fit a hold, if the heap has enough for all of them. The others are reserved.
Status ValueWriter::take_slice(uint32_t stream, uint64_t n, const Wait& wait, bool& found) {
  const size_t before = blocks_.size();
  const uint64_t missing = n - std::min(n, num_spare());
  const auto count = static_cast<uint32_t>(std::min<uint64_t>(missing, kTakeBlocks));
  blocks_.resize(before + count);
  Status s;
  {
    Hold hold(arena_);
    s = enter_table(hold, table_, wait);
    if (s == Status::kOk) {
      found = blocks_left_to(arena_, stream) >= missing;
      reserve_blocks(hold, stream, found ? missing - count : 0);
      found = found && take_blocks(hold, chunk_, count, blocks_.data() + before);
    }
  }
  if (s != Status::kOk || !found) blocks_.resize(before);
  SHMREPLAY_FAULT("heap.slice_taken");
  return s;
}

Status ValueWriter::give_back_spare(const Wait& wait) {
  while (num_spare() > 0) {
    const auto count = static_cast<uint32_t>(std::min<uint64_t>(num_spare(), kTakeBlocks));
    Hold hold(arena_);
    if (const Status s = hold.begin(wait); s != Status::kOk) return s;
    if (!give_back_blocks(hold, chunk_, blocks_.data() + blocks_.size() - count, count)) return Status::kOk;
    blocks_.resize(blocks_.size() - count);
  }
  return Status::kOk;
}

// A call that failed between two slices may have left a reservation, perhaps for a larger value. Here it is used or
// ended.
Status ValueWriter::try_secure(uint32_t stream, uint64_t n, const Wait& wait, bool& found) {
  const Word<uint64_t>& reserved = arena_.stream(stream).reserved_blocks;  // only this writer changes it
  for (found = true; found && (num_spare() < n || reserved.get() > 0);) {
    if (const Status s = take_slice(stream, n, wait, found); s != Status::kOk) return s;
  }
  return found ? Status::kOk : give_back_spare(wait);
}

Status ValueWriter::secure(uint32_t stream, uint64_t n, const Wait& wait) {
  if (n > arena_.geometry().num_blocks) return Status::kValueTooLarge;
  if (num_spare() >= n && arena_.stream(stream).reserved_blocks.get() == 0) return Status::kOk;
  return take_room(
      arena_, table_, wait, [&](bool& found) { return try_secure(stream, n, wait, found); },
      [&] { return blocks_left_to(arena_, stream) >= n; });
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
