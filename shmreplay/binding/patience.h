// How a blocked native call stays a good Python citizen: signals are handled, and an observer, a Python callable, hears of
// long waits and may end them.
#pragma once

#include <atomic>
#include <cmath>

#include "futex.h"
#include "gil.h"
#include "python.h"
#include "status.h"
#include "status_error.h"
#include "wait.h"

namespace shmreplay {

// Entered with the GIL released; takes it for each question.
class GilPatience : public Patience {
 public:
  // `ended`: whether the handle's calls have been given up, if that can be.
  explicit GilPatience(PyObject* observer, const std::atomic<bool>* ended = nullptr) noexcept
      : ended_(ended), observer_(observer) {}

  // SYNC POINT with TableHandle::end_waits: seq_cst, as the futex words that are bumped after it.
  bool ended() const noexcept override { return ended_ != nullptr && ended_->load(std::memory_order_seq_cst); }

  bool interrupted() noexcept override {
    const GilAcquire gil;
    if (outlive_interpreter(&PyErr_CheckSignals) != 0) return true;  // the handler's exception stays set for the call's end
    if (observer_ == nullptr || observer_ == Py_None) return false;
    PyObject* result = ask("waiting", 0, 0);  // raises when nobody wants the call's outcome any more
    Py_XDECREF(result);
    return result == nullptr;
  }
  void lock_stuck(uint32_t pid, int64_t seconds) noexcept override { tell("lock", pid, seconds); }
  void still_blocked(int64_t seconds) noexcept override { tell("blocked", 0, seconds); }
  void evicted_for_room() noexcept override { tell("evicted", 0, 0); }

 private:
  PyObject* ask(const char* what, uint32_t pid, int64_t seconds) noexcept {
    return outlive_interpreter(
        [&] { return PyObject_CallFunction(observer_, "sIL", what, pid, static_cast<long long>(seconds)); });
  }

  void tell(const char* what, uint32_t pid, int64_t seconds) noexcept {
    const GilAcquire gil;
    if (observer_ == nullptr || observer_ == Py_None) return;
    PyObject* result = ask(what, pid, seconds);
    if (result == nullptr) PyErr_WriteUnraisable(observer_);  // a report that fails must not end the wait
    Py_XDECREF(result);
  }

  const std::atomic<bool>* ended_;
  PyObject* observer_;  // borrowed from the caller, who holds it over the call
};

// None waits for ever, 0 never; seconds >= 0.
inline int64_t deadline_of(nb::handle timeout_s) {
  if (timeout_s.is_none()) return kForever;
  const double seconds = PyFloat_AsDouble(timeout_s.ptr());
  if (!(seconds >= 0)) {
    const bool is_number = !(seconds == -1.0 && PyErr_Occurred());
    PyErr_Clear();
    const nb::str text = nb::repr(timeout_s);
    raise_error(is_number ? "ValueError" : "TypeError",
                "timeout_s is " + std::string(text.c_str()) + "; expected seconds >= 0, or None to wait for ever");
  }
  if (seconds == 0) return 0;
  if (seconds > 1e9) return kForever;
  return now_ns() + static_cast<int64_t>(seconds * 1e9);
}

// A signal that came during a call that went well is handled now: one instruction later Python would raise its exception
// without what the call did, and a consumed item would be lost.
inline Status handle_signals(Status status) {
  return status == Status::kOk && outlive_interpreter(&PyErr_CheckSignals) != 0 ? Status::kInterrupted : status;
}

inline nb::object take_raised() {
  PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  Py_XDECREF(type);
  Py_XDECREF(trace);
  return value == nullptr ? nb::none() : nb::steal(value);
}

inline constexpr Wait kTryOnly{0, nullptr, true};

}  // namespace shmreplay
