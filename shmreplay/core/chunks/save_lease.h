// The lease of a checkpoint that is being saved: a bit for every chunk that is still to be copied, all of them named in
// the hold that copied the index. A retired chunk whose bit stands is not freed, so what the copy of the index refers
// to stays.
//
// It differs from a reader's lease (leases.h) in one way: nobody waits for it. A writer that finds no chunk to be had
// but for the bits clears the owner, and with it all of them; the saver sees that after its next copy and gives the
// checkpoint up. It belongs to a session of the daemon's, so a daemon that dies saving withholds nothing for longer
// than it takes to reap it.
#pragma once

#include "arena/hold.h"

namespace shmreplay {

// In the hold that sets the bits, behind them.
void begin_saving(Hold& hold, uint32_t session, uint32_t generation) noexcept;

// Whether that session still saves: what it copied until now was whole. Without the lock.
bool is_saving(const Arena& arena, uint32_t session, uint32_t generation) noexcept;

// Whether anybody does.
bool is_being_saved(const Arena& arena) noexcept;

// In a hold: whether a retired chunk waits for its copy.
bool awaits_copy(const Hold& hold, uint32_t chunk);

// The saver has copied the chunk. Without the lock; wake_chunk_waiters() belongs behind a few of them.
void end_copy(const Arena& arena, uint32_t chunk) noexcept;

// In a hold: a writer needs the chunks more. true: there was somebody who saved.
bool give_up_saving(Hold& hold) noexcept;

// The session is gone, or has copied all. Without the lock.
void drop_save_lease_of(Arena& arena, uint32_t session, uint32_t generation) noexcept;

}  // namespace shmreplay
