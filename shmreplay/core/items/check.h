// Checks everything: check_invariants() walks the invariants of core/README.md one by one.
#pragma once

#include <string>
#include <vector>

#include "arena/hold.h"

namespace shmreplay {

// Every violated invariant of core/README.md, in words; empty when the arena is healthy. One long hold.
Status check_invariants(Arena& arena, const Wait& wait, std::vector<std::string>& faults);

}  // namespace shmreplay
