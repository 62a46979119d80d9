// Values in the block heap: bytes that lie along a chain of blocks.
//
// The blocks of one value were taken one after the other. Each links to the one taken before it, and the value's bytes
// begin in the one taken last. A writer fills blocks that no other process knows of. A reader walks them under a lease,
// or is the stream's own writer. Neither needs the lock: see block_pool.h.
#pragma once

#include "arena/arena.h"

namespace shmreplay {

// How many blocks a value of that many bytes takes: at least one, so that an empty value differs from none.
inline uint64_t blocks_of(const Arena& arena, uint64_t num_bytes) noexcept {
  const uint64_t block_bytes = arena.geometry().block_bytes;
  return num_bytes == 0 ? 1 : (num_bytes + block_bytes - 1) / block_bytes;
}

// Whether an empty heap could hold that many bytes.
inline bool fits_heap(const Arena& arena, uint64_t num_bytes) noexcept {
  return num_bytes < kNone && arena.geometry().num_blocks > 0 &&
         blocks_of(arena, num_bytes) <= arena.geometry().num_blocks;
}

// Fills the blocks that were taken for a value, given in the order taken. Returns what the row or item must store.
BlockRef write_value(Arena& arena, const uint32_t* blocks, const char* bytes, uint32_t num_bytes);

// Copies a value's bytes out of its blocks. The value must not be kNoValue. CorruptIndex if a block is not `chunk`'s.
void read_value(const Arena& arena, uint32_t chunk, BlockRef ref, char* to);

// The value's size; -1: no value. CorruptIndex for a size that no heap of this size could hold.
int64_t size_of_value(const Arena& arena, BlockRef ref);

// What a row of a heap column stores.
BlockRef value_of_row(const Arena& arena, uint32_t chunk, uint32_t column, uint32_t row);

}  // namespace shmreplay
