#include "futex.h"

#include <cerrno>
#include <ctime>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace shmreplay {

static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t), "the kernel reads the word itself");

FutexResult futex_wait(std::atomic<uint32_t>& word, uint32_t expected, int64_t timeout_ns) noexcept {
  timespec ts{timeout_ns / 1'000'000'000, timeout_ns % 1'000'000'000};
  const long rc = syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT, expected, &ts, nullptr, 0);
  if (rc == 0 || errno == EAGAIN) return FutexResult::kWoken;
  return errno == ETIMEDOUT ? FutexResult::kTimedOut : FutexResult::kSignal;
}

void futex_wake(std::atomic<uint32_t>& word, int count) noexcept {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE, count, nullptr, nullptr, 0);
}

void futex_bump(std::atomic<uint32_t>& word) noexcept {
  word.fetch_add(1, std::memory_order_seq_cst);  // SYNC POINT with futex_wait, which compares
  futex_wake(word, INT32_MAX);
}

int64_t now_ns() noexcept {
  timespec ts;
  clock_gettime(CLOCK_MONOTONIC, &ts);
  return int64_t{ts.tv_sec} * 1'000'000'000 + ts.tv_nsec;
}

uint64_t coarse_now_ns() noexcept {
  timespec ts;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &ts);
  return static_cast<uint64_t>(ts.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(ts.tv_nsec);
}

}  // namespace shmreplay
