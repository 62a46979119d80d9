#include "read/shard_draw.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>

#include "base/leaf_weights.h"
#include "items/enter_table.h"
#include "items/table_calls.h"
#include "trees/extremes.h"
#include "trees/selectors.h"

namespace shmreplay {

ShardDraw::ShardDraw(std::vector<Shard> shards, uint32_t n)
    : shards_(std::move(shards)), shares_(shards_.size()), counts_(shards_.size()), chosen_(n), open_(n), places_(n) {
  std::iota(open_.begin(), open_.end(), 0);
}

bool ShardDraw::admits(const Shard& shard, bool count) const {
  return count ? can_sample_now(*shard.arena, *shard.table, 1) : shard.table->record->size.get() > 0;
}

// Reads the shares of the shards that admit a draw, without the locks. The draw is exact for these shares. false: no
// shard admits one.
bool ShardDraw::read_totals(bool count) {
  std::vector<double> sizes(shards_.size());
  double total = 0, items = 0, smallest = std::numeric_limits<double>::infinity();
  table_size_ = 0;
  for (size_t i = 0; i < shards_.size(); ++i) {
    const TableFacts& t = *shards_[i].table;
    shard_ = static_cast<uint32_t>(i);
    const uint64_t size = t.record->size.get();
    table_size_ += size;
    shares_[i] = 0;
    if (!admits(shards_[i], count)) continue;
    sizes[i] = static_cast<double>(size);
    items += sizes[i];
    shares_[i] = t.prioritized() ? SumTree(*shards_[i].arena, t.roles[kSampler].sum).total() : sizes[i];
    if (!std::isfinite(shares_[i]) || shares_[i] < 0) corrupt("the total of a table's priorities");
    total += shares_[i];
    if (!t.prioritized()) continue;
    const double least = Extremes(*shards_[i].arena, t.extremes).smallest_positive();
    if (std::isfinite(least)) smallest = std::min(smallest, leaf_weight(least, t.record->exponents[kSampler].get()));
  }
  if (!(total > 0)) shares_ = sizes, total = items;  // all priorities are 0: then all items weigh the same
  if (!(total > 0)) return false;
  for (double& share : shares_) share /= total;
  if (shards_[0].table->prioritized())
    smallest_ = std::isfinite(smallest) && smallest > 0 ? share_of(smallest, total) : 1 / items;
  return true;
}

// Chooses a shard for each open place.
void ShardDraw::choose(const double* uniforms) {
  std::fill(counts_.begin(), counts_.end(), 0);
  uint32_t last = 0;
  for (uint32_t s = 0; s < shards_.size(); ++s) {
    if (shares_[s] > 0) last = s;
  }
  for (size_t k = 0; k < open_.size(); ++k) {
    double left = uniforms[k];
    uint32_t s = 0;
    // Rounding may leave more than the shares add up to: then the last shard with a share is chosen.
    while (s < last && !(left < shares_[s])) left -= shares_[s++];
    chosen_[k] = s;
    ++counts_[s];
  }
}

Status ShardDraw::draw(const std::vector<SampleCall*>& calls, const SampleOptions& options, const Wait& wait,
                       ShardSink& sink) {
  if (!read_totals(options.count)) return Status::kOk;
  choose(options.uniforms);
  const double* own = options.uniforms + open_.size();
  std::vector<uint32_t> unfilled;
  for (uint32_t s = 0; s < shards_.size(); ++s) {
    if (counts_[s] == 0) continue;
    shard_ = s;
    uint32_t* places = places_.data() + done_;
    for (size_t k = 0; k < open_.size(); ++k) {
      if (chosen_[k] == s) *places++ = open_[k];
    }
    places -= counts_[s];
    sink.begin_part(places, shares_[s], table_size_);
    SampleOptions here = options;
    here.n = counts_[s];
    here.at_least = 1;
    here.uniforms = own;
    here.waits = false;
    const SampleResult part = calls[s]->sample(*shards_[s].table, here, wait, sink);
    own += counts_[s];
    done_ += part.done;
    unfilled.insert(unfilled.end(), places + part.done, places + counts_[s]);
    if (part.status != Status::kOk) return part.status;
  }
  open_ = std::move(unfilled);
  return Status::kOk;
}

SampleResult ShardDraw::get(uint32_t shard, SampleCall& call, const int64_t* keys, uint32_t n, const Wait& wait,
                            ShardSink& sink, uint32_t* found) {
  if (done_ == 0) {
    read_totals(false);
    places_ = open_;
  }
  shard_ = shard;
  sink.begin_part(places_.data() + done_, shares_[shard], table_size_);
  const SampleResult part = call.get(*shards_[shard].table, keys, n, wait, sink, found);
  done_ += part.done;
  return part;
}

Status ShardDraw::wait(bool count, const Wait& wait) {
  std::vector<std::unique_ptr<Blocked>> blocked;  // each leaves when this ends
  std::vector<Blocked*> all;
  for (const Shard& s : shards_) {
    blocked.push_back(std::make_unique<Blocked>(*s.arena, *s.table, kSamples, wait, count));
    all.push_back(blocked.back().get());
  }
  for (shard_ = 0; shard_ < shards_.size(); ++shard_) {
    const Shard& s = shards_[shard_];
    Hold hold(*s.arena);
    if (const Status status = enter_table(hold, *s.table, wait); status != Status::kOk) return status;
    if (admits(s, count)) return Status::kOk;
    all[shard_]->join(hold);
  }
  shard_ = 0;
  return Blocked::sleep_any(all.data(), static_cast<uint32_t>(all.size()));
}

}  // namespace shmreplay
