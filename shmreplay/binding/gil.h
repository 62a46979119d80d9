// Releasing the GIL for native work, and taking it again.
//
// Before Python 3.14, a thread that wants the GIL back while the interpreter shuts down is ended by unwinding its
// stack. In C++ frames that is std::terminate: a daemon thread in sample() would abort its process at exit. So the
// unwinding is caught before it enters those frames, and the thread sleeps until the process is gone.
//
// So whatever can run Python's code goes through outlive_interpreter(). That includes the end of an object, which may
// drop others that end in Python: references that may be the last ones to such an object are Held.
#pragma once

#include <cxxabi.h>
#include <unistd.h>

#include <utility>

#include "python.h"

namespace shmreplay {

// Runs work that takes the GIL, either itself or by running Python code, which releases it and takes it back now and
// then.
template <class Work>
auto outlive_interpreter(Work work) {
  try {
    return work();
  } catch (abi::__forced_unwind&) {
    for (;;) pause();
  }
}

class GilRelease {
 public:
  GilRelease() noexcept : state_(PyEval_SaveThread()) {}
  ~GilRelease() {
    outlive_interpreter([this] { PyEval_RestoreThread(state_); });
  }
  GilRelease(const GilRelease&) = delete;
  GilRelease& operator=(const GilRelease&) = delete;

 private:
  PyThreadState* state_;
};

class GilAcquire {
 public:
  GilAcquire() {
    outlive_interpreter([this] { state_ = PyGILState_Ensure(); });
  }
  ~GilAcquire() { PyGILState_Release(state_); }
  GilAcquire(const GilAcquire&) = delete;
  GilAcquire& operator=(const GilAcquire&) = delete;

 private:
  PyGILState_STATE state_;
};

// A reference whose end may run Python's code: to a callable, or to what a user gave and may have dropped meanwhile.
class Held : public nb::object {
 public:
  using nb::object::object;
  Held() = default;
  Held(nb::object other) noexcept : nb::object(std::move(other)) {}  // NOLINT(google-explicit-constructor)
  Held(const Held&) = default;
  Held(Held&&) noexcept = default;
  Held& operator=(Held other) noexcept {
    std::swap(m_ptr, other.m_ptr);
    return *this;
  }
  ~Held() {
    PyObject* last = release().ptr();
    if (last != nullptr) outlive_interpreter([last] { Py_DECREF(last); });
  }
};

}  // namespace shmreplay
