// _core.View: items looked at where they lie, under a lease that lasts until they are released.
#include <memory>
#include <optional>
#include <vector>

#include "exported_array.h"
#include "native_table.h"
#include "read/item_view.h"
#include "view_lease.h"

using namespace nb::literals;

namespace shmreplay {
namespace {

class NativeView : public ViewSink {
 public:
  explicit NativeView(const NativeTable& table) : context_(table.context()) {}

  // Draws by `options`, with `uniforms` float64 [n]. Called once. Answers (status, exception of a signal handler or
  // None). The first items may be copies. If the status is not kOk, all items must be copied before the
  // release.
  nb::tuple draw(const SampleOptions& options, nb::handle uniforms, nb::handle timeout_s) {
    Arena& arena = *context_->arena;
    SampleOptions draws = options;
    draws.uniforms = double_array(uniforms, options.n, "uniforms");
    (void)context_->bound_plan();
    GilPatience patience = context_->patience();
    const Wait wait{deadline_of(timeout_s), &patience};
    numbers_.emplace(options.n);
    lease_ = std::make_shared<ViewLease>(context_);
    SampleResult result{Status::kSessionLost, 0, 0};
    {
      const CallInFlight in_flight(arena.calls());
      const GilRelease release;
      try {
        if (in_flight.begun()) result = lease_->call().view(*context_->facts, draws, wait, *this);
      } catch (const CorruptIndex&) {
        arena.mark_failed();  // damage seen after the unlock, outside any hold
        throw;
      }
    }
    if (result.status == Status::kOk) lease_->set_whole();
    if (result.status == Status::kOk) count();
    smallest_probability_ = result.smallest_probability;
    result.status = handle_signals(result.status);
    nb::object raised = result.status == Status::kInterrupted ? take_raised() : nb::none();
    return nb::make_tuple(static_cast<int>(result.status), raised);
  }

  // Gives the chunks back, unless an exported array of their rows still lives. Idempotent.
  void release() {
    part_.reset();
    lease_.reset();
  }

  uint32_t num_items() const noexcept { return num_copies() + (part_ ? part_->n : 0); }

  // (keys, priorities, probabilities, times_sampled, table_size, episodes, steps, ages). The first entries are the
  // items drawn; the others mean nothing.
  nb::tuple numbers() const {
    if (!numbers_) raise_error("InternalError", "a view that drew nothing has no numbers; please report");
    return nb::make_tuple(numbers_->keys, numbers_->priorities, numbers_->probabilities, numbers_->times_sampled,
                          numbers_->table_size, numbers_->episodes, numbers_->steps, numbers_->ages);
  }

  // How many of the items are copies: the first ones, drawn before the call waited.
  uint32_t num_copies() const noexcept { return static_cast<uint32_t>(copies_.size()); }

  // As in SampleResult.
  double smallest_probability() const noexcept { return smallest_probability_; }

  // (names, squeezed, columns, data, is_view, masks or None, values, damage, insert number). From `squeezed` to the
  // masks, each has one entry for each output. Where is_view is true, the data is the arena's memory, named until
  // release(); else it is a copy. Data of per-item columns and of columns of Python's codec, `values` and `damage` are
  // as in NumpyBatch, for one item.
  nb::tuple item(uint32_t i) {
    if (i >= num_items()) throw nb::index_error("no item of that number in the view");
    if (i < copies_.size()) return nb::borrow<nb::tuple>(copies_[i]);
    return look([&](const DrawnItems& part) { return item_of(part, i - num_copies(), true); });
  }

  // (names, squeezed, columns) of the items that are not copies, with one entry for each output; None if all are
  // copies.
  nb::object structure() {
    if (!part_) return nb::none();
    const Pattern& pattern = first_pattern(*part_);
    nb::list squeezed, columns;
    for (const PatternOutput& out : pattern.outputs) {
      squeezed.append((out.flags & kSqueezed) != 0);
      columns.append(out.column);
    }
    return nb::make_tuple(nb::bytes(pattern.names.data(), pattern.names.size()), squeezed, columns);
  }

  // How many rows a batch would have of each of those outputs.
  std::vector<uint32_t> rows() {
    return look([](const DrawnItems& part) {
      return std::vector<uint32_t>(part.rows, part.rows + first_pattern(part).outputs.size());
    });
  }

  // Whether every output, over all items, is one array on the segment: see strided().
  bool is_contiguous() const noexcept { return is_contiguous_; }

  // One output of all items where they lie, [n, ...] or [n, L, ...] as in a batch, read-only. None if the items do not
  // lie at one stride.
  nb::object strided(uint32_t output) {
    return look([&](const DrawnItems& part) {
      InPlace found;
      return find_output(part, output, found) ? make_array(found.column, found.leading, found.first) : nb::none();
    });
  }

  // The same for DLPack. The array keeps the lease.
  nb::object exported(uint32_t output, int device_type, int device_id) {
    return look([&](const DrawnItems& part) {
      InPlace found;
      if (!find_output(part, output, found)) return nb::object(nb::none());
      return exported_array(context_->plan->columns()[found.column], found.first, found.leading, owner_of(lease_),
                            {device_type, device_id});
    });
  }

  // Which rows of the arena an output shows: int64 [n], or [n, L] padded as in a batch; and a bool array of the same
  // shape, as the batch's mask. A number is chunk * chunk_steps + row. It is -1 where the row is 0, and for copies.
  nb::tuple row_numbers(uint32_t output) {
    return look([&](const DrawnItems& part) {
      if (output >= first_pattern(part).outputs.size()) throw nb::index_error("no output of that number");
      const bool squeezed = (first_pattern(part).outputs[output].flags & kSqueezed) != 0;
      const uint32_t rows = part.rows[output];
      npy_intp dims[2] = {static_cast<npy_intp>(num_copies() + part.n), static_cast<npy_intp>(rows)};
      nb::object numbers = steal_array(PyArray_SimpleNew(squeezed ? 1 : 2, dims, NPY_INT64));
      nb::object is_real = steal_array(PyArray_SimpleNew(squeezed ? 1 : 2, dims, NPY_BOOL));
      auto* to = array_data<int64_t>(numbers);
      auto* real = array_data<bool>(is_real);
      to = std::fill_n(to, size_t{num_copies()} * rows, kNoRow);
      real = std::fill_n(real, size_t{num_copies()} * rows, false);
      for (uint32_t i = 0; i < part.n; ++i, to += rows, real += rows) {
        const Pattern& pattern = part.patterns.at(part.picks[i].pattern);
        if (output >= pattern.outputs.size()) corrupt("an item has another structure than its table");
        number_rows(*context_->arena, pattern, output, part.picks[i], part.runs, rows, to, real);
      }
      return nb::make_tuple(numbers, is_real);
    });
  }

  bool take(const DrawnItems& part, bool stays) noexcept override {
    const GilAcquire gil;
    try {
      numbers_->put(num_items(), part.picks, part.n);
      if (stays) keep(part);
      for (uint32_t i = 0; i < part.n && !stays; ++i) copies_.push_back(item_of(part, i, false));
      return true;
    } catch (nb::python_error& e) {
      e.restore();
    } catch (const CorruptIndex& e) {
      context_->arena->mark_failed();
      PyErr_SetString(error_class("SegmentFailed").ptr(), e.what());
    } catch (const std::exception& e) {
      PyErr_SetString(PyExc_MemoryError, e.what());
    }
    return false;
  }

 private:
  // Runs see() on the items that are not copies, under their lease. A thread that releases them or closes the client
  // meanwhile waits for it.
  template <class Look>
  auto look(Look see) -> decltype(see(std::declval<const DrawnItems&>())) {
    if (!part_) raise_error("ShmReplayError", "the items of this view were given back, or all of them are copies");
    const std::shared_ptr<ViewLease> keep = lease_;
    const DrawnItems part = *part_;
    const CallInFlight in_flight(context_->arena->calls());
    if (!in_flight.begun()) raise_status(Status::kSessionLost, "table '" + context_->facts->name + "'");
    try {
      return see(part);
    } catch (const CorruptIndex&) {
      context_->arena->mark_failed();
      throw;
    }
  }
  void keep(const DrawnItems& part) {
    part_.emplace(part);
    ItemStride stride{};
    if (copies_.empty() && find_stride(part.picks, part.n, part.runs, stride)) stride_ = stride;
    InPlace found;
    is_contiguous_ = true;
    for (uint32_t o = 0; o < first_pattern(part).outputs.size(); ++o)
      is_contiguous_ = is_contiguous_ && find_output(part, o, found);
  }

  void count() const noexcept {
    TableRecord& r = *context_->facts->record;
    // Relaxed: reports only.
    r.num_views.fetch_add(1, std::memory_order_relaxed);
    if (is_contiguous_) r.num_contiguous_views.fetch_add(1, std::memory_order_relaxed);
  }

  struct InPlace {
    uint32_t column;
    char* first;
    std::vector<LeadingAxis> leading;
  };
  bool find_output(const DrawnItems& part, uint32_t output, InPlace& found) const {
    const Pattern& pattern = first_pattern(part);
    if (output >= pattern.outputs.size()) throw nb::index_error("no output of that number");
    const bool squeezed = (pattern.outputs[output].flags & kSqueezed) != 0;
    RowsInPlace rows{};
    if (!stride_ || !find_in_place(*context_->arena, pattern, output, part.picks[0], part.runs, rows)) return false;
    if (rows.rows != part.rows[output]) return false;  // a batch would pad it
    found = {pattern.outputs[output].column, rows.first, {}};
    found.leading.push_back({part.n, stride_bytes(*context_->arena, found.column, *stride_)});
    if (!squeezed) found.leading.push_back({rows.rows, rows.stride_bytes});
    return true;
  }

  static const Pattern& first_pattern(const DrawnItems& part) { return part.patterns.at(part.picks[0].pattern); }

  static nb::object steal_array(PyObject* array) {
    if (array == nullptr) throw nb::python_error();
    return nb::steal(array);
  }

  nb::tuple item_of(const DrawnItems& part, uint32_t i, bool stays) {
    const Pick& pick = part.picks[i];
    const Pattern& pattern = part.patterns.at(pick.pattern);
    const uint64_t positions = uint64_t{pick.padding.before} + pick.num_steps + pick.padding.after;
    const size_t n = pattern.outputs.size();
    nb::list squeezed_list, columns, data, is_view, mask_list;
    std::vector<OutputBuffer> copies;
    std::vector<ByteBuffer> bytes(n);  // of columns of Python's codec
    std::vector<std::unique_ptr<PackedReader>> packed(n);
    std::vector<std::vector<uint8_t>> masks(n);
    std::vector<int32_t> lengths(n);
    for (size_t o = 0; o < n; ++o) {
      const uint32_t column = pattern.outputs[o].column;
      if (column >= context_->plan->columns().size()) corrupt("a pattern names no column");
      const bool squeezed = (pattern.outputs[o].flags & kSqueezed) != 0;
      RowsInPlace rows{};
      const bool in_place = stays && find_in_place(*context_->arena, pattern, o, pick, part.runs, rows);
      if (!in_place) rows = {nullptr, 0, squeezed ? 1 : static_cast<uint32_t>(pattern.rows(o, positions))};
      const PlanColumn& plan = context_->plan->columns()[column];
      nb::object array = plan.flags == kPerItemColumn ? nb::none()
                         : plan.is_opaque
                             ? make_sizes(squeezed, rows)
                             : make_array(column,
                                          squeezed ? std::vector<LeadingAxis>{}
                                                   : std::vector<LeadingAxis>{{rows.rows, rows.stride_bytes}},
                                          rows.first);
      if (!plan.is_opaque)
        PyArray_CLEARFLAGS(reinterpret_cast<PyArrayObject*>(array.ptr()), NPY_ARRAY_WRITEABLE);  // copies as well
      if (plan.is_packed) packed[o] = std::make_unique<PackedReader>(static_cast<uint32_t>(plan.row_bytes));
      if (!in_place && plan.flags != kPerItemColumn) {
        copies.push_back({static_cast<uint32_t>(o), column, rows.rows,
                          static_cast<uint32_t>(plan.is_opaque ? sizeof(int64_t) : plan.row_bytes), squeezed,
                          array_data<char>(array), &masks[o], 1, &lengths[o], false, plan.flags,
                          plan.is_opaque ? &bytes[o] : nullptr, packed[o].get()});
      }
      squeezed_list.append(squeezed);
      columns.append(column);
      data.append(array);
      is_view.append(in_place);
    }
    if (!copies.empty()) {
      const GilRelease release;
      gather(*context_->arena, part.patterns, &pick, 1, part.runs, 0, copies);
    }
    nb::object damage = nb::none();
    for (size_t o = 0; o < n; ++o) {
      mask_list.append(mask_of(masks[o], nb::cast<bool>(squeezed_list[o])));
      if (packed[o] != nullptr && packed[o]->damage().is_there) {
        damage = nb::make_tuple(o, packed[o]->damage().row, packed[o]->damage().num_bytes);
      }
      if (context_->is_coded(pattern.outputs[o].column)) data[o] = nb::make_tuple(take_bytes(bytes[o]), data[o]);
    }
    return nb::make_tuple(nb::bytes(pattern.names.data(), pattern.names.size()), squeezed_list, columns, data, is_view,
                          mask_list, values_of(part, i), damage, pick.insert_no);
  }

  // The values that the item brought; None if it brought none.
  nb::object values_of(const DrawnItems& part, uint32_t i) const {
    if (part.brought == nullptr) return nb::none();
    ByteBuffer bytes;
    const uint32_t chunk = part.runs[part.picks[i].first_run].chunk;
    if (append_value(*context_->arena, chunk, part.brought[i], bytes) < 0) return nb::none();
    return take_bytes(bytes);
  }

  // Sizes of a heap column's values.
  static nb::object make_sizes(bool squeezed, const RowsInPlace& rows) {
    npy_intp dims[1] = {rows.rows};
    return steal_array(PyArray_SimpleNew(squeezed ? 0 : 1, dims, NPY_INT64));
  }

  // None if every row is real.
  static nb::object mask_of(const std::vector<uint8_t>& mask, bool squeezed) {
    if (mask.empty()) return nb::none();
    npy_intp dims[1] = {static_cast<npy_intp>(mask.size())};
    nb::object array = steal_array(PyArray_SimpleNew(squeezed ? 0 : 1, dims, NPY_BOOL));
    std::memcpy(array_data<char>(array), mask.data(), mask.size());
    return array;
  }

  // A read-only array over the rows where they lie; or, if `first` is nullptr, a new array for a copy.
  nb::object make_array(uint32_t column, const std::vector<LeadingAxis>& leading, char* first) {
    const PlanColumn& plan = context_->plan->columns()[column];
    auto* descr = reinterpret_cast<PyArray_Descr*>(plan.descr.ptr());
    std::vector<npy_intp> dims, strides;
    for (const LeadingAxis& axis : leading) {
      dims.push_back(static_cast<npy_intp>(axis.length));
      strides.push_back(axis.stride_bytes);
    }
    npy_intp inner = static_cast<npy_intp>(plan.row_bytes);
    for (const npy_intp size : plan.shape) {
      inner = size == 0 ? inner : inner / size;
      dims.push_back(size);
      strides.push_back(inner);
    }
    Py_INCREF(reinterpret_cast<PyObject*>(descr));  // NewFromDescr steals it
    nb::object array =
        steal_array(PyArray_NewFromDescr(&PyArray_Type, descr, static_cast<int>(dims.size()), dims.data(),
                                         first == nullptr ? nullptr : strides.data(), first, 0, nullptr));
    if (first != nullptr) {
      if (!owner_.is_valid()) owner_ = owner_of(context_->arena);
      if (PyArray_SetBaseObject(reinterpret_cast<PyArrayObject*>(array.ptr()), nb::object(owner_).release().ptr()) <
          0) {
        throw nb::python_error();
      }
    }
    return array;
  }

  std::shared_ptr<TableContext> context_;
  std::shared_ptr<ViewLease> lease_;
  std::optional<ItemNumbers> numbers_;
  std::vector<nb::object> copies_;  // the items drawn before the call waited
  std::optional<DrawnItems> part_;  // the other items, under the lease
  double smallest_probability_ = 0;
  std::optional<ItemStride> stride_;  // of all items
  bool is_contiguous_ = false;
  nb::object owner_;
};

}  // namespace

void bind_view(nb::module_& m) {
  nb::class_<NativeView>(m, "View", "Items where they lie, until they are released.")
      .def(nb::init<const NativeTable&>(), "table"_a)
      .def("draw", &NativeView::draw, "options"_a, "uniforms"_a, "timeout_s"_a.none())
      .def_prop_ro("num_items", &NativeView::num_items)
      .def("numbers", &NativeView::numbers)
      .def_prop_ro("num_copies", &NativeView::num_copies)
      .def_prop_ro("smallest_probability", &NativeView::smallest_probability)
      .def("structure", &NativeView::structure,
           nb::sig("def structure(self) -> tuple[bytes, list[bool], list[int]] | None"))
      .def("rows", &NativeView::rows)
      .def("item", &NativeView::item, "index"_a)
      .def("row_numbers", &NativeView::row_numbers, "output"_a)
      .def_prop_ro("is_contiguous", &NativeView::is_contiguous)
      .def("strided", &NativeView::strided, "output"_a, nb::sig("def strided(self, output: int) -> Any"))
      .def("exported", &NativeView::exported, "output"_a, "device_type"_a = 1, "device_id"_a = 0,
           nb::sig("def exported(self, output: int, device_type: int = 1, device_id: int = 0) -> Any"))
      .def("release", &NativeView::release);
}

}  // namespace shmreplay
