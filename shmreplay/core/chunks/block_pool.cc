#include "chunks/block_pool.h"

#include <algorithm>

namespace shmreplay {

bool take_blocks(Hold& hold, uint32_t chunk, uint32_t count, uint32_t* blocks) {
  Arena& a = hold.arena();
  ChunkRecord& r = a.chunk(chunk);
  ArenaState& s = a.state();
  if (s.num_free_blocks.get() < count) return false;
  uint32_t b = s.free_blocks.get(), first = r.writer.get().first_block;
  for (uint32_t i = 0; i < count; ++i) {
    if (b == kNone) corrupt("the list of free blocks is shorter than its counter says");
    const uint32_t next = a.block(b).link.get().next_free;
    hold.set(a.block(b).owner, {chunk, r.life.get().generation});
    hold.set(a.block(b).link, {first, kNone});
    blocks[i] = first = b;
    b = next;
  }
  hold.set(s.free_blocks, b);
  hold.add(s.num_free_blocks, -static_cast<uint64_t>(count));
  hold.set(r.writer, {r.writer.get().session, first});
  return true;
}

bool free_blocks_of(Hold& hold, uint32_t c, uint32_t& budget) {
  Arena& a = hold.arena();
  ChunkRecord& r = a.chunk(c);
  uint32_t b = r.writer.get().first_block, free = a.state().free_blocks.get(), n = 0;
  if (b == kNone) return true;
  for (; b != kNone && budget > 0; --budget, ++n) {
    const uint32_t next = a.block(b).link.get().next_of_chunk;
    if (a.block(b).owner.get().chunk != c) corrupt("a chunk's chain of blocks leads to a block of another chunk");
    hold.set(a.block(b).owner, {kNone, 0});
    hold.set(a.block(b).link, {kNone, free});
    free = b;
    b = next;
  }
  hold.set(a.state().free_blocks, free);
  hold.add(a.state().num_free_blocks, n);
  hold.set(r.writer, {r.writer.get().session, b});
  return b == kNone;
}

bool give_back_blocks(Hold& hold, uint32_t chunk, const uint32_t* blocks, uint32_t count) {
  Arena& a = hold.arena();
  uint32_t b = a.chunk(chunk).writer.get().first_block;
  for (uint32_t i = count; i-- > 0; b = a.block(b).link.get().next_of_chunk) {
    if (b != blocks[i]) return false;
  }
  free_blocks_of(hold, chunk, count);
  hold.chunk_retired();  // calls that wait for blocks sleep as for a chunk
  return true;
}

uint64_t blocks_left_to(const Arena& arena, uint32_t stream) noexcept {
  const ArenaState& s = arena.state();
  const uint64_t free = s.num_free_blocks.get() + arena.stream(stream).reserved_blocks.get();
  return free - std::min(free, s.num_reserved_blocks.get());
}

void reserve_blocks(Hold& hold, uint32_t stream, uint64_t count) {
  ArenaState& s = hold.arena().state();
  Word<uint64_t>& own = hold.arena().stream(stream).reserved_blocks;
  const uint64_t before = own.get(), all = s.num_reserved_blocks.get();
  // Wrong numbers here would make a writer wait for ever.
  if (before > all || all > s.num_free_blocks.get()) corrupt("more blocks are reserved than are free");
  if (count < before) hold.chunk_retired();  // as when blocks are given back
  hold.set(own, count);
  hold.set(s.num_reserved_blocks, all - before + count);
}

}  // namespace shmreplay
