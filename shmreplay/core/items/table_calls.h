// Whole calls on a table, other than inserts and samples. Each works in holds of a bounded number of items.
#pragma once

#include <vector>

#include "items/item_table.h"
#include "items/limiter.h"

namespace shmreplay {

inline constexpr uint32_t kAllGood = 0xffff'ffff;

// The position of the first priority that the table does not take; kAllGood: there is none. It takes 0, and what is at
// most kMaxPriority. If its sampler or remover is Prioritized, a leaf must be able to hold the power by the exponent,
// too; the exponent is read without the lock (rule 4).
uint32_t first_bad_priority(const TableFacts& table, const double* priorities, uint32_t n) noexcept;

// Skips stale keys; `updated` counts the others. The caller has checked the priorities.
Status update_priorities(Arena& arena, const TableFacts& table, const int64_t* keys, const double* priorities,
                         uint32_t n, const Wait& wait, uint32_t& updated);

// Skips stale keys; `deleted` counts the others, also if the call ends early. Holds of at most kGroup items each.
Status delete_items(Arena& arena, const TableFacts& table, const int64_t* keys, uint32_t n, const Wait& wait,
                    uint32_t& deleted);

// Empties the table and sets its counters to 0. Blocked callers look again.
Status reset_table(Arena& arena, const TableFacts& table, const Wait& wait);

// Marks every table of the arena dropped: blocked callers and later ones get kClosed.
Status drop_tables(Arena& arena, const Wait& wait);

// Gives the limiter other numbers, in one hold; blocked callers look again. For `rebase` see set_limiter().
Status change_limiter(Arena& arena, const TableFacts& table, const LimiterNumbers& numbers, bool rebase,
                      const Wait& wait);

// Sets and clears flags of the table (kPaused..., kStopping), in one hold; blocked callers look again.
Status change_flags(Arena& arena, const TableFacts& table, uint32_t set, uint32_t clear, const Wait& wait);

// For a table with a Prioritized sampler. Returns when all leaves follow the new exponent. A call that ends earlier (by
// a signal, or because it did not get the lock) leaves the rest to other calls. A change that is already under way
// starts over with the new exponent. kBadPriority: an item has a priority whose power no leaf could hold; nothing was
// changed.
Status set_priority_exponent(Arena& arena, const TableFacts& table, double exponent, const Wait& wait);

// Keys of the live items in insertion order, read without the lock: each was live at some moment of the call.
std::vector<int64_t> live_keys(const Arena& arena, const TableFacts& table);

// Whether sample(n) would be admitted as a whole now, by the limiter and by what max_times_sampled still allows. Where
// items may be sampled more than once and the sampler is neither Fifo nor Lifo, it cannot foresee which items are
// removed on the way, nor how far the size falls.
bool can_sample_now(const Arena& arena, const TableFacts& table, uint64_t n);

}  // namespace shmreplay
