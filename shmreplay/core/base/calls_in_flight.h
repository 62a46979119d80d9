// A count of the calls of this process that write or read rows. A session is given back only when no such call is left,
// because from then on its chunks may belong to others. Private to the process.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/futex.h"

namespace shmreplay {

class CallsInFlight {
 public:
  // false: the session is being given back, and no call may begin.
  bool begin() noexcept {
    // SYNC POINT with end_all(): each stores its own word, then reads the other's (seq_cst), so one of the two sees it.
    num_.fetch_add(1, std::memory_order_seq_cst);
    if (!ended_.load(std::memory_order_seq_cst)) return true;
    end();
    return false;
  }

  void end() noexcept {
    if (num_.fetch_sub(1, std::memory_order_seq_cst) == 1 && ended_.load(std::memory_order_seq_cst))
      futex_wake(num_, INT32_MAX);
  }

  // From now on no call can begin. Waits for the calls under way: true when they have ended, false at the deadline.
  bool end_all(int64_t deadline_ns) noexcept {
    ended_.store(true, std::memory_order_seq_cst);
    for (uint32_t n = num_.load(std::memory_order_seq_cst); n != 0; n = num_.load(std::memory_order_seq_cst)) {
      const int64_t left = deadline_ns - now_ns();
      if (left <= 0) return false;
      futex_wait(num_, n, left);
    }
    return true;
  }

 private:
  std::atomic<uint32_t> num_{0};
  std::atomic<bool> ended_{false};
};

// Counts one call for as long as this object lives.
class CallInFlight {
 public:
  explicit CallInFlight(CallsInFlight& calls) noexcept : calls_(calls), begun_(calls.begin()) {}
  ~CallInFlight() {
    if (begun_) calls_.end();
  }
  CallInFlight(const CallInFlight&) = delete;
  CallInFlight& operator=(const CallInFlight&) = delete;
  bool begun() const noexcept { return begun_; }

 private:
  CallsInFlight& calls_;
  bool begun_;
};

}  // namespace shmreplay
