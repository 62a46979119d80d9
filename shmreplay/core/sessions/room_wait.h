// What a session's record says of its calls that wait for room. Waiting for room needs no lock, so this needs none:
// plain atomics, only for reports.
#pragma once

#include "arena/arena.h"

namespace shmreplay {

class RoomWait {
 public:
  // `since_ns`: when the call began to look for room.
  RoomWait(const Arena& arena, const TableFacts& table, int64_t since_ns) : arena_(arena) {
    if (arena.session_index() == kNone) return;
    SessionRecord& r = arena.session(arena.session_index());
    // If several threads of a process wait, the record shows the first. All relaxed: a report may be a moment late.
    if (r.room_waits.fetch_add(1, std::memory_order_relaxed) > 0) return;
    r.room_table.store(table.index, std::memory_order_relaxed);
    r.room_since_ns.store(static_cast<uint64_t>(since_ns), std::memory_order_relaxed);
  }
  ~RoomWait() {
    if (arena_.session_index() == kNone) return;
    SessionRecord& r = arena_.session(arena_.session_index());
    // A session that has taken over the record began with a count of 0.
    if (r.state.get().generation == arena_.session_generation()) r.room_waits.fetch_sub(1, std::memory_order_relaxed);
  }
  RoomWait(const RoomWait&) = delete;
  RoomWait& operator=(const RoomWait&) = delete;

 private:
  const Arena& arena_;
};

}  // namespace shmreplay
