// What a hold needs of the layers above it. Declared here, so that no include leads up; defined where it belongs.
#pragma once

#include <cstdint>

namespace shmreplay {

class Hold;

// Brings the nodes above the leaves of items[0] .. items[n - 1] up to date in every tree of their tables, each node
// once. Sorts `items`. Defined in trees/settle_trees.cc.
void settle_trees(Hold& hold, uint32_t* items, uint32_t n);

// Rebuilds everything that is derived, in a hold that does not log. An unreferenced chunk becomes retired, not free: a
// reader may still read it. Defined in items/rebuild.cc.
void rebuild_derived(Hold& hold);

}  // namespace shmreplay
