#include <algorithm>

#include "arena/hold.h"
#include "arena/upcalls.h"
#include "trees/extremes.h"
#include "trees/sum_tree.h"

namespace shmreplay {
namespace {
constexpr uint32_t kMaxSettled = 128;
}  // namespace

void settle_trees(Hold& hold, uint32_t* items, uint32_t n) {
  Arena& arena = hold.arena();
  std::sort(items, items + n);
  for (uint32_t i = 0; i < n;) {
    const TableFacts& t = arena.table_of(items[i]);
    const auto base = static_cast<uint32_t>(t.item_base);
    uint32_t lines[kMaxSettled], num_lines = 0;  // lines of 8 leaves, ascending
    for (; i < n && num_lines < kMaxSettled && items[i] - base < t.capacity; ++i) {
      const uint32_t line = (items[i] - base) / 8;
      if (num_lines == 0 || lines[num_lines - 1] != line) lines[num_lines++] = line;
    }
    for (const RoleLayout& role : t.roles) {
      if (role.kind == kPrioritized) SumTree(arena, role.sum).climb(hold, lines, num_lines);
    }
    if (t.prioritized()) Extremes(arena, t.extremes).climb(hold, lines, num_lines);
  }
}

}  // namespace shmreplay
