// Newcomers in the slots of the oldest.
//
// A full table whose remover is Fifo gives up its oldest item for each newcomer, which takes that item's slot: what the
// removal and the insertion would change and change back (free list, dense position, size) is left alone. Where both
// are single steps and episodes of their own, many go in together: counters, references of chunks and ends of lists are
// written once for the whole run. What is there afterwards is what insert_item() would make without this, but for the
// slots.
#pragma once

#include "items/item_table.h"

namespace shmreplay {

// Whether the table's oldest item goes for the next newcomer, whichever it is.
bool gives_up_its_oldest(const TableFacts& table) noexcept;

// Inserts an item in the place of the oldest of such a table, and counts it.
Inserted replace_one(Hold& hold, const TableFacts& table, const NewItem& item);

// Inserts the first items of `items`, each in the place of the table's oldest, and counts them; answers how many. 0:
// that is not the way for this table or its oldest item, insert_item() is. The items are single steps in consecutive
// rows of one chunk, episodes of their own, of one pattern; the limiter was asked for all n.
uint32_t replace_oldest(Hold& hold, const TableFacts& table, const NewItem* items, uint32_t n, int64_t* keys);

}  // namespace shmreplay
