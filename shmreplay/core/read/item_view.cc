#include "read/item_view.h"

#include <algorithm>

namespace shmreplay {

bool find_in_place(const Arena& arena, const Pattern& pattern, size_t o, const Pick& pick, const Run* runs,
                   RowsInPlace& found) {
  const PatternOutput& rule = pattern.outputs[o];
  if (arena.columns()[rule.column].flags != 0) return false;
  const uint64_t positions = num_positions(pick);
  // Each slice has at most num_steps real rows. An output with more rows has padding; it is not even walked row by row.
  if (pattern.rows(o, positions) > uint64_t{rule.num_slices} * pick.num_steps) return false;
  RunCursor cursor{runs + pick.first_run, pick.num_runs};
  bool in_place = true;
  char* last = nullptr;
  found = {nullptr, arena.columns()[rule.column].row_bytes, 0};
  pattern.each_row(o, positions, [&](int64_t position) {
    const ShownStep shown = shown_step(rule, pick, position);
    in_place = in_place && shown.is_real;
    if (!in_place) return;
    const auto step = static_cast<uint64_t>(shown.step);
    const Run& run = cursor.find(step);
    char* const at = arena.row(run.chunk, rule.column, run.row + static_cast<uint32_t>(step - cursor.begin));
    if (found.rows == 0) found.first = at;
    if (found.rows == 1) found.stride_bytes = at - last;
    if (found.rows > 1 && at - last != found.stride_bytes) in_place = false;
    last = at;
    ++found.rows;
  });
  return in_place && found.rows > 0;
}

bool find_stride(const Pick* picks, uint32_t n, const Run* runs, ItemStride& found) noexcept {
  found = {1, 0};  // of one item: any
  if (!are_alike(picks, n)) return false;
  const auto step = [&](uint32_t i) {
    const Run &from = runs[picks[i - 1].first_run], &to = runs[picks[i].first_run];
    return ItemStride{int64_t{to.chunk} - from.chunk, int64_t{to.row} - from.row};
  };
  if (n > 1) found = step(1);
  for (uint32_t i = 2; i < n; ++i) {
    const ItemStride next = step(i);
    if (next.chunks != found.chunks || next.rows != found.rows) return false;
  }
  return found.chunks > 0 || (found.chunks == 0 && found.rows >= 0);
}

int64_t stride_bytes(const Arena& arena, uint32_t column, ItemStride stride) noexcept {
  return stride.chunks * static_cast<int64_t>(arena.geometry().chunk_bytes) +
         stride.rows * arena.columns()[column].stride;
}

void number_rows(const Arena& arena, const Pattern& pattern, size_t o, const Pick& pick, const Run* runs, uint32_t rows,
                 int64_t* numbers, bool* is_real) {
  RunCursor cursor{runs + pick.first_run, pick.num_runs};
  std::fill_n(numbers, rows, kNoRow);
  std::fill_n(is_real, rows, false);
  pattern.each_row(
      o, num_positions(pick),
      [&](int64_t position) {
        const ShownStep shown = shown_step(pattern.outputs[o], pick, position);
        if (shown.step >= 0) {
          const auto step = static_cast<uint64_t>(shown.step);
          const Run& run = cursor.find(step);
          *numbers =
              int64_t{run.chunk} * arena.geometry().chunk_steps + run.row + static_cast<int64_t>(step - cursor.begin);
        }
        *is_real++ = shown.is_real;
        ++numbers;
      },
      rows);
}

}  // namespace shmreplay
