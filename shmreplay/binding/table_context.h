// What the table's and the writers' handles share, and how they read steps and priorities.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "arena.h"
#include "patience.h"
#include "sample_call.h"
#include "status_error.h"
#include "step_plan.h"
#include "rule_writer.h"

namespace shmreplay {

// What table and writer handles share: the mapping, the signature's plan, and the patterns of plain items.
struct TableContext {
  std::shared_ptr<Arena> arena;
  const TableFacts* facts;
  std::unique_ptr<StepPlan> plan;
  nb::object canonical_batch = nb::none();  // steps -> (arrays, N)
  nb::object observer = nb::none();         // (what, pid, seconds) of long waits
  std::atomic<bool> waits_ended{false};     // the observer ends every wait of the table's handle, and need not be waited for

  const StepPlan& bound_plan() const {
    if (plan == nullptr) raise_error("InternalError", "table '" + facts->name + "' has no signature bound; please report");
    return *plan;
  }

  // What a view draws with: a new one costs more than the draw. With the GIL.
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

  GilPatience patience() const { return GilPatience(observer.ptr(), &waits_ended); }

  // The list that canonical() made: arrays exact by its contract, checked all the same before bytes are copied. An absent
  // column's place is nullptr.
  std::vector<PyArrayObject*> checked_arrays(const nb::object& list, int leading) const {
    std::vector<PyArrayObject*> arrays;
    for (size_t c = 0; c < plan->columns().size(); ++c) {
      PyObject* leaf = PyList_GetItem(list.ptr(), static_cast<Py_ssize_t>(c));
      if (leaf == nullptr) throw nb::python_error();
      if (leaf != Py_None && !StepPlan::is_exact(plan->columns()[c], leaf, leading)) {
        raise_error("InternalError", "table '" + facts->name + "': column " + std::to_string(c) +
                                         " was converted to another shape or dtype; please report");
      }
      arrays.push_back(leaf == Py_None ? nullptr : reinterpret_cast<PyArrayObject*>(leaf));
    }
    return arrays;
  }

  // Copies one cell: row `number` of an array that checked_arrays() took, into the writer's row. The GIL is not needed.
  void write_cell(StreamWriter& writer, uint32_t column, PyArrayObject* array, size_t number) const {
    const size_t row_bytes = plan->columns()[column].row_bytes;
    std::memcpy(writer.cell(column), static_cast<const char*>(PyArray_DATA(array)) + number * row_bytes, row_bytes);
  }

  // Writes a whole step into the writer's row; Python's canonical() converts or explains what is not exact.
  void write_step(StreamWriter& writer, nb::handle step) const {
    if (bound_plan().write(step.ptr(), [&](uint32_t column) { return writer.cell(column); })) return;
    const nb::object list = outlive_interpreter([&] { return plan->canonical()(step); });
    const std::vector<PyArrayObject*> arrays = checked_arrays(list, 0);
    for (uint32_t c = 0; c < arrays.size(); ++c) {
      if (arrays[c] == nullptr) raise_error("InternalError", "table '" + facts->name + "': a whole step lacks a column; please report");
      write_cell(writer, c, arrays[c], 0);
    }
  }
};

// -1 for None, which stands for the table's default. An int that no float holds becomes infinite, which no table takes.
inline double priority_of(nb::handle priority, const TableFacts& facts) {
  if (priority.is_none()) return -1.0;
  const double value = PyFloat_AsDouble(priority.ptr());
  if (value != -1.0 || !PyErr_Occurred()) return value;
  const bool overflowed = PyErr_ExceptionMatches(PyExc_OverflowError) != 0;
  PyErr_Clear();
  if (overflowed) return HUGE_VAL;
  const nb::str text = nb::repr(priority);
  raise_error("TypeError", "table '" + facts.name + "': priority is " + text.c_str() + "; expected a number, or None");
}

// The n numbers of a contiguous float64 array; `what` names it in a refusal.
inline const double* double_array(nb::handle values, npy_intp n, const char* what) {
  if (!PyArray_Check(values.ptr())) throw nb::type_error((std::string(what) + ": expected a float64 array").c_str());
  auto* array = reinterpret_cast<PyArrayObject*>(values.ptr());
  if (PyArray_TYPE(array) != NPY_DOUBLE || !PyArray_IS_C_CONTIGUOUS(array) || PyArray_SIZE(array) != n) {
    throw nb::type_error((std::string(what) + ": expected a contiguous float64 array as long as the call's items").c_str());
  }
  return static_cast<const double*>(PyArray_DATA(array));
}

}  // namespace shmreplay
