// _core.Table: one table of a mapped arena. Control calls raise; data calls answer status codes beside what was done, so
// that the Python side can explain a block with its numbers and hand out a partial batch.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "arena_handle.h"
#include "batch_values.h"
#include "data_update.h"
#include "extremes.h"
#include "long_work.h"
#include "numpy_arrays.h"
#include "numpy_batch.h"
#include "reweigh.h"
#include "table_context.h"

namespace shmreplay {

class TableHandle {
 public:
  // What insert() answers for a priority that is not finite, negative or too large; beyond the core's statuses.
  static constexpr int64_t kBadPriority = -100;
  // What sample() answers for arrays that are not as the layout has them.
  static constexpr int kWrongArrays = -101;

  TableHandle(const ArenaHandle& arena, uint32_t index) : context_(std::make_shared<TableContext>()) {
    context_->arena = arena.shared();
    if (index >= context_->arena->num_tables()) throw nb::index_error("no table of that index in the arena");
    context_->facts = &context_->arena->table(index);
  }

  ~TableHandle() {
    const GilRelease release;  // closing streams may wait for the lock
    writers_.clear();
  }

  const std::shared_ptr<TableContext>& context() const { return context_; }

  void bind(nb::handle plan, nb::sequence columns, nb::object canonical, nb::object canonical_batch, nb::object observer) {
    context_->plan = std::make_unique<StepPlan>(plan, columns, std::move(canonical));
    context_->canonical_batch = std::move(canonical_batch);
    context_->observer = std::move(observer);
    if (context_->plan->columns().size() != arena().geometry().num_columns) {
      raise_error("LayoutMismatch", where() + ": its signature has " + std::to_string(context_->plan->columns().size()) +
                                        " columns, the arena " + std::to_string(arena().geometry().num_columns));
    }
    for (size_t c = 0; c < context_->plan->columns().size(); ++c) {
      const PlanColumn& column = context_->plan->columns()[c];
      const uint32_t flags = arena().columns()[c].flags;
      const bool same = column.is_opaque ? flags == kHeapColumn || flags == kPerItemColumn
                                         : (flags & ~uint32_t{kMutableColumn}) == 0 && column.row_bytes == arena().columns()[c].row_bytes;
      if (!same) raise_error("LayoutMismatch", where() + ": column " + std::to_string(c) + " has rows of another kind or size in the arena");
      context_->plan->set_flags(c, flags);
    }
    step_pattern_ = std::make_unique<PreparedPattern>(whole_step_pattern(arena(), true, {}));
  }

  // ---- inserting ---------------------------------------------------------------------------------------------------

  // The item's key, or -status, or kBadPriority. `values`: what the item brings for per-item columns, a uint8 array, or None.
  int64_t insert(nb::handle step, nb::handle priority, nb::handle timeout_s, nb::handle values) {
    if (arena().forked()) return -static_cast<int64_t>(Status::kForked);  // the pooled rows are the parent's
    const CallInFlight call(arena().calls());
    if (!call.begun()) return -static_cast<int64_t>(Status::kSessionLost);
    const double p = priority_of(priority, facts());
    if (!priority.is_none() && first_bad_priority(&p, 1) != kAllGood) return kBadPriority;
    const int64_t deadline = deadline_of(timeout_s);
    Loan<StreamWriter> writer(*this, writers_, [&] { return new_writer(); });
    int64_t key = 0;
    const Status status = writer.keep_if_usable(insert_with(*writer, step, p, deadline, values, key));
    if (status == Status::kInterrupted) throw nb::python_error();
    return status == Status::kOk ? key : -static_cast<int64_t>(status);
  }

  // (status, how many went in, keys [N], exception of a signal handler or None, position of the first bad priority or -1);
  // `priorities` float64 [N] contiguous or None. With a bad priority nothing went in. `values`: as for insert(), a list of N.
  nb::tuple insert_batch(nb::handle steps, nb::handle priorities, nb::handle timeout_s, nb::handle values) {
    if (arena().forked()) return nb::make_tuple(static_cast<int>(Status::kForked), 0, nb::none(), nb::none(), -1);
    const CallInFlight call(arena().calls());
    if (!call.begun()) return nb::make_tuple(static_cast<int>(Status::kSessionLost), 0, nb::none(), nb::none(), -1);
    std::vector<PyArrayObject*> arrays;
    npy_intp n = -1;
    nb::object converted;
    if (!context_->bound_plan().batch(steps.ptr(), arrays, n)) {
      const nb::object pair = outlive_interpreter([&] { return context_->canonical_batch(steps); });
      converted = pair[0];
      n = nb::cast<npy_intp>(pair[1]);
      arrays = context_->checked_arrays(converted, 1);
    }
    const std::vector<double> p = priorities_of(priorities, n);
    const uint32_t bad = priorities.is_none() ? kAllGood : first_bad_priority(p.data(), static_cast<uint32_t>(n));
    if (bad != kAllGood) return nb::make_tuple(0, 0, nb::none(), nb::none(), static_cast<int64_t>(bad));
    std::vector<nb::object> keep;  // the caller's structure may change while the GIL is released
    for (PyArrayObject* a : arrays) keep.push_back(nb::borrow(reinterpret_cast<PyObject*>(a)));
    const BatchValues heap(*context_, arrays, values, static_cast<size_t>(n));
    nb::object keys = new_array(NPY_INT64, n);
    GilPatience patience = context_->patience();
    const Wait wait{deadline_of(timeout_s), &patience};
    Loan<StreamWriter> writer(*this, writers_, [&] { return new_writer(); });
    uint32_t done = 0;
    Status status;
    {
      const GilRelease release;
      status = insert_rows(*writer, arrays, heap, p, static_cast<uint32_t>(n), wait, array_data<int64_t>(keys), done);
    }
    writer.keep_if_usable(status);
    status = handle_signals(status);
    nb::object raised = status == Status::kInterrupted ? take_raised() : nb::none();
    return nb::make_tuple(static_cast<int>(status), done, keys, raised, -1);
  }

  // ---- reading -----------------------------------------------------------------------------------------------------

  // How the table's items are structured: (status, names, [(column, squeezed, rows of the longest)]), or (status, None, None) while
  // there has never been an item; with `waits` as sample() waits for one.
  nb::tuple structure(bool waits, bool count, nb::handle timeout_s) {
    nb::object names = nb::none(), outputs = nb::none();
    const SampleResult result = read(timeout_s, [&](SampleCall& call, const Wait& wait) {
      const Pattern* found = nullptr;
      const Status status = call.structure(facts(), waits, count, wait, found);
      if (found != nullptr) {
        const GilAcquire gil;
        names = nb::bytes(found->names.data(), found->names.size());
        nb::list list;
        for (size_t o = 0; o < found->outputs.size(); ++o) {
          const PatternOutput& out = found->outputs[o];
          list.append(nb::make_tuple(out.column, (out.flags & kSqueezed) != 0, call.rows()[o]));
        }
        outputs = list;
      }
      return SampleResult{status, 0, 0, 0};
    });
    if (result.status == Status::kInterrupted) throw nb::python_error();
    return nb::make_tuple(static_cast<int>(result.status), names, outputs);
  }

  // (status, items, batch or None, smallest probability of the table, exception of a signal handler or None, items that there
  // were to be drawn, of a distinct call); `uniforms` float64 [n]; `layout` or None; `out` a list of an array for each of its
  // outputs, or None.
  nb::tuple sample(uint32_t n, uint32_t at_least, bool count, bool distinct, nb::handle uniforms, nb::handle timeout_s,
                   const BatchLayout* layout, nb::handle out) {
    auto* u = double_array(uniforms, n, "uniforms");
    const GivenArrays given(context_->bound_plan(), layout, out, n);
    if (!given.are_right()) return nb::make_tuple(kWrongArrays, 0, nb::none(), 0.0, nb::none(), 0);
    NumpyBatch batch(context_->bound_plan(), n, layout, &given);
    const std::vector<uint32_t>* most_rows = layout == nullptr ? nullptr : given.empty() ? &layout->most_rows() : &given.most_rows();
    return read_batch(batch, timeout_s, [&](SampleCall& call, const Wait& wait) {
      return call.sample(facts(), {n, at_least, count, u, most_rows, distinct}, wait, batch);
    });
  }

  // (status, items, batch or None, indices of the live keys, exception of a signal handler or None); `keys` int64 [n] contiguous.
  nb::tuple get(nb::handle keys, nb::handle timeout_s, const BatchLayout* layout) {
    const std::vector<int64_t> k = keys_of(keys);
    const auto n = static_cast<uint32_t>(k.size());
    nb::object found = new_array(NPY_UINT32, n);
    auto* to = array_data<uint32_t>(found);
    NumpyBatch batch(context_->bound_plan(), n, layout);
    nb::tuple result = read_batch(batch, timeout_s, [&](SampleCall& call, const Wait& wait) {
      return call.get(facts(), k.data(), n, wait, batch, to);
    });
    return nb::make_tuple(result[0], result[1], result[2], found, result[4]);
  }

  nb::object keys() const {
    std::vector<int64_t> keys;
    {
      const GilRelease release;
      keys = live_keys(arena(), facts());
    }
    nb::object out = new_array(NPY_INT64, static_cast<npy_intp>(keys.size()));
    if (!keys.empty()) std::memcpy(array_data<int64_t>(out), keys.data(), keys.size() * 8);
    return out;
  }

  // ---- changing ----------------------------------------------------------------------------------------------------

  // (status, updated, position of the first bad priority or -1: then nothing was changed).
  nb::tuple update_priorities(nb::handle keys, nb::handle priorities, nb::handle timeout_s) {
    const std::vector<int64_t> k = keys_of(keys);
    const auto n = static_cast<uint32_t>(k.size());
    const double* given = double_array(priorities, n, "priorities");
    const std::vector<double> p(given, given + n);  // what was checked is what is written, whatever another thread does
    const uint32_t bad = first_bad_priority(p.data(), n);
    if (bad != kAllGood) return nb::make_tuple(0, 0, static_cast<int64_t>(bad));
    uint32_t updated = 0;
    const Status status = run_for_status(timeout_s, [&](Arena& a, const Wait& w) {
      return shmreplay::update_priorities(a, facts(), k.data(), p.data(), n, w, updated);
    });
    return nb::make_tuple(static_cast<int>(status), updated, -1);
  }

  // (status, items that were there). `updates`: (column, array [K, k, *shape], contiguous, exact) of mutable columns; row j of
  // an item goes to position at + j of its padded span, if a real step is there.
  nb::tuple update_data(nb::handle keys, nb::sequence updates, uint32_t at, nb::handle timeout_s) {
    const std::vector<int64_t> k = keys_of(keys);
    npy_intp num_steps = -1;
    std::vector<ColumnUpdate> columns;
    std::vector<nb::object> keep;
    for (nb::handle update : updates) {
      const auto c = nb::cast<uint32_t>(update[0]);
      keep.push_back(nb::borrow(nb::object(update[1])));
      auto* array = reinterpret_cast<PyArrayObject*>(keep.back().ptr());
      const bool fits = c < context_->bound_plan().columns().size() && context_->plan->columns()[c].flags == kMutableColumn &&
                        StepPlan::is_exact(context_->plan->columns()[c], keep.back().ptr(), 2) &&
                        PyArray_DIM(array, 0) == static_cast<npy_intp>(k.size()) && (num_steps < 0 || PyArray_DIM(array, 1) == num_steps);
      if (!fits) raise_error("InternalError", context_->column_name(c) + " was updated with another shape or dtype; please report");
      num_steps = PyArray_DIM(array, 1);
      columns.push_back({c, static_cast<const char*>(PyArray_DATA(array))});
    }
    const CallInFlight call(arena().calls());
    if (!call.begun()) return nb::make_tuple(static_cast<int>(Status::kSessionLost), 0);
    uint32_t updated = 0;
    const Status status = run_for_status(timeout_s, [&](Arena& a, const Wait& w) {
      return shmreplay::update_data(a, facts(), k.data(), static_cast<uint32_t>(k.size()), columns, at,
                                    static_cast<uint32_t>(std::max<npy_intp>(num_steps, 0)), w, updated);
    });
    return nb::make_tuple(static_cast<int>(status), updated);
  }

  nb::tuple remove(nb::handle keys, nb::handle timeout_s) {
    const std::vector<int64_t> k = keys_of(keys);
    uint32_t deleted = 0;
    const Status status = run_for_status(timeout_s, [&](Arena& a, const Wait& w) {
      return delete_items(a, facts(), k.data(), static_cast<uint32_t>(k.size()), w, deleted);
    });
    return nb::make_tuple(static_cast<int>(status), deleted);
  }

  // ---- control -----------------------------------------------------------------------------------------------------

  void reset(nb::handle timeout_s) {
    raise_status(run_for_status(timeout_s, [&](Arena& a, const Wait& w) { return reset_table(a, facts(), w); }), where());
  }

  void set_rate_limiter(double samples_per_insert, int64_t min_size_to_sample, double min_diff, double max_diff,
                        bool count_deletes, bool rebase, nb::handle timeout_s) {
    const LimiterNumbers numbers{samples_per_insert, min_diff, max_diff, min_size_to_sample, count_deletes};
    raise_status(run_for_status(timeout_s, [&](Arena& a, const Wait& w) { return change_limiter(a, facts(), numbers, rebase, w); }),
                 where());
  }

  // Of a table with a Prioritized sampler.
  void set_priority_exponent(double exponent, nb::handle timeout_s) {
    if (!facts().prioritized()) raise_error("InternalError", where() + ": its sampler has no priority exponent; please report");
    raise_status(run_for_status(timeout_s, [&](Arena& a, const Wait& w) {
      return shmreplay::set_priority_exponent(a, facts(), exponent, w);
    }), where());
  }

  void pause(bool inserts, bool samples, nb::handle timeout_s) {
    const uint32_t flags = (inserts ? kPausedInserts : 0u) | (samples ? kPausedSamples : 0u);
    raise_status(run_for_status(timeout_s, [&](Arena& a, const Wait& w) { return change_flags(a, facts(), flags, 0, w); }), where());
  }

  void resume(nb::handle timeout_s) {
    const uint32_t clear = kPausedInserts | kPausedSamples;
    raise_status(run_for_status(timeout_s, [&](Arena& a, const Wait& w) { return change_flags(a, facts(), 0, clear, w); }), where());
  }

  // Ends the waits of this handle's calls, by whatever its observer then raises; those to come as well.
  void end_waits() const {
    context_->waits_ended.store(true, std::memory_order_seq_cst);
    wake_sleepers(arena(), facts());
  }

  bool can_insert(uint64_t n) const { return shmreplay::can_insert(*facts().record, n); }
  bool can_sample(uint64_t n) const { return can_sample_now(arena(), facts(), n); }
  uint64_t size() const { return facts().record->size.get(); }
  bool dropped() const { return (facts().record->flags.get() & kDropped) != 0; }

  nb::dict info() const {
    const TableRecord& r = *facts().record;
    const LimiterReport l = report(r);
    nb::dict d;
    d["name"] = facts().name;
    d["size"] = r.size.get();
    d["max_size"] = facts().max_size;
    d["inserts"] = l.inserts;
    d["samples"] = l.samples;
    d["deletes"] = l.deletes;
    d["num_episodes"] = r.num_episodes.get();
    d["num_deleted_episodes"] = r.num_deleted_episodes.get();
    d["num_unique_samples"] = r.num_unique_samples.get();
    d["evicted"] = r.evicted.get();
    d["evicted_for_room"] = r.evicted_for_room.get();
    d["max_times_sampled"] = facts().max_times_sampled;
    d["sampler"] = facts().roles[kSampler].kind;
    d["remover"] = facts().roles[kRemover].kind;
    d["sampler_exponent"] = r.exponents[kSampler].get();
    d["remover_exponent"] = r.exponents[kRemover].get();
    d["capacity_steps"] = uint64_t{arena().geometry().num_chunks} * arena().geometry().chunk_steps;
    d["samples_per_insert"] = l.samples_per_insert;
    d["min_size_to_sample"] = l.min_size_to_sample;
    d["min_diff"] = l.min_diff;
    d["max_diff"] = l.max_diff;
    d["difference"] = l.difference();
    d["uncounted"] = l.uncounted;
    d["count_deletes"] = r.limiter.count_deletes.get() != 0;
    d["paused_inserts"] = (l.flags & kPausedInserts) != 0;
    d["paused_samples"] = (l.flags & kPausedSamples) != 0;
    d["is_dropped"] = (l.flags & kDropped) != 0;
    const char* sides[] = {"inserts", "samples"};
    for (int side = 0; side < 2; ++side) {
      const WaitSide& s = r.sides[side];
      d[(std::string("blocked_") + sides[side]).c_str()] = s.sleepers.get();
      d[(std::string("blocked_") + sides[side] + "_total").c_str()] = s.blocked_calls.get();
      d[(std::string("blocked_") + sides[side] + "_s").c_str()] = static_cast<double>(s.blocked_ns.get()) * 1e-9;
    }
    d["last_insert_s_ago"] = seconds_since(r.last_insert_ns.get());
    d["last_sample_s_ago"] = seconds_since(r.last_sample_ns.get());
    const ArenaState& s = arena().state();
    d["bytes"] = s.num_used.get() * arena().geometry().chunk_bytes +
                 (arena().geometry().num_blocks - s.num_free_blocks.get()) * arena().geometry().block_bytes;
    return d;
  }

  // (smallest positive or 0, largest or 0, sum) of the live priorities, read without the lock.
  nb::tuple priority_stats() const {
    double smallest = 0, largest = 0, sum = 0;
    {
      const GilRelease release;
      for (uint32_t slot = 0; slot < facts().capacity; ++slot) {
        const double p = arena().priority(static_cast<uint32_t>(facts().item_base + slot)).get();
        if (p > 0) smallest = smallest == 0 ? p : std::min(smallest, p);
        largest = std::max(largest, p);
        sum += p;
      }
    }
    return nb::make_tuple(smallest, largest, sum);
  }

 private:
  Arena& arena() const { return *context_->arena; }
  const TableFacts& facts() const { return *context_->facts; }
  std::string where() const { return "table '" + facts().name + "'"; }

  static nb::object seconds_since(uint64_t ns) {
    if (ns == 0) return nb::none();
    return nb::float_(std::max(0.0, static_cast<double>(static_cast<int64_t>(coarse_now_ns() - ns)) * 1e-9));
  }

  template <class Work>
  Status run_for_status(nb::handle timeout_s, Work work) const {
    GilPatience patience = context_->patience();
    const Wait wait{deadline_of(timeout_s), &patience};
    Status status;
    {
      const GilRelease release;
      status = work(arena(), wait);
    }
    if (status == Status::kInterrupted) throw nb::python_error();
    return status;
  }

  static std::vector<int64_t> keys_of(nb::handle keys) {
    return copied<int64_t>(keys, NPY_INT64, "keys: expected a contiguous int64 array of one axis");
  }

  std::vector<double> priorities_of(nb::handle priorities, npy_intp n) const {
    if (priorities.is_none()) return std::vector<double>(static_cast<size_t>(n), -1.0);
    const npy_intp have = PyArray_Check(priorities.ptr()) ? PyArray_SIZE(reinterpret_cast<PyArrayObject*>(priorities.ptr())) : n;
    if (have != n) {
      raise_error("ValueError", where() + ": " + std::to_string(have) + " priorities for " + std::to_string(n) +
                                    " steps; expected one a step");
    }
    const double* p = double_array(priorities, n, "priorities");
    return {p, p + n};
  }

  // First with the GIL and without waiting: the common case is over before a release would pay.
  Status insert_with(StreamWriter& writer, nb::handle step, double priority, int64_t deadline, nb::handle values, int64_t& key) {
    GilPatience patience = context_->patience();
    const Wait wait{deadline, &patience};
    if (!writer.is_open() || writer.rows_left() == 0) {
      const GilRelease release;
      if (!writer.is_open()) {
        if (const Status s = writer.open(wait); s != Status::kOk) return s;
      }
      if (const Status s = writer.ensure_row(wait); s != Status::kOk) return s;
    }
    ValueBytes brought;
    uint64_t blocks = 0;
    if (context_->plan->has_opaque()) {
      writer.give_up_rows();  // of a call that failed
      brought = value_bytes(values.ptr(), context_->values_name());
      blocks = blocks_for(arena(), brought, context_->values_name());
    }
    if (const Status s = context_->write_step(writer, step, deadline, blocks); s != Status::kOk) return s;
    const BlockRef ref = brought.size < 0 ? kNoValue : writer.write_item_value(brought.data, static_cast<uint32_t>(brought.size));
    uint32_t done = 0;
    Status status = writer.insert_rows(facts(), *step_pattern_, &priority, 1, kTryOnly, &key, done, {false, true, &ref});
    if (status == Status::kTimeout) {
      const GilRelease release;
      status = writer.insert_rows(facts(), *step_pattern_, &priority, 1, wait, &key, done, {false, true, &ref});
    }
    return status;
  }

  Status insert_rows(StreamWriter& writer, const std::vector<PyArrayObject*>& arrays, const BatchValues& heap,
                     const std::vector<double>& priorities, uint32_t n, const Wait& wait, int64_t* keys, uint32_t& done) const {
    if (!writer.is_open()) {
      if (const Status s = writer.open(wait); s != Status::kOk) return s;
    }
    LongWork work(wait);
    std::vector<BlockRef> brought;
    for (done = 0; done < n;) {
      if (const Status s = writer.ensure_row(wait); s != Status::kOk) return s;
      uint32_t k = std::min(writer.rows_left(), n - done);
      writer.give_up_rows();  // of a call that failed
      if (!heap.empty()) {
        if (const Status s = heap.secure(writer, done, wait, k); s != Status::kOk) return s;
        heap.write(writer, done, k, brought);
      }
      for (uint32_t c = 0; c < arrays.size(); ++c) {
        if (context_->plan->columns()[c].is_opaque) continue;
        writer.write_rows(c, static_cast<const char*>(PyArray_DATA(arrays[c])) + done * context_->plan->columns()[c].row_bytes, k);
      }
      uint32_t went_in = 0;
      const Status s = writer.insert_rows(facts(), *step_pattern_, priorities.data() + done, k, wait, keys + done, went_in,
                                          {false, true, heap.empty() ? nullptr : brought.data()});
      done += went_in;
      if (s != Status::kOk) return s;
      if (done < n && work.interrupted(went_in)) return Status::kInterrupted;
    }
    return Status::kOk;
  }

  // Runs one call that reads items, with the GIL released.
  template <class Call>
  SampleResult read(nb::handle timeout_s, Call call) {
    GilPatience patience = context_->patience();
    const Wait wait{deadline_of(timeout_s), &patience};
    Loan<SampleCall> scratch(*this, calls_, [&] { return std::make_unique<SampleCall>(arena()); });
    SampleResult result{Status::kSessionLost, 0, 0, 0};
    {
      const CallInFlight in_flight(arena().calls());
      const GilRelease release;
      try {
        if (in_flight.begun()) result = call(*scratch, wait);
      } catch (const CorruptIndex&) {
        arena().mark_failed();  // damage seen by a gather, outside any hold
        throw;
      }
    }
    scratch.keep_if_usable(result.status);
    result.status = handle_signals(result.status);
    return result;
  }

  template <class Call>
  nb::tuple read_batch(NumpyBatch& batch, nb::handle timeout_s, Call call) {
    const SampleResult result = read(timeout_s, call);
    if (result.status == Status::kInterrupted && result.done == 0) throw nb::python_error();
    // An interrupt with items in hand: they are handed out, and the signal's exception is raised by the caller after them.
    nb::object raised = nb::none();
    if (result.status == Status::kInterrupted) raised = take_raised();
    nb::object parts = result.done > 0 ? nb::object(batch.release()) : nb::none();
    return nb::make_tuple(static_cast<int>(result.status), result.done, parts, result.smallest_probability, raised, result.available);
  }

  // A writer or scratch out of a pool, for one call: a call that meets no other finds the last one's, its chunk half full
  // and its patterns decoded. It goes back unless the call's outcome makes it suspect.
  template <class T>
  class Loan {
   public:
    template <class Make>
    Loan(TableHandle& table, std::vector<std::unique_ptr<T>>& pool, Make make) : table_(table), pool_(pool) {
      {
        std::lock_guard lock(table_.pool_mutex_);
        if (!pool_.empty()) {
          thing_ = std::move(pool_.back());
          pool_.pop_back();
        }
      }
      if (thing_ == nullptr) thing_ = make();
    }
    ~Loan() {
      if (thing_ == nullptr || !usable_) return;
      std::lock_guard lock(table_.pool_mutex_);
      pool_.push_back(std::move(thing_));
    }
    Loan(const Loan&) = delete;
    Loan& operator=(const Loan&) = delete;
    T& operator*() const { return *thing_; }

    Status keep_if_usable(Status status) {
      usable_ = status != Status::kSessionLost && status != Status::kForked && status != Status::kFailed;
      return status;
    }

   private:
    TableHandle& table_;
    std::vector<std::unique_ptr<T>>& pool_;
    std::unique_ptr<T> thing_;
    bool usable_ = true;
  };

  std::unique_ptr<StreamWriter> new_writer() const {
    (void)context_->bound_plan();
    return std::make_unique<StreamWriter>(arena(), facts(), 0);
  }

  std::shared_ptr<TableContext> context_;
  std::unique_ptr<PreparedPattern> step_pattern_;
  std::mutex pool_mutex_;
  std::vector<std::unique_ptr<StreamWriter>> writers_;
  std::vector<std::unique_ptr<SampleCall>> calls_;
};

}  // namespace shmreplay
