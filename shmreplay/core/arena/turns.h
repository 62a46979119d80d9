// Turns: room for other callers between the holds of one call.
//
// A call with many holds takes the lock again within some tens of nanoseconds. A contender that spins needs longer to
// see that the lock was free. So it sleeps, is woken by every unlock, and mostly comes too late again. Therefore, when
// other holders are at work, a call leaves a gap between its holds that a spinner cannot miss. It ends the gap as soon
// as another holder is in. A call that is alone leaves no gap.
#pragma once

#include <atomic>

#include "arena/robust_lock.h"

namespace shmreplay {

// One for each mapping. Its words are hints, relaxed: they synchronise nothing.
class Turns {
 public:
  // Called between two holds. Returns whether another holder came in.
  bool give_way(const LockBlock& lock) noexcept {
    const uint64_t seq = lock.hold_seq.load(std::memory_order_relaxed);
    const bool others = seq - seen_.load(std::memory_order_relaxed) > kOwn;
    const uint32_t gaps = others ? kGaps : gaps_.load(std::memory_order_relaxed);
    const bool came = gaps > 0 && RobustLock::leave_gap(lock);
    if (gaps > 0) gaps_.store(gaps - 1, std::memory_order_relaxed);
    seen_.store(seq, std::memory_order_relaxed);
    return came;
  }

 private:
  static constexpr uint64_t kOwn = 4;    // how far our own holds move hold_seq between two gaps
  static constexpr uint32_t kGaps = 16;  // gaps that are left after other holders were last seen
  std::atomic<uint64_t> seen_{0};
  std::atomic<uint32_t> gaps_{0};
};

}  // namespace shmreplay
