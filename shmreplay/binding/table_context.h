// What the table's and the writers' handles share, and how they read steps and priorities.
#pragma once

#include <memory>
#include <vector>

#include "arena.h"
#include "status_error.h"
#include "patience.h"
#include "step_plan.h"
#include "step_values.h"
#include "stream_writer.h"

namespace shmreplay {

// What table and writer handles share: the mapping, the signature's plan, and the patterns of plain items.
struct TableContext {
  std::shared_ptr<Arena> arena;
  const TableFacts* facts;
  std::unique_ptr<StepPlan> plan;
  nb::object canonical_batch = nb::none();  // steps -> (arrays, N)
  nb::object observer = nb::none();         // (what, pid, seconds) of long waits

  const StepPlan& bound_plan() const {
    if (plan == nullptr) raise_error("InternalError", "table '" + facts->name + "' has no signature bound; please report");
    return *plan;
  }

  std::string column_name(size_t c) const { return "table '" + facts->name + "': column " + std::to_string(c); }
  std::string values_name() const { return "table '" + facts->name + "': the values of an item"; }
  bool is_heap(size_t c) const { return plan->columns()[c].flags == kHeapColumn; }

  // The list that canonical() made: arrays exact by its contract, checked all the same before bytes are copied. An absent
  // column's place is nullptr; opaque ones are looked at as values.
  std::vector<PyArrayObject*> checked_arrays(const nb::object& list, int leading) const {
    std::vector<PyArrayObject*> arrays;
    for (size_t c = 0; c < plan->columns().size(); ++c) {
      PyObject* leaf = PyList_GetItem(list.ptr(), static_cast<Py_ssize_t>(c));
      if (leaf == nullptr) throw nb::python_error();
      const bool is_opaque = plan->columns()[c].is_opaque;
      if (leaf != Py_None && !is_opaque && !StepPlan::is_exact(plan->columns()[c], leaf, leading)) {
        raise_error("InternalError", "table '" + facts->name + "': column " + std::to_string(c) +
                                         " was converted to another shape or dtype; please report");
      }
      arrays.push_back(leaf == Py_None ? nullptr : reinterpret_cast<PyArrayObject*>(leaf));
    }
    return arrays;
  }

  // Writes a whole step into the writer's row; Python's canonical() converts or explains what is not exact. kOk, or why there
  // were no blocks for its values and `more`: then nothing was written. kInterrupted: the handler's exception is set.
  Status write_step(StreamWriter& writer, nb::handle step, int64_t deadline_ns, uint64_t more = 0) const {
    if (bound_plan().write(step.ptr(), [&](uint32_t column) { return writer.cell(column); })) return Status::kOk;
    const nb::object list = outlive_interpreter([&] { return plan->canonical()(step); });
    return write_arrays(writer, list, true, deadline_ns, more);
  }

  // Writes what the list has; of a step that is not `whole`, the columns that the row lacks, which are marked.
  Status write_arrays(StreamWriter& writer, const nb::object& list, bool whole, int64_t deadline_ns, uint64_t more = 0) const {
    const std::vector<PyArrayObject*> arrays = checked_arrays(list, 0);
    std::vector<ValueBytes> values;
    std::vector<nb::object> keep;  // the list may change while the GIL is released
    if (plan->has_opaque()) {
      values.resize(arrays.size());
      for (uint32_t c = 0; c < arrays.size(); ++c) {
        if (arrays[c] == nullptr || (!whole && writer.has(c))) continue;
        keep.push_back(nb::borrow(reinterpret_cast<PyObject*>(arrays[c])));
        if (!is_heap(c)) continue;
        values[c] = value_bytes(keep.back().ptr(), column_name(c));
        more += blocks_for(*arena, values[c], column_name(c));
      }
      if (const Status s = secure_blocks(writer, more, deadline_ns); s != Status::kOk) return s;
    }
    for (uint32_t c = 0; c < arrays.size(); ++c) {
      if (plan->columns()[c].flags == kPerItemColumn || (!whole && (arrays[c] == nullptr || writer.has(c)))) continue;
      if (!is_heap(c)) {
        if (arrays[c] == nullptr) raise_error("InternalError", column_name(c) + " of a whole step is missing; please report");
        std::memcpy(writer.cell(c), PyArray_DATA(arrays[c]), plan->columns()[c].row_bytes);
      } else if (values[c].size < 0) {
        writer.write_no_value(c);
      } else {
        writer.write_value(c, values[c].data, static_cast<uint32_t>(values[c].size));
      }
      if (!whole) writer.mark(c);
    }
    return Status::kOk;
  }

  // First without waiting, then with the GIL released. kInterrupted: the handler's exception is set.
  Status secure_blocks(StreamWriter& writer, uint64_t n, int64_t deadline_ns) const {
    return in_two_goes(deadline_ns, [&](const Wait& wait) { return writer.secure_blocks(n, wait); });
  }

  // Writes what an item brings that begins with that step: `values` a uint8 array, or None. As secure_blocks().
  Status bring_values(StreamWriter& writer, uint64_t first, nb::handle values, int64_t deadline_ns, BlockRef& ref) const {
    ref = kNoValue;
    const ValueBytes bytes = value_bytes(values.ptr(), values_name());
    if (blocks_for(*arena, bytes, values_name()) == 0) return Status::kOk;
    return in_two_goes(deadline_ns, [&](const Wait& wait) {
      return writer.bring_values(first, bytes.data, static_cast<uint64_t>(bytes.size), wait, ref);
    });
  }

 private:
  template <class Go>
  Status in_two_goes(int64_t deadline_ns, Go go) const {
    const Status s = go(kTryOnly);
    if (s != Status::kTimeout) return s;
    GilPatience patience(observer.ptr());
    const Wait wait{deadline_ns, &patience};
    const GilRelease release;
    return go(wait);
  }
};

// Every column under its own name: squeezed for one-step items; else whole spans, where the columns in `lacking` miss the
// newest step. Of a per-item column there is one value, and no slice.
inline Pattern whole_step_pattern(const StepPlan& plan, bool squeezed, const std::vector<bool>& lacking) {
  Pattern p;
  for (uint32_t c = 0; c < plan.columns().size(); ++c) {
    const bool lacks = !lacking.empty() && lacking[c], per_item = plan.columns()[c].flags == kPerItemColumn;
    p.outputs.push_back({static_cast<uint16_t>(c), static_cast<uint16_t>(squeezed || per_item ? kSqueezed : 0), per_item ? 0u : 1u,
                         static_cast<uint32_t>(p.slices.size()), lacks ? 1u : 0u});
    if (!per_item) p.slices.push_back(squeezed ? Slice{0, 1, 1, 0} : Slice{0, 0, 1, kEndAtEnd});
  }
  return p;
}

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

}  // namespace shmreplay
