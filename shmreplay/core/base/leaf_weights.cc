#include "base/leaf_weights.h"

#include <bit>
#include <cmath>

namespace shmreplay {
namespace {

constexpr double kLeast = kLeastWeight, kMost = kMostWeight;
constexpr double kMostLog2 = 964;     // larger than both
constexpr double kRounds = 0x1.8p52;  // adding it to a smaller number leaves an integer in the low bits
constexpr double kTwoOverLn2 = 2.8853900817779268, kLn2 = 0.69314718055994531;

constexpr uint64_t bits(double v) noexcept { return std::bit_cast<uint64_t>(v); }  // unsigned: it may wrap
constexpr double clamped(double v, double least, double most) noexcept {
  v = v < least ? least : v;
  return v > most ? most : v;
}

// It has no branches and is compiled without traps (CMakeLists.txt), so that a loop over it becomes vector
// instructions. x = 2^e * m with m around 1; log2(m) is the series of the area tangent in (m - 1) / (m + 1), 2^f is the
// series of exp.
[[gnu::always_inline]] inline double power(double x, double exponent) noexcept {
  constexpr uint64_t kHalfRoot = bits(0x1.6a09e667f3bcdp-1), kMantissa = 0x000fffffffffffff, kBias = 2048;
  const bool is_subnormal = x < 0x1p-1022;
  const uint64_t above = bits(x * (is_subnormal ? 0x1p54 : 1.0)) - kHalfRoot;
  const uint64_t e = (above + (kBias << 52)) >> 52;
  const double whole =
      std::bit_cast<double>(bits(kRounds) + e) - (kRounds + static_cast<double>(kBias)) - (is_subnormal ? 54.0 : 0.0);
  const auto m = std::bit_cast<double>((above & kMantissa) + kHalfRoot);
  const double s = (m - 1) / (m + 1), s2 = s * s;
  double series = 1.0 / 23;
  for (int k = 21; k >= 3; k -= 2) series = series * s2 + 1.0 / k;
  const double log2 = whole + kTwoOverLn2 * (s + s * s2 * series);

  const double z = clamped(exponent * log2, -kMostLog2, kMostLog2);
  const double rounded = z + kRounds;
  const double f = (z - (rounded - kRounds)) * kLn2;
  double exp = 1;
  for (int k = 14; k >= 1; --k) exp = exp * (f * (1.0 / k)) + 1;
  return std::bit_cast<double>(bits(exp) + ((bits(rounded) - bits(kRounds)) << 52));
}

[[gnu::always_inline]] inline void each_weight(const double* priorities, uint32_t n, double exponent,
                                               double* weights) noexcept {
  for (uint32_t i = 0; i < n; ++i) {
    const double weight = clamped(power(priorities[i], exponent), kLeast, kMost);
    weights[i] = priorities[i] == 0 ? 0 : weight;
  }
}

using Weights = void (*)(const double*, uint32_t, double, double*) noexcept;

void plain(const double* priorities, uint32_t n, double exponent, double* weights) noexcept {
  each_weight(priorities, n, exponent, weights);
}

#if defined(__x86_64__)
[[gnu::target("avx2")]] void avx2(const double* priorities, uint32_t n, double exponent, double* weights) noexcept {
  each_weight(priorities, n, exponent, weights);
}

[[gnu::target("avx512f,avx512dq")]] void avx512(const double* priorities, uint32_t n, double exponent,
                                                double* weights) noexcept {
  each_weight(priorities, n, exponent, weights);
}

Weights fastest() noexcept {
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq")) return avx512;
  return __builtin_cpu_supports("avx2") ? avx2 : plain;
}
#else
Weights fastest() noexcept { return plain; }
#endif

const Weights weights_of = fastest();

}  // namespace

PriorityRange priority_range(double exponent) noexcept {
  thread_local double last_exponent = 1;
  thread_local PriorityRange last{kLeast, kMost};
  if (exponent != last_exponent) {
    // Exponent 0 has no limits: the quotients are infinite.
    last = {std::exp2(std::log2(kLeast) / exponent), std::exp2(std::log2(kMost) / exponent)};
    last_exponent = exponent;
  }
  return last;
}

double leaf_weight(double priority, double exponent) noexcept {
  if (priority == 0) return 0;
  if (exponent == 1.0) return clamped(priority, kLeast, kMost);
  // A batch of new items mostly has one priority, and computing a power is a fifth of the cost of inserting one of
  // them.
  thread_local double last_priority = 0, last_exponent = 0, last_weight = 0;
  if (priority != last_priority || exponent != last_exponent) {
    plain(&priority, 1, exponent, &last_weight);
    last_priority = priority;
    last_exponent = exponent;
  }
  return last_weight;
}

void leaf_weights(const double* priorities, uint32_t n, double exponent, double* weights) noexcept {
  if (exponent != 1.0) return weights_of(priorities, n, exponent, weights);
  for (uint32_t i = 0; i < n; ++i) weights[i] = leaf_weight(priorities[i], exponent);
}

}  // namespace shmreplay
