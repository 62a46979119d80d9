// Rebuilds everything that is derived.
//
// Records are the facts: items (with priorities and touch counters), chunks' life, stamps and stream links, owners of
// blocks, streams and sleep slots, sessions. Derived from them are lists, trees, heaps, dense arrays, references,
// episode counts, free lists, sleepers, D. Restore and `shmreplay check --repair` rebuild. After a death inside a hold
// no rebuild is needed: the undo log is rolled back.
#pragma once

#include "arena/hold.h"

namespace shmreplay {

// Rebuilds under one long hold, with the `rebuilding` flag set. A process that finds the flag set after a death starts
// the rebuild again.
Status rebuild(Arena& arena, const Wait& wait);

}  // namespace shmreplay
