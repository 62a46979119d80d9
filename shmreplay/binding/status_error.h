// The one table that maps what the core answers to the exceptions of shmreplay.errors.
#pragma once

#include "arena/layout.h"
#include "base/leaf_weights.h"
#include "base/status.h"
#include "python.h"

namespace shmreplay {

struct StatusError {
  Status status;
  const char* error;  // class in shmreplay.errors
  const char* message;
};

inline constexpr StatusError kStatusErrors[] = {
    {Status::kTimeout, "RateLimitTimeout", "not admitted in time"},
    {Status::kClosed, "TableClosed", "the table was dropped, or its server was closed"},
    {Status::kSessionLost, "SessionLost",
     "this process' session in the arena is gone (its client was closed, or the daemon took it for dead); open the "
     "table anew"},
    {Status::kForked, "SessionLost", "this handle belongs to the parent process; open the table anew"},
    {Status::kFailed, "SegmentFailed",
     "the arena's index is damaged and cannot be trusted; restart the daemon with --discard, or restore a checkpoint"},
    {Status::kLockTimeout, "LockTimeout",
     "one and the same holder has kept the arena's lock for all of the call's timeout; is that process stopped?"},
    {Status::kArenaFull, "ArenaFull", "the arena has no free chunk; raise capacity_steps"},
    {Status::kNoStreams, "ShmReplayError", "all streams of the arena are open; close writers or raise max_streams"},
    {Status::kNoCallSlots, "ShmReplayError",
     "all call slots of the arena are in use by reads in flight; raise max_sessions"},
    {Status::kNoPatterns, "ShmReplayError",
     "the live items of the arena, and the first item of each table, were made by 256 different selections, and the "
     "arena "
     "keeps no more; let the items of some go (delete, sample, evict), or make items alike: those that show the same "
     "steps, counted from the newest, share one"},
    {Status::kStructure, "SignatureMismatch", "the item has another structure than the items of its table"},
    {Status::kTooManyChunks, "ShmReplayError",
     "the item spans more chunks than one item may; create the table with larger chunk_steps"},
    {Status::kNoSessions, "ShmReplayError", "all sessions of the arena are taken; raise max_sessions"},
    {Status::kHistory, "ValueError", "the writer holds fewer steps than that; make it with a longer history"},
    {Status::kMissingCell, "SignatureMismatch", "an item selects what a step lacks"},
    {Status::kBadPriority, "ValueError",
     "the item's table does not take the priority that the call gave, or that a rule read from the data"},
    {Status::kValueTooLarge, "ValueError",
     "the values of a step take more than the arena's whole heap; raise capacity_steps or mean_bytes"},
    {Status::kNoMemory, "MemoryError", "there is no memory for the next item's values; it stays in the table"},
    {Status::kTooLong, "ValueError", "an item has more rows than the batch is to have"},
    {Status::kTooFewItems, "ValueError", "no item is left that was not drawn already"},
};

// A new reference to an exception class of shmreplay.errors, or of builtins.
inline nb::object error_class(const char* name) {
  const nb::object errors = nb::module_::import_("shmreplay.errors");
  return nb::hasattr(errors, name) ? errors.attr(name) : nb::module_::import_("builtins").attr(name);
}

[[noreturn]] inline void raise_error(const char* name, const std::string& message) {
  PyErr_SetString(error_class(name).ptr(), message.c_str());
  throw nb::python_error();
}

// What an error about a priority says that it must be.
inline std::string expected_priority() {
  char text[256];
  std::snprintf(
      text, sizeof text,
      "priorities must be finite, >= 0 and at most %g; with a Prioritized sampler or remover, their power by its "
      "exponent must be 0, or from %g to %g",
      kMaxPriority, kLeastWeight, kMostWeight);
  return text;
}

// What it says, and what was expected.
inline std::string message_of(const StatusError& error) {
  return error.status == Status::kBadPriority ? error.message + ("; " + expected_priority()) : error.message;
}

// Raises unless the status is kOk; for kInterrupted, the exception that the signal handler has set.
inline void raise_status(Status status, const std::string& where) {
  if (status == Status::kOk) return;
  if (status == Status::kInterrupted) throw nb::python_error();
  for (const StatusError& e : kStatusErrors) {
    if (e.status == status) raise_error(e.error, where + ": " + message_of(e));
  }
  raise_error("InternalError",
              where + ": unknown status " + std::to_string(static_cast<int>(status)) + "; please report");
}

}  // namespace shmreplay
