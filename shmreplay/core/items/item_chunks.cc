#include "items/item_chunks.h"

#include "arena/span.h"
#include "chunks/chunk_pool.h"

namespace shmreplay {

uint32_t refer_to_chunks(Hold& hold, Place place, uint32_t num_steps, bool consuming) {
  uint32_t num_chunks = 0;
  each_run(hold.arena(), place, num_steps, [&](uint32_t chunk, uint32_t, uint32_t) {
    add_item_refs(hold, chunk, 1, consuming);
    ++num_chunks;
  });
  return num_chunks;
}

void leave_chunks(Hold& hold, uint32_t g, bool consuming) {
  Arena& a = hold.arena();
  const Place place = a.item(g).place.get();
  ChunkRecord& first = a.chunk(place.chunk);
  const Link at = a.links(g).chunk.get();
  if (at.prev != kNone) hold.set(a.links(at.prev).chunk, {a.links(at.prev).chunk.get().prev, at.next});
  if (at.next != kNone) hold.set(a.links(at.next).chunk, {at.prev, a.links(at.next).chunk.get().next});
  if (at.prev == kNone) hold.set(first.items, {at.next, first.items.get().consuming});
  // Each reference is dropped after the walk has left its chunk: the last reference retires the chunk, and its link to
  // the next chunk goes with it.
  uint32_t last_visited = kNone;
  each_run(a, place, a.item(g).extent.get().num_steps, [&](uint32_t chunk, uint32_t, uint32_t) {
    if (last_visited != kNone) drop_item_refs(hold, last_visited, 1, consuming);
    last_visited = chunk;
  });
  if (last_visited != kNone) drop_item_refs(hold, last_visited, 1, consuming);
}

}  // namespace shmreplay
