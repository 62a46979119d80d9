// Room for what a writer needs next, a chunk or blocks: taken where some is free, else made.
//
// First what was retired is reclaimed; then the oldest chunks go, with their items, where tables evict; else the call waits.
#pragma once

#include "blocked.h"
#include "chunk_pool.h"
#include "futex.h"
#include "sessions.h"

namespace shmreplay {

// Retires some of the oldest chunks by evicting their items, hold by hold; `found`: at least one.
Status evict_for_room(Arena& arena, const Wait& wait, bool& found);

// Until try_take(steal, found) answers kOk and found: `steal` when what is free is to be taken from whoever has it. is_there()
// says without the lock whether it may find something. kTimeout, kArenaFull, or what try_take answered.
template <class TryTake, class IsThere>
Status take_room(Arena& arena, const TableFacts& table, const Wait& wait, TryTake try_take, IsThere is_there) {
  const int64_t since = now_ns();
  for (;;) {
    bool found = false;
    if (const Status s = try_take(false, found); s != Status::kOk || found) return s;
    if (wait.try_only) return Status::kTimeout;
    uint32_t freed = 0;
    if (const Status s = reclaim(arena, wait, freed); s != Status::kOk) return s;
    if (freed > 0) continue;
    if (const Status s = try_take(true, found); s != Status::kOk || found) return s;
    if (const Status s = evict_for_room(arena, wait, found); s != Status::kOk) return s;
    if (found) {
      if (wait.patience != nullptr) wait.patience->evicted_for_room();
      continue;
    }
    if (table.on_full == kOnFullError) return Status::kArenaFull;
    const Status s = wait_for_chunk(arena, wait, since, [&](bool& again) {
      uint32_t n = 0;
      Status status = reap_dead_sessions(arena, wait, n);
      again = n > 0;
      if (status == Status::kOk && !again) status = reclaim(arena, wait, n);
      // Others may have reclaimed since our look and taken less than they freed; nobody would wake us for the rest.
      again |= n > 0 || is_there();
      // What became evictable since, or that the table is gone, no chunk's wake tells of.
      if (status == Status::kOk && !again) status = evict_for_room(arena, wait, again);
      again |= (table.record->flags.get() & kDropped) != 0;
      return status;
    });
    if (s != Status::kOk) return s;
  }
}

}  // namespace shmreplay
