// Rows of a packed column, as bytes: compressed each by itself, or as what is other than in the row before.
//
// The stored bytes of a row of n are one of
//   n bytes                     the row itself, where nothing is shorter
//   an LZ4 block                of it; such a block begins with a literal, so its first byte is 16 at least
//   0, then pieces              of it; all else is as in the row before it in its chunk, which it leans on
// A piece is how many bytes are as before, how many come, and these; the two numbers in groups of 7 bits, the lowest
// first, where a set eighth bit says that another follows. Rows of a chunk come and go together, so one can lean on
// another; at least every kKeyEvery-th leans on none, so that no row is far from one. How often that is, is the
// writer's business: a reader follows what is there.
#pragma once

#include "base/lz4_block.h"

namespace shmreplay {

inline constexpr uint32_t kKeyEvery = 8;
inline constexpr uint32_t kMostLeaning = 64;  // rows that lean on each other, as far as a reader follows

class RowEncoder {
 public:
  // Appends the bytes of a row to `to`: at most row_bytes, which are fewer than 2^31. `before`: the row that it may
  // lean on; nullptr: none. Whether it leans. Throws std::bad_alloc; what is behind the end of `to` then is anything.
  bool encode(const char* row, const char* before, size_t row_bytes, std::vector<char>& to);

 private:
  Lz4Compressor lz4_;
};

inline bool leans(const char* stored, size_t size, size_t row_bytes) noexcept {
  return size > 0 && size < row_bytes && stored[0] == 0;
}

// Makes the row of the stored bytes; where they lean, of the row before, which must be there. false: they are no row's;
// what is there then is anything.
bool decode_row(const char* stored, size_t size, char* row, size_t row_bytes) noexcept;

}  // namespace shmreplay
