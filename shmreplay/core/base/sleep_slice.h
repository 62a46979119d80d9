// One sleep within a call that waits.
#pragma once

#include "base/futex.h"
#include "base/status.h"
#include "base/wait.h"

namespace shmreplay {

// One sleep on a futex word within a wait: ends by a wake, after a slice, at the deadline (kTimeout), by a signal whose
// handler raised or because the caller has given the call up (kInterrupted). A wait that is `try_only` does not sleep
// (kTimeout).
Status sleep_slice(std::atomic<uint32_t>& futex, uint32_t seen, int64_t slice_ns, int64_t since_ns, const Wait& wait);

// The same on several words: ends when one of them is woken.
Status sleep_slice(const FutexWord* words, uint32_t n, int64_t slice_ns, int64_t since_ns, const Wait& wait);

}  // namespace shmreplay
