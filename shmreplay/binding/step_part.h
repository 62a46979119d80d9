// A part of a step from Python, read as a whole before any of it is written into an open row.
#pragma once

#include <vector>

#include "step_plan.h"
#include "write/stream_row.h"

namespace shmreplay {

class StepPart {
 public:
  // Keeps the step's arrays until its end. false: Python has to look at it.
  bool read(const StepPlan& plan, PyObject* step) {
    if (plan.has_heap()) return false;
    numbers_.resize(kNumberBytes * plan.columns().size());
    const auto array = [this](uint32_t c, Held a) {
      const char* bytes = array_data<char>(a);
      cells_.push_back({c, bytes, std::move(a)});
    };
    return plan.look_at_part(step, array, [this](uint32_t c) {
      char* to = numbers_.data() + kNumberBytes * c;
      cells_.push_back({c, to, {}});
      return to;
    });
  }

  // Whether the row lacks all of these columns, and, if it is to be `whole` with them, no other.
  bool fits(const StreamRow& row, bool whole, size_t num_columns) const {
    size_t num_present = cells_.size();
    for (const Cell& cell : cells_) {
      if (row.is_open() && row.has(cell.column)) return false;
    }
    for (uint32_t c = 0; row.is_open() && c < num_columns; ++c) num_present += row.has(c) ? 1 : 0;
    return !whole || num_present == num_columns;
  }

  // Writes and marks the cells.
  void write(StreamRow& row, const std::vector<PlanColumn>& columns) {
    for (const Cell& cell : cells_) {
      const PlanColumn& c = columns[cell.column];
      copy_row(row.cell(cell.column), cell.bytes, c.row_bytes, c.past_caches);
      row.mark(cell.column);
    }
  }

 private:
  static constexpr size_t kNumberBytes = 32;  // of the largest number, a complex long double
  struct Cell {
    uint32_t column;
    const char* bytes;
    Held array;  // not valid for a number
  };
  std::vector<Cell> cells_;
  std::vector<char> numbers_;
};

}  // namespace shmreplay
