// What a core call can answer. The binding has the one table that maps these to Python's exceptions.
#pragma once

namespace shmreplay {

enum class Status : int {
  kOk = 0,
  kTimeout = 1,       // the rate limiter, or a chunk, did not admit the call in time; nothing of the last step happened
  kInterrupted = 2,   // a signal handler raised; what was done before stays done
  kClosed = 3,        // the table was dropped
  kSessionLost = 4,   // this session was reaped (its process was thought dead) or never opened
  kForked = 5,        // the handle belongs to the parent process
  kFailed = 6,        // the segment is marked failed, or its lock cannot be recovered
  kLockTimeout = 7,   // another holder's one hold lasted longer than the caller waits
  kArenaFull = 8,     // no chunk can come free, or on_full="error"
  kNoStreams = 9,     // max_streams are open
  kNoCallSlots = 10,  // every call slot is in use
  kNoPatterns = 11,   // the pattern table is full of patterns in use
  kStructure = 12,    // the item has another structure than the table's
  kTooManyChunks = 13,  // the item spans more chunks than one hold can log
  kNoSessions = 14,     // max_sessions are attached
  kHistory = 15,        // fewer steps than asked for are held
  kMissingCell = 16,    // an item selects what a step lacks
  kBadPriority = 17,    // an item's priority is not finite, negative, or none that its table takes
  kTooLong = 18,        // an item has more rows than the batch is to have; nothing more was drawn
  kTooFewItems = 19,    // no item is left that the call has not drawn already
  kValueTooLarge = 20,  // values of a row, or of an item, that the whole block heap does not hold
  kNoMemory = 21,       // no memory for the values of the next item; nothing of that item happened
};

}  // namespace shmreplay
