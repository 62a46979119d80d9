// A cell of a mutable column, which may change while others read it. It is kept twice, and a version word says which
// copy is shown.
//
// The row's writer writes copy 0 while nobody can see it, or while the cell is not finished. After that it changes only
// under the lock: the copy that is not shown is written, then the version. A reader copies the cell and then checks
// whether the version moved. So it gets the old value or the new one and never a mix, even if the updating process dies
// half-way: only the version publishes a value.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>

#include "base/fault.h"

namespace shmreplay {

class MutableCell {
 public:
  MutableCell(char* row, uint32_t row_bytes) noexcept
      : row_(row), row_bytes_(row_bytes), num_words_((row_bytes + 7) / 8) {}

  // Where the row's writer writes the cell.
  static char* first_copy(char* row) noexcept { return row + 8; }
  char* first_copy() const noexcept { return first_copy(row_); }
  // SYNC POINT with update(), which leaves a cell alone until its writer has finished it.
  void begin() const noexcept { version().store(0, std::memory_order_release); }
  void finish() const noexcept { version().store(2, std::memory_order_release); }

  void read(char* to) const noexcept {
    for (;;) {
      const uint64_t before = version().load(std::memory_order_acquire);
      copy_out(copy(before), to);
      // SYNC POINT with update(): reading a word of a later value, with acquire, makes the version visible that stood
      // when the word was written.
      if (version().load(std::memory_order_relaxed) == before) return;
    }
  }

  // Called under the lock. false: the row's writer has not finished the cell.
  bool update(const char* from) const noexcept {
    const uint64_t before = version().load(std::memory_order_acquire);
    if (before == 0) return false;
    std::atomic<uint64_t>* to = copy(before + 1);
    for (uint32_t i = 0; i < num_words_; ++i) {
      uint64_t word = 0;
      if (i < row_bytes_ / 8) std::memcpy(&word, from + size_t{8} * i, 8);
      else std::memcpy(&word, from + size_t{8} * i, row_bytes_ % 8);
      // Release: a reader that sees the word also sees the version that stood when the word was written.
      to[i].store(word, std::memory_order_release);
      SHMREPLAY_FAULT("mutable.word_written");
    }
    version().store(before + 1, std::memory_order_release);
    SHMREPLAY_FAULT("mutable.version_stored");
    return true;
  }

 private:
  std::atomic<uint64_t>& version() const noexcept { return *reinterpret_cast<std::atomic<uint64_t>*>(row_); }
  std::atomic<uint64_t>* copy(uint64_t version) const noexcept {
    return reinterpret_cast<std::atomic<uint64_t>*>(first_copy()) + (version & 1) * num_words_;
  }
  void copy_out(const std::atomic<uint64_t>* from, char* to) const noexcept {
    for (uint32_t i = 0; i < num_words_; ++i) {
      const uint64_t word = from[i].load(std::memory_order_acquire);
      if (i < row_bytes_ / 8) std::memcpy(to + size_t{8} * i, &word, 8);
      else std::memcpy(to + size_t{8} * i, &word, row_bytes_ % 8);
    }
  }

  char* row_;
  uint32_t row_bytes_, num_words_;
};

}  // namespace shmreplay
