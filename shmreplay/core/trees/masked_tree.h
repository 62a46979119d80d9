// A sum tree seen without some of its leaves: private, and as exact as the tree itself.
//
// The nodes above the masked leaves are summed again, in the tree's own order; all other nodes are read from the tree.
// Nothing is subtracted: if one leaf outweighs the rest by far, a difference would lose the rest in the rounding.
#pragma once

#include <vector>

#include "trees/sum_tree.h"

namespace shmreplay {

class MaskedTree {
 public:
  // Makes room for n masked leaves, outside any hold; the other functions allocate nothing.
  void reserve(const TreeLayout& layout, uint32_t n);

  // Masks these leaves and no others. `slots` must be ascending, without repeats. Call it again after any change of the
  // tree.
  void build(const SumTree& tree, const uint32_t* slots, uint32_t n);
  void mask(const SumTree& tree, uint32_t slot);

  double total(const SumTree& tree) const noexcept;
  // The slot in whose share of the total u falls. total() > 0.
  uint32_t draw(const SumTree& tree, double u) const;

 private:
  struct Node {
    uint64_t index;
    double sum;
  };
  double sum_of(const SumTree& tree, uint32_t k, uint64_t line) const noexcept;
  void read_line(const SumTree& tree, uint32_t k, uint64_t line, double (&w)[8]) const noexcept;

  std::vector<Node> levels_[kMaxTreeLevels];  // ascending: nodes of level k that differ from the tree's; masked leaves
                                              // are 0
};

}  // namespace shmreplay
