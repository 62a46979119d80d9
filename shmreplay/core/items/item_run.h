// New items that take the slots of the oldest.
//
// A full table whose remover is Fifo gives up its oldest item for each newcomer. The newcomer takes that item's slot,
// so what the removal and the insertion would change and change back (free list, dense position, size) is left alone.
// Where both are single steps and episodes of their own, many go in together: counters, references of chunks and ends
// of lists are written once for the whole run. Afterwards the table holds what one insert and one eviction at a time
// would leave; only the slots differ. Only insert_items() calls these functions.
#pragma once

#include "arena/hold.h"
#include "items/new_item.h"

namespace shmreplay {

// Whether the table's oldest item goes for the next newcomer, whatever the newcomer is.
bool gives_up_its_oldest(const TableFacts& table) noexcept;

// Both functions are for a table that gives up its oldest; what insert_items() says of its items holds here too.
//
// Puts the item in the place of the oldest, and counts it. Answers its key.
int64_t replace_one(Hold& hold, const TableFacts& table, NewItem& item);

// Puts the first of `items`, each of its own episode, in the places of the oldest, and counts them. Answers how many.
// 0: the oldest is not a single step of its own episode, or the log has no room. At least one old item stays.
uint32_t replace_oldest(Hold& hold, const TableFacts& table, const NewItem* items, uint32_t n, int64_t* keys);

}  // namespace shmreplay
