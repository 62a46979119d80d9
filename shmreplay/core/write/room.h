// Room for what a writer needs next: a chunk, or blocks. Free room is taken; where there is none, it is made.
//
// Room is made in this order. Chunks that were retired are reclaimed. What other sessions keep is taken. Dead readers
// are looked for, whose leases keep retired chunks. Where tables evict, the oldest chunks are evicted with their items.
// If all that brings nothing, the call waits.
#pragma once

#include "arena/chunk_wait.h"
#include "base/futex.h"
#include "chunks/chunk_pool.h"
#include "sessions/blocked.h"
#include "sessions/room_wait.h"
#include "sessions/sessions.h"

namespace shmreplay {

// Frees the chunks that were retired. `made`: at least one was freed.
Status reclaim_room(Arena& arena, const Wait& wait, bool& made);

// Retires some of the oldest chunks by evicting their items, hold by hold, and tells the caller's patience. `made`: at
// least one was retired.
Status evict_for_room(Arena& arena, const Wait& wait, bool& made);

// Waits until there may be room: kOk. is_there() says, without the lock, whether there may be some already.
template <class IsThere>
Status wait_for_room(Arena& arena, const TableFacts& table, const Wait& wait, int64_t since_ns, IsThere is_there) {
  const RoomWait told(arena, table, since_ns);
  return wait_for_chunk(arena, wait, since_ns, [&](bool& again) {
    uint32_t n = 0;
    Status status = reap_dead_sessions(arena, wait, n);
    again = n > 0;
    if (status == Status::kOk && !again) status = reclaim(arena, wait, n);
    // Others may have reclaimed chunks after our last look and taken fewer than they freed. Nobody would wake us for
    // the rest.
    again |= n > 0 || is_there();
    // Nobody wakes us when a chunk becomes evictable or when the table is dropped: both are looked at here.
    if (status == Status::kOk && !again) status = evict_for_room(arena, wait, again);
    again |= (table.record->flags.get() & kDropped) != 0;
    return status;
  });
}

// Which free chunks may be taken: those that nobody or our own session keeps; or also those that other sessions keep
// for their next chunk.
enum class Take { kOwn, kAnybodys };

// Calls try_take(take, done) until it answers kOk with `done`, making room in between. When only waiting could bring
// more (with wait.try_only: after the first try) and can_do_without(), answers kOk as it is. Else kTimeout, kArenaFull,
// kInterrupted, or what try_take answered.
template <class TryTake, class CanDoWithout, class IsThere>
Status take_room(Arena& arena, const TableFacts& table, const Wait& wait, TryTake try_take, CanDoWithout can_do_without,
                 IsThere is_there) {
  const int64_t since = now_ns();
  for (;;) {
    bool done = false, made = false;
    if (const Status s = try_take(Take::kOwn, done); s != Status::kOk || done) return s;
    if (wait.try_only) return can_do_without() ? Status::kOk : Status::kTimeout;
    if (const Status s = reclaim_room(arena, wait, made); s != Status::kOk) return s;
    if (made) continue;
    if (const Status s = try_take(Take::kAnybodys, done); s != Status::kOk || done) return s;
    uint32_t reaped = 0;
    if (const Status s = reap_dead_readers(arena, wait, reaped); s != Status::kOk) return s;
    if (reaped > 0) continue;
    if (const Status s = evict_for_room(arena, wait, made); s != Status::kOk) return s;
    if (made) continue;
    if (can_do_without()) return Status::kOk;
    if (table.on_full == kOnFullError) return Status::kArenaFull;
    if (const Status s = wait_for_room(arena, table, wait, since, is_there); s != Status::kOk) return s;
  }
}

// The same for what no session keeps, such as blocks: one look finds all there is, and the caller cannot do without.
template <class TryTake, class IsThere>
Status take_room(Arena& arena, const TableFacts& table, const Wait& wait, TryTake try_take, IsThere is_there) {
  const auto try_once = [&](Take take, bool& done) { return take == Take::kOwn ? try_take(done) : Status::kOk; };
  return take_room(arena, table, wait, try_once, [] { return false; }, is_there);
}

}  // namespace shmreplay
