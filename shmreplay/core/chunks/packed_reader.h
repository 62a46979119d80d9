// Reads rows of a packed column, under a lease on their chunk or as the stream's own writer.
//
// The last row decoded is kept, because the next row of its chunk mostly leans on it. Decoding a row that leans on
// others begins at the last row before it that leans on none.
#pragma once

#include "base/row_codec.h"
#include "base/zeroed_bytes.h"
#include "chunks/block_heap.h"

namespace shmreplay {

class PackedReader {
 public:
  // Allocates all the memory that it ever needs. Throws std::bad_alloc.
  explicit PackedReader(uint32_t row_bytes) : row_bytes_(row_bytes), row_(row_bytes), stored_(row_bytes) {}

  // Copies a row out. If its bytes are damaged, the row is all zeros and damage() says so. Throws CorruptIndex as
  // read_value() does.
  void read(const Arena& arena, uint32_t chunk, uint32_t column, uint32_t row, char* to);

  // Forgets the kept row: the chunks may have been reused since.
  void forget() noexcept { kept_ = kNone; }

  // The first row that could not be decoded.
  struct Damage {
    bool is_there = false;
    uint32_t row = 0;
    int64_t num_bytes = 0;  // stored bytes; -1: no value is stored
  };
  const Damage& damage() const noexcept { return damage_; }

 private:
  bool make(const Arena& arena, uint32_t chunk, uint32_t column, uint32_t row);
  bool decode(const Arena& arena, uint32_t chunk, BlockRef ref);

  uint32_t row_bytes_;
  ZeroedBytes row_, stored_;
  uint32_t chunk_ = kNone, column_ = kNone, kept_ = kNone;  // which row is in row_; kNone: none
  Damage damage_;
};

}  // namespace shmreplay
