// The lease of a checkpoint that is being saved: a bit for every chunk that is still to be copied, all of them named in
// the hold that copied the index. A retired chunk whose bit stands is not freed, so what the copy of the index refers
// to stays.
//
// It differs from a reader's lease (leases.h) in one way: no call waits for it. A writer that could have a chunk but
// for the bits clears the owner, and with it all of them. The saver sees that after its next copy and gives the
// checkpoint up. It belongs to a session of the daemon's, so a daemon that dies saving withholds nothing for longer
// than it takes to reap it.
#pragma once

#include "arena/hold.h"

namespace shmreplay {

// Called in the hold that sets the bits, after they are set.
void begin_saving(Hold& hold, uint32_t session, uint32_t generation) noexcept;

// Whether that session still saves: what it copied until now was whole. Without the lock.
bool is_saving(const Arena& arena, uint32_t session, uint32_t generation) noexcept;

// Whether any session saves.
bool is_being_saved(const Arena& arena) noexcept;

// Whether a retired chunk waits for its copy.
bool awaits_copy(const Hold& hold, uint32_t chunk);

// The saver has copied the chunk. Without the lock; the saver calls wake_chunk_waiters() after a few of them.
void end_copy(const Arena& arena, uint32_t chunk) noexcept;

// A writer needs the chunks more than the checkpoint. true: a session was saving.
bool give_up_saving(Hold& hold) noexcept;

// The session is gone, or has copied all. Without the lock.
void drop_save_lease_of(Arena& arena, uint32_t session, uint32_t generation) noexcept;

}  // namespace shmreplay
