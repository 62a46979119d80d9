// Reports of live items: of many items without the lock, of one item under it.
#pragma once

#include <optional>
#include <vector>

#include "base/status.h"
#include "items/table_calls.h"

namespace shmreplay {

struct SurveyedItem {
  int64_t key;
  int64_t age;  // inserts into the table since its own
  uint32_t times_sampled;
  double priority;
};

struct Survey {
  std::vector<SurveyedItem> items;
  uint32_t stride;  // every stride-th slot was looked at
};

// At most `max_items` (> 0) live items, spread over the table. Read without the lock (rule 4): an item may be gone by
// now, and its numbers may come from different holds.
Survey survey_items(const Arena& arena, const TableFacts& table, uint32_t max_items);

// Where an item comes from.
struct Origin {
  uint64_t insert_no;  // its number among the table's inserts
  int64_t age;
  uint64_t episode;
  int64_t step;
  uint32_t num_steps, times_sampled;
  double priority;
  uint64_t stream;      // serial number, within the arena
  uint32_t writer_pid;  // of the process that wrote its first step; 0: that process has left
};

// Finds the origin of a live item; `found` is empty where no live item has the key. One short hold.
Status find_origin(Arena& arena, const TableFacts& table, int64_t key, const Wait& wait, std::optional<Origin>& found);

// The number of the insert that gave this key, counted from 1. Only for the only table of an arena, and for a key given
// since the arena was made or restored: then every seq of the arena is that of an insert into this table.
Status find_insert_number(Arena& arena, const TableFacts& table, int64_t key, const Wait& wait, uint64_t& number);

}  // namespace shmreplay
