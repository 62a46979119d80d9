// Turns: room for others between the holds of one call.
//
// A call of many holds takes the lock again within some tens of nanoseconds. A contender that spins needs longer to see
// that the lock was free: it then sleeps, is woken by every unlock, and mostly comes too late again. So where others
// are at work, a call leaves a gap between its holds that a spinner cannot miss, and ends the gap as soon as another
// holder is in. A call that is alone leaves none.
#pragma once

#include <atomic>

#include "arena/robust_lock.h"

namespace shmreplay {

// Of one mapping. Its words are hints, relaxed: nothing is synchronised by them.
class Turns {
 public:
  // Called between two holds. true: another holder came in.
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
  static constexpr uint64_t kOwn = 4;    // as far as hold_seq moves between two gaps by our own holds
  static constexpr uint32_t kGaps = 16;  // that are left after others were seen last
  std::atomic<uint64_t> seen_{0};
  std::atomic<uint32_t> gaps_{0};
};

}  // namespace shmreplay
