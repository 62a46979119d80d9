#include "arena/robust_lock.h"

#include <cerrno>
#include <csignal>
#include <ctime>
#include <linux/futex.h>
#include <stdexcept>
#include <string>
#include <sys/mman.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>

#include "base/fault.h"
#include "base/futex.h"
#include "base/process.h"
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

// 0, or why there are no such mutexes here.
int init_mutex(pthread_mutex_t& mutex) noexcept {
  pthread_mutexattr_t attr;
  int rc = pthread_mutexattr_init(&attr);
  if (rc == 0) rc = pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_NORMAL);
  if (rc == 0) rc = pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
  if (rc == 0) rc = pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
  if (rc == 0) rc = pthread_mutex_init(&mutex, &attr);
  pthread_mutexattr_destroy(&attr);
  return rc;
}

// What glibc keeps in every mutex of this kind. The functions of another kind wait in other ways, or for ever.
const int kKind = [] {
  pthread_mutex_t mutex{};
  init_mutex(mutex);
  return mutex.__data.__kind;
}();

bool is_of_our_kind(const LockBlock& block) noexcept { return block.mutex.__data.__kind == kKind; }

RobustLock::Outcome try_mutex(LockBlock& block) noexcept {
  if (!is_of_our_kind(block)) return RobustLock::Outcome::kUnusable;
  return outcome_of(pthread_mutex_trylock(&block.mutex));
}

// The word that the C library shares with the kernel (see "robust futexes"): the id of the thread that has the mutex,
// and the flags FUTEX_WAITERS and FUTEX_OWNER_DIED. 0: it is free.
uint32_t word_of(const LockBlock& block) noexcept {
  return static_cast<uint32_t>(__atomic_load_n(&block.mutex.__data.__lock, __ATOMIC_RELAXED));  // a hint, or a report
}

bool can_be_taken(uint32_t word) noexcept { return word == 0 || (word & FUTEX_OWNER_DIED) != 0; }

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
    const RobustLock::Outcome o = try_mutex(block);
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

// What a waiter sees of the lock. If two looks are equal, no hold has begun and ended between them.
struct Look {
  uint32_t word;
  uint64_t hold_seq;

  explicit Look(const LockBlock& block) noexcept
      : word(word_of(block)), hold_seq(block.hold_seq.load(std::memory_order_relaxed)) {}  // relaxed: a hint
  bool is_same(const Look& other) const noexcept {
    return ((word ^ other.word) & ~uint32_t{FUTEX_WAITERS}) == 0 && hold_seq == other.hold_seq;
  }
};

// No thread that lives has the mutex, and the kernel has not marked it as a dead thread's.
bool belongs_to_nobody(const LockBlock& block) noexcept {
  const uint32_t word = word_of(block), thread = word & FUTEX_TID_MASK;
  if (can_be_taken(word) || (thread != 0 && !thread_is_gone(thread))) return false;
  // A thread that has ended since the first look is marked by now.
  return ((word_of(block) ^ word) & ~uint32_t{FUTEX_WAITERS}) == 0;
}

// A contender that has spun in vain.
class Sleeper {
 public:
  Sleeper(LockBlock& block, const Wait& wait) noexcept : block_(block), wait_(wait) {}

  // kLocked, kOwnerDied, or why it does not go on.
  RobustLock::Outcome sleep() noexcept {
    for (;;) {
      const Look before(block_);
      const RobustLock::Outcome o = sleep_for_slice(block_);
      if (o != RobustLock::Outcome::kTimeout) return o;
      const bool is_stuck = !can_be_taken(word_of(block_)) && Look(block_).is_same(before);
      stuck_s_ = is_stuck ? stuck_s_ + kSliceNs / 1'000'000'000 : 0;
      if (!is_of_our_kind(block_) || (is_stuck && belongs_to_nobody(block_))) return RobustLock::Outcome::kUnusable;
      if (is_interrupted()) return RobustLock::Outcome::kInterrupted;
      if (is_stuck && wait_.deadline_ns != kForever && now_ns() >= wait_.deadline_ns) {
        return RobustLock::Outcome::kTimeout;
      }
    }
  }

 private:
  bool is_interrupted() noexcept {
    if (wait_.patience == nullptr) return false;
    if (stuck_s_ > 0) wait_.patience->lock_stuck(RobustLock::owner(block_).pid, stuck_s_);
    return wait_.patience->interrupted();
  }

  LockBlock& block_;
  const Wait& wait_;
  int64_t stuck_s_ = 0;
};

}  // namespace

void RobustLock::init(LockBlock& block) {
  if (const int rc = init_mutex(block.mutex); rc != 0) {
    throw std::system_error(rc, std::generic_category(), "robust process-shared mutex");
  }
}

RobustLock::Outcome RobustLock::try_lock(LockBlock& block, uint32_t session, uint32_t pid) noexcept {
  const Outcome o = try_mutex(block);
  if (is_held(o)) sign(block, session, pid);
  return o;
}

RobustLock::Outcome RobustLock::lock(LockBlock& block, uint32_t session, uint32_t pid, const Wait& wait) noexcept {
  Outcome o = try_lock(block, session, pid);
  if (o != Outcome::kBusy) return o;
  int64_t began = 0, now = 0;
  o = spin(block, began, now);
  const bool slept = o == Outcome::kBusy;
  if (slept) o = Sleeper(block, wait).sleep();
  if (is_held(o)) {
    sign(block, session, pid);
    // The clock that a spinner looked at last is good enough, and keeps the hold as short as it was.
    count_wait(block, (slept ? now_ns() : now) - began);
  }
  return o;
}

LockOwner RobustLock::owner(const LockBlock& block) noexcept {
  const uint32_t word = word_of(block), thread = word & FUTEX_TID_MASK;
  if (can_be_taken(word)) return {};
  if (const uint32_t pid = process_of_thread(thread); pid != 0) return {thread, pid};
  // /proc is hidden. Relaxed: a report.
  const bool is_signed = (block.hold_seq.load(std::memory_order_relaxed) & 1) != 0;
  return {thread, is_signed ? block.pid.load(std::memory_order_relaxed) : thread};
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
