// _core.ShardBatch: one batch drawn from the shards of a table. See shard_draw.h.
#include <memory>
#include <utility>
#include <vector>

#include "native_table.h"
#include "read/shard_draw.h"

using namespace nb::literals;

namespace shmreplay {
namespace {

class ShardBatch {
 public:
  // `tables`: the native table of each shard, all bound. `options`, `layout`, `out`: as in NativeTable::sample.
  // `timeout_s`: for all calls together.
  ShardBatch(nb::list tables, const SampleOptions& options, const BatchLayout* layout, nb::handle out,
             nb::handle timeout_s)
      : tables_(read_tables(tables)),
        options_(options),
        deadline_ns_(deadline_of(timeout_s)),
        given_(plan(), layout, out, options.n),
        batch_(plan(), options.n, layout, given_),
        draw_(shards(), options.n) {
    options_.most_rows = given_.most_rows();
    std::vector<const TableRecord*> records;
    for (const NativeTable* t : tables_) records.push_back(t->context()->facts->record);
    batch_.set_shards(std::move(records));
  }

  bool arrays_are_right() const { return given_.are_right(); }
  uint32_t open() const { return draw_.open(); }
  uint32_t done() const { return draw_.done(); }
  uint32_t shard() const { return draw_.shard(); }

  // One round: (status, exception of a signal handler or None). `uniforms` float64 [2 * open].
  nb::tuple draw(nb::handle uniforms) {
    if (!arrays_are_right()) raise_error("InternalError", "a batch into arrays that do not fit; please report");
    options_.uniforms = double_array(uniforms, 2 * static_cast<npy_intp>(open()), "uniforms");
    std::vector<std::unique_ptr<Pool<SampleCall>::Loan>> loans;
    std::vector<SampleCall*> calls;
    for (NativeTable* t : tables_) {
      Arena& arena = *t->context()->arena;
      loans.push_back(
          std::make_unique<Pool<SampleCall>::Loan>(t->calls(), [&] { return std::make_unique<SampleCall>(arena); }));
      calls.push_back(&**loans.back());
    }
    const Status status = run([&](const Wait& wait) { return draw_.draw(calls, options_, wait, batch_); });
    for (auto& loan : loans) loan->keep_if_usable(status);
    return outcome(handle_signals(status));
  }

  // Waits until some shard may serve. Answers as draw().
  nb::tuple wait() {
    return outcome(run([&](const Wait& wait) { return draw_.wait(options_.count, wait); }));
  }

  // Gets the live items of int64 `keys`, which are all of one shard. Answers (status, how many there are, their indices
  // in `keys`, exception of a signal handler or None).
  nb::tuple get(uint32_t shard, nb::handle keys) {
    if (shard >= tables_.size()) throw nb::index_error("no shard of that number");
    const auto k = copied<int64_t>(keys, NPY_INT64, "keys: expected a contiguous int64 array of one axis");
    nb::object found = new_array(NPY_UINT32, static_cast<npy_intp>(k.size()));
    auto* to = array_data<uint32_t>(found);
    Arena& arena = *tables_[shard]->context()->arena;
    Pool<SampleCall>::Loan call(tables_[shard]->calls(), [&] { return std::make_unique<SampleCall>(arena); });
    const uint32_t before = done();
    const Status status = call.keep_if_usable(run([&](const Wait& wait) {
      return draw_.get(shard, *call, k.data(), static_cast<uint32_t>(k.size()), wait, batch_, to).status;
    }));
    const nb::tuple ended = outcome(handle_signals(status));
    return nb::make_tuple(ended[0], done() - before, found, ended[1]);
  }

  // (batch as in sample(), smallest probability). The items are at the front of every array: in the order in which they
  // were drawn or, if given, in `order`, the places of all of them. Asked again, it answers the same.
  nb::tuple release(nb::handle order, bool time_major) {
    if (!released_.is_valid()) {
      if (std::exchange(is_taken_, true)) raise_error("MemoryError", "there was no memory to hand out what was drawn");
      nb::tuple batch = batch_.release();
      if (!order.is_none()) move_to_front(batch, nb::borrow(order), time_major);
      else if (done() < options_.n) move_to_front(batch, places(), time_major);
      released_ = std::move(batch);
    }
    return nb::make_tuple(released_, draw_.smallest_probability());
  }

 private:
  std::vector<NativeTable*> read_tables(const nb::list& tables) {
    if (nb::len(tables) == 0 || nb::len(tables) > kMaxShards) throw nb::index_error("shards: expected 1 to 128 tables");
    std::vector<NativeTable*> found;
    for (nb::handle t : tables) {
      found.push_back(nb::cast<NativeTable*>(t));
      keep_.push_back(nb::borrow(t));
    }
    return found;
  }
  nb::object places() const {
    nb::object found = new_array(NPY_UINT32, done());
    std::copy_n(draw_.places().begin(), done(), array_data<uint32_t>(found));
    return found;
  }

  // No Python code runs in between, so no signal's handler can end it half-way.
  static void move_to_front(const nb::tuple& batch, const nb::object& from, bool time_major) {
    const nb::object front = nb::slice(nb::int_(0), nb::int_(nb::len(from)), nb::int_(1));
    const nb::object all = nb::slice(nb::none(), nb::none(), nb::none());
    const auto move = [&](nb::handle array, bool second_axis) {
      if (array.is_none()) return;
      nb::object values = nb::borrow(array);
      if (!second_axis) values[front] = nb::object(values[from]);
      else values[nb::make_tuple(all, front)] = nb::object(values[nb::make_tuple(all, from)]);
    };
    const nb::object squeezed = batch[BatchPart::kSqueezed];
    for (const int part : {BatchPart::kData, BatchPart::kMasks}) {
      for (size_t o = 0; o < nb::len(squeezed); ++o)
        move(nb::object(batch[part][o]), time_major && !nb::cast<bool>(squeezed[o]));
    }
    for (nb::handle lengths : nb::borrow<nb::list>(batch[BatchPart::kLengths])) move(lengths, false);
    for (int part = BatchPart::kFirstNumber; part <= BatchPart::kLastNumber; ++part)
      move(nb::object(batch[part]), false);
  }

  const StepPlan& plan() const { return tables_.front()->context()->bound_plan(); }
  std::vector<Shard> shards() const {
    std::vector<Shard> found;
    for (const NativeTable* t : tables_) found.push_back({t->context()->arena.get(), t->context()->facts});
    return found;
  }

  // Runs core work on all shards with the GIL released.
  template <class Work>
  Status run(Work work) {
    GilPatience patience = tables_.front()->context()->patience();
    const Wait wait{deadline_ns_, &patience};
    std::vector<std::unique_ptr<CallInFlight>> calls;
    for (const NativeTable* t : tables_) {
      calls.push_back(std::make_unique<CallInFlight>(t->context()->arena->calls()));
      if (!calls.back()->begun()) return Status::kSessionLost;
    }
    const GilRelease release;
    try {
      return work(wait);
    } catch (const CorruptIndex&) {
      tables_[draw_.shard()]->context()->arena->mark_failed();  // a gather saw damage, outside any hold
      throw;
    }
  }

  // A signal with items in hand does not raise here: the caller hands the items out before it raises.
  nb::tuple outcome(Status status) {
    nb::object raised = nb::none();
    if (status == Status::kInterrupted) {
      if (done() == 0) throw nb::python_error();
      raised = take_raised();
    }
    return nb::make_tuple(static_cast<int>(status), raised);
  }

  std::vector<nb::object> keep_;
  std::vector<NativeTable*> tables_;
  SampleOptions options_;
  int64_t deadline_ns_;
  GivenArrays given_;
  NumpyBatch batch_;
  ShardDraw draw_;
  nb::object released_;    // the batch, once release() has made it
  bool is_taken_ = false;  // whether release() has begun
};

// Sends priorities to the shards that their keys belong to, in the order given. Answers (status, updated, the shard at
// which it ended early or 0, position of the first bad priority or -1). With a bad priority nothing was changed. Keys
// of no shard are skipped.
inline nb::tuple update_shards(nb::list tables, nb::handle keys, nb::handle priorities, nb::handle timeout_s) {
  const auto k = copied<int64_t>(keys, NPY_INT64, "keys: expected a contiguous int64 array of one axis");
  const auto n = static_cast<uint32_t>(k.size());
  const double* given = double_array(priorities, n, "priorities");
  const std::vector<double> p(given, given + n);  // a copy: another thread may change the array
  const uint32_t bad = nb::len(tables) == 0
                           ? kAllGood
                           : first_bad_priority(*nb::cast<NativeTable*>(tables[0])->context()->facts, p.data(), n);
  if (bad != kAllGood) return nb::make_tuple(0, 0, 0, static_cast<int64_t>(bad));
  std::vector<std::vector<int64_t>> own_keys(nb::len(tables));
  std::vector<std::vector<double>> own_priorities(own_keys.size());
  for (uint32_t i = 0; i < n; ++i) {
    const auto shard = static_cast<uint64_t>(k[i]) >> kShardShift;  // a negative key is of no shard
    if (shard >= own_keys.size()) continue;
    own_keys[shard].push_back(k[i]);
    own_priorities[shard].push_back(p[i]);
  }
  const int64_t deadline_ns = deadline_of(timeout_s);
  uint64_t updated = 0;
  for (size_t s = 0; s < own_keys.size(); ++s) {
    if (own_keys[s].empty()) continue;
    const std::shared_ptr<TableContext> context = nb::cast<NativeTable*>(tables[s])->context();
    GilPatience patience = context->patience();
    uint32_t here = 0;
    Status status;
    {
      const GilRelease release;
      status = update_priorities(*context->arena, *context->facts, own_keys[s].data(), own_priorities[s].data(),
                                 static_cast<uint32_t>(own_keys[s].size()), {deadline_ns, &patience}, here);
    }
    if (status == Status::kInterrupted) throw nb::python_error();
    updated += here;
    if (status != Status::kOk) return nb::make_tuple(static_cast<int>(status), updated, s, -1);
  }
  return nb::make_tuple(0, updated, 0, -1);
}

}  // namespace

void bind_shard_batch(nb::module_& m) {
  nb::class_<ShardBatch>(m, "ShardBatch", "A batch drawn from several tables as from one.")
      .def(nb::init<nb::list, const SampleOptions&, const BatchLayout*, nb::handle, nb::handle>(), "tables"_a,
           "options"_a, "layout"_a.none(), "out"_a.none(), "timeout_s"_a.none(), nb::keep_alive<1, 4>())
      .def("draw", &ShardBatch::draw, "uniforms"_a)
      .def("wait", &ShardBatch::wait)
      .def("get", &ShardBatch::get, "shard"_a, "keys"_a)
      .def("release", &ShardBatch::release, "order"_a.none(), "time_major"_a)
      .def_prop_ro("arrays_are_right", &ShardBatch::arrays_are_right)
      .def_prop_ro("open", &ShardBatch::open)
      .def_prop_ro("done", &ShardBatch::done)
      .def_prop_ro("shard", &ShardBatch::shard);

  m.def("update_shards", &update_shards, "tables"_a, "keys"_a, "priorities"_a, "timeout_s"_a.none(),
        "New priorities for items of several tables, by their keys.");
}

}  // namespace shmreplay
