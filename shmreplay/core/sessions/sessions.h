// Attached processes, and what is done when one of them is gone.
//
// What a dead process is: base/process.h. Any process may reap: it looks at suspects without the lock, then reaps them
// under it if the session's generation is still the same.
#pragma once

#include <vector>

#include "arena/hold.h"

namespace shmreplay {

struct SessionInfo {
  uint32_t index, generation, pid, role;
  uint64_t start_time;
};

// Opens a session for that process. kNoSessions when all are taken.
Status open_session(Arena& arena, uint32_t pid, uint64_t start_time, uint32_t role, const Wait& wait, SessionInfo& out);

// Ends a session in slices: its streams, leases, sleepers and free chunks, then its record. Any process can go on with
// it. `reaped` is false if the record already belonged to another generation.
Status close_session(Arena& arena, uint32_t index, uint32_t generation, const Wait& wait, bool& reaped);

std::vector<SessionInfo> live_sessions(const Arena& arena);

// Reaps every session whose process is dead. For calls that need something that such a session may hold.
Status reap_dead_sessions(Arena& arena, const Wait& wait, uint32_t& reaped);

// The same for those whose leases may keep retired chunks from being freed. It costs a call without dead readers some
// system calls for each living one whose read is in flight.
Status reap_dead_readers(Arena& arena, const Wait& wait, uint32_t& reaped);

}  // namespace shmreplay
