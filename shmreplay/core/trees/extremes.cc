#include "trees/extremes.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "trees/sum_tree.h"

namespace shmreplay {
namespace {

constexpr uint32_t kMaxExtremeLines = 128;

// In pairs: the compiler does four at a time.
double largest_of(const double (&w)[8]) noexcept {
  double m[4];
  for (int i = 0; i < 4; ++i) m[i] = std::max(w[i], w[i + 4]);
  return std::max(std::max(m[0], m[1]), std::max(m[2], m[3]));
}

// A fresh segment is all zeros, so 0 stands for "none" in the tree of the smallest as well. Numbers that are not
// negative are ordered as their bits are; minus one, the bits of 0 are the largest of all.
double smallest_of(const double (&w)[8]) noexcept {
  uint64_t least = UINT64_MAX;
  for (const double v : w) least = std::min(least, std::bit_cast<uint64_t>(v + 0.0) - 1);  // + 0.0: -0.0 is 0 too
  return std::bit_cast<double>(least + 1);
}

}  // namespace

double Extremes::of_line(int which, uint32_t k, uint64_t line) const noexcept {
  double w[8];
  load_line(level(which, k) + 8 * line, w);
  return which == kLargest ? largest_of(w) : smallest_of(w);
}

double Extremes::largest() const noexcept { return of_line(kLargest, layouts_[0].num_levels - 1, 0); }

double Extremes::smallest_positive() const noexcept {
  const double v = of_line(kSmallest, layouts_[1].num_levels - 1, 0);
  return v > 0 ? v : std::numeric_limits<double>::infinity();
}

void Extremes::prefetch(uint32_t slot) const noexcept {
  if (layouts_[0].num_levels < 2) return;
  for (const int which : {kLargest, kSmallest}) __builtin_prefetch(level(which, 1) + slot / 8, 1);
}

uint32_t Extremes::set_node(Hold& hold, int which, uint32_t k, uint32_t node, double value, uint32_t* parents,
                            uint32_t n) {
  Word<double>& word = level(which, k)[node];
  if (word.get() == value) return n;
  hold.set(word, value);
  if (n == 0 || parents[n - 1] != node / 8) parents[n++] = node / 8;
  return n;
}

void Extremes::climb(Hold& hold, const uint32_t* lines, uint32_t n) {
  if (layouts_[0].num_levels < 2) return;
  uint32_t nodes[2][kMaxExtremeLines], left[2] = {0, 0};
  for (uint32_t i = 0; i < n; ++i) {  // both trees have the same leaves
    double w[8];
    copy_line(level(kLargest, 0) + 8 * uint64_t{lines[i]}, w);
    left[kLargest] = set_node(hold, kLargest, 1, lines[i], largest_of(w), nodes[kLargest], left[kLargest]);
    left[kSmallest] = set_node(hold, kSmallest, 1, lines[i], smallest_of(w), nodes[kSmallest], left[kSmallest]);
  }
  for (const int which : {kLargest, kSmallest}) {
    for (uint32_t k = 2; k < layouts_[which].num_levels && left[which] > 0; ++k) {
      uint32_t parents = 0;
      for (uint32_t i = 0; i < left[which]; ++i) {
        const uint32_t node = nodes[which][i];
        parents = set_node(hold, which, k, node, of_line(which, k - 1, node), nodes[which], parents);
      }
      left[which] = parents;
    }
  }
}

}  // namespace shmreplay
