#include "base/leaf_weights.h"

#include <cmath>
#include <cstring>

#include "support/fixtures.h"

namespace shmreplay::test {
namespace {

// A priority of any size, most of them around 1.
double any_priority(Random& random) {
  const double decades = random.chance(0.2) ? 300 : 3;
  return std::pow(10.0, (2 * random.uniform() - 1) * decades);
}

double expected(double priority, double exponent) { return std::clamp(std::pow(priority, exponent), 1e-290, 1e290); }

bool same_bits(double a, double b) { return std::memcmp(&a, &b, sizeof a) == 0; }

}  // namespace

TEST(a_leaf_is_the_power_of_its_priority_and_stays_finite_and_positive) {
  CHECK_EQ(leaf_weight(0, 1), 0.0);
  CHECK_EQ(leaf_weight(-0.0, 1), 0.0);
  CHECK_EQ(leaf_weight(0, 0), 0.0);  // zero is never drawn, whatever the exponent
  CHECK_EQ(leaf_weight(5, 0), 1.0);
  CHECK_EQ(leaf_weight(4, 0.5), 2.0);
  CHECK_EQ(leaf_weight(3, 1), 3.0);
  CHECK(leaf_weight(1e-300, 2) > 0);
  CHECK(leaf_weight(5e-324, 1) > 0);
  CHECK(std::isfinite(leaf_weight(kMaxPriority, 50) * 4294967296.0));
}

TEST(powers_are_those_of_the_c_library_but_for_rounding) {
  Random random(seed());
  for (int i = 0; i < 100000; ++i) {
    const double priority = any_priority(random), exponent = random.chance(0.5) ? 0.6 : 4 * random.uniform();
    const double want = expected(priority, exponent), got = leaf_weight(priority, exponent);
    const bool is_common = priority > 1e-3 && priority < 1e3 && exponent <= 1;
    CHECK(std::abs(got - want) <= want * (is_common ? 2e-15 : 2e-13));
  }
}

TEST(subnormal_priorities_have_powers_too) {
  for (const double priority : {5e-324, 1e-320, 2.2250738585072009e-308}) {
    const double want = expected(priority, 0.25);
    CHECK(std::abs(leaf_weight(priority, 0.25) - want) <= want * 2e-13);
  }
}

TEST(a_group_of_leaves_has_the_bits_of_single_ones) {
  Random random(seed());
  for (uint32_t n = 0; n <= 40; ++n) {
    for (const double exponent : {0.0, 0.5, 0.6, 1.0, 3.7}) {
      double priorities[40], weights[41];
      for (uint32_t i = 0; i < n; ++i) priorities[i] = random.chance(0.1) ? 0 : any_priority(random);
      weights[n] = -1;
      leaf_weights(priorities, n, exponent, weights);
      for (uint32_t i = 0; i < n; ++i) CHECK(same_bits(weights[i], leaf_weight(priorities[i], exponent)));
      CHECK_EQ(weights[n], -1.0);
    }
  }
}

}  // namespace shmreplay::test
