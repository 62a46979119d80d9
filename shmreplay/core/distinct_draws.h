// The draws of one call that draws no item twice.
//
// Random samplers: a draw is repeated until it is new, which is drawing in proportion to the weights of those that are left,
// exactly. Where little weight is left that would take long: after kTries the call goes over to picking among those that are
// left alone, a sum tree by MaskedTree, a dense array by rank. Fifo and Lifo: the first that are left; heaps: the best.
// Items may come, go and change between two holds; one that came since may be drawn.
#pragma once

#include <vector>

#include "masked_tree.h"
#include "selectors.h"

namespace shmreplay {

class DistinctDraws {
 public:
  explicit DistinctDraws(Arena& arena) noexcept : arena_(arena) {}

  // Begins a call of n draws, n <= the table's max_size; `uniforms`: n in [0, 1). Outside any hold; the rest allocates nothing.
  void begin(const TableFacts& table, uint32_t n, const double* uniforms);

  // In a hold from here on.

  // Picks up to `want` <= kGroup that are new, and unlike each other: how many; 0 if none is left.
  uint32_t pick(const Selector& sampler, uint32_t want, uint32_t* items);

  // The item picked next was taken; `seq` was its seq then. What was picked and not taken is picked again.
  void take(uint32_t g, uint64_t seq);

 private:
  struct Drawn {
    uint32_t item;
    uint64_t seq;  // 0: an empty place of the hash table
  };
  static constexpr uint32_t kTries = 64;  // a hold
  double uniform(uint64_t draw, uint64_t attempt) const noexcept;
  Drawn& place(uint32_t g);
  bool is_drawn(uint32_t g);
  bool is_new(uint32_t g, const uint32_t* items, uint32_t n);
  uint32_t pick_new(const Selector& sampler, uint32_t want, uint32_t* items);
  uint32_t pick_left(const Selector& sampler);        // kNone: none is left
  uint32_t pick_rank(const Selector& sampler, double u);
  uint32_t next_in_order(bool oldest_first);
  uint32_t best_of_heap(const Selector& sampler);
  void refresh(const Selector& sampler, bool by_weight);

  Arena& arena_;
  const TableFacts* table_ = nullptr;
  const double* uniforms_ = nullptr;
  std::vector<Drawn> drawn_;                          // in order
  std::vector<Drawn> hash_;                           // the same by item
  bool left_only_ = false;
  // What pick_left() goes by, as of a hold in which nobody else has changed anything since.
  uint64_t seen_seq_ = 0;
  bool seen_by_weight_ = false;
  std::vector<uint32_t> sorted_;                      // slots, or positions in the dense array
  MaskedTree masked_;
  std::vector<uint64_t> stack_;
};

}  // namespace shmreplay
