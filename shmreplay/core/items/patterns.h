// A pattern: the rule by which an item's span of steps becomes what a batch shows.
//
// For each output it has a column, and slices over the *padded span*: positions 0 .. before + num_steps + after - 1.
// Positions outside the real steps are missing (padding). Each end of a slice is anchored at the start or at the end of
// the padded span, so one rule serves spans of any length. A squeezed output has exactly one row and no step axis.
// `trim_end`: that many of the last real steps are missing for that output alone, because a final step lacks the
// column.
//
// Patterns are interned: equal rules share one record, which counts its items. A record that no item refers to stays,
// for the next item of that rule, until another pattern needs its place. Its generation tells readers that it changed.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "arena/hold.h"

namespace shmreplay {

struct Slice {
  int32_t begin, end, step;  // end exclusive; step != 0
  uint32_t anchors;          // kBeginAtEnd | kEndAtEnd
};
inline constexpr uint32_t kBeginAtEnd = 1, kEndAtEnd = 2;

struct PatternOutput {
  uint16_t column;
  uint16_t flags;  // kSqueezed | kRepeatStart
  uint32_t num_slices;
  uint32_t first_slice;
  uint32_t trim_end;
};
inline constexpr uint16_t kSqueezed = 1, kRepeatStart = 2;  // kRepeatStart: padding before the span repeats its first
                                                            // step

struct Pattern {
  std::vector<PatternOutput> outputs;
  std::vector<Slice> slices;
  std::string names;  // opaque to the core: how the outputs nest; empty: the signature's own names

  // How many rows output o has for a padded span of that many positions.
  uint64_t rows(size_t o, uint64_t positions) const noexcept;

  // Calls visit(position) for the first `most` rows of output o, in order; positions may lie outside the padded span.
  template <class Visit>
  void each_row(size_t o, uint64_t positions, Visit visit, uint64_t most = UINT64_MAX) const {
    const PatternOutput& out = outputs[o];
    for (uint32_t i = 0; i < out.num_slices; ++i) {
      const Slice& s = slices[out.first_slice + i];
      const int64_t b = s.begin + (s.anchors & kBeginAtEnd ? static_cast<int64_t>(positions) : 0);
      const int64_t e = s.end + (s.anchors & kEndAtEnd ? static_cast<int64_t>(positions) : 0);
      if (s.step > 0)
        for (int64_t p = b; p < e && most > 0; p += s.step, --most) visit(p);
      if (s.step < 0)
        for (int64_t p = b; p > e && most > 0; p += s.step, --most) visit(p);
    }
  }

  std::vector<uint64_t> encode() const;  // throws std::length_error if it is too large for a record
  static Pattern decode(const uint64_t* words, uint32_t num_outputs, uint32_t num_slices, uint32_t blob_bytes);
  uint64_t structure_hash() const noexcept;  // of names, columns and squeezing: equal for items that may share a table
};

// A pattern that shows every column under its own name: squeezed for one-step items, else whole spans, in which the
// columns in `lacking` miss the newest step. A per-item column has one value and no slice.
Pattern whole_step_pattern(const Arena& arena, bool squeezed, const std::vector<bool>& lacking);

uint64_t hash_words(const std::vector<uint64_t>& words) noexcept;

// A pattern ready to be interned again and again.
struct PreparedPattern {
  explicit PreparedPattern(Pattern p);
  Pattern pattern;
  std::vector<uint64_t> blob;
  uint64_t hash, structure;
  uint32_t record = kNone;  // where intern_pattern() found or put it last
};

// Finds the record of that pattern, or makes one. kNoPatterns when every record is in use by other patterns.
Status intern_pattern(Hold& hold, PreparedPattern& prepared);

// One item more, or one less, refers to the record. A record without references may be given to another pattern.
void add_pattern_ref(Hold& hold, uint32_t record);
void drop_pattern_ref(Hold& hold, uint32_t record);

// Decoded patterns of this process, by record and generation. note() runs inside a hold and only copies raw words;
// settle() decodes them after it.
class PatternCache {
 public:
  explicit PatternCache(Arena& arena);
  // Begins a part. Patterns noted before are no longer needed: at() may show another pattern for their records now.
  void begin_part() noexcept { ++part_; }
  // false: either there are too many new patterns, and settle() must come first; or the record was given to another
  // pattern since this part noted it, and that pattern has to wait for the next part.
  bool note(Hold& hold, uint32_t record);
  void settle();
  // Whether at() has a noted pattern already.
  bool is_settled(uint32_t record) const noexcept;
  const Pattern& at(uint32_t record) const { return *entries_[record].pattern; }

 private:
  static constexpr uint32_t kPending = 8;
  struct Entry {
    uint32_t generation = 0;
    uint32_t part = 0;  // the part that noted it last; 0: none yet
    std::unique_ptr<Pattern> pattern;
  };
  struct Raw {
    uint32_t record, num_outputs, num_slices, blob_bytes;
    uint64_t words[kPatternWords];
  };
  Arena& arena_;
  std::vector<Entry> entries_;
  std::unique_ptr<Raw[]> raw_;
  uint32_t num_raw_ = 0;
  uint32_t part_ = 1;
};

}  // namespace shmreplay
