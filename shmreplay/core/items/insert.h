// Puts new items into a table. Every function here is one part of one hold.
#pragma once

#include "arena/hold.h"
#include "items/new_item.h"

namespace shmreplay {

// Inserts the first of `items` and writes their keys. Answers how many it inserted: at least 1, and more only where the
// newcomers take the slots of the table's oldest items. Each insert is counted. If it puts the table over max_size, it
// evicts the one item that the remover picks, perhaps the newcomer.
//
// The limiter must have admitted all n, and the log must have insert_entries() left. The items must be all of one kind:
// of one pattern and, where n > 1, single steps in consecutive rows of one chunk.
//
// An item of an episode that goes on leaves the episode's id and slot in `episode` and `episode_slot`, for the next
// one.
uint32_t insert_items(Hold& hold, const TableFacts& table, NewItem* items, uint32_t n, int64_t* keys);

// The most log entries that inserting an item of `num_chunks` chunks may need, its victim's removal included.
uint32_t insert_entries(const TableFacts& table, uint32_t num_chunks) noexcept;

}  // namespace shmreplay
