#include "trees/extremes.h"

#include <algorithm>
#include <limits>

#include "support/fixtures.h"

namespace shmreplay::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

class Priorities {
 public:
  explicit Priorities(uint32_t size)
      : world_(arena_of({open_table("other", 5, kPrioritized), open_table("a", size, kPrioritized)}, 1, 1)),
        table_(world_.table(1)),
        extremes_(world_.arena, table_.extremes),
        plain_(size, 0.0) {}

  void set(uint32_t slot, double priority) {
    Hold hold(world_.arena);
    CHECK_EQ(hold.begin(kNow), Status::kOk);
    hold.set(world_.arena.priority(static_cast<uint32_t>(table_.item_base) + slot), priority);
    const uint32_t line = slot / 8;
    extremes_.climb(hold, &line, 1);
    plain_[slot] = priority;
  }

  void check() const {
    double largest = 0, smallest = kInfinity;
    for (const double p : plain_) {
      largest = std::max(largest, p);
      if (p > 0) smallest = std::min(smallest, p);
    }
    CHECK_EQ(extremes_.largest(), largest);
    CHECK_EQ(extremes_.smallest_positive(), smallest);
  }

  void check_nodes() const {
    extremes_.recompute([](const Word<double>& node, double want) { CHECK_EQ(node.get(), want); });
  }

 private:
  World world_;
  const TableFacts& table_;
  Extremes extremes_;
  std::vector<double> plain_;
};

}  // namespace

TEST(without_a_positive_priority_there_is_no_smallest_and_the_largest_is_zero) {
  Priorities p(9);
  p.check();
  p.set(3, 2.5);
  p.set(3, 0);
  p.check();
}

TEST(the_extremes_are_those_of_a_plain_array_after_every_change) {
  Random random(seed());
  for (const uint32_t size : {1u, 3u, 7u, 8u, 9u, 64u, 65u, 4096u}) {
    Priorities p(size);
    for (int round = 0; round < 500; ++round) {
      const double values[] = {0, 1, 1, 1e280, 5e-324, random.uniform(), 10 * random.uniform()};
      p.set(static_cast<uint32_t>(random.below(size)), values[random.below(7)]);
      p.check();
    }
    p.check_nodes();
  }
}

TEST(removing_the_largest_one_after_the_other_uncovers_the_next) {
  Priorities p(65);
  for (uint32_t i = 0; i < 65; ++i) p.set(i, 1 + (i * 37) % 65);
  p.check();
  for (uint32_t n = 65; n > 0; --n) {
    for (uint32_t i = 0; i < 65; ++i) {
      if (1 + (i * 37) % 65 == n) p.set(i, 0);
    }
    p.check();
  }
}

}  // namespace shmreplay::test
