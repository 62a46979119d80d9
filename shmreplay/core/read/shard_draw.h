// Draws from one table that lies in several arenas, its shards, as if it were one.
//
// A round reads the total of every shard without a lock: how many items it has, or the sum of their weights. A shard
// whose limiter does not admit a draw counts as empty. Each open place of the batch chooses a shard by the totals. Then
// every shard fills its places in holds of its own, so no two locks are ever held together. An item is drawn with the
// share of its shard (of the totals read) times its probability within the shard; that is what the batch says. Places
// that a shard could not fill, because its limiter stopped or its items were gone, are open again in the next round.
#pragma once

#include <vector>

#include "read/sample_call.h"

namespace shmreplay {

struct Shard {
  Arena* arena;
  const TableFacts* table;
};

// A batch that is filled part by part, out of several tables.
class ShardSink : public BatchSink {
 public:
  // Called before the calls for another shard's items. Those go to places[0], places[1], ... of the batch; `places`
  // outlives the part. The shard has `share` of the table, which holds `table_size` items.
  virtual void begin_part(const uint32_t* places, double share, uint64_t table_size) noexcept = 0;
};

class ShardDraw {
 public:
  // At least one shard and at most kMaxShards, of tables that do not consume; a batch of n.
  ShardDraw(std::vector<Shard> shards, uint32_t n);

  // One round: draws what is admitted now and no more. `calls`: one for each shard. Of `options` it looks at `uniforms`
  // (2 * open() of them), `count`, `most_rows` and `num_threads`. Answers kOk, or what ended the round; shard() says in
  // which shard. What was drawn before that stays in the batch.
  Status draw(const std::vector<SampleCall*>& calls, const SampleOptions& options, const Wait& wait, ShardSink& sink);

  // Gets the live items of `keys`, all of one shard, to the places after those that are filled; `found` as in
  // SampleCall::get.
  SampleResult get(uint32_t shard, SampleCall& call, const int64_t* keys, uint32_t n, const Wait& wait, ShardSink& sink,
                   uint32_t* found);

  // After a round that drew nothing: sleeps until a shard may serve. kOk at once if one can already.
  Status wait(bool count, const Wait& wait);

  uint32_t done() const noexcept { return done_; }
  uint32_t open() const noexcept { return static_cast<uint32_t>(open_.size()); }
  uint32_t shard() const noexcept { return shard_; }
  // Places of the batch in the order in which they are filled; the first done() of them are filled.
  const std::vector<uint32_t>& places() const noexcept { return places_; }
  // The smallest probability of an item of positive priority when the last round began; 0 if the sampler has none.
  double smallest_probability() const noexcept { return smallest_; }

 private:
  bool admits(const Shard& shard, bool count) const;
  bool read_totals(bool count);
  void choose(const double* uniforms);

  std::vector<Shard> shards_;
  std::vector<double> shares_;    // of this round, by shard; they add up to 1
  std::vector<uint32_t> counts_;  // places by shard
  std::vector<uint32_t> chosen_;  // a shard for each open place
  std::vector<uint32_t> open_;    // places that are not filled
  std::vector<uint32_t> places_;
  uint32_t done_ = 0, shard_ = 0;
  uint64_t table_size_ = 0;
  double smallest_ = 0;
};

}  // namespace shmreplay
