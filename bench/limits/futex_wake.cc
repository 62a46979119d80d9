// One process asleep on a word, another one that changes the word and wakes it.
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>

namespace {

constexpr long kLookAgainNs = 100'000'000;

struct Shared {
  std::atomic<uint32_t> word;
  std::atomic<int64_t> stamp;
};

int64_t now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1'000'000'000ll + t.tv_nsec;
}

}  // namespace

extern "C" {

// `memory`: shared, zero, of at least a page. Nanoseconds from before the wake until now; -1: nobody came for a while.
int64_t wait_for_wake(void* memory) {
  auto* shared = static_cast<Shared*>(memory);
  const uint32_t seen = shared->word.load();
  const timespec a_while{0, kLookAgainNs};
  while (shared->word.load() == seen) {
    if (syscall(SYS_futex, &shared->word, FUTEX_WAIT, seen, &a_while, nullptr, 0) != 0 && errno == ETIMEDOUT) return -1;
  }
  return now() - shared->stamp.load();
}

void wake(void* memory) {
  auto* shared = static_cast<Shared*>(memory);
  shared->stamp.store(now());
  shared->word.fetch_add(1);
  syscall(SYS_futex, &shared->word, FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

}  // extern "C"
