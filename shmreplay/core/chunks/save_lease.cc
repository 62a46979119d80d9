#include "chunks/save_lease.h"

#include "arena/chunk_wait.h"
#include "base/fault.h"

namespace shmreplay {
namespace {

bool is_owner(const CallOwner& owner, uint32_t session, uint32_t generation) noexcept {
  return owner.session_plus_1 == session + 1 && owner.generation == generation;
}

}  // namespace

void begin_saving(Hold& hold, uint32_t session, uint32_t generation) noexcept {
  // Relaxed: the bits are read in holds, which the lock orders after this one. A chunk can only be retired after the
  // hold in which its bit was set, so a hold that finds it retired sees the bit, unless it was cleared since.
  hold.arena().save_lease().owner.store({session + 1, generation}, std::memory_order_relaxed);
  SHMREPLAY_FAULT("save.lease_begun");
}

bool is_saving(const Arena& arena, uint32_t session, uint32_t generation) noexcept {
  // SYNC POINT with give_up_saving. The owner is written again here, so a writer that clears it later does so after
  // everything that was read until now, and a chunk is written again only after that. A saver that finds the owner
  // cleared throws its last copy away.
  CallOwner owner{session + 1, generation};
  return arena.save_lease().owner.compare_exchange_strong(owner, {session + 1, generation}, std::memory_order_seq_cst);
}

bool is_being_saved(const Arena& arena) noexcept {
  return arena.save_lease().owner.load(std::memory_order_relaxed).session_plus_1 != 0;  // a hint
}

bool awaits_copy(const Hold& hold, uint32_t chunk) {
  const Arena& a = hold.arena();
  if (a.save_lease().owner.load(std::memory_order_seq_cst).session_plus_1 == 0) return false;
  // SYNC POINT with end_copy: seq_cst. If the bit is seen cleared, the copy was made before the chunk is used again.
  // And a waiter that announced itself before it looked here either sees the bit cleared or is woken.
  return (a.save_word(chunk).load(std::memory_order_seq_cst) >> (chunk % 64) & 1) != 0;
}

void end_copy(const Arena& arena, uint32_t chunk) noexcept {
  arena.save_word(chunk).fetch_and(~(uint64_t{1} << (chunk % 64)), std::memory_order_seq_cst);  // SYNC POINT with
                                                                                                // awaits_copy
  SHMREPLAY_FAULT("save.chunk_copied");
}

bool give_up_saving(Hold& hold) noexcept {
  // SYNC POINT with is_saving: this comes before any chunk is freed, and so before any is written.
  return hold.arena().save_lease().owner.exchange({0, 0}, std::memory_order_seq_cst).session_plus_1 != 0;
}

void drop_save_lease_of(Arena& arena, uint32_t session, uint32_t generation) noexcept {
  CallOwner owner = arena.save_lease().owner.load(std::memory_order_relaxed);  // the exchange below compares again
  if (is_owner(owner, session, generation)) {
    arena.save_lease().owner.compare_exchange_strong(owner, {0, 0}, std::memory_order_seq_cst);
    SHMREPLAY_FAULT("save.lease_dropped");
    wake_chunk_waiters(arena);
  }
}

}  // namespace shmreplay
