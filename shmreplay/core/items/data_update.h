// update_data: changes cells of mutable columns in place, while others read them.
#pragma once

#include <vector>

#include "arena/hold.h"

namespace shmreplay {

// New cells of one mutable column: [keys, steps, row_bytes].
struct ColumnUpdate {
  uint32_t column;
  const char* cells;
};

// Writes steps at .. at + num_steps - 1 of the padded span of each item. Skips stale keys, steps outside an item's real
// steps, and cells that their writer has not finished. `updated` counts the items whose keys were live.
//
// Works in holds of at most kUpdateBytes. Each cell changes as a whole, but a call that ends early may have changed
// only some of the cells. The caller's memory is read outside holds.
inline constexpr uint32_t kUpdateBytes = 1u << 16;
Status update_data(Arena& arena, const TableFacts& table, const int64_t* keys, uint32_t num_keys,
                   const std::vector<ColumnUpdate>& columns, uint32_t at, uint32_t num_steps, const Wait& wait,
                   uint32_t& updated);

}  // namespace shmreplay
