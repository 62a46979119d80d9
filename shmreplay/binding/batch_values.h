// What a batch of one-step items puts into the block heap: values of heap columns, and the values that the items bring.
#pragma once

#include "batch_rows.h"
#include "heap_rows.h"

namespace shmreplay {

class BatchValues {
 public:
  // `rows` must outlive this. `items`: a list with one entry a row, or None. Empty if no column is in the heap.
  BatchValues(const TableContext& context, const BatchRows& rows, nb::handle items) : arena_(*context.arena) {
    if (!context.plan->has_heap()) return;
    const auto n = static_cast<size_t>(rows.size());
    std::vector<ValueList> values(context.plan->columns().size());
    for (uint32_t c = 0; c < values.size(); ++c) {
      if (!context.is_coded(c)) continue;
      values[c] = ValueList(arena_, reinterpret_cast<PyObject*>(rows.arrays()[c]), n, context.column_name(c));
    }
    rows_ = HeapRows(*context.plan, [&rows](uint32_t c, size_t i) { return rows.row(c, i); }, std::move(values));
    if (!items.is_none()) items_ = ValueList(arena_, items, n, context.values_name());
  }

  bool empty() const noexcept { return rows_.empty(); }

  // Secures blocks for rows from `from` on and sets `k` to how many rows: several, `k` at most, if their blocks are
  // there without waiting; else the first row alone, for whose blocks it waits.
  Status secure(StreamWriter& writer, size_t from, const Wait& wait, uint32_t& k) const {
    const uint64_t bound = std::min<uint64_t>(kBlocksAtOnce, arena_.geometry().num_blocks / 8);
    const uint64_t first = pack(writer, from, 0);
    uint64_t n = first;
    uint32_t fit = 1;
    for (; fit < k && n + writer.row().packed_blocks() < bound; ++fit) n += pack(writer, from, fit);
    k = fit;
    const Status s = fit > 1 ? writer.secure_blocks(n + writer.row().packed_blocks(), kTryOnly) : Status::kTimeout;
    if (s != Status::kTimeout && s != Status::kValueTooLarge) return s;
    k = 1;
    writer.row().keep_packed(1);
    return writer.secure_blocks(first + writer.row().packed_blocks(), wait);
  }

  // Writes rows from .. from + k - 1 to the writer's next k rows. `brought` gets what their items bring.
  void write(StreamWriter& writer, size_t from, uint32_t k, std::vector<BlockRef>& brought) const {
    brought.assign(k, kNoValue);
    rows_.write(writer, from, k, [&](uint32_t i) {
      if (items_.empty() || items_.at(from + i).size < 0) return;
      const ValueBytes& value = items_.at(from + i);
      brought[i] = writer.row().write_item_value(value.data, static_cast<uint32_t>(value.size), i);
    });
  }

 private:
  static constexpr uint64_t kBlocksAtOnce = 1024;
  // Packs row from + ahead. Returns how many blocks its other values and its item's values take.
  uint64_t pack(StreamWriter& writer, size_t from, uint32_t ahead) const {
    return rows_.pack(writer, from + ahead, ahead) + (items_.empty() ? 0 : items_.blocks(from + ahead));
  }

  const Arena& arena_;
  HeapRows rows_;
  ValueList items_;
};

}  // namespace shmreplay
