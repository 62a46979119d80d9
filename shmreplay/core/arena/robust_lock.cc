#include "arena/robust_lock.h"

#include <cerrno>
#include <csignal>
#include <ctime>
#include <stdexcept>
#include <string>
#include <sys/mman.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>

#include "base/fault.h"
#include "base/futex.h"
#include "base/report_word.h"

namespace shmreplay {
namespace {

constexpr int64_t kSpinNs = 5'000;
constexpr int kMostPauses = 8;  // between two looks of a spinner, which must see a gap
constexpr int kGapPauses = 16;  // that a gap lasts, so that a spinner sees it

void cpu_relax() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

RobustLock::Outcome outcome_of(int rc) noexcept {
  switch (rc) {
    case 0: return RobustLock::Outcome::kLocked;
    case EOWNERDEAD: return RobustLock::Outcome::kOwnerDied;
    case EBUSY: return RobustLock::Outcome::kBusy;
    case ETIMEDOUT: return RobustLock::Outcome::kTimeout;
    default: return RobustLock::Outcome::kUnusable;
  }
}

bool is_held(RobustLock::Outcome o) noexcept {
  return o == RobustLock::Outcome::kLocked || o == RobustLock::Outcome::kOwnerDied;
}

void sign(LockBlock& block, uint32_t session, uint32_t pid) noexcept {
  SHMREPLAY_FAULT("lock.taken");
  // Relaxed: read by others only as a hint or for a report. `| 1`: a dead holder left it odd.
  block.hold_seq.store((block.hold_seq.load(std::memory_order_relaxed) + 1) | 1, std::memory_order_relaxed);
  block.session.store(session, std::memory_order_relaxed);
  block.pid.store(pid, std::memory_order_relaxed);
  SHMREPLAY_FAULT("lock.signed");
}

// `began` and `now` become when it was begun, and the last look at the clock.
RobustLock::Outcome spin(LockBlock& block, int64_t& began, int64_t& now) noexcept {
  began = now = now_ns();
  const int64_t end = began + kSpinNs;
  for (int pauses = 1; now < end; now = now_ns(), pauses = pauses < kMostPauses ? 2 * pauses : pauses) {
    for (int i = 0; i < pauses; ++i) cpu_relax();
    if (block.hold_seq.load(std::memory_order_relaxed) & 1) continue;
    const RobustLock::Outcome o = outcome_of(pthread_mutex_trylock(&block.mutex));
    if (o != RobustLock::Outcome::kBusy) return o;
  }
  return RobustLock::Outcome::kBusy;
}

// Called by the thread that has just taken the lock.
void count_wait(LockBlock& block, int64_t ns) noexcept {
  add_relaxed(block.num_waits, 1);
  add_relaxed(block.wait_ns, static_cast<uint64_t>(ns));
}

RobustLock::Outcome sleep_for_slice(LockBlock& block) noexcept {
  timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_sec += kSliceNs / 1'000'000'000;
  return outcome_of(pthread_mutex_clocklock(&block.mutex, CLOCK_MONOTONIC, &until));
}

}  // namespace

void RobustLock::init(LockBlock& block) {
  pthread_mutexattr_t attr;
  int rc = pthread_mutexattr_init(&attr);
  if (rc == 0) rc = pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_NORMAL);
  if (rc == 0) rc = pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
  if (rc == 0) rc = pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
  if (rc == 0) rc = pthread_mutex_init(&block.mutex, &attr);
  pthread_mutexattr_destroy(&attr);
  if (rc != 0) throw std::system_error(rc, std::generic_category(), "robust process-shared mutex");
}

RobustLock::Outcome RobustLock::try_lock(LockBlock& block, uint32_t session, uint32_t pid) noexcept {
  const Outcome o = outcome_of(pthread_mutex_trylock(&block.mutex));
  if (is_held(o)) sign(block, session, pid);
  return o;
}

RobustLock::Outcome RobustLock::lock(LockBlock& block, uint32_t session, uint32_t pid, const Wait& wait) noexcept {
  Outcome o = outcome_of(pthread_mutex_trylock(&block.mutex));
  if (is_held(o)) {
    sign(block, session, pid);
    return o;
  }
  int64_t began = 0, now = 0, stuck_ns = 0;
  bool slept = false;
  if (o == Outcome::kBusy) o = spin(block, began, now);
  while (o == Outcome::kBusy || o == Outcome::kTimeout) {
    const uint64_t before = block.hold_seq.load(std::memory_order_relaxed);
    o = sleep_for_slice(block);
    slept = true;
    if (o != Outcome::kTimeout) break;
    const bool same_hold = (before & 1) && block.hold_seq.load(std::memory_order_relaxed) == before;
    stuck_ns = same_hold ? stuck_ns + kSliceNs : 0;
    if (wait.patience != nullptr) {
      if (stuck_ns > 0) wait.patience->lock_stuck(block.pid.load(std::memory_order_relaxed), stuck_ns / kSliceNs);
      if (wait.patience->interrupted()) return Outcome::kInterrupted;
    }
    if (stuck_ns > 0 && wait.deadline_ns != kForever && now_ns() >= wait.deadline_ns) return Outcome::kTimeout;
  }
  if (is_held(o)) {
    sign(block, session, pid);
    // The clock that a spinner looked at last is good enough, and keeps the hold as short as it was.
    count_wait(block, (slept ? now_ns() : now) - began);
  }
  return o;
}

bool RobustLock::make_consistent(LockBlock& block) noexcept { return pthread_mutex_consistent(&block.mutex) == 0; }

void RobustLock::unlock(LockBlock& block) noexcept {
  block.hold_seq.store(block.hold_seq.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  SHMREPLAY_FAULT("lock.leaving");
  pthread_mutex_unlock(&block.mutex);
  SHMREPLAY_FAULT("lock.left");
}

bool RobustLock::leave_gap(const LockBlock& block) noexcept {
  const uint64_t seq = block.hold_seq.load(std::memory_order_relaxed);  // relaxed: a hint
  for (int i = 0; i < kGapPauses; ++i) {
    cpu_relax();
    if (block.hold_seq.load(std::memory_order_relaxed) != seq) return true;
  }
  return false;
}

void prove_robust_lock() {
  void* memory = mmap(nullptr, sizeof(LockBlock), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "mmap");
  auto* block = new (memory) LockBlock{};
  RobustLock::init(*block);
  const pid_t child = fork();
  if (child == 0) {
    pthread_mutex_lock(&block->mutex);
    kill(getpid(), SIGKILL);
    _exit(1);
  }
  if (child < 0) throw std::system_error(errno, std::generic_category(), "fork");
  while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {}
  const int rc = pthread_mutex_trylock(&block->mutex);
  if (rc == EOWNERDEAD) pthread_mutex_consistent(&block->mutex);
  if (rc == EOWNERDEAD || rc == 0) pthread_mutex_unlock(&block->mutex);
  munmap(memory, sizeof(LockBlock));
  if (rc != EOWNERDEAD) {
    throw std::runtime_error(
        "this kernel or C library does not report the death of a lock's owner (expected EOWNERDEAD, got error " +
        std::to_string(rc) +
        "); so shmreplay cannot recover from the death of a process here (known of gVisor and some other sandboxes)");
  }
}

}  // namespace shmreplay
