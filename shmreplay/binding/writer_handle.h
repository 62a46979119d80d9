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
  }

  // Writes and finishes a whole row, with the items that rules make of it: all of that or nothing. Their keys (int64), or a
  // status, or kNeedsEndEpisode, or (status, step, column) of a missing cell.
  nb::object append(nb::handle step, nb::handle priority, nb::handle timeout_s) {
    const Busy busy(*this);
    if (ended_ && !across_episodes_) return nb::int_(kNeedsEndEpisode);
    if (const Status s = ensure_row(timeout_s); s != Status::kOk) return nb::int_(static_cast<int>(s));
    const std::vector<uint64_t> before = writer_.present();
    context_->write_step(writer_, step);
    for (uint32_t c = 0; c < context_->plan->columns().size(); ++c) writer_.mark(c);
    return finish_with_items(before, priority, timeout_s);
  }

  // Writes the columns that `arrays` has (None: absent) into the open row, beginning one if need be; it stays open.
  // With `finish` it is finished with its items, as in append().
  nb::object write_open(nb::object arrays, bool finish, nb::handle priority, nb::handle timeout_s) {
    const Busy busy(*this);
    if (const Status s = ensure_row(timeout_s); s != Status::kOk) return nb::int_(static_cast<int>(s));
    const std::vector<uint64_t> before = writer_.present();
    const std::vector<PyArrayObject*> rows = context_->checked_arrays(arrays, 0);
    for (uint32_t c = 0; c < rows.size(); ++c) {
      if (rows[c] == nullptr || writer_.has(c)) continue;
      std::memcpy(writer_.cell(c), PyArray_DATA(rows[c]), context_->plan->columns()[c].row_bytes);
      writer_.mark(c);
    }
    return finish ? finish_with_items(before, priority, timeout_s) : nb::object(nb::int_(0));
  }

  // Columns that the open row has; empty when none is open.
  std::vector<uint32_t> present() const {
    std::vector<uint32_t> columns;
    for (uint32_t c = 0; writer_.row_is_open() && c < context_->plan->columns().size(); ++c) {
      if (writer_.has(c)) columns.push_back(c);
    }
    return columns;
  }

  // An item of the newest `length` steps, the open row included. Its key, or -status, or kBadPriority, or kLacksColumn:
  // a row that ended an episode may lack columns, and only as the item's last step can they be left out.
  int64_t create_item(uint32_t length, nb::handle priority, nb::handle timeout_s) {
    const Busy busy(*this);
    const double p = priority_of(priority, *context_->facts);
    if (!priority.is_none() && first_bad_priority(&p, 1) != kAllGood) return TableHandle::kBadPriority;
    if (length == 0 || length > writer_.num_steps()) return -static_cast<int64_t>(Status::kHistory);
    if (length - (writer_.row_is_open() ? 1 : 0) > writer_.num_whole()) return kLacksColumn;
    PreparedPattern& pattern = span_pattern();
    int64_t key = 0;
    Status status = writer_.create_item(*context_->facts, pattern, length, p, kTryOnly, key);
    if (status == Status::kTimeout) {
      GilPatience patience(context_->observer.ptr());
      const Wait wait{deadline_of(timeout_s), &patience};
      const GilRelease release;
      status = writer_.create_item(*context_->facts, pattern, length, p, wait, key);
    }
    if (status == Status::kInterrupted) throw nb::python_error();
    return status == Status::kOk ? key : -static_cast<int64_t>(status);
  }

  // A selection for create_selected(): a rule whose reference is the newest step. Its number.
  uint32_t add_selection(nb::dict rule) {
    selections_.push_back(read_rule(rule));
    return static_cast<uint32_t>(selections_.size() - 1);
  }

  // An item by that selection. Its key, -status, kBadPriority, or (status, step, column) of a missing cell.
  nb::object create_selected(uint32_t selection, nb::handle priority, nb::handle timeout_s) {
    const Busy busy(*this);
    if (forked()) return nb::int_(-static_cast<int>(Status::kForked));
    const double p = priority_of(priority, *context_->facts);
    if (!priority.is_none() && first_bad_priority(&p, 1) != kAllGood) return nb::int_(TableHandle::kBadPriority);
    if (writer_.num_steps() == 0) return nb::int_(-static_cast<int>(Status::kHistory));
    due_.clear();
    due_done_ = 0;
    ItemRule::Missing missing{};
    writer_.look_at_finished(!writer_.row_is_open());
    Status s = selections_.at(selection).on_demand(writer_, formats_, due_, missing);
    writer_.look_at_finished(false);
    if (s == Status::kMissingCell) return missing_cell(s, missing);
    for (DueItem& due : due_) due.priority = p;
    int64_t key = 0;
    if (s == Status::kOk) s = insert_due(timeout_s, &key);
    due_.clear();
    if (s == Status::kInterrupted) throw nb::python_error();
    return s == Status::kOk ? nb::int_(key) : nb::int_(-static_cast<int>(s));
  }

  // The open row, if any, is the final step; the items that are due now go in. Their keys, or as append(), or
  // kNeedsFinalStep. A call that timed out goes on where it was when it is repeated.
  nb::object end_episode(bool clear_history, nb::handle priority, nb::handle timeout_s) {
    const Busy busy(*this);
    if (forked()) return nb::int_(static_cast<int>(Status::kForked));
    if (!ending_) {
      nb::object refusal = find_due_at_end(priority);
      if (!refusal.is_none()) return refusal;
    }
    const Status s = insert_due(timeout_s, end_keys_.data());
    if (s != Status::kOk) {
      if (s == Status::kInterrupted) throw nb::python_error();
      if (due_done_ == 0) stop_ending();
      return nb::int_(static_cast<int>(s));
    }
    for (ItemRule& rule : rules_) rule.applied();
    nb::object keys = key_array(end_keys_);
    stop_ending();
    writer_.end_episode(clear_history);
    ended_ = truncated_now_ = false;
    return keys;
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

  // A copy of one cell; None if the step lacks the column.
  nb::object read_cell(uint64_t step, uint32_t column) const {
    const uint64_t newest = writer_.oldest_held() + writer_.num_steps();
    if (step < writer_.oldest_held() || step >= newest || column >= context_->plan->columns().size()) {
      raise_error("InternalError", "a step that is not held was read; please report");
    }
    if (!writer_.has(step, column)) return nb::none();
    const PlanColumn& c = context_->plan->columns()[column];
    auto* descr = reinterpret_cast<PyArray_Descr*>(c.descr.ptr());
    Py_INCREF(descr);  // NewFromDescr steals it
    PyObject* array = PyArray_NewFromDescr(&PyArray_Type, descr, static_cast<int>(c.shape.size()),
                                           const_cast<npy_intp*>(c.shape.data()), nullptr, nullptr, 0, nullptr);
    if (array == nullptr) throw nb::python_error();
    std::memcpy(PyArray_DATA(reinterpret_cast<PyArrayObject*>(array)), writer_.cell(step, column), c.row_bytes);
    return nb::steal(array);
  }

  void restore_row(const std::vector<uint32_t>& columns) {
    std::vector<uint64_t> present(writer_.present().size(), 0);
    for (const uint32_t c : columns) present.at(c / 64) |= uint64_t{1} << (c % 64);
    writer_.restore_row(present);
  }

  bool is_ending() const { return ending_; }
  uint64_t oldest_step() const { return writer_.oldest_held(); }
  bool row_is_open() const { return writer_.row_is_open(); }
  bool needs_end_episode() const { return ended_; }
  uint32_t num_steps() const { return writer_.num_steps(); }
  uint32_t num_whole() const { return writer_.num_whole(); }
  uint64_t episode_steps() const { return writer_.episode_steps(); }
  bool forked() const { return context_->arena->forked(); }

 private:
  // A writer belongs to one call at a time.
  class Busy {
   public:
    explicit Busy(WriterHandle& w) : w_(w) {
      if (w_.busy_.test_and_set(std::memory_order_acquire)) {  // SYNC POINT with ~Busy: one call's rows, then the next's
        raise_error("ShmReplayError", "table '" + w_.context_->facts->name +
                                          "': the writer is in use by another thread; give each thread a writer of its own");
      }
    }
    ~Busy() { w_.busy_.clear(std::memory_order_release); }
    Busy(const Busy&) = delete;
    Busy& operator=(const Busy&) = delete;

   private:
    WriterHandle& w_;
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

  void note_end() {
    for (const uint32_t c : end_columns_) {
      const bool is_true = writer_.has(c) && *writer_.cell(c) != 0;
      ended_ |= is_true;
      if (static_cast<int>(c) == truncated_) truncated_now_ = is_true;
    }
  }

  static nb::object key_array(const std::vector<int64_t>& keys) {
    nb::object array = new_array(NPY_INT64, static_cast<npy_intp>(keys.size()));
    if (!keys.empty()) std::memcpy(array_data<int64_t>(array), keys.data(), keys.size() * sizeof(int64_t));
    return array;
  }

  static nb::object missing_cell(Status status, const ItemRule::Missing& missing) {
    return nb::make_tuple(static_cast<int>(status), missing.step, missing.column);
  }

  void use_call_priority(nb::handle priority) {
    const double p = priority_of(priority, *context_->facts);
    if (!priority.is_none() && first_bad_priority(&p, 1) != kAllGood) {
      const nb::str text = nb::repr(priority);
      raise_error("ValueError", "table '" + context_->facts->name + "': priority is " + text.c_str() +
                                    "; priorities must be finite and >= 0");
    }
    for (DueItem& due : due_) due.priority = due.priority < 0 ? p : due.priority;
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

  nb::object finish_with_items(const std::vector<uint64_t>& before, nb::handle priority, nb::handle timeout_s) {
    due_.clear();
    due_done_ = 0;
    ItemRule::Missing missing{};
    Status s = Status::kOk;
    for (size_t i = 0; i < rules_.size() && s == Status::kOk; ++i) s = rules_[i].on_step(writer_, formats_, due_, missing);
    std::vector<int64_t> keys(due_.size());
    if (s == Status::kOk) {
      if (!due_.empty()) use_call_priority(priority);
      s = insert_due(timeout_s, keys.data());
    }
    if (s != Status::kOk) {
      for (ItemRule& rule : rules_) rule.forget();
      writer_.restore_row(before);
      if (s == Status::kInterrupted) throw nb::python_error();
      return s == Status::kMissingCell ? missing_cell(s, missing) : nb::object(nb::int_(static_cast<int>(s)));
    }
    for (ItemRule& rule : rules_) rule.applied();
    note_end();
    writer_.finish_row();
    return rules_.empty() ? nb::object(nb::int_(0)) : key_array(keys);
  }

  // None, or what end_episode() has to answer instead.
  nb::object find_due_at_end(nb::handle priority) {
    const bool has_final = writer_.row_is_open();
    if (truncated_now_ && !has_final && std::any_of(rules_.begin(), rules_.end(), [](const ItemRule& r) { return r.wants_final(); })) {
      return nb::int_(kNeedsFinalStep);
    }
    due_.clear();
    due_done_ = 0;
    ItemRule::Missing missing{};
    Status s = Status::kOk;
    writer_.look_at_finished(!has_final);
    if (writer_.num_steps() > 0) {
      for (size_t i = 0; i < rules_.size() && s == Status::kOk; ++i) s = rules_[i].on_end(writer_, has_final, formats_, due_, missing);
    }
    writer_.look_at_finished(false);
    if (s != Status::kOk) {
      for (ItemRule& rule : rules_) rule.forget();
      due_.clear();
      return s == Status::kMissingCell ? missing_cell(s, missing) : nb::object(nb::int_(static_cast<int>(s)));
    }
    if (!due_.empty()) use_call_priority(priority);
    end_keys_.assign(due_.size(), 0);
    ending_ = true;
    return nb::none();
  }

  void stop_ending() {
    ending_ = false;
    due_.clear();
    due_done_ = 0;
  }

  PreparedPattern& span_pattern() {
    std::vector<bool> lacking;
    if (writer_.row_is_open() && writer_.lacks_any()) {
      for (uint32_t c = 0; c < context_->plan->columns().size(); ++c) lacking.push_back(!writer_.has(c));
    }
    auto& prepared = patterns_[lacking];
    if (prepared == nullptr) {
      prepared = std::make_unique<PreparedPattern>(
          whole_step_pattern(static_cast<uint32_t>(context_->bound_plan().columns().size()), false, lacking));
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
  bool ending_ = false;                   // end_episode() began and has items left
  std::vector<int64_t> end_keys_;
  bool truncated_now_ = false;            // the last finished row's
  std::map<std::vector<bool>, std::unique_ptr<PreparedPattern>> patterns_;
  bool ended_ = false;
  std::atomic_flag busy_ = ATOMIC_FLAG_INIT;
};

}  // namespace shmreplay
