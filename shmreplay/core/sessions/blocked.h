// Blocked callers: those whom a rate limiter does not admit, and those who need a chunk.
//
// Limiter: a sleeper is counted in the table (so that holds know there is somebody to wake) and in a sleep slot (so
// that a dead session's sleepers can be counted off again). A hold that lets a side go on wakes one; the woken call's
// own hold asks the same question, as does the hold of a call that leaves by timeout or signal: permission is handed
// on. Sleepers look again every second without the lock, which covers a wake that died with its bearer.
#pragma once

#include "arena/hold.h"
#include "base/futex.h"
#include "items/rate_limiter.h"

namespace shmreplay {

// Takes the lock for work on a table: finishes a reset that somebody began, does one slice of a change of its priority
// exponent; kClosed if the table was dropped.
Status enter_table(Hold& hold, const TableFacts& table, const Wait& wait);

class Blocked {
 public:
  // `asks_limiter` false: the call waits for an item and for nothing else. Nobody wakes it, it looks every 10 ms.
  Blocked(Arena& arena, const TableFacts& table, Side side, const Wait& wait, bool asks_limiter = true) noexcept
      : arena_(arena), table_(table), side_(side), wait_(wait), asks_limiter_(asks_limiter) {}
  ~Blocked();  // leaves, taking the lock if it must
  Blocked(const Blocked&) = delete;
  Blocked& operator=(const Blocked&) = delete;

  // In a hold that was not admitted: be counted. Then leave the hold and sleep().
  void join(Hold& hold);

  // In a later hold, admitted or not: be counted off.
  void leave(Hold& hold);
  bool joined() const noexcept { return waiting_; }

  // Until there is reason to look again: kOk. kTimeout, kInterrupted.
  Status sleep();

  // The same for one call that has joined several tables, each of another arena: until there is reason to look at one.
  // n <= kMaxShards.
  static Status sleep_any(Blocked* const* all, uint32_t n);

 private:
  bool worth_a_look() const noexcept;

  Arena& arena_;
  const TableFacts& table_;
  Side side_;
  Wait wait_;
  bool asks_limiter_;
  bool waiting_ = false;  // join() was called and leave() was not
  bool counted_ = false;  // ... and there was a sleep slot
  uint32_t slot_ = kNone;
  uint32_t seen_ = 0;
  int64_t since_ns_ = 0;    // joined
  int64_t started_ns_ = 0;  // joined for the first time
};

// Those who sleep for the table, its news or a chunk look again, those who are about to as well: for one whose caller
// has given it up.
void wake_sleepers(Arena& arena, const TableFacts& table) noexcept;

bool remove_sleepers_of(Hold& hold, uint32_t session, uint32_t& cursor, uint32_t slice);

// The same on several words: ends when one of them is woken.
Status sleep_slice(const FutexWord* words, uint32_t n, int64_t slice_ns, int64_t since_ns, const Wait& wait);

// Sleeps until a chunk may have come free. `scan` is the caller's second look, made between announcing itself and
// sleeping: it answers kOk and found=true to end the wait. kTimeout, kInterrupted, or what scan answered.
template <class Scan>
Status wait_for_chunk(Arena& arena, const Wait& wait, int64_t since_ns, Scan scan);

// One sleep on a futex word within a wait: ends by a wake, after a slice, at the deadline (kTimeout), by a signal whose
// handler raised or because the caller has given the call up (kInterrupted). A wait that is `try_only` does not sleep
// (kTimeout).
Status sleep_slice(std::atomic<uint32_t>& futex, uint32_t seen, int64_t slice_ns, int64_t since_ns, const Wait& wait);

template <class Scan>
Status wait_for_chunk(Arena& arena, const Wait& wait, int64_t since_ns, Scan scan) {
  ArenaState& s = arena.state();
  const uint32_t seen = s.chunk_futex.load(std::memory_order_seq_cst);
  s.chunk_waiters.store(1, std::memory_order_seq_cst);  // SYNC POINT with wake_chunk_waiters
  bool found = false;
  if (const Status status = scan(found); status != Status::kOk || found) return status;
  return sleep_slice(s.chunk_futex, seen, kSliceNs, since_ns, wait);
}

}  // namespace shmreplay
