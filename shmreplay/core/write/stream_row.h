// The row that a stream's writer writes next: where it lies, which columns it has, and how its bytes get there.
//
// A row is written in place, without the lock: nobody can see it until an item refers to it. It lies in the last chunk
// of the stream's window. A function with `ahead` is about the row that many rows after this one.
#pragma once

#include <algorithm>
#include <vector>

#include "base/mutable_cell.h"
#include "write/packed_rows.h"
#include "write/value_writer.h"

namespace shmreplay {

class StreamRow {
 public:
  StreamRow(Arena& arena, const TableFacts& table);

  Place place() const noexcept { return {chunk_, row_}; }                            // chunk kNone: it has none
  uint32_t rows_left() const noexcept { return chunk_ == kNone ? 0 : end_ - row_; }  // in the chunk, this one included
  bool is_open() const noexcept { return is_open_; }                                 // a cell of it is written

  // Columns that the row has. Per-item columns count as there: no row can lack them.
  bool has(uint32_t column) const noexcept { return present_[column / 64] >> (column % 64) & 1; }
  bool lacks_any() const noexcept { return num_present_ < arena_.geometry().num_columns; }
  const std::vector<uint64_t>& present() const noexcept { return present_; }
  void mark(uint32_t column) noexcept;  // this cell is written
  void mark_all() noexcept;             // all of them are
  // Sets the row's columns back to these; with none, the row is not open. Values of the other columns are taken back.
  // For a call that failed after it had written.
  void restore(const std::vector<uint64_t>& present) noexcept;

  // Where the bytes of a plain or mutable cell go. For a packed column: the bytes that will be packed.
  char* cell(uint32_t column) { return packs(column) ? packed_.staged(column) : cell_ahead(column, 0); }
  char* cell_ahead(uint32_t column, uint32_t ahead) const {  // not of a packed column
    char* row = arena_.row(chunk_, column, row_ + ahead);
    return arena_.columns()[column].flags == kMutableColumn ? MutableCell::first_copy(row) : row;
  }
  void write_rows(uint32_t column, const char* from, uint32_t n);  // n cells, from this row on
  void prefetch() const;                                           // for a row that is about to be written

  // Values of heap columns, and the value that a row's one-step item brings. Blocks for them must be secured first:
  // StreamSteps::secure_blocks().
  void write_value(uint32_t column, const char* bytes, uint32_t num_bytes, uint32_t ahead = 0);
  void write_no_value(uint32_t column, uint32_t ahead = 0);
  BlockRef write_item_value(const char* bytes, uint32_t num_bytes, uint32_t ahead = 0) {
    return values_.write(row_ + ahead, 0, bytes, num_bytes);
  }
  // Takes back the values of one-step rows that did not become items. Their blocks are used for the next values.
  void give_up_values() noexcept;
  ValueWriter& values() noexcept { return values_; }

  // How rows of packed columns are written:
  // 1. begin_packing() drops what was packed and not written.
  // 2. pack() packs rows in their order, from cell() or from `row`.
  // 3. The caller secures packed_blocks() blocks.
  // 4. write_packed() writes the packed rows.
  bool packs(uint32_t column) const noexcept { return packed_.takes(column); }
  void begin_packing() noexcept { packed_.drop_all(); }
  void pack(uint32_t column, uint32_t ahead = 0) { packed_.pack(column, row_ + ahead); }
  void pack(uint32_t column, const char* row, uint32_t ahead) { packed_.pack(column, row, row_ + ahead); }
  uint64_t packed_blocks() const noexcept { return packed_.num_blocks(); }
  void keep_packed(uint32_t num_rows) noexcept { packed_.keep_before(row_ + num_rows); }  // drops the rows after them
  void write_packed();

  // For StreamSteps and StreamItems. begin(): the row has no columns yet. publish(): makes this row and the n - 1 rows
  // after it, all with the columns of this one, readable for a process that gets an item of them. use_up(): goes on to
  // the row after n rows.
  void begin();
  void publish(uint32_t n = 1);
  void use_up(uint32_t n) noexcept;
  void use_chunk(uint32_t chunk, uint32_t first_row);
  void end_chunk() noexcept { end_ = row_; }  // the next row lies in another chunk
  void leave_chunk() noexcept;

 private:
  MutableCell mutable_cell(uint32_t column, uint32_t row) const;
  void put_value(uint32_t column, uint32_t row, BlockRef ref);
  template <class Goes>
  void take_back_values(Goes goes) noexcept;

  Arena& arena_;
  uint32_t chunk_ = kNone, row_ = 0;
  uint32_t end_ = 0;  // of the chunk's rows that are to be written
  bool is_open_ = false;
  std::vector<uint64_t> base_present_;  // columns that no row can lack
  uint32_t num_base_ = 0;
  std::vector<uint64_t> present_;
  uint32_t num_present_ = 0;
  PackedRows packed_;
  ValueWriter values_;
};

}  // namespace shmreplay
