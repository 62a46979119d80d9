// Puts whole arrays into one stream: their rows, the items that rules make of them, and the ends of their episodes.
//
// It does what a writer does row by row, but copies the rows of a chunk at once, and one hold puts in the items of many
// rows. Items wait for that hold only while the stream holds their steps and has a chunk to go on with. Without rules,
// every row becomes an item of the writer's table, squeezed as inserts make them.
#pragma once

#include <functional>

#include "base/long_work.h"
#include "write/rule_writer.h"

namespace shmreplay {

// How the heap values of rows are written. Both functions run without the GIL.
struct RowValues {
  std::function<uint64_t(StreamWriter& stream, uint32_t row)> blocks;  // blocks that a row's values take
  std::function<void(StreamWriter& stream, uint32_t row)> write;       // writes them, once there are blocks
};

// The final steps of episodes: one row for each end, in order. They have some of the columns.
struct FinalRows {
  std::vector<uint32_t> given;       // the columns that they have
  std::vector<const char*> columns;  // one array [ends, ...] for each column; null where not given and for heap columns
  const RowValues* values = nullptr;  // of heap columns; null: there are none
};

struct ExtendRows {
  std::vector<const char*> columns;  // one array [num_rows, ...] for each column; null for heap and per-item columns
  const uint8_t* ends;               // for each row: 1 if it is the last of its episode, else 0; null: no row is
  uint32_t num_rows;
  const RowValues* values = nullptr;  // of heap columns; null: there are none
  const FinalRows* finals = nullptr;  // only where rules make the items; null: episodes end with their last row
};

class Extend {
 public:
  // `clear_history`: whether each end of an episode clears the history. `counted`: whether the limiters are asked and
  // count the items.
  Extend(RuleWriter& writer, const ExtendRows& rows, bool clear_history, bool counted) noexcept
      : writer_(writer), stream_(writer.stream()), rows_(rows), clear_history_(clear_history), counted_(counted) {}

  // Opens the stream, puts the rows in, closes it. After a failure, the first num_rows() rows are in with all their
  // items.
  Status run(const Wait& wait);

  const std::vector<int64_t>& keys() const noexcept { return keys_; }
  uint32_t num_rows() const noexcept { return num_done_; }
  const ItemRule::Missing& missing() const noexcept { return missing_; }

 private:
  Status put_rows(const Wait& wait);
  Status put_single_steps(const Wait& wait);
  Status secure_row(uint32_t row, const Wait& wait);
  Status find_place(uint32_t row, const Wait& wait);
  uint32_t rows_to_copy(uint32_t row) const;
  Status write_values(const RowValues& values, uint32_t number, uint32_t row, const Wait& wait);
  Status write_final_step(uint32_t row, const Wait& wait);
  Status append(uint32_t row, const Wait& wait);
  Status end_episode(uint32_t row, const Wait& wait);
  void collect(uint32_t row);
  Status flush(uint32_t rows, const Wait& wait);

  RuleWriter& writer_;
  StreamWriter& stream_;
  const ExtendRows& rows_;
  bool clear_history_, counted_;
  std::vector<DueItem> due_;  // not in yet; rows_of_ says of which rows
  struct RowItems { uint32_t row, n; };
  std::vector<RowItems> rows_of_;
  std::vector<DueRun> runs_;  // those of one flush
  std::vector<int64_t> due_keys_;
  uint64_t first_due_ = UINT64_MAX;  // the oldest step of the items in due_
  std::vector<int64_t> keys_;
  uint32_t num_done_ = 0;
  uint32_t copied_ = 0;  // rows before this one are in the stream's chunks
  uint32_t num_ends_ = 0;
  ItemRule::Missing missing_{0, 0};
};

}  // namespace shmreplay
