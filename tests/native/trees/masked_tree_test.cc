#include "trees/masked_tree.h"

#include <algorithm>
#include <map>

#include "support/fixtures.h"

namespace shmreplay::test {
namespace {

// A table with given priorities, and its tree.
class Scene {
 public:
  explicit Scene(const std::vector<double>& priorities)
      : world_(arena_of({open_table("a", static_cast<uint32_t>(priorities.size()), kPrioritized)}, 8, 512)),
        actor_(world_.arena, world_.table()) {
    for (const double p : priorities) actor_.insert(p);
  }
  SumTree tree() const { return SumTree(world_.arena, world_.table().roles[kSampler].sum); }
  const TreeLayout& layout() const { return world_.table().roles[kSampler].sum; }

 private:
  World world_;
  Actor actor_;
};

}  // namespace

TEST(what_is_masked_is_not_drawn_and_the_rest_in_proportion) {
  Random random(seed());
  std::vector<double> priorities(300);
  for (double& p : priorities) p = random.chance(0.1) ? 0 : random.uniform();
  Scene s(priorities);
  MaskedTree masked;
  masked.reserve(s.layout(), 300);
  std::vector<uint32_t> slots;
  for (uint32_t slot = 0; slot < 300; ++slot) {
    if (random.chance(0.7)) slots.push_back(slot);
  }
  const auto half = static_cast<uint32_t>(slots.size() / 2);
  masked.build(s.tree(), slots.data(), half);
  for (uint32_t i = half; i < slots.size(); ++i) masked.mask(s.tree(), slots[i]);
  for (const uint32_t slot : slots) s.tree().leaf(slot) > 0 ? priorities[slot] = 0 : 0;
  double total = 0;
  for (const double p : priorities) total += p;
  CHECK_NEAR(masked.total(s.tree()), total, 1e-9);
  double before = 0;
  for (uint32_t slot = 0; slot < 300; ++slot) {
    if (priorities[slot] > 0) CHECK_EQ(masked.draw(s.tree(), (before + priorities[slot] / 2) / total), slot);
    before += priorities[slot];
  }
}

TEST(masking_one_by_one_is_building_at_once) {
  Random random(seed());
  std::vector<double> priorities(200);
  for (double& p : priorities) p = random.uniform();
  Scene s(priorities);
  MaskedTree one_by_one, at_once;
  one_by_one.reserve(s.layout(), 200);
  at_once.reserve(s.layout(), 200);
  one_by_one.build(s.tree(), nullptr, 0);
  std::vector<uint32_t> slots;
  for (uint32_t n = 0; n < 150; ++n) {
    auto slot = static_cast<uint32_t>(random.below(200));
    if (std::find(slots.begin(), slots.end(), slot) != slots.end()) continue;
    slots.push_back(slot);
    one_by_one.mask(s.tree(), slot);
    std::sort(slots.begin(), slots.end());
    at_once.build(s.tree(), slots.data(), static_cast<uint32_t>(slots.size()));
    CHECK_EQ(one_by_one.total(s.tree()), at_once.total(s.tree()));
    const double u = random.uniform();
    CHECK_EQ(one_by_one.draw(s.tree(), u), at_once.draw(s.tree(), u));
  }
}

TEST(the_small_ones_keep_their_shares_when_one_that_outweighs_them_is_masked) {
  std::vector<double> priorities(100, 1.0);
  priorities[50] = 1e200;
  Scene s(priorities);
  MaskedTree masked;
  masked.reserve(s.layout(), 1);
  const uint32_t heavy = 50;
  masked.build(s.tree(), &heavy, 1);
  CHECK_EQ(masked.total(s.tree()), 99.0);
  std::map<uint32_t, int> drawn;
  for (int i = 0; i < 99; ++i) ++drawn[masked.draw(s.tree(), (i + 0.5) / 99)];
  CHECK_EQ(drawn.size(), 99u);
  CHECK_EQ(drawn.count(50), 0u);
}

TEST(all_masked_leaves_nothing) {
  Scene s({1, 2, 3});
  MaskedTree masked;
  masked.reserve(s.layout(), 3);
  const uint32_t slots[] = {0, 1, 2};
  masked.build(s.tree(), slots, 3);
  CHECK_EQ(masked.total(s.tree()), 0.0);
}

}  // namespace shmreplay::test
