// Reverb's rate limiter, on words of the segment. I: inserts ever, D: deletes ever, S: samples ever.
//
//   can_sample(n):  I - D >= min_size_to_sample   and   (I - U) * spi - S - n + offset >= min_diff
//   can_insert(n):  I + n - D <= min_size_to_sample   or   (I - U + n) * spi - S + offset <= max_diff
//
// Both bounds are inclusive. `offset` is 0 until a limiter is replaced with rebase=True. U counts items that were put
// in without asking the limiter: they count in the table's size I - D, but not in the difference.
//
// A paused side is not admitted at all. A table that is stopping admits neither side. Decisions are made under the
// lock; without it, the same functions only say whether a look under the lock is worth it.
#pragma once

#include "arena/layout.h"

namespace shmreplay {

class Hold;

// What a limiter said and why: for error messages and logs.
struct LimiterReport {
  uint64_t inserts, samples, deletes, uncounted, size;
  double samples_per_insert, min_diff, max_diff, offset;
  int64_t min_size_to_sample;
  uint32_t flags;
  double difference() const {
    return static_cast<double>(inserts - uncounted) * samples_per_insert - static_cast<double>(samples) + offset;
  }
};

bool can_sample(const TableRecord& t, uint64_t n) noexcept;
bool can_insert(const TableRecord& t, uint64_t n) noexcept;

// How many of n calls are admitted at once.
uint32_t admitted_samples(const Hold& hold, const TableRecord& t, uint32_t n) noexcept;
uint32_t admitted_inserts(const Hold& hold, const TableRecord& t, uint32_t n) noexcept;

// How many inserts the limiter can admit at once when sampling has caught up; at least 1. More would wait for ever.
uint64_t largest_burst(const TableRecord& t) noexcept;

// Whether one more call of that side would be admitted, or must be told that the table is gone.
bool can_go_on(const TableRecord& t, Side side) noexcept;

LimiterReport report(const TableRecord& t) noexcept;

}  // namespace shmreplay
