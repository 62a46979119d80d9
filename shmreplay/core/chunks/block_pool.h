// The block heap's blocks: which chunk owns each, and which are free.
//
// All blocks have one size; they hold values that have no fixed size. A block is in use while the chunk in its owner
// word still has the generation in that word. A chunk's blocks are freed in slices when it is at the head of the
// retired list; it stays there until the last block is free. Until then the blocks' links never change, so a lease's
// holder walks them without the lock.
#pragma once

#include "arena/hold.h"

namespace shmreplay {

// Takes `count` blocks, at most kTakeBlocks, for `chunk`. Each is linked before the one taken last, the list starting
// at ChunkRecord::writer.first_block. false, and nothing changes, if there are too few.
inline constexpr uint32_t kTakeBlocks = 256;
bool take_blocks(Hold& hold, uint32_t chunk, uint32_t count, uint32_t* blocks);

// Frees blocks of `chunk` that nothing refers to, at most kTakeBlocks. They must be its last ones, in the order taken;
// else false, and nothing changes.
bool give_back_blocks(Hold& hold, uint32_t chunk, const uint32_t* blocks, uint32_t count);

// Frees the blocks of a retired chunk from the head of its chain, at most `budget`. false: some are left for the next
// hold.
bool free_blocks_of(Hold& hold, uint32_t chunk, uint32_t& budget);

// How many free blocks no other stream has reserved. Without the lock it is a hint.
//
// A writer that cannot take all its blocks in one hold reserves all the others with its first part. So no writer that
// has a part waits for the rest. A reservation ends when its blocks are taken, when the stream ends, or when a dead
// session's stream is closed.
uint64_t blocks_left_to(const Arena& arena, uint32_t stream) noexcept;
// From now on, `count` of those blocks are reserved for the stream, in place of its earlier reservation.
void reserve_blocks(Hold& hold, uint32_t stream, uint64_t count);

}  // namespace shmreplay
