// The arena's one lock: a robust, process-shared, NORMAL pthread mutex, and the cache line that says who holds it.
//
// Robust: when the holder dies, the kernel marks the mutex and the next locker gets EOWNERDEAD. NORMAL, never
// error-checking or recursive: those compare thread ids, which repeat across pid namespaces. The mutex is never
// destroyed, and it is taken and left by one thread within one native call (the kernel's list of held locks is per
// thread).
//
// Who has the lock is what the mutex's own word says: the thread's id. hold_seq is odd from the holder's signature to
// its unlock, but even for some instructions at both ends of a hold. So its parity is only a hint for spinners.
//
// Waiting: a contender first spins for about 5 us, *reading* hold_seq, so that spinners do not fight for the mutex's
// cache line. Then it sleeps in the kernel, in slices of a second. If the mutex's word and hold_seq are the same at
// both ends of a slice, nothing has moved, and the wait is stuck. That is reported, and when the caller's patience is
// over it is an error. Mere contention is neither. If the word names a thread that does not exist, the mutex is
// damaged: the kernel marks the mutex of a thread that dies.
#pragma once

#include "arena/layout.h"
#include "base/status.h"
#include "base/wait.h"

namespace shmreplay {

struct LockOwner {
  uint32_t thread = 0;  // 0: nobody has the lock
  uint32_t pid = 0;     // of its process
};

class RobustLock {
 public:
  enum class Outcome { kLocked, kOwnerDied, kBusy, kInterrupted, kTimeout, kUnusable };

  static void init(LockBlock& block);  // throws std::system_error

  static Outcome try_lock(LockBlock& block, uint32_t session, uint32_t pid) noexcept;

  // kTimeout only when nothing moved during the last slice, and the deadline is over. kUnusable: the mutex is damaged.
  static Outcome lock(LockBlock& block, uint32_t session, uint32_t pid, const Wait& wait) noexcept;

  // Called after kOwnerDied, when the index is whole again. false: the mutex cannot be repaired.
  static bool make_consistent(LockBlock& block) noexcept;

  static void unlock(LockBlock& block) noexcept;

  // Who has the lock at this moment. Called without it.
  static LockOwner owner(const LockBlock& block) noexcept;

  // Called without the lock. Waits until another thread has taken the lock, but no longer than a spinning contender
  // needs to see that it is free. Returns whether another thread has taken it.
  static bool leave_gap(const LockBlock& block) noexcept;
};

// Forks a child that dies inside a lock, and expects EOWNERDEAD. Throws std::runtime_error where the kernel or the C
// library does not report it (some sandboxes): better at the start than in production.
void prove_robust_lock();

}  // namespace shmreplay
