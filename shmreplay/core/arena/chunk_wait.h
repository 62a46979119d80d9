// Waiting for a chunk, and waking the calls that do: the two halves of one SYNC POINT.
#pragma once

#include "arena/arena.h"
#include "base/sleep_slice.h"

namespace shmreplay {

// Sleeps until a chunk may have come free. `scan` is the caller's second look, made after it has announced itself and
// before it sleeps. It answers kOk and found=true to end the wait. Answers kTimeout, kInterrupted, or what scan
// answered.
template <class Scan>
Status wait_for_chunk(Arena& arena, const Wait& wait, int64_t since_ns, Scan scan) {
  ArenaState& s = arena.state();
  const uint32_t seen = s.chunk_futex.load(std::memory_order_seq_cst);
  s.chunk_waiters.store(1, std::memory_order_seq_cst);  // SYNC POINT with wake_chunk_waiters
  bool found = false;
  if (const Status status = scan(found); status != Status::kOk || found) return status;
  return sleep_slice(s.chunk_futex, seen, kSliceNs, since_ns, wait);
}

// Ends the sleep of every call that waits for a chunk. With or without the lock.
void wake_chunk_waiters(Arena& arena) noexcept;

}  // namespace shmreplay
