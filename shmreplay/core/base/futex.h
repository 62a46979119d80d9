// Sleeping and waking on a 32-bit word of shared memory.
#pragma once

#include <atomic>
#include <cstdint>

namespace shmreplay {

enum class FutexResult { kWoken, kTimedOut, kSignal };

// Sleeps while *word == expected, at most `timeout_ns` (>= 0). kWoken also when the word had changed already.
FutexResult futex_wait(std::atomic<uint32_t>& word, uint32_t expected, int64_t timeout_ns) noexcept;

// A word of several that somebody sleeps on, and what it showed.
struct FutexWord {
  std::atomic<uint32_t>* word;
  uint32_t seen;
};

// The same while every word is as seen; 1 <= n <= 128. Before Linux 5.16, and where a container forbids it, it sleeps
// on the first and ends after 10 ms.
FutexResult futex_wait_any(const FutexWord* words, uint32_t n, int64_t timeout_ns) noexcept;

void futex_wake(std::atomic<uint32_t>& word, int count) noexcept;

// Whoever sleeps on the word, or is about to, looks again.
void futex_bump(std::atomic<uint32_t>& word) noexcept;

// CLOCK_MONOTONIC in nanoseconds.
int64_t now_ns() noexcept;

// The same, good to a few milliseconds and a few nanoseconds cheap: for "last insert 31 s ago".
uint64_t coarse_now_ns() noexcept;

}  // namespace shmreplay
