#include "trees/selectors.h"

#include <algorithm>

#include "base/leaf_weights.h"

namespace shmreplay {
namespace {
constexpr uint64_t kArity = 4;
}  // namespace

Word<uint32_t>& Selector::dense(uint64_t i) const {
  if (i >= table_.capacity) corrupt("a dense array's position is out of range");
  return arena_.at<Word<uint32_t>>(layout_.dense)[i];
}

HeapNode& Selector::node(uint64_t i) const {
  if (i >= table_.capacity) corrupt("a heap's position is out of range");
  return arena_.at<HeapNode>(layout_.heap)[i];
}

uint32_t Selector::position(uint32_t g) const {
  return role_ == kSampler ? arena_.item(g).counted.get().sampler_pos : arena_.links(g).tail.get().remover_pos;
}

void Selector::set_position(Hold& hold, uint32_t g, uint32_t position) {
  if (role_ == kSampler) {
    Word<Counted>& word = arena_.item(g).counted;
    hold.set(word, {word.get().times_sampled, position});
  } else {
    Word<Tail>& word = arena_.links(g).tail;
    hold.set(word, {position, word.get().episode_slot});
  }
}

void Selector::set_leaf(Hold& hold, uint32_t g, double weight) {
  if (role_ == kSampler) {
    const double before = tree().leaf(slot(g));
    if ((before > 0) != (weight > 0)) hold.add(table_.record->num_positive, weight > 0 ? 1 : uint64_t(-1));
  }
  tree().set_leaf(hold, slot(g), weight);
  // Besides the nodes of this tree, those of the trees of extremes: they follow the sampler's priorities.
  const uint32_t levels = layout_.sum.num_levels + (role_ == kSampler ? 2 * table_.extremes[0].num_levels : 0);
  hold.defer(g, levels);
}

void Selector::insert(Hold& hold, uint32_t g, double priority) {
  const uint64_t n = table_.record->size.get();
  if (is_dense()) {
    hold.set(dense(n), slot(g));
    set_position(hold, g, static_cast<uint32_t>(n));
  }
  if (layout_.kind == kPrioritized) set_leaf(hold, g, leaf_weight(priority, table_.record->exponents[role_].get()));
  if (is_heap()) sift_up(hold, n, {priority, arena_.links(g).touch.get(), g});
}

void Selector::erase(Hold& hold, uint32_t g) {
  const uint64_t last = table_.record->size.get() - 1;
  if (is_dense()) {
    const uint32_t at = position(g);
    const uint32_t moved = dense(last).get();
    if (moved >= table_.capacity) corrupt("a dense array names no slot");
    hold.set(dense(at), moved);
    set_position(hold, static_cast<uint32_t>(table_.item_base) + moved, at);
  }
  if (layout_.kind == kPrioritized) set_leaf(hold, g, 0);
  if (is_heap()) {
    const uint32_t at = position(g);
    if (at > last) corrupt("a heap's position is out of range");
    if (at < last) settle(hold, at, last, entry(last));
  }
}

void Selector::update(Hold& hold, const uint32_t* items, const double* priorities, uint32_t n) {
  if (layout_.kind == kPrioritized) {
    double weights[kMostUpdates];
    if (n > kMostUpdates) corrupt("a hold updates more items than it may");
    leaf_weights(priorities, n, table_.record->exponents[role_].get(), weights);
    for (uint32_t i = 0; i < n; ++i) set_leaf(hold, items[i], weights[i]);
  }
  if (!is_heap()) return;
  for (uint32_t i = 0; i < n; ++i) {
    const uint32_t g = items[i];
    settle(hold, position(g), table_.record->size.get(), {priorities[i], arena_.links(g).touch.get(), g});
  }
}

uint32_t Selector::pick_dense(double u) const {
  const uint64_t n = table_.record->size.get();
  const auto i = std::min(static_cast<uint64_t>(u * static_cast<double>(n)), n - 1);
  return dense_item(i);
}

uint32_t Selector::pick(const Hold& hold, double u) const {
  switch (layout_.kind) {
    case kFifo: return table_.record->order.get().head;
    case kLifo: return table_.record->order.get().tail;
    case kMinHeap:
    case kMaxHeap: return entry(0).item;
    default: {
      uint32_t g;
      pick_group(hold, &u, 1, &g);
      return g;
    }
  }
}

void Selector::pick_group(const Hold& hold, const double* u, uint32_t n, uint32_t* items) const {
  if (by_weight()) {
    tree().draw(u, n, items);
    for (uint32_t i = 0; i < n; ++i) items[i] += static_cast<uint32_t>(table_.item_base);
  } else if (is_dense()) {
    for (uint32_t i = 0; i < n; ++i) items[i] = pick_dense(u[i]);
  } else {
    std::fill_n(items, n, pick(hold, 0));
  }
}

double Selector::probability(const Hold&, uint32_t g) const {
  if (!is_dense()) return 1.0;
  if (layout_.kind == kPrioritized) {
    const double total = tree().total();
    if (total > 0) return tree().leaf(slot(g)) / total;
  }
  return 1.0 / static_cast<double>(table_.record->size.get());
}

void Selector::prefetch(uint32_t g) const noexcept {
  if (layout_.kind == kPrioritized) tree().prefetch(slot(g));
}

Selector::Entry Selector::entry(uint64_t i) const {
  const HeapNode& h = node(i);
  return {h.priority.get(), h.touch.get(), static_cast<uint32_t>(h.item.get())};
}

bool Selector::before(const Entry& a, const Entry& b) const noexcept {
  if (a.priority != b.priority) return (a.priority < b.priority) == (layout_.kind == kMinHeap);
  return a.touch < b.touch;
}

void Selector::put(Hold& hold, uint64_t i, const Entry& e) {
  HeapNode& h = node(i);
  hold.set(h.priority, e.priority);
  hold.set(h.touch, e.touch);
  hold.set(h.item, e.item);
  set_position(hold, e.item, static_cast<uint32_t>(i));
}

void Selector::sift_up(Hold& hold, uint64_t i, const Entry& e) {
  while (i > 0) {
    const uint64_t parent = (i - 1) / kArity;
    const Entry p = entry(parent);
    if (!before(e, p)) break;
    put(hold, i, p);
    i = parent;
  }
  put(hold, i, e);
}

void Selector::sift_down(Hold& hold, uint64_t i, uint64_t n, const Entry& e) {
  for (;;) {
    const uint64_t first = kArity * i + 1;
    if (first >= n) break;
    uint64_t best = first;
    Entry best_entry = entry(first);
    for (uint64_t c = first + 1; c < std::min(first + kArity, n); ++c) {
      const Entry candidate = entry(c);
      if (before(candidate, best_entry)) {
        best = c;
        best_entry = candidate;
      }
    }
    if (!before(best_entry, e)) break;
    put(hold, i, best_entry);
    i = best;
  }
  put(hold, i, e);
}

void Selector::settle(Hold& hold, uint64_t i, uint64_t n, const Entry& e) {
  if (i > 0 && before(e, entry((i - 1) / kArity))) {
    sift_up(hold, i, e);
  } else {
    sift_down(hold, i, n, e);
  }
}

}  // namespace shmreplay
