#include "sum_tree.h"

#include <algorithm>
#include <cmath>

namespace shmreplay {
namespace {

// Which child the remaining mass r falls into; r becomes the mass within it. Rounding may leave r at or beyond the sum of
// the line: then the last child that is not 0.
uint32_t pick_child(const Word<double>* line, double& r) noexcept {
  uint32_t last = 0;
  double rest = r;
  for (uint32_t i = 0; i < 8; ++i) {
    const double w = line[i].get();
    if (w <= 0) continue;
    if (rest < w) {
      r = rest;
      return i;
    }
    rest -= w;
    last = i;
  }
  r = std::nextafter(line[last].get(), 0.0);
  return last;
}

}  // namespace

double leaf_weight(double priority, double exponent) noexcept {
  if (priority == 0) return 0;
  const double w = exponent == 1.0 ? priority : std::pow(priority, exponent);
  return std::clamp(w, 1e-290, 1e290);
}

void SumTree::set(Hold& hold, uint32_t slot, double weight) {
  uint64_t i = slot;
  hold.set(level(0)[i], weight);
  for (uint32_t k = 1; k < layout_.num_levels; ++k) {
    const uint64_t parent = i / 8;
    hold.set(level(k)[parent], sum_line(level(k - 1) + 8 * parent));
    i = parent;
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
      node[d] = 8 * node[d] + pick_child(level(k) + 8 * node[d], rest[d]);
      if (node[d] >= (k > 0 ? nodes[k] : layout_.num_leaves)) corrupt("a sum tree has weight beyond its leaves");
      if (k > 0) __builtin_prefetch(level(k - 1) + 8 * node[d]);
    }
    if (k == 0) break;
  }
  for (uint32_t d = 0; d < n; ++d) slots[d] = static_cast<uint32_t>(node[d]);
}

void SumTree::prefetch(uint32_t slot) const noexcept {
  uint64_t i = slot;
  for (uint32_t k = 0; k < layout_.num_levels; ++k, i /= 8) __builtin_prefetch(level(k) + i, 1);
}

}  // namespace shmreplay
