// Words of shared memory that only reports read.
#pragma once

#include <atomic>
#include <cstdint>

namespace shmreplay {

// Called by the holder of the lock. Relaxed: only holders write, one after another; a report may miss the last hold.
inline void add_relaxed(std::atomic<uint64_t>& word, uint64_t amount) noexcept {
  word.store(word.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed);
}

}  // namespace shmreplay
