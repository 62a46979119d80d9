// Live items at a glance: for figures of many without the lock, and of one under it.
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
  uint32_t stride;  // every so manieth slot was looked at
};

// At most `max_items` (> 0) live items, spread over the table. Without the lock (rule 4): an item may be gone by now,
// and its numbers a hold apart.
Survey survey_items(const Arena& arena, const TableFacts& table, uint32_t max_items);

// Where an item comes from.
struct Origin {
  uint64_t insert_no;  // of the table
  int64_t age;
  uint64_t episode;
  int64_t step;
  uint32_t num_steps, times_sampled;
  double priority;
  uint64_t stream;      // serial, of the arena
  uint32_t writer_pid;  // of who wrote its first step; 0: that process has left
};

// Of a live item; `found` is empty where the key hits nothing. One short hold.
Status find_origin(Arena& arena, const TableFacts& table, int64_t key, const Wait& wait, std::optional<Origin>& found);

// The number of the insert that gave this key, from 1 on. Of a key that a call on the arena's only table was given
// since it was made or restored: all seqs of the arena are then those of its inserts.
Status find_insert_number(Arena& arena, const TableFacts& table, int64_t key, const Wait& wait, uint64_t& number);

}  // namespace shmreplay
