// The way of new items into a table. Every function here is one part of one hold.
#pragma once

#include "arena/hold.h"
#include "items/new_item.h"

namespace shmreplay {

// Inserts the first of `items` and writes their keys; answers how many: at least 1, more only where the newcomers
// take the slots of the table's oldest items. Each insert evicts the one item that the remover picks if the table is
// over max_size, perhaps the newcomer, and is counted. The limiter was asked for all n, and the log has
// insert_entries() left.
// The items are all the same kind: of one pattern, single steps in consecutive rows of one chunk where n > 1. An item
// of an episode that goes on leaves the episode's id and slot in `episode` and `episode_slot`, for the next one.
uint32_t insert_items(Hold& hold, const TableFacts& table, NewItem* items, uint32_t n, int64_t* keys);

// Log entries that inserting an item of `num_chunks` chunks may need at most, its victim's removal included.
uint32_t insert_entries(const TableFacts& table, uint32_t num_chunks) noexcept;

}  // namespace shmreplay
