// The block heap's blocks: which chunk owns each, and which are free.
//
// Blocks are of one size; they hold values that have no fixed size. A block is in use while the chunk in its owner word
// still has the generation there. A chunk's blocks are freed in slices when its turn in the retired list has come: it
// stays that list's head until the last one is free. Until then their links never change, so a lease's holder walks
// them without the lock.
#pragma once

#include "arena/hold.h"

namespace shmreplay {

// Takes `count` blocks for `chunk`, at most kTakeBlocks, each linked before the last one from
// ChunkRecord::writer.first_block on; false and no change if there are too few.
inline constexpr uint32_t kTakeBlocks = 256;
bool take_blocks(Hold& hold, uint32_t chunk, uint32_t count, uint32_t* blocks);

// Frees blocks of `chunk` that nothing refers to, at most kTakeBlocks: its last ones, in the order taken. false and no
// change if they are not.
bool give_back_blocks(Hold& hold, uint32_t chunk, const uint32_t* blocks, uint32_t count);

// Frees the blocks of a retired chunk from the head of its chain, `budget` at most. false: some are left to the next
// hold.
bool free_blocks_of(Hold& hold, uint32_t chunk, uint32_t& budget);

// Free blocks that no other stream has reserved. Without the lock it is a hint.
//
// A writer that cannot take all its blocks in one hold reserves all of them with the first part. So no writer that has
// a part waits for the rest. A reservation ends when the blocks are taken, with the stream, or when a dead session's
// stream is closed.
uint64_t blocks_left_to(const Arena& arena, uint32_t stream) noexcept;
// From now on `count` blocks of those left to the stream are reserved for it, in place of its earlier reservation.
void reserve_blocks(Hold& hold, uint32_t stream, uint64_t count);

}  // namespace shmreplay
