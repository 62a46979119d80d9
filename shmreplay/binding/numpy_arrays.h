// Arrays of numbers between Python and the core.
#pragma once

#include <string>
#include <vector>

#include "python.h"

namespace shmreplay {

// A copy of the numbers of a contiguous array of one axis and of that type. A copy, because inside a hold only our own
// memory is read (rule 2), and because what is used must be what was checked, whatever another thread does to the
// array.
template <class T>
std::vector<T> copied(nb::handle values, int type_num, const char* expected) {
  if (!PyArray_Check(values.ptr())) throw nb::type_error(expected);
  auto* array = reinterpret_cast<PyArrayObject*>(values.ptr());
  if (PyArray_TYPE(array) != type_num || PyArray_NDIM(array) != 1 || !PyArray_IS_C_CONTIGUOUS(array))
    throw nb::type_error(expected);
  const auto* data = static_cast<const T*>(PyArray_DATA(array));
  return {data, data + PyArray_DIM(array, 0)};
}

// A new array of n numbers of any content.
inline nb::object new_array(int type_num, npy_intp n) {
  PyObject* array = PyArray_SimpleNew(1, &n, type_num);
  if (array == nullptr) throw nb::python_error();
  return nb::steal(array);
}

template <class T>
T* array_data(const nb::object& array) {
  return static_cast<T*>(PyArray_DATA(reinterpret_cast<PyArrayObject*>(array.ptr())));
}

}  // namespace shmreplay
