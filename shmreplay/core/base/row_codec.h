// Rows of a packed column as bytes: each row is compressed by itself, or stored as its differences from the row before.
//
// The stored bytes of a row of n bytes are one of
//
//   n bytes           the row itself, if nothing else is shorter
//   an LZ4 block      of the row; such a block begins with a literal, so its first byte is at least 16
//   0, then pieces    of the row; all other bytes are as in the row before it in its chunk: the row leans on that one
//
// A piece is how many bytes are as before, how many new ones follow, and these bytes. The two numbers are in groups of
// 7 bits, the lowest first; a set eighth bit says that another group follows.
//
// Rows of a chunk come and go together, so one can lean on another. At least every kKeyEvery-th row leans on none, so
// that no row is far from such a row. The writer decides how often that is; a reader follows what is there.
#pragma once

#include "base/lz4_block.h"

namespace shmreplay {

inline constexpr uint32_t kKeyEvery = 8;
inline constexpr uint32_t kMostLeaning = 64;  // how many rows that lean on each other a reader follows

class RowEncoder {
 public:
  // Appends the bytes of a row to `to`: at most row_bytes, which must be fewer than 2^31. `before`: the row that it may
  // lean on; nullptr: none. Returns whether it leans. Throws std::bad_alloc; then the bytes after the end of `to` have
  // no meaning.
  bool encode(const char* row, const char* before, size_t row_bytes, std::vector<char>& to);

 private:
  Lz4Compressor lz4_;
};

inline bool leans(const char* stored, size_t size, size_t row_bytes) noexcept {
  return size > 0 && size < row_bytes && stored[0] == 0;
}

// Decodes stored bytes to a row. If they lean on the row before, `row` must hold that one when it is called. false:
// they are not the bytes of a row, and what was decoded has no meaning.
bool decode_row(const char* stored, size_t size, char* row, size_t row_bytes) noexcept;

}  // namespace shmreplay
