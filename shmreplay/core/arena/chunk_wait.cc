#include "arena/chunk_wait.h"

namespace shmreplay {

void wake_chunk_waiters(Arena& arena) noexcept {
  ArenaState& s = arena.state();
  // SYNC POINT with wait_for_chunk. What made a chunk free was stored before this load: a lease's count of 0 (seq_cst),
  // or a retirement (under the lock). The waiter stores chunk_waiters (seq_cst) before it scans again. So one of the
  // two sees the other, and no wake is lost (tests/native/arena/chunk_wait_litmus_test.cc).
  if (s.chunk_waiters.load(std::memory_order_seq_cst) == 0) return;
  s.chunk_waiters.store(0, std::memory_order_seq_cst);
  futex_bump(s.chunk_futex);
}

}  // namespace shmreplay
