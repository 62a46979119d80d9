// _core.View: items looked at where they lie, under a lease that lasts until they are released.
#pragma once

#include <memory>
#include <vector>

#include "item_view.h"
#include "table_handle.h"

namespace shmreplay {

class ViewHandle : public ViewSink {
 public:
  explicit ViewHandle(const TableHandle& table) : context_(table.context()) {}
  ~ViewHandle() override { release(); }
  ViewHandle(const ViewHandle&) = delete;
  ViewHandle& operator=(const ViewHandle&) = delete;

  // (status, items, exception of a signal handler or None), once. An item: (names, squeezed, columns, data, is_view, masks or None,
  // key, priority, probability, times_sampled, episode, step, age, values, damage, insert_no), the first ones with one entry an output. Where
  // is_view is true, the data is the arena's memory, named until release(); else a copy, and all are copies unless the status is
  // kOk. Data of columns of Python's codec and per-item ones, `values` and `damage`: as NumpyBatch has them, for one item.
  nb::tuple draw(uint32_t n, nb::handle uniforms, nb::handle timeout_s) {
    Arena& arena = *context_->arena;
    const double* u = double_array(uniforms, n, "uniforms");
    (void)context_->bound_plan();
    GilPatience patience = context_->patience();
    const Wait wait{deadline_of(timeout_s), &patience};
    call_ = context_->take_view_call();
    SampleResult result{Status::kSessionLost, 0, 0};
    {
      const CallInFlight in_flight(arena.calls());
      const GilRelease release;
      try {
        if (in_flight.begun()) result = call_->view(*context_->facts, {n, n, true, u}, wait, *this);
      } catch (const CorruptIndex&) {
        arena.mark_failed();  // damage seen after the unlock, outside any hold
        throw;
      }
    }
    is_whole_ = result.status == Status::kOk;
    result.status = handle_signals(result.status);
    nb::object raised = result.status == Status::kInterrupted ? take_raised() : nb::none();
    return nb::make_tuple(static_cast<int>(result.status), std::move(items_), raised);
  }

  // Gives the chunks back. Idempotent, and nothing in a forked child: they are its parent's.
  void release() {
    if (call_ == nullptr) return;
    call_->drop();
    if (is_whole_) context_->keep_view_call(std::move(call_));
    call_.reset();
  }

  bool take(const Part& part, bool stays) noexcept override {
    const GilAcquire gil;
    try {
      for (uint32_t i = 0; i < part.n; ++i) items_.append(item_of(part, i, stays));
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
  nb::tuple item_of(const Part& part, uint32_t i, bool stays) {
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
      nb::object array = plan.flags == kPerItemColumn ? nb::none() : plan.is_opaque ? make_sizes(squeezed, rows) : make_array(column, squeezed, rows);
      if (!plan.is_opaque) PyArray_CLEARFLAGS(reinterpret_cast<PyArrayObject*>(array.ptr()), NPY_ARRAY_WRITEABLE);  // in place or not: all alike
      if (plan.is_packed) packed[o] = std::make_unique<PackedReader>(static_cast<uint32_t>(plan.row_bytes));
      if (!in_place && plan.flags != kPerItemColumn) {
        copies.push_back({static_cast<uint32_t>(o), column, rows.rows, static_cast<uint32_t>(plan.is_opaque ? sizeof(int64_t) : plan.row_bytes),
                          squeezed, array_data<char>(array), &masks[o], 1, &lengths[o], false, plan.flags,
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
    return nb::make_tuple(nb::bytes(pattern.names.data(), pattern.names.size()), squeezed_list, columns, data, is_view, mask_list, pick.key,
                          pick.priority, pick.probability, pick.times_sampled, static_cast<int64_t>(pick.episode), pick.step, pick.age,
                          values_of(part, i), damage, pick.insert_no);
  }

  // What the item brought; None where it brought nothing.
  nb::object values_of(const Part& part, uint32_t i) const {
    if (part.brought == nullptr) return nb::none();
    ByteBuffer bytes;
    const uint32_t chunk = part.runs[part.picks[i].first_run].chunk;
    if (append_value(*context_->arena, chunk, part.brought[i], bytes) < 0) return nb::none();
    return take_bytes(bytes);
  }

  // Sizes of a heap column's values.
  static nb::object make_sizes(bool squeezed, const RowsInPlace& rows) {
    npy_intp dims[1] = {rows.rows};
    PyObject* array = PyArray_SimpleNew(squeezed ? 0 : 1, dims, NPY_INT64);
    if (array == nullptr) throw nb::python_error();
    return nb::steal(array);
  }

  // None where every row is real.
  static nb::object mask_of(const std::vector<uint8_t>& mask, bool squeezed) {
    if (mask.empty()) return nb::none();
    npy_intp dims[1] = {static_cast<npy_intp>(mask.size())};
    PyObject* array = PyArray_SimpleNew(squeezed ? 0 : 1, dims, NPY_BOOL);
    if (array == nullptr) throw nb::python_error();
    std::memcpy(PyArray_DATA(reinterpret_cast<PyArrayObject*>(array)), mask.data(), mask.size());
    return nb::steal(array);
  }

  // A read-only array over the rows in place, or, without a first row, a new one for a copy.
  nb::object make_array(uint32_t column, bool squeezed, const RowsInPlace& rows) {
    const PlanColumn& plan = context_->plan->columns()[column];
    auto* descr = reinterpret_cast<PyArray_Descr*>(plan.descr.ptr());
    std::vector<npy_intp> dims, strides;
    if (!squeezed) dims.push_back(rows.rows), strides.push_back(rows.stride_bytes);
    npy_intp inner = static_cast<npy_intp>(plan.row_bytes);
    for (const npy_intp size : plan.shape) {
      inner = size == 0 ? inner : inner / size;
      dims.push_back(size);
      strides.push_back(inner);
    }
    Py_INCREF(reinterpret_cast<PyObject*>(descr));  // NewFromDescr steals it
    PyObject* made = PyArray_NewFromDescr(&PyArray_Type, descr, static_cast<int>(dims.size()), dims.data(),
                                          rows.first == nullptr ? nullptr : strides.data(), rows.first, 0, nullptr);
    if (made == nullptr) throw nb::python_error();
    nb::object array = nb::steal(made);
    if (rows.first != nullptr) {
      if (!owner_.is_valid()) owner_ = mapping_owner();
      if (PyArray_SetBaseObject(reinterpret_cast<PyArrayObject*>(made), nb::object(owner_).release().ptr()) < 0) {
        throw nb::python_error();
      }
    }
    return array;
  }

  // Keeps the memory mapped as long as an array is left: one that outlives its release reads what is there by then, no fault.
  nb::object mapping_owner() const {
    return nb::capsule(new std::shared_ptr<Arena>(context_->arena),
                       [](void* arena) noexcept { delete static_cast<std::shared_ptr<Arena>*>(arena); });
  }

  std::shared_ptr<TableContext> context_;
  std::unique_ptr<SampleCall> call_;  // with its lease
  bool is_whole_ = false;             // the call may be used again
  nb::list items_;
  nb::object owner_;
};

}  // namespace shmreplay
