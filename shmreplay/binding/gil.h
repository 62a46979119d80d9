// Giving the GIL away over native work, and taking it again.
//
// Python before 3.14 ends a thread that wants the GIL back while the interpreter shuts down by unwinding its stack, which
// in C++ frames is std::terminate: a daemon thread in sample() would abort its process at exit. So at exit, before the
// interpreter begins to go, threads that come out of native work are parked instead; they end with the process.
#pragma once

#include <cxxabi.h>
#include <pthread.h>
#include <unistd.h>

#include "python.h"

namespace shmreplay {

// Runs work that takes the GIL, outright or by running Python code, which gives it up and takes it back now and then. Where
// Python ends the thread meanwhile, the unwinding stops here, and the thread sleeps until the process is gone.
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
  ~GilRelease() { outlive_interpreter([this] { PyEval_RestoreThread(state_); }); }
  GilRelease(const GilRelease&) = delete;
  GilRelease& operator=(const GilRelease&) = delete;

 private:
  PyThreadState* state_;
};

class GilAcquire {
 public:
  GilAcquire() { outlive_interpreter([this] { state_ = PyGILState_Ensure(); }); }
  ~GilAcquire() { PyGILState_Release(state_); }
  GilAcquire(const GilAcquire&) = delete;
  GilAcquire& operator=(const GilAcquire&) = delete;

 private:
  PyGILState_STATE state_;
};

}  // namespace shmreplay
