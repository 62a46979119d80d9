// The rows of a batch of steps as Python has them: one array for each column, or separate steps in a list.
#pragma once

#include <optional>

#include "table_context.h"

namespace shmreplay {

// N separate steps that go the fast path: where their arrays lie, and copies of their numbers, side by side. The arrays
// are kept alive while the GIL is released; their bytes stay the caller's.
class StepList {
 public:
  // None: a step is not exactly as the signature has it, so Python has to look at all steps.
  static std::optional<StepList> read(const StepPlan& plan, PyObject* list) {
    StepList steps(plan, static_cast<size_t>(PyList_Size(list)));
    for (size_t i = 0; i < steps.size_; ++i) {
      // The list is read again for each step: comparing keys may have run code that changed it.
      PyObject* step = PyList_GetItem(list, static_cast<Py_ssize_t>(i));
      if (step == nullptr) PyErr_Clear();
      if (step == nullptr || !steps.take(plan, step, i)) return std::nullopt;
    }
    return steps;
  }

  size_t size() const noexcept { return size_; }

  const char* row(uint32_t c, size_t i) const {
    const Column& column = columns_[c];
    return column.data.empty() ? column.numbers.data() + i * column.row_bytes : column.data[i];
  }

  // Writes the columns that are not packed, of rows from .. from + k - 1, to the writer's next k rows. Without the GIL.
  void write(StreamWriter& writer, size_t from, uint32_t k) const {
    for (uint32_t c = 0; c < columns_.size(); ++c) {
      if (writer.row().packs(c)) continue;
      const Column& column = columns_[c];
      if (column.data.empty()) {
        writer.row().write_rows(c, column.numbers.data() + from * column.row_bytes, k);
        continue;
      }
      const bool past_caches = writer.arena().exceeds_caches();
      for (uint32_t i = 0; i < k; ++i)
        copy_row(writer.row().cell_ahead(c, i), column.data[from + i], column.row_bytes, past_caches);
    }
  }

 private:
  struct Column {
    size_t row_bytes;
    std::vector<const char*> data;  // of columns of arrays
    std::vector<char> numbers;      // of the other columns
  };

  StepList(const StepPlan& plan, size_t n) : size_(n) {
    size_t num_arrays = 0;
    for (const PlanColumn& c : plan.columns()) {
      columns_.push_back({c.row_bytes, {}, {}});
      num_arrays += c.shape.empty() ? 0 : 1;
      if (c.shape.empty()) columns_.back().numbers.resize(n * c.row_bytes);
      else columns_.back().data.resize(n);
    }
    keep_.reserve(n * num_arrays);
  }

  bool take(const StepPlan& plan, PyObject* step, size_t i) {
    const auto array = [&](uint32_t c, Held a) {
      columns_[c].data[i] = array_data<const char>(a);
      keep_.push_back(std::move(a));
    };
    return plan.look(step, array, [&](uint32_t c) { return columns_[c].numbers.data() + i * columns_[c].row_bytes; });
  }

  size_t size_;
  std::vector<Column> columns_;
  std::vector<Held> keep_;
};

class BatchRows {
 public:
  // Raises what Python's canonical() raises for steps that do not fit.
  BatchRows(const TableContext& context, nb::handle steps) : plan_(context.bound_plan()) {
    if (plan_.takes_lists() && PyList_CheckExact(steps.ptr())) separate_ = StepList::read(plan_, steps.ptr());
    if (separate_) {
      size_ = static_cast<npy_intp>(separate_->size());
      return;
    }
    if (plan_.batch(steps.ptr(), keep_, size_)) {
      for (const Held& array : keep_) arrays_.push_back(reinterpret_cast<PyArrayObject*>(array.ptr()));
      return;
    }
    const Held pair = outlive_interpreter([&] { return context.canonical_batch(steps); });
    converted_ = pair[0];
    size_ = nb::cast<npy_intp>(pair[1]);
    arrays_ = context.checked_arrays(converted_, 1);
    keep_.clear();
    for (PyArrayObject* a : arrays_) keep_.push_back(nb::borrow(reinterpret_cast<PyObject*>(a)));
  }

  npy_intp size() const noexcept { return size_; }
  // By column; none if the steps are separate.
  const std::vector<PyArrayObject*>& arrays() const noexcept { return arrays_; }

  // A row of a column that is not opaque. Needs no GIL, and neither does write().
  const char* row(uint32_t c, size_t i) const {
    if (separate_) return separate_->row(c, i);
    return static_cast<const char*>(PyArray_DATA(arrays_[c])) + i * plan_.columns()[c].row_bytes;
  }

  // Writes the columns that are not in the heap, of rows from .. from + k - 1, to the writer's next k rows.
  void write(StreamWriter& writer, size_t from, uint32_t k) const {
    if (separate_) return separate_->write(writer, from, k);
    for (uint32_t c = 0; c < arrays_.size(); ++c) {
      const PlanColumn& column = plan_.columns()[c];
      if (column.is_opaque || column.is_packed) continue;
      writer.row().write_rows(c, static_cast<const char*>(PyArray_DATA(arrays_[c])) + from * column.row_bytes, k);
    }
  }

 private:
  const StepPlan& plan_;
  npy_intp size_ = -1;
  std::optional<StepList> separate_;
  std::vector<PyArrayObject*> arrays_;
  Held converted_;
  std::vector<Held> keep_;  // the caller's structure may change while the GIL is released
};

}  // namespace shmreplay
