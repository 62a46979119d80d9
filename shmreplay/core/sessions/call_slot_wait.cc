#include "sessions/call_slot_wait.h"

#include "arena/chunk_wait.h"
#include "base/futex.h"
#include "chunks/leases.h"
#include "sessions/sessions.h"

namespace shmreplay {

Status wait_for_call_slot(Arena& arena, const Wait& wait) {
  if (wait.deadline_ns == 0) return Status::kNoCallSlots;
  const Status status = wait_for_chunk(arena, wait, now_ns(), [&arena, &wait](bool& found) {
    found = has_free_call_slot(arena);
    if (found) return Status::kOk;
    uint32_t reaped = 0;
    const Status s = reap_dead_sessions(arena, wait, reaped);
    found = reaped > 0;
    return s;
  });
  return status == Status::kTimeout ? Status::kNoCallSlots : status;
}

}  // namespace shmreplay
