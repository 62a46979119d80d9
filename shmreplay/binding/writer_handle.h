// _core.Writer: one stream written from Python.
#pragma once

#include <atomic>
#include <map>

#include "rule_reader.h"
#include "table_handle.h"

namespace shmreplay {

class WriterHandle {
 public:
  static constexpr int kNeedsEndEpisode = -101;  // what append() answers behind a row that ended its episode
  static constexpr int kLacksColumn = -102;      // what create_item() answers when a finished step lacks a column
  static constexpr int kNeedsFinalStep = -103;   // what end_episode() answers when a truncated episode lacks its final step
  static constexpr int kUnfinished = -104;       // some items of an append() or end_episode() are in: that goes first

  // `end_columns`: bool columns of shape () that end an episode when true; `truncated`: that of them, or -1, after which
  // windows that look at the next step need a final one. `rules`: see read_rule; an episode's items cross nothing else.
  WriterHandle(const TableHandle& table, uint32_t history, std::vector<uint32_t> end_columns, int truncated, nb::list rules,
               bool across_episodes)
      : context_(table.context()),
        end_columns_(std::move(end_columns)),
        truncated_(truncated),
        across_episodes_(across_episodes),
        writer_(*context_->arena, *context_->facts, history) {
    for (const PlanColumn& c : context_->bound_plan().columns()) formats_.push_back(number_format(c));
    for (nb::handle rule : rules) rules_.push_back(read_rule(nb::cast<nb::dict>(rule)));
    for (ItemRule& rule : rules_) rule.prepare();
  }

  ~WriterHandle() {
    const GilRelease release;  // closing may wait for the lock
    writer_.give_up();
  }

  // Writes and finishes a whole row, with the items that rules make of it: all of that or nothing. Their keys (int64), or a
  // status, or kNeedsEndEpisode, or (status, step, column) of a missing cell. More items than one hold can take go in by
  // several: if some are in when the call fails, go_on() has to finish it before anything else (kUnfinished).
  nb::object append(nb::handle step, nb::handle priority, nb::handle timeout_s) {
    const Busy busy(*this);
    if (unfinished_ != Unfinished::kNothing) return nb::int_(kUnfinished);
    if (needs_end_episode()) return nb::int_(kNeedsEndEpisode);
    const double p = call_priority(priority);
    if (const Status s = ensure_row(timeout_s); s != Status::kOk) return nb::int_(static_cast<int>(s));
    const std::vector<uint64_t> before = writer_.present();
    if (const Status s = written(context_->write_step(writer_, step, values_deadline(timeout_s))); s != Status::kOk) {
      return nb::int_(static_cast<int>(s));
    }
    writer_.mark_all();
    return finish_with_items(before, p, timeout_s);
  }

  // Writes the columns that `arrays` has (None: absent; NO_VALUE: a heap column without one) into the open row, beginning one if
  // need be; it stays open.
  // With `finish` it is finished with its items, as in append().
  nb::object write_open(nb::object arrays, bool finish, nb::handle priority, nb::handle timeout_s) {
    const Busy busy(*this);
    if (unfinished_ != Unfinished::kNothing) return nb::int_(kUnfinished);
    const double p = call_priority(priority);
    if (const Status s = ensure_row(timeout_s); s != Status::kOk) return nb::int_(static_cast<int>(s));
    const std::vector<uint64_t> before = writer_.present();
    if (const Status s = written(context_->write_arrays(writer_, arrays, false, values_deadline(timeout_s))); s != Status::kOk) {
      return nb::int_(static_cast<int>(s));
    }
    return finish ? finish_with_items(before, p, timeout_s) : nb::object(nb::int_(0));
  }

  // Puts in what is left of the items of an append() that failed half-way. Answers as that.
  nb::object go_on(nb::handle timeout_s) {
    const Busy busy(*this);
    if (unfinished_ != Unfinished::kAppend) return nb::int_(kUnfinished);
    return put_items_and_finish({}, timeout_s);
  }

  // Columns that the open row has; empty when none is open.
  std::vector<uint32_t> present() const {
    std::vector<uint32_t> columns;
    for (uint32_t c = 0; writer_.row_is_open() && c < context_->plan->columns().size(); ++c) {
      if (writer_.has(c) && context_->plan->columns()[c].flags != kPerItemColumn) columns.push_back(c);
    }
    return columns;
  }

  // An item of the newest `length` steps, the open row included. Its key, or -status, or kBadPriority, or kLacksColumn:
  // a row that ended an episode may lack columns, and only as the item's last step can they be left out.
  // `values`: what it brings for per-item columns, a uint8 array, or None.
  int64_t create_item(uint32_t length, nb::handle priority, nb::handle timeout_s, nb::handle values) {
    const Busy busy(*this);
    if (unfinished_ != Unfinished::kNothing) return kUnfinished;
    const double p = priority_of(priority, *context_->facts);
    if (!priority.is_none() && first_bad_priority(&p, 1) != kAllGood) return TableHandle::kBadPriority;
    if (length == 0 || length > writer_.num_steps()) return -static_cast<int64_t>(Status::kHistory);
    if (length - (writer_.row_is_open() ? 1 : 0) > writer_.num_whole()) return kLacksColumn;
    PreparedPattern& pattern = span_pattern();
    int64_t key = 0;
    BlockRef brought;
    if (const Status s = bring_values(writer_.first_of(length), values, timeout_s, brought); s != Status::kOk) {
      return -static_cast<int64_t>(s);
    }
    Status status = writer_.create_item(*context_->facts, pattern, length, p, kTryOnly, key, brought);
    if (status == Status::kTimeout) {
      GilPatience patience(context_->observer.ptr());
      const Wait wait{deadline_of(timeout_s), &patience};
      const GilRelease release;
      status = writer_.create_item(*context_->facts, pattern, length, p, wait, key, brought);
    }
    writer_.end_values(status == Status::kOk);
    if (status == Status::kInterrupted) throw nb::python_error();
    return status == Status::kOk ? key : -static_cast<int64_t>(status);
  }

  // A selection for create_selected(), a rule whose reference is the newest step, at a number up to how many there are.
  void set_selection(uint32_t number, nb::dict rule) {
    const Busy busy(*this);
    ItemRule read = read_rule(rule);
    read.prepare();
    if (number >= selections_.size()) selections_.resize(number + 1);
    selections_[number] = std::move(read);
  }

  // An item by that selection, with `values` as create_item(). Its key, -status, kBadPriority, or (status, step, column) of a
  // missing cell.
  nb::object create_selected(uint32_t selection, nb::handle priority, nb::handle timeout_s, nb::handle values) {
    const Busy busy(*this);
    if (forked()) return nb::int_(-static_cast<int>(Status::kForked));
    if (unfinished_ != Unfinished::kNothing) return nb::int_(kUnfinished);
    const double p = priority_of(priority, *context_->facts);
    if (!priority.is_none() && first_bad_priority(&p, 1) != kAllGood) return nb::int_(TableHandle::kBadPriority);
    if (writer_.num_steps() == 0) return nb::int_(-static_cast<int>(Status::kHistory));
    begin_look();
    ItemRule::Missing missing{};
    writer_.look_at_finished(!writer_.row_is_open());
    Status s = selections_.at(selection).on_demand(writer_, formats_, due_, missing);
    writer_.look_at_finished(false);
    if (s == Status::kMissingCell) return missing_cell(s, missing);
    for (DueItem& due : due_) due.priority = p;
    int64_t key = 0;
    if (s == Status::kOk && !due_.empty()) s = bring_values(due_[0].first, values, timeout_s, due_[0].values);
    if (s == Status::kOk) s = insert_due(timeout_s, &key);
    writer_.end_values(s == Status::kOk);
    due_.clear();
    if (s == Status::kInterrupted) throw nb::python_error();
    return s == Status::kOk ? nb::int_(key) : nb::int_(-static_cast<int>(s));
  }

  // The open row, if any, is the final step; the items that are due now go in. Their keys, or as append(), or
  // kNeedsFinalStep. A call that timed out goes on where it was when it is repeated.
  nb::object end_episode(bool clear_history, nb::handle priority, nb::handle timeout_s) {
    const Busy busy(*this);
    if (forked()) return nb::int_(static_cast<int>(Status::kForked));
    if (unfinished_ == Unfinished::kAppend) return nb::int_(kUnfinished);
    if (unfinished_ == Unfinished::kNothing) {
      nb::object refusal = find_due_at_end(clear_history, call_priority(priority));
      if (!refusal.is_none()) return refusal;
    }
    const Status s = insert_due(timeout_s, keys_.data());
    unfinished_ = s != Status::kOk && due_done_ > 0 ? Unfinished::kEnd : Unfinished::kNothing;
    if (s != Status::kOk) {
      if (due_done_ == 0) forget();
      if (s == Status::kInterrupted) throw nb::python_error();
      return nb::int_(static_cast<int>(s));
    }
    for (ItemRule& rule : rules_) rule.applied();
    writer_.end_episode(clears_);
    ended_ = truncated_now_ = false;
    return key_array();
  }

  int close(nb::handle timeout_s) {
    const Busy busy(*this);
    GilPatience patience(context_->observer.ptr());
    const Wait wait{deadline_of(timeout_s), &patience};
    Status status;
    {
      const GilRelease release;
      status = writer_.close(wait);
    }
    if (status == Status::kInterrupted) throw nb::python_error();
    return static_cast<int>(status);
  }

  // A copy of one cell; None if the step lacks the column. Of a heap column the bytes (uint8), or NO_VALUE.
  nb::object read_cell(uint64_t step, uint32_t column) const {
    const uint64_t newest = writer_.oldest_held() + writer_.num_steps();
    if (step < writer_.oldest_held() || step >= newest || column >= context_->plan->columns().size()) {
      raise_error("InternalError", "a step that is not held was read; please report");
    }
    if (!writer_.has(step, column)) return nb::none();
    const PlanColumn& c = context_->plan->columns()[column];
    if (c.is_opaque) return read_value(step, column);
    auto* descr = reinterpret_cast<PyArray_Descr*>(c.descr.ptr());
    Py_INCREF(reinterpret_cast<PyObject*>(descr));  // NewFromDescr steals it
    PyObject* array = PyArray_NewFromDescr(&PyArray_Type, descr, static_cast<int>(c.shape.size()),
                                           const_cast<npy_intp*>(c.shape.data()), nullptr, nullptr, 0, nullptr);
    if (array == nullptr) throw nb::python_error();
    auto* to = static_cast<char*>(PyArray_DATA(reinterpret_cast<PyArrayObject*>(array)));
    if (c.flags == kMutableColumn) writer_.read_mutable(step, column, to);
    else std::memcpy(to, writer_.cell(step, column), c.row_bytes);
    return nb::steal(array);
  }

  void restore_row(const std::vector<uint32_t>& columns) {
    std::vector<uint64_t> present(writer_.present().size(), 0);
    for (const uint32_t c : columns) present.at(c / 64) |= uint64_t{1} << (c % 64);
    writer_.restore_row(present);
  }

  bool is_ending() const { return unfinished_ == Unfinished::kEnd; }
  bool is_unfinished() const { return unfinished_ != Unfinished::kNothing; }
  // Index of the table whose limiter did not admit the call that timed out, or -1.
  int blocking_table() const { return writer_.blocking_table() == kNone ? -1 : static_cast<int>(writer_.blocking_table()); }
  uint64_t oldest_step() const { return writer_.oldest_held(); }
  bool row_is_open() const { return writer_.row_is_open(); }
  bool needs_end_episode() const { return ended_ && !across_episodes_; }
  uint32_t num_steps() const { return writer_.num_steps(); }
  uint32_t num_whole() const { return writer_.num_whole(); }
  uint64_t episode_steps() const { return writer_.episode_steps(); }
  bool forked() const { return context_->arena->forked(); }

 private:
  // A writer belongs to one call at a time.
  class Busy {
   public:
    explicit Busy(WriterHandle& w) : w_(w), call_(w.context_->arena->calls()) {
      if (w_.busy_.test_and_set(std::memory_order_acquire)) {  // SYNC POINT with ~Busy: one call's rows, then the next's
        raise_error("ShmReplayError", "table '" + w_.context_->facts->name +
                                          "': the writer is in use by another thread; give each thread a writer of its own");
      }
    }
    ~Busy() { w_.busy_.clear(std::memory_order_release); }
    Busy(const Busy&) = delete;
    Busy& operator=(const Busy&) = delete;

    // Whether the session is still there to be written under.
    bool begun() const noexcept { return call_.begun(); }

   private:
    WriterHandle& w_;
    CallInFlight call_;
  };

  Status ensure_row(nb::handle timeout_s) {
    if (context_->arena->forked()) return Status::kForked;
    if (writer_.row_is_open() || (writer_.is_open() && writer_.rows_left() > 0)) return writer_.ensure_row(kTryOnly);
    GilPatience patience(context_->observer.ptr());
    const Wait wait{deadline_of(timeout_s), &patience};
    Status status = Status::kOk;
    {
      const GilRelease release;
      if (!writer_.is_open()) status = writer_.open(wait);
      if (status == Status::kOk) status = writer_.ensure_row(wait);
    }
    if (status == Status::kInterrupted) throw nb::python_error();
    return status;
  }

  // When the wait for blocks ends. 0 where there are none: a step without values never waits for any.
  int64_t values_deadline(nb::handle timeout_s) const { return context_->plan->has_opaque() ? deadline_of(timeout_s) : 0; }

  static Status written(Status status) {
    if (status == Status::kInterrupted) throw nb::python_error();
    return status;
  }

  Status bring_values(uint64_t first, nb::handle values, nb::handle timeout_s, BlockRef& ref) {
    ref = kNoValue;
    if (values.is_none()) return Status::kOk;
    return written(context_->bring_values(writer_, first, values, deadline_of(timeout_s), ref));
  }

  nb::object read_value(uint64_t step, uint32_t column) const {
    const BlockRef ref = context_->is_heap(column) ? writer_.value(step, column) : kNoValue;
    const int64_t size = size_of_value(*context_->arena, ref);
    if (size < 0) return nb::borrow(no_value());
    nb::object array = new_array(NPY_UINT8, static_cast<npy_intp>(size));
    writer_.read_value(step, ref, array_data<char>(array));
    return array;
  }

  // Terminated wins over truncated: what comes behind it does not count.
  void note_end() {
    bool truncated = false, terminated = false;
    for (const uint32_t c : end_columns_) {
      if (writer_.has(c) && *writer_.cell(c) != 0) (static_cast<int>(c) == truncated_ ? truncated : terminated) = true;
    }
    ended_ |= truncated || terminated;
    truncated_now_ = truncated && !terminated;
  }

  nb::object key_array() const {
    nb::object array = new_array(NPY_INT64, static_cast<npy_intp>(keys_.size()));
    if (!keys_.empty()) std::memcpy(array_data<int64_t>(array), keys_.data(), keys_.size() * sizeof(int64_t));
    return array;
  }

  static nb::object missing_cell(Status status, const ItemRule::Missing& missing) {
    return nb::make_tuple(static_cast<int>(status), missing.step, missing.column);
  }

  double call_priority(nb::handle priority) const {
    const double p = priority_of(priority, *context_->facts);
    if (!priority.is_none() && first_bad_priority(&p, 1) != kAllGood) {
      const nb::str text = nb::repr(priority);
      raise_error("ValueError", "table '" + context_->facts->name + "': priority is " + text.c_str() +
                                    "; priorities must be finite and >= 0");
    }
    return p;
  }

  // The look is over: its items are due, at the call's priority where their rules do not say.
  void take_due(double priority) {
    for (DueItem& due : due_) due.priority = due.priority < 0 ? priority : due.priority;
    keys_.assign(due_.size(), 0);
  }

  void begin_look() {
    due_.clear();
    due_done_ = 0;
  }

  void forget() {
    for (ItemRule& rule : rules_) rule.forget();
    due_.clear();
  }

  // What is left of due_, first without waiting.
  Status insert_due(nb::handle timeout_s, int64_t* keys) {
    const auto left = [&] { return static_cast<uint32_t>(due_.size()) - due_done_; };
    if (left() == 0) return Status::kOk;
    uint32_t done = 0;
    Status status = writer_.insert_due(due_.data() + due_done_, left(), kTryOnly, keys + due_done_, done);
    due_done_ += done;
    if (status != Status::kTimeout) return status;
    GilPatience patience(context_->observer.ptr());
    const Wait wait{deadline_of(timeout_s), &patience};
    nb::gil_scoped_release release;
    status = writer_.insert_due(due_.data() + due_done_, left(), wait, keys + due_done_, done);
    due_done_ += done;
    return status;
  }

  nb::object finish_with_items(const std::vector<uint64_t>& before, double priority, nb::handle timeout_s) {
    begin_look();
    ItemRule::Missing missing{};
    Status s = Status::kOk;
    for (size_t i = 0; i < rules_.size() && s == Status::kOk; ++i) s = rules_[i].on_step(writer_, formats_, due_, missing);
    if (s != Status::kOk) {
      forget();
      writer_.restore_row(before);
      return s == Status::kMissingCell ? missing_cell(s, missing) : nb::object(nb::int_(static_cast<int>(s)));
    }
    take_due(priority);
    return put_items_and_finish(before, timeout_s);
  }

  nb::object put_items_and_finish(const std::vector<uint64_t>& before, nb::handle timeout_s) {
    const Status s = insert_due(timeout_s, keys_.data());
    unfinished_ = s != Status::kOk && due_done_ > 0 ? Unfinished::kAppend : Unfinished::kNothing;
    if (s != Status::kOk) {
      if (due_done_ == 0) {
        forget();
        writer_.restore_row(before);
      }
      if (s == Status::kInterrupted) throw nb::python_error();
      return nb::int_(static_cast<int>(s));
    }
    for (ItemRule& rule : rules_) rule.applied();
    note_end();
    writer_.finish_row();
    return rules_.empty() ? nb::object(nb::int_(0)) : key_array();
  }

  // None, or what end_episode() has to answer instead.
  nb::object find_due_at_end(bool clear_history, double priority) {
    const bool has_final = writer_.row_is_open();
    const auto wants_final = [&](const ItemRule& r) { return r.wants_final() && (clear_history || r.reach != Reach::kStretch); };
    if (truncated_now_ && !has_final && std::any_of(rules_.begin(), rules_.end(), wants_final)) return nb::int_(kNeedsFinalStep);
    begin_look();
    ItemRule::Missing missing{};
    Status s = Status::kOk;
    writer_.look_at_finished(!has_final);
    if (writer_.num_steps() > 0) {
      for (size_t i = 0; i < rules_.size() && s == Status::kOk; ++i) {
        s = rules_[i].on_end(writer_, has_final, clear_history, formats_, due_, missing);
      }
    }
    writer_.look_at_finished(false);
    if (s != Status::kOk) {
      forget();
      return s == Status::kMissingCell ? missing_cell(s, missing) : nb::object(nb::int_(static_cast<int>(s)));
    }
    take_due(priority);
    clears_ = clear_history;
    return nb::none();
  }

  PreparedPattern& span_pattern() {
    std::vector<bool> lacking;
    if (writer_.row_is_open() && writer_.lacks_any()) {
      for (uint32_t c = 0; c < context_->plan->columns().size(); ++c) lacking.push_back(!writer_.has(c));
    }
    auto& prepared = patterns_[lacking];
    if (prepared == nullptr) {
      prepared = std::make_unique<PreparedPattern>(
          whole_step_pattern(context_->bound_plan(), false, lacking));
    }
    return *prepared;
  }

  std::shared_ptr<TableContext> context_;
  std::vector<uint32_t> end_columns_;
  int truncated_;
  bool across_episodes_;
  StreamWriter writer_;
  std::vector<NumberFormat> formats_;
  std::vector<ItemRule> rules_, selections_;
  std::vector<DueItem> due_;              // of the look under way
  uint32_t due_done_ = 0;
  std::vector<int64_t> keys_;             // of due_
  enum class Unfinished { kNothing, kAppend, kEnd };
  Unfinished unfinished_ = Unfinished::kNothing;  // what failed when some of its items were in
  bool clears_ = true;                    // whether the end under way clears the history
  bool truncated_now_ = false;            // the last finished row's
  std::map<std::vector<bool>, std::unique_ptr<PreparedPattern>> patterns_;
  bool ended_ = false;
  std::atomic_flag busy_ = ATOMIC_FLAG_INIT;
};

}  // namespace shmreplay
