// Episodes that have live items in a table, counted. Every function is one part of one hold.
#pragma once

#include "items/item_table.h"

namespace shmreplay {

// Counts the newcomer's episode; answers the slot where, kNone for an item that is an episode of its own.
uint32_t count_episode(Hold& hold, const TableFacts& table, const NewItem& item, uint64_t episode);

// Of an item that goes, counted in that slot.
void discount_episode(Hold& hold, const TableFacts& table, uint32_t slot);

}  // namespace shmreplay
