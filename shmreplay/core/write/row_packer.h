// The rows that a stream's writer gives a packed column, on their way to become values: outside the lock, before there
// are blocks.
#pragma once

#include <utility>
#include <vector>

#include "arena/layout.h"
#include "base/row_codec.h"

namespace shmreplay {

class RowPacker {
 public:
  explicit RowPacker(uint32_t row_bytes) : staged_(row_bytes), last_(row_bytes) {}

  // Where the next row is put.
  char* staged() noexcept { return staged_.data(); }
  size_t row_bytes() const noexcept { return staged_.size(); }

  // Appends the bytes of what is staged, as that row of the chunk; it leans on the one before if that was packed last.
  // Throws std::bad_alloc: then it has changed nothing but that `to` may be longer.
  void pack(uint32_t row, std::vector<char>& to) {
    const bool may_lean = last_row_ != kNone && row == last_row_ + 1 && leaning_ + 1 < kKeyEvery;
    leaning_ =
        encoder_.encode(staged_.data(), may_lean ? last_.data() : nullptr, staged_.size(), to) ? leaning_ + 1 : 0;
    std::swap(staged_, last_);
    last_row_ = row;
  }

  // What was packed last is not there, or of another chunk: nothing may lean on it.
  void forget() noexcept { last_row_ = kNone; }

 private:
  RowEncoder encoder_;
  std::vector<char> staged_, last_;
  uint32_t last_row_ = kNone;
  uint32_t leaning_ = 0;  // rows behind the last one that leans on none
};

}  // namespace shmreplay
