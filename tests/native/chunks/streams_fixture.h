// For tests of writers with rules: a rule of the newest steps, and a vector writer whose rows prove themselves.
#pragma once

#include "support/fixtures.h"
#include "write/extend.h"
#include "write/vector_writer.h"

namespace shmreplay::test {

inline WriterFacts facts_of(const Arena& arena) {
  WriterFacts facts;
  facts.formats.assign(arena.geometry().num_columns, {'f', 8});
  return facts;
}

// A window of the newest `length` steps, every column.
inline ItemRule newest(const Arena& arena, uint32_t table, int32_t length, AtEnd at_end = AtEnd::kSkip) {
  ItemRule rule;
  rule.table = table;
  rule.hi = length;
  rule.at_end = at_end;
  rule.is_strict = true;
  for (uint16_t c = 0; c < arena.geometry().num_columns; ++c)
    rule.outputs.push_back({c, false, false, {{0, length, 1}}});
  rule.prepare();
  return rule;
}

// Items of `steps` steps and the one after them; each begins where the one before it ends. As Unroll makes them.
inline ItemRule unroll(const Arena& arena, uint32_t table, uint32_t steps, Reach reach = Reach::kEpisode) {
  ItemRule rule = newest(arena, table, static_cast<int32_t>(steps + 1), AtEnd::kPad);
  rule.period = steps;
  rule.reach = reach;
  rule.is_unroll = true;
  return rule;
}

// N streams; row k of stream i has the serial 1000 * (i + 1) + k.
class Fleet {
 public:
  Fleet(Arena& arena, const std::vector<ItemRule>& rules, uint32_t num_streams, uint32_t history = 8)
      : writer(arena, arena.table(0), history, facts_of(arena), rules, num_streams),
        arena_(arena),
        next_(num_streams, 0) {
    for (uint32_t i = 0; i < num_streams; ++i) everybody.push_back({i, i});
  }

  VectorWriter::Fill filling() {
    VectorWriter::Fill fill;
    fill.cells = [this](StreamWriter& stream, uint32_t i) { write_row(stream, arena_, serial(i, next_[i])); };
    if (arena_.geometry().num_blocks == 0) return fill;
    fill.blocks = [this](StreamWriter&, uint32_t i) { return blocks_of_row(arena_, serial(i, next_[i])); };
    return fill;
  }

  Status append(VectorWriter::Rows rows, const Wait& wait) {
    progress = {};
    const Status s = writer.append(rows, filling(), true, -1, wait, progress);
    for (uint32_t i = 0; i < progress.done; ++i) ++next_[rows[i].stream];
    return s;
  }
  Status append(const Wait& wait) { return append(everybody, wait); }

  static uint64_t serial(uint64_t stream, uint64_t row) { return 1000 * (stream + 1) + row; }

  VectorWriter writer;
  std::vector<VectorWriter::Row> everybody;
  VectorWriter::Progress progress;

 private:
  Arena& arena_;
  std::vector<uint64_t> next_;
};

// Serials of the rows of that item.
inline std::vector<uint64_t> rows_of(World& w, int64_t key, uint32_t table = 0) {
  SampleCall call(w.arena);
  Batch batch(w.arena, 1);
  uint32_t found = kNone;
  CHECK_EQ(call.get(w.table(table), &key, 1, kNow, batch, &found).done, 1u);
  batch.check_rows();
  std::vector<uint64_t> rows;
  for (uint32_t row = 0; row < batch.rows(0); ++row) {
    if (batch.real(0, 0, row)) rows.push_back(batch.serial(0, row));
  }
  return rows;
}

// Serials of consecutive rows, both ends included.
inline std::vector<uint64_t> serials(uint64_t first, uint64_t last) {
  std::vector<uint64_t> rows;
  for (uint64_t s = first; s <= last; ++s) rows.push_back(s);
  return rows;
}

// How many holds anybody has had so far.
inline uint64_t num_holds(Arena& arena) { return arena.lock().hold_seq.load() / 2; }

}  // namespace shmreplay::test
