// Waiting for a chunk, and waking the calls that do: the two halves of one SYNC POINT.
#pragma once

#include "arena/arena.h"
#include "base/sleep_slice.h"

namespace shmreplay {

// Sleeps until a chunk may have come free. `scan` is the caller's second look, made between announcing itself and
// sleeping: it answers kOk and found=true to end the wait. kTimeout, kInterrupted, or what scan answered.
template <class Scan>
Status wait_for_chunk(Arena& arena, const Wait& wait, int64_t since_ns, Scan scan) {
  ArenaState& s = arena.state();
  const uint32_t seen = s.chunk_futex.load(std::memory_order_seq_cst);
  s.chunk_waiters.store(1, std::memory_order_seq_cst);  // SYNC POINT with wake_chunk_waiters
  bool found = false;
  if (const Status status = scan(found); status != Status::kOk || found) return status;
  return sleep_slice(s.chunk_futex, seen, kSliceNs, since_ns, wait);
}

// Ends the sleep of every call that waits for a chunk, if there is one. Without the lock or with it.
void wake_chunk_waiters(Arena& arena) noexcept;

}  // namespace shmreplay
