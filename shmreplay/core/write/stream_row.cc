#include "write/stream_row.h"

#include <bit>
#include <cstring>

#include "base/row_copy.h"

namespace shmreplay {
namespace {

constexpr uint64_t kPrefetchedBytes = 512;  // of a cell; the processor prefetches the rest of a longer copy by itself

}  // namespace

StreamRow::StreamRow(Arena& arena, const TableFacts& table)
    : arena_(arena), base_present_(arena.geometry().presence_words, 0), packed_(arena), values_(arena, table) {
  for (uint32_t c = 0; c < arena.geometry().num_columns; ++c) {
    if (arena.columns()[c].flags != kPerItemColumn) continue;
    base_present_[c / 64] |= uint64_t{1} << (c % 64);
    ++num_base_;
  }
  present_ = base_present_;
  num_present_ = num_base_;
}

void StreamRow::mark(uint32_t column) noexcept {
  is_open_ = true;
  if (has(column)) return;
  present_[column / 64] |= uint64_t{1} << (column % 64);
  ++num_present_;
}

void StreamRow::mark_all() noexcept {
  is_open_ = true;
  num_present_ = arena_.geometry().num_columns;
  for (uint32_t w = 0; w < present_.size(); ++w)
    present_[w] = ~uint64_t{0} >> (64 - std::min(num_present_ - 64 * w, 64u));
}

void StreamRow::restore(const std::vector<uint64_t>& present) noexcept {
  num_present_ = 0;
  for (size_t w = 0; w < present_.size(); ++w) {
    present_[w] = present[w] | base_present_[w];
    num_present_ += static_cast<uint32_t>(std::popcount(present_[w]));
  }
  is_open_ = num_present_ > num_base_;
  take_back_values([this](uint32_t row, uint32_t column) { return row == row_ && !has(column); });
}

void StreamRow::write_rows(uint32_t column, const char* from, uint32_t n) {
  const ColumnRecord& c = arena_.columns()[column];
  if (c.flags == 0) {
    copy_row(cell(column), from, size_t{n} * c.row_bytes, arena_.exceeds_caches());
    return;
  }
  for (uint32_t i = 0; i < n; ++i)
    std::memcpy(mutable_cell(column, row_ + i).first_copy(), from + size_t{i} * c.row_bytes, c.row_bytes);
}

void StreamRow::prefetch() const {
  if (rows_left() == 0) return;
  for (uint32_t c = 0; c < arena_.columns().size(); ++c) {
    const char* at = cell_ahead(c, 0);
    const uint64_t bytes = std::min<uint64_t>(arena_.columns()[c].row_bytes, kPrefetchedBytes);
    for (uint64_t i = 0; i < bytes; i += 64) __builtin_prefetch(at + i, 1);
  }
}

void StreamRow::write_value(uint32_t column, const char* bytes, uint32_t num_bytes, uint32_t ahead) {
  put_value(column, row_ + ahead, values_.write(row_ + ahead, column, bytes, num_bytes));
}

void StreamRow::write_no_value(uint32_t column, uint32_t ahead) { put_value(column, row_ + ahead, kNoValue); }

void StreamRow::put_value(uint32_t column, uint32_t row, BlockRef ref) {
  std::memcpy(arena_.row(chunk_, column, row), &ref, sizeof ref);
}

// Takes back the values written last, while goes(row, column) says so. Stops at a value that an item brought.
template <class Goes>
void StreamRow::take_back_values(Goes goes) noexcept {
  values_.take_back([&](uint32_t row, uint32_t column) {
    if (column == kNone || !goes(row, column)) return false;
    packed_.forget(column);
    return true;
  });
}

void StreamRow::give_up_values() noexcept {
  take_back_values([this](uint32_t row, uint32_t) { return row >= row_; });
}

void StreamRow::write_packed() {
  packed_.write_all([this](uint32_t column, uint32_t row, const char* bytes, uint32_t num_bytes) {
    write_value(column, bytes, num_bytes, row - row_);
  });
}

void StreamRow::begin() {
  for (const uint32_t c : arena_.mutable_columns()) mutable_cell(c, row_).begin();
  std::copy(base_present_.begin(), base_present_.end(), present_.begin());
  num_present_ = num_base_;
}

void StreamRow::publish(uint32_t n) {
  for (uint32_t i = 0; i < n; ++i) {
    for (uint32_t w = 0; w < present_.size(); ++w) {
      // Relaxed: a reader finds an item of this row under the lock, after the hold that put the item in.
      arena_.presence(chunk_, row_ + i, w).store(present_[w], std::memory_order_relaxed);
    }
  }
  for (const uint32_t c : arena_.mutable_columns()) {
    for (uint32_t i = 0; has(c) && i < n; ++i) mutable_cell(c, row_ + i).finish();
  }
}

void StreamRow::use_up(uint32_t n) noexcept {
  is_open_ = false;
  row_ += n;
  values_.keep_before(row_);
}

void StreamRow::use_chunk(uint32_t chunk, uint32_t first_row) {
  chunk_ = chunk;
  row_ = first_row;
  end_ = arena_.geometry().chunk_steps;
  if (arena_.geometry().num_blocks > 0) values_.use_chunk(chunk);
  packed_.forget_all();
}

void StreamRow::leave_chunk() noexcept {
  chunk_ = kNone;
  is_open_ = false;
}

MutableCell StreamRow::mutable_cell(uint32_t column, uint32_t row) const {
  return MutableCell(arena_.row(chunk_, column, row), arena_.columns()[column].row_bytes);
}

}  // namespace shmreplay
