#include "trees/reweigh.h"

#include "base/leaf_weights.h"
#include "trees/sum_tree.h"

namespace shmreplay {
namespace {}

void reweigh_slice(Hold& hold, const TableFacts& t) {
  Arena& a = hold.arena();
  TableRecord& r = *t.record;
  const uint32_t left = r.reweigh_left.get();
  if (left == 0) return;
  if (left > t.capacity) corrupt("a change of exponent has more slots to do than there are");
  SumTree tree(a, t.roles[kSampler].sum);
  const double exponent = r.exponents[kSampler].get();
  const uint32_t from = (left - 1) / kReweighSlice * kReweighSlice;
  uint32_t lines[kReweighSlice / 8], num_lines = 0;
  for (uint32_t slot = from; slot < left; ++slot) {
    if (slot % 8 == 0) lines[num_lines++] = slot / 8;
    const double priority = a.priority(static_cast<uint32_t>(t.item_base + slot)).get();
    tree.set_leaf(hold, slot, leaf_weight(priority, exponent));
  }
  tree.climb(hold, lines, num_lines);
  hold.set(r.reweigh_left, from);
}

}  // namespace shmreplay
