// Changes the priority exponent of a table's sampler while the table is in use.
//
// The exponent changes at once, and inserts and updates use it. The old leaves follow slice by slice, from the last
// slot to the first; TableRecord::reweigh_left says how many slots are still to do. Each call that enters the table
// meanwhile does one slice and goes on with its own work. So no call waits for the whole change, and others finish what
// a dead caller began. A draw uses the leaves as they are, and reports the probability of the leaf that it met.
#pragma once

#include "arena/hold.h"

namespace shmreplay {

inline constexpr uint32_t kReweighSlice = 128;  // slots: a power takes some 50 ns

// Does the next slice of a change under way, in a hold of its own.
void reweigh_slice(Hold& hold, const TableFacts& table);

}  // namespace shmreplay
