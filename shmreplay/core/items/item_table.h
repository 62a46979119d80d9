// Items of one table: find by key, update, sample, remove; insert.h puts them in. Every function here is one part of
// one hold.
//
// A key is  shard (7 bits) | low bits of seq | slot  and at least 1. seq is the arena's insertion number; the record
// keeps it whole, and it is never given twice. So the key of an item that is gone finds no item, in this table or
// another, until those low bits come round: see "Keys" in ../README.md.
#pragma once

#include "arena/hold.h"
#include "arena/span.h"
#include "items/patterns.h"

namespace shmreplay {

enum class Removal { kDeleted, kEvicted, kEvictedForRoom, kConsumed, kReset };

// The insertion number of the arena's next item, which goes into that table.
uint64_t next_seq(Hold& hold, const TableFacts& table);

// The low bits of a seq, as many as a key has room for.
inline uint64_t low_seq(const TableFacts& table, uint64_t seq) noexcept {
  return seq & ((uint64_t{1} << (63 - kShardBits - table.slot_bits)) - 1);
}

int64_t key_of(const TableFacts& table, uint32_t g, uint64_t seq) noexcept;

// The live item of that key, or kNone.
uint32_t find_item(const Hold& hold, const TableFacts& table, int64_t key) noexcept;

// Takes the live item out of both selectors, the order, its chunks and its pattern, counts the removal by `why`, and
// makes its slot free. The hold needs room for removal_entries(). Throws as corrupt() if g is not live in this table.
void remove_item(Hold& hold, const TableFacts& table, uint32_t g, Removal why);

// At most kMostUpdates items.
void update_priorities(Hold& hold, const TableFacts& table, const uint32_t* items, const double* priorities,
                       uint32_t n);

// Counts one sample of the item, not yet for the limiter. Removes the item if that was the last sample allowed. Returns
// its times_sampled.
uint32_t count_sample(Hold& hold, const TableFacts& table, uint32_t g);

// Adds n samples to the limiter's S. Called once for a group of draws, in the same hold.
void count_samples(Hold& hold, const TableFacts& table, uint32_t n);

// The table must have the pattern's structure; the first item fixes it.
Status admit_structure(Hold& hold, const TableFacts& table, const PreparedPattern& prepared);

// Notes how many rows each output of the pattern has for that many positions; batches are padded to the largest.
void note_lengths(Hold& hold, const TableFacts& table, const Pattern& pattern, uint64_t positions);

// The priority of an item inserted without one: the largest live one if positive, else 1 (Prioritized); else 1.
double default_priority(Hold& hold, const TableFacts& table);

// Notes that the item is the one touched last. Ties of heaps go to the one least recently inserted or updated.
void touch_item(Hold& hold, const TableFacts& table, uint32_t g);

// The most log entries for an item's part in both selectors, the extremes and the counters: 12 levels of a heap, 11 of
// a tree.
inline constexpr uint32_t kSelectorEntries = 160;

// The most log entries that removing item g may need.
uint32_t removal_entries(const Hold& hold, uint32_t g);

// Whether the table never loses an item for want of room: its writers wait instead.
inline bool keeps_items(const TableFacts& table) noexcept { return table.consumes() || table.on_full != kOnFullEvict; }

// A reset runs in slices under a flag; each call that meets the flag does a slice. True when done.
bool reset_slice(Hold& hold, const TableFacts& table);

// Removes up to one slice of the items that refer to `chunk`, of whatever table. True when none are left.
bool evict_chunk_slice(Hold& hold, uint32_t chunk);

// Fetches into the cache what an update of the item's priority reads and writes. Any key may be given.
void prefetch_item(const Arena& arena, const TableFacts& table, int64_t key) noexcept;

}  // namespace shmreplay
