// One sleep within a call that waits.
#pragma once

#include "base/futex.h"
#include "base/status.h"
#include "base/wait.h"

namespace shmreplay {

// Sleeps on a futex word. kOk: the word was bumped, or `slice_ns` or the time to the deadline is over. kTimeout: the
// deadline was over before the sleep, or the wait is `try_only`. kInterrupted: a signal handler raised, or the caller
// has given the call up. `since_ns`: when the call began to wait; the caller hears of every second since then.
Status sleep_slice(std::atomic<uint32_t>& futex, uint32_t seen, int64_t slice_ns, int64_t since_ns, const Wait& wait);

// The same on several words: ends when one of them is woken.
Status sleep_slice(const FutexWord* words, uint32_t n, int64_t slice_ns, int64_t since_ns, const Wait& wait);

}  // namespace shmreplay
