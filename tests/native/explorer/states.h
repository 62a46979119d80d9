// The states that were seen, each by a hash of 64 bits.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

namespace shmreplay::explorer {

// Takes whole words; the last bytes of what is added are filled up with zeros.
class Hash {
 public:
  void add(uint64_t word) noexcept {
    a_ = (a_ ^ word) * 0x9e3779b97f4a7c15;
    a_ ^= a_ >> 32;
    b_ = (b_ + word) * 0xd6e8feb86659fd93;
    b_ ^= b_ >> 29;
  }
  void add(const void* at, size_t bytes) noexcept {
    const auto* p = static_cast<const char*>(at);
    for (; bytes >= 8; bytes -= 8, p += 8) {
      uint64_t word;
      std::memcpy(&word, p, 8);
      add(word);
    }
    if (bytes == 0) return;
    uint64_t word = 0;
    std::memcpy(&word, p, bytes);
    add(word);
  }
  uint64_t value() const noexcept { return a_ ^ (b_ << 1 | b_ >> 63); }

 private:
  uint64_t a_ = 0x243f6a8885a308d3, b_ = 0x13198a2e03707344;
};

class States {
 public:
  // false: it was there.
  bool add(uint64_t state) {
    if (2 * (size_ + 1) > slots_.size()) grow();
    return put(state == 0 ? 1 : state);
  }
  uint64_t size() const noexcept { return size_; }
  void clear() {
    slots_.assign(1 << 16, 0);
    size_ = 0;
  }

 private:
  bool put(uint64_t state) {
    size_t i = state & (slots_.size() - 1);
    for (; slots_[i] != 0; i = (i + 1) & (slots_.size() - 1)) {
      if (slots_[i] == state) return false;
    }
    slots_[i] = state;
    ++size_;
    return true;
  }
  void grow() {
    std::vector<uint64_t> old(slots_.size() * 2, 0);
    old.swap(slots_);
    size_ = 0;
    for (const uint64_t s : old) {
      if (s != 0) put(s);
    }
  }

  std::vector<uint64_t> slots_ = std::vector<uint64_t>(1 << 16, 0);  // 0: empty
  uint64_t size_ = 0;
};

}  // namespace shmreplay::explorer
