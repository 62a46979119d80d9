// Releasing the GIL for native work, and taking it again.
//
// Before Python 3.14, a thread that wants the GIL back while the interpreter shuts down is ended by unwinding its
// stack. In C++ frames that is std::terminate: a daemon thread in sample() would abort its process at exit. So the
// unwinding is caught before it enters those frames, and the thread sleeps until the process is gone.
#pragma once

#include <cxxabi.h>
#include <unistd.h>

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

}  // namespace shmreplay
