// insert and insert_batch of a table: each step from Python becomes an item at once, and is an episode of its own.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "base/long_work.h"
#include "batch_rows.h"
#include "batch_values.h"
#include "numpy_arrays.h"
#include "pool.h"
#include "table_context.h"
#include "trees/extremes.h"

namespace shmreplay {

class StepInserts {
 public:
  // The context's plan must be bound.
  explicit StepInserts(std::shared_ptr<TableContext> context)
      : context_(std::move(context)),
        step_pattern_(whole_step_pattern(arena(), true, {})),
        writers_(std::make_unique<Pool<StreamWriter>>()) {}

  ~StepInserts() {
    const GilRelease release;  // closing streams may wait for the lock
    writers_.reset();
  }

  // Answers the item's key, -status or kBadPriority. `values`: what the item brings for per-item columns: a uint8
  // array, or None.
  int64_t insert(nb::handle step, nb::handle priority, nb::handle timeout_s, nb::handle values) {
    if (arena().forked()) return -static_cast<int64_t>(Status::kForked);  // the pooled rows are the parent's
    const CallInFlight call(arena().calls());
    if (!call.begun()) return -static_cast<int64_t>(Status::kSessionLost);
    const double p = priority_of(priority, facts());
    if (!priority.is_none() && first_bad_priority(&p, 1) != kAllGood) return kBadPriority;
    const int64_t deadline = deadline_of(timeout_s);
    Pool<StreamWriter>::Loan writer(*writers_, [&] { return new_writer(); });
    int64_t key = 0;
    const Status status = writer.keep_if_usable(insert_with(*writer, step, p, deadline, values, key));
    if (status == Status::kInterrupted) throw nb::python_error();
    return status == Status::kOk ? key : -static_cast<int64_t>(status);
  }

  // Answers (status, exception of a signal handler or None, position of the first bad priority or -1). `priorities`:
  // float64 [N], contiguous, or None. With a bad priority nothing went in. `values`: a list of N such as insert()
  // takes, or None. `went_in` gets the keys of the items that went in, once the table may have changed.
  nb::tuple insert_batch(nb::handle steps, nb::handle priorities, nb::handle timeout_s, nb::handle values,
                         nb::list went_in) {
    if (arena().forked()) return nb::make_tuple(static_cast<int>(Status::kForked), nb::none(), -1);
    const CallInFlight call(arena().calls());
    if (!call.begun()) return nb::make_tuple(static_cast<int>(Status::kSessionLost), nb::none(), -1);
    const BatchRows rows(*context_, steps);
    const npy_intp n = rows.size();
    const std::vector<double> p = priorities_of(priorities, n);
    const uint32_t bad = priorities.is_none() ? kAllGood : first_bad_priority(p.data(), static_cast<uint32_t>(n));
    if (bad != kAllGood) return nb::make_tuple(0, nb::none(), static_cast<int64_t>(bad));
    const BatchValues heap(*context_, rows, values);
    nb::object keys = new_array(NPY_INT64, n);
    GilPatience patience = context_->patience();
    const Wait wait{deadline_of(timeout_s), &patience};
    Pool<StreamWriter>::Loan writer(*writers_, [&] { return new_writer(); });
    uint32_t done = 0;
    Status status;
    {
      const GilRelease release;
      status = insert_rows(*writer, rows, heap, p, static_cast<uint32_t>(n), wait, array_data<int64_t>(keys), done);
    }
    writer.keep_if_usable(status);
    status = handle_signals(status);
    nb::object raised = status == Status::kInterrupted ? take_raised() : nb::none();
    went_in.append(done == n ? keys : nb::object(keys[nb::slice(nb::int_(0), nb::int_(done), nb::int_(1))]));
    return nb::make_tuple(static_cast<int>(status), raised, -1);
  }

 private:
  Arena& arena() const { return *context_->arena; }
  const TableFacts& facts() const { return *context_->facts; }
  std::string where() const { return "table '" + facts().name + "'"; }

  std::unique_ptr<StreamWriter> new_writer() const { return std::make_unique<StreamWriter>(arena(), facts(), 0); }

  std::vector<double> priorities_of(nb::handle priorities, npy_intp n) const {
    if (priorities.is_none()) return std::vector<double>(static_cast<size_t>(n), -1.0);
    const npy_intp have =
        PyArray_Check(priorities.ptr()) ? PyArray_SIZE(reinterpret_cast<PyArrayObject*>(priorities.ptr())) : n;
    if (have != n) {
      raise_error("ValueError", where() + ": " + std::to_string(have) + " priorities for " + std::to_string(n) +
                                    " steps; expected one a step");
    }
    const double* p = double_array(priorities, n, "priorities");
    return {p, p + n};
  }

  // First tries with the GIL and without waiting: in the common case that takes less time than releasing the GIL.
  Status insert_with(StreamWriter& writer, nb::handle step, double priority, int64_t deadline, nb::handle values,
                     int64_t& key) {
    GilPatience patience = context_->patience();
    const Wait wait{deadline, &patience};
    if (!writer.is_open() || writer.row().rows_left() == 0) {
      const GilRelease release;
      if (!writer.is_open()) {
        if (const Status s = writer.open(wait); s != Status::kOk) return s;
      }
      if (const Status s = writer.ensure_row(wait); s != Status::kOk) return s;
    }
    ValueBytes brought;
    uint64_t blocks = 0;
    if (context_->plan->has_heap()) {
      writer.row().give_up_values();  // left by a call that failed
      brought = value_bytes(values.ptr(), context_->values_name());
      blocks = blocks_for(arena(), brought, context_->values_name());
    }
    if (const Status s = context_->write_step(writer, step, deadline, blocks); s != Status::kOk) return s;
    const BlockRef ref =
        brought.size < 0 ? kNoValue : writer.row().write_item_value(brought.data, static_cast<uint32_t>(brought.size));
    uint32_t done = 0;
    Status status =
        writer.items().insert_rows(facts(), step_pattern_, &priority, 1, kTryOnly, &key, done, {false, true, &ref});
    if (status == Status::kTimeout) {
      const GilRelease release;
      status = writer.items().insert_rows(facts(), step_pattern_, &priority, 1, wait, &key, done, {false, true, &ref});
    }
    return status;
  }

  Status insert_rows(StreamWriter& writer, const BatchRows& rows, const BatchValues& heap,
                     const std::vector<double>& priorities, uint32_t n, const Wait& wait, int64_t* keys,
                     uint32_t& done) {
    if (!writer.is_open()) {
      if (const Status s = writer.open(wait); s != Status::kOk) return s;
    }
    LongWork work(wait);
    std::vector<BlockRef> brought;
    for (done = 0; done < n;) {
      if (const Status s = writer.ensure_row(wait); s != Status::kOk) return s;
      uint32_t k = std::min(writer.row().rows_left(), n - done);
      writer.row().give_up_values();  // left by a call that failed
      if (!heap.empty()) {
        if (const Status s = heap.secure(writer, done, wait, k); s != Status::kOk) return s;
        heap.write(writer, done, k, brought);
      }
      rows.write(writer, done, k);
      uint32_t went_in = 0;
      const Status s =
          writer.items().insert_rows(facts(), step_pattern_, priorities.data() + done, k, wait, keys + done, went_in,
                                     {false, true, heap.empty() ? nullptr : brought.data()});
      done += went_in;
      if (s != Status::kOk) return s;
      if (done < n && work.interrupted(went_in)) return Status::kInterrupted;
    }
    return Status::kOk;
  }

  std::shared_ptr<TableContext> context_;
  PreparedPattern step_pattern_;
  std::unique_ptr<Pool<StreamWriter>> writers_;
};

}  // namespace shmreplay
