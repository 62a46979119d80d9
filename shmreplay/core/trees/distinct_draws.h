// The draws of one call that draws no item twice; and perhaps none but those of one of several learners.
//
// Random samplers: a draw is repeated until it is new, which is drawing in proportion to the weights of those that are
// left, exactly. Where little weight is left that would take long: after kTries the call goes over to picking among
// those that are left alone, a sum tree by MaskedTree, a dense array by rank. Fifo and Lifo: the first that are left;
// heaps: the best. Items may come, go and change between two holds; one that came since may be drawn.
//
// A learner's share is the slots whose number modulo that of the learners is its own. What is not in it is drawn and
// not taken, which is drawing in proportion to the weights of what is in it, exactly. Such an item is passed over from
// then on, once the call picks among those that are left; so one that is heavy is met once. A call remembers so many of
// them; what it does not remember it meets again. It therefore may pick nothing in a hold and yet not be at its end.
#pragma once

#include <algorithm>
#include <vector>

#include "trees/masked_tree.h"
#include "trees/selectors.h"

namespace shmreplay {

// The items of learner `rank` of `num_ranks`. All items: of the only one.
struct Share {
  uint32_t rank = 0, num_ranks = 1;
  bool has(uint32_t slot) const noexcept { return num_ranks == 1 || slot % num_ranks == rank; }
  bool is_all() const noexcept { return num_ranks == 1; }
};

class DistinctDraws {
 public:
  explicit DistinctDraws(const Arena& arena) noexcept : arena_(arena) {}

  // Begins a call of n draws, n <= the table's max_size; `uniforms`: n in [0, 1). A share of several is that of a
  // random sampler. Outside any hold; the rest allocates nothing.
  void begin(const TableFacts& table, uint32_t n, const double* uniforms, Share share = {});

  // How many items of the share there are to be drawn, drawn ones among them. Looks at every item of the table; read
  // without the lock: for a report.
  uint64_t count_drawable();

  // Whether an item of the share is left, as far as a look without the lock tells; true where a further hold will tell.
  bool may_have_left();

  // At most so many items can be drawn in all.
  uint64_t most_drawable(const Selector& sampler) const noexcept {
    return std::min(sampler.num_drawable(), most_drawable_);
  }

  // Picks up to `want` <= kGroup that are new, and unlike each other: how many. 0: none is left, or all tries of a hold
  // went to items of others.
  uint32_t pick(const Hold& hold, const Selector& sampler, uint32_t want, uint32_t* items);
  bool ran_out_of_tries() const noexcept { return ran_out_; }

  // Instead of pick(), where the call can not be served.
  uint32_t pick_none() noexcept {
    ran_out_ = false;
    return 0;
  }

  // The item picked next was taken; `seq` was its seq then. What was picked and not taken is picked again.
  void take(const Hold& hold, uint32_t g, uint64_t seq);

 private:
  struct Drawn {
    uint32_t item;
    uint64_t seq;  // 0: an empty place of the hash table
  };
  static constexpr uint32_t kTries = 64;         // a hold
  static constexpr uint32_t kMostPassed = 1024;  // beside those of a call that wants a good part of its share
  double uniform(uint64_t draw, uint64_t attempt) const noexcept;
  Drawn& place(uint32_t g);
  bool is_drawn(uint32_t g);
  bool is_new(uint32_t g, const uint32_t* items, uint32_t n);
  uint32_t pick_new(const Hold& hold, const Selector& sampler, uint32_t want, uint32_t* items);
  uint32_t pick_left(const Selector& sampler);  // kNone: as 0 of pick()
  uint32_t pick_any_left(const Selector& sampler, double u, bool by_weight);
  void pass_over(const Selector& sampler, uint32_t g);
  void leave_out(const Selector& sampler, uint32_t g);
  template <class Visit>
  void each_in_share(Visit visit);
  uint32_t pick_rank(const Selector& sampler, double u);
  uint32_t next_in_order(bool oldest_first);
  uint32_t best_of_heap(const Selector& sampler);
  void refresh(const Selector& sampler, bool by_weight);

  const Arena& arena_;
  const TableFacts* table_ = nullptr;
  const double* uniforms_ = nullptr;
  std::vector<Drawn> drawn_;  // in order
  std::vector<Drawn> hash_;   // the same by item
  bool left_only_ = false;
  Share share_;
  uint64_t most_drawable_ = UINT64_MAX;  // of the share, where the call wants a good part of it
  bool ran_out_ = false;
  uint64_t num_rejected_ = 0;  // by pick_left: so many of its numbers are used up
  uint32_t most_passed_ = 0;
  std::vector<uint32_t> passed_;  // items in slots of others, which stay those of others
  // What pick_left() goes by, as of a hold in which nobody else has changed anything since.
  uint64_t seen_seq_ = 0;
  bool seen_by_weight_ = false;
  std::vector<uint32_t> sorted_;  // slots, or positions in the dense array
  MaskedTree masked_;
  std::vector<uint64_t> stack_;
};

}  // namespace shmreplay
