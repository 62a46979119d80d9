// A lease names the chunks that one read in flight will touch, so that nobody reuses them under it.
//
// Under the lock, a read takes a call slot and names chunks while something refers to them. Without the lock, it
// gathers and then drops the lease.
//
// A slot belongs to one call, not to a thread. Its names only grow until it is dropped, and a retired chunk can never
// be named again. So the scan that frees retired chunks needs no lock, and a stopped reader withholds its own chunks
// and no others.
//
// No call sleeps with a lease in hand, for a limiter or for a chunk. A view keeps its lease between calls. Its process
// may then wait for a chunk that it withholds itself; that call gets an error that says so.
#pragma once

#include <vector>

#include "arena/hold.h"

namespace shmreplay {

class Lease {
 public:
  explicit Lease(Arena& arena) noexcept : arena_(arena) {}
  ~Lease() { drop(); }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  // Takes a slot. kNoCallSlots when all are in use: then leave the hold and call wait_for_call_slot()
  // (call_slot_wait.h).
  Status take(Hold& hold);

  bool taken() const noexcept { return slot_ != kNone; }
  uint32_t room() const noexcept { return kMaxNames - count_; }

  // Names a chunk that something still refers to. The caller must have checked room(). Naming the same chunk twice in a
  // row takes one place.
  void name(Hold& hold, uint32_t chunk);

  // Gives back the names and the slot, and wakes the calls that wait for a chunk. Idempotent; without the lock. A
  // forked child only forgets them: they are its parent's.
  void drop() noexcept;

 private:
  Arena& arena_;
  uint32_t slot_ = kNone;
  uint32_t count_ = 0;
  uint32_t last_ = kNone;  // the chunk named last
};

// Whether any slot is free. Without the lock: the second look before a caller sleeps (call_slot_wait.h).
bool has_free_call_slot(const Arena& arena) noexcept;

// Every chunk that any lease names, sorted. Without the lock: see the SYNC POINT in leases.cc.
std::vector<uint32_t> named_chunks(Arena& arena);

// The sessions whose leases name chunks, each once. Without the lock: a hint.
std::vector<uint32_t> sessions_that_name_chunks(const Arena& arena);

// Whether a live lease of session `index` names any chunk: then that session would wait for itself.
bool session_names_chunks(Arena& arena, uint32_t index, uint32_t generation) noexcept;

// Gives back the slots of a session that is gone. One slice of at most `slice` slots from `cursor` on; true when done.
bool drop_leases_of(Arena& arena, uint32_t index, uint32_t generation, uint32_t& cursor, uint32_t slice) noexcept;

}  // namespace shmreplay
