// Making everything derived anew.
//
// Records tell the truth: items (with priorities and touch counters), chunks' life, stamps and stream links, owners of
// blocks, streams and sleep slots, sessions. Derived from them: lists, trees, heaps, dense arrays, references, episode
// counts, free lists, sleepers, D. Restore and
// `shmreplay check --repair` rebuild; a dead holder does not need it, the undo log serves it.
#pragma once

#include "arena/hold.h"

namespace shmreplay {

// Rebuilds under one long hold, with the `rebuilding` flag standing: whoever finds it standing after a death begins
// anew.
Status rebuild(Arena& arena, const Wait& wait);

}  // namespace shmreplay
