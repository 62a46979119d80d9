// Packs the rows of one packed column, one after another. Each row is stored as its difference from the row before, or
// by itself. Runs outside the lock, before there are blocks.
#pragma once

#include <utility>
#include <vector>

#include "arena/layout.h"
#include "base/row_codec.h"
#include "base/zeroed_bytes.h"

namespace shmreplay {

class RowPacker {
 public:
  explicit RowPacker(uint32_t row_bytes) : staged_(row_bytes), last_(row_bytes) {}

  // Where the bytes of the next row go.
  char* staged() noexcept { return staged_.data(); }
  size_t row_bytes() const noexcept { return staged_.size(); }

  // Packs the staged bytes as that row of the chunk and appends the packed bytes to `to`. The row may lean on the row
  // before it (be stored as the difference from it) if that one was packed last. After std::bad_alloc nothing has
  // changed, but `to` may be longer.
  void pack(uint32_t row, std::vector<char>& to) {
    const bool may_lean = last_row_ != kNone && row == last_row_ + 1 && leaning_ + 1 < kKeyEvery;
    leaning_ =
        encoder_.encode(staged_.data(), may_lean ? last_.data() : nullptr, staged_.size(), to) ? leaning_ + 1 : 0;
    std::swap(staged_, last_);
    last_row_ = row;
  }

  // The row packed last was dropped, or lies in another chunk than the next one: no row may lean on it.
  void forget() noexcept { last_row_ = kNone; }

 private:
  RowEncoder encoder_;
  ZeroedBytes staged_, last_;
  uint32_t last_row_ = kNone;
  uint32_t leaning_ = 0;  // rows since the last one that leans on none
};

}  // namespace shmreplay
