#include "trees/sum_tree.h"

#include <cmath>
#include <numeric>

#include "support/fixtures.h"

namespace shmreplay::test {
namespace {

constexpr uint32_t kSizes[] = {1, 3, 8, 9, 64, 65, 4096, 231071};

// The sampler's tree of a table that is not used otherwise, and the same leaves in a plain array.
class Tree {
 public:
  explicit Tree(uint32_t size)
      : world_(arena_of({open_table("a", size, kPrioritized)}, 1, 1)),
        tree(world_.arena, world_.table().roles[kSampler].sum),
        leaves(size, 0.0) {}

  void set(uint32_t slot, double weight) {
    Hold hold(world_.arena);
    CHECK_EQ(hold.begin(kNow), Status::kOk);
    tree.set(hold, slot, weight);
    leaves[slot] = weight;
  }

  void fill(Random& random, double zeros) {
    for (uint32_t i = 0; i < leaves.size(); ++i) {
      const double weight =
          random.chance(zeros) ? 0 : std::ldexp(random.uniform() + 0.5, static_cast<int>(random.below(8)));
      if (weight > 0) set(i, weight);
    }
    if (tree.total() == 0) set(static_cast<uint32_t>(random.below(leaves.size())), 1.0);
  }

  uint32_t draw(double u) const {
    uint32_t slot;
    tree.draw(&u, 1, &slot);
    return slot;
  }

 private:
  World world_;

 public:
  SumTree tree;
  std::vector<double> leaves;
};

long double exact_sum(const std::vector<double>& leaves) { return std::accumulate(leaves.begin(), leaves.end(), 0.0L); }

void check_nodes(const Tree& t) {
  t.tree.recompute([](const Word<double>& node, double want) { CHECK_EQ(node.get(), want); });
}

}  // namespace

TEST(the_total_is_the_sum_of_the_leaves_at_any_size) {
  Random random(seed());
  for (const uint32_t size : kSizes) {
    Tree t(size);
    CHECK_EQ(t.tree.total(), 0.0);
    t.fill(random, 0.2);
    const auto sum = static_cast<double>(exact_sum(t.leaves));
    CHECK_NEAR(t.tree.total(), sum, 1e-14 * sum);
    for (uint32_t i = 0; i < size; ++i) CHECK_EQ(t.tree.leaf(i), t.leaves[i]);
    check_nodes(t);
  }
}

TEST(the_total_of_whole_numbers_is_exact_and_comes_back_to_zero) {
  Random random(seed());
  for (const uint32_t size : {1u, 9u, 65u, 4096u}) {
    Tree t(size);
    for (int round = 0; round < 2000; ++round) {
      t.set(static_cast<uint32_t>(random.below(size)), static_cast<double>(random.below(1000)));
    }
    CHECK_EQ(t.tree.total(), static_cast<double>(exact_sum(t.leaves)));
    for (uint32_t i = 0; i < size; ++i) t.set(i, 0);
    CHECK_EQ(t.tree.total(), 0.0);
  }
}

// Updates of very different sizes leave no residue: nodes are summed again, never adjusted.
TEST(nothing_drifts_when_huge_and_tiny_weights_change_places) {
  Random random(seed());
  Tree t(65);
  for (int round = 0; round < 20'000; ++round) {
    t.set(static_cast<uint32_t>(random.below(65)), random.chance(0.5) ? 1e290 * random.uniform() : 1e-290);
  }
  for (uint32_t i = 0; i < 65; ++i) t.set(i, 1e-290);
  CHECK_NEAR(t.tree.total() / (65 * 1e-290), 1.0, 1e-12);
  check_nodes(t);
}

TEST(draws_follow_the_weights) {
  Random random(seed());
  for (const uint32_t size : kSizes) {
    Tree t(size);
    t.fill(random, 0.3);
    const uint32_t num_bins = std::min(size, 64u), num_draws = 64'000;
    std::vector<double> want(num_bins, 0), have(num_bins, 0);
    for (uint32_t i = 0; i < size; ++i) want[uint64_t{i} * num_bins / size] += t.leaves[i] / t.tree.total() * num_draws;
    for (uint32_t n = 0; n < num_draws; n += kGroup) {
      double u[kGroup];
      uint32_t slots[kGroup];
      for (double& x : u) x = random.uniform();
      t.tree.draw(u, kGroup, slots);
      for (const uint32_t slot : slots) {
        CHECK(t.leaves[slot] > 0);
        ++have[uint64_t{slot} * num_bins / size];
      }
    }
    double statistic = 0, degrees = -1;
    for (uint32_t b = 0; b < num_bins; ++b) {
      if (want[b] == 0) continue;
      statistic += (have[b] - want[b]) * (have[b] - want[b]) / want[b];
      ++degrees;
    }
    if (degrees > 0) CHECK(chi_square_tail(statistic, degrees) > 1e-9);
  }
}

TEST(a_draw_is_the_leaf_whose_share_the_number_falls_into) {
  Tree t(9);
  const double weights[] = {1, 0, 2, 0, 0, 1, 0, 0, 4};
  for (uint32_t i = 0; i < 9; ++i) t.set(i, weights[i]);
  CHECK_EQ(t.draw(0.0), 0u);
  CHECK_EQ(t.draw(0.124), 0u);
  CHECK_EQ(t.draw(0.125), 2u);
  CHECK_EQ(t.draw(0.374), 2u);
  CHECK_EQ(t.draw(0.375), 5u);
  CHECK_EQ(t.draw(0.5), 8u);
}

TEST(a_weight_of_zero_is_never_drawn_not_even_by_the_largest_number_below_one) {
  Random random(seed());
  const double last = std::nextafter(1.0, 0.0);
  for (const uint32_t size : kSizes) {
    for (int round = 0; round < 20; ++round) {
      Tree t(size);
      const auto only = static_cast<uint32_t>(random.below(size));
      t.set(only, random.uniform() + 1e-290);
      for (const double u : {0.0, 0.5, random.uniform(), last}) CHECK_EQ(t.draw(u), only);
      if (size > 4096) break;
    }
  }
  // Sums that round up leave a rest beyond the last leaf: it counts for the last leaf that is not zero.
  for (int round = 0; round < 200; ++round) {
    Tree t(65);
    for (uint32_t i = 0; i < 60; ++i) t.set(i, 0.1 * random.uniform());
    for (const double u : {last, 1 - 1e-15}) CHECK(t.leaves[t.draw(u)] > 0);
  }
}

TEST(draws_of_a_group_are_those_of_single_calls) {
  Random random(seed());
  for (const uint32_t size : {1u, 3u, 9u, 65u, 4096u}) {
    Tree t(size);
    t.fill(random, 0.3);
    double u[kGroup];
    uint32_t slots[kGroup];
    for (double& x : u) x = random.uniform();
    for (uint32_t n = 1; n <= kGroup; ++n) {
      t.tree.draw(u, n, slots);
      for (uint32_t i = 0; i < n; ++i) CHECK_EQ(slots[i], t.draw(u[i]));
    }
  }
}

}  // namespace shmreplay::test
