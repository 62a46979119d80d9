// Changing what a table admits: the numbers of its rate limiter, and its flags.
#pragma once

#include "arena/hold.h"

namespace shmreplay {

struct LimiterNumbers {
  double samples_per_insert, min_diff, max_diff;
  int64_t min_size_to_sample;
  bool count_deletes;
};

// New numbers; with `rebase` the difference starts in the middle of the new bounds. Wakes both sides.
void set_limiter(Hold& hold, const TableFacts& table, const LimiterNumbers& numbers, bool rebase);

// Sets or clears TableFlag bits and wakes both sides.
void set_flags(Hold& hold, const TableFacts& table, uint32_t set, uint32_t clear);

}  // namespace shmreplay
