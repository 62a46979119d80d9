// An item that is to be made of a stream's steps, because a rule or a call asks for it.
#pragma once

#include "items/patterns.h"

namespace shmreplay {

struct DueItem {
  uint32_t table;
  PreparedPattern* pattern;
  uint64_t first;  // absolute number of the item's first real step
  uint32_t num_steps;
  Padding padding;
  double priority;             // negative: the call's priority, or the table's default
  BlockRef values = kNoValue;  // what the item brings for per-item columns
};

}  // namespace shmreplay
