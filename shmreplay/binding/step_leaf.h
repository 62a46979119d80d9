// One value of a step from Python, and how it becomes the bytes of its column. What these functions do not take, they
// leave to Python's column_array().
#pragma once

#include <cstring>
#include <utility>
#include <vector>

#include "base/row_copy.h"
#include "gil.h"
#include "number_cast.h"
#include "numpy_arrays.h"

namespace shmreplay {

struct PlanColumn {
  Held descr;  // np.dtype
  PyTypeObject* scalar_type = nullptr;
  int type_num = 0;
  size_t row_bytes = 0;
  std::vector<npy_intp> shape;
  NumberCasts casts{};                                  // what the column's cast rule allows
  bool takes_swapped = false;                           // numbers of foreign byte order, too
  NumberCast of_float = nullptr, of_complex = nullptr;  // of Python's numbers, whatever the rule
  bool is_opaque = false;    // its values are bytes that Python's codec makes; it has no dtype
  uint32_t flags = 0;        // ColumnFlag: the arena's, once bound to it
  bool is_packed = false;    // in the heap, packed by the core's codec; Python sees it as a plain one; once bound
  bool past_caches = false;  // once bound: see Arena::exceeds_caches()
};

// `spec`: (np.dtype, shape, cast rule), or None for a column of Python's codec.
inline PlanColumn read_column(nb::handle spec) {
  PlanColumn c;
  if (spec.is_none()) {
    c.is_opaque = true;
    return c;
  }
  c.descr = nb::borrow(spec[0]);
  auto* descr = reinterpret_cast<PyArray_Descr*>(c.descr.ptr());
  c.scalar_type = descr->typeobj;
  c.type_num = descr->type_num;
  c.row_bytes = static_cast<size_t>(PyDataType_ELSIZE(descr));
  const nb::object shape = spec[1];
  for (nb::handle d : shape) {
    c.shape.push_back(nb::cast<npy_intp>(d));
    c.row_bytes *= static_cast<size_t>(c.shape.back());
  }
  const auto rule = nb::cast<std::string>(spec[2]);
  c.takes_swapped = rule != "no";
  c.casts = casts_to(descr, rule == "no" ? NPY_NO_CASTING : rule == "safe" ? NPY_SAFE_CASTING : NPY_SAME_KIND_CASTING);
  c.of_float = casts::find(NPY_DOUBLE, c.type_num);
  c.of_complex = casts::find(NPY_CDOUBLE, c.type_num);
  return c;
}

inline bool has_shape(const PlanColumn& c, PyArrayObject* array, int leading) {
  if (PyArray_NDIM(array) != static_cast<int>(c.shape.size()) + leading) return false;
  for (size_t d = 0; d < c.shape.size(); ++d) {
    if (PyArray_DIM(array, static_cast<int>(d) + leading) != c.shape[d]) return false;
  }
  return true;
}

// Whether `leaf` is a contiguous array of the column's dtype and of its shape after `leading` axes.
inline bool is_exact(const PlanColumn& c, PyObject* leaf, int leading) {
  if (!PyArray_CheckExact(leaf)) return false;  // a subclass may mean more than its numbers
  auto* array = reinterpret_cast<PyArrayObject*>(leaf);
  auto* descr = PyArray_DESCR(array);
  auto* want = reinterpret_cast<PyArray_Descr*>(c.descr.ptr());
  if (descr != want && !PyArray_EquivTypes(descr, want)) return false;
  return has_shape(c, array, leading) && PyArray_IS_C_CONTIGUOUS(array) != 0;
}

// torch.Tensor; nullptr as long as the process has not imported it.
inline PyTypeObject* tensor_type() {
  static PyTypeObject* type = nullptr;  // kept for ever
  if (type != nullptr) return type;
  const nb::str name("torch");
  const nb::object torch = nb::steal(PyImport_GetModule(name.ptr()));
  if (torch.is_valid()) {
    PyObject* tensor = PyObject_GetAttrString(torch.ptr(), "Tensor");
    if (tensor != nullptr && PyType_Check(tensor)) type = reinterpret_cast<PyTypeObject*>(tensor);
    else Py_XDECREF(tensor);
  }
  PyErr_Clear();  // a module that is still being imported
  return type;
}

// An array as it is, or the memory of a tensor as an array. Not valid: it is neither, or such a tensor has none.
inline Held plain_array(PyObject* leaf) {
  if (PyArray_CheckExact(leaf)) return nb::borrow(leaf);
  if (Py_TYPE(leaf) != tensor_type()) return {};
  PyObject* array = outlive_interpreter([leaf] { return PyObject_CallMethod(leaf, "numpy", nullptr); });
  if (array == nullptr) PyErr_Clear();  // of a GPU, with a gradient, of a dtype that NumPy lacks: Python looks again
  return array != nullptr && PyArray_CheckExact(array) ? Held(nb::steal(array)) : Held();
}

// The cast that brings the array into the column; nullptr if there is none here.
inline NumberCast cast_of(const PlanColumn& c, PyArrayObject* array, int leading) {
  const auto type_num = static_cast<size_t>(PyArray_TYPE(array));
  if (type_num >= kCastTypes || !has_shape(c, array, leading)) return nullptr;
  return PyArray_ISBYTESWAPPED(array) && !c.takes_swapped ? nullptr : c.casts[type_num];
}

// The array's numbers side by side in the machine's byte order: the array itself, or a copy. Not valid: no memory.
inline Held side_by_side(PyArrayObject* array) {
  if (PyArray_IS_C_CONTIGUOUS(array) && !PyArray_ISBYTESWAPPED(array))
    return nb::borrow(reinterpret_cast<PyObject*>(array));
  PyArray_Descr* native = PyArray_DescrFromType(PyArray_TYPE(array));
  PyObject* copy = PyArray_FromArray(array, native, NPY_ARRAY_C_CONTIGUOUS);
  if (copy == nullptr) PyErr_Clear();
  return nb::steal(copy);
}

// Casts rows of a column. false: a row that must fit (must_fit(row)) does not.
template <class MustFit>
bool cast_rows(NumberCast cast, const nb::object& from, const nb::object& to, size_t num_rows, MustFit must_fit) {
  auto* array = reinterpret_cast<PyArrayObject*>(from.ptr());
  const auto n = static_cast<size_t>(PyArray_SIZE(array));
  const char* const numbers = array_data<const char>(from);
  char* const bytes = array_data<char>(to);
  if (cast(numbers, bytes, n)) return true;
  const size_t row = n / num_rows, from_bytes = row * static_cast<size_t>(PyArray_ITEMSIZE(array)),
               to_bytes = row * static_cast<size_t>(PyArray_ITEMSIZE(reinterpret_cast<PyArrayObject*>(to.ptr())));
  for (size_t i = 0; i < num_rows; ++i) {
    if (must_fit(static_cast<npy_intp>(i)) && !cast(numbers + i * from_bytes, bytes + i * to_bytes, row)) return false;
  }
  return true;
}

// What a leaf holds for a column, after `leading` axes.
struct Numbers {
  Held array;                 // side by side; not valid: Python decides
  NumberCast cast = nullptr;  // what brings them into the column; nullptr: they are exactly of its dtype
};

inline Numbers numbers_of(const PlanColumn& c, PyObject* leaf, int leading) {
  const Held found = plain_array(leaf);
  if (!found.is_valid() || is_exact(c, found.ptr(), leading)) return {found};
  auto* array = reinterpret_cast<PyArrayObject*>(found.ptr());
  const NumberCast cast = cast_of(c, array, leading);
  if (cast == nullptr) return {};
  const Held numbers = side_by_side(array);
  return {numbers, numbers.is_valid() && is_exact(c, numbers.ptr(), leading) ? nullptr : cast};
}

// The leaf as an array of exactly the column's dtype and of its shape after `leading` axes (0 or 1): itself, or one
// made of it. Not valid: Python decides. must_fit(row): of a row with a number beyond the dtype's range, whether it is
// used.
template <class MustFit>
Held exact_array(const PlanColumn& c, PyObject* leaf, int leading, MustFit must_fit) {
  if (is_exact(c, leaf, leading)) return nb::borrow(leaf);
  const Numbers found = numbers_of(c, leaf, leading);
  if (!found.array.is_valid() || found.cast == nullptr) return found.array;
  auto* array = reinterpret_cast<PyArrayObject*>(found.array.ptr());
  auto* descr = reinterpret_cast<PyArray_Descr*>(nb::borrow(c.descr).release().ptr());  // NewFromDescr steals it
  const Held made = nb::steal(PyArray_NewFromDescr(&PyArray_Type, descr, PyArray_NDIM(array), PyArray_DIMS(array),
                                                   nullptr, nullptr, 0, nullptr));
  if (!made.is_valid()) PyErr_Clear();
  const auto num_rows = leading == 0 ? size_t{1} : static_cast<size_t>(PyArray_DIM(array, 0));
  return made.is_valid() && cast_rows(found.cast, found.array, made, num_rows, must_fit) ? made : Held();
}

// Writes one row. false: Python decides; the row may be partly written.
inline bool write_array(const PlanColumn& c, PyObject* leaf, char* to) {
  if (is_exact(c, leaf, 0)) {
    copy_row(to, PyArray_BYTES(reinterpret_cast<PyArrayObject*>(leaf)), c.row_bytes, c.past_caches);
    return true;
  }
  const Numbers found = numbers_of(c, leaf, 0);
  if (!found.array.is_valid()) return false;
  const auto* from = array_data<const char>(found.array);
  if (found.cast != nullptr)
    return found.cast(from, to, static_cast<size_t>(PyArray_SIZE(reinterpret_cast<PyArrayObject*>(found.array.ptr()))));
  copy_row(to, from, c.row_bytes, c.past_caches);
  return true;
}

inline bool write_float(const PlanColumn& c, double value, char* to) {
  return c.of_float != nullptr && c.of_float(reinterpret_cast<const char*>(&value), to, 1);
}

template <class T>
bool write_as(long long value, char* to) {
  if (!std::in_range<T>(value)) return false;
  const auto narrow = static_cast<T>(value);
  std::memcpy(to, &narrow, sizeof(T));
  return true;
}

inline bool write_int(const PlanColumn& c, long long value, char* to, bool is_bool) {
  switch (c.type_num) {
    case NPY_BOOL: return is_bool && write_as<npy_bool>(value, to);
    case NPY_BYTE: return write_as<npy_byte>(value, to);
    case NPY_UBYTE: return write_as<npy_ubyte>(value, to);
    case NPY_SHORT: return write_as<npy_short>(value, to);
    case NPY_USHORT: return write_as<npy_ushort>(value, to);
    case NPY_INT: return write_as<npy_int>(value, to);
    case NPY_UINT: return write_as<npy_uint>(value, to);
    case NPY_LONG: return write_as<npy_long>(value, to);
    case NPY_ULONG: return write_as<npy_ulong>(value, to);
    case NPY_LONGLONG: return write_as<npy_longlong>(value, to);
    case NPY_ULONGLONG: return write_as<npy_ulonglong>(value, to);
    default: return write_float(c, static_cast<double>(value), to);
  }
}

// Writes a NumPy scalar of another dtype than the column's. false: Python decides.
inline bool cast_scalar(const PlanColumn& c, PyObject* leaf, int type_num, char* to) {
  const NumberCast cast = c.casts[static_cast<size_t>(type_num)];
  if (cast == nullptr) return false;
  alignas(16) char value[16];
  PyArray_ScalarAsCtype(leaf, value);
  return cast(value, to, 1);
}

// Writes the number of a column of shape (). false: Python decides.
inline bool write_scalar(const PlanColumn& c, PyObject* leaf, char* to) {
  if (PyFloat_CheckExact(leaf)) return write_float(c, PyFloat_AsDouble(leaf), to);
  if (PyBool_Check(leaf)) return write_int(c, leaf == Py_True ? 1 : 0, to, true);
  if (PyLong_CheckExact(leaf)) {
    int overflow = 0;
    const long long value = PyLong_AsLongLongAndOverflow(leaf, &overflow);
    return overflow == 0 && write_int(c, value, to, false);
  }
  // A NumPy scalar of exactly that dtype. Scalars of extension types (bfloat16) keep their value where NumPy does not
  // look.
  if (Py_TYPE(leaf) == c.scalar_type && c.type_num < NPY_USERDEF) {
    PyArray_ScalarAsCtype(leaf, to);
    return true;
  }
  if (const int type_num = scalar_type_num(Py_TYPE(leaf)); type_num >= 0) return cast_scalar(c, leaf, type_num, to);
  if (PyComplex_CheckExact(leaf)) {
    const double value[2] = {PyComplex_RealAsDouble(leaf), PyComplex_ImagAsDouble(leaf)};
    return c.of_complex != nullptr && c.of_complex(reinterpret_cast<const char*>(value), to, 1);
  }
  return write_array(c, leaf, to);
}

}  // namespace shmreplay
