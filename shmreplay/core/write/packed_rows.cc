#include "write/packed_rows.h"

#include <cstring>

#include "chunks/block_heap.h"

namespace shmreplay {

PackedRows::PackedRows(const Arena& arena) : arena_(arena), packer_of_(arena.geometry().num_columns, kNone) {
  for (uint32_t c = 0; c < arena.geometry().num_columns; ++c) {
    if (arena.columns()[c].packed_bytes == 0) continue;
    packer_of_[c] = static_cast<uint32_t>(packers_.size());
    packers_.emplace_back(arena.columns()[c].packed_bytes);
  }
}

void PackedRows::pack(uint32_t column, uint32_t row) {
  packed_.reserve(packed_.size() + 1);  // nothing may throw once the packer has taken the row
  const size_t begin = bytes_.size();
  packer(column).pack(row, bytes_);
  const size_t num_bytes = bytes_.size() - begin;
  packed_.push_back({column, row, begin, num_bytes});
  num_blocks_ += blocks_of(arena_, num_bytes);
}

void PackedRows::pack(uint32_t column, const char* bytes, uint32_t row) {
  RowPacker& p = packer(column);
  if (p.row_bytes() > 0) std::memcpy(p.staged(), bytes, p.row_bytes());
  pack(column, row);
}

void PackedRows::keep_before(uint32_t row) noexcept {
  while (!packed_.empty() && packed_.back().row >= row) {
    packer(packed_.back().column).forget();
    num_blocks_ -= blocks_of(arena_, packed_.back().num_bytes);
    bytes_.resize(packed_.back().begin);
    packed_.pop_back();
  }
}

}  // namespace shmreplay
