// What the core asks of the kernel and of the C library, simulated: a robust mutex, futexes, the clock, who is alive.
// The linker sends these calls here (--wrap); outside of simulated processes they are passed on.
//
// The mutex is a word that holds the owner's thread id, FUTEX_WAITERS and FUTEX_OWNER_DIED, as the kernel and the C
// library agreed on it (futex(2), Documentation/locking/robust-futex-ABI.rst). Each look at the word, each change, each
// sleep and each wake-up is a step of its own. Releasing it is two: the word becomes 0, then a sleeper is woken. A
// death in between is seen to by the kernel, which wakes one if the word is still 0.
#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstdlib>
#include <ctime>
#include <linux/futex.h>
#include <new>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "explorer/machine.h"

namespace shmreplay::explorer {
namespace {

// In the mutex's owner field, while its word has an owner: the dead owner's work is not made whole yet; nobody made it
// whole, so the mutex cannot be used any more.
constexpr int kInconsistent = INT_MAX;
constexpr int kUnusable = INT_MAX - 1;

uint32_t& word_of(pthread_mutex_t* m) { return reinterpret_cast<uint32_t&>(m->__data.__lock); }
uint32_t own_tid() { return pid_of(self()); }

bool exchange(uint32_t& word, uint32_t& expected, uint32_t value) {
  always_step(&word, "compare_exchange");
  if (word == expected) {
    word = value;
    return true;
  }
  expected = word;
  return false;
}

// What a process that has just become the owner answers.
int owned(pthread_mutex_t* m, bool owner_died) {
  if (m->__data.__owner == kUnusable) {
    always_step(&word_of(m), "gives up an unusable mutex");
    word_of(m) = 0;
    wake(&word_of(m), INT_MAX);
    return ENOTRECOVERABLE;
  }
  m->__data.__owner = owner_died ? kInconsistent : static_cast<int>(own_tid());
  begin_hold();
  return owner_died ? EOWNERDEAD : 0;
}

// until kNever: without a timeout.
int lock(pthread_mutex_t* m, bool may_wait, int64_t until) {
  uint32_t& word = word_of(m);
  uint32_t waiters = 0;  // this call has slept, so others may sleep as well
  for (uint32_t seen = 0;;) {
    if (seen == 0) {
      if (exchange(word, seen, own_tid() | waiters)) return owned(m, false);
      continue;
    }
    if (seen & FUTEX_OWNER_DIED) {
      if (exchange(word, seen, own_tid() | (seen & FUTEX_WAITERS) | waiters)) return owned(m, true);
      continue;
    }
    if (!may_wait) return EBUSY;
    if ((seen & FUTEX_WAITERS) == 0) {
      if (!exchange(word, seen, seen | FUTEX_WAITERS)) continue;
      seen |= FUTEX_WAITERS;
    }
    waiters = FUTEX_WAITERS;
    always_step(&word, "falls asleep on");
    const int rc = word == seen ? block(&word, until) : 0;
    if (rc == ETIMEDOUT) return ETIMEDOUT;
    always_step(&word, "loads");
    seen = word;
  }
}

int unlock(pthread_mutex_t* m) {
  uint32_t& word = word_of(m);
  require((word & FUTEX_TID_MASK) == own_tid(), "unlocks a mutex that it does not hold");
  always_step(&word, "unlocks");
  m->__data.__owner = m->__data.__owner == kInconsistent || m->__data.__owner == kUnusable ? kUnusable : 0;
  const bool sleepers = (word & FUTEX_WAITERS) != 0;
  word = 0;
  if (!sleepers) return 0;
  running()->now.leaving_mutex = true;
  always_step(&word, "wakes one that sleeps on");
  wake(&word, 1);
  running()->now.leaving_mutex = false;
  return 0;
}

int64_t ns_of(const timespec& t) { return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec; }

// On the process's own clock; block() counts by the same.
int64_t later(const timespec* timeout) { return timeout == nullptr ? kNever : clock_ns() + ns_of(*timeout); }

long answer(int error) {
  if (error == 0) return 0;
  errno = error;
  return -1;
}

long futex(const uint32_t* word, int op, uint32_t value, const timespec* timeout) {
  switch (op & FUTEX_CMD_MASK) {
    case FUTEX_WAIT: {
      const int64_t until = later(timeout);
      always_step(word, "falls asleep on");
      if (*word != value) return answer(EAGAIN);
      return answer(block(word, until));
    }
    case FUTEX_WAKE: always_step(word, "wakes sleepers of"); return wake(word, static_cast<int>(value));
    default: accuse("asks for a futex operation that the explorer does not know", nullptr);
  }
}

uint32_t acting_pid = 0;

int living_pidfd() {
  static const int fd = eventfd(0, EFD_CLOEXEC);  // never readable: as the pidfd of a living process
  return fd;
}

}  // namespace

void act_as(uint32_t pid) { acting_pid = pid; }

void bury(Process& dead, uint32_t tid, pthread_mutex_t* m) {
  uint32_t& word = word_of(m);
  if ((word & FUTEX_TID_MASK) == tid) {
    const bool sleepers = (word & FUTEX_WAITERS) != 0;
    word = (word & FUTEX_WAITERS) | FUTEX_OWNER_DIED;
    if (sleepers) wake(&word, 1);
  } else if (dead.now.leaving_mutex && word == 0) {
    wake(&word, 1);
  }
}

}  // namespace shmreplay::explorer

using namespace shmreplay::explorer;

extern "C" {

int __real_pthread_mutex_trylock(pthread_mutex_t*);
int __real_pthread_mutex_lock(pthread_mutex_t*);
int __real_pthread_mutex_clocklock(pthread_mutex_t*, clockid_t, const timespec*);
int __real_pthread_mutex_unlock(pthread_mutex_t*);
int __real_pthread_mutex_consistent(pthread_mutex_t*);
int __real_clock_gettime(clockid_t, timespec*);
pid_t __real_getpid();
int __real_close(int);
long __real_syscall(long, ...);

int __wrap_pthread_mutex_trylock(pthread_mutex_t* m) {
  return running() == nullptr ? __real_pthread_mutex_trylock(m) : lock(m, false, 0);
}

int __wrap_pthread_mutex_lock(pthread_mutex_t* m) {
  return running() == nullptr ? __real_pthread_mutex_lock(m) : lock(m, true, kNever);
}

int __wrap_pthread_mutex_clocklock(pthread_mutex_t* m, clockid_t clock, const timespec* until) {
  return running() == nullptr ? __real_pthread_mutex_clocklock(m, clock, until) : lock(m, true, ns_of(*until));
}

int __wrap_pthread_mutex_unlock(pthread_mutex_t* m) {
  return running() == nullptr ? __real_pthread_mutex_unlock(m) : unlock(m);
}

int __wrap_pthread_mutex_consistent(pthread_mutex_t* m) {
  if (running() == nullptr) return __real_pthread_mutex_consistent(m);
  if (m->__data.__owner != kInconsistent) return EINVAL;
  m->__data.__owner = static_cast<int>(own_tid());
  return 0;
}

int __wrap_clock_gettime(clockid_t clock, timespec* now) {
  if (running() == nullptr) return __real_clock_gettime(clock, now);
  const int64_t ns = clock_ns();
  *now = {ns / 1'000'000'000, ns % 1'000'000'000};
  return 0;
}

pid_t __wrap_getpid() {
  if (running() != nullptr) return static_cast<pid_t>(own_tid());
  return acting_pid != 0 ? static_cast<pid_t>(acting_pid) : __real_getpid();
}

int __wrap_close(int fd) { return running() != nullptr && fd == living_pidfd() ? 0 : __real_close(fd); }

long __wrap_syscall(long number, ...) {
  va_list args;
  va_start(args, number);
  long a[6];
  for (long& x : a) x = va_arg(args, long);
  va_end(args);
  if (running() == nullptr) return __real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
  switch (number) {
    case SYS_futex:
      return futex(reinterpret_cast<uint32_t*>(a[0]), static_cast<int>(a[1]), static_cast<uint32_t>(a[2]),
                   reinterpret_cast<const timespec*>(a[3]));
    case SYS_tkill:  // with signal 0: is there such a thread?
      return answer(is_dead(static_cast<uint32_t>(a[0])) ? ESRCH : 0);
    case SYS_pidfd_open:
      if (is_dead(static_cast<uint32_t>(a[0]))) return answer(ESRCH);
      return living_pidfd();
    default: accuse("makes a system call that the explorer does not know", nullptr);
  }
}

}  // extern "C"

namespace shmreplay {
struct LockBlock;
}
// RobustLock::leave_gap(): it only looks at hold_seq for a while, to leave others time, and time is not simulated.
extern "C" bool __wrap__ZN9shmreplay10RobustLock9leave_gapERKNS_9LockBlockE(const shmreplay::LockBlock&) {
  return false;
}

void* operator new(size_t bytes) {
  if (running() != nullptr) return allocate(bytes);
  void* at = std::malloc(bytes);
  if (at == nullptr) throw std::bad_alloc();
  return at;
}
void operator delete(void* at) noexcept {
  if (!release(at)) std::free(at);
}
void operator delete(void* at, size_t) noexcept { operator delete(at); }
