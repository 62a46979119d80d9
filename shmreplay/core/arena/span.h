// A span: consecutive steps of a stream, from a place on, over the chunks that they lie in.
#pragma once

#include "arena/arena.h"

namespace shmreplay {

// Calls visit(chunk, first_row, rows) for each run of steps of a span, in order. `record(chunk)` answers a chunk's
// record.
template <class Record, class Visit>
void each_run_among(Record record, uint32_t chunk_steps, Place place, uint32_t num_steps, Visit visit) {
  uint32_t chunk = place.chunk, row = place.row, left = num_steps;
  for (uint32_t n = 0; left > 0; ++n) {
    if (n >= kMaxItemChunks) corrupt("an item spans too many chunks");
    const ChunkRecord& r = record(chunk);
    const ChunkLife life = r.life.get();
    if (row >= life.rows || life.rows > chunk_steps) corrupt("an item begins after its chunk's rows");
    uint32_t here = left < life.rows - row ? left : life.rows - row;
    // The last row is also the first of the next chunk. A span that goes on beyond it reads it there; one that ends
    // with it reads it here.
    if (life.repeats && here < left) --here;
    if (here > 0) visit(chunk, row, here);
    left -= here;
    row = 0;
    if (left > 0) chunk = r.stream.get().next;
  }
}

template <class Visit>
void each_run(const Arena& arena, Place place, uint32_t num_steps, Visit visit) {
  each_run_among([&arena](uint32_t c) -> const ChunkRecord& { return arena.chunk(c); }, arena.geometry().chunk_steps,
                 place, num_steps, visit);
}

}  // namespace shmreplay
