// For a process that walks through the whole data segment once: keeps the part of it that is mapped small.
#pragma once

#include <algorithm>

#include "arena/arena.h"

namespace shmreplay {

class TouchedData {
 public:
  explicit TouchedData(const Arena& arena) noexcept : arena_(arena) {}

  void add(uint64_t bytes) noexcept {
    bytes_ += std::max<uint64_t>(bytes, 4096);
    if (bytes_ < kMost) return;
    arena_.leave_data();
    bytes_ = 0;
  }

 private:
  static constexpr uint64_t kMost = 8u << 20;
  const Arena& arena_;
  uint64_t bytes_ = 0;  // of pages touched since they were left last
};

}  // namespace shmreplay
