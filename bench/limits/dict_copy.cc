// A bare C function that copies a dict of arrays, ints, floats and bools into columns: looked up by known keys, with
// no look at dtypes or shapes, no lock, and nobody told.
#include <Python.h>

#define NPY_NO_DEPRECATED_API NPY_1_7_API_VERSION
#include <numpy/ndarraytypes.h>

#include <cstdint>
#include <cstring>

namespace {

void copy_leaf(PyObject* leaf, char* to, uint64_t bytes) {
  if (PyFloat_CheckExact(leaf)) {
    const auto value = static_cast<float>(PyFloat_AS_DOUBLE(leaf));
    std::memcpy(to, &value, sizeof value);
  } else if (PyBool_Check(leaf)) {
    *to = leaf == Py_True;
  } else if (PyLong_CheckExact(leaf)) {
    const int64_t value = PyLong_AsLongLong(leaf);
    std::memcpy(to, &value, sizeof value);
  } else {
    std::memcpy(to, PyArray_DATA(reinterpret_cast<PyArrayObject*>(leaf)), bytes);
  }
}

}  // namespace

// Steps of a list, round and round, into rows `first`, first + 1, ... of num_rows; `columns` says where each column is.
// How many it copied: fewer than n if a step lacks a key.
extern "C" uint64_t copy_dicts(PyObject* steps, PyObject* keys, char* const* columns, const uint64_t* row_bytes,
                               uint64_t num_rows, uint64_t first, uint64_t n) {
  const Py_ssize_t num_steps = PyList_GET_SIZE(steps), num_columns = PyTuple_GET_SIZE(keys);
  Py_ssize_t s = 0;
  uint64_t row = first % num_rows;
  for (uint64_t i = 0; i < n; ++i) {
    PyObject* step = PyList_GET_ITEM(steps, s);
    for (Py_ssize_t c = 0; c < num_columns; ++c) {
      PyObject* leaf = PyDict_GetItemWithError(step, PyTuple_GET_ITEM(keys, c));
      if (leaf == nullptr) return i;
      copy_leaf(leaf, columns[c] + row * row_bytes[c], row_bytes[c]);
    }
    if (++s == num_steps) s = 0;
    if (++row == num_rows) row = 0;
  }
  return n;
}
