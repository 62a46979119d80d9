// Chunks: free -> used -> retired -> free.
//
// used: items, or the window of an open stream, refer to it. retired: nothing refers to it, but a reader may still
// gather from it. A chunk becomes free again only by reclaim(), which frees the chunks that are retired and named by no
// lease. Free chunks go back first to the session that wrote them, so that an actor keeps touching the same pages.
#pragma once

#include "arena/hold.h"

namespace shmreplay {

// Takes a free chunk for `session`: one of its own first, then one that belongs to no session. kNone when there is
// none. The chunk gets one window reference and follows `previous` in its stream (kNone: it is the stream's first).
uint32_t take_chunk(Hold& hold, uint32_t session, uint64_t stream_serial, uint32_t previous);

// Takes any free chunk: of any session that has some, or of no session.
uint32_t steal_chunk(Hold& hold, uint32_t session, uint64_t stream_serial, uint32_t previous);

// For streams whose chunks are to lie side by side. Looks for a run of `wanted` free chunks: from `near` on if they are
// free there; of the session, or else of no session. Takes the run's first `count` chunks and returns the first one;
// the others follow it. kNone if the first kRunLook chunks of a list have no such run. The chunks taken are off the
// lists; start_chunk() must give each to its stream in the same hold.
inline constexpr uint32_t kRunLook = 512;
uint32_t take_run(Hold& hold, uint32_t session, uint32_t count, uint32_t wanted, uint32_t near);
void start_chunk(Hold& hold, uint32_t chunk, uint32_t session, uint64_t stream_serial, uint32_t previous);

// References. When the last one goes, the chunk is retired. `consuming`: the reference is of a table that never loses
// an item for want of room.
void add_item_refs(Hold& hold, uint32_t chunk, uint32_t n, bool consuming);
void drop_item_refs(Hold& hold, uint32_t chunk, uint32_t n, bool consuming);
void drop_window_ref(Hold& hold, uint32_t chunk);

// The most log entries for dropping references of one chunk.
inline constexpr uint32_t kDropRefEntries = 16;

// Frees every chunk that is retired now and named by no lease, with its blocks. Works in slices; the scan of the leases
// runs without the lock. `freed` counts the chunks. If only a checkpoint that is being saved keeps chunks from the
// caller, the checkpoint is given up.
Status reclaim(Arena& arena, const Wait& wait, uint32_t& freed);

// Moves a dead session's free chunks to the list of no session. One slice; true when none are left.
bool release_free_chunks(Hold& hold, uint32_t session, uint32_t slice);

// Finds the oldest used chunk that evicting its items would retire, among the first `limit` after `after` (kNone: from
// the oldest on). kNone: none of them is such; `after` is where the next call goes on, or kNone at the end.
uint32_t find_evictable(Hold& hold, uint32_t& after, uint32_t limit);

}  // namespace shmreplay
