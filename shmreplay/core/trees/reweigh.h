// Another priority exponent for a table's sampler, while it is in use.
//
// The exponent changes at once: inserts and updates go by it. The leaves that are there follow slice by slice, from the
// last slot to the first; TableRecord::reweigh_left says how many slots are still to do. Whoever enters the table
// meanwhile does one slice and goes on with his own call, so nobody waits for all of it, and what a dead caller began
// is finished by others. A draw goes by the leaves as they are, and reports the probability of the one it met.
#pragma once

#include "sessions/blocked.h"

namespace shmreplay {

// Of a table with a Prioritized sampler. Answers when all leaves follow it; a call that ends earlier, by a signal or
// for want of the lock, leaves the rest to others. A change that is under way starts over with the new exponent.
Status set_priority_exponent(Arena& arena, const TableFacts& table, double exponent, const Wait& wait);

// The next slice of a change under way, in a hold of its own.
void reweigh_slice(Hold& hold, const TableFacts& table);

}  // namespace shmreplay
