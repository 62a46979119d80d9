// Making everything derived anew, and checking everything.
//
// Records tell the truth: items (with priorities and touch counters), chunks' life, stamps and stream links, owners of
// blocks, streams and sleep slots, sessions. Derived from them: lists, trees, heaps, dense arrays, references, episode
// counts, free lists, sleepers, D. Restore and
// `shmreplay check --repair` rebuild; a dead holder does not need it, the undo log serves it.
#pragma once

#include <string>
#include <vector>

#include "arena/hold.h"

namespace shmreplay {

// Rebuilds under one long hold, with the `rebuilding` flag standing: whoever finds it standing after a death begins
// anew.
Status rebuild(Arena& arena, const Wait& wait);

// The work itself, in a hold that does not log. An unreferenced chunk becomes retired, not free: a reader may be in it.
void rebuild_derived(Hold& hold);

// Every violated invariant of core/README.md, in words; empty when the arena is healthy. One long hold.
Status check_invariants(Arena& arena, const Wait& wait, std::vector<std::string>& faults);

}  // namespace shmreplay
