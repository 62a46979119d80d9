#include "extremes.h"

#include <algorithm>
#include <limits>

namespace shmreplay {
namespace {
constexpr double kInfinity = std::numeric_limits<double>::infinity();
}

// A fresh segment is all zeros, so 0 stands for "none" in the tree of the smallest too.
double Extremes::of_line(int which, uint32_t k, uint64_t line) const noexcept {
  const Word<double>* p = level(which, k) + 8 * line;
  double result = 0;
  for (int i = 0; i < 8; ++i) {
    const double v = p[i].get();
    if (which == 0) result = std::max(result, v);
    if (which == 1 && v > 0) result = result == 0 ? v : std::min(result, v);
  }
  return result;
}

double Extremes::largest() const noexcept { return of_line(0, layouts_[0].num_levels - 1, 0); }

double Extremes::smallest_positive() const noexcept {
  const double v = of_line(1, layouts_[1].num_levels - 1, 0);
  return v > 0 ? v : kInfinity;
}

void Extremes::follow(Hold& hold, uint32_t slot) {
  for (int which = 0; which < 2; ++which) {
    uint64_t i = slot;
    for (uint32_t k = 1; k < layouts_[which].num_levels; ++k) {
      i /= 8;
      const double value = of_line(which, k - 1, i);
      if (level(which, k)[i].get() == value) break;
      hold.set(level(which, k)[i], value);
    }
  }
}

}  // namespace shmreplay
