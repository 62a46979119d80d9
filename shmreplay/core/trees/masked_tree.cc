#include "trees/masked_tree.h"

#include <algorithm>

namespace shmreplay {
namespace {

template <class Nodes>
auto find_from(Nodes& nodes, uint64_t index) noexcept {
  return std::lower_bound(nodes.begin(), nodes.end(), index,
                          [](const auto& node, uint64_t i) { return node.index < i; });
}

}  // namespace

void MaskedTree::reserve(const TreeLayout& layout, uint32_t n) {
  uint64_t nodes = layout.num_leaves;
  for (uint32_t k = 0; k < layout.num_levels; ++k, nodes = nodes / 8 + 1)
    levels_[k].reserve(std::min<uint64_t>(n, nodes));
}

void MaskedTree::read_line(const SumTree& tree, uint32_t k, uint64_t line, double (&w)[8]) const noexcept {
  for (uint32_t i = 0; i < 8; ++i) w[i] = tree.node(k, 8 * line + i);
  for (auto at = find_from(levels_[k], 8 * line); at != levels_[k].end() && at->index < 8 * line + 8; ++at) {
    w[at->index % 8] = at->sum;
  }
}

double MaskedTree::sum_of(const SumTree& tree, uint32_t k, uint64_t line) const noexcept {
  double w[8];
  read_line(tree, k, line, w);
  return sum_of_eight(w);
}

void MaskedTree::build(const SumTree& tree, const uint32_t* slots, uint32_t n) {
  for (std::vector<Node>& level : levels_) level.clear();
  for (uint32_t i = 0; i < n; ++i) levels_[0].push_back({slots[i], 0.0});
  for (uint32_t k = 1; k < tree.num_levels(); ++k) {
    for (const Node& child : levels_[k - 1]) {
      const uint64_t index = child.index / 8;
      if (levels_[k].empty() || levels_[k].back().index != index)
        levels_[k].push_back({index, sum_of(tree, k - 1, index)});
    }
  }
}

void MaskedTree::mask(const SumTree& tree, uint32_t slot) {
  uint64_t index = slot;
  for (uint32_t k = 0; k < tree.num_levels(); ++k, index /= 8) {
    const double sum = k == 0 ? 0.0 : sum_of(tree, k - 1, index);
    const auto at = find_from(levels_[k], index);
    if (at != levels_[k].end() && at->index == index) at->sum = sum;
    else levels_[k].insert(at, {index, sum});
  }
}

double MaskedTree::total(const SumTree& tree) const noexcept { return sum_of(tree, tree.num_levels() - 1, 0); }

uint32_t MaskedTree::draw(const SumTree& tree, double u) const {
  double rest = u * total(tree);
  uint64_t node = 0;
  for (uint32_t k = tree.num_levels(); k-- > 0;) {
    double w[8];
    read_line(tree, k, node, w);
    node = 8 * node + pick_child(w, rest);
    // Checked at every level: the level below has no line for a node that does not exist.
    if (node << (3 * k) >= round_up(tree.num_leaves(), 8)) corrupt("a sum tree has weight beyond its leaves");
  }
  if (node >= tree.num_leaves()) corrupt("a sum tree has weight beyond its leaves");
  return static_cast<uint32_t>(node);
}

}  // namespace shmreplay
