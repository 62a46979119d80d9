// The six selectors, as a table's sampler or remover. Named and behaving as Reverb's.
//
//   Fifo, Lifo        ends of the table's list in insertion order
//   Uniform           a dense array of slots, swap-remove
//   Prioritized       a sum tree over the slots, and a dense array for when every priority is 0
//   MinHeap, MaxHeap  a 4-ary heap with positions; ties go to the least recently inserted or updated
//
// The item table calls insert() and erase() when the item's record is complete and `record->size` is still the number
// of items registered here.
#pragma once

#include "arena/hold.h"
#include "trees/sum_tree.h"

namespace shmreplay {

inline constexpr uint32_t kMostUpdates = 32;  // of priorities in one hold

class Selector {
 public:
  Selector(const Arena& arena, const TableFacts& table, Role role) noexcept
      : arena_(arena), table_(table), role_(role), layout_(table.roles[role]) {}

  void insert(Hold& hold, uint32_t g, double priority);
  void erase(Hold& hold, uint32_t g);
  // At most kMostUpdates items, whose records have their new priorities and touches already.
  void update(Hold& hold, const uint32_t* items, const double* priorities, uint32_t n);

  // One item; `u` in [0, 1). The table must not be empty, and the hold must be settled.
  uint32_t pick(const Hold& hold, double u) const;

  // n <= kGroup independent picks. The index must not change in between.
  void pick_group(const Hold& hold, const double* u, uint32_t n, uint32_t* items) const;

  // The probability with which pick() returns g now.
  double probability(const Hold& hold, uint32_t g) const;

  void prefetch(uint32_t g) const noexcept;

  uint32_t kind() const noexcept { return layout_.kind; }
  // Whether draws go by the sum tree: the selector is Prioritized and some priority is positive.
  bool by_weight() const noexcept { return layout_.kind == kPrioritized && tree().total() > 0; }
  // How many items pick() may answer.
  uint64_t num_drawable() const noexcept {
    return by_weight() ? table_.record->num_positive.get() : table_.record->size.get();
  }
  SumTree tree() const noexcept { return SumTree(arena_, layout_.sum); }
  uint32_t slot(uint32_t g) const {
    const uint32_t slot = g - static_cast<uint32_t>(table_.item_base);
    if (slot >= table_.capacity) corrupt("a table's list or heap names an item of another");
    return slot;
  }
  uint32_t position(uint32_t g) const;  // in the dense array or the heap
  uint32_t dense_item(uint64_t i) const { return static_cast<uint32_t>(table_.item_base) + dense(i).get(); }
  uint32_t heap_item(uint64_t i) const { return entry(i).item; }
  bool heap_before(uint64_t i, uint64_t j) const { return before(entry(i), entry(j)); }

 private:
  bool is_dense() const noexcept { return layout_.kind == kUniform || layout_.kind == kPrioritized; }
  bool is_heap() const noexcept { return layout_.kind == kMinHeap || layout_.kind == kMaxHeap; }
  void set_leaf(Hold& hold, uint32_t g, double weight);
  Word<uint32_t>& dense(uint64_t i) const;
  HeapNode& node(uint64_t i) const;
  uint32_t pick_dense(double u) const;

  void set_position(Hold& hold, uint32_t g, uint32_t position);

  struct Entry {
    double priority;
    uint64_t touch;
    uint32_t item;
  };
  Entry entry(uint64_t i) const;
  bool before(const Entry& a, const Entry& b) const noexcept;
  void put(Hold& hold, uint64_t i, const Entry& e);
  void sift_up(Hold& hold, uint64_t i, const Entry& e);
  void sift_down(Hold& hold, uint64_t i, uint64_t n, const Entry& e);
  void settle(Hold& hold, uint64_t i, uint64_t n, const Entry& e);

  const Arena& arena_;
  const TableFacts& table_;
  Role role_;
  const RoleLayout& layout_;
};

}  // namespace shmreplay
