// _core.Table.extend: whole arrays from Python, as one stream.
#pragma once

#include "numpy_arrays.h"
#include "table_context.h"
#include "write/extend.h"
#include "writer_calls.h"

namespace shmreplay {

// `arrays`: one for each column, [N, ...], as canonical() makes them; for a heap column a list of N, for a per-item
// column None. `row_ends`: bool [N] or None. `ends`, `rules`: see writer_facts, read_rule. `went_in` gets (keys, rows
// done) once the table may have changed. Answers (status, exception of a signal handler or None).
inline nb::tuple extend_table(const TableContext& context, nb::object arrays, nb::handle row_ends, uint32_t history,
                              nb::tuple ends, nb::list rules, bool clear_history, bool counted, nb::handle timeout_s,
                              nb::list went_in) {
  if (context.arena->forked()) return nb::make_tuple(static_cast<int>(Status::kForked), nb::none());
  const CallInFlight call(context.arena->calls());
  if (!call.begun()) return nb::make_tuple(static_cast<int>(Status::kSessionLost), nb::none());
  ExtendRows rows{{}, nullptr, 0};
  const std::vector<PyArrayObject*> columns = context.checked_arrays(arrays, 1);
  std::vector<ValueList> values(columns.size());
  for (size_t c = 0; c < columns.size(); ++c) {
    PyArrayObject* array = columns[c];
    const PlanColumn& plan = context.plan->columns()[c];
    if (array == nullptr && plan.flags != kPerItemColumn)
      raise_error("InternalError", "extend: a column is absent; please report");
    rows.columns.push_back(plan.is_opaque || plan.is_packed ? nullptr : static_cast<const char*>(PyArray_DATA(array)));
    if (plan.flags == kPerItemColumn) continue;
    const nb::handle list(reinterpret_cast<PyObject*>(array));
    rows.num_rows = static_cast<uint32_t>(plan.is_opaque ? nb::len(list) : static_cast<size_t>(PyArray_DIM(array, 0)));
    if (plan.is_opaque) values[c] = ValueList(*context.arena, list, rows.num_rows, context.column_name(c));
  }
  RowValues of_rows;
  const HeapRows heap = context.heap_rows(columns, std::move(values));
  of_rows.blocks = [&heap](StreamWriter& stream, uint32_t row) { return heap.blocks(stream, row); };
  of_rows.write = [&heap](StreamWriter& stream, uint32_t row) { heap.write(stream, row); };
  if (context.plan->has_heap()) rows.values = &of_rows;
  std::vector<npy_bool> ends_of;
  if (!row_ends.is_none())
    ends_of = copied<npy_bool>(row_ends, NPY_BOOL, "row_ends: expected a contiguous bool array of one axis");
  if (!ends_of.empty()) rows.ends = ends_of.data();
  if (!ends_of.empty() && ends_of.size() != rows.num_rows) throw nb::type_error("row_ends: expected one a row");
  GilPatience patience = context.patience();
  const Wait wait{deadline_of(timeout_s), &patience};
  RuleWriter writer(*context.arena, *context.facts, history, writer_facts(context, ends), read_rules(rules));
  Extend extend(writer, rows, clear_history, counted);
  Status status;
  {
    const GilRelease release;
    status = extend.run(wait);
  }
  status = handle_signals(status);
  nb::object raised = status == Status::kInterrupted ? take_raised() : nb::none();
  const std::vector<int64_t>& made = extend.keys();
  nb::object keys = new_array(NPY_INT64, static_cast<npy_intp>(made.size()));
  std::copy(made.begin(), made.end(), array_data<int64_t>(keys));
  went_in.append(nb::make_tuple(keys, extend.num_rows()));
  return nb::make_tuple(static_cast<int>(status), raised);
}

}  // namespace shmreplay
