// Calls that a rate limiter does not admit: how they are counted, sleep and are woken.
//
// A sleeper is counted in the table, so that holds know there is a call to wake. It is also counted in a sleep slot, so
// that a dead session's sleepers can be counted off again. A hold that lets a side go on wakes one sleeper. The hold of
// the woken call asks the same question, and so does the hold of a call that leaves by timeout or signal: so permission
// is handed on. Sleepers look again every second without the lock; that covers a wake that is lost because the process
// that owed it died.
#pragma once

#include "arena/hold.h"
#include "base/futex.h"
#include "base/wait.h"

namespace shmreplay {

class Blocked {
 public:
  // `asks_limiter` false: the call waits only for an item. No hold wakes it; it looks every 10 ms.
  Blocked(Arena& arena, const TableFacts& table, Side side, const Wait& wait, bool asks_limiter = true) noexcept
      : arena_(arena), table_(table), side_(side), wait_(wait), asks_limiter_(asks_limiter) {}
  ~Blocked();  // leaves, taking the lock if it must
  Blocked(const Blocked&) = delete;
  Blocked& operator=(const Blocked&) = delete;

  // Counts the call, in a hold that did not admit it. Then leave the hold and call sleep().
  void join(Hold& hold);

  // Counts the call off, in a later hold, admitted or not.
  void leave(Hold& hold);
  bool joined() const noexcept { return waiting_; }

  // Sleeps until there is a reason to look again: kOk. Else kTimeout, kInterrupted.
  Status sleep();

  // The same for one call that has joined several tables, each of another arena: sleeps until there is a reason to look
  // at one of them. n <= kMaxShards.
  static Status sleep_any(Blocked* const* all, uint32_t n);

 private:
  bool worth_a_look() const noexcept;

  Arena& arena_;
  const TableFacts& table_;
  Side side_;
  Wait wait_;
  bool asks_limiter_;
  bool waiting_ = false;  // join() was called and leave() was not
  bool counted_ = false;  // it was, and a sleep slot was free
  uint32_t slot_ = kNone;
  uint32_t seen_ = 0;
  int64_t since_ns_ = 0;    // when it joined last
  int64_t started_ns_ = 0;  // when it joined first
};

// Makes every call look again that sleeps, or is about to, for the table, its news or a chunk. For when a caller has
// given its call up.
void wake_sleepers(Arena& arena, const TableFacts& table) noexcept;

// Frees sleep slots of the session from slot `cursor` on, `slice` at most, and moves the cursor past what it has looked
// at. True when no slot of the session is left.
bool remove_sleepers_of(Hold& hold, uint32_t session, uint32_t& cursor, uint32_t slice);

}  // namespace shmreplay
