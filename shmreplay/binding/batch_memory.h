// Memory of large batches, kept and used again.
//
// malloc() gives large blocks back to the kernel when they are freed. The next batch then pays for pages that are made
// and zeroed again: a quarter of its time, if it has 10 MB. So large arrays lie in blocks of their own, and the blocks
// that came back last are kept for the next batch.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>
#include <vector>

namespace shmreplay {

// One for the process. Used only with the GIL, which is its lock; so a forked child finds it in a state that it can
// use.
class BatchMemory {
 public:
  static constexpr size_t kWorth = 256 * 1024;     // malloc() keeps smaller ones itself
  static constexpr size_t kMostKept = 256u << 20;  // bytes in all
  static constexpr size_t kMostBlocks = 64;

  // Never destroyed: arrays may outlive everything.
  static BatchMemory& instance() {
    static BatchMemory* const memory = new BatchMemory;
    return *memory;
  }

  // n bytes of any content, at the beginning of a page. nullptr: there is no memory.
  char* take(size_t n) noexcept {
    for (size_t i = blocks_.size(); i-- > 0;) {
      Block* block = blocks_[i];
      if (block->bytes < n || block->bytes - n > n / 4) continue;
      forget(i);
      return data_of(block);
    }
    const size_t bytes = (n + kPage - 1) / kPage * kPage;
    auto* block = static_cast<Block*>(std::aligned_alloc(kPage, kPage + bytes));
    if (block == nullptr) return nullptr;
    block->bytes = bytes;
    if (bytes >= kHugeWorth) madvise(data_of(block), bytes, MADV_HUGEPAGE);  // as NumPy does for its own
    return data_of(block);
  }

  // Takes back what take() gave. If too much is kept then, the oldest blocks are freed.
  void give_back(char* data) noexcept {
    auto* block = reinterpret_cast<Block*>(data - kPage);
    if (block->bytes > kMostKept) return std::free(block);
    while (num_bytes_ + block->bytes > kMostKept || blocks_.size() == kMostBlocks) {
      Block* oldest = blocks_.front();
      forget(0);
      std::free(oldest);
    }
    blocks_.push_back(block);  // within what was reserved
    num_bytes_ += block->bytes;
  }

 private:
  static constexpr size_t kPage = 4096, kHugeWorth = 4u << 20;
  struct Block { size_t bytes; };  // at the beginning of the page before the data

  BatchMemory() { blocks_.reserve(kMostBlocks); }
  static char* data_of(Block* block) noexcept { return reinterpret_cast<char*>(block) + kPage; }
  void forget(size_t i) noexcept {
    num_bytes_ -= blocks_[i]->bytes;
    blocks_.erase(blocks_.begin() + static_cast<std::ptrdiff_t>(i));
  }

  std::vector<Block*> blocks_;  // the block given back last is at the end
  size_t num_bytes_ = 0;
};

}  // namespace shmreplay
