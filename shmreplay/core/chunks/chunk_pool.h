// Chunks: free -> used -> retired -> free.
//
// used: referred to by items or by the window of an open stream. retired: no longer, but a reader may still gather from
// it. A chunk becomes free again only through reclaim(), which frees what was retired and is named by no lease.
// Free chunks go back first to the session that wrote them, so that an actor keeps touching the same pages.
#pragma once

#include "arena/hold.h"

namespace shmreplay {

// Takes a free chunk for `session`: its own first, then one of nobody's. kNone when there is none. The chunk comes
// with one window reference and behind `previous` in its stream (kNone: the stream's first).
uint32_t take_chunk(Hold& hold, uint32_t session, uint64_t stream_serial, uint32_t previous);

// Any free chunk at all: of whichever session has some, or of nobody.
uint32_t steal_chunk(Hold& hold, uint32_t session, uint64_t stream_serial, uint32_t previous);

// For streams whose chunks are to lie side by side: the first `count` of a run of `wanted` free chunks (the answer, and
// those behind it) of the session or else of nobody; from `near` on if they are there. kNone where there is no such run
// among the free ones looked at, the first kRunLook of a list. They are off the lists, and each is given to its stream
// by start_chunk() in this hold.
inline constexpr uint32_t kRunLook = 512;
uint32_t take_run(Hold& hold, uint32_t session, uint32_t count, uint32_t wanted, uint32_t near);
void start_chunk(Hold& hold, uint32_t chunk, uint32_t session, uint64_t stream_serial, uint32_t previous);

// References; the last one to go retires the chunk. `consuming`: by a table that never loses an item for want of room.
void add_item_refs(Hold& hold, uint32_t chunk, uint32_t n, bool consuming);
void drop_item_refs(Hold& hold, uint32_t chunk, uint32_t n, bool consuming);
void drop_window_ref(Hold& hold, uint32_t chunk);

// Log entries that dropping references of one chunk may need.
inline constexpr uint32_t kDropRefEntries = 16;

// Frees every chunk that is retired now and named by no lease, with its blocks. In slices; the scan itself runs without
// the lock. `freed` counts the chunks. Where only a checkpoint that is being saved stands between the caller and a
// chunk, the checkpoint goes.
Status reclaim(Arena& arena, const Wait& wait, uint32_t& freed);

// Gives a dead session's free chunks to nobody in particular. One slice; true when none are left.
bool release_free_chunks(Hold& hold, uint32_t session, uint32_t slice);

// A used chunk that evicting its items would retire, oldest first, among the first `limit` after `after` (kNone: from
// the oldest on). kNone: none among them; `after` is where the next call goes on, kNone at the end.
uint32_t find_evictable(Hold& hold, uint32_t& after, uint32_t limit);

}  // namespace shmreplay
