#include "checkpoint/checkpoint_records.h"

#include <algorithm>

namespace shmreplay {

SavedTable saved_table(const TableRecord& r) {
  SavedTable s;
  each_word(s, r, [](auto& field, const auto& word) { field = word.get(); });
  s.structure_pattern = r.structure_hash.get() == 0 ? kNone : r.structure_pattern.get();
  s.count_deletes = r.limiter.count_deletes.get() != 0;
  for (uint32_t o = 0; o < std::min(r.num_outputs.get(), kMaxOutputs); ++o) s.longest.push_back(r.longest[o].get());
  return s;
}

}  // namespace shmreplay
