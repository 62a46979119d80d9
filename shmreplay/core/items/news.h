// How a call waits for news, an insert, when it wants the newest item and not permission to draw one.
//
// Permission goes to one sleeper, but news goes to all, so sleepers need not be counted. A call that finds no news sets
// the word is_awaited, in the hold that found none, and sleeps. The next hold that inserts clears the word, commits,
// and wakes all sleepers after its unlock. A process that dies asleep leaves the word set, which costs one wake.
// Sleepers look again every second without the lock; that covers a wake that was lost because the process that owed it
// died.
#pragma once

#include "arena/hold.h"

namespace shmreplay {

// How many inserts the table has had in its life; a reset or a restore does not start the count again. Read without the
// lock, it may include the inserts of a hold that is not committed.
inline uint64_t num_inserts(const TableRecord& t) noexcept { return t.next_insert_no.get() - 1; }

// Whether a call waits for news. Also true if a waiting process died and nobody has inserted since.
inline bool is_awaited(const TableRecord& t) noexcept {
  return t.news.is_awaited.load(std::memory_order_relaxed) != 0;
}  // relaxed: a hint

// Waits until there have been more inserts than `seen`. `found`: how many there were at the last look. Answers kOk,
// kTimeout, kInterrupted, kClosed, or why the lock could not be taken.
Status wait_for_insert(Arena& arena, const TableFacts& table, uint64_t seen, const Wait& wait, uint64_t& found);

}  // namespace shmreplay
