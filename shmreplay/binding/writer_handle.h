// _core.Writer: one stream written from Python.
#pragma once

#include <atomic>
#include <map>

#include "table_handle.h"

namespace shmreplay {

class WriterHandle {
 public:
  static constexpr int kNeedsEndEpisode = -101;  // what append() answers behind a row that ended its episode
  static constexpr int kLacksColumn = -102;      // what create_item() answers when a finished step lacks a column

  // `end_columns`: bool columns of shape () that end an episode when true.
  WriterHandle(const TableHandle& table, uint32_t history, std::vector<uint32_t> end_columns)
      : context_(table.context()), end_columns_(std::move(end_columns)), writer_(*context_->arena, *context_->facts, history) {}

  // Writes and finishes a whole row. 0, a status, or kNeedsEndEpisode.
  int append(nb::handle step, nb::handle timeout_s) {
    const Busy busy(*this);
    if (ended_) return kNeedsEndEpisode;
    if (const Status s = ensure_row(timeout_s); s != Status::kOk) return static_cast<int>(s);
    context_->write_step(writer_, step);
    for (uint32_t c = 0; c < context_->plan->columns().size(); ++c) writer_.mark(c);
    note_end();
    writer_.finish_row();
    return 0;
  }

  // Writes the columns that `arrays` has (None: absent) into the open row, beginning one if need be; it stays open.
  int write_open(nb::object arrays, nb::handle timeout_s) {
    const Busy busy(*this);
    if (const Status s = ensure_row(timeout_s); s != Status::kOk) return static_cast<int>(s);
    const std::vector<PyArrayObject*> rows = context_->checked_arrays(arrays, 0);
    for (uint32_t c = 0; c < rows.size(); ++c) {
      if (rows[c] == nullptr || writer_.has(c)) continue;
      std::memcpy(writer_.cell(c), PyArray_DATA(rows[c]), context_->plan->columns()[c].row_bytes);
      writer_.mark(c);
    }
    return 0;
  }

  // Columns that the open row has; empty when none is open.
  std::vector<uint32_t> present() const {
    std::vector<uint32_t> columns;
    for (uint32_t c = 0; writer_.row_is_open() && c < context_->plan->columns().size(); ++c) {
      if (writer_.has(c)) columns.push_back(c);
    }
    return columns;
  }

  void finish_row() {
    const Busy busy(*this);
    note_end();
    writer_.finish_row();
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

  // 0 or a status.
  int end_episode(bool clear_history) {
    const Busy busy(*this);
    if (forked()) return static_cast<int>(Status::kForked);
    writer_.end_episode(clear_history);
    ended_ = false;
    return 0;
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
    for (const uint32_t c : end_columns_) ended_ |= writer_.has(c) && *writer_.cell(c) != 0;
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
  StreamWriter writer_;
  std::map<std::vector<bool>, std::unique_ptr<PreparedPattern>> patterns_;
  bool ended_ = false;
  std::atomic_flag busy_ = ATOMIC_FLAG_INIT;
};

}  // namespace shmreplay
