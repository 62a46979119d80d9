#include "trees/selectors.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/leaf_weights.h"
#include "support/fixtures.h"

namespace shmreplay::test {
namespace {

// One role of a table, written as simply as possible and without regard for speed.
class Naive {
 public:
  Naive(uint32_t kind, double exponent) : kind_(kind), exponent_(exponent) {}

  void insert(uint32_t g, double priority) {
    order_.push_back(g);
    dense_.push_back(g);
    items_[g] = {priority, ++clock_};
  }
  void update(uint32_t g, double priority) { items_[g] = {priority, ++clock_}; }
  // A new item takes the slot of the removed one, and so its place in the dense array too.
  void replace(uint32_t g, double priority) {
    order_.erase(std::find(order_.begin(), order_.end(), g));
    order_.push_back(g);
    update(g, priority);
  }
  void erase(uint32_t g) {
    order_.erase(std::find(order_.begin(), order_.end(), g));
    *std::find(dense_.begin(), dense_.end(), g) = dense_.back();
    dense_.pop_back();
    items_.erase(g);
  }
  const std::vector<uint32_t>& live() const { return order_; }

  double probability(uint32_t g) const {
    if (kind_ == kUniform) return 1.0 / static_cast<double>(items_.size());
    if (kind_ != kPrioritized) return 1;
    return total() > 0 ? weight(g) / total() : 1.0 / static_cast<double>(items_.size());
  }

  // Whether `have` is what pick(u) should answer; for a Prioritized one, up to the rounding of its sums.
  bool picks(double u, uint32_t have) const {
    switch (kind_) {
      case kFifo: return have == order_.front();
      case kLifo: return have == order_.back();
      case kMinHeap: return have == first([](double a, double b) { return a < b; });
      case kMaxHeap: return have == first([](double a, double b) { return a > b; });
      case kPrioritized:
        if (total() > 0) return falls_into(u * total(), have);
        [[fallthrough]];
      default:
        return have ==
               dense_[std::min<size_t>(static_cast<size_t>(u * static_cast<double>(dense_.size())), dense_.size() - 1)];
    }
  }

 private:
  struct Item {
    double priority;
    uint64_t touch;
  };
  double weight(uint32_t g) const { return leaf_weight(items_.at(g).priority, exponent_); }
  double total() const {
    double sum = 0;
    for (const auto& [g, item] : items_) sum += weight(g);
    return sum;
  }
  bool falls_into(double mass, uint32_t have) const {
    double before = 0;
    for (const auto& [g, item] : items_) {  // in the order of their slots, as the leaves are
      if (g == have) break;
      before += weight(g);
    }
    const double slack = 1e-12 * total();
    return weight(have) > 0 && mass >= before - slack && mass <= before + weight(have) + slack;
  }
  template <class Before>
  uint32_t first(Before before) const {
    uint32_t best = items_.begin()->first;
    for (const auto& [g, item] : items_) {
      const Item& b = items_.at(best);
      if (before(item.priority, b.priority) || (item.priority == b.priority && item.touch < b.touch)) best = g;
    }
    return best;
  }

  uint32_t kind_;
  double exponent_;
  uint64_t clock_ = 0;
  std::vector<uint32_t> order_, dense_;
  std::map<uint32_t, Item> items_;
};

// A table of that sampler and remover, with a naive model of each.
class Pair {
 public:
  Pair(uint32_t sampler, uint32_t remover, uint32_t max_size, double exponent)
      : world_(arena_of({spec(sampler, remover, max_size, exponent)}, 1, 2 * max_size + 8)),
        table_(world_.table()),
        actor_(world_.arena, table_),
        models_{Naive(sampler, exponent), Naive(remover, exponent)} {}

  void step(Random& random) {
    const double priorities[] = {0, 1, 1, 2, random.uniform(), 100 * random.uniform()};
    const double priority = priorities[random.below(6)];
    const uint64_t what = random.below(10);
    if (what < 5 || live().empty()) insert(priority);
    else if (what < 8) update(any(random), priority);
    else remove(any(random));
    check(random);
  }

  const std::vector<uint32_t>& live() const { return models_[kSampler].live(); }

 private:
  static TableSpec spec(uint32_t sampler, uint32_t remover, uint32_t max_size, double exponent) {
    TableSpec t = open_table("a", max_size, sampler, remover);
    t.sampler_exponent = t.remover_exponent = exponent;
    return t;
  }

  uint32_t any(Random& random) const { return live()[random.below(live().size())]; }

  void insert(double priority) {
    const std::vector<uint32_t> before = live();
    const int64_t key = actor_.insert(priority);
    const uint64_t slot = static_cast<uint64_t>(key) & ((uint64_t{1} << table_.slot_bits) - 1);
    const auto g = static_cast<uint32_t>(table_.item_base + slot);
    if (std::find(before.begin(), before.end(), g) != before.end()) {  // it took its victim's slot
      check_victim(g);
      for (Naive& m : models_) m.replace(g, priority);
      return;
    }
    for (Naive& m : models_) m.insert(g, priority);
    if (live().size() <= table_.max_size) return;
    const uint32_t victim = the_missing_one();
    check_victim(victim);
    for (Naive& m : models_) m.erase(victim);
  }

  uint32_t the_missing_one() const {
    for (const uint32_t g : live()) {
      if (world_.arena.item(g).seq.get() == 0) return g;
    }
    fail(__FILE__, __LINE__, "nothing was evicted");
  }

  // Checks what the remover picked, with a random number of its own, while that was still there.
  void check_victim(uint32_t victim) const {
    const uint32_t kind = table_.roles[kRemover].kind;
    const Naive& m = models_[kRemover];
    CHECK(kind == kUniform || kind == kPrioritized ? m.probability(victim) > 0 : m.picks(0, victim));
  }

  void update(uint32_t g, double priority) {
    Hold hold(world_.arena);
    CHECK_EQ(hold.begin(kNow), Status::kOk);
    update_priorities(hold, table_, &g, &priority, 1);
    for (Naive& m : models_) m.update(g, priority);
  }

  void remove(uint32_t g) {
    Hold hold(world_.arena);
    CHECK_EQ(hold.begin(kNow), Status::kOk);
    remove_item(hold, table_, g, Removal::kDeleted);
    for (Naive& m : models_) m.erase(g);
  }

  void check(Random& random) const {
    if (live().empty()) return;
    Hold hold(world_.arena);
    CHECK_EQ(hold.begin(kNow), Status::kOk);
    for (const Role role : {kSampler, kRemover}) {
      const Selector selector(world_.arena, table_, role);
      for (const double u : {0.0, random.uniform(), std::nextafter(1.0, 0.0)}) {
        CHECK(models_[role].picks(u, selector.pick(hold, u)));
      }
      const uint32_t g = any(random);
      CHECK_NEAR(selector.probability(hold, g), models_[role].probability(g), 1e-12);
    }
  }

  World world_;
  const TableFacts& table_;
  Actor actor_;
  Naive models_[2];
};

}  // namespace

TEST(every_sampler_and_remover_does_what_a_naive_one_does) {
  Random random(seed());
  for (uint32_t sampler = kFifo; sampler <= kMaxHeap; ++sampler) {
    for (uint32_t remover = kFifo; remover <= kMaxHeap; ++remover) {
      for (const uint32_t max_size : {1u, 3u, 8u, 33u}) {
        Pair pair(sampler, remover, max_size, max_size == 3 ? 0.6 : 1.0);
        for (int i = 0; i < 150; ++i) pair.step(random);
      }
    }
  }
}

TEST(ties_of_heaps_go_to_the_least_recently_inserted_or_updated) {
  for (const uint32_t kind : {kMinHeap, kMaxHeap}) {
    World w(arena_of({open_table("a", 100, kind)}));
    Actor actor(w.arena, w.table());
    std::vector<int64_t> keys;
    for (int i = 0; i < 30; ++i) keys.push_back(actor.insert(1.0));
    const double same = 1.0;
    uint32_t updated = 0;
    // An update that changes nothing still moves the item to the end of the line.
    CHECK_EQ(update_priorities(w.arena, w.table(), keys.data(), &same, 1, kNow, updated), Status::kOk);
    Learner learner(w.arena);
    for (int i = 1; i <= 30; ++i) {
      const Pick p = learner.draw(w.table());
      CHECK_EQ(p.key, keys[static_cast<size_t>(i % 30)]);
      CHECK_EQ(update_priorities(w.arena, w.table(), &p.key, &same, 1, kNow, updated), Status::kOk);
    }
  }
}

TEST(when_every_priority_is_zero_a_prioritized_sampler_is_uniform) {
  World w(arena_of({open_table("a", 10, kPrioritized)}));
  Actor actor(w.arena, w.table());
  for (int i = 0; i < 10; ++i) actor.insert(0.0);
  const Selector sampler(w.arena, w.table(), kSampler);
  Hold hold(w.arena);
  CHECK_EQ(hold.begin(kNow), Status::kOk);
  for (uint32_t i = 0; i < 10; ++i) {
    CHECK_EQ(sampler.pick(hold, (i + 0.5) / 10), i);
    CHECK_NEAR(sampler.probability(hold, i), 0.1, 1e-15);
  }
}

TEST(uniform_draws_are_fair_at_any_size) {
  Random random(seed());
  for (const uint32_t size : {1u, 3u, 64u, 1000u}) {
    World w(arena_of({open_table("a", size)}, 8, size));
    Actor actor(w.arena, w.table());
    for (uint32_t i = 0; i < size; ++i) actor.insert();
    const Selector sampler(w.arena, w.table(), kSampler);
    Hold hold(w.arena);
    CHECK_EQ(hold.begin(kNow), Status::kOk);
    const double each = 100;
    std::vector<double> have(size, 0);
    for (uint32_t n = 0; n < 100 * size; ++n) ++have[sampler.pick(hold, random.uniform())];
    double statistic = 0;
    for (const double h : have) statistic += (h - each) * (h - each) / each;
    if (size > 1) CHECK(chi_square_tail(statistic, size - 1) > 1e-9);
  }
}

TEST(a_damaged_position_is_corruption_and_not_a_stray_write) {
  World w(arena_of({open_table("a", 10, kUniform, kMinHeap)}));
  Actor actor(w.arena, w.table());
  for (int i = 0; i < 3; ++i) actor.insert();
  poke(w.arena.item(1).counted, {0, 4'000'000});
  const auto remove = [&] {
    Hold hold(w.arena);
    CHECK_EQ(hold.begin(kNow), Status::kOk);
    remove_item(hold, w.table(), 1, Removal::kDeleted);
  };
  CHECK_THROWS(CorruptIndex, "dense array's position", remove());
  CHECK(w.arena.failed());
  CHECK_EQ(live_items(w.table()), 3u);
}

}  // namespace shmreplay::test
