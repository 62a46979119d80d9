// Attached processes, and what is done when one is gone.
//
// Death is what the kernel says: pidfd_open answers ESRCH (or the pidfd of a zombie is readable), or the pid now has
// another start time. Silence, a stopped process, an unreadable /proc are not death. Anyone may reap: suspects are
// looked at without the lock, then reaped under it if the session's generation is still the same.
#pragma once

#include <vector>

#include "arena/hold.h"

namespace shmreplay {

struct SessionInfo {
  uint32_t index, generation, pid, role;
  uint64_t start_time;
};

// Clock ticks since boot from /proc/<pid>/stat; 0 if unreadable.
uint64_t process_start_time(uint32_t pid) noexcept;

// start_time 0: unknown, so only the pid can tell.
bool process_is_dead(uint32_t pid, uint64_t start_time) noexcept;

// A session for that process. kNoSessions when all are taken.
Status open_session(Arena& arena, uint32_t pid, uint64_t start_time, uint32_t role, const Wait& wait, SessionInfo& out);

// Ends a session in slices: its streams, leases, sleepers and free chunks, then the record. Resumable by anybody.
// `reaped` is false when it was another generation already.
Status close_session(Arena& arena, uint32_t index, uint32_t generation, const Wait& wait, bool& reaped);

std::vector<SessionInfo> live_sessions(const Arena& arena);

// Reaps every session whose process is dead; for calls that need what such a session may hold.
Status reap_dead_sessions(Arena& arena, const Wait& wait, uint32_t& reaped);

}  // namespace shmreplay
