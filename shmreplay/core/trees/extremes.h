// The largest and the smallest positive priority of a table, exact at any moment.
//
// Two 8-ary trees over the same leaves, the priorities themselves: in the one a node is the largest of its 8 children,
// in the other the smallest positive one (0 where there is none). A change climbs only as far as it changes something,
// which is seldom more than a level.
#pragma once

#include "arena/hold.h"
#include "arena/layout.h"

namespace shmreplay {

class Extremes {
 public:
  Extremes(const Arena& arena, const TreeLayout (&layouts)[2]) noexcept : arena_(arena), layouts_(layouts) {}

  double largest() const noexcept;            // 0 when no priority is positive
  double smallest_positive() const noexcept;  // +inf when no priority is positive

  // Brings the nodes above these lines of 8 priorities up to date. `lines` must be ascending, without repeats.
  void climb(Hold& hold, const uint32_t* lines, uint32_t n);

  void prefetch(uint32_t slot) const noexcept;  // the nodes above the leaf of that slot

  // Calls visit(word, value) for each node above the leaves, with the value that it should have; for rebuild and check.
  template <class Visit>
  void recompute(Visit visit) const {
    for (int which = 0; which < 2; ++which) {
      uint64_t n = round_up(layouts_[which].num_leaves, 8);
      for (uint32_t k = 1; k < layouts_[which].num_levels; ++k) {
        const uint64_t parents = n / 8;
        for (uint64_t i = 0; i < parents; ++i) visit(level(which, k)[i], of_line(which, k - 1, i));
        n = round_up(parents, 8);
      }
    }
  }

 private:
  enum { kLargest, kSmallest };

  double of_line(int which, uint32_t k, uint64_t line) const noexcept;
  // Gives a node of level k its value. If that is a change, adds its parent to `parents`, which has n entries so far.
  // Returns how many entries it has then.
  uint32_t set_node(Hold& hold, int which, uint32_t k, uint32_t node, double value, uint32_t* parents, uint32_t n);
  Word<double>* level(int which, uint32_t k) const noexcept {
    return arena_.at<Word<double>>(layouts_[which].level[k]);
  }

  const Arena& arena_;
  const TreeLayout (&layouts_)[2];
};

}  // namespace shmreplay
