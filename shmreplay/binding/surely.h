// Python code that has to come to its end although handlers of signals may raise in it: it makes what a call hands out,
// when the call has changed the table already.
#pragma once

#include "gil.h"
#include "patience.h"
#include "python.h"

namespace shmreplay {

// A handler runs once for each signal, so the second try comes to its end unless another signal comes.
inline constexpr int kTries = 8;

// Answers what call(), a PyObject*, answers. If it raises, it is called again, and its exception is put in `raised`:
// the caller raises that when what was made is in its place. If it raises each time, so does this.
template <class Call>
nb::object made_surely(Call call, nb::object& raised) {
  for (int left = kTries;; --left) {
    PyObject* made = outlive_interpreter(call);
    if (made != nullptr) return nb::steal(made);
    if (left == 1) throw nb::python_error();
    raised = take_raised();
  }
}

}  // namespace shmreplay
