// What the handles of one stream and of many have in common: how they make a writer and guard it, and what their calls
// answer.
#pragma once

#include <atomic>

#include "items/table_calls.h"
#include "numpy_arrays.h"
#include "rule_reader.h"
#include "table_context.h"
#include "write/rule_writer.h"

namespace shmreplay {

// Answers of a writer's calls besides the core's statuses.
inline constexpr int kNeedsEndEpisode = -101;  // append() after a row that ended its episode
inline constexpr int kLacksColumn = -102;      // create_item(): a finished step lacks a column
inline constexpr int kNeedsFinalStep = -103;   // end_episode(): it did not terminate, and lacks its final step or a
                                               // column of it
inline constexpr int kUnfinished = -104;       // some items of an append or end are in: that call goes first
inline constexpr int kColumnTwice = -105;      // write_open(): the open row has the column already
inline constexpr int kColumnMissing = -106;    // write_open(): the row would be finished without the column
inline constexpr int kRowIsOpen = -107;        // append() of a whole row while one is open
inline constexpr int kNeedsPython = -108;      // append_part(): a part of the step is not on the fast path

// `ends`: (bool columns of shape () that end an episode when true; the one of them that truncates it, or -1; whether an
// append after an end is no error).
inline WriterFacts writer_facts(const TableContext& context, nb::tuple ends) {
  WriterFacts facts;
  for (const PlanColumn& c : context.bound_plan().columns()) facts.formats.push_back(number_format(c));
  facts.end_columns = nb::cast<std::vector<uint32_t>>(ends[0]);
  facts.truncated = nb::cast<int>(ends[1]);
  facts.across_episodes = nb::cast<bool>(ends[2]);
  return facts;
}

inline std::vector<ItemRule> read_rules(nb::list list) {
  std::vector<ItemRule> rules;
  for (nb::handle rule : list) rules.push_back(read_rule(nb::cast<nb::dict>(rule)));
  for (ItemRule& rule : rules) rule.prepare();
  return rules;
}

// Selections of hand-made items, kept ready by number: rules whose reference is the newest step.
class Selections {
 public:
  // Sets selection `number`: a new one, or in the place of an old one. `number` is at most how many there are.
  void set(uint32_t number, nb::dict rule) {
    ItemRule read = read_rule(rule);
    read.prepare();
    if (number >= rules_.size()) rules_.resize(number + 1);
    rules_[number] = std::move(read);
  }
  ItemRule& at(uint32_t number) { return rules_.at(number); }

 private:
  std::vector<ItemRule> rules_;
};

// The status of close(wait), called with the GIL released. Raises what a signal handler raised.
template <class Close>
int close_writer(const TableContext& context, nb::handle timeout_s, Close close) {
  GilPatience patience = context.patience();
  const Wait wait{deadline_of(timeout_s), &patience};
  Status status;
  {
    const GilRelease release;
    status = close(wait);
  }
  if (status == Status::kInterrupted) throw nb::python_error();
  return static_cast<int>(status);
}

// Whether a call's priority `p` is one that some table takes. The core looks at the table of each item.
inline bool may_be_priority(nb::handle priority, double p) {
  return priority.is_none() || (p >= 0 && p <= kMaxPriority);
}

// A call's priority; -1 for None. Raises if no table would take it.
inline double call_priority(nb::handle priority, const TableContext& context) {
  const double p = priority_of(priority, *context.facts);
  if (!may_be_priority(priority, p)) {
    const nb::str text = outlive_interpreter([&] { return nb::repr(priority); });
    raise_error("ValueError",
                "table '" + context.facts->name + "': priority is " + text.c_str() + "; " + expected_priority());
  }
  return p;
}

// The bytes of a cell that Python's codec made (uint8); NO_VALUE if it has no value.
inline nb::object read_value(const StreamWriter& stream, const TableContext& context, uint64_t step, uint32_t column) {
  const BlockRef ref = context.is_coded(column) ? stream.history().value(step, column) : kNoValue;
  const int64_t size = size_of_value(*context.arena, ref);
  if (size < 0) return nb::borrow(no_value());
  nb::object array = new_array(NPY_UINT8, static_cast<npy_intp>(size));
  stream.history().read_value(step, ref, array_data<char>(array));
  return array;
}

// A copy of one cell; None if the step lacks the column. A cell that Python's codec made: as read_value().
inline nb::object read_cell(const StreamWriter& stream, const TableContext& context, uint64_t step, uint32_t column) {
  const uint64_t end = stream.history().oldest_held() + stream.history().num_steps();
  if (step < stream.history().oldest_held() || step >= end || column >= context.plan->columns().size()) {
    raise_error("InternalError", "a step that is not held was read; please report");
  }
  if (!stream.history().has(step, column)) return nb::none();
  const PlanColumn& c = context.plan->columns()[column];
  if (c.is_opaque) return read_value(stream, context, step, column);
  auto* descr = reinterpret_cast<PyArray_Descr*>(c.descr.ptr());
  Py_INCREF(reinterpret_cast<PyObject*>(descr));  // NewFromDescr steals it
  PyObject* array = PyArray_NewFromDescr(&PyArray_Type, descr, static_cast<int>(c.shape.size()),
                                         const_cast<npy_intp*>(c.shape.data()), nullptr, nullptr, 0, nullptr);
  if (array == nullptr) throw nb::python_error();
  auto* to = static_cast<char*>(PyArray_DATA(reinterpret_cast<PyArrayObject*>(array)));
  if (c.is_packed) {
    if (!stream.history().read_packed(step, column, to)) {
      raise_error("SegmentFailed", context.column_name(column) + ": stored bytes of a step are no row of " +
                                       std::to_string(c.row_bytes) + " bytes; the heap is damaged");
    }
  } else if (c.flags == kMutableColumn) stream.history().read_mutable(step, column, to);
  else std::memcpy(to, stream.history().cell(step, column), c.row_bytes);
  return nb::steal(array);
}

// Guards a writer, which serves one call at a time.
class Busy {
 public:
  Busy(std::atomic_flag& busy, const TableContext& context) : busy_(busy), call_(context.arena->calls()) {
    if (busy_.test_and_set(std::memory_order_acquire)) {  // SYNC POINT with ~Busy: one call's rows, then the next's
      raise_error("ShmReplayError",
                  "table '" + context.facts->name +
                      "': the writer is in use by another thread; give each thread a writer of its own");
    }
  }
  ~Busy() { busy_.clear(std::memory_order_release); }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;

  // Whether the session is still there. Else nothing may be written: its rows may be another's.
  bool begun() const noexcept { return call_.begun(); }

 private:
  std::atomic_flag& busy_;
  CallInFlight call_;
};

}  // namespace shmreplay
