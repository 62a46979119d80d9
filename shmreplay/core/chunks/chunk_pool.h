// Chunks: free -> used -> retired -> free.
//
// used: items or the window of an open stream refer to it. retired: nothing refers to it, but a reader may still gather
// from it. A chunk becomes free again only through reclaim(), which frees what was retired and is named by no lease.
// Free chunks go back first to the session that wrote them, so that an actor keeps touching the same pages.
#pragma once

#include "arena/hold.h"

namespace shmreplay {

// Takes a free chunk for `session`: its own first, then one that belongs to no session. kNone when there is none. The
// chunk has one window reference and follows `previous` in its stream (kNone: it is the stream's first).
uint32_t take_chunk(Hold& hold, uint32_t session, uint64_t stream_serial, uint32_t previous);

// Takes any free chunk: of any session that has some, or of no session.
uint32_t steal_chunk(Hold& hold, uint32_t session, uint64_t stream_serial, uint32_t previous);

// For streams whose chunks are to lie side by side: looks for a run of `wanted` free chunks, of the session or else of
// no session, from `near` on if they are free there, and takes its first `count` chunks. Returns the first one; the
// others follow it. kNone where the first kRunLook chunks of a list have no such run. The chunks taken are off the
// lists, and start_chunk() gives each to its stream in the same hold.
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
// the lock. `freed` counts the chunks. Where only a checkpoint that is being saved keeps chunks from the caller, the
// checkpoint is given up.
Status reclaim(Arena& arena, const Wait& wait, uint32_t& freed);

// Puts a dead session's free chunks on the list of no session. One slice; true when none are left.
bool release_free_chunks(Hold& hold, uint32_t session, uint32_t slice);

// A used chunk that evicting its items would retire, oldest first, among the first `limit` after `after` (kNone: from
// the oldest on). kNone: none among them; `after` is where the next call goes on, kNone at the end.
uint32_t find_evictable(Hold& hold, uint32_t& after, uint32_t limit);

}  // namespace shmreplay
