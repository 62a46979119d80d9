// An 8-ary sum tree of float64 over the slots of one table.
//
//   level n   [ s s s s s s s s ]                      one line of 8: their sum is the total
//   level 1   [ s s s s s s s s ][ ... ]               each s = sum of a line of 8 below
//   level 0   [ w w w w w w w w ][ w ... ]             leaves: priority ^ exponent, 0 for a free slot
//
// Every node is the freshly computed sum of its 8 children, in one fixed order: nothing is ever added to or subtracted
// from a node, so there is no drift, and the total is 0 exactly when every leaf is. A node and its siblings are one
// cache line. Draws of a group descend side by side, one level at a time, with prefetch.
#pragma once

#include <cmath>
#include <cstring>

#include "arena/hold.h"
#include "arena/layout.h"

namespace shmreplay {

// Reads a line of nodes, without the lock.
inline void load_line(const Word<double>* line, double (&w)[8]) noexcept {
  for (int i = 0; i < 8; ++i) w[i] = line[i].get();
}

// The same under the lock, where nobody writes them meanwhile: a few wide loads.
inline void copy_line(const Word<double>* line, double (&w)[8]) noexcept { std::memcpy(w, line, sizeof w); }

// The sum of a node's children. All sums are made in this order.
inline double sum_of_eight(const double (&w)[8]) noexcept {
  return ((w[0] + w[1]) + (w[2] + w[3])) + ((w[4] + w[5]) + (w[6] + w[7]));
}

// Which child the remaining mass r falls into; r becomes the mass within that child. Never a child of weight 0, unless
// all are.
//
// It has no branches: the children before it are those whose running sum is at most r. A child of weight 0 adds nothing
// to the sum, so it is never the first beyond r. Rounding may leave r at or beyond the sum of the line: then it is the
// last child that is not 0.
inline uint32_t pick_child(const double (&w)[8], double& r) noexcept {
  double sums[9];
  sums[0] = 0;
  for (int i = 0; i < 8; ++i) sums[i + 1] = sums[i] + w[i];
  uint32_t child = 0;
  for (int i = 1; i <= 8; ++i) child += sums[i] <= r ? 1 : 0;
  if (child < 8) [[likely]] {
    r -= sums[child];
    return child;
  }
  for (child = 7; child > 0 && !(w[child] > 0);) --child;
  r = std::nextafter(w[child], 0.0);
  return child;
}

class SumTree {
 public:
  SumTree(const Arena& arena, const TreeLayout& layout) noexcept : arena_(arena), layout_(layout) {}

  double leaf(uint32_t slot) const noexcept { return level(0)[slot].get(); }
  uint32_t num_levels() const noexcept { return layout_.num_levels; }
  uint32_t num_leaves() const noexcept { return layout_.num_leaves; }
  double node(uint32_t k, uint64_t i) const noexcept { return level(k)[i].get(); }
  double total() const noexcept { return sum_line(level(layout_.num_levels - 1)); }

  void set_leaf(Hold& hold, uint32_t slot, double weight) { hold.set(level(0)[slot], weight); }

  // Brings the nodes above these lines of 8 leaves up to date. `lines` must be ascending, without repeats.
  void climb(Hold& hold, const uint32_t* lines, uint32_t n);

  void set(Hold& hold, uint32_t slot, double weight) {
    set_leaf(hold, slot, weight);
    const uint32_t line = slot / 8;
    climb(hold, &line, 1);
  }

  // For each u in [0, 1): the slot in whose share of the total u falls. Never a leaf of weight 0. total() > 0.
  void draw(const double* u, uint32_t n, uint32_t* slots) const;

  void prefetch(uint32_t slot) const noexcept;

  // Calls visit(word, value) for each node above the leaves, with the value that it should have; for rebuild and check.
  template <class Visit>
  void recompute(Visit visit) const {
    uint64_t n = round_up(layout_.num_leaves, 8);
    for (uint32_t k = 1; k < layout_.num_levels; ++k) {
      const uint64_t parents = n / 8;
      for (uint64_t i = 0; i < parents; ++i) visit(level(k)[i], sum_line(level(k - 1) + 8 * i));
      n = round_up(parents, 8);
    }
  }

  static double sum_line(const Word<double>* line) noexcept {
    double w[8];
    load_line(line, w);
    return sum_of_eight(w);
  }

 private:
  Word<double>* level(uint32_t k) const noexcept { return arena_.at<Word<double>>(layout_.level[k]); }

  const Arena& arena_;
  const TreeLayout& layout_;
};

}  // namespace shmreplay
