#include "arena/admission.h"

#include <algorithm>
#include <cfloat>
#include <cmath>

namespace shmreplay {
namespace {

double difference_after(const Limiter& l, double more_inserts, double more_samples) noexcept {
  return (static_cast<double>(l.inserts.get() - l.uncounted.get()) + more_inserts) * l.samples_per_insert.get() -
         static_cast<double>(l.samples.get()) - more_samples + l.offset.get();
}

int64_t live(const Limiter& l) noexcept { return static_cast<int64_t>(l.inserts.get() - l.deletes.get()); }

}  // namespace

bool can_sample(const TableRecord& t, uint64_t n) noexcept {
  const Limiter& l = t.limiter;
  if (t.flags.get() & (kPausedSamples | kStopping)) return false;
  if (live(l) < l.min_size_to_sample.get()) return false;
  return difference_after(l, 0, static_cast<double>(n)) >= l.min_diff.get();
}

bool can_insert(const TableRecord& t, uint64_t n) noexcept {
  const Limiter& l = t.limiter;
  if (t.flags.get() & (kPausedInserts | kStopping)) return false;
  if (live(l) + static_cast<int64_t>(n) <= l.min_size_to_sample.get()) return true;
  return difference_after(l, static_cast<double>(n), 0) <= l.max_diff.get();
}

// Mostly all n are admitted. A limiter that admits n admits fewer as well.
uint32_t admitted_samples(const Hold&, const TableRecord& t, uint32_t n) noexcept {
  while (n > 0 && !can_sample(t, n)) --n;
  return n;
}

uint32_t admitted_inserts(const Hold&, const TableRecord& t, uint32_t n) noexcept {
  while (n > 0 && !can_insert(t, n)) --n;
  return n;
}

uint64_t largest_burst(const TableRecord& t) noexcept {
  const Limiter& l = t.limiter;
  const double spi = l.samples_per_insert.get(), low = l.min_diff.get(), high = l.max_diff.get();
  if (high == DBL_MAX || low == -DBL_MAX || spi <= 0) return UINT64_MAX;
  // Samples come one by one: if they stop short of min_diff, they do so by less than one.
  const bool whole = spi == std::floor(spi) && low + l.offset.get() == std::floor(low + l.offset.get());
  const double most = std::floor((high - low - (whole ? 0 : 1)) / spi);
  return most >= 1 ? static_cast<uint64_t>(std::min(most, 1e15)) : 1;
}

bool can_go_on(const TableRecord& t, Side side) noexcept {
  if (t.flags.get() & (kDropped | kResetting)) return true;
  return side == kInserts ? can_insert(t, 1) : can_sample(t, 1) && t.size.get() > 0;
}

LimiterReport report(const TableRecord& t) noexcept {
  const Limiter& l = t.limiter;
  return {l.inserts.get(),  l.samples.get(),
          l.deletes.get(),  l.uncounted.get(),
          t.size.get(),     l.samples_per_insert.get(),
          l.min_diff.get(), l.max_diff.get(),
          l.offset.get(),   l.min_size_to_sample.get(),
          t.flags.get()};
}

}  // namespace shmreplay
