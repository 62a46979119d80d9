// Sleeping and waking on a 32-bit word of shared memory.
#pragma once

#include <atomic>
#include <cstdint>

namespace shmreplay {

enum class FutexResult { kWoken, kTimedOut, kSignal };

// Sleeps while *word == expected, at most `timeout_ns` (>= 0). kWoken also if the word had changed before.
FutexResult futex_wait(std::atomic<uint32_t>& word, uint32_t expected, int64_t timeout_ns) noexcept;

// One of several words to sleep on, and the value that the caller saw in it.
struct FutexWord {
  std::atomic<uint32_t>* word;
  uint32_t seen;
};

// The same while every word is as seen; 1 <= n <= 128. Before Linux 5.16, or where a container forbids the system call,
// it sleeps on the first word only and ends after 10 ms.
FutexResult futex_wait_any(const FutexWord* words, uint32_t n, int64_t timeout_ns) noexcept;

void futex_wake(std::atomic<uint32_t>& word, int count) noexcept;

// Adds 1 to the word and wakes all its sleepers: a call that sleeps on the word, or is about to, looks again.
void futex_bump(std::atomic<uint32_t>& word) noexcept;

// CLOCK_MONOTONIC in nanoseconds.
int64_t now_ns() noexcept;

// The same clock, exact to a few milliseconds, read in a few nanoseconds: for "last insert 31 s ago".
uint64_t coarse_now_ns() noexcept;

}  // namespace shmreplay
