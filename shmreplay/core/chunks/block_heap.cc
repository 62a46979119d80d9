#include "chunks/block_heap.h"

#include <algorithm>

#include "base/fault.h"

namespace shmreplay {

BlockRef write_value(Arena& arena, const uint32_t* blocks, const char* bytes, uint32_t num_bytes) {
  const auto count = static_cast<uint32_t>(blocks_of(arena, num_bytes));
  uint32_t left = num_bytes;
  for (uint32_t i = count; i-- > 0;) {
    const uint32_t here = std::min(left, arena.geometry().block_bytes);
    if (here > 0) std::memcpy(arena.block_data(blocks[i]), bytes, here);
    SHMREPLAY_FAULT("heap.block_written");
    bytes += here;
    left -= here;
  }
  return {blocks[count - 1], num_bytes};
}

void read_value(const Arena& arena, uint32_t chunk, BlockRef ref, char* to) {
  uint32_t b = ref.first_block;
  for (uint32_t left = ref.num_bytes; left > 0;) {
    const BlockRecord& r = arena.block(b);
    if (r.owner.get().chunk != chunk) corrupt("a value leads to a block of another chunk");
    const uint32_t here = std::min(left, arena.geometry().block_bytes);
    std::memcpy(to, arena.block_data(b), here);
    to += here;
    left -= here;
    b = r.link.get().next_of_chunk;
  }
}

int64_t size_of_value(const Arena& arena, BlockRef ref) {
  if (ref == kNoValue) return -1;
  if (ref.first_block >= arena.geometry().num_blocks || !fits_heap(arena, ref.num_bytes)) corrupt("a value's size");
  return ref.num_bytes;
}

BlockRef value_of_row(const Arena& arena, uint32_t chunk, uint32_t column, uint32_t row) {
  BlockRef ref;
  std::memcpy(&ref, arena.row(chunk, column, row), sizeof ref);
  return ref;
}

}  // namespace shmreplay
