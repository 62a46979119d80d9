// Rows of packed columns that are packed and not yet written to blocks.
//
// A writer packs rows outside the lock and before it has blocks, because only packed rows tell how many blocks they
// take. `row` is the row's number in its chunk.
#pragma once

#include <vector>

#include "arena/arena.h"
#include "write/row_packer.h"

namespace shmreplay {

class PackedRows {
 public:
  explicit PackedRows(const Arena& arena);

  bool takes(uint32_t column) const noexcept { return !packers_.empty() && packer_of_[column] != kNone; }
  // Where the bytes of the column's next row go before it is packed. This and pack() are for columns that takes()
  // names.
  char* staged(uint32_t column) noexcept { return packer(column).staged(); }
  uint64_t num_blocks() const noexcept { return num_blocks_; }  // that the packed rows take

  void pack(uint32_t column, uint32_t row);  // what is staged
  void pack(uint32_t column, const char* bytes, uint32_t row);
  void keep_before(uint32_t row) noexcept;  // drops that row and those after it
  void drop_all() noexcept { keep_before(0); }

  // Calls write(column, row, bytes, num_bytes) for each row in the order they were packed. None is left afterwards.
  template <class Write>
  void write_all(Write write) {
    for (const Packed& p : packed_) write(p.column, p.row, bytes_.data() + p.begin, static_cast<uint32_t>(p.num_bytes));
    packed_.clear();
    bytes_.clear();
    num_blocks_ = 0;
  }

  // The row packed last was dropped, or lies in another chunk than the next one: the next one is packed by itself.
  void forget(uint32_t column) noexcept {
    if (takes(column)) packer(column).forget();
  }
  void forget_all() noexcept {
    for (RowPacker& p : packers_) p.forget();
  }

 private:
  struct Packed {
    uint32_t column, row;
    size_t begin, num_bytes;
  };
  RowPacker& packer(uint32_t column) noexcept { return packers_[packer_of_[column]]; }

  const Arena& arena_;
  std::vector<RowPacker> packers_;
  std::vector<uint32_t> packer_of_;  // by column
  std::vector<Packed> packed_;
  std::vector<char> bytes_;  // the rows in packed_
  uint64_t num_blocks_ = 0;
};

}  // namespace shmreplay
