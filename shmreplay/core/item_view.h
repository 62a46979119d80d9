// Items where they lie: which outputs of a drawn item are one strided array of the data segment already.
#pragma once

#include "gather.h"

namespace shmreplay {

// Rows of one output: row j is at first + j * stride_bytes.
struct RowsInPlace {
  char* first;
  int64_t stride_bytes;
  uint32_t rows;
};

// Whether all rows that output `o` of the item shows are real and lie at one stride, in whatever chunks. Rows behind each
// other in one chunk do; so does every other one, backwards, or one again and again. Those of columns that are not plain never do. The
// caller's lease names the chunks.
bool find_in_place(const Arena& arena, const Pattern& pattern, size_t o, const Pick& pick, const Run* runs, RowsInPlace& found);

}  // namespace shmreplay
