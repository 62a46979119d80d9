// From chunks to batches: copies the rows that picks name into given buffers, without the lock, under a lease.
#pragma once

#include <mutex>
#include <vector>

#include "chunks/packed_reader.h"
#include "items/patterns.h"
#include "read/value_gather.h"

namespace shmreplay {

// A run of steps within one chunk.
struct Run { uint32_t chunk, row, rows; };

// One drawn item, copied out of the index inside the hold.
struct Pick {
  int64_t key;
  double priority, probability;
  uint64_t episode, table_size, insert_no;
  int64_t step, age;
  Padding padding;
  uint32_t times_sampled, pattern, num_steps;
  uint32_t first_run, num_runs;
};

// Finds where real step `s` of an item lies. An item has few runs, and its rows are mostly asked for in order.
struct RunCursor {
  const Run* runs;
  uint32_t num_runs, at = 0;
  uint64_t begin = 0;  // first step of runs[at]

  const Run& find(uint64_t s) {
    if (s < begin) at = 0, begin = 0;
    while (s >= begin + runs[at].rows) begin += runs[at++].rows;
    return runs[at];
  }
};

// Where one output of a batch goes: [item, rows, row_bytes], or [rows, item, row_bytes] if `time_major`. A squeezed
// output has `rows` = 1. The mask is laid out in the same way.
struct OutputBuffer {
  uint32_t output;  // its number in the items' structure; a batch may show only some outputs
  uint32_t column;
  uint32_t rows;
  uint32_t row_bytes;
  bool squeezed;
  char* data;
  // True where a row is real. The first item that lacks a row makes it; empty: all rows are real so far.
  std::vector<uint8_t>* mask;
  int64_t num_items;  // in the whole batch
  int32_t* lengths;   // real rows of each item
  bool time_major = false;
  uint32_t flags = 0;  // the column's
  // For a heap column: rows are the sizes of its values (int64, -1 for none), whose bytes are appended here, item by
  // item.
  ByteBuffer* bytes = nullptr;
  // For a packed column instead: the reader that unpacks its rows.
  PackedReader* packed = nullptr;
  bool past_caches = false;          // the array is larger than the caches: see row_copy.h
  std::mutex* mask_lock = nullptr;   // for making the mask when threads gather together
  const uint32_t* places = nullptr;  // where item i goes in the batch; nullptr: to place i

  size_t place_of(int64_t item) const noexcept { return places == nullptr ? static_cast<size_t>(item) : places[item]; }
  // Place of row j of an item, counted in rows.
  size_t place(int64_t item, uint32_t j) const noexcept {
    const size_t i = place_of(item);
    return time_major ? size_t{j} * static_cast<size_t>(num_items) + i : i * rows + j;
  }
  char* row(int64_t item, uint32_t j) const noexcept { return data + place(item, j) * row_bytes; }
};

// What one row of an output shows: a step of its item, or 0 if there is none (step -1). `is_real`: the row's entry in
// the mask; it is false also where padding before the span repeats the first step.
struct ShownStep {
  int64_t step;
  bool is_real;
};

// `position`: in the item's padded span, as Pattern::each_row() visits it. num_positions() is past the pattern's last
// row.
inline uint64_t num_positions(const Pick& pick) noexcept {
  return uint64_t{pick.padding.before} + pick.num_steps + pick.padding.after;
}
inline ShownStep shown_step(const PatternOutput& rule, const Pick& pick, int64_t position) noexcept {
  const int64_t step = position - pick.padding.before;
  if (step >= 0 && step < static_cast<int64_t>(pick.num_steps) - rule.trim_end) return {step, true};
  const bool repeats = (rule.flags & kRepeatStart) && step < 0 && rule.trim_end < pick.num_steps;
  return {repeats ? 0 : -1, false};
}

// Whether every pick is one run of the same number of steps without padding, all by one pattern. Most batches are.
bool are_alike(const Pick* picks, uint32_t n) noexcept;

// Copies picks[0 .. n) to items first .. first + n - 1 of every output. Every row is written, so no byte of an earlier
// batch shows: a row that an item lacks is zeroed, or before its span repeats its first step if its pattern says so; in
// a heap column it has no value. Where the bytes of a packed column are damaged, its reader notes that and zeros are
// shown. Nothing is copied for a per-item column: its bytes are in the items' values.
void gather(const Arena& arena, const PatternCache& patterns, const Pick* picks, uint32_t n, const Run* runs,
            int64_t first, std::vector<OutputBuffer>& outputs);

// How many bytes of values one item has in a heap column's output: what gather() will append for it.
uint64_t bytes_shown(const Arena& arena, const Pattern& pattern, const Pick& pick, const Run* runs,
                     const OutputBuffer& out);

// Appends the values that picks[0 .. n) brought: values[i] of picks[i].
void gather_values(const Arena& arena, const Pick* picks, const BlockRef* values, uint32_t n, const Run* runs,
                   int64_t first, ItemValues& to);

}  // namespace shmreplay
