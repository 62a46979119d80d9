#include "chunks/packed_reader.h"

#include <cstring>

namespace shmreplay {

void PackedReader::read(const Arena& arena, uint32_t chunk, uint32_t column, uint32_t row, char* to) {
  if (chunk != chunk_ || column != column_) kept_ = kNone;
  chunk_ = chunk;
  column_ = column;
  if (make(arena, chunk, column, row)) {
    kept_ = row;
    if (row_bytes_ > 0) std::memcpy(to, row_.data(), row_bytes_);
    return;
  }
  kept_ = kNone;
  if (row_bytes_ > 0) std::memset(to, 0, row_bytes_);
  if (!damage_.is_there) damage_ = {true, row, size_of_value(arena, value_of_row(arena, chunk, column, row))};
}

bool PackedReader::make(const Arena& arena, uint32_t chunk, uint32_t column, uint32_t row) {
  if (kept_ == row) return true;
  // Goes back to a row that does not lean, or to the row after the kept one.
  uint32_t first = row;
  for (;; --first) {
    const BlockRef ref = value_of_row(arena, chunk, column, first);
    const int64_t size = size_of_value(arena, ref);
    if (size < 0 || size > row_bytes_) return false;
    if (!leans(arena.block_data(ref.first_block), static_cast<size_t>(size), row_bytes_)) break;
    if (first == 0 || row - first == kMostLeaning) return false;
    if (first - 1 == kept_) break;
  }
  for (uint32_t r = first; r <= row; ++r) {
    if (!decode(arena, chunk, value_of_row(arena, chunk, column, r))) return false;
  }
  return true;
}

// A value that lies in one block is decoded where it lies.
bool PackedReader::decode(const Arena& arena, uint32_t chunk, BlockRef ref) {
  const int64_t size = size_of_value(arena, ref);
  if (size < 0 || size > row_bytes_) return false;
  const auto n = static_cast<size_t>(size);
  if (n == row_bytes_) {
    read_value(arena, chunk, ref, row_.data());
    return true;
  }
  const char* stored = arena.block_data(ref.first_block);
  if (n > arena.geometry().block_bytes) {
    read_value(arena, chunk, ref, stored_.data());
    stored = stored_.data();
  } else if (arena.block(ref.first_block).owner.get().chunk != chunk) {
    corrupt("a value leads to a block of another chunk");
  }
  return decode_row(stored, n, row_.data(), row_bytes_);
}

}  // namespace shmreplay
