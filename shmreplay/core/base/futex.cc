#include "base/futex.h"

#include <algorithm>
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

namespace {
// Defined in linux/futex.h from 5.16 on; older headers lack it. The number is the same on every architecture.
constexpr long kFutexWaitv = 449;
constexpr uint32_t kFutex32 = 2;
constexpr uint32_t kMostWords = 128;
constexpr int64_t kPollNs = 10'000'000;
struct FutexWaitv {
  uint64_t val, uaddr;
  uint32_t flags, reserved;
};
}  // namespace

FutexResult futex_wait_any(const FutexWord* words, uint32_t n, int64_t timeout_ns) noexcept {
  if (n == 1) return futex_wait(*words[0].word, words[0].seen, timeout_ns);
  FutexWaitv waits[kMostWords];
  n = std::min(n, kMostWords);
  for (uint32_t i = 0; i < n; ++i) waits[i] = {words[i].seen, reinterpret_cast<uint64_t>(words[i].word), kFutex32, 0};
  const int64_t until = now_ns() + timeout_ns;
  timespec ts{until / 1'000'000'000, until % 1'000'000'000};
  const long rc = syscall(kFutexWaitv, waits, n, 0, &ts, CLOCK_MONOTONIC);
  if (rc >= 0 || errno == EAGAIN) return FutexResult::kWoken;
  if (errno == ETIMEDOUT) return FutexResult::kTimedOut;
  if (errno == EINTR) return FutexResult::kSignal;
  // ENOSYS; or EPERM in a container whose filter of system calls is older than this one.
  return futex_wait(*words[0].word, words[0].seen, std::min(timeout_ns, kPollNs));
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
