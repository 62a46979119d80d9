// Items of one table: insert, evict, find by key, update, sample, remove. Every function here is one part of one hold.
//
// A key is  shard (7 bits) | low bits of seq | slot  and at least 1. seq is the arena's insertion number, kept whole in
// the record and never given twice, so the key of an item that is gone hits nothing, in this table or another.
#pragma once

#include "arena/hold.h"
#include "arena/span.h"
#include "items/patterns.h"

namespace shmreplay {

inline constexpr uint32_t kInsertGroup = 32;  // items that one hold puts in

struct NewItem {
  double priority;
  Place place;  // first real step
  uint32_t num_steps;
  uint32_t pattern;  // record, interned in this hold
  Padding padding{0, 0};
  bool own_episode = false;       // the item is an episode of its own
  bool counted = true;            // for the limiter's difference
  uint64_t episode = 0;           // 0: the first item of its episode, which takes the item's seq for its id
  uint32_t episode_slot = kNone;  // where that episode was counted in this table last, if it was
  int64_t step = 0;
  BlockRef values = kNoValue;  // its value for the per-item columns, in blocks of its first chunk
};

struct Inserted {
  uint32_t item;  // global index; meaningless if the remover chose the newcomer itself
  int64_t key;
  uint64_t episode;
  uint32_t episode_slot;
};

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

// Inserts, then evicts the one item that the remover picks if the table is over max_size, then counts the insert. The
// limiter was asked before. May evict the newcomer.
Inserted insert_item(Hold& hold, const TableFacts& table, const NewItem& item);

void remove_item(Hold& hold, const TableFacts& table, uint32_t g, Removal why);

// At most kMostUpdates items.
void update_priorities(Hold& hold, const TableFacts& table, const uint32_t* items, const double* priorities,
                       uint32_t n);

// Counts one sample of the item, not yet for the limiter, and removes the item if that was the last one allowed.
// Returns its times_sampled.
uint32_t count_sample(Hold& hold, const TableFacts& table, uint32_t g);

// Counts n samples for the limiter: S. Once for a group of draws, in the same hold.
void count_samples(Hold& hold, const TableFacts& table, uint32_t n);

// The table's structure must be the pattern's; the first item fixes it.
Status admit_structure(Hold& hold, const TableFacts& table, const PreparedPattern& prepared);

// Notes how many rows each output of the pattern has for that many positions; batches are padded to the largest.
void note_lengths(Hold& hold, const TableFacts& table, const Pattern& pattern, uint64_t positions);

// The priority of an item inserted without one: the largest live one if positive, else 1 (Prioritized); else 1.
double default_priority(Hold& hold, const TableFacts& table);

// Log entries that removing item g may need at most.
uint32_t removal_entries(const Hold& hold, uint32_t g);

// Log entries that inserting an item of `num_chunks` chunks may need at most, its victim's removal included.
uint32_t insert_entries(const TableFacts& table, uint32_t num_chunks) noexcept;

// Whether the table never evicts an item to make room: its writers wait instead.
inline bool keeps_items(const TableFacts& table) noexcept { return table.consumes() || table.on_full != kOnFullEvict; }

// A reset runs in slices under a flag; each call that meets the flag does a slice. True when done.
bool reset_slice(Hold& hold, const TableFacts& table);

// Removes up to one slice of the items that refer to `chunk`, of whatever table. True when none are left.
bool evict_chunk_slice(Hold& hold, uint32_t chunk);

void prefetch_item(const Arena& arena, const TableFacts& table, int64_t key) noexcept;

}  // namespace shmreplay
