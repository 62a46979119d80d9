// How a blocked native call stays a good Python citizen. It handles signals. An observer, a Python callable, hears of
// long waits. When the caller has given a call up, the observer raises what the call ends with.
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

// Set once, to end calls of one handle or of all handles of a client: see TableContext.
class Flag {
 public:
  void set() noexcept { is_set_.store(true, std::memory_order_seq_cst); }
  bool is_set() const noexcept { return is_set_.load(std::memory_order_seq_cst); }

 private:
  std::atomic<bool> is_set_{false};
};

// Its methods are called with the GIL released, and take it for each question. Hundreds of blocked processes ask once a
// second, each time with cold caches; so what can be answered without Python is.
class GilPatience : public Patience {
 public:
  // `ended`: the calls of this handle were given up. `closed`: those of all handles of its client were. Either may be
  // nullptr.
  explicit GilPatience(PyObject* observer, const Flag* ended = nullptr, const Flag* closed = nullptr) noexcept
      : ended_(ended), closed_(closed), observer_(observer) {}

  // SYNC POINT with NativeTable::end_waits: seq_cst, like the futex words that are bumped after it. Closing a client
  // bumps no futex word, because that would wake every call that waits in its tables; the client's own calls notice
  // within a slice.
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
  // Reported after one second, after ten, and then once a minute; a report may come late, but it comes.
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
    if (result == nullptr)
      outlive_interpreter([this] { PyErr_WriteUnraisable(observer_); });  // a report that fails must not end the wait
    Py_XDECREF(result);
  }

  const Flag* ended_;
  const Flag* closed_;
  int64_t told_s_ = 0;
  PyObject* observer_;  // borrowed: the caller keeps it alive during the call
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
  const double seconds = outlive_interpreter([&] { return PyFloat_AsDouble(timeout_s.ptr()); });
  if (!(seconds >= 0)) {
    const bool is_number = !(seconds == -1.0 && PyErr_Occurred());
    PyErr_Clear();
    const nb::str text = outlive_interpreter([&] { return nb::repr(timeout_s); });
    raise_error(is_number ? "ValueError" : "TypeError",
                "timeout_s is " + std::string(text.c_str()) + "; expected seconds >= 0, or None to wait for ever");
  }
  if (seconds == 0) return 0;
  if (seconds > 1e9) return kForever;
  return now_ns() + static_cast<int64_t>(seconds * 1e9);
}

// Handles now a signal that came during a call that went well. Otherwise Python would raise the handler's exception one
// instruction later, without what the call did, and a consumed item would be lost.
inline Status handle_signals(Status status) {
  return status == Status::kOk && outlive_interpreter(&PyErr_CheckSignals) != 0 ? Status::kInterrupted : status;
}

inline nb::object take_raised() {
  PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  Py_XDECREF(type);
  outlive_interpreter([trace] { Py_XDECREF(trace); });
  return value == nullptr ? nb::none() : nb::steal(value);
}

}  // namespace shmreplay
