// A compiled signature: how a step that Python gives is written into a row in one pass.
//
// The fast path takes what needs no judgement: arrays of the column's shape and NumPy scalars, of its dtype or of one
// that its cast rule allows (step_leaf.h), and Python numbers that fit. Everything else goes to the signature's
// canonical() in Python, which converts it or explains what is wrong.
#pragma once

#include <string>
#include <vector>

#include "gil.h"
#include "step_leaf.h"

namespace shmreplay {

class StepPlan {
 public:
  // `plan`: Signature.native_plan(). `columns`: see read_column(); a plan with a column of Python's codec never takes
  // the fast path. `canonical`: Signature.canonical.
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
    return visit<false>(
        root_, step, [&](uint32_t column, PyObject* leaf) { return write_leaf(columns_[column], leaf, cell(column)); });
  }

  // The arrays of a batch of steps, by column, each [n, *shape]: the caller's, or what was cast of them. All leading
  // axes must agree. false: it cannot take the fast path.
  bool batch(PyObject* steps, std::vector<Held>& arrays, npy_intp& n) const {
    return batch(steps, arrays, n, [](npy_intp) { return true; });
  }
  // `must_fit`: of a row that has a number beyond its column's range, whether it is used at all.
  template <class MustFit>
  bool batch(PyObject* steps, std::vector<Held>& arrays, npy_intp& n, MustFit must_fit) const {
    return batch_as<false>(steps, arrays, n, must_fit);
  }
  // The same for a batch that may lack columns: their arrays are not valid, and n is -1 if all are lacking.
  template <class MustFit>
  bool batch_part(PyObject* steps, std::vector<Held>& arrays, npy_intp& n, MustFit must_fit) const {
    return batch_as<true>(steps, arrays, n, must_fit);
  }

  // Whether a list is several steps and never a step itself.
  bool takes_lists() const noexcept { return !has_opaque_ && !root_.is_list; }

  // Looks at a step without writing it. Calls array(column, array) for each leaf that is an array, number(column) for
  // each that is a number: it says where the number goes. false: it cannot take the fast path.
  template <class Array, class PlaceOf>
  bool look(PyObject* step, Array array, PlaceOf number) const {
    return look_as<false>(step, array, number);
  }
  // The same for a step that may lack columns.
  template <class Array, class PlaceOf>
  bool look_at_part(PyObject* step, Array array, PlaceOf number) const {
    return look_as<true>(step, array, number);
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

  template <bool kPart, class MustFit>
  bool batch_as(PyObject* steps, std::vector<Held>& arrays, npy_intp& n, MustFit must_fit) const {
    if (has_opaque_) return false;
    arrays.assign(columns_.size(), Held());
    n = -1;
    return visit<kPart>(root_, steps, [&](uint32_t column, PyObject* leaf) {
      arrays[column] = exact_array(columns_[column], leaf, 1, must_fit);
      if (!arrays[column].is_valid()) return false;
      const npy_intp rows = PyArray_DIM(reinterpret_cast<PyArrayObject*>(arrays[column].ptr()), 0);
      if (n >= 0 && rows != n) return false;
      n = rows;
      return true;
    });
  }

  template <bool kPart, class Array, class PlaceOf>
  bool look_as(PyObject* step, Array array, PlaceOf number) const {
    return visit<kPart>(root_, step, [&](uint32_t column, PyObject* leaf) {
      const PlanColumn& c = columns_[column];
      if (c.shape.empty()) return write_scalar(c, leaf, number(column));
      Held exact = exact_array(c, leaf, 0, [](npy_intp) { return true; });
      const bool is_valid = exact.is_valid();
      if (is_valid) array(column, std::move(exact));
      return is_valid;
    });
  }

  // kPart: dicts may lack keys, and None stands for a part that is lacking. Lacking leaves are not visited.
  template <bool kPart, class Leaf>
  static bool visit(const Node& node, PyObject* value, Leaf leaf) {
    if (kPart && value == Py_None) return true;
    switch (node.kind) {
      case Kind::kLeaf: return leaf(node.column, value);
      case Kind::kDict: return visit_dict<kPart>(node, value, leaf);
      default: return visit_seq<kPart>(node, value, leaf);
    }
  }

  template <bool kPart, class Leaf>
  static bool visit_dict(const Node& node, PyObject* value, Leaf leaf) {
    if (!PyDict_CheckExact(value)) return false;
    Py_ssize_t at = 0, num_found = 0;
    for (size_t i = 0; i < node.keys.size(); ++i) {
      PyObject* child = child_of(value, node.keys[i].ptr(), at);
      if (child == nullptr && kPart) continue;
      if (child == nullptr || !visit<kPart>(node.children[i], child, leaf)) return false;
      ++num_found;
    }
    return num_found == PyDict_Size(value);  // else it has a key that the signature has not
  }

  // The dict's value of a key, or nullptr. A dict mostly has its keys in the signature's order: then the next one, from
  // `at` on, is the one asked for, and nothing is looked up.
  static PyObject* child_of(PyObject* dict, PyObject* key, Py_ssize_t& at) {
    Py_ssize_t next = at;
    PyObject *found = nullptr, *child = nullptr;
    if (PyDict_Next(dict, &next, &found, &child) != 0 && found == key) {
      at = next;
      return child;
    }
    child = PyDict_GetItemWithError(dict, key);
    if (child == nullptr) PyErr_Clear();  // a key that cannot be compared counts as absent: canonical() will say so
    return child;
  }

  template <bool kPart, class Leaf>
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
      if (child == nullptr || !visit<kPart>(node.children[static_cast<size_t>(i)], child, leaf)) {
        PyErr_Clear();
        return false;
      }
    }
    return true;
  }

  static bool write_leaf(const PlanColumn& c, PyObject* leaf, char* to) {
    return c.shape.empty() ? write_scalar(c, leaf, to) : write_array(c, leaf, to);
  }

  std::vector<PlanColumn> columns_;
  bool has_opaque_ = false;
  std::vector<uint32_t> packed_;  // columns
  Node root_;
  Held canonical_;
};

}  // namespace shmreplay
