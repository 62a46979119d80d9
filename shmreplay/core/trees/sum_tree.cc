#include "trees/sum_tree.h"

#include <algorithm>
#include <cmath>

namespace shmreplay {
namespace {

constexpr uint32_t kMaxSumLines = 128;
constexpr uint32_t kColdLevels = 3;  // counted from the leaves; the levels above are in the caches, because every
                                     // recent draw read them

}  // namespace

void SumTree::climb(Hold& hold, const uint32_t* lines, uint32_t n) {
  uint32_t nodes[kMaxSumLines];
  std::copy_n(lines, n, nodes);
  for (uint32_t k = 1; k < layout_.num_levels; ++k) {
    uint32_t parents = 0;
    for (uint32_t i = 0; i < n; ++i) {
      const uint32_t node = nodes[i];
      double w[8];
      copy_line(level(k - 1) + 8 * uint64_t{node}, w);
      hold.set(level(k)[node], sum_of_eight(w));
      if (parents == 0 || nodes[parents - 1] != node / 8) nodes[parents++] = node / 8;
    }
    n = parents;
  }
}

void SumTree::draw(const double* u, uint32_t n, uint32_t* slots) const {
  const uint32_t top = layout_.num_levels - 1;
  uint64_t nodes[kMaxTreeLevels] = {round_up(layout_.num_leaves, 8)};
  for (uint32_t k = 1; k <= top; ++k) nodes[k] = round_up(nodes[k - 1], 8) / 8;
  const double all = total();
  double rest[kGroup];
  uint64_t node[kGroup];
  for (uint32_t d = 0; d < n; ++d) {
    rest[d] = u[d] * all;
    node[d] = 0;
  }
  for (uint32_t k = top;; --k) {
    for (uint32_t d = 0; d < n; ++d) {
      double w[8];
      copy_line(level(k) + 8 * node[d], w);
      node[d] = 8 * node[d] + pick_child(w, rest[d]);
      if (node[d] >= (k > 0 ? nodes[k] : layout_.num_leaves)) corrupt("a sum tree has weight beyond its leaves");
      if (k > 0) __builtin_prefetch(level(k - 1) + 8 * node[d]);
    }
    if (k == 0) break;
  }
  for (uint32_t d = 0; d < n; ++d) slots[d] = static_cast<uint32_t>(node[d]);
}

void SumTree::prefetch(uint32_t slot) const noexcept {
  uint64_t i = slot;
  for (uint32_t k = 0; k < std::min(layout_.num_levels, kColdLevels); ++k, i /= 8) __builtin_prefetch(level(k) + i, 1);
}

}  // namespace shmreplay
