#include "read/gather.h"

#include <algorithm>
#include <cstring>

#include "base/mutable_cell.h"
#include "base/row_copy.h"

namespace shmreplay {
namespace {

constexpr uint32_t kAhead = 8;  // items whose rows are fetched before they are copied

// Copies of a scalar's size are one move.
inline void copy_bytes(char* to, const char* from, size_t bytes, bool past_caches) {
  switch (bytes) {
    case 1: *to = *from; return;
    case 4: std::memcpy(to, from, 4); return;
    case 8: std::memcpy(to, from, 8); return;
    default: copy_row(to, from, bytes, past_caches);
  }
}

// Whether output o of the pattern shows all `steps` steps of a span as they lie. Then its rows are copied as one range.
bool is_whole(const Pattern& pattern, size_t o, uint32_t steps) {
  const PatternOutput& rule = pattern.outputs[o];
  if (rule.trim_end != 0 || rule.num_slices != 1) return false;
  const Slice& s = pattern.slices[rule.first_slice];
  if (s.step != 1 || s.begin != 0 || (s.anchors & kBeginAtEnd)) return false;
  return s.anchors & kEndAtEnd ? s.end == 0 : s.end == static_cast<int32_t>(steps);
}

class ItemGather {
 public:
  ItemGather(const Arena& arena, const Pattern& pattern, const Pick& pick, const Run* runs)
      : arena_(arena), pattern_(pattern), pick_(pick), cursor_{runs + pick.first_run, pick.num_runs} {}

  void run(OutputBuffer& out, int64_t item) {
    const PatternOutput& rule = pattern_.outputs[out.output];
    const size_t stride = (out.place(item, 1) - out.place(item, 0)) * out.row_bytes;
    char* to = out.row(item, 0);
    uint32_t j = 0, real = 0;
    const auto show = [&](int64_t position) {
      const ShownStep shown = shown_step(rule, pick_, position);
      if (shown.step >= 0) copy_step(out, static_cast<uint64_t>(shown.step), to);
      else std::memset(to, out.bytes != nullptr ? 0xff : 0, out.row_bytes);  // 0xff: a size of -1
      if (shown.is_real) ++real;
      else mark_missing(out, item, j);
      to += stride;
      ++j;
    };
    pattern_.each_row(out.output, num_positions(pick_), show, out.rows);
    while (j < out.rows) show(static_cast<int64_t>(num_positions(pick_)));
    out.lengths[out.place_of(item)] = static_cast<int32_t>(real);
  }

  uint64_t bytes(const OutputBuffer& out) {
    const PatternOutput& rule = pattern_.outputs[out.output];
    uint64_t total = 0;
    pattern_.each_row(
        out.output, num_positions(pick_),
        [&](int64_t position) {
          const ShownStep shown = shown_step(rule, pick_, position);
          if (shown.step < 0) return;
          const auto step = static_cast<uint64_t>(shown.step);
          const Run& run = cursor_.find(step);
          const uint32_t row = run.row + static_cast<uint32_t>(step - cursor_.begin);
          total += static_cast<uint64_t>(
              std::max<int64_t>(size_of_value(arena_, value_of_row(arena_, run.chunk, out.column, row)), 0));
        },
        out.rows);
    return total;
  }

 private:
  void copy_step(const OutputBuffer& out, uint64_t step, char* to) {
    const Run& run = cursor_.find(step);
    const uint32_t row = run.row + static_cast<uint32_t>(step - cursor_.begin);
    char* from = arena_.row(run.chunk, out.column, row);
    if (out.flags == 0) copy_bytes(to, from, out.row_bytes, out.past_caches);
    else if (out.flags == kMutableColumn) MutableCell(from, out.row_bytes).read(to);
    else if (out.packed != nullptr) out.packed->read(arena_, run.chunk, out.column, row, to);
    else copy_value(out, run.chunk, row, to);
  }

  void copy_value(const OutputBuffer& out, uint32_t chunk, uint32_t row, char* to) {
    const int64_t size = append_value(arena_, chunk, value_of_row(arena_, chunk, out.column, row), *out.bytes);
    std::memcpy(to, &size, sizeof size);
  }

  void mark_missing(OutputBuffer& out, int64_t item, uint32_t j) {
    if (!has_mask_) make_mask(out);
    has_mask_ = true;
    (*out.mask)[out.place(item, j)] = 0;
  }

  static void make_mask(OutputBuffer& out) {
    std::unique_lock<std::mutex> lock;
    if (out.mask_lock != nullptr) lock = std::unique_lock(*out.mask_lock);
    if (out.mask->empty()) out.mask->assign(static_cast<size_t>(out.num_items) * out.rows, 1);
  }

  const Arena& arena_;
  const Pattern& pattern_;
  const Pick& pick_;
  RunCursor cursor_;
  bool has_mask_ = false;  // this item's output has marked a row missing
};

// Where an item of one run begins.
struct Source {
  const char* chunk;
  uint32_t row;
};

// Copies item_bytes bytes of each item; kBytes is the same number, or 0 for any. Rows are fetched ahead, for scalars
// those of more items: what counts is how many cache lines are under way.
template <size_t kBytes>
void copy_items(const Source* sources, uint32_t n, uint64_t column, size_t item_bytes, int64_t first,
                const OutputBuffer& out) {
  constexpr uint32_t kFetched = kBytes > 0 ? 3 * kAhead : kAhead;
  const size_t bytes = kBytes > 0 ? kBytes : item_bytes;
  const auto begin = [&](uint32_t i) { return sources[i].chunk + column + size_t{out.row_bytes} * sources[i].row; };
  const auto fetch = [&](uint32_t i) {
    const char* from = begin(i);
    const size_t last = std::min<size_t>(bytes, 512) - 1;
    for (size_t at = 0; at < last; at += 64) __builtin_prefetch(from + at);
    __builtin_prefetch(from + last);
  };
  for (uint32_t i = 0; i < std::min(n, kFetched); ++i) fetch(i);
  for (uint32_t i = 0; i < n; ++i) {
    if (i + kFetched < n) fetch(i + kFetched);
    char* const to = out.data + bytes * out.place_of(first + i);
    if constexpr (kBytes > 0) std::memcpy(to, begin(i), kBytes);
    else copy_row(to, begin(i), bytes, out.past_caches);
  }
}

void copy_items_by_time(const Source* sources, uint32_t n, uint64_t column, int64_t first, OutputBuffer& out) {
  for (uint32_t i = 0; i < n; ++i) {
    const char* from = sources[i].chunk + column + size_t{out.row_bytes} * sources[i].row;
    for (uint32_t j = 0; j < out.rows; ++j, from += out.row_bytes) {
      copy_bytes(out.row(first + i, j), from, out.row_bytes, out.past_caches);
    }
  }
}

void fill_lengths(OutputBuffer& out, int64_t first, uint32_t n, int32_t rows) {
  if (out.places == nullptr) return void(std::fill_n(out.lengths + first, n, rows));
  for (uint32_t i = 0; i < n; ++i) out.lengths[out.places[first + i]] = rows;
}

void gather_whole(const Arena& arena, const Source* sources, uint32_t n, int64_t first, OutputBuffer& out) {
  const size_t item_bytes = size_t{out.rows} * out.row_bytes;
  const uint64_t column = arena.columns()[out.column].offset;
  fill_lengths(out, first, n, static_cast<int32_t>(out.rows));
  if (out.time_major && out.rows > 1) return copy_items_by_time(sources, n, column, first, out);
  switch (item_bytes) {
    case 0: return;
    case 1: return copy_items<1>(sources, n, column, item_bytes, first, out);
    case 4: return copy_items<4>(sources, n, column, item_bytes, first, out);
    case 8: return copy_items<8>(sources, n, column, item_bytes, first, out);
    default: return copy_items<0>(sources, n, column, item_bytes, first, out);
  }
}

}  // namespace

bool are_alike(const Pick* picks, uint32_t n) noexcept {
  const Pick& p = picks[0];
  if (p.padding.before != 0 || p.padding.after != 0) return false;
  return std::all_of(picks, picks + n, [&](const Pick& q) {
    return q.pattern == p.pattern && q.num_runs == 1 && q.num_steps == p.num_steps && q.padding.before == 0 &&
           q.padding.after == 0;
  });
}

void gather(const Arena& arena, const PatternCache& patterns, const Pick* picks, uint32_t n, const Run* runs,
            int64_t first, std::vector<OutputBuffer>& outputs) {
  uint32_t num_outputs = 0;
  for (const OutputBuffer& out : outputs) num_outputs = std::max(num_outputs, out.output + 1);
  for (uint32_t i = 0; i < n; ++i) {
    if (patterns.at(picks[i].pattern).outputs.size() < num_outputs)
      corrupt("an item has another structure than its table");
  }
  const bool alike = are_alike(picks, n);
  Source sources[kMaxNames];  // a part names no more chunks, so it has no more items
  for (uint32_t i = 0; alike && i < n; ++i) {
    const Run& run = runs[picks[i].first_run];
    sources[i] = {arena.chunk_data(run.chunk), run.row};
  }
  for (OutputBuffer& out : outputs) {
    if (out.packed != nullptr) out.packed->forget();
    if (out.flags == kPerItemColumn) {
      fill_lengths(out, first, n, 1);
      continue;
    }
    if (alike && out.flags == 0 && picks[0].num_steps == out.rows &&
        is_whole(patterns.at(picks[0].pattern), out.output, out.rows)) {
      gather_whole(arena, sources, n, first, out);
      continue;
    }
    for (uint32_t i = 0; i < n; ++i) {
      ItemGather(arena, patterns.at(picks[i].pattern), picks[i], runs).run(out, first + i);
    }
  }
}

uint64_t bytes_shown(const Arena& arena, const Pattern& pattern, const Pick& pick, const Run* runs,
                     const OutputBuffer& out) {
  if (pattern.outputs.size() <= out.output) corrupt("an item has another structure than its table");
  return ItemGather(arena, pattern, pick, runs).bytes(out);
}

void gather_values(const Arena& arena, const Pick* picks, const BlockRef* values, uint32_t n, const Run* runs,
                   int64_t first, ItemValues& to) {
  for (uint32_t i = 0; i < n; ++i) {
    to.sizes[first + i] = append_value(arena, runs[picks[i].first_run].chunk, values[i], to.bytes);
  }
}

}  // namespace shmreplay
