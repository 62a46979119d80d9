// An item on its way into a table.
#pragma once

#include "arena/layout.h"

namespace shmreplay {

inline constexpr uint32_t kInsertGroup = 32;  // items that one hold puts in

struct NewItem {
  double priority;
  Place place;  // first real step
  uint32_t num_steps;
  uint32_t pattern;  // its record, which was interned in this hold
  Padding padding{0, 0};
  bool own_episode = false;       // the item is an episode of its own
  bool counted = true;            // it counts in the limiter's difference
  uint64_t episode = 0;           // 0: the first item of its episode, which takes the item's seq for its id
  uint32_t episode_slot = kNone;  // where that episode was counted in this table last, if it was
  int64_t step = 0;
  BlockRef values = kNoValue;  // what it brings for per-item columns; the blocks belong to its first chunk
};

}  // namespace shmreplay
