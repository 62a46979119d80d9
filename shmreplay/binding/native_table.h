// _core.Table: one table of a mapped arena. Control calls raise. Data calls answer status codes together with what was
// done, so that the Python side can explain a blocked call with its numbers and hand out a partial batch.
#pragma once

#include <memory>
#include <vector>

#include "exported_array.h"
#include "extend_call.h"
#include "item_places.h"
#include "items/data_update.h"
#include "items/item_survey.h"
#include "items/news.h"
#include "items/table_calls.h"
#include "numpy_arrays.h"
#include "numpy_batch.h"
#include "pool.h"
#include "sessions/blocked.h"
#include "step_inserts.h"
#include "surely.h"
#include "table_context.h"
#include "table_info.h"
#include "trees/extremes.h"
#include "trees/reweigh.h"
#include "view_lease.h"

namespace shmreplay {

class NativeTable {
 public:
  // What sample() answers if the caller's arrays are not as the layout says.
  static constexpr int kWrongArrays = -108;  // after those of writer_calls.h

  NativeTable(std::shared_ptr<Arena> arena, uint32_t index) : context_(std::make_shared<TableContext>()) {
    context_->arena = std::move(arena);
    if (index >= context_->arena->num_tables()) throw nb::index_error("no table of that index in the arena");
    context_->facts = &context_->arena->table(index);
  }

  const std::shared_ptr<TableContext>& context() const { return context_; }
  Pool<SampleCall>& calls() { return calls_; }

  void bind(nb::handle plan, nb::sequence columns, nb::object canonical, nb::object canonical_batch,
            nb::object observer, std::shared_ptr<const Flag> closed) {
    context_->plan = std::make_unique<StepPlan>(plan, columns, std::move(canonical));
    context_->canonical_batch = std::move(canonical_batch);
    context_->observer = std::move(observer);
    context_->closed = std::move(closed);
    if (context_->plan->columns().size() != arena().geometry().num_columns) {
      raise_error("LayoutMismatch", where() + ": its signature has " +
                                        std::to_string(context_->plan->columns().size()) + " columns, the arena " +
                                        std::to_string(arena().geometry().num_columns));
    }
    for (size_t c = 0; c < context_->plan->columns().size(); ++c) {
      const PlanColumn& column = context_->plan->columns()[c];
      const uint32_t flags = arena().columns()[c].flags, packed = arena().columns()[c].packed_bytes;
      // A row without bytes is not packed.
      const bool is_packed = !column.is_opaque && flags == kHeapColumn;
      const bool same =
          column.is_opaque ? (flags == kHeapColumn && packed == 0) || flags == kPerItemColumn
          : is_packed ? column.row_bytes == packed && packed > 0
                      : (flags & ~uint32_t{kMutableColumn}) == 0 && column.row_bytes == arena().columns()[c].row_bytes;
      if (!same)
        raise_error("LayoutMismatch",
                    where() + ": column " + std::to_string(c) + " has rows of another kind or size in the arena");
      context_->plan->bind(c, flags, is_packed, arena().exceeds_caches());
    }
    inserts_ = std::make_unique<StepInserts>(context_);
  }

  // ---- inserting ---------------------------------------------------------------------------------------------------

  // See StepInserts.
  int64_t insert(nb::handle step, nb::handle priority, nb::handle timeout_s, nb::handle values) {
    return bound_inserts().insert(step, priority, timeout_s, values);
  }
  nb::tuple insert_batch(nb::handle steps, nb::handle priorities, nb::handle timeout_s, nb::handle values,
                         nb::list went_in) {
    return bound_inserts().insert_batch(steps, priorities, timeout_s, values, went_in);
  }

  // See extend_table.
  nb::tuple extend(nb::object arrays, nb::handle row_ends, nb::object finals, uint32_t history, nb::tuple ends,
                   nb::list rules, bool clear_history, bool counted, nb::handle timeout_s, nb::list went_in) const {
    (void)context_->bound_plan();
    return extend_table(*context_, arrays, row_ends, finals, history, ends, rules, clear_history, counted, timeout_s,
                        went_in);
  }

  // ---- reading -----------------------------------------------------------------------------------------------------

  // The structure of the table's items: (status, names, [(column, squeezed, rows of the longest)]). While there has
  // never been an item: (status, None, None); with `waits` it waits for one as sample() does.
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
        outputs = std::move(list);
      }
      return SampleResult{status, 0, 0, 0};
    });
    if (result.status == Status::kInterrupted) throw nb::python_error();
    return nb::make_tuple(static_cast<int>(result.status), names, outputs);
  }

  // Draws by `options`, with `uniforms` float64 [n]. If it draws any items, `drawn` gets what make(batch, items,
  // smallest probability of the table) returns, before this returns or raises: a signal may raise as soon as Python
  // goes on. Answers (status, items, exception of a signal handler or None, items that a distinct call could have
  // drawn). `layout`: or None. `out`: a list with an array for each of the layout's outputs, or None.
  nb::tuple sample(const SampleOptions& options, nb::handle uniforms, nb::handle timeout_s, const BatchLayout* layout,
                   nb::handle out, nb::handle make, nb::list drawn) {
    SampleOptions draws = options;
    draws.uniforms = double_array(uniforms, options.n, "uniforms");
    const GivenArrays given(context_->bound_plan(), layout, out, options.n);
    if (!given.are_right()) return nb::make_tuple(kWrongArrays, 0, nb::none(), 0);
    draws.most_rows = given.most_rows();
    NumpyBatch batch(context_->bound_plan(), options.n, layout, given);
    nb::object raised;
    const SampleResult result = read_items(
        timeout_s, [&](SampleCall& call, const Wait& wait) { return call.sample(facts(), draws, wait, batch); },
        raised);
    if (result.done > 0) {
      const nb::tuple arguments = nb::make_tuple(batch.release(), result.done, result.smallest_probability);
      drawn.append(made_surely([&] { return PyObject_CallObject(make.ptr(), arguments.ptr()); }, raised));
    }
    return nb::make_tuple(static_cast<int>(result.status), result.done, raised, result.available);
  }

  // Answers (status, items, batch or None, indices of the live keys, exception of a signal handler or None). `keys`:
  // int64 [n], contiguous.
  nb::tuple get(nb::handle keys, nb::handle timeout_s, const BatchLayout* layout) {
    const std::vector<int64_t> k = keys_of(keys);
    const auto n = static_cast<uint32_t>(k.size());
    nb::object found = new_array(NPY_UINT32, n);
    auto* to = array_data<uint32_t>(found);
    const GivenArrays none(context_->bound_plan(), layout, nb::none(), n);
    NumpyBatch batch(context_->bound_plan(), n, layout, none);
    nb::object raised;
    const SampleResult result = read_items(
        timeout_s, [&](SampleCall& call, const Wait& wait) { return call.get(facts(), k.data(), n, wait, batch, to); },
        raised);
    const nb::object parts = result.done > 0 ? nb::object(batch.release()) : nb::none();
    return nb::make_tuple(static_cast<int>(result.status), result.done, parts, found, raised);
  }

  // Which steps the rows of items show: (status, items, indices of the live keys, ItemPlaces::release()).
  nb::tuple places(nb::handle keys, nb::handle timeout_s) {
    const std::vector<int64_t> k = keys_of(keys);
    const auto n = static_cast<uint32_t>(k.size());
    nb::object found = new_array(NPY_UINT32, n);
    auto* to = array_data<uint32_t>(found);
    ItemPlaces places;
    const SampleResult result = read(timeout_s, [&](SampleCall& call, const Wait& wait) {
      return call.look_up(facts(), k.data(), n, wait, places, to);
    });
    if (result.status == Status::kInterrupted) throw nb::python_error();
    if (places.is_damaged()) {
      arena().mark_failed();
      corrupt("an item has another structure than its table");
    }
    return nb::make_tuple(static_cast<int>(result.status), result.done, found, places.release());
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

  // All rows of a plain column, whatever is in them, on the segment itself: [num_chunks, chunk_steps, *shape],
  // read-only, for DLPack. The array keeps the mapping. Raises TypeError for a column that is not plain, whose rows are
  // stored otherwise than they are shown, and for a type that DLPack does not have.
  nb::object column(uint32_t index, int device_type, int device_id) const {
    const StepPlan& plan = context_->bound_plan();
    if (index >= plan.columns().size()) throw nb::index_error("no column of that number");
    if (plan.columns()[index].flags != 0)
      throw nb::type_error((where() + ": column " + std::to_string(index) + " does not lie plain").c_str());
    const Geometry& g = arena().geometry();
    const std::vector<LeadingAxis> axes{{g.num_chunks, static_cast<int64_t>(g.chunk_bytes)},
                                        {g.chunk_steps, arena().columns()[index].stride}};
    return exported_array(plan.columns()[index], arena().row(0, index, 0), axes, owner_of(context_->arena),
                          {device_type, device_id});
  }

  // Waits until the table has had more than `seen` inserts in its life. Answers (status, how many it has had).
  nb::tuple wait_for_insert(uint64_t seen, nb::handle timeout_s) const {
    QuietPatience patience(context_->patience());
    uint64_t found = 0;
    const Status status = run_for_status(timeout_s, patience, [&](Arena& a, const Wait& w) {
      return shmreplay::wait_for_insert(a, facts(), seen, w, found);
    });
    return nb::make_tuple(static_cast<int>(status), found);
  }

  // The number of the insert that gave this key: see find_insert_number.
  nb::tuple insert_number(int64_t key, nb::handle timeout_s) const {
    uint64_t number = 0;
    const Status status = run_for_status(
        timeout_s, [&](Arena& a, const Wait& w) { return find_insert_number(a, facts(), key, w, number); });
    return nb::make_tuple(static_cast<int>(status), number);
  }

  // ---- changing ----------------------------------------------------------------------------------------------------

  // Answers (status, updated, position of the first bad priority or -1). With a bad priority nothing was changed.
  nb::tuple update_priorities(nb::handle keys, nb::handle priorities, nb::handle timeout_s) {
    const std::vector<int64_t> k = keys_of(keys);
    const auto n = static_cast<uint32_t>(k.size());
    const double* given = double_array(priorities, n, "priorities");
    const std::vector<double> p(given, given + n);  // a copy: another thread may change the array
    const uint32_t bad = shmreplay::first_bad_priority(facts(), p.data(), n);
    if (bad != kAllGood) return nb::make_tuple(0, 0, static_cast<int64_t>(bad));
    uint32_t updated = 0;
    const Status status = run_for_status(timeout_s, [&](Arena& a, const Wait& w) {
      return shmreplay::update_priorities(a, facts(), k.data(), p.data(), n, w, updated);
    });
    return nb::make_tuple(static_cast<int>(status), updated, -1);
  }

  // Answers (status, how many of the items were live). `updates`: (column, array [K, k, *shape], contiguous, exact) of
  // mutable columns. Row j of an item goes to position at + j of its padded span, if a real step is there.
  nb::tuple update_data(nb::handle keys, nb::sequence updates, uint32_t at, nb::handle timeout_s) {
    const std::vector<int64_t> k = keys_of(keys);
    npy_intp num_steps = -1;
    std::vector<ColumnUpdate> columns;
    std::vector<Held> keep;
    for (nb::handle update : updates) {
      const auto c = nb::cast<uint32_t>(update[0]);
      keep.push_back(nb::borrow(nb::object(update[1])));
      auto* array = reinterpret_cast<PyArrayObject*>(keep.back().ptr());
      const bool fits = c < context_->bound_plan().columns().size() &&
                        context_->plan->columns()[c].flags == kMutableColumn &&
                        is_exact(context_->plan->columns()[c], keep.back().ptr(), 2) &&
                        PyArray_DIM(array, 0) == static_cast<npy_intp>(k.size()) &&
                        (num_steps < 0 || PyArray_DIM(array, 1) == num_steps);
      if (!fits)
        raise_error("InternalError",
                    context_->column_name(c) + " was updated with another shape or dtype; please report");
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

  // The position of the first priority that the table does not take now; -1: there is none.
  int64_t first_bad_priority(nb::handle priorities) const {
    const auto p =
        copied<double>(priorities, NPY_DOUBLE, "priorities: expected a contiguous float64 array of one axis");
    const uint32_t bad = shmreplay::first_bad_priority(facts(), p.data(), static_cast<uint32_t>(p.size()));
    return bad == kAllGood ? -1 : static_cast<int64_t>(bad);
  }

  // ---- control -----------------------------------------------------------------------------------------------------

  void reset(nb::handle timeout_s) {
    raise_status(run_for_status(timeout_s, [&](Arena& a, const Wait& w) { return reset_table(a, facts(), w); }),
                 where());
  }

  void set_rate_limiter(double samples_per_insert, int64_t min_size_to_sample, double min_diff, double max_diff,
                        bool count_deletes, bool rebase, nb::handle timeout_s) {
    const LimiterNumbers numbers{samples_per_insert, min_diff, max_diff, min_size_to_sample, count_deletes};
    raise_status(
        run_for_status(timeout_s,
                       [&](Arena& a, const Wait& w) { return change_limiter(a, facts(), numbers, rebase, w); }),
        where());
  }

  // Only for a table with a Prioritized sampler.
  void set_priority_exponent(double exponent, nb::handle timeout_s) {
    if (!facts().prioritized())
      raise_error("InternalError", where() + ": its sampler has no priority exponent; please report");
    const Status status = run_for_status(
        timeout_s, [&](Arena& a, const Wait& w) { return shmreplay::set_priority_exponent(a, facts(), exponent, w); });
    if (status == Status::kBadPriority) {
      raise_error("ValueError", where() + ": exponent is " + nb::str(nb::float_(exponent)).c_str() +
                                    ", but an item has a priority that no item may have then; " + expected_priority());
    }
    raise_status(status, where());
  }

  void pause(bool inserts, bool samples, nb::handle timeout_s) {
    const uint32_t flags = (inserts ? kPausedInserts : 0u) | (samples ? kPausedSamples : 0u);
    raise_status(
        run_for_status(timeout_s, [&](Arena& a, const Wait& w) { return change_flags(a, facts(), flags, 0, w); }),
        where());
  }

  void resume(nb::handle timeout_s) {
    const uint32_t clear = kPausedInserts | kPausedSamples;
    raise_status(
        run_for_status(timeout_s, [&](Arena& a, const Wait& w) { return change_flags(a, facts(), 0, clear, w); }),
        where());
  }

  // `on`: neither side is admitted, because the daemon saves a last checkpoint. Pauses are kept beside it.
  void set_stopping(bool on, nb::handle timeout_s) {
    raise_status(run_for_status(timeout_s,
                                [&](Arena& a, const Wait& w) {
                                  return change_flags(a, facts(), on ? kStopping : 0u, on ? 0u : kStopping, w);
                                }),
                 where());
  }

  // Ends the waits of this handle's calls, of later calls too: each ends with what its observer then raises.
  void end_waits() const {
    context_->waits_ended.set();
    wake_sleepers(arena(), facts());
  }

  // Joins the threads that gather batches; a call in flight joins its own when it ends. Later calls start new threads.
  void end_threads() { calls_.end(); }

  bool can_insert(uint64_t n) const { return shmreplay::can_insert(*facts().record, n); }
  bool can_sample(uint64_t n) const { return can_sample_now(arena(), facts(), n); }
  uint64_t size() const { return facts().record->size.get(); }
  uint64_t num_inserts() const { return shmreplay::num_inserts(*facts().record); }
  bool is_awaited() const { return shmreplay::is_awaited(*facts().record); }
  bool dropped() const { return (facts().record->flags.get() & kDropped) != 0; }

  nb::dict info() const { return table_info(arena(), facts()); }
  nb::tuple priority_stats() const { return shmreplay::priority_stats(arena(), facts()); }
  nb::tuple survey(uint32_t max_items) const { return shmreplay::survey(arena(), facts(), max_items); }

  nb::object origin(int64_t key, nb::handle timeout_s) const {
    std::optional<Origin> found;
    raise_status(
        run_for_status(timeout_s, [&](Arena& a, const Wait& w) { return find_origin(a, facts(), key, w, found); }),
        where());
    return origin_dict(found);
  }

 private:
  Arena& arena() const { return *context_->arena; }
  const TableFacts& facts() const { return *context_->facts; }
  std::string where() const { return "table '" + facts().name + "'"; }

  StepInserts& bound_inserts() const {
    (void)context_->bound_plan();
    return *inserts_;
  }

  template <class Work>
  Status run_for_status(nb::handle timeout_s, Work work) const {
    GilPatience patience = context_->patience();
    return run_for_status(timeout_s, patience, work);
  }

  template <class Work>
  Status run_for_status(nb::handle timeout_s, GilPatience& patience, Work work) const {
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

  // Runs one call that reads items, with the GIL released.
  template <class Call>
  SampleResult read(nb::handle timeout_s, Call call) {
    GilPatience patience = context_->patience();
    const Wait wait{deadline_of(timeout_s), &patience};
    Pool<SampleCall>::Loan scratch(calls_, [&] { return std::make_unique<SampleCall>(arena()); });
    SampleResult result{Status::kSessionLost, 0, 0, 0};
    {
      const CallInFlight in_flight(arena().calls());
      const GilRelease release;
      try {
        if (in_flight.begun()) result = call(*scratch, wait);
      } catch (const CorruptIndex&) {
        arena().mark_failed();  // a gather saw damage, outside any hold
        throw;
      }
    }
    scratch.keep_if_usable(result.status);
    result.status = handle_signals(result.status);
    return result;
  }

  // The same. `raised`: a signal came when items were already in hand. The items are handed out, and the caller raises
  // this exception of the signal's handler after that; else None.
  template <class Call>
  SampleResult read_items(nb::handle timeout_s, Call call, nb::object& raised) {
    const SampleResult result = read(timeout_s, call);
    if (result.status == Status::kInterrupted && result.done == 0) throw nb::python_error();
    raised = result.status == Status::kInterrupted ? take_raised() : nb::none();
    return result;
  }

  std::shared_ptr<TableContext> context_;
  std::unique_ptr<StepInserts> inserts_;  // once bound
  Pool<SampleCall> calls_;
};

}  // namespace shmreplay
