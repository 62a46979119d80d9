#include "items/table_calls.h"

#include <algorithm>
#include <cmath>

#include "arena/admission.h"
#include "arena/session_counts.h"
#include "base/leaf_weights.h"
#include "base/long_work.h"
#include "items/enter_table.h"
#include "trees/extremes.h"
#include "trees/reweigh.h"
#include "trees/selectors.h"

namespace shmreplay {
namespace {

// How many items n draws delete before the last of them, where the table's order decides which are deleted. It reads
// without the lock, so the number is a hint (rule 4), and the walk is bounded.
uint64_t deletions_in_order(const Arena& arena, const TableFacts& t, uint64_t n) {
  const bool oldest_first = t.roles[kSampler].kind == kFifo;
  const Queue order = t.record->order.get();
  uint64_t deleted = 0, draws = 0;
  for (uint32_t g = oldest_first ? order.head : order.tail; g != kNone && deleted < t.capacity; ++deleted) {
    const uint32_t times = arena.item(g).counted.get().times_sampled;
    draws += times < t.max_times_sampled ? t.max_times_sampled - times : 1;
    if (draws >= n) break;
    g = oldest_first ? arena.links(g).order.get().next : arena.links(g).order.get().prev;
  }
  return deleted;
}

}  // namespace

uint32_t first_bad_priority(const TableFacts& t, const double* priorities, uint32_t n) noexcept {
  double least = 0, most = kMaxPriority;
  for (const Role role : {kSampler, kRemover}) {
    if (t.roles[role].kind != kPrioritized) continue;
    const PriorityRange range = priority_range(t.record->exponents[role].get());
    least = std::max(least, range.least);
    most = std::min(most, range.most);
  }
  for (uint32_t i = 0; i < n; ++i) {
    const double p = priorities[i];
    if (!(p == 0 || (p > 0 && p >= least && p <= most))) return i;
  }
  return kAllGood;
}

Status update_priorities(Arena& arena, const TableFacts& t, const int64_t* keys, const double* priorities, uint32_t n,
                         const Wait& wait, uint32_t& updated) {
  updated = 0;
  uint32_t fetched = 0;  // two groups ahead: a read from memory takes as long as a group's work
  for (uint32_t first = 0; first < n; first += kMostUpdates) {
    const uint32_t end = std::min(first + kMostUpdates, n);
    for (; fetched < std::min(end + kMostUpdates, n); ++fetched) prefetch_item(arena, t, keys[fetched]);
    if (first > 0) arena.give_way();
    Hold hold(arena);
    if (const Status s = enter_table(hold, t, wait); s != Status::kOk) return s;
    uint32_t items[kMostUpdates], found = 0;
    double values[kMostUpdates];
    for (uint32_t i = first; i < end; ++i) {
      items[found] = find_item(hold, t, keys[i]);
      values[found] = priorities[i];
      found += items[found] != kNone ? 1 : 0;
    }
    update_priorities(hold, t, items, values, found);
    count_own_updates(hold, found);
    updated += found;
  }
  return Status::kOk;
}

Status delete_items(Arena& arena, const TableFacts& t, const int64_t* keys, uint32_t n, const Wait& wait,
                    uint32_t& deleted) {
  deleted = 0;
  for (uint32_t i = 0; i < n;) {
    if (i > 0) arena.give_way();
    Hold hold(arena);
    if (const Status s = enter_table(hold, t, wait); s != Status::kOk) return s;
    for (uint32_t k = 0; k < kGroup && i < n; ++k, ++i) {
      const uint32_t g = find_item(hold, t, keys[i]);
      if (g == kNone) continue;
      if (k > 0 && hold.room() < removal_entries(hold, g)) break;
      remove_item(hold, t, g, Removal::kDeleted);
      ++deleted;
    }
  }
  return Status::kOk;
}

Status reset_table(Arena& arena, const TableFacts& t, const Wait& wait) {
  {
    Hold hold(arena);
    if (const Status s = enter_table(hold, t, wait); s != Status::kOk) return s;
    set_flags(hold, t, kResetting, 0);
  }
  // enter_table() finishes a reset that it meets. So the next call on the table finishes this one, be it ours or
  // another.
  Hold hold(arena);
  return enter_table(hold, t, wait);
}

Status drop_tables(Arena& arena, const Wait& wait) {
  Hold hold(arena);
  if (const Status s = hold.begin(wait); s != Status::kOk) return s;
  for (uint32_t i = 0; i < arena.num_tables(); ++i) set_flags(hold, arena.table(i), kDropped, 0);
  hold.chunk_retired();  // wakes writers that wait for a chunk: they look again and see the flag
  return Status::kOk;
}

Status change_limiter(Arena& arena, const TableFacts& t, const LimiterNumbers& numbers, bool rebase, const Wait& wait) {
  Hold hold(arena);
  if (const Status s = enter_table(hold, t, wait); s != Status::kOk) return s;
  set_limiter(hold, t, numbers, rebase);
  return Status::kOk;
}

Status change_flags(Arena& arena, const TableFacts& t, uint32_t set, uint32_t clear, const Wait& wait) {
  Hold hold(arena);
  if (const Status s = enter_table(hold, t, wait); s != Status::kOk) return s;
  set_flags(hold, t, set, clear);
  return Status::kOk;
}

Status set_priority_exponent(Arena& arena, const TableFacts& t, double exponent, const Wait& wait) {
  {
    Hold hold(arena);
    if (const Status s = enter_table(hold, t, wait); s != Status::kOk) return s;
    const Extremes extremes(arena, t.extremes);
    const PriorityRange range = priority_range(exponent);
    // Without a positive priority the largest is 0 and the smallest infinite.
    if (extremes.largest() > range.most || extremes.smallest_positive() < range.least) return Status::kBadPriority;
    hold.set(t.record->exponents[kSampler], exponent);
    hold.set(t.record->reweigh_left, t.capacity);
  }
  LongWork work(wait);
  for (;;) {
    Hold hold(arena);
    if (const Status s = enter_table(hold, t, wait); s != Status::kOk) return s;
    if (t.record->reweigh_left.get() == 0) return Status::kOk;
    reweigh_slice(hold, t);
    hold.end();
    if (work.interrupted(2 * kReweighSlice)) return Status::kInterrupted;
  }
}

std::vector<int64_t> live_keys(const Arena& arena, const TableFacts& t) {
  std::vector<std::pair<uint64_t, int64_t>> live;
  for (uint32_t slot = 0; slot < t.capacity; ++slot) {
    const auto g = static_cast<uint32_t>(t.item_base + slot);
    const uint64_t seq = arena.item(g).seq.get();
    if (seq != 0) live.emplace_back(seq, key_of(t, g, seq));
  }
  std::sort(live.begin(), live.end());
  std::vector<int64_t> keys;
  keys.reserve(live.size());
  for (const auto& [seq, key] : live) keys.push_back(key);
  return keys;
}

bool can_sample_now(const Arena& arena, const TableFacts& t, uint64_t n) {
  const TableRecord& r = *t.record;
  if (r.size.get() == 0 || !can_sample(r, n)) return false;
  if (!t.consumes()) return true;
  if (r.remaining_samples.get() < n) return false;
  // Items that are removed by their last sample bring the size down as the call goes on.
  const uint32_t kind = t.roles[kSampler].kind;
  uint64_t deleted = t.max_times_sampled == 1 ? n - 1 : 0;
  if (t.max_times_sampled > 1 && (kind == kFifo || kind == kLifo)) deleted = deletions_in_order(arena, t, n);
  return static_cast<int64_t>(r.size.get() - deleted) >= r.limiter.min_size_to_sample.get();
}

}  // namespace shmreplay
