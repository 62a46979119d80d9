// The way into a hold that works on a table.
#pragma once

#include "arena/hold.h"

namespace shmreplay {

// Takes the lock for work on a table: finishes a reset that somebody began, does one slice of a change of its priority
// exponent; kClosed if the table was dropped.
Status enter_table(Hold& hold, const TableFacts& table, const Wait& wait);

}  // namespace shmreplay
