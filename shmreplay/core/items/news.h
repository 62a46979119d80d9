// News: waiting for an insert, of those who want the newest item and not permission to draw one.
//
// Permission goes to one sleeper, news to all: so nobody is counted, and nobody has to be counted off. Who finds no
// news says so in one word, in the hold that found none, and sleeps; the next hold that inserts clears the word,
// commits, and wakes everybody after its unlock. Who dies asleep leaves a word that costs one wake. Sleepers look again
// every second without the lock, which covers a wake that died with its bearer.
#pragma once

#include "arena/hold.h"

namespace shmreplay {

// How many inserts the table has had in its life: no reset and no restore begins anew. Read without the lock it may
// count those of a hold that is not committed.
inline uint64_t num_inserts(const TableRecord& t) noexcept { return t.next_insert_no.get() - 1; }

// Whether somebody waits, or waited and was not woken: he may have died.
inline bool is_awaited(const TableRecord& t) noexcept {
  return t.news.is_awaited.load(std::memory_order_relaxed) != 0;
}  // relaxed: a hint

// Waits until there have been more inserts than `seen`; `found`: how many then, or when the call last looked. kOk,
// kTimeout, kInterrupted, kClosed, or why the lock was not to be had.
Status wait_for_insert(Arena& arena, const TableFacts& table, uint64_t seen, const Wait& wait, uint64_t& found);

}  // namespace shmreplay
