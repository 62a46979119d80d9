#include "read/sample_call.h"

#include <algorithm>
#include <cmath>

#include "arena/admission.h"
#include "arena/session_counts.h"
#include "arena/span.h"
#include "base/futex.h"
#include "base/leaf_weights.h"
#include "base/long_work.h"
#include "items/enter_table.h"
#include "sessions/call_slot_wait.h"
#include "trees/extremes.h"
#include "trees/selectors.h"

namespace shmreplay {
namespace {

constexpr int64_t kHandOnTimeoutNs = 5 * kSliceNs;
constexpr uint32_t kOutOfTriesWork = 64;  // a hold that drew nothing counts as this many items' work

// Drops the lease at the end of a call, also after an exception, unless keep() was called.
class DropAtEnd {
 public:
  explicit DropAtEnd(Lease& lease) noexcept : lease_(lease) {}
  ~DropAtEnd() {
    if (!keeps_) lease_.drop();
  }
  DropAtEnd(const DropAtEnd&) = delete;
  DropAtEnd& operator=(const DropAtEnd&) = delete;
  void keep() noexcept { keeps_ = true; }

 private:
  Lease& lease_;
  bool keeps_ = false;
};

// For a call that may have been woken for a draw and ends without one: lets another caller draw.
void hand_on(Arena& arena, const TableFacts& t) {
  Hold hold(arena);
  if (hold.begin({now_ns() + kHandOnTimeoutNs, nullptr}) == Status::kOk) hold.touch(t.index);
}

}  // namespace

SampleCall::SampleCall(Arena& arena)
    : arena_(arena), lease_(arena), patterns_(arena), distinct_(arena), threads_(arena) {
  picks_.reserve(kPart);
  if (arena.has_values()) brought_.reserve(kPart);
  runs_.reserve(kPart + kMaxItemChunks);
  rows_.reserve(kMaxOutputs);
  prepared_.reserve(kMaxOutputs);
}

// Copies the item's descriptor and names its chunks. false: no room is left in this part or for its values; the item is
// not drawn.
bool SampleCall::add_pick(Hold& hold, const TableFacts& t, uint32_t g, double probability, bool count) {
  const ItemRecord& item = arena_.item(g);
  const Extent extent = item.extent.get();
  if (picks_.size() == kPart || runs_.size() >= kPart || lease_.room() < kMaxItemChunks) return false;
  if (!patterns_.note(hold, extent.pattern)) return false;
  if (count && t.consumes() && hold.room() < removal_entries(hold, g)) return false;
  Pick p{};
  p.key = key_of(t, g, item.seq.get());
  p.priority = arena_.priority(g).get();
  p.probability = probability;
  p.episode = item.episode.get() | uint64_t{t.shard} << kShardShift;  // distinct over the shards too
  p.table_size = t.record->size.get();
  p.insert_no = item.insert_no.get();
  p.step = item.step.get();
  p.age = static_cast<int64_t>(t.record->next_insert_no.get() - 1 - p.insert_no);
  p.padding = item.padding.get();
  if (p.padding.before > kMaxRows || p.padding.after > kMaxRows) corrupt("an item's padding");
  p.pattern = extent.pattern;
  p.num_steps = extent.num_steps;
  if (arena_.has_values()) brought_.push_back(arena_.values(g).get());
  p.first_run = static_cast<uint32_t>(runs_.size());
  each_run(arena_, item.place.get(), extent.num_steps, [&](uint32_t chunk, uint32_t row, uint32_t rows) {
    lease_.name(hold, chunk);
    runs_.push_back({chunk, row, rows});
  });
  p.num_runs = static_cast<uint32_t>(runs_.size()) - p.first_run;
  // If the item is refused now, its chunks stay named until the part ends, which is at once.
  lacks_room_ =
      takes_ && !(patterns_.is_settled(p.pattern) && room_.promise(arena_, patterns_.at(p.pattern), p, runs_.data(),
                                                                   brought_.empty() ? kNoValue : brought_.back()));
  if (lacks_room_) {
    runs_.resize(p.first_run);
    if (!brought_.empty()) brought_.pop_back();
    return false;
  }
  p.times_sampled = count ? count_sample(hold, t, g) : item.counted.get().times_sampled;
  picks_.push_back(p);
  return true;
}

// Reads what the gather must know of the table. Called in each hold of a part; the last one counts.
void SampleCall::note_table(const TableFacts& t) {
  structure_pattern_ = t.record->structure_pattern.get();
  const uint32_t n = std::min(t.record->num_outputs.get(), kMaxOutputs);
  rows_.resize(n);
  for (uint32_t o = 0; o < n; ++o) {
    rows_[o] = t.record->longest[o].get();
    if (rows_[o] > kMaxRows) corrupt("a table's longest output");
  }
}

// Whether no item is longer than the batch allows. Asked in the hold of the draw: a batch that is given up later for
// want of room may have consumed its items.
bool SampleCall::fits(const TableFacts& t, const SampleOptions& options) {
  if (options.most_rows == nullptr) return true;
  const uint32_t n = std::min(t.record->num_outputs.get(), kMaxOutputs);
  for (uint32_t o = 0; o < n && o < options.most_rows->size(); ++o) {
    if (t.record->longest[o].get() > (*options.most_rows)[o]) return false;
  }
  return true;
}

// Whether no item of the table is longer than what the sink has room for.
bool SampleCall::has_rows_for(const TableFacts& t) const {
  const uint32_t n = std::min(t.record->num_outputs.get(), kMaxOutputs);
  if (prepared_.size() != n) return t.record->structure_hash.get() == 0;  // no item yet: none is drawn
  for (uint32_t o = 0; o < n; ++o) {
    if (t.record->longest[o].get() > prepared_[o]) return false;
  }
  return true;
}

// How many draws of `want` the limiter admits now.
uint32_t SampleCall::admitted(const Hold& hold, const TableFacts& t, const SampleOptions& options, uint32_t want) {
  if (t.record->size.get() == 0) return 0;
  return options.count ? admitted_samples(hold, *t.record, want) : want;
}

void SampleCall::note_smallest(const TableFacts& t) {
  if (!t.prioritized() || t.record->size.get() == 0) return;
  const double total = SumTree(arena_, t.roles[kSampler].sum).total();
  const double smallest = Extremes(arena_, t.extremes).smallest_positive();
  const double weight = leaf_weight(smallest, t.record->exponents[kSampler].get());
  smallest_probability_ = total > 0 ? share_of(weight, total) : 1.0 / static_cast<double>(t.record->size.get());
}

// Picks the items of draw `at` and of the draws after it, up to `want`. Answers how many it picked.
uint32_t SampleCall::pick(const Hold& hold, const Selector& sampler, const SampleOptions& options, uint32_t at,
                          uint32_t want, uint32_t* items) {
  if (!options.distinct) {
    sampler.pick_group(hold, options.uniforms + at, want, items);
    return want;
  }
  available_ = distinct_.most_drawable(sampler);
  // A call that cannot be served whole does not begin.
  return at == 0 && available_ < options.at_least ? distinct_.pick_none() : distinct_.pick(hold, sampler, want, items);
}

SampleCall::Stop SampleCall::draw_group(Hold& hold, const TableFacts& t, const SampleOptions& options, uint32_t from) {
  const Selector sampler(arena_, t, kSampler);
  const uint32_t want = std::min(options.n - from, kGroup);
  note_smallest(t);
  // Where a sample may remove its item, the next draw must see that. Else a group of draws descends the tree together.
  const uint32_t most = t.consumes() ? 1 : want;
  for (uint32_t i = 0; i < want;) {
    const uint32_t may = admitted(hold, t, options, std::min(most, want - i));
    if (may == 0) return Stop::kNotAdmitted;
    uint32_t items[kGroup];
    hold.settle();
    const uint32_t together = pick(hold, sampler, options, from + i, may, items);
    if (together == 0) return options.distinct && distinct_.ran_out_of_tries() ? Stop::kOutOfTries : Stop::kNoneLeft;
    for (uint32_t d = 0; d < together; ++d) {
      __builtin_prefetch(&arena_.item(items[d]), 1);
      __builtin_prefetch(&arena_.priority(items[d]));
    }
    for (uint32_t d = 0; d < together; ++d) __builtin_prefetch(&arena_.chunk(arena_.item(items[d]).place.get().chunk));
    uint32_t drawn = 0;
    for (; drawn < together; ++drawn) {
      const uint32_t g = items[drawn];
      const uint64_t seq = arena_.item(g).seq.get();
      if (!add_pick(hold, t, g, sampler.probability(hold, g), options.count)) break;
      if (options.distinct) distinct_.take(hold, g, seq);
    }
    if (options.count && drawn > 0) count_samples(hold, t, drawn);
    if (drawn < together) return lacks_room_ ? Stop::kNoRoom : Stop::kPartFull;
    i += together;
  }
  return Stop::kDone;
}

Status SampleCall::draw_part(const TableFacts& t, const SampleOptions& options, uint32_t from, const Wait& wait,
                             Blocked& blocked, Stop& stop) {
  picks_.clear();
  brought_.clear();
  runs_.clear();
  patterns_.begin_part();
  room_.begin_part();
  lacks_room_ = false;
  for (;;) {
    Hold hold(arena_);
    if (const Status s = enter_table(hold, t, wait); s != Status::kOk) return s;
    blocked.leave(hold);
    if (!fits(t, options)) return Status::kTooLong;
    if (takes_ && !has_rows_for(t)) {
      stop = Stop::kNoRoom;
      return Status::kOk;
    }
    if (!lease_.taken()) {
      if (const Status s = lease_.take(hold); s != Status::kOk) return s;
    }
    const auto before = picks_.size();
    stop = draw_group(hold, t, options, from + static_cast<uint32_t>(before));
    note_table(t);
    const auto have = from + picks_.size();
    if (options.count && picks_.size() > before) {
      hold.set(t.record->last_sample_ns, coarse_now_ns());
      count_own_samples(hold, t.index, picks_.size() - before);
    }
    if (stop == Stop::kNotAdmitted && options.waits && picks_.empty() && (from < options.at_least || from == 0))
      blocked.join(hold);
    // A group may end because the log is full. Then the next hold goes on, if this one has drawn anything.
    const bool again =
        stop == Stop::kDone || ((stop == Stop::kPartFull || stop == Stop::kOutOfTries) && picks_.size() > before &&
                                lease_.room() >= kMaxItemChunks && picks_.size() < kPart && runs_.size() < kPart);
    if (!again || have >= options.n) return Status::kOk;
    hold.end();
    patterns_.settle();
    arena_.give_way();
  }
}

// The structure of pattern `record`. Sets rows_ to the lengths of its outputs in a batch: those of the table's longest.
const Pattern& SampleCall::pad_rows(const TableFacts& t, uint32_t record) {
  patterns_.settle();
  if (rows_.empty()) corrupt("a table has items and no structure");
  const Pattern& structure = patterns_.at(record);
  if (structure.outputs.size() != rows_.size()) corrupt("an item has another structure than its table");
  const uint32_t at_least = t.item_steps > 1 && structure.names.empty() ? t.item_steps : 1;
  for (size_t o = 0; o < rows_.size(); ++o) {
    rows_[o] = structure.outputs[o].flags & kSqueezed ? 1 : std::max(rows_[o], at_least);
  }
  return structure;
}

// Asks the sink for room for items of the structure of pattern `record`.
Status SampleCall::make_room(const TableFacts& t, uint32_t record, int64_t first, BatchSink& sink) {
  const Pattern& structure = pad_rows(t, record);
  return sink.prepare(structure, rows_.data(), first) ? Status::kOk : Status::kInterrupted;
}

// Gets memory before the draw, where a draw removes its item: if memory ran out after it, the item would be nowhere.
// `done` items are in the batch, `want` more are wanted.
Status SampleCall::make_room_early(const TableFacts& t, uint32_t want, int64_t done, const Wait& wait,
                                   BatchSink& sink) {
  patterns_.settle();
  // An item was left for want of room: get room for it. Else the table's items have become longer, and the sink may get
  // other buffers.
  if (lacks_room_) return room_.grow(std::min(want, kGroup)) ? Status::kOk : Status::kNoMemory;
  patterns_.begin_part();
  {
    Hold hold(arena_);
    if (const Status s = enter_table(hold, t, wait); s != Status::kOk) return s;
    if (t.record->structure_hash.get() == 0) return Status::kOk;  // no item yet
    note_table(t);
    if (!patterns_.note(hold, structure_pattern_)) return Status::kOk;
  }
  const std::vector<uint32_t> longest = rows_;  // make_room() pads them
  if (const Status s = make_room(t, structure_pattern_, done, sink); s != Status::kOk) return s;
  if (!room_.begin(sink.outputs(), sink.item_values())) return Status::kNoMemory;
  prepared_.assign(longest.begin(), longest.end());
  return Status::kOk;
}

Status SampleCall::deliver(const TableFacts& t, int64_t first, BatchSink& sink, uint32_t num_threads) {
  if (const Status s = make_room(t, picks_.front().pattern, first, sink); s != Status::kOk) return s;
  threads_.gather(num_threads, patterns_, picks_.data(), static_cast<uint32_t>(picks_.size()), runs_.data(), first,
                  sink.outputs());
  if (ItemValues* values = sink.item_values(); values != nullptr) {
    gather_values(arena_, picks_.data(), brought_.data(), static_cast<uint32_t>(picks_.size()), runs_.data(), first,
                  *values);
  }
  if (takes_) room_.check_kept();
  lease_.drop();
  sink.describe(first, picks_.data(), static_cast<uint32_t>(picks_.size()));
  return Status::kOk;
}

// What was prepared belongs to the sink of the call before.
void SampleCall::begin_call(bool takes) {
  takes_ = takes;
  lacks_room_ = false;
  prepared_.clear();
  room_.forget();
}

SampleResult SampleCall::sample(const TableFacts& t, const SampleOptions& options, const Wait& wait, BatchSink& sink) {
  begin_call(options.count && t.consumes());
  if (takes_) {
    if (const Status s = make_room_early(t, options.n, 0, wait, sink); s != Status::kOk) return {s, 0, 0, 0};
  }
  return draw_all(
      t, options, wait, false, [&](uint32_t first, bool) { return deliver(t, first, sink, options.num_threads); },
      [&](uint32_t done) { return make_room_early(t, options.n - done, done, wait, sink); });
}

SampleResult SampleCall::view(const TableFacts& t, const SampleOptions& options, const Wait& wait, ViewSink& sink) {
  begin_call(false);
  const auto deliver = [&](uint32_t, bool stays) { return take(t, sink, stays); };
  return draw_all(t, options, wait, true, deliver, [](uint32_t) { return Status::kOk; });
}

Status SampleCall::take(const TableFacts& t, ViewSink& sink, bool stays) {
  pad_rows(t, picks_.front().pattern);
  const DrawnItems part{patterns_,
                        picks_.data(),
                        static_cast<uint32_t>(picks_.size()),
                        runs_.data(),
                        arena_.has_values() ? brought_.data() : nullptr,
                        rows_.data()};
  return sink.take(part, stays) ? Status::kOk : Status::kInterrupted;
}

template <class Deliver, class MakeRoom>
SampleResult SampleCall::draw_all(const TableFacts& t, const SampleOptions& asked, const Wait& wait, bool keeps_last,
                                  Deliver deliver, MakeRoom make_room) {
  SampleOptions options = asked;
  // Where the first sample removes the item, no item can be drawn twice anyway.
  options.distinct = asked.distinct && (!asked.part.is_all() || !(asked.count && t.max_times_sampled == 1));
  Blocked blocked(arena_, t, kSamples, wait, options.count);
  DropAtEnd drop_at_end(lease_);
  uint32_t done = 0;
  available_ = 0;
  const auto end = [&](Status s) { return SampleResult{s, done, smallest_probability_, available_}; };
  if (options.distinct) {
    available_ = Selector(arena_, t, kSampler).num_drawable();  // read without the lock: for a report
    if (options.at_least > t.max_size) return end(Status::kTooFewItems);
    distinct_.begin(t, options.n, options.uniforms, options.part);
  }
  LongWork work(wait);
  while (done < options.n) {
    const uint32_t before = done;
    Stop stop;
    const Status drawn = draw_part(t, options, done, wait, blocked, stop);
    // What a counted draw took is delivered, whatever happened after it: a consumed item must not be lost.
    if (!picks_.empty()) {
      const bool stays = keeps_last && drawn == Status::kOk && done + picks_.size() == options.n;
      if (const Status s = deliver(done, stays); s != Status::kOk) return end(s);
      done += static_cast<uint32_t>(picks_.size());
      if (stays) {
        drop_at_end.keep();
        return end(Status::kOk);
      }
      picks_.clear();
    }
    lease_.drop();
    if (drawn == Status::kNoCallSlots) {
      if (const Status s = wait_for_call_slot(arena_, wait); s != Status::kOk) return end(s);
      continue;
    }
    if (drawn != Status::kOk) return end(drawn);
    if (done >= options.n) break;
    if (work.interrupted(done - before + (stop == Stop::kOutOfTries ? kOutOfTriesWork : 0)))
      return end(Status::kInterrupted);
    if (stop == Stop::kOutOfTries && !distinct_.may_have_left()) stop = Stop::kNoneLeft;
    if (stop == Stop::kNoRoom) {
      if (const Status s = make_room(done); s != Status::kOk) {
        hand_on(arena_, t);
        return end(s);
      }
      continue;
    }
    if (stop != Stop::kNotAdmitted && stop != Stop::kNoneLeft) continue;
    if (!options.waits || (done >= options.at_least && done > 0)) break;
    if (stop == Stop::kNoneLeft) {
      if (!options.part.is_all()) available_ = distinct_.count_drawable();
      return end(Status::kTooFewItems);
    }
    if (!blocked.joined()) continue;
    if (const Status s = blocked.sleep(); s != Status::kOk) return end(s);
  }
  return end(Status::kOk);
}

Status SampleCall::structure(const TableFacts& t, bool waits, bool count, const Wait& wait, const Pattern*& found) {
  Blocked blocked(arena_, t, kSamples, wait, count);
  found = nullptr;
  for (;;) {
    patterns_.settle();
    patterns_.begin_part();
    {
      Hold hold(arena_);
      if (const Status s = enter_table(hold, t, wait); s != Status::kOk) return s;
      blocked.leave(hold);
      if (t.record->structure_hash.get() != 0) {
        note_table(t);
        if (!patterns_.note(hold, structure_pattern_)) continue;
        hold.end();
        found = &pad_rows(t, structure_pattern_);
        return Status::kOk;
      }
      if (!waits) return Status::kOk;
      blocked.join(hold);
    }
    if (const Status s = blocked.sleep(); s != Status::kOk) return s;
  }
}

SampleResult SampleCall::get(const TableFacts& t, const int64_t* keys, uint32_t n, const Wait& wait, BatchSink& sink,
                             uint32_t* found) {
  return get_all(t, keys, n, wait, found, [&](uint32_t done) { return deliver(t, done, sink); });
}

SampleResult SampleCall::look_up(const TableFacts& t, const int64_t* keys, uint32_t n, const Wait& wait, ViewSink& sink,
                                 uint32_t* found) {
  return get_all(t, keys, n, wait, found, [&](uint32_t) { return take(t, sink, false); });
}

template <class Deliver>
SampleResult SampleCall::get_all(const TableFacts& t, const int64_t* keys, uint32_t n, const Wait& wait,
                                 uint32_t* found, Deliver deliver) {
  const DropAtEnd drop_at_end(lease_);
  begin_call(false);
  uint32_t done = 0;
  for (uint32_t i = 0; i < n;) {
    picks_.clear();
    brought_.clear();
    runs_.clear();
    patterns_.begin_part();
    bool full = false;
    while (i < n && !full) {
      Hold hold(arena_);
      if (const Status s = enter_table(hold, t, wait); s != Status::kOk) return {s, done, 0, 0};
      if (!lease_.taken() && lease_.take(hold) == Status::kNoCallSlots) {
        hold.end();
        if (const Status s = wait_for_call_slot(arena_, wait); s != Status::kOk) return {s, done, 0, 0};
        continue;
      }
      const Selector sampler(arena_, t, kSampler);
      for (uint32_t k = 0; k < kGroup && i < n; ++k, ++i) {
        const uint32_t g = find_item(hold, t, keys[i]);
        if (g == kNone) continue;
        full = !add_pick(hold, t, g, sampler.probability(hold, g), false);
        if (full) break;
        found[done + picks_.size() - 1] = i;
      }
      note_table(t);
    }
    if (!picks_.empty()) {
      if (const Status s = deliver(done); s != Status::kOk) return {s, done, 0, 0};
      done += static_cast<uint32_t>(picks_.size());
    }
    lease_.drop();
  }
  return {Status::kOk, done, 0, 0};
}

}  // namespace shmreplay
