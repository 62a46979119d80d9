#include "items/limiter.h"

#include <algorithm>
#include <cfloat>

#include "arena/admission.h"

namespace shmreplay {
namespace {

// Where a rebased difference starts. With two finite bounds: in the middle. With one bound: far enough from it that a
// call is admitted.
double rebased_difference(const LimiterNumbers& n, double difference) noexcept {
  const bool low = n.min_diff > -DBL_MAX, high = n.max_diff < DBL_MAX;
  if (low && high) return (n.min_diff + n.max_diff) / 2;
  if (low) return std::max(difference, n.min_diff + 1);
  if (high) return std::min(difference, n.max_diff - n.samples_per_insert);
  return difference;
}

}  // namespace

void set_limiter(Hold& hold, const TableFacts& table, const LimiterNumbers& n, bool rebase) {
  Limiter& l = table.record->limiter;
  hold.set(l.samples_per_insert, n.samples_per_insert);
  hold.set(l.min_diff, n.min_diff);
  hold.set(l.max_diff, n.max_diff);
  hold.set(l.min_size_to_sample, n.min_size_to_sample);
  hold.set(l.count_deletes, n.count_deletes ? 1u : 0u);
  hold.set(l.offset, 0.0);
  if (rebase) {
    const double difference = report(*table.record).difference();
    hold.set(l.offset, rebased_difference(n, difference) - difference);
  }
  hold.wake_all(table.index);
}

void set_flags(Hold& hold, const TableFacts& table, uint32_t set, uint32_t clear) {
  Word<uint32_t>& flags = table.record->flags;
  hold.set(flags, (flags.get() & ~clear) | set);
  hold.wake_all(table.index);
}

}  // namespace shmreplay
