// An item's references: it counts in each chunk that it spans, and is in the list of the chunk that it begins in. Every
// function here is one part of one hold. `consuming`: the item's table never loses an item for want of room (see
// keeps_items()).
#pragma once

#include "arena/hold.h"

namespace shmreplay {

// Adds the references of a new item of these steps to its chunks. Answers how many chunks.
uint32_t refer_to_chunks(Hold& hold, Place place, uint32_t num_steps, bool consuming);

// Takes an item from the list of the chunk it begins in, and its references from all its chunks.
void leave_chunks(Hold& hold, uint32_t g, bool consuming);

}  // namespace shmreplay
