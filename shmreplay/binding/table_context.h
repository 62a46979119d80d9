// TableContext: what the handles of a table and of its writers share, and how they read steps and priorities.
#pragma once

#include <cstdio>
#include <memory>
#include <vector>

#include "arena/arena.h"
#include "base/leaf_weights.h"
#include "base/row_copy.h"
#include "heap_rows.h"
#include "patience.h"
#include "read/sample_call.h"
#include "status_error.h"
#include "step_plan.h"
#include "step_values.h"
#include "write/rule_writer.h"

namespace shmreplay {

// The mapping, the signature's plan, and the observer of long waits.
struct TableContext {
  std::shared_ptr<Arena> arena;
  const TableFacts* facts;
  std::unique_ptr<StepPlan> plan;
  Held canonical_batch = nb::none();   // steps -> (arrays, N)
  Held observer = nb::none();          // called with (what, pid, seconds) for long waits
  Flag waits_ended;                    // ends every wait of this table handle, by what the observer raises
  std::shared_ptr<const Flag> closed;  // the same for all handles of a client; nullptr: for none

  const StepPlan& bound_plan() const {
    if (plan == nullptr)
      raise_error("InternalError", "table '" + facts->name + "' has no signature bound; please report");
    return *plan;
  }

  std::string column_name(size_t c) const { return "table '" + facts->name + "': column " + std::to_string(c); }
  std::string values_name() const { return "table '" + facts->name + "': the values of an item"; }
  // Whether the column's values are bytes that Python's codec made.
  bool is_coded(size_t c) const { return plan->columns()[c].flags == kHeapColumn && !plan->columns()[c].is_packed; }
  // The call that a view draws with. It is kept, because a new one costs more than the draw. With the GIL.
  std::unique_ptr<SampleCall> take_view_call() {
    if (view_calls.empty()) return std::make_unique<SampleCall>(*arena);
    std::unique_ptr<SampleCall> call = std::move(view_calls.back());
    view_calls.pop_back();
    return call;
  }
  void keep_view_call(std::unique_ptr<SampleCall> call) {
    if (view_calls.size() < 4) view_calls.push_back(std::move(call));
  }
  std::vector<std::unique_ptr<SampleCall>> view_calls;

  GilPatience patience() const { return GilPatience(observer.ptr(), &waits_ended, closed.get()); }

  // The list that canonical() made. Its arrays are exact by its contract; they are checked all the same before bytes
  // are copied. The place of an absent column is nullptr. Opaque columns are checked as values, elsewhere.
  std::vector<PyArrayObject*> checked_arrays(const nb::object& list, int leading) const {
    std::vector<PyArrayObject*> arrays;
    for (size_t c = 0; c < plan->columns().size(); ++c) {
      PyObject* leaf = PyList_GetItem(list.ptr(), static_cast<Py_ssize_t>(c));
      if (leaf == nullptr) throw nb::python_error();
      const bool is_opaque = plan->columns()[c].is_opaque;
      if (leaf != Py_None && !is_opaque && !is_exact(plan->columns()[c], leaf, leading)) {
        raise_error("InternalError", "table '" + facts->name + "': column " + std::to_string(c) +
                                         " was converted to another shape or dtype; please report");
      }
      arrays.push_back(leaf == Py_None ? nullptr : reinterpret_cast<PyArrayObject*>(leaf));
    }
    return arrays;
  }

  // Row `number` of an array that checked_arrays() accepted; nullptr if the array is absent. Needs no GIL.
  const char* row_of(PyArrayObject* array, uint32_t column, size_t number) const {
    if (array == nullptr) return nullptr;
    return static_cast<const char*>(PyArray_DATA(array)) + number * plan->columns()[column].row_bytes;
  }

  // Copies that row into the writer's row.
  void write_cell(StreamWriter& writer, uint32_t column, PyArrayObject* array, size_t number) const {
    copy_row(writer.row().cell(column), row_of(array, column, number), plan->columns()[column].row_bytes,
             arena->exceeds_caches());
  }

  // What rows of such arrays put into the heap; `values`: those of the columns of Python's codecs.
  HeapRows heap_rows(std::vector<PyArrayObject*> arrays, std::vector<ValueList> values) const {
    return {*plan,
            [this, arrays = std::move(arrays)](uint32_t c, size_t number) { return row_of(arrays[c], c, number); },
            std::move(values)};
  }

  // Writes a whole step into the writer's row. If a part is not exact, Python's canonical() converts it or explains
  // what is wrong. Answers kOk, or why there were no blocks for the step's values and for `more`: then nothing was
  // written. kInterrupted: the signal handler's exception is set.
  Status write_step(StreamWriter& writer, nb::handle step, int64_t deadline_ns, uint64_t more = 0) const {
    if (bound_plan().write(step.ptr(), [&](uint32_t column) { return writer.row().cell(column); })) {
      return plan->has_packed() ? write_packed(writer, deadline_ns, more) : Status::kOk;
    }
    const Held list = outlive_interpreter([&] { return plan->canonical()(step); });
    return write_arrays(writer, list, true, deadline_ns, more);
  }

  // Writes what the list has. `whole` false: writes and marks only the columns that the row lacks.
  Status write_arrays(StreamWriter& writer, const nb::object& list, bool whole, int64_t deadline_ns,
                      uint64_t more = 0) const {
    const std::vector<PyArrayObject*> arrays = checked_arrays(list, 0);
    const auto is_written = [&](uint32_t c) {
      return plan->columns()[c].flags != kPerItemColumn && (whole || (arrays[c] != nullptr && !writer.row().has(c)));
    };
    if (plan->has_heap()) {
      std::vector<PyArrayObject*> rows(arrays.size(), nullptr);
      std::vector<ValueList> values(arrays.size());
      std::vector<Held> keep;  // the list may change while the GIL is released
      for (uint32_t c = 0; c < arrays.size(); ++c) {
        if (!is_written(c)) continue;
        auto* leaf = arrays[c] == nullptr ? Py_None : reinterpret_cast<PyObject*>(arrays[c]);
        keep.push_back(nb::borrow(leaf));
        if (is_coded(c)) values[c] = ValueList(*arena, leaf, column_name(c));
        else rows[c] = arrays[c];
      }
      const HeapRows heap = heap_rows(std::move(rows), std::move(values));
      const Status s = secure_blocks(writer, more + heap.blocks(writer, 0), deadline_ns);
      if (s != Status::kOk) return s;
      heap.write(writer, 0);
    }
    for (uint32_t c = 0; c < arrays.size(); ++c) {
      if (!is_written(c)) continue;
      if (!is_coded(c) && arrays[c] == nullptr)
        raise_error("InternalError", column_name(c) + " of a whole step is missing; please report");
      if (!is_coded(c) && !writer.row().packs(c)) write_cell(writer, c, arrays[c], 0);
      if (!whole) writer.row().mark(c);
    }
    return Status::kOk;
  }

  // First tries without waiting, then waits with the GIL released. kInterrupted: the handler's exception is set.
  Status secure_blocks(StreamWriter& writer, uint64_t n, int64_t deadline_ns) const {
    return in_two_goes(deadline_ns, [&](const Wait& wait) { return writer.secure_blocks(n, wait); });
  }

  // Has bring(bytes, size, wait) write what an item brings: `values` is a uint8 array, or None. Waits as
  // secure_blocks().
  template <class Bring>
  Status bring_values(nb::handle values, int64_t deadline_ns, Bring bring) const {
    const ValueBytes bytes = value_bytes(values.ptr(), values_name());
    if (blocks_for(*arena, bytes, values_name()) == 0) return Status::kOk;
    return in_two_goes(deadline_ns,
                       [&](const Wait& wait) { return bring(bytes.data, static_cast<uint64_t>(bytes.size), wait); });
  }

 private:
  // Packs and writes what a step has put into the cells of the packed columns.
  Status write_packed(StreamWriter& writer, int64_t deadline_ns, uint64_t more) const {
    const HeapRows heap = HeapRows::staged(*plan);
    const Status s = secure_blocks(writer, more + heap.blocks(writer, 0), deadline_ns);
    if (s == Status::kOk) heap.write(writer, 0);
    return s;
  }

  template <class Go>
  Status in_two_goes(int64_t deadline_ns, Go go) const {
    const Status s = go(kTryOnly);
    if (s != Status::kTimeout) return s;
    GilPatience asked = patience();
    const Wait wait{deadline_ns, &asked};
    const GilRelease release;
    return go(wait);
  }
};

// The answer of a call that makes one item, if the priority is not finite, is negative or is too large. It is outside
// the core's statuses.
inline constexpr int64_t kBadPriority = -100;

// -1 for None, which means the table's default. An int that does not fit a float becomes infinite, which no table
// takes.
inline double priority_of(nb::handle priority, const TableFacts& facts) {
  if (priority.is_none()) return -1.0;
  const double value = outlive_interpreter([&] { return PyFloat_AsDouble(priority.ptr()); });
  if (value != -1.0 || !PyErr_Occurred()) return value;
  const bool overflowed = PyErr_ExceptionMatches(PyExc_OverflowError) != 0;
  PyErr_Clear();
  if (overflowed) return HUGE_VAL;
  const nb::str text = outlive_interpreter([&] { return nb::repr(priority); });
  raise_error("TypeError", "table '" + facts.name + "': priority is " + text.c_str() + "; expected a number, or None");
}

// The n numbers of a contiguous float64 array; `what` names it in an error message.
inline const double* double_array(nb::handle values, npy_intp n, const char* what) {
  if (!PyArray_Check(values.ptr())) throw nb::type_error((std::string(what) + ": expected a float64 array").c_str());
  auto* array = reinterpret_cast<PyArrayObject*>(values.ptr());
  if (PyArray_TYPE(array) != NPY_DOUBLE || !PyArray_IS_C_CONTIGUOUS(array) || PyArray_SIZE(array) != n) {
    throw nb::type_error(
        (std::string(what) + ": expected a contiguous float64 array as long as the call's items").c_str());
  }
  return static_cast<const double*>(PyArray_DATA(array));
}

}  // namespace shmreplay
