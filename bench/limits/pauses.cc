// What a contender of the core's lock does between two looks at it, see shmreplay/core/arena/robust_lock.cc.
#include <time.h>

#include <atomic>
#include <cstdint>

namespace {

std::atomic<uint64_t> word{1};

void cpu_relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

extern "C" {

// n looks of a spinner: eight pauses, the word, the clock. Returns how often the word was 1.
uint64_t spinner_looks(uint64_t n) {
  uint64_t seen = 0;
  for (uint64_t i = 0; i < n; ++i) {
    for (int p = 0; p < 8; ++p) cpu_relax();
    seen += word.load(std::memory_order_relaxed) & 1;
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
  }
  return seen;
}

// n gaps between two holds of a call: sixteen pauses, with a look at the word after each.
uint64_t gaps(uint64_t n) {
  uint64_t seen = 0;
  for (uint64_t i = 0; i < 16 * n; ++i) {
    cpu_relax();
    seen += word.load(std::memory_order_relaxed) & 1;
  }
  return seen;
}

}  // extern "C"
