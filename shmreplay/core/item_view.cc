#include "item_view.h"

namespace shmreplay {

bool find_in_place(const Arena& arena, const Pattern& pattern, size_t o, const Pick& pick, const Run* runs, RowsInPlace& found) {
  const PatternOutput& rule = pattern.outputs[o];
  if (arena.columns()[rule.column].flags != 0) return false;
  const uint64_t positions = uint64_t{pick.padding.before} + pick.num_steps + pick.padding.after;
  const int64_t end = static_cast<int64_t>(pick.num_steps) - rule.trim_end;
  // Each slice of real rows alone has at most as many as there are; what pads is not even counted one by one.
  if (pattern.rows(o, positions) > uint64_t{rule.num_slices} * pick.num_steps) return false;
  RunCursor cursor{runs + pick.first_run, pick.num_runs};
  bool in_place = true;
  char* last = nullptr;
  found = {nullptr, arena.columns()[rule.column].row_bytes, 0};
  pattern.each_row(o, positions, [&](int64_t position) {
    const int64_t step = position - pick.padding.before;
    if (!in_place || step < 0 || step >= end) {
      in_place = false;
      return;
    }
    const Run& run = cursor.find(static_cast<uint64_t>(step));
    char* const at = arena.row(run.chunk, rule.column, run.row + static_cast<uint32_t>(static_cast<uint64_t>(step) - cursor.begin));
    if (found.rows == 0) found.first = at;
    if (found.rows == 1) found.stride_bytes = at - last;
    if (found.rows > 1 && at - last != found.stride_bytes) in_place = false;
    last = at;
    ++found.rows;
  });
  return in_place && found.rows > 0;
}

}  // namespace shmreplay
