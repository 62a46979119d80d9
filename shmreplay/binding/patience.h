// How a blocked native call stays a good Python citizen: signals are handled, and an observer, a Python callable, hears
// of long waits, and says why a call ends whose outcome nobody wants any more.
#pragma once

#include <atomic>
#include <cmath>

#include "base/futex.h"
#include "base/status.h"
#include "base/wait.h"
#include "gil.h"
#include "python.h"
#include "status_error.h"

namespace shmreplay {

inline constexpr int64_t kFirstReportS = 10, kLaterReportsS = 60;  // of a wait that goes on

// Set once, by whoever has handles: see TableContext.
class Flag {
 public:
  void set() noexcept { is_set_.store(true, std::memory_order_seq_cst); }
  bool is_set() const noexcept { return is_set_.load(std::memory_order_seq_cst); }

 private:
  std::atomic<bool> is_set_{false};
};

// Entered with the GIL released; takes it for each question. Hundreds of blocked processes ask once a second, each time
// with cold caches: what can be answered without Python is.
class GilPatience : public Patience {
 public:
  // `ended`, `closed`: whether the handle's calls have been given up, and those of all its client's handles, if that
  // can be.
  explicit GilPatience(PyObject* observer, const Flag* ended = nullptr, const Flag* closed = nullptr) noexcept
      : ended_(ended), closed_(closed), observer_(observer) {}

  // SYNC POINT with NativeTable::end_waits: seq_cst, as the futex words that are bumped after it. A client's end bumps
  // none, for it would wake all that wait in its tables: its own calls hear of it within a slice.
  bool ended() const noexcept override {
    return (ended_ != nullptr && ended_->is_set()) || (closed_ != nullptr && closed_->is_set());
  }

  bool interrupted() noexcept override {
    const GilAcquire gil;
    if (outlive_interpreter(&PyErr_CheckSignals) != 0)
      return true;  // the handler's exception stays set for the call's end
    if (!ended() || observer_ == nullptr || observer_ == Py_None) return false;
    PyObject* result = ask("ended", 0, 0);  // raises what the call ends with
    Py_XDECREF(result);
    return result == nullptr;
  }
  void lock_stuck(uint32_t pid, int64_t seconds) noexcept override { tell("lock", pid, seconds); }
  // Told after a second, then after ten, and then once a minute; late rather than not at all.
  void still_blocked(int64_t seconds) noexcept override {
    const int64_t due = seconds >= kLaterReportsS  ? seconds / kLaterReportsS * kLaterReportsS
                        : seconds >= kFirstReportS ? kFirstReportS
                                                   : 1;
    if (due <= told_s_ && seconds >= told_s_) return;
    told_s_ = due;
    tell("blocked", 0, due);
  }
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

  const Flag* ended_;
  const Flag* closed_;
  int64_t told_s_ = 0;
  PyObject* observer_;  // borrowed: the caller keeps it for the length of the call
};

// For a call that waits for news. However long that takes, nothing is wrong, so nothing is reported.
class QuietPatience final : public GilPatience {
 public:
  explicit QuietPatience(const GilPatience& patience) noexcept : GilPatience(patience) {}
  void still_blocked(int64_t) noexcept override {}
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

// A signal that came during a call that went well is handled now: one instruction later Python would raise its
// exception without what the call did, and a consumed item would be lost.
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
