// Episodes that have live items in a table, counted. Every function is one part of one hold.
#pragma once

#include "arena/hold.h"

namespace shmreplay {

// Counts one more item of that episode; answers the slot where, kNone for an item that is an episode of its own.
// `slot`: where the episode was counted last, if it was.
uint32_t count_episode(Hold& hold, const TableFacts& table, uint64_t episode, bool own_episode, uint32_t slot);

// Of an item that goes, counted in that slot.
void discount_episode(Hold& hold, const TableFacts& table, uint32_t slot);

}  // namespace shmreplay
