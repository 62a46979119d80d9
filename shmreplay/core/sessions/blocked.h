// Calls that a rate limiter does not admit: how they are counted, sleep and are woken.
//
// A sleeper is counted in the table (so that holds know there is a call to wake) and in a sleep slot (so that a dead
// session's sleepers can be counted off again). A hold that lets a side go on wakes one sleeper. The hold of the woken
// call asks the same question, as does the hold of a call that leaves by timeout or signal: permission is handed on.
// Sleepers look again every second without the lock, which covers a wake that is lost because the process that owed it
// died.
#pragma once

#include "arena/hold.h"
#include "base/futex.h"
#include "base/wait.h"

namespace shmreplay {

class Blocked {
 public:
  // `asks_limiter` false: the call waits for an item and for nothing else. No hold wakes it; it looks every 10 ms.
  Blocked(Arena& arena, const TableFacts& table, Side side, const Wait& wait, bool asks_limiter = true) noexcept
      : arena_(arena), table_(table), side_(side), wait_(wait), asks_limiter_(asks_limiter) {}
  ~Blocked();  // leaves, taking the lock if it must
  Blocked(const Blocked&) = delete;
  Blocked& operator=(const Blocked&) = delete;

  // Counts the call, in a hold in which it was not admitted. Then leave the hold and sleep().
  void join(Hold& hold);

  // Counts the call off, in a later hold, admitted or not.
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

// Makes every call that sleeps, or is about to, for the table, its news or a chunk look again. For a call whose caller
// has given it up.
void wake_sleepers(Arena& arena, const TableFacts& table) noexcept;

bool remove_sleepers_of(Hold& hold, uint32_t session, uint32_t& cursor, uint32_t slice);

}  // namespace shmreplay
