// Items where they lie: which outputs of a drawn item are one strided array of the data segment already.
#pragma once

#include "read/gather.h"

namespace shmreplay {

// Rows of one output: row j is at first + j * stride_bytes.
struct RowsInPlace {
  char* first;
  int64_t stride_bytes;
  uint32_t rows;
};

// Whether all rows that output `o` of the item shows are real and lie at one stride, in whatever chunks. Rows behind
// each other in one chunk do; so does every other one, backwards, or one again and again. Those of columns that are not
// plain never do. The caller's lease names the chunks.
bool find_in_place(const Arena& arena, const Pattern& pattern, size_t o, const Pick& pick, const Run* runs,
                   RowsInPlace& found);

// How far each item lies behind the one before: so many chunks on, and so many rows on in its chunk.
struct ItemStride { int64_t chunks, rows; };

// Whether all picks, at least one, are alike and lie at one stride, forwards: then so do the rows of every output that
// lies in place in the first one, at that many bytes of its column.
bool find_stride(const Pick* picks, uint32_t n, const Run* runs, ItemStride& found) noexcept;
int64_t stride_bytes(const Arena& arena, uint32_t column, ItemStride stride) noexcept;

// Which row of the arena each of the first `rows` rows of output `o` is, counted over all chunks: chunk * chunk_steps +
// row; kNoRow where it shows 0. is_real[j]: as the mask of a batch has it. Of whatever column: its rows lie alike.
inline constexpr int64_t kNoRow = -1;
void number_rows(const Arena& arena, const Pattern& pattern, size_t o, const Pick& pick, const Run* runs, uint32_t rows,
                 int64_t* numbers, bool* is_real);

}  // namespace shmreplay
