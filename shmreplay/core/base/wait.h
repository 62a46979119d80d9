// How long a call may wait, and how it stays in touch with its caller while it does.
#pragma once

#include <cstdint>

namespace shmreplay {

inline constexpr int64_t kForever = INT64_MAX;
inline constexpr int64_t kSliceNs = 1'000'000'000;  // sleepers look again every second: it covers a wake that died

// The caller's side of a wait. Every method runs without the arena's lock.
class Patience {
 public:
  virtual ~Patience() = default;
  // Runs pending signal handlers; true when one raised and the wait must end.
  virtual bool interrupted() noexcept = 0;
  // true: the caller has no more use for the call, and interrupted() answers true as well. Asked after every wake, so
  // it must be cheap. The thread that makes it true calls wake_sleepers() after that.
  virtual bool ended() const noexcept { return false; }
  // Process `pid` has the lock, and nothing has moved for `seconds`.
  virtual void lock_stuck(uint32_t pid, int64_t seconds) noexcept = 0;
  // The call has been blocked for `seconds` by a rate limiter or for want of a chunk.
  virtual void still_blocked(int64_t seconds) noexcept = 0;
  // The oldest chunk's items were evicted to make room. Called again and again while that lasts.
  virtual void evicted_for_room() noexcept {}
};

struct Wait {
  int64_t deadline_ns = kForever;  // CLOCK_MONOTONIC; 0: never waits
  Patience* patience = nullptr;    // nullptr: uninterruptible
  bool try_only = false;           // does not wait even for the lock: kTimeout instead
};

inline constexpr Wait kTryOnly{0, nullptr, true};

}  // namespace shmreplay
