// What a caller asked of a batch: which outputs, how many rows of each, whether steps or items come first, and which
// arrays to fill.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "read/gather.h"
#include "step_plan.h"

namespace shmreplay {

// _core.BatchLayout. It is worked out once and used by many calls.
class BatchLayout {
 public:
  static constexpr uint32_t kNoLimit = UINT32_MAX;

  // `outputs`: one for each output that is shown, ascending by number: (number in the items' structure, which has
  // `num_outputs`; column; squeezed; rows, or 0 for the table's longest). `names`: how they nest.
  BatchLayout(uint32_t num_outputs, nb::list outputs, nb::bytes names, bool time_major)
      : names_(names.c_str(), names.size()), time_major_(time_major), most_rows_(num_outputs, kNoLimit) {
    for (nb::handle o : outputs) {
      outputs_.push_back(
          {nb::cast<uint32_t>(o[0]), nb::cast<uint32_t>(o[1]), nb::cast<bool>(o[2]), nb::cast<uint32_t>(o[3])});
      const Output& last = outputs_.back();
      if (last.number >= num_outputs) throw nb::index_error("an output of that number is not in the structure");
      if (last.rows > 0) most_rows_[last.number] = last.rows;
    }
  }

  struct Output {
    uint32_t number, column;
    bool squeezed;
    uint32_t rows;
  };
  const std::vector<Output>& outputs() const { return outputs_; }
  const std::string& names() const { return names_; }
  bool time_major() const { return time_major_; }
  const std::vector<uint32_t>& most_rows() const { return most_rows_; }

 private:
  std::string names_;
  bool time_major_;
  std::vector<Output> outputs_;
  std::vector<uint32_t> most_rows_;  // by number
};

// A caller's arrays for a batch of n items. They are checked anew in every call, because rows are written to them by
// address.
class GivenArrays {
 public:
  // `arrays`: a list with one array for each output of the layout, or None. An opaque column must have None in the
  // list, a packed one may.
  GivenArrays(const StepPlan& plan, const BatchLayout* layout, nb::handle arrays, uint32_t n) {
    if (layout == nullptr) return;
    most_rows_ = &layout->most_rows();
    if (arrays.is_none()) return;
    own_rows_ = layout->most_rows();
    most_rows_ = &own_rows_;
    const size_t count = layout->outputs().size();
    are_right_ = nb::len(arrays) == count;
    std::vector<std::pair<uintptr_t, uintptr_t>> ranges;
    for (size_t i = 0; are_right_ && i < count; ++i) {
      const BatchLayout::Output& out = layout->outputs()[i];
      const nb::object given = arrays[i];
      are_right_ = fits(plan, *layout, out, given.ptr(), n);
      if (!are_right_) break;
      if (given.is_none()) {
        arrays_.push_back(given);
        continue;
      }
      auto* array = reinterpret_cast<PyArrayObject*>(given.ptr());
      if (!out.squeezed)
        own_rows_[out.number] = static_cast<uint32_t>(PyArray_DIM(array, layout->time_major() ? 0 : 1));
      const auto begin = reinterpret_cast<uintptr_t>(PyArray_DATA(array));
      ranges.emplace_back(begin, begin + static_cast<uintptr_t>(PyArray_NBYTES(array)));
      arrays_.push_back(given);
    }
    std::sort(ranges.begin(), ranges.end());
    for (size_t i = 1; i < ranges.size(); ++i) are_right_ &= ranges[i].first >= ranges[i - 1].second;
  }

  GivenArrays(const GivenArrays&) = delete;
  GivenArrays& operator=(const GivenArrays&) = delete;

  bool are_right() const { return are_right_; }
  bool empty() const { return arrays_.empty(); }
  const nb::object& operator[](size_t i) const { return arrays_[i]; }
  // For each output of the items' structure: how many rows the batch has room for; nullptr: as many as there are.
  const std::vector<uint32_t>* most_rows() const { return most_rows_; }

 private:
  static bool fits(const StepPlan& plan, const BatchLayout& layout, const BatchLayout::Output& out, PyObject* given,
                   uint32_t n) {
    const PlanColumn& column = plan.columns().at(out.column);
    if (column.is_opaque || (column.is_packed && given == Py_None)) return given == Py_None;
    if (!is_exact(plan.columns().at(out.column), given, out.squeezed ? 1 : 2)) return false;
    auto* array = reinterpret_cast<PyArrayObject*>(given);
    const bool steps_first = layout.time_major() && !out.squeezed;
    if (!PyArray_ISWRITEABLE(array) || PyArray_DIM(array, steps_first ? 1 : 0) != static_cast<npy_intp>(n))
      return false;
    if (out.squeezed) return true;
    const npy_intp rows = PyArray_DIM(array, steps_first ? 0 : 1);
    return rows > 0 && rows < static_cast<npy_intp>(BatchLayout::kNoLimit) &&
           (out.rows == 0 || rows == static_cast<npy_intp>(out.rows));
  }

  bool are_right_ = true;
  std::vector<Held> arrays_;
  std::vector<uint32_t> own_rows_;  // filled if the caller gave arrays
  const std::vector<uint32_t>* most_rows_ = nullptr;
};

}  // namespace shmreplay
