// The draws of one call that draws no item twice, and perhaps only items from one learner's part.
//
// Random samplers: a draw is repeated until it meets a new item. That is exactly the same as drawing among the items
// left, in proportion to their weights. Where little weight is left this would take long. So after kTries the call
// picks only among the items left: in a sum tree by MaskedTree, in a dense array by rank. Fifo and Lifo take the first
// items left, heaps the best. Items may come, go and change between two holds; one that came meanwhile may be drawn.
//
// A learner's part is the slots whose number modulo the number of learners is its rank. An item outside the part is
// drawn and not taken. That is exactly the same as drawing inside the part, in proportion to the weights. Once the call
// picks among the items left, it passes over such an item from then on, so a heavy one is met only once. A call
// remembers only a bounded number of them and may meet the others again. So it may pick nothing in a hold and still not
// be finished.
#pragma once

#include <algorithm>
#include <vector>

#include "trees/masked_tree.h"
#include "trees/selectors.h"

namespace shmreplay {

// The items of learner `rank` of `world_size`. A single learner has all items.
struct Part {
  uint32_t rank = 0, world_size = 1;
  bool has(uint32_t slot) const noexcept { return world_size == 1 || slot % world_size == rank; }
  bool is_all() const noexcept { return world_size == 1; }
};

class DistinctDraws {
 public:
  explicit DistinctDraws(const Arena& arena) noexcept : arena_(arena) {}

  // Begins a call of n draws, n <= the table's max_size; `uniforms`: n in [0, 1). A part of several needs a random
  // sampler. Called outside any hold; the rest allocates nothing.
  void begin(const TableFacts& table, uint32_t n, const double* uniforms, Part part = {});

  // How many items of the part can be drawn, including those already drawn. Looks at every item of the table. Read
  // without the lock: for a report.
  uint64_t count_drawable();

  // Whether an item of the part is left, as far as a look without the lock can tell. Also true if only a further hold
  // can tell.
  bool may_have_left();

  // How many items can be drawn in all, at most.
  uint64_t most_drawable(const Selector& sampler) const noexcept {
    return std::min(sampler.num_drawable(), most_drawable_);
  }

  // Picks up to `want` <= kGroup different new items; returns how many. 0: none is left, or all tries of the hold met
  // items outside the part.
  uint32_t pick(const Hold& hold, const Selector& sampler, uint32_t want, uint32_t* items);
  bool ran_out_of_tries() const noexcept { return ran_out_; }

  // Called instead of pick() if the call cannot be served.
  uint32_t pick_none() noexcept {
    ran_out_ = false;
    return 0;
  }

  // The next of the picked items was taken; `seq` was its seq then. What was picked and not taken is picked again.
  void take(const Hold& hold, uint32_t g, uint64_t seq);

 private:
  struct Drawn {
    uint32_t item;
    uint64_t seq;  // 0: an empty place of the hash table
  };
  static constexpr uint32_t kTries = 64;         // in one hold
  static constexpr uint32_t kMostPassed = 1024;  // a call that wants much of its part remembers more items
  double uniform(uint64_t draw, uint64_t attempt) const noexcept;
  Drawn& place(uint32_t g);
  bool is_drawn(uint32_t g);
  bool is_new(uint32_t g, const uint32_t* items, uint32_t n);
  uint32_t pick_new(const Hold& hold, const Selector& sampler, uint32_t want, uint32_t* items);
  uint32_t pick_left(const Selector& sampler);  // kNone: as when pick() answers 0
  uint32_t pick_any_left(const Selector& sampler, double u, bool by_weight);
  void pass_over(const Selector& sampler, uint32_t g);
  void leave_out(const Selector& sampler, uint32_t g);
  template <class Visit>
  void each_in_share(Visit visit);
  uint32_t pick_rank(const Selector& sampler, double u);
  uint32_t next_in_order(bool oldest_first);
  uint32_t first_new(uint32_t g, bool oldest_first);
  uint32_t best_of_heap(const Selector& sampler);
  void refresh(const Selector& sampler, bool by_weight);

  const Arena& arena_;
  const TableFacts* table_ = nullptr;
  const double* uniforms_ = nullptr;
  std::vector<Drawn> drawn_;  // in order
  std::vector<Drawn> hash_;   // the same, by item
  bool left_only_ = false;
  Part part_;
  uint64_t most_drawable_ = UINT64_MAX;  // in the part; set if the call wants much of it
  bool ran_out_ = false;
  uint64_t num_rejected_ = 0;  // by pick_left(), which has used up as many of its random numbers
  uint32_t most_passed_ = 0;
  std::vector<uint32_t> passed_;  // items outside the part; their slots stay outside
  // The data that pick_left() uses, as of a hold since which nobody else has changed anything.
  uint64_t seen_seq_ = 0;
  bool seen_by_weight_ = false;
  std::vector<uint32_t> sorted_;  // slots, or positions in the dense array
  MaskedTree masked_;
  std::vector<uint64_t> stack_;
};

}  // namespace shmreplay
