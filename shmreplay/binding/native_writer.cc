// _core.Writer: one stream written from Python.
#include "native_table.h"
#include "step_part.h"
#include "writer_calls.h"

using namespace nb::literals;

namespace shmreplay {
namespace {

class NativeWriter {
 public:
  // `ends`: see writer_facts. `rules`: see read_rule. `commit_every`: see held_back.h.
  NativeWriter(const NativeTable& table, uint32_t history, nb::tuple ends, nb::list rules, uint32_t commit_every)
      : context_(table.context()),
        writer_(*context_->arena, *context_->facts, history, writer_facts(*context_, ends), read_rules(rules),
                commit_every) {}

  ~NativeWriter() {
    const GilRelease release;  // closing may wait for the lock
    stream().give_up();
  }

  // Writes and finishes a whole row, with the items that rules make of it: all of that or nothing. Answers keys
  // (int64): of what was held back and went in since keys were answered last, then of the row's own items unless these
  // are held back. Or a status, kRowIsOpen, kNeedsEndEpisode, or (status, step, column) of a missing cell. If there are
  // more items than one hold can take, several holds put them in. If some are in when the call fails, go_on() has to
  // finish it before any other call (kUnfinished).
  nb::object append(nb::handle step, nb::handle priority, nb::handle timeout_s) {
    const Busy busy(busy_, *context_);
    if (!busy.begun()) return nb::int_(static_cast<int>(Status::kSessionLost));
    if (is_closed_) return nb::int_(static_cast<int>(Status::kClosed));
    if (row_is_open()) return nb::int_(kRowIsOpen);
    if (is_unfinished()) return nb::int_(kUnfinished);
    if (needs_end_episode()) return nb::int_(kNeedsEndEpisode);
    const double p = call_priority(priority, *context_);
    if (const Status s = ensure_row(timeout_s); s != Status::kOk) return nb::int_(static_cast<int>(s));
    writer_.begin(WriterCall::kAppend);
    const auto write = [&](int64_t deadline) { return context_->write_step(stream(), step, deadline); };
    if (const Status s = with_blocks(write, timeout_s); s != Status::kOk)
      return nb::int_(static_cast<int>(taken_back(s)));
    stream().row().mark_all();
    return finish_with_items(p, timeout_s);
  }

  // Writes the columns that `arrays` has (None: absent; NO_VALUE: a heap column without a value) into the open row,
  // which it begins if there is none. The row stays open; with `finish` it is finished with its items, as in append().
  nb::object write_open(nb::object arrays, bool finish, nb::handle priority, nb::handle timeout_s) {
    const Busy busy(busy_, *context_);
    if (!busy.begun()) return nb::int_(static_cast<int>(Status::kSessionLost));
    if (is_unfinished()) return nb::int_(kUnfinished);
    const double p = call_priority(priority, *context_);
    if (const Status s = ensure_row(timeout_s); s != Status::kOk) return nb::int_(static_cast<int>(s));
    writer_.begin(WriterCall::kAppend);
    const auto write = [&](int64_t deadline) { return context_->write_arrays(stream(), arrays, false, deadline); };
    if (const Status s = with_blocks(write, timeout_s); s != Status::kOk)
      return nb::int_(static_cast<int>(taken_back(s)));
    return finish ? finish_with_items(p, timeout_s) : nb::object(nb::int_(0));
  }

  // As write_open(), of a step in the signature's structure that may lack columns. kNeedsPython: nothing was done, and
  // write_open() or what explains its refusal has to be called.
  nb::object append_part(nb::handle step, bool finish, nb::handle priority, nb::handle timeout_s) {
    const Busy busy(busy_, *context_);
    if (!busy.begun()) return nb::int_(static_cast<int>(Status::kSessionLost));
    const std::vector<PlanColumn>& columns = context_->bound_plan().columns();
    StepPart part;
    if (is_closed_ || forked() || is_unfinished() || (finish && needs_end_episode()) ||
        !part.read(*context_->plan, step.ptr()) || !part.fits(stream().row(), finish, columns.size()))
      return nb::int_(kNeedsPython);
    const double p = call_priority(priority, *context_);
    if (const Status s = ensure_row(timeout_s); s != Status::kOk) return nb::int_(static_cast<int>(s));
    writer_.begin(WriterCall::kAppend);
    part.write(stream().row(), columns);
    return finish ? finish_with_items(p, timeout_s) : nb::object(nb::int_(0));
  }

  // Puts in the rest of the items of an append() that failed half-way. Answers as append().
  nb::object go_on(nb::handle timeout_s) {
    const Busy busy(busy_, *context_);
    if (writer_.unfinished() != WriterCall::kAppend) return nb::int_(kUnfinished);
    return insert_and_answer(timeout_s);
  }

  // Columns that the open row has; empty when none is open.
  std::vector<uint32_t> present() const {
    std::vector<uint32_t> columns;
    for (uint32_t c = 0; row_is_open() && c < context_->plan->columns().size(); ++c) {
      if (stream().row().has(c) && context_->plan->columns()[c].flags != kPerItemColumn) columns.push_back(c);
    }
    return columns;
  }

  // Makes an item of the newest `length` steps, the open row included. Answers its key, 0 if it is held back, -status,
  // kBadPriority, or kLacksColumn: a finished step among them lacks a column, as the row that ended an episode may.
  // Only the open row, as the item's last step, may lack some. `values`: what it brings for per-item columns: a uint8
  // array, or None. `table`: index of the table that gets it; kNone: the writer's own.
  int64_t create_item(uint32_t length, nb::handle priority, nb::handle timeout_s, nb::handle values, uint32_t table) {
    const Busy busy(busy_, *context_);
    if (is_unfinished()) return kUnfinished;
    const double p = priority_of(priority, *context_->facts);
    if (!may_be_priority(priority, p)) return kBadPriority;
    if (length > 0 && length <= stream().history().num_steps() && length > writer_.longest_span()) return kLacksColumn;
    writer_.begin(WriterCall::kItem);
    Status s = writer_.look_at_span(length, p, table);
    if (s == Status::kOk) s = bring_values(values, timeout_s);
    if (s == Status::kOk) s = values.is_none() ? insert_or_hold_back(timeout_s) : insert(timeout_s);
    return key_or_status(s);
  }

  // Sets a selection for create_selected(): a rule whose reference is the newest step. `number` is at most how many
  // there are.
  void set_selection(uint32_t number, nb::dict rule) {
    const Busy busy(busy_, *context_);
    selections_.set(number, rule);
  }

  // Makes an item by that selection; `values` as in create_item(). Answers its key, -status, kBadPriority, or (status,
  // step, column) of a missing cell.
  nb::object create_selected(uint32_t selection, nb::handle priority, nb::handle timeout_s, nb::handle values) {
    const Busy busy(busy_, *context_);
    if (forked()) return nb::int_(-static_cast<int>(Status::kForked));
    if (is_unfinished()) return nb::int_(kUnfinished);
    const double p = priority_of(priority, *context_->facts);
    if (!may_be_priority(priority, p)) return nb::int_(kBadPriority);
    ItemRule::Missing missing{};
    writer_.begin(WriterCall::kItem);
    Status s = writer_.look_by(selections_.at(selection), p, missing);
    if (s == Status::kMissingCell) return missing_cell(missing);
    if (s == Status::kOk) s = bring_values(values, timeout_s);
    if (s == Status::kOk) s = values.is_none() ? insert_or_hold_back(timeout_s) : insert(timeout_s);
    return nb::int_(key_or_status(s));
  }

  // Ends the episode; the open row, if any, is its final step. The items that are due now go in. Answers their keys, or
  // as append(), or (kNeedsFinalStep, 0, column). A call that timed out goes on where it was when it is repeated.
  nb::object end_episode(bool clear_history, nb::handle priority, nb::handle timeout_s) {
    const Busy busy(busy_, *context_);
    if (forked()) return nb::int_(static_cast<int>(Status::kForked));
    if (writer_.unfinished() == WriterCall::kAppend) return nb::int_(kUnfinished);
    if (!is_unfinished()) {
      const double p = call_priority(priority, *context_);
      const int lacking = writer_.lacks_of_final_step(clear_history, row_is_open(), [](uint32_t) { return false; });
      if (lacking >= 0) return nb::make_tuple(kNeedsFinalStep, 0, lacking);
      ItemRule::Missing missing{};
      writer_.begin(WriterCall::kEnd);
      const Status s = writer_.look_at_end(clear_history, p, missing);
      if (s == Status::kMissingCell) return missing_cell(missing);
      if (s != Status::kOk) return nb::int_(static_cast<int>(s));
    }
    return insert_and_answer(timeout_s);
  }

  // Puts in what is held back. Answers keys, as append(), or a status.
  nb::object flush(nb::handle timeout_s) {
    const Busy busy(busy_, *context_);
    if (forked()) return nb::int_(static_cast<int>(Status::kForked));
    return answer(publish(timeout_s), {});
  }

  // Loses what is held back; call flush() first to keep it.
  int close(nb::handle timeout_s) {
    const Busy busy(busy_, *context_);
    writer_.held().clear();
    const int status = close_writer(*context_, timeout_s, [this](const Wait& wait) { return stream().close(wait); });
    is_closed_ |= status == 0;
    return status;
  }

  nb::object read_cell(uint64_t step, uint32_t column) const {
    return shmreplay::read_cell(stream(), *context_, step, column);
  }

  void restore_row(const std::vector<uint32_t>& columns) {
    std::vector<uint64_t> present(stream().row().present().size(), 0);
    for (const uint32_t c : columns) present.at(c / 64) |= uint64_t{1} << (c % 64);
    stream().row().restore(present);
  }

  bool is_ending() const { return writer_.unfinished() == WriterCall::kEnd; }
  bool is_unfinished() const { return writer_.unfinished() != WriterCall::kNothing; }
  // Index of the table whose limiter did not admit the call that timed out, or -1.
  int blocking_table() const {
    return stream().blocking_table() == kNone ? -1 : static_cast<int>(stream().blocking_table());
  }
  uint64_t oldest_step() const { return stream().history().oldest_held(); }
  bool row_is_open() const { return stream().row().is_open(); }
  bool needs_end_episode() const { return writer_.needs_end_episode(); }
  uint32_t num_steps() const { return stream().history().num_steps(); }
  uint32_t num_whole() const { return stream().history().num_whole(); }
  uint64_t episode_steps() const { return stream().history().episode_steps(); }
  uint32_t num_held_back() const { return writer_.held().size(); }
  bool forked() const { return context_->arena->forked(); }

 private:
  StreamWriter& stream() noexcept { return writer_.stream(); }
  const StreamWriter& stream() const noexcept { return writer_.stream(); }

  Status ensure_row(nb::handle timeout_s) {
    if (context_->arena->forked()) return Status::kForked;
    if (row_is_open() || (stream().is_open() && stream().row().rows_left() > 0)) return stream().ensure_row(kTryOnly);
    GilPatience patience = context_->patience();
    const Wait wait{deadline_of(timeout_s), &patience}, now{0, &patience};
    Status status = Status::kOk;
    {
      const GilRelease release;
      if (!stream().is_open()) status = stream().open(wait);
      if (status == Status::kOk) status = stream().ensure_row(writer_.held().empty() ? wait : now);
      if (status == Status::kTimeout && !writer_.held().empty()) {
        status = writer_.publish(wait);  // the process that would free a chunk may be waiting for these
        if (status == Status::kOk) status = stream().ensure_row(wait);
      }
    }
    if (status == Status::kInterrupted) throw nb::python_error();
    return status;
  }

  // When a wait for blocks ends. 0 if no column is in the heap: a step without values never waits for blocks.
  int64_t values_deadline(nb::handle timeout_s) const {
    return context_->plan->has_heap() ? deadline_of(timeout_s) : 0;
  }

  // The same for a row whose values need blocks: write(deadline).
  template <class Write>
  Status with_blocks(Write write, nb::handle timeout_s) {
    if (writer_.held().empty()) return write(values_deadline(timeout_s));
    if (const Status status = write(0); status != Status::kTimeout) return status;
    const Status status = publish(timeout_s);
    return status == Status::kOk ? write(values_deadline(timeout_s)) : status;
  }

  Status taken_back(Status status) {
    writer_.take_back();
    if (status == Status::kInterrupted) throw nb::python_error();
    return status;
  }

  Status bring_values(nb::handle values, nb::handle timeout_s) {
    if (values.is_none()) return Status::kOk;
    const Status s = context_->bring_values(
        values, deadline_of(timeout_s),
        [this](const char* bytes, uint64_t n, const Wait& wait) { return writer_.bring_values(bytes, n, wait); });
    return s == Status::kOk ? s : taken_back(s);
  }

  static nb::object missing_cell(const ItemRule::Missing& missing) {
    return nb::make_tuple(static_cast<int>(Status::kMissingCell), missing.step, missing.column);
  }

  nb::object finish_with_items(double priority, nb::handle timeout_s) {
    ItemRule::Missing missing{};
    const Status s = writer_.look_at_row(priority, missing);
    if (s == Status::kMissingCell) return missing_cell(missing);
    if (s != Status::kOk) return nb::int_(static_cast<int>(s));
    const Status done = insert_or_hold_back(timeout_s);
    return answer(done, writer_.keys());
  }

  Status insert_or_hold_back(nb::handle timeout_s) {
    if (!writer_.may_hold_back()) return insert(timeout_s);
    const Status status = writer_.hold_back();
    writer_.conclude();
    return status;
  }

  // Puts in what is held back, first without waiting. Also called in the middle of a call.
  Status publish(nb::handle timeout_s) {
    const Status status = writer_.publish(kTryOnly);
    if (status != Status::kTimeout) return status;
    GilPatience patience = context_->patience();
    const Wait wait{deadline_of(timeout_s), &patience};
    const GilRelease release;
    return writer_.publish(wait);
  }

  // Puts in what is due and not in yet, first without waiting. Ends the call.
  Status insert(nb::handle timeout_s) {
    RuleWriter* const writer = &writer_;
    size_t at = 0;
    Status status = Status::kOk;
    if (writer_.num_in() < writer_.num_due() || !writer_.held().empty())
      status = RuleWriter::insert({&writer, 1}, kTryOnly, at);
    if (status == Status::kTimeout) {
      GilPatience patience = context_->patience();
      const Wait wait{deadline_of(timeout_s), &patience};
      const GilRelease release;
      status = RuleWriter::insert({&writer, 1}, wait, at);
    }
    writer_.conclude();
    return status;
  }

  nb::object insert_and_answer(nb::handle timeout_s) {
    const Status s = insert(timeout_s);
    return answer(s, writer_.keys());
  }

  // After kOk: the keys of what was held back and went in, then the call's own.
  nb::object answer(Status s, std::span<const int64_t> own) {
    if (s == Status::kInterrupted) throw nb::python_error();
    if (s != Status::kOk) return nb::int_(static_cast<int>(s));
    std::vector<int64_t>& before = writer_.held().went_in();
    if (before.empty() && own.empty()) return no_keys_;
    nb::object array = new_array(NPY_INT64, static_cast<npy_intp>(before.size() + own.size()));
    std::copy(own.begin(), own.end(), std::copy(before.begin(), before.end(), array_data<int64_t>(array)));
    before.clear();
    return array;
  }

  // Of a hand-made item: its priority is the call's, no rule reads one.
  int64_t key_or_status(Status s) const {
    if (s == Status::kInterrupted) throw nb::python_error();
    if (s == Status::kBadPriority) return kBadPriority;
    if (s != Status::kOk) return -static_cast<int64_t>(s);
    return writer_.keys().empty() ? 0 : writer_.keys().front();
  }

  // What every call that makes no item answers: read-only.
  static nb::object empty_keys() {
    nb::object array = new_array(NPY_INT64, 0);
    PyArray_CLEARFLAGS(reinterpret_cast<PyArrayObject*>(array.ptr()), NPY_ARRAY_WRITEABLE);
    return array;
  }

  std::shared_ptr<TableContext> context_;
  RuleWriter writer_;
  bool is_closed_ = false;
  const nb::object no_keys_ = empty_keys();
  Selections selections_;
  std::atomic_flag busy_ = ATOMIC_FLAG_INIT;
};

}  // namespace

void bind_writer(nb::module_& m) {
  nb::class_<NativeWriter>(m, "Writer", "One stream.")
      .def(nb::init<const NativeTable&, uint32_t, nb::tuple, nb::list, uint32_t>(), "table"_a, "history"_a, "ends"_a,
           "rules"_a, "commit_every"_a = 1)
      .def("append", &NativeWriter::append, "step"_a.none(), "priority"_a.none(), "timeout_s"_a.none())
      .def("write_open", &NativeWriter::write_open, "arrays"_a, "finish"_a, "priority"_a.none(), "timeout_s"_a.none())
      .def("append_part", &NativeWriter::append_part, "step"_a.none(), "finish"_a, "priority"_a.none(),
           "timeout_s"_a.none())
      .def("go_on", &NativeWriter::go_on, "timeout_s"_a.none())
      .def("present", &NativeWriter::present)
      .def("set_selection", &NativeWriter::set_selection, "number"_a, "rule"_a)
      .def("create_selected", &NativeWriter::create_selected, "selection"_a, "priority"_a.none(), "timeout_s"_a.none(),
           "values"_a.none() = nb::none())
      .def("create_item", &NativeWriter::create_item, "length"_a, "priority"_a.none(), "timeout_s"_a.none(),
           "values"_a.none() = nb::none(), "table"_a = kNone)
      .def("end_episode", &NativeWriter::end_episode, "clear_history"_a, "priority"_a.none(), "timeout_s"_a.none())
      .def("flush", &NativeWriter::flush, "timeout_s"_a.none())
      .def("close", &NativeWriter::close, "timeout_s"_a.none())
      .def("read_cell", &NativeWriter::read_cell, "step"_a, "column"_a)
      .def("restore_row", &NativeWriter::restore_row, "columns"_a)
      .def_prop_ro("is_ending", &NativeWriter::is_ending)
      .def_prop_ro("is_unfinished", &NativeWriter::is_unfinished)
      .def_prop_ro("blocking_table", &NativeWriter::blocking_table)
      .def_prop_ro("oldest_step", &NativeWriter::oldest_step)
      .def_prop_ro("row_is_open", &NativeWriter::row_is_open)
      .def_prop_ro("needs_end_episode", &NativeWriter::needs_end_episode)
      .def_prop_ro("num_steps", &NativeWriter::num_steps)
      .def_prop_ro("num_whole", &NativeWriter::num_whole)
      .def_prop_ro("episode_steps", &NativeWriter::episode_steps)
      .def_prop_ro("num_held_back", &NativeWriter::num_held_back)
      .def_prop_ro("forked", &NativeWriter::forked);
}

}  // namespace shmreplay
