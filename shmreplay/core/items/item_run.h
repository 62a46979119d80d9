// Newcomers in the slots of the oldest.
//
// A full table whose remover is Fifo gives up its oldest item for each newcomer, which takes that item's slot: what the
// removal and the insertion would change and change back (free list, dense position, size) is left alone. Where both
// are single steps and episodes of their own, many go in together: counters, references of chunks and ends of lists are
// written once for the whole run. Afterwards the table holds what one insert and one eviction at a time would leave;
// only the slots differ. insert_items() is the one caller.
#pragma once

#include "arena/hold.h"
#include "items/new_item.h"

namespace shmreplay {

// Whether the table's oldest item goes for the next newcomer, whichever it is.
bool gives_up_its_oldest(const TableFacts& table) noexcept;

// Both are for a table that gives up its oldest; what insert_items() says of its items holds.
// Puts the item in the place of the oldest, and counts it. Answers its key.
int64_t replace_one(Hold& hold, const TableFacts& table, NewItem& item);

// Puts the first of `items`, each of its own episode, in the places of the oldest, and counts them. Answers how many:
// 0 if the oldest is no single step of its own episode, or the table would be left without an item that stays.
uint32_t replace_oldest(Hold& hold, const TableFacts& table, const NewItem* items, uint32_t n, int64_t* keys);

}  // namespace shmreplay
