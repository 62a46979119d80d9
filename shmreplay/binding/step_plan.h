// A compiled signature: how a step that Python gives is written into a row in one pass.
//
// The fast path takes what needs no judgement: arrays and NumPy scalars of exactly the column's dtype and shape, and
// Python numbers that fit. Everything else goes to the signature's canonical() in Python, which converts it by the
// column's cast rule or explains what is wrong.
#pragma once

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/row_copy.h"
#include "gil.h"

namespace shmreplay {

struct PlanColumn {
  Held descr;  // np.dtype
  PyTypeObject* scalar_type = nullptr;
  int type_num = 0;
  size_t row_bytes = 0;
  std::vector<npy_intp> shape;
  bool is_opaque = false;    // its values are bytes that Python's codec makes; it has no dtype
  uint32_t flags = 0;        // ColumnFlag: the arena's, once bound to it
  bool is_packed = false;    // in the heap, packed by the core's codec; Python sees it as a plain one; once bound
  bool past_caches = false;  // once bound: see Arena::exceeds_caches()
};

class StepPlan {
 public:
  // `plan`: Signature.native_plan(). `columns`: (np.dtype, shape) for each column, or None for a column of Python's
  // codec; a plan with a None never takes the fast path. `canonical`: Signature.canonical.
  StepPlan(nb::handle plan, nb::sequence columns, nb::object canonical) : canonical_(std::move(canonical)) {
    for (nb::handle c : columns) {
      columns_.push_back(read_column(c));
      has_opaque_ |= columns_.back().is_opaque;
    }
    root_ = read_node(plan);
  }

  const std::vector<PlanColumn>& columns() const { return columns_; }
  bool has_opaque() const noexcept { return has_opaque_; }
  bool has_heap() const noexcept { return has_opaque_ || has_packed(); }
  bool has_packed() const noexcept { return !packed_.empty(); }
  const std::vector<uint32_t>& packed_columns() const noexcept { return packed_; }
  void bind(size_t column, uint32_t flags, bool is_packed, bool past_caches) {
    columns_[column].flags = flags;
    columns_[column].is_packed = is_packed;
    columns_[column].past_caches = past_caches && !is_packed;  // packed cells are the writer's own, read at once
    if (is_packed) packed_.push_back(static_cast<uint32_t>(column));
  }
  const nb::object& canonical() const { return canonical_; }

  // Writes a whole step; cell(column) says where. false: it cannot take the fast path (cells may be partly written).
  template <class Cell>
  bool write(PyObject* step, Cell cell) const {
    if (has_opaque_) return false;
    return visit(root_, step,
                 [&](uint32_t column, PyObject* leaf) { return write_leaf(columns_[column], leaf, cell(column)); });
  }

  // The arrays of a batch of steps, by column (borrowed). Each must be contiguous and, after its leading axis, of the
  // right dtype and shape; all leading axes must agree. false: it cannot take the fast path.
  bool batch(PyObject* steps, std::vector<PyArrayObject*>& arrays, npy_intp& n) const {
    if (has_opaque_) return false;
    arrays.assign(columns_.size(), nullptr);
    n = -1;
    return visit(root_, steps, [&](uint32_t column, PyObject* leaf) {
      const PlanColumn& c = columns_[column];
      if (!is_exact(c, leaf, 1)) return false;
      auto* array = reinterpret_cast<PyArrayObject*>(leaf);
      if (n >= 0 && PyArray_DIM(array, 0) != n) return false;
      n = PyArray_DIM(array, 0);
      arrays[column] = array;
      return true;
    });
  }

  // Whether a list is several steps and never a step itself.
  bool takes_lists() const noexcept { return !has_opaque_ && !root_.is_list; }

  // Looks at a step without writing it. Calls array(column, array) for each leaf that is an array; place(column) says
  // where a number goes. false: it cannot take the fast path.
  template <class Array, class PlaceOf>
  bool look(PyObject* step, Array array, PlaceOf place) const {
    return visit(root_, step, [&](uint32_t column, PyObject* leaf) {
      const PlanColumn& c = columns_[column];
      if (c.shape.empty()) return write_scalar(c, leaf, place(column));
      if (!is_exact(c, leaf, 0)) return false;
      array(column, reinterpret_cast<PyArrayObject*>(leaf));
      return true;
    });
  }

  // Whether `leaf` is a contiguous array of the column's dtype and of its shape after `leading` axes.
  static bool is_exact(const PlanColumn& c, PyObject* leaf, int leading) {
    if (!PyArray_CheckExact(leaf)) return false;  // a subclass may mean more than its numbers
    auto* array = reinterpret_cast<PyArrayObject*>(leaf);
    auto* descr = PyArray_DESCR(array);
    auto* want = reinterpret_cast<PyArray_Descr*>(c.descr.ptr());
    if (descr != want && !PyArray_EquivTypes(descr, want)) return false;
    if (PyArray_NDIM(array) != static_cast<int>(c.shape.size()) + leading) return false;
    for (size_t d = 0; d < c.shape.size(); ++d) {
      if (PyArray_DIM(array, static_cast<int>(d) + leading) != c.shape[d]) return false;
    }
    return PyArray_IS_C_CONTIGUOUS(array) != 0;
  }

 private:
  enum class Kind { kLeaf, kDict, kSeq };
  struct Node {
    Kind kind;
    uint32_t column = 0;
    Held type;  // of a named tuple
    bool is_list = false;
    std::vector<Held> keys;
    std::vector<Node> children;
  };

  static PlanColumn read_column(nb::handle spec) {
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
    return c;
  }

  static Node read_node(nb::handle plan) {
    const auto kind = nb::cast<std::string>(plan[0]);
    Node node{};
    if (kind == "leaf") {
      node.kind = Kind::kLeaf;
      node.column = nb::cast<uint32_t>(plan[1]);
      return node;
    }
    node.kind = kind == "dict" ? Kind::kDict : Kind::kSeq;
    if (node.kind == Kind::kDict) {
      const nb::object keys = plan[1];
      for (nb::handle key : keys) node.keys.push_back(interned(key));
    } else if (nb::isinstance<nb::str>(plan[1])) {
      node.is_list = nb::cast<std::string>(plan[1]) == "list";
    } else {
      node.type = nb::borrow(plan[1]);
    }
    const nb::object children = plan[2];
    for (nb::handle child : children) node.children.push_back(read_node(child));
    return node;
  }

  // The object that a key written in a program is, so that the key is found by its address.
  static nb::object interned(nb::handle key) {
    PyObject* text = key.inc_ref().ptr();
    PyUnicode_InternInPlace(&text);
    return nb::steal(text);
  }

  template <class Leaf>
  static bool visit(const Node& node, PyObject* value, Leaf leaf) {
    switch (node.kind) {
      case Kind::kLeaf: return leaf(node.column, value);
      case Kind::kDict: return visit_dict(node, value, leaf);
      default: return visit_seq(node, value, leaf);
    }
  }

  // A dict mostly has its keys in the signature's order: then nothing is looked up.
  template <class Leaf>
  static bool visit_dict(const Node& node, PyObject* value, Leaf leaf) {
    if (!PyDict_CheckExact(value) || static_cast<size_t>(PyDict_Size(value)) != node.keys.size()) return false;
    Py_ssize_t at = 0;
    for (size_t i = 0; i < node.keys.size(); ++i) {
      PyObject *key = nullptr, *child = nullptr;
      const bool is_next = PyDict_Next(value, &at, &key, &child) != 0 && key == node.keys[i].ptr();
      if (!is_next) child = PyDict_GetItemWithError(value, node.keys[i].ptr());
      if (child == nullptr) {
        PyErr_Clear();  // a key that cannot be compared counts as absent: canonical() will say so
        return false;
      }
      if (!visit(node.children[i], child, leaf)) return false;
    }
    return true;
  }

  template <class Leaf>
  static bool visit_seq(const Node& node, PyObject* value, Leaf leaf) {
    const auto n = static_cast<Py_ssize_t>(node.children.size());
    if (node.is_list) {
      if (!PyList_CheckExact(value) || PyList_Size(value) != n) return false;
    } else {
      PyObject* want = node.type.is_valid() ? node.type.ptr() : reinterpret_cast<PyObject*>(&PyTuple_Type);
      if (reinterpret_cast<PyObject*>(Py_TYPE(value)) != want || PyTuple_Size(value) != n) return false;
    }
    for (Py_ssize_t i = 0; i < n; ++i) {
      PyObject* child = node.is_list ? PyList_GetItem(value, i) : PyTuple_GetItem(value, i);
      if (!visit(node.children[static_cast<size_t>(i)], child, leaf)) return false;
    }
    return true;
  }

  static bool write_leaf(const PlanColumn& c, PyObject* leaf, char* to) {
    if (c.shape.empty()) return write_scalar(c, leaf, to);
    if (!is_exact(c, leaf, 0)) return false;
    copy_row(to, static_cast<const char*>(PyArray_DATA(reinterpret_cast<PyArrayObject*>(leaf))), c.row_bytes,
             c.past_caches);
    return true;
  }

  static bool write_scalar(const PlanColumn& c, PyObject* leaf, char* to) {
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
    if (!is_exact(c, leaf, 0)) return false;
    std::memcpy(to, PyArray_DATA(reinterpret_cast<PyArrayObject*>(leaf)), c.row_bytes);
    return true;
  }

  static bool write_float(const PlanColumn& c, double value, char* to) {
    if (c.type_num == NPY_DOUBLE) {
      std::memcpy(to, &value, 8);
      return true;
    }
    if (c.type_num != NPY_FLOAT) return false;
    const auto narrow = static_cast<float>(value);
    if (std::isinf(narrow) && !std::isinf(value)) return false;
    std::memcpy(to, &narrow, 4);
    return true;
  }

  template <class T>
  static bool write_as(long long value, char* to) {
    if (value < static_cast<long long>(std::numeric_limits<T>::min())) return false;
    if (value > 0 &&
        static_cast<unsigned long long>(value) > static_cast<unsigned long long>(std::numeric_limits<T>::max()))
      return false;
    const auto narrow = static_cast<T>(value);
    std::memcpy(to, &narrow, sizeof(T));
    return true;
  }

  static bool write_int(const PlanColumn& c, long long value, char* to, bool is_bool) {
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
      case NPY_FLOAT:
      case NPY_DOUBLE: return write_float(c, static_cast<double>(value), to);
      default: return false;
    }
  }

  std::vector<PlanColumn> columns_;
  bool has_opaque_ = false;
  std::vector<uint32_t> packed_;  // columns
  Node root_;
  Held canonical_;
};

}  // namespace shmreplay
