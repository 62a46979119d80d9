// The part of a stream writer that is about columns that are not plain: their cells, and blocks for their values.
#include "base/row_copy.h"
#include "chunks/packed_reader.h"
#include "write/stream_writer.h"

namespace shmreplay {

void StreamWriter::write_rows(uint32_t column, const char* from, uint32_t n) {
  const ColumnRecord& c = arena_.columns()[column];
  if (c.flags == 0) {
    copy_row(cell(column), from, size_t{n} * c.row_bytes, arena_.exceeds_caches());
    return;
  }
  for (uint32_t i = 0; i < n; ++i)
    std::memcpy(mutable_cell(column, row_ + i).first_copy(), from + size_t{i} * c.row_bytes, c.row_bytes);
}

Status StreamWriter::secure_blocks(uint64_t n, const Wait& wait) {
  if (n == 0) return Status::kOk;
  blocking_table_ = kNone;  // as for a chunk
  return row_values_.secure(stream_, n, wait);
}

void StreamWriter::write_value(uint32_t column, const char* bytes, uint32_t num_bytes, uint32_t ahead) {
  put_value(column, row_ + ahead, row_values_.write(row_ + ahead, column, bytes, num_bytes));
}

void StreamWriter::write_no_value(uint32_t column, uint32_t ahead) { put_value(column, row_ + ahead, kNoValue); }

void StreamWriter::begin_packing() noexcept {
  for (const Packed& p : packed_) packer(p.column).forget();
  packed_.clear();
  packed_bytes_.clear();
  packed_blocks_ = 0;
}

void StreamWriter::pack(uint32_t column, uint32_t ahead) {
  packed_.reserve(packed_.size() + 1);  // what the packer has taken is noted whatever happens
  const size_t begin = packed_bytes_.size();
  packer(column).pack(row_ + ahead, packed_bytes_);
  const size_t num_bytes = packed_bytes_.size() - begin;
  packed_.push_back({column, row_ + ahead, begin, num_bytes});
  packed_blocks_ += blocks_of(arena_, num_bytes);
}

void StreamWriter::pack(uint32_t column, const char* row, uint32_t ahead) {
  RowPacker& p = packer(column);
  if (p.row_bytes() > 0) std::memcpy(p.staged(), row, p.row_bytes());
  pack(column, ahead);
}

void StreamWriter::keep_packed(uint32_t num_rows) noexcept {
  while (!packed_.empty() && packed_.back().row >= row_ + num_rows) {
    packer(packed_.back().column).forget();
    packed_blocks_ -= blocks_of(arena_, packed_.back().num_bytes);
    packed_bytes_.resize(packed_.back().begin);
    packed_.pop_back();
  }
}

void StreamWriter::write_packed() {
  for (const Packed& p : packed_) {
    write_value(p.column, packed_bytes_.data() + p.begin, static_cast<uint32_t>(p.num_bytes), p.row - row_);
  }
  packed_.clear();
  packed_bytes_.clear();
  packed_blocks_ = 0;
}

void StreamWriter::put_value(uint32_t column, uint32_t row, BlockRef ref) {
  std::memcpy(arena_.row(chunk_, column, row), &ref, sizeof ref);
}

void StreamWriter::give_up_rows() noexcept {
  row_values_.take_back([this](uint32_t row, uint32_t column) {
    const bool goes = row >= row_ && column != kNone;
    if (goes) forget_packed(column);
    return goes;
  });
}

// The blocks of an item's values are those of the chunk of its first step: often, but not always, the one being
// written.
Status StreamWriter::bring_values(uint64_t first, const char* bytes, uint64_t num_bytes, const Wait& wait,
                                  BlockRef& ref) {
  if (!fits_heap(arena_, num_bytes)) return Status::kValueTooLarge;
  const uint32_t chunk = place_of(first).chunk;
  ValueWriter& values = chunk == chunk_ ? row_values_ : item_values_;
  blocking_table_ = kNone;  // as for a chunk
  values.use_chunk(chunk);
  if (const Status s = values.secure(stream_, blocks_of(arena_, num_bytes), wait); s != Status::kOk) return s;
  ref = values.write(row_, kNone, bytes, static_cast<uint32_t>(num_bytes));
  brought_to_ = &values;
  return Status::kOk;
}

void StreamWriter::end_values(bool went_in) noexcept {
  if (brought_to_ != nullptr && !went_in) brought_to_->take_back_last();
  brought_to_ = nullptr;
  item_values_.keep_before(kNone);
}

BlockRef StreamWriter::value(uint64_t step, uint32_t column) const {
  const Place at = place_of(step);
  return value_of_row(arena_, at.chunk, column, at.row);
}

void StreamWriter::read_value(uint64_t step, BlockRef ref, char* to) const {
  shmreplay::read_value(arena_, place_of(step).chunk, ref, to);
}

void StreamWriter::read_mutable(uint64_t step, uint32_t column, char* to) const {
  const Place at = place_of(step);
  MutableCell(arena_.row(at.chunk, column, at.row), arena_.columns()[column].row_bytes).read(to);
}

bool StreamWriter::read_packed(uint64_t step, uint32_t column, char* to) const {
  const Place at = place_of(step);
  PackedReader reader(arena_.columns()[column].packed_bytes);
  reader.read(arena_, at.chunk, column, at.row, to);
  return !reader.damage().is_there;
}

MutableCell StreamWriter::mutable_cell(uint32_t column, uint32_t row) const {
  return MutableCell(arena_.row(chunk_, column, row), arena_.columns()[column].row_bytes);
}

}  // namespace shmreplay
