// The numbers of a table, read without the lock, and reports of its items.
#pragma once

#include <algorithm>

#include "arena/admission.h"
#include "arena/arena.h"
#include "gil.h"
#include "item_numbers.h"
#include "items/item_survey.h"
#include "python.h"

namespace shmreplay {

// None if there never was such a moment.
inline nb::object seconds_since(uint64_t ns) {
  if (ns == 0) return nb::none();
  return nb::float_(std::max(0.0, static_cast<double>(static_cast<int64_t>(coarse_now_ns() - ns)) * 1e-9));
}

inline nb::dict table_info(const Arena& arena, const TableFacts& facts) {
  const TableRecord& r = *facts.record;
  const LimiterReport l = report(r);
  nb::dict d;
  d["name"] = facts.name;
  d["size"] = r.size.get();
  d["max_size"] = facts.max_size;
  d["inserts"] = l.inserts;
  d["samples"] = l.samples;
  d["deletes"] = l.deletes;
  d["num_episodes"] = r.num_episodes.get();
  d["num_deleted_episodes"] = r.num_deleted_episodes.get();
  d["num_unique_samples"] = r.num_unique_samples.get();
  d["evicted"] = r.evicted.get();
  d["evicted_for_room"] = r.evicted_for_room.get();
  d["max_times_sampled"] = facts.max_times_sampled;
  d["sampler"] = facts.roles[kSampler].kind;
  d["remover"] = facts.roles[kRemover].kind;
  d["sampler_exponent"] = r.exponents[kSampler].get();
  d["remover_exponent"] = r.exponents[kRemover].get();
  d["capacity_steps"] = uint64_t{arena.geometry().num_chunks} * arena.geometry().chunk_steps;
  d["samples_per_insert"] = l.samples_per_insert;
  d["min_size_to_sample"] = l.min_size_to_sample;
  d["min_diff"] = l.min_diff;
  d["max_diff"] = l.max_diff;
  d["difference"] = l.difference();
  d["uncounted"] = l.uncounted;
  d["count_deletes"] = r.limiter.count_deletes.get() != 0;
  d["paused_inserts"] = (l.flags & kPausedInserts) != 0;
  d["paused_samples"] = (l.flags & kPausedSamples) != 0;
  d["is_stopping"] = (l.flags & kStopping) != 0;
  d["is_dropped"] = (l.flags & kDropped) != 0;
  const char* sides[] = {"inserts", "samples"};
  for (int side = 0; side < 2; ++side) {
    const WaitSide& s = r.sides[side];
    d[(std::string("blocked_") + sides[side]).c_str()] = s.sleepers.get();
    d[(std::string("blocked_") + sides[side] + "_total").c_str()] = s.blocked_calls.get();
    d[(std::string("blocked_") + sides[side] + "_s").c_str()] = static_cast<double>(s.blocked_ns.get()) * 1e-9;
  }
  d["last_insert_s_ago"] = seconds_since(r.last_insert_ns.get());
  d["last_sample_s_ago"] = seconds_since(r.last_sample_ns.get());
  d["views"] = r.num_views.load(std::memory_order_relaxed);
  d["contiguous_views"] = r.num_contiguous_views.load(std::memory_order_relaxed);
  const ArenaState& s = arena.state();
  d["bytes"] = s.num_used.get() * arena.geometry().chunk_bytes +
               (arena.geometry().num_blocks - s.num_free_blocks.get()) * arena.geometry().block_bytes;
  return d;
}

// (smallest positive or 0, largest or 0, sum) of the live priorities, read without the lock.
inline nb::tuple priority_stats(const Arena& arena, const TableFacts& facts) {
  double smallest = 0, largest = 0, sum = 0;
  {
    const GilRelease release;
    for (uint32_t slot = 0; slot < facts.capacity; ++slot) {
      const double p = arena.priority(static_cast<uint32_t>(facts.item_base + slot)).get();
      if (p > 0) smallest = smallest == 0 ? p : std::min(smallest, p);
      largest = std::max(largest, p);
      sum += p;
    }
  }
  return nb::make_tuple(smallest, largest, sum);
}

// (keys, ages, times sampled, priorities, stride) of at most `max_items` live items.
inline nb::tuple survey(const Arena& arena, const TableFacts& facts, uint32_t max_items) {
  if (max_items == 0) throw nb::value_error("max_items is 0; expected at least 1");
  Survey found;
  {
    const GilRelease release;
    found = survey_items(arena, facts, max_items);
  }
  const auto n = static_cast<npy_intp>(found.items.size());
  const nb::object keys = new_array(NPY_INT64, n), ages = new_array(NPY_INT64, n), times = new_array(NPY_INT32, n),
                   priorities = new_array(NPY_DOUBLE, n);
  for (npy_intp i = 0; i < n; ++i) {
    const SurveyedItem& item = found.items[static_cast<size_t>(i)];
    array_data<int64_t>(keys)[i] = item.key;
    array_data<int64_t>(ages)[i] = item.age;
    array_data<int32_t>(times)[i] = static_cast<int32_t>(std::min<uint32_t>(item.times_sampled, INT32_MAX));
    array_data<double>(priorities)[i] = item.priority;
  }
  return nb::make_tuple(keys, ages, times, priorities, found.stride);
}

// None if no live item was found.
inline nb::object origin_dict(const std::optional<Origin>& found) {
  if (!found) return nb::none();
  nb::dict d;
  d["insert_no"] = found->insert_no;
  d["age"] = found->age;
  d["episode"] = found->episode;
  d["step"] = found->step;
  d["num_steps"] = found->num_steps;
  d["times_sampled"] = found->times_sampled;
  d["priority"] = found->priority;
  d["stream"] = found->stream;
  d["writer_pid"] = found->writer_pid == 0 ? nb::object(nb::none()) : nb::object(nb::int_(found->writer_pid));
  return d;
}

}  // namespace shmreplay
