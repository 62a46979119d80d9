// The way into a hold that works on a table.
#pragma once

#include "arena/hold.h"

namespace shmreplay {

// Takes the lock for work on a table. On the way it finishes a reset that another call began, and does one slice of a
// change of the priority exponent. kClosed if the table was dropped.
Status enter_table(Hold& hold, const TableFacts& table, const Wait& wait);

}  // namespace shmreplay
