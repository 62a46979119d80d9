#include "write/room.h"

#include <algorithm>

#include "items/item_table.h"

namespace shmreplay {
namespace {

constexpr uint32_t kEvictScan = 256;  // chunks looked at in one hold
constexpr uint32_t kEvictAtOnce = 8;  // chunks evicted before the next scan of the leases

}  // namespace

Status reclaim_room(Arena& arena, const Wait& wait, bool& made) {
  uint32_t freed = 0;
  const Status s = reclaim(arena, wait, freed);
  made = freed > 0;
  return s;
}

Status evict_for_room(Arena& arena, const Wait& wait, bool& made) {
  made = false;
  const uint32_t want = std::clamp(arena.geometry().num_chunks / 32, 1u, kEvictAtOnce);
  const uint64_t most_looks = uint64_t{want} * (arena.geometry().num_chunks / kEvictScan + 2);
  uint32_t cursor = kNone;
  uint64_t looks = 0;  // a damaged list that leads back into itself has no end
  for (uint32_t evicted = 0; evicted < want && looks < most_looks; ++looks) {
    uint32_t chunk;
    {
      Hold hold(arena);
      if (const Status s = hold.begin(wait); s != Status::kOk) return s;
      chunk = find_evictable(hold, cursor, kEvictScan);
    }
    if (chunk == kNone && cursor == kNone) break;
    if (chunk == kNone) continue;
    for (bool done = false; !done;) {
      Hold hold(arena);
      if (const Status s = hold.begin(wait); s != Status::kOk) return s;
      // Another process may have changed the chunk since.
      const ChunkRecord& r = arena.chunk(chunk);
      if (r.life.get().state != kChunkUsed || r.refs.get().windows != 0 || r.items.get().consuming != 0) break;
      done = evict_chunk_slice(hold, chunk);
    }
    made = true;
    ++evicted;
    cursor = kNone;
  }
  if (made && wait.patience != nullptr) wait.patience->evicted_for_room();
  return Status::kOk;
}

}  // namespace shmreplay
