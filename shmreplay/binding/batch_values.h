// What a batch of one-step items puts into the block heap: values of heap columns, and what the items bring.
#pragma once

#include "table_context.h"

namespace shmreplay {

class BatchValues {
 public:
  // `arrays`: those of checked_arrays(), for n rows; `items`: a list of n, or None. Empty where no column is opaque.
  BatchValues(const TableContext& context, const std::vector<PyArrayObject*>& arrays, nb::handle items, size_t n) : arena_(*context.arena) {
    if (!context.plan->has_opaque()) return;
    columns_.resize(arrays.size());
    for (size_t c = 0; c < arrays.size(); ++c) {
      if (context.is_heap(c)) columns_[c] = ValueList(arena_, reinterpret_cast<PyObject*>(arrays[c]), n, context.column_name(c));
    }
    if (!items.is_none()) items_ = ValueList(arena_, items, n, context.values_name());
  }

  bool empty() const noexcept { return columns_.empty(); }

  // Blocks for rows `from` on, `k` at most; as many of them as get theirs without waiting, or the first, for which it waits.
  Status secure(StreamWriter& writer, size_t from, const Wait& wait, uint32_t& k) const {
    const uint64_t bound = std::min<uint64_t>(kBlocksAtOnce, arena_.geometry().num_blocks / 8);
    uint64_t n = blocks(from);
    uint32_t fit = 1;
    while (fit < k && n + blocks(from + fit) <= bound) n += blocks(from + fit++);
    k = fit;
    const Status s = fit > 1 ? writer.secure_blocks(n, kTryOnly) : Status::kTimeout;
    if (s != Status::kTimeout) return s;
    k = 1;
    return writer.secure_blocks(blocks(from), wait);
  }

  // Writes rows from .. from + k - 1 to the writer's next k rows; what their items bring.
  void write(StreamWriter& writer, size_t from, uint32_t k, std::vector<BlockRef>& brought) const {
    brought.assign(k, kNoValue);
    for (uint32_t i = 0; i < k; ++i) {
      for (uint32_t c = 0; c < columns_.size(); ++c) {
        if (!columns_[c].empty()) TableContext::write_value(writer, c, columns_[c].at(from + i), i);
      }
      if (items_.empty()) continue;
      const ValueBytes& value = items_.at(from + i);
      if (value.size >= 0) brought[i] = writer.write_item_value(value.data, static_cast<uint32_t>(value.size), i);
    }
  }

 private:
  static constexpr uint64_t kBlocksAtOnce = 1024;
  uint64_t blocks(size_t row) const { return blocks_of_row(columns_, row) + (items_.empty() ? 0 : items_.blocks(row)); }

  const Arena& arena_;
  std::vector<ValueList> columns_;
  ValueList items_;
};

}  // namespace shmreplay
