// What a batch of one-step items puts into the block heap: values of heap columns, and what the items bring.
#pragma once

#include "batch_rows.h"

namespace shmreplay {

class BatchValues {
 public:
  // `rows` outlive this; `items`: a list of one a row, or None. Empty where no column is in the heap.
  BatchValues(const TableContext& context, const BatchRows& rows, nb::handle items)
      : arena_(*context.arena), rows_(rows) {
    if (!context.plan->has_heap()) return;
    const auto n = static_cast<size_t>(rows.size());
    columns_.resize(context.plan->columns().size());
    for (uint32_t c = 0; c < columns_.size(); ++c) {
      if (context.plan->columns()[c].is_packed) packed_.push_back(c);
      if (!context.is_coded(c)) continue;
      columns_[c] = ValueList(arena_, reinterpret_cast<PyObject*>(rows.arrays()[c]), n, context.column_name(c));
    }
    if (!items.is_none()) items_ = ValueList(arena_, items, n, context.values_name());
  }

  bool empty() const noexcept { return columns_.empty(); }

  // Blocks for rows `from` on, `k` at most; as many of them as get theirs without waiting, or the first, for which it
  // waits.
  Status secure(StreamWriter& writer, size_t from, const Wait& wait, uint32_t& k) const {
    const uint64_t bound = std::min<uint64_t>(kBlocksAtOnce, arena_.geometry().num_blocks / 8);
    writer.begin_packing();
    pack(writer, from, 0);
    uint64_t n = blocks(from);
    uint32_t fit = 1;
    for (; fit < k && n + writer.packed_blocks() < bound; ++fit) {
      n += blocks(from + fit);
      pack(writer, from, fit);
    }
    k = fit;
    const Status s = fit > 1 ? writer.secure_blocks(n + writer.packed_blocks(), kTryOnly) : Status::kTimeout;
    if (s != Status::kTimeout && s != Status::kValueTooLarge) return s;
    k = 1;
    writer.keep_packed(1);
    return writer.secure_blocks(blocks(from) + writer.packed_blocks(), wait);
  }

  // Writes rows from .. from + k - 1 to the writer's next k rows; what their items bring.
  void write(StreamWriter& writer, size_t from, uint32_t k, std::vector<BlockRef>& brought) const {
    brought.assign(k, kNoValue);
    writer.write_packed();
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

  void pack(StreamWriter& writer, size_t from, uint32_t ahead) const {
    for (const uint32_t c : packed_) writer.pack(c, rows_.row(c, from + ahead), ahead);
  }

  const Arena& arena_;
  const BatchRows& rows_;
  std::vector<uint32_t> packed_;  // columns
  std::vector<ValueList> columns_;
  ValueList items_;
};

}  // namespace shmreplay
