// The bytes that rows of a heap column are stored as, if the column is not compressed: what ArrayCodec.encode()
// (shmreplay/columns/codecs.py) makes of each, for many rows in one call.
#include "bindings.h"
#include "numpy_arrays.h"

using namespace nb::literals;

namespace shmreplay {
namespace {

constexpr size_t kMostBytes = 0xFFFFFFFEu;  // one more stands for "no value"

class RowEncoder {
 public:
  // `shape`: None for an axis of any size.
  RowEncoder(nb::handle descr, nb::handle shape) : descr_(reinterpret_cast<PyArray_Descr*>(descr.ptr())) {
    for (nb::handle size : shape) shape_.push_back(size.is_none() ? -1 : nb::cast<npy_intp>(size));
  }

  // Whether it is a contiguous array of rows of the column, `leading` axes in front.
  bool takes(PyObject* value, int leading) const {
    if (!PyArray_CheckExact(value)) return false;
    auto* array = reinterpret_cast<PyArrayObject*>(value);
    if (PyArray_NDIM(array) != static_cast<int>(shape_.size()) + leading || !PyArray_IS_C_CONTIGUOUS(array) ||
        !PyArray_EquivTypes(PyArray_DESCR(array), descr_))
      return false;
    for (size_t d = 0; d < shape_.size(); ++d) {
      const npy_intp size = PyArray_DIM(array, static_cast<int>(d) + leading);
      if (shape_[d] >= 0 ? size != shape_[d] : static_cast<size_t>(size) > kMostBytes) return false;
    }
    return true;
  }

  // The stored bytes of row `number` of an array that is taken: the sizes of axes of any size, then the row.
  nb::object encode(PyArrayObject* array, int leading, npy_intp number) const {
    std::vector<uint32_t> sizes;
    auto num_bytes = static_cast<size_t>(PyArray_ITEMSIZE(array));
    for (size_t d = 0; d < shape_.size(); ++d) {
      const npy_intp size = PyArray_DIM(array, static_cast<int>(d) + leading);
      if (shape_[d] < 0) sizes.push_back(static_cast<uint32_t>(size));
      num_bytes *= static_cast<size_t>(size);
    }
    const size_t header = sizes.size() * sizeof(uint32_t);
    if (num_bytes + header > kMostBytes) return nb::none();
    nb::object bytes = new_array(NPY_UINT8, static_cast<npy_intp>(num_bytes + header));
    auto* to = array_data<char>(bytes);
    if (header > 0) std::memcpy(to, sizes.data(), header);
    if (num_bytes > 0)
      std::memcpy(to + header, PyArray_BYTES(array) + static_cast<size_t>(number) * num_bytes, num_bytes);
    return bytes;
  }

 private:
  PyArray_Descr* descr_;
  std::vector<npy_intp> shape_;
};

// `values`: an array [N, *shape], or a list or tuple of N rows. Answers a list of N uint8 arrays; None if Python has to
// look at the values.
nb::object encode_rows(nb::handle values, nb::handle descr, nb::handle shape) {
  const RowEncoder encoder(descr, shape);
  nb::list rows;
  const auto append = [&rows](nb::object bytes) {
    const bool is_there = !bytes.is_none();
    if (is_there) rows.append(std::move(bytes));
    return is_there;
  };
  if (encoder.takes(values.ptr(), 1)) {
    auto* array = reinterpret_cast<PyArrayObject*>(values.ptr());
    for (npy_intp i = 0; i < PyArray_DIM(array, 0); ++i) {
      if (!append(encoder.encode(array, 1, i))) return nb::none();
    }
    return rows;
  }
  if (!PyList_CheckExact(values.ptr()) && !PyTuple_CheckExact(values.ptr())) return nb::none();
  for (nb::handle value : values) {
    const nb::object row = nb::borrow(value);
    if (!encoder.takes(row.ptr(), 0)) return nb::none();
    if (!append(encoder.encode(reinterpret_cast<PyArrayObject*>(row.ptr()), 0, 0))) return nb::none();
  }
  return rows;
}

}  // namespace

void bind_encoded_rows(nb::module_& m) { m.def("encode_rows", &encode_rows, "values"_a.none(), "dtype"_a, "shape"_a); }

}  // namespace shmreplay
