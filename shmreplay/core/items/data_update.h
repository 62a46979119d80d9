// update_data: cells of mutable columns change in place, whoever reads them meanwhile.
#pragma once

#include <vector>

#include "arena/hold.h"

namespace shmreplay {

// New cells of one mutable column: [keys, steps, row_bytes].
struct ColumnUpdate {
  uint32_t column;
  const char* cells;
};

// Writes steps at .. at + num_steps - 1 of the padded span of each item. Stale keys are skipped, as is what lies
// outside an item's real steps and what its writer has not finished; `updated` counts the items that were there. In
// holds of at most kUpdateBytes; each cell changes whole, a call that ends early has changed some. The caller's memory
// is read outside holds.
inline constexpr uint32_t kUpdateBytes = 1u << 16;
Status update_data(Arena& arena, const TableFacts& table, const int64_t* keys, uint32_t num_keys,
                   const std::vector<ColumnUpdate>& columns, uint32_t at, uint32_t num_steps, const Wait& wait,
                   uint32_t& updated);

}  // namespace shmreplay
