// The leaves of a sum tree: priority ^ exponent.
//
// Zero stays zero, also for exponent 0. A positive priority stays positive, and so small that 2^32 of them have a
// finite sum. A power's relative error is below 2e-13 (1e-15 for priorities between 1e-3 and 1e3). Its bits are the
// same alone, in a group, and on every processor, because a check compares leaves bit by bit.
#pragma once

#include <algorithm>
#include <cfloat>
#include <cstdint>

namespace shmreplay {

inline constexpr double kLeastWeight = 1e-290, kMostWeight = 1e290;  // of a positive priority

// The positive priorities whose power by the exponent a leaf can hold. Others would count as much as those at the edge.
struct PriorityRange { double least, most; };
PriorityRange priority_range(double exponent) noexcept;

double leaf_weight(double priority, double exponent) noexcept;

// The same for n priorities side by side, several to an instruction.
void leaf_weights(const double* priorities, uint32_t n, double exponent, double* weights) noexcept;

// The probability of a leaf. However small its share of the total, it is not 0 unless the weight is.
inline double share_of(double weight, double total) noexcept {
  return weight > 0 ? std::max(weight / total, DBL_MIN) : 0;
}

}  // namespace shmreplay
