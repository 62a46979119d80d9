// Counts the episodes that have live items in a table. Every function is one part of one hold.
#pragma once

#include "arena/hold.h"

namespace shmreplay {

// Counts one more item of that episode. Returns the slot where it is counted; kNone for an item that is an episode of
// its own. `slot`: where the episode was counted last, or kNone.
uint32_t count_episode(Hold& hold, const TableFacts& table, uint64_t episode, bool own_episode, uint32_t slot);

// Takes an item off the count in that slot, because the item goes.
void discount_episode(Hold& hold, const TableFacts& table, uint32_t slot);

}  // namespace shmreplay
