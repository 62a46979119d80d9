#include "base/sleep_slice.h"

#include <algorithm>

namespace shmreplay {

Status sleep_slice(std::atomic<uint32_t>& futex, uint32_t seen, int64_t slice_ns, int64_t since_ns, const Wait& wait) {
  const FutexWord word{&futex, seen};
  return sleep_slice(&word, 1, slice_ns, since_ns, wait);
}

Status sleep_slice(const FutexWord* words, uint32_t n, int64_t slice_ns, int64_t since_ns, const Wait& wait) {
  const int64_t left = wait.deadline_ns == kForever ? kForever : wait.deadline_ns - now_ns();
  if (left <= 0 || wait.try_only) return Status::kTimeout;
  // SYNC POINT with wake_sleepers: `seen` was read before this look. A caller that gives the call up after it bumps the
  // word, which ends the sleep.
  if (wait.patience != nullptr && wait.patience->ended() && wait.patience->interrupted()) return Status::kInterrupted;
  const int64_t seconds_before = (now_ns() - since_ns) / kSliceNs;
  const FutexResult r = futex_wait_any(words, n, std::min(slice_ns, left));
  if (wait.patience != nullptr && (r != FutexResult::kWoken || wait.patience->ended())) {
    if (wait.patience->interrupted()) return Status::kInterrupted;
    const int64_t seconds = (now_ns() - since_ns) / kSliceNs;
    if (seconds > seconds_before) wait.patience->still_blocked(seconds);  // once a second, however short the slices are
  }
  return Status::kOk;
}

}  // namespace shmreplay
