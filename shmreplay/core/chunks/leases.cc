#include "chunks/leases.h"

#include <algorithm>

#include "arena/chunk_wait.h"
#include "base/futex.h"

namespace shmreplay {
namespace {

// Calls without a session are the daemon's. They stand under kNone, which is no session's number plus 1 either.
CallOwner owner_of(const Arena& arena) noexcept {
  const uint32_t session = arena.session_index();
  return {session == kNone ? kNone : session + 1, arena.session_generation()};
}

void clear(CallSlot& slot) noexcept {
  slot.count.store(0, std::memory_order_seq_cst);
  SHMREPLAY_FAULT("lease.count_cleared");
  // The call that takes the slot next (acquire, under the lock) does so after this call's last read of its rows. SYNC
  // POINT with wait_for_call_slot: seq_cst, before wake_chunk_waiters loads chunk_waiters.
  slot.owner.store({0, 0}, std::memory_order_seq_cst);
}

bool is_free(const CallSlot& slot, std::memory_order order) noexcept {
  return slot.owner.load(order).session_plus_1 == 0;
}

}  // namespace

Status Lease::take(Hold& hold) {
  const uint32_t n = hold.arena().geometry().num_call_slots;
  const uint32_t start = (arena_.session_index() == kNone ? 0 : arena_.session_index() * 7) % n;
  for (uint32_t i = 0; i < n; ++i) {
    const uint32_t at = (start + i) % n;
    CallSlot& slot = arena_.call(at);
    if (!is_free(slot, std::memory_order_acquire)) continue;
    slot.count.store(0, std::memory_order_relaxed);  // it was 0; every scan reads a slot's count before its names
    slot.since_ns.store(coarse_now_ns(), std::memory_order_relaxed);
    // Owners are compared under the lock. SYNC POINT with session_reports: a report that sees the owner also sees since
    // when the slot is taken.
    slot.owner.store(owner_of(arena_), std::memory_order_release);
    SHMREPLAY_FAULT("lease.slot_taken");
    slot_ = at;
    count_ = 0;
    return Status::kOk;
  }
  return Status::kNoCallSlots;
}

bool has_free_call_slot(const Arena& arena) noexcept {
  for (uint32_t i = 0; i < arena.geometry().num_call_slots; ++i) {
    if (is_free(arena.call(i), std::memory_order_seq_cst)) return true;  // SYNC POINT with clear()
  }
  return false;
}

void Lease::name(Hold&, uint32_t chunk) {
  if (count_ > 0 && last_ == chunk) return;  // neighbours in a batch often share a chunk
  CallSlot& slot = arena_.call(slot_);
  slot.names[count_].store(chunk, std::memory_order_relaxed);  // covered by the count
  last_ = chunk;
  // SYNC POINT with named_chunks: release, so a count seen there covers its names.
  slot.count.store(count_ + 1, std::memory_order_release);
  SHMREPLAY_FAULT("lease.chunk_named");
  ++count_;
}

void Lease::drop() noexcept {
  if (slot_ == kNone) return;
  if (arena_.forked()) {
    slot_ = kNone;
    count_ = 0;
    return;
  }
  CallSlot& slot = arena_.call(slot_);
  // A session that was reaped has lost its slots: by now this one may belong to another call.
  const CallOwner owner = slot.owner.load(std::memory_order_acquire), own = owner_of(arena_);
  if (owner.session_plus_1 == own.session_plus_1 && owner.generation == own.generation) clear(slot);
  slot_ = kNone;
  count_ = 0;
  wake_chunk_waiters(arena_);
}

std::vector<uint32_t> named_chunks(Arena& arena) {
  std::vector<uint32_t> names;
  for (uint32_t i = 0; i < arena.geometry().num_call_slots; ++i) {
    CallSlot& slot = arena.call(i);
    // SYNC POINT with Lease::name and clear(): a chunk retired before this scan began was named, if at all, in an
    // earlier hold, so its count is visible here; a count of 0 stored by a drop orders that reader's copies before our
    // reuse.
    const uint32_t count = std::min(slot.count.load(std::memory_order_seq_cst), kMaxNames);
    for (uint32_t k = 0; k < count; ++k) names.push_back(slot.names[k].load(std::memory_order_relaxed));
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

std::vector<uint32_t> sessions_that_name_chunks(const Arena& arena) {
  std::vector<uint32_t> sessions;
  for (uint32_t i = 0; i < arena.geometry().num_call_slots; ++i) {
    const CallSlot& slot = arena.call(i);
    const uint32_t owner = slot.owner.load(std::memory_order_relaxed).session_plus_1;  // relaxed: a hint
    if (owner == 0 || owner > arena.geometry().max_sessions || slot.count.load(std::memory_order_relaxed) == 0)
      continue;
    sessions.push_back(owner - 1);
  }
  std::sort(sessions.begin(), sessions.end());
  sessions.erase(std::unique(sessions.begin(), sessions.end()), sessions.end());
  return sessions;
}

bool session_names_chunks(Arena& arena, uint32_t index, uint32_t generation) noexcept {
  for (uint32_t i = 0; i < arena.geometry().num_call_slots; ++i) {
    CallSlot& slot = arena.call(i);
    const CallOwner owner = slot.owner.load(std::memory_order_acquire);
    if (owner.session_plus_1 == index + 1 && owner.generation == generation &&
        slot.count.load(std::memory_order_relaxed) > 0) {  // a hint for an error message
      return true;
    }
  }
  return false;
}

bool drop_leases_of(Arena& arena, uint32_t index, uint32_t generation, uint32_t& cursor, uint32_t slice) noexcept {
  const uint32_t n = arena.geometry().num_call_slots;
  for (; cursor < n && slice > 0; ++cursor, --slice) {
    CallSlot& slot = arena.call(cursor);
    const CallOwner owner = slot.owner.load(std::memory_order_acquire);
    if (owner.session_plus_1 == index + 1 && owner.generation == generation) clear(slot);
  }
  if (cursor < n) return false;
  wake_chunk_waiters(arena);
  return true;
}

}  // namespace shmreplay
