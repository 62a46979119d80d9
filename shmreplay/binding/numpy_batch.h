// A batch under construction: NumPy arrays that the core gathers into.
#pragma once

#include <cstring>
#include <memory>
#include <vector>

#include "batch_layout.h"
#include "batch_memory.h"
#include "gil.h"
#include "item_numbers.h"
#include "python.h"
#include "read/sample_call.h"
#include "read/shard_draw.h"
#include "status_error.h"
#include "step_plan.h"

namespace shmreplay {

// A new array over memory that `owner` frees.
inline nb::object owned_array(PyObject* array, const nb::capsule& owner) {
  if (array == nullptr) throw nb::python_error();
  nb::object result = nb::steal(array);
  if (PyArray_SetBaseObject(reinterpret_cast<PyArrayObject*>(array), owner.inc_ref().ptr()) != 0)
    throw nb::python_error();
  return result;
}

// Makes the bytes a uint8 array, which frees them.
inline nb::object take_bytes(ByteBuffer& bytes) {
  const auto n = static_cast<npy_intp>(bytes.size());
  char* data = bytes.release();
  if (data == nullptr) return new_array(NPY_UINT8, 0);
  const nb::capsule owner(data, [](void* p) noexcept { std::free(p); });
  return owned_array(PyArray_SimpleNewFromData(1, &n, NPY_UINT8, data), owner);
}

// Where the parts of a batch are in the tuple that NumpyBatch::release() makes. The numbers, keys to ages, are
// together.
struct BatchPart {
  static constexpr int kSqueezed = 1, kData = 3, kLengths = 4, kMasks = 5, kFirstNumber = 6, kLastNumber = 13;
};

// The constructor needs the GIL. prepare() takes the GIL itself, and the other methods of the sink do without.
class NumpyBatch : public ShardSink {
 public:
  // `layout` nullptr: every output, as the table has it. `given`: the caller's arrays for that layout. Both must
  // outlive the batch.
  NumpyBatch(const StepPlan& plan, uint32_t n, const BatchLayout* layout, const GivenArrays& given)
      : plan_(plan), n_(n), layout_(layout), given_(given), numbers_(n) {
    for (const PlanColumn& c : plan.columns()) {
      if (c.flags != kPerItemColumn || values_ != nullptr) continue;
      value_sizes_ = new_array(NPY_INT64, n);
      values_ = std::make_unique<ItemValues>(array_data<int64_t>(value_sizes_));
    }
  }

  // For a batch out of several tables: it is as long as the longest item of any of them, and all must have one
  // structure.
  void set_shards(std::vector<const TableRecord*> records) { records_ = std::move(records); }

  void begin_part(const uint32_t* places, double share, uint64_t table_size) noexcept override {
    if (places_ == nullptr) first_place_ = places;
    places_ = places;
    share_ = share;
    table_items_ = table_size;
    checks_structure_ = true;
  }

  bool prepare(const Pattern& structure, const uint32_t* rows, int64_t done) noexcept override {
    uint32_t longest[kMaxOutputs];
    if (!records_.empty()) {
      if (checks_structure_ && !has_structure(structure)) return false;
      checks_structure_ = false;
      rows = longest_of_all(structure, rows, longest);
      done += places_ - first_place_;
    }
    bool same = !outputs_.empty();
    for (const OutputBuffer& out : outputs_) same = same && (is_fixed(out) || rows[out.output] <= out.rows);
    if (same) return true;
    const GilAcquire gil;
    try {
      return outputs_.empty() ? make_outputs(structure, rows) : widen(rows, static_cast<size_t>(done));
    } catch (nb::python_error& e) {
      e.restore();
    } catch (const CorruptIndex& e) {
      PyErr_SetString(PyExc_RuntimeError, e.what());
    } catch (const std::exception& e) {
      PyErr_SetString(PyExc_MemoryError, e.what());
    }
    return false;
  }

  std::vector<OutputBuffer>& outputs() noexcept override {
    for (OutputBuffer& out : outputs_) out.places = places_;
    return outputs_;
  }

  void describe(int64_t first, const Pick* picks, uint32_t n) noexcept override {
    if (places_ == nullptr) return numbers_.put(first, picks, n);
    for (uint32_t i = 0; i < n; ++i) numbers_.put(places_[first + i], picks[i], share_, table_items_);
  }

  ItemValues* item_values() noexcept override { return values_ == nullptr ? nullptr : values_.get(); }

  // (names, squeezed flags, columns, data, lengths, masks or None, keys, priorities, probabilities, times_sampled,
  // table_size, episodes, steps, ages, values, damage). The arrays have n entries, of which only the first `done`
  // count.
  //
  // Data of a column of Python's codec: (bytes, sizes), uint8 and int64; -1 for no value. Data of a per-item column:
  // None. `values`: what the items brought, (bytes, sizes [n]) or None. `damage`: (output, row, stored bytes) of a
  // packed row that could not be unpacked, or None. BatchPart has this order, too.
  nb::tuple release() {
    nb::list columns, squeezed, data, lengths, masks;
    for (size_t o = 0; o < outputs_.size(); ++o) {
      columns.append(outputs_[o].column);
      squeezed.append(outputs_[o].squeezed);
      data.append(bytes_[o] == nullptr ? data_[o] : nb::object(nb::make_tuple(take_bytes(*bytes_[o]), by_item(o))));
      lengths.append(lengths_[o]);
      masks.append(mask_array(o));
    }
    return nb::make_tuple(nb::bytes(names_.data(), names_.size()), squeezed, columns, data, lengths, masks,
                          numbers_.keys, numbers_.priorities, numbers_.probabilities, numbers_.times_sampled,
                          numbers_.table_size, numbers_.episodes, numbers_.steps, numbers_.ages, take_values(),
                          damage());
  }

 private:
  // NOLINTNEXTLINE(bugprone-exception-escape): error_class() finds the module loaded, and throws nothing
  bool has_structure(const Pattern& structure) noexcept {
    const uint64_t hash = structure.structure_hash();
    if (outputs_.empty()) structure_hash_ = hash;
    if (structure_hash_ == hash) return true;
    const GilAcquire gil;
    PyErr_SetString(
        error_class("SignatureMismatch").ptr(),
        "the shards of this table hold items of different structures; declare the one that all have, Table(item=...)");
    return false;
  }

  // The longest item of any of the tables, so that a batch is padded alike wherever it is drawn from. Read without the
  // locks.
  const uint32_t* longest_of_all(const Pattern& structure, const uint32_t* rows,
                                 uint32_t (&longest)[kMaxOutputs]) const noexcept {
    const size_t n = std::min<size_t>(structure.outputs.size(), kMaxOutputs);
    for (size_t o = 0; o < n; ++o) {
      longest[o] = rows[o];
      if (structure.outputs[o].flags & kSqueezed) continue;
      for (const TableRecord* r : records_) longest[o] = std::max(longest[o], std::min(r->longest[o].get(), kMaxRows));
    }
    return longest;
  }

  nb::object damage() const {
    for (size_t o = 0; o < packed_.size(); ++o) {
      if (packed_[o] == nullptr || !packed_[o]->damage().is_there) continue;
      return nb::make_tuple(o, packed_[o]->damage().row, packed_[o]->damage().num_bytes);
    }
    return nb::none();
  }

  // Missing rows are rare, so the first item that has one makes the mask. The array takes over the mask's memory: what
  // was drawn must not be lost because there is no memory for another one.
  nb::object mask_array(size_t o) {
    if (masks_[o]->empty()) return nb::none();
    const OutputBuffer& out = outputs_[o];
    npy_intp dims[2] = {static_cast<npy_intp>(n_), static_cast<npy_intp>(out.rows)};
    if (out.time_major) std::swap(dims[0], dims[1]);
    auto* bytes = masks_[o].release();
    const nb::capsule owner(bytes, [](void* p) noexcept { delete static_cast<std::vector<uint8_t>*>(p); });
    return owned_array(PyArray_SimpleNewFromData(out.squeezed ? 1 : 2, dims, NPY_BOOL, bytes->data()), owner);
  }

  // Sizes as [n, rows], also if the batch is time-major: the values' bytes lie item by item.
  nb::object by_item(size_t o) const {
    if (!outputs_[o].time_major) return data_[o];
    PyObject* turned = PyArray_Transpose(reinterpret_cast<PyArrayObject*>(data_[o].ptr()), nullptr);
    if (turned == nullptr) throw nb::python_error();
    return nb::steal(turned);
  }

  nb::object take_values() {
    if (values_ == nullptr) return nb::none();
    return nb::make_tuple(take_bytes(values_->bytes), value_sizes_);
  }

  nb::object make_data(const OutputBuffer& out) const {
    if (out.flags == kPerItemColumn) return nb::none();
    const PlanColumn& column = plan_.columns()[out.column];
    std::vector<npy_intp> dims{static_cast<npy_intp>(n_)};
    if (!out.squeezed) dims.insert(out.time_major ? dims.begin() : dims.end(), out.rows);
    dims.insert(dims.end(), column.shape.begin(), column.shape.end());
    if (out.bytes != nullptr) {
      PyObject* sizes = PyArray_SimpleNew(static_cast<int>(dims.size()), dims.data(), NPY_INT64);
      if (sizes == nullptr) throw nb::python_error();
      return nb::steal(sizes);
    }
    auto* descr = reinterpret_cast<PyArray_Descr*>(column.descr.ptr());
    Py_INCREF(reinterpret_cast<PyObject*>(descr));  // NewFromDescr steals it
    const size_t bytes = size_t{n_} * out.rows * out.row_bytes;
    if (bytes >= BatchMemory::kWorth) return large_array(descr, dims, bytes);
    PyObject* array = PyArray_NewFromDescr(&PyArray_Type, descr, static_cast<int>(dims.size()), dims.data(), nullptr,
                                           nullptr, 0, nullptr);
    if (array == nullptr) throw nb::python_error();
    return nb::steal(array);
  }

  // Steals the descriptor.
  static nb::object large_array(PyArray_Descr* descr, std::vector<npy_intp>& dims, size_t bytes) {
    const nb::object kept = nb::steal(reinterpret_cast<PyObject*>(descr));
    char* data = BatchMemory::instance().take(bytes);
    if (data == nullptr) throw std::bad_alloc();
    const nb::capsule owner(data, [](void* p) noexcept { BatchMemory::instance().give_back(static_cast<char*>(p)); });
    return owned_array(
        PyArray_NewFromDescr(&PyArray_Type, reinterpret_cast<PyArray_Descr*>(kept.inc_ref().ptr()),
                             static_cast<int>(dims.size()), dims.data(), nullptr, data, NPY_ARRAY_CARRAY, nullptr),
        owner);
  }

  // How many rows the caller fixed, by `pad_to` or by giving arrays; 0: none.
  uint32_t fixed_rows(uint32_t output) const {
    if (given_.most_rows() == nullptr) return 0;
    const uint32_t rows = (*given_.most_rows())[output];
    return rows == BatchLayout::kNoLimit ? 0 : rows;
  }
  bool is_fixed(const OutputBuffer& out) const { return out.squeezed || fixed_rows(out.output) > 0; }

  bool make_outputs(const Pattern& structure, const uint32_t* rows) {
    names_ = layout_ == nullptr ? structure.names : layout_->names();
    if (layout_ == nullptr) {
      for (uint32_t o = 0; o < structure.outputs.size(); ++o) make_output(structure, o, rows[o]);
      return true;
    }
    for (const BatchLayout::Output& out : layout_->outputs()) {
      if (out.number >= structure.outputs.size() || structure.outputs[out.number].column != out.column) {
        corrupt("the table's structure is another than it was");
      }
      const uint32_t fixed = out.squeezed ? 0 : fixed_rows(out.number);
      make_output(structure, out.number, fixed > 0 ? fixed : rows[out.number]);
    }
    return true;
  }

  void make_output(const Pattern& structure, uint32_t o, uint32_t rows) {
    const uint32_t column = structure.outputs[o].column;
    if (column >= plan_.columns().size()) corrupt("a pattern names no column");
    masks_.push_back(std::make_unique<std::vector<uint8_t>>());
    lengths_.push_back(new_array(NPY_INT32, n_));
    const bool squeezed = (structure.outputs[o].flags & kSqueezed) != 0;
    const PlanColumn& plan = plan_.columns()[column];
    const bool is_coded = plan.flags == kHeapColumn && !plan.is_packed;
    bytes_.push_back(is_coded ? std::make_unique<ByteBuffer>() : nullptr);
    packed_.push_back(plan.is_packed ? std::make_unique<PackedReader>(static_cast<uint32_t>(plan.row_bytes)) : nullptr);
    OutputBuffer out{o,
                     column,
                     rows,
                     static_cast<uint32_t>(is_coded ? sizeof(int64_t) : plan.row_bytes),
                     squeezed,
                     nullptr,
                     masks_.back().get(),
                     n_,
                     array_data<int32_t>(lengths_.back()),
                     layout_ != nullptr && layout_->time_major() && !squeezed,
                     plan.flags,
                     bytes_.back().get(),
                     packed_.back().get()};
    const bool is_given = !given_.empty() && !given_[data_.size()].is_none();
    data_.push_back(is_given ? given_[data_.size()] : make_data(out));
    if (plan.flags != kPerItemColumn) out.data = array_data<char>(data_.back());
    out.past_caches = size_t{n_} * out.rows * out.row_bytes > kCacheBytes;
    outputs_.push_back(out);
  }

  // A longer item came in between two parts of the call: what is gathered already moves to wider arrays.
  bool widen(const uint32_t* rows, size_t done) {
    for (size_t o = 0; o < outputs_.size(); ++o) {
      OutputBuffer& out = outputs_[o];
      if (is_fixed(out) || rows[out.output] <= out.rows) continue;
      out.places = first_place_;  // the places of the items that are gathered already
      const OutputBuffer old = out;
      out.rows = rows[out.output];
      nb::object wider = make_data(out);
      out.data = array_data<char>(wider);
      std::vector<uint8_t> mask(static_cast<size_t>(n_) * out.rows, 1);
      for (int64_t i = 0; i < static_cast<int64_t>(done); ++i) {
        for (uint32_t j = 0; j < out.rows; ++j) {
          if (j < old.rows) std::memcpy(out.row(i, j), old.row(i, j), out.row_bytes);
          else std::memset(out.row(i, j), out.bytes != nullptr ? 0xff : 0, out.row_bytes);
          const bool was_real = j < old.rows && (out.mask->empty() || (*out.mask)[old.place(i, j)] != 0);
          mask[out.place(i, j)] = was_real ? 1 : 0;
        }
      }
      *out.mask = std::move(mask);
      data_[o] = wider;
    }
    return true;
  }

  const StepPlan& plan_;
  uint32_t n_;
  const BatchLayout* layout_;
  const GivenArrays& given_;
  ItemNumbers numbers_;
  std::vector<const TableRecord*> records_;  // of a batch out of several tables
  const uint32_t *first_place_ = nullptr, *places_ = nullptr;
  double share_ = 1.0;
  uint64_t table_items_ = 0, structure_hash_ = 0;
  bool checks_structure_ = false;
  std::string names_;
  std::vector<OutputBuffer> outputs_;
  std::vector<Held> data_;
  std::vector<nb::object> lengths_;
  std::vector<std::unique_ptr<ByteBuffer>> bytes_;     // of columns of Python's codec
  std::vector<std::unique_ptr<PackedReader>> packed_;  // of packed ones
  nb::object value_sizes_;
  std::unique_ptr<ItemValues> values_;  // where there are per-item columns
  std::vector<std::unique_ptr<std::vector<uint8_t>>> masks_;
};

}  // namespace shmreplay
