// What rows from Python put into the block heap, and in which order a writer does it. Every call that writes rows uses
// this class:
//
//   1. pack(): rows of packed columns are compressed, row by row, into the writer's own memory. Only then is it
//      known how many blocks they take.
//   2. blocks(): the caller has the writer secure that many blocks, waiting if it must. Nothing of the rows is in the
//      heap yet.
//   3. write(): the packed rows go to their blocks, then the values that Python's codecs made.
#pragma once

#include <functional>
#include <vector>

#include "gil.h"
#include "step_plan.h"
#include "step_values.h"
#include "write/stream_writer.h"

namespace shmreplay {

class HeapRows {
 public:
  // The bytes of row `number` of a packed column; nullptr: it has none. They must outlive the calls that read them.
  using RowOf = std::function<const char*(uint32_t column, size_t number)>;

  // No column is in the heap.
  HeapRows() = default;

  // `values`: by column, the values that Python's codecs made; empty for all other columns.
  HeapRows(const StepPlan& plan, RowOf row_of, std::vector<ValueList> values)
      : plan_(&plan), row_of_(std::move(row_of)), values_(std::move(values)) {}

  // One row, only of packed columns, which a step has put into the writer's own cells. pack() needs the GIL.
  static HeapRows staged(const StepPlan& plan) { return {plan, nullptr, {}}; }

  bool empty() const noexcept { return plan_ == nullptr; }

  // Packs row `number` for the writer's row that is `ahead` after its current one. Rows must be packed in order, from
  // ahead 0 on. Returns how many blocks the row's other values take.
  uint64_t pack(StreamWriter& writer, size_t number, uint32_t ahead = 0) const {
    if (ahead == 0) writer.row().begin_packing();
    for (const uint32_t c : plan_->packed_columns()) {
      if (!row_of_) pack_staged(writer, c);
      else if (const char* row = row_of_(c, number); row != nullptr) writer.row().pack(c, row, ahead);
    }
    return blocks_of_row(values_, number);
  }

  // Packs one row. Returns how many blocks it takes in all.
  uint64_t blocks(StreamWriter& writer, size_t number) const {
    const uint64_t values = pack(writer, number);
    return values + writer.row().packed_blocks();
  }

  // Writes rows number .. number + n - 1 to the writer's next n rows; they must be packed and their blocks secured.
  // item(i) then writes what their item i brings, before the values of the next row.
  template <class Item>
  void write(StreamWriter& writer, size_t number, uint32_t n, Item item) const {
    writer.row().write_packed();
    for (uint32_t i = 0; i < n; ++i) {
      for (uint32_t c = 0; c < values_.size(); ++c) {
        if (!values_[c].empty()) write_value(writer, c, values_[c].at(number + i), i);
      }
      item(i);
    }
  }
  // Writes one row, whose item brings nothing by this call.
  void write(StreamWriter& writer, size_t number) const {
    write(writer, number, 1, [](uint32_t) {});
  }

 private:
  static constexpr size_t kLongRow = 32768;  // bytes; compressing a shorter row takes about as long as releasing the
                                             // GIL and taking it again

  // Nobody else knows of these cells, so a long row needs no GIL.
  void pack_staged(StreamWriter& writer, uint32_t column) const {
    if (plan_->columns()[column].row_bytes < kLongRow) return writer.row().pack(column);
    const GilRelease release;
    writer.row().pack(column);
  }

  static void write_value(StreamWriter& writer, uint32_t column, const ValueBytes& value, uint32_t ahead) {
    if (value.size < 0) writer.row().write_no_value(column, ahead);
    else writer.row().write_value(column, value.data, static_cast<uint32_t>(value.size), ahead);
  }

  const StepPlan* plan_ = nullptr;
  RowOf row_of_;
  std::vector<ValueList> values_;
};

}  // namespace shmreplay
