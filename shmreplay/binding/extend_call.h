// _core.Table.extend: whole arrays from Python, as one stream.
#pragma once

#include <algorithm>
#include <optional>

#include "numpy_arrays.h"
#include "table_context.h"
#include "write/extend.h"
#include "writer_calls.h"

namespace shmreplay {

// Arrays from Python as the core reads them. They must outlive it.
class ExtendArrays {
 public:
  // One array for each column, [N, ...]; None: it is not given. `is_whole`: only per-item columns may be.
  ExtendArrays(const TableContext& context, const nb::object& list, bool is_whole) : list_(list) {
    const std::vector<PyArrayObject*> arrays = context.checked_arrays(list, 1);
    std::vector<ValueList> values(arrays.size());
    for (uint32_t c = 0; c < arrays.size(); ++c) {
      const PlanColumn& plan = context.plan->columns()[c];
      columns_.push_back(nullptr);
      if (plan.flags == kPerItemColumn) continue;
      if (arrays[c] == nullptr) {
        if (is_whole) raise_error("InternalError", "extend: a column is absent; please report");
        continue;
      }
      given_.push_back(c);
      const nb::handle leaf(reinterpret_cast<PyObject*>(arrays[c]));
      num_rows_ =
          static_cast<uint32_t>(plan.is_opaque ? nb::len(leaf) : static_cast<size_t>(PyArray_DIM(arrays[c], 0)));
      if (plan.is_opaque) values[c] = ValueList(*context.arena, leaf, num_rows_, context.column_name(c));
      else if (!plan.is_packed) columns_[c] = static_cast<const char*>(PyArray_DATA(arrays[c]));
    }
    if (!context.plan->has_heap()) return;
    heap_ = context.heap_rows(arrays, std::move(values));
    of_rows_.blocks = [this](StreamWriter& stream, uint32_t row) { return heap_.blocks(stream, row); };
    of_rows_.write = [this](StreamWriter& stream, uint32_t row) { heap_.write(stream, row); };
  }
  ExtendArrays(const ExtendArrays&) = delete;
  ExtendArrays& operator=(const ExtendArrays&) = delete;

  uint32_t num_rows() const noexcept { return num_rows_; }
  ExtendRows rows() const { return {columns_, nullptr, num_rows_, values()}; }
  FinalRows finals() const { return {given_, columns_, values()}; }

 private:
  const RowValues* values() const noexcept { return heap_.empty() ? nullptr : &of_rows_; }

  nb::object list_;
  std::vector<const char*> columns_;
  std::vector<uint32_t> given_;
  uint32_t num_rows_ = 0;
  HeapRows heap_;
  RowValues of_rows_;
};

// `arrays`: one for each column, [N, ...], as canonical() makes them; for a heap column a list of N, for a per-item
// column None. `row_ends`: bool [N] or None. `finals`: None, or such arrays with a row for each end, None for columns
// that final steps lack. `ends`, `rules`: see writer_facts, read_rule. `went_in` gets (keys, rows
// done) once the table may have changed. Answers (status, exception of a signal handler or None).
inline nb::tuple extend_table(const TableContext& context, nb::object arrays, nb::handle row_ends, nb::object finals,
                              uint32_t history, nb::tuple ends, nb::list rules, bool clear_history, bool counted,
                              nb::handle timeout_s, nb::list went_in) {
  if (context.arena->forked()) return nb::make_tuple(static_cast<int>(Status::kForked), nb::none());
  const CallInFlight call(context.arena->calls());
  if (!call.begun()) return nb::make_tuple(static_cast<int>(Status::kSessionLost), nb::none());
  const ExtendArrays columns(context, arrays, true);
  ExtendRows rows = columns.rows();
  std::vector<npy_bool> ends_of;
  if (!row_ends.is_none())
    ends_of = copied<npy_bool>(row_ends, NPY_BOOL, "row_ends: expected a contiguous bool array of one axis");
  if (!ends_of.empty()) rows.ends = ends_of.data();
  if (!ends_of.empty() && ends_of.size() != rows.num_rows) throw nb::type_error("row_ends: expected one a row");
  std::optional<const ExtendArrays> final_columns;
  FinalRows final_rows;
  if (!finals.is_none()) {
    final_columns.emplace(context, finals, false);
    if (final_columns->num_rows() != std::count(ends_of.begin(), ends_of.end(), 1))
      throw nb::type_error("finals: expected one row for each end");
    final_rows = final_columns->finals();
    rows.finals = &final_rows;
  }
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
