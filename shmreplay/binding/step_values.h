// Bytes that Python's codecs made, on their way to the block heap: the values of a step's heap columns, and the values
// that items bring.
#pragma once

#include <vector>

#include "arena/arena.h"
#include "chunks/block_heap.h"
#include "python.h"
#include "status_error.h"

namespace shmreplay {

// _core.NO_VALUE. In a partial step it says that a column has no value; None says that the column is still to come.
inline PyObject*& no_value() noexcept {
  static PyObject* sentinel = nullptr;  // made with the module, kept for ever
  return sentinel;
}

// The bytes of one value. They belong to an array that the caller keeps.
struct ValueBytes {
  const char* data = nullptr;
  int64_t size = -1;  // none
};

// `leaf`: a uint8 array of one axis; None and NO_VALUE mean no value.
inline ValueBytes value_bytes(PyObject* leaf, const std::string& what) {
  if (leaf == Py_None || leaf == no_value()) return {};
  auto* array = reinterpret_cast<PyArrayObject*>(leaf);
  if (!PyArray_Check(leaf) || PyArray_TYPE(array) != NPY_UINT8 || PyArray_NDIM(array) != 1 ||
      !PyArray_IS_C_CONTIGUOUS(array)) {
    raise_error("InternalError", what + " was not encoded to a contiguous uint8 array of one axis; please report");
  }
  return {static_cast<const char*>(PyArray_DATA(array)), PyArray_DIM(array, 0)};
}

// How many blocks a value takes. Raises ValueError for a value that is larger than the whole heap.
inline uint64_t blocks_for(const Arena& arena, const ValueBytes& value, const std::string& what) {
  if (value.size < 0) return 0;
  const auto size = static_cast<uint64_t>(value.size);
  if (!fits_heap(arena, size)) {
    const uint64_t limit = uint64_t{arena.geometry().num_blocks} * arena.geometry().block_bytes;
    raise_error("ValueError", what + " takes " + std::to_string(size) + " bytes, the arena's whole heap has " +
                                  std::to_string(limit) + "; raise capacity_steps or the column's mean_bytes");
  }
  return blocks_of(arena, size);
}

// The values that N steps have for one heap column, or that N items bring for the per-item columns.
class ValueList {
 public:
  ValueList() = default;
  ValueList(const Arena& arena, nb::handle list, size_t n, const std::string& what) {
    for (nb::handle leaf : list) {
      keep_.push_back(nb::borrow(leaf));
      values_.push_back(value_bytes(leaf.ptr(), what));
      blocks_.push_back(blocks_for(arena, values_.back(), what));
    }
    if (values_.size() != n)
      raise_error("InternalError", what + " has another number of values than the batch has steps; please report");
  }

  // Of one step.
  ValueList(const Arena& arena, PyObject* leaf, const std::string& what) : keep_{nb::borrow(leaf)} {
    values_.push_back(value_bytes(leaf, what));
    blocks_.push_back(blocks_for(arena, values_.back(), what));
  }

  bool empty() const noexcept { return values_.empty(); }
  const ValueBytes& at(size_t i) const { return values_.at(i); }
  uint64_t blocks(size_t i) const { return blocks_.at(i); }

 private:
  std::vector<Held> keep_;
  std::vector<ValueBytes> values_;
  std::vector<uint64_t> blocks_;
};

// How many blocks one row takes. `columns`: lists by column, empty for columns that are not in the heap.
inline uint64_t blocks_of_row(const std::vector<ValueList>& columns, size_t row) {
  uint64_t n = 0;
  for (const ValueList& list : columns) n += list.empty() ? 0 : list.blocks(row);
  return n;
}

}  // namespace shmreplay
