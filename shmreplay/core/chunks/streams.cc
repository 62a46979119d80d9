#include "chunks/streams.h"

#include <algorithm>

#include "chunks/block_pool.h"
#include "chunks/chunk_pool.h"

namespace shmreplay {
namespace {
constexpr uint32_t kScan = 4096;  // records looked at in one slice: one cache line each
}

Status open_stream(Hold& hold, uint32_t max_chunks, uint32_t& stream) {
  Arena& a = hold.arena();
  stream = a.state().free_streams.get();
  if (stream == kNone) return Status::kNoStreams;
  StreamRecord& r = a.stream(stream);
  hold.set(a.state().free_streams, r.owner.get().generation);
  hold.set(r.owner, {a.session_index(), a.session_generation()});
  hold.set(r.serial, a.state().next_stream_serial.get());
  hold.add(a.state().next_stream_serial, 1);
  hold.set(r.window, {kNone, kNone});
  hold.set(r.size, {0, max_chunks});
  return Status::kOk;
}

void extend_window(Hold& hold, uint32_t stream, uint32_t chunk) {
  Arena& a = hold.arena();
  StreamRecord& r = a.stream(stream);
  const Window w = r.window.get();
  const WindowSize size = r.size.get();
  uint32_t first = w.first == kNone ? chunk : w.first;
  uint32_t num_chunks = size.num_chunks + 1;
  if (num_chunks > size.max_chunks && first != chunk) {
    const uint32_t oldest = first;
    first = a.chunk(oldest).stream.get().next;
    --num_chunks;
    drop_window_ref(hold, oldest);
  }
  hold.set(r.window, {first, chunk});
  hold.set(r.size, {num_chunks, size.max_chunks});
}

void close_chunk(Hold& hold, uint32_t chunk, uint32_t rows, bool repeats) {
  Word<ChunkLife>& life = hold.arena().chunk(chunk).life;
  hold.set(life, {life.get().state, repeats ? 1u : 0u, rows, life.get().generation});
}

bool close_stream(Hold& hold, uint32_t stream, uint32_t slice) {
  Arena& a = hold.arena();
  StreamRecord& r = a.stream(stream);
  for (; slice > 0 && r.size.get().num_chunks > 0; --slice) {
    const uint32_t oldest = r.window.get().first;
    const uint32_t next = a.chunk(oldest).stream.get().next;
    drop_window_ref(hold, oldest);
    const uint32_t left = r.size.get().num_chunks - 1;
    hold.set(r.size, {left, r.size.get().max_chunks});
    hold.set(r.window, {left > 0 ? next : kNone, left > 0 ? r.window.get().last : kNone});
  }
  if (r.size.get().num_chunks > 0) return false;
  reserve_blocks(hold, stream, 0);
  hold.set(r.owner, {kNone, a.state().free_streams.get()});
  hold.set(a.state().free_streams, stream);
  return true;
}

bool close_streams_of(Hold& hold, uint32_t session, uint32_t generation, uint32_t& cursor, uint32_t slice) {
  Arena& a = hold.arena();
  for (uint32_t looked = 0; cursor < a.geometry().max_streams; ++cursor, ++looked) {
    if (slice == 0 || looked == kScan) return false;
    const StreamOwner owner = a.stream(cursor).owner.get();
    if (owner.session != session || owner.generation != generation) continue;
    // A stream without chunks still costs the words of its record.
    const uint32_t cost = std::max(a.stream(cursor).size.get().num_chunks, 1u);
    if (!close_stream(hold, cursor, slice)) return false;
    slice -= std::min(cost, slice);
  }
  return true;
}

}  // namespace shmreplay
