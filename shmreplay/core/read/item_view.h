// Items read where they lie: which outputs of a drawn item are already one strided array of the data segment.
#pragma once

#include "read/gather.h"

namespace shmreplay {

// Rows of one output: row j is at first + j * stride_bytes.
struct RowsInPlace {
  char* first;
  int64_t stride_bytes;
  uint32_t rows;
};

// Whether all rows that output `o` of the item shows are real and lie at one stride, in whichever chunks. That is so
// for consecutive rows of one chunk, for every second row, for rows in reverse and for one row repeated. It is never so
// for columns that are not plain. The caller's lease names the chunks.
bool find_in_place(const Arena& arena, const Pattern& pattern, size_t o, const Pick& pick, const Run* runs,
                   RowsInPlace& found);

// How far each item lies after the one before it: in chunks, and in rows of a chunk.
struct ItemStride { int64_t chunks, rows; };

// Whether all picks (at least one) are alike and lie at one stride, forwards. Then each output that lies in place in
// the first pick does so in all, at stride_bytes() of its column from one pick to the next.
bool find_stride(const Pick* picks, uint32_t n, const Run* runs, ItemStride& found) noexcept;
int64_t stride_bytes(const Arena& arena, uint32_t column, ItemStride stride) noexcept;

// For each of the first `rows` rows of output `o`: its number among all rows of the arena (chunk * chunk_steps + row),
// or kNoRow where 0 is shown. is_real[j]: row j's entry in a batch's mask. Works for all columns: their rows are
// numbered alike.
inline constexpr int64_t kNoRow = -1;
void number_rows(const Arena& arena, const Pattern& pattern, size_t o, const Pick& pick, const Run* runs, uint32_t rows,
                 int64_t* numbers, bool* is_real);

}  // namespace shmreplay
