// For a call that works for long without waiting, because it is large: lets its caller handle signals meanwhile.
#pragma once

#include "base/futex.h"
#include "base/wait.h"

namespace shmreplay {

class LongWork {
 public:
  explicit LongWork(const Wait& wait) noexcept : wait_(wait) {}

  // Reports that `items` more are done. Called outside any hold. true: a signal handler raised, and the work must end.
  bool interrupted(uint32_t items) noexcept {
    items_ += items;
    if (wait_.patience == nullptr || items_ < kLook) return false;
    items_ = 0;
    const int64_t now = now_ns();
    if (asked_ns_ == 0) asked_ns_ = now;
    if (now - asked_ns_ < kAsk) return false;
    asked_ns_ = now;
    return wait_.patience->interrupted();
  }

 private:
  static constexpr uint64_t kLook = 1024;       // items between two looks at the clock
  static constexpr int64_t kAsk = 100'000'000;  // between two questions: each may wait for the GIL
  const Wait& wait_;
  uint64_t items_ = 0;
  int64_t asked_ns_ = 0;
};

}  // namespace shmreplay
