// The lease of a checkpoint that is being saved: one bit for every chunk that is still to be copied. All of them are
// named in the hold that copied the index. A retired chunk whose bit is set is not freed, so everything that the copy
// of the index refers to stays.
//
// It differs from a reader's lease (leases.h) in one way: no call waits for it. A writer that could take a chunk if it
// were not for the bits clears the owner, and so ends all of them. The saver sees that after its next copy and gives
// the checkpoint up. The lease belongs to a session of the daemon. So if the daemon dies while it saves, chunks are
// withheld only until that session is reaped.
#pragma once

#include "arena/hold.h"

namespace shmreplay {

// Called in the hold that sets the bits, after they are set.
void begin_saving(Hold& hold, uint32_t session, uint32_t generation) noexcept;

// Whether that session still saves: then what it has copied so far is whole. Without the lock.
bool is_saving(const Arena& arena, uint32_t session, uint32_t generation) noexcept;

// Whether any session saves.
bool is_being_saved(const Arena& arena) noexcept;

// Whether a retired chunk waits for its copy.
bool awaits_copy(const Hold& hold, uint32_t chunk);

// The saver has copied the chunk. Without the lock. The saver calls wake_chunk_waiters() after a few chunks.
void end_copy(const Arena& arena, uint32_t chunk) noexcept;

// A writer needs the chunks more than the checkpoint. true: a session was saving.
bool give_up_saving(Hold& hold) noexcept;

// The session is gone, or has copied everything. Without the lock.
void drop_save_lease_of(Arena& arena, uint32_t session, uint32_t generation) noexcept;

}  // namespace shmreplay
