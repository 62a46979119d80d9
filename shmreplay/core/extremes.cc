#include "extremes.h"

#include <algorithm>
#include <limits>

namespace shmreplay {
namespace {
constexpr uint32_t kMaxLines = 128;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
}

// A fresh segment is all zeros, so 0 stands for "none" in the tree of the smallest too.
double Extremes::of_line(int which, uint32_t k, uint64_t line) const noexcept {
  const Word<double>* p = level(which, k) + 8 * line;
  double result = which == 0 ? 0 : kInfinity;
  for (int i = 0; i < 8; ++i) {
    const double v = p[i].get();
    result = which == 0 ? std::max(result, v) : std::min(result, v > 0 ? v : kInfinity);
  }
  return result == kInfinity ? 0 : result;
}

double Extremes::largest() const noexcept { return of_line(0, layouts_[0].num_levels - 1, 0); }

double Extremes::smallest_positive() const noexcept {
  const double v = of_line(1, layouts_[1].num_levels - 1, 0);
  return v > 0 ? v : kInfinity;
}

void Extremes::climb(Hold& hold, const uint32_t* lines, uint32_t n) {
  for (int which = 0; which < 2; ++which) {
    uint32_t nodes[kMaxLines];
    uint32_t left = n;
    std::copy_n(lines, n, nodes);
    for (uint32_t k = 1; k < layouts_[which].num_levels && left > 0; ++k) {
      uint32_t parents = 0;
      for (uint32_t i = 0; i < left; ++i) {
        const uint32_t node = nodes[i];
        const double value = of_line(which, k - 1, node);
        if (level(which, k)[node].get() == value) continue;
        hold.set(level(which, k)[node], value);
        if (parents == 0 || nodes[parents - 1] != node / 8) nodes[parents++] = node / 8;
      }
      left = parents;
    }
  }
}

}  // namespace shmreplay
