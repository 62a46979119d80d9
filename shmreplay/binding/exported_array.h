// Arrays on the data segment that other libraries take by DLPack.
#pragma once

#include <nanobind/ndarray.h>

#include <string>
#include <vector>

#include "python.h"
#include "step_plan.h"

namespace shmreplay {

// What kind of memory it is said to be, in DLPack's numbers. The same memory is a host's (1). Where it is page-locked,
// it is also a device's to read: 3, or 2 under the address that the device has for it.
struct DlDevice {
  int type = nb::device::cpu::value;
  int id = 0;
};

// Raises TypeError for a type that DLPack does not have.
inline nb::dlpack::dtype dlpack_type(PyArray_Descr* descr) {
  using Code = nb::dlpack::dtype_code;
  const auto bits = static_cast<uint8_t>(8 * PyDataType_ELSIZE(descr));
  const auto of = [&](Code code) { return nb::dlpack::dtype{static_cast<uint8_t>(code), bits, 1}; };
  // Extension types are told apart by their names: float8 calls itself a float as well, and there are several of them.
  switch (descr->type_num < NPY_USERDEF ? descr->kind : 'V') {
    case 'b': return of(Code::Bool);
    case 'i': return of(Code::Int);
    case 'u': return of(Code::UInt);
    case 'f': return of(Code::Float);
    case 'c': return of(Code::Complex);
    default: break;
  }
  const nb::str name = nb::str(nb::handle(reinterpret_cast<PyObject*>(descr)));
  if (std::string(name.c_str()) == "bfloat16") return of(Code::Bfloat);
  throw nb::type_error((std::string(name.c_str()) + ": DLPack has no such type; read the column by sample()").c_str());
}

// Rows of a column, read-only, with __dlpack__ and __dlpack_device__ (and Python's buffer protocol, if it is the host's
// memory). `leading`: the axes before those of a row, each a length and a stride in bytes. `owner` lives as long as
// anything made of the array.
struct LeadingAxis {
  size_t length;
  int64_t stride_bytes;
};
inline nb::object exported_array(const PlanColumn& column, const char* first, const std::vector<LeadingAxis>& leading,
                                 const nb::capsule& owner, DlDevice device) {
  auto* descr = reinterpret_cast<PyArray_Descr*>(column.descr.ptr());
  const nb::dlpack::dtype type = dlpack_type(descr);
  const int64_t item_bytes = PyDataType_ELSIZE(descr);
  std::vector<size_t> shape;
  std::vector<int64_t> strides;
  for (const LeadingAxis& axis : leading) {
    shape.push_back(axis.length);
    strides.push_back(axis.stride_bytes / item_bytes);
  }
  int64_t inner = static_cast<int64_t>(column.row_bytes) / item_bytes;
  for (const npy_intp size : column.shape) {
    inner = size == 0 ? inner : inner / size;
    shape.push_back(static_cast<size_t>(size));
    strides.push_back(inner);
  }
  const nb::ndarray<nb::ro, nb::array_api> array(first, shape.size(), shape.data(), owner, strides.data(), type,
                                                 device.type, device.id);
  return nb::cast(array);
}

}  // namespace shmreplay
