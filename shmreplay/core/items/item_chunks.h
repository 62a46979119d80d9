// An item in its chunks: a reference to each that it spans, and a place in the list of the one it begins in. Every
// function here is one part of one hold. `consuming`: the item is of a table that never loses one for want of room (see
// keeps_items()).
#pragma once

#include "arena/hold.h"

namespace shmreplay {

// References of a new item of these steps to its chunks; answers how many chunks.
uint32_t refer_to_chunks(Hold& hold, Place place, uint32_t num_steps, bool consuming);

// Takes an item from the list of the chunk it begins in, and its references from all its chunks.
void leave_chunks(Hold& hold, uint32_t g, bool consuming);

}  // namespace shmreplay
