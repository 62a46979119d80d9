#include "checkpoint/chunk_bytes.h"

#include <algorithm>
#include <cstring>

#include "base/mutable_cell.h"

namespace shmreplay {

uint64_t ChunkBytes::size_of(const Arena& arena, uint32_t rows, uint64_t num_blocks) noexcept {
  uint64_t row_bytes = uint64_t{arena.geometry().presence_words} * 8;
  for (const ColumnRecord& c : arena.columns()) row_bytes += c.row_bytes;
  return row_bytes * rows + num_blocks * (sizeof(SavedBlock) + arena.geometry().block_bytes);
}

void ChunkBytes::begin(uint32_t chunk, uint32_t rows, BlockRef* refs, SavedBlock* blocks, uint32_t num_blocks) {
  chunk_ = chunk;
  rows_ = rows;
  refs_ = refs;
  blocks_ = blocks;
  num_blocks_ = num_blocks;
  cell_row_ = nullptr;
}

// Calls visit(part, offset within it, bytes) for what lies in one stretch, in order.
template <class Visit>
void ChunkBytes::each_part(uint64_t offset, uint64_t bytes, Visit visit) const {
  uint64_t begin = 0;
  const auto part = [&](char* memory, uint64_t size, const ColumnRecord* cells = nullptr) {
    if (bytes > 0 && offset < begin + size) {
      const uint64_t here = std::min(bytes, begin + size - offset);
      visit(Part{memory, size, cells}, offset - begin, here);
      offset += here;
      bytes -= here;
    }
    begin += size;
  };
  part(arena_.chunk_data(chunk_) + arena_.geometry().presence_offset,
       uint64_t{arena_.geometry().presence_words} * 8 * rows_);
  BlockRef* refs = refs_;
  for (uint32_t i = 0; i < arena_.columns().size(); ++i) {
    const ColumnRecord& c = arena_.columns()[i];
    const bool replaced = c.flags == kHeapColumn && refs != nullptr;
    part(replaced ? reinterpret_cast<char*>(refs) : arena_.row(chunk_, i, 0), uint64_t{c.row_bytes} * rows_,
         c.flags == kMutableColumn ? &c : nullptr);
    if (replaced) refs += rows_;
  }
  part(reinterpret_cast<char*>(blocks_), uint64_t{num_blocks_} * sizeof(SavedBlock));
  const uint64_t block_bytes = arena_.geometry().block_bytes;
  uint32_t i = block_bytes == 0 || offset <= begin ? 0 : static_cast<uint32_t>((offset - begin) / block_bytes);
  begin += i * block_bytes;
  for (; i < num_blocks_ && bytes > 0; ++i) part(arena_.block_data(blocks_[i].block), block_bytes);
}

// Calls visit(row, offset within the cell, bytes).
template <class Visit>
void ChunkBytes::each_cell(const Part& part, uint64_t offset, uint64_t bytes, Visit visit) {
  const uint64_t cell_bytes = part.cells->row_bytes;
  for (uint64_t i = offset / cell_bytes, within = offset % cell_bytes; bytes > 0; ++i, within = 0) {
    const uint64_t here = std::min(bytes, cell_bytes - within);
    visit(part.memory + i * part.cells->stride, within, here);
    bytes -= here;
  }
}

void ChunkBytes::read(uint64_t offset, uint64_t bytes, char* to) {
  each_part(offset, bytes, [&](const Part& part, uint64_t from, uint64_t n) {
    if (part.cells == nullptr) {
      std::memcpy(to, part.memory + from, n);
      to += n;
      return;
    }
    cell_.resize(part.cells->row_bytes);
    each_cell(part, from, n, [&](char* row, uint64_t within, uint64_t here) {
      if (row != cell_row_) MutableCell(row, part.cells->row_bytes).read(cell_.data());
      cell_row_ = row;
      std::memcpy(to, cell_.data() + within, here);
      to += here;
    });
  });
}

void ChunkBytes::write(uint64_t offset, uint64_t bytes, const char* from) {
  each_part(offset, bytes, [&](const Part& part, uint64_t at, uint64_t n) {
    if (part.cells == nullptr) {
      std::memcpy(part.memory + at, from, n);
      from += n;
      return;
    }
    each_cell(part, at, n, [&](char* row, uint64_t within, uint64_t here) {
      const MutableCell cell(row, part.cells->row_bytes);
      std::memcpy(cell.first_copy() + within, from, here);
      if (within + here == part.cells->row_bytes) cell.finish();
      from += here;
    });
  });
}

}  // namespace shmreplay
