#include "write/due_insert.h"

#include <algorithm>

#include "arena/admission.h"

namespace shmreplay {
namespace {

// Whether an item can go in together with `same` other items of its table, now or later.
bool goes_with(const TableRecord& t, uint64_t same) {
  if (same >= largest_burst(t)) return false;
  // While the table has too few items to be sampled, only inserts change what the limiter admits. To wait until it
  // admits more at once would be to wait for ever.
  const bool is_short = static_cast<int64_t>(t.size.get()) < std::max<int64_t>(t.limiter.min_size_to_sample.get(), 1);
  return same == 0 || !is_short || can_insert(t, same + 1);
}

// How many of these items are of that table.
uint64_t count_of(const DueItem* due, uint32_t n, uint32_t table) {
  return static_cast<uint64_t>(std::count_if(due, due + n, [&](const DueItem& d) { return d.table == table; }));
}

}  // namespace

DueInsert::DueInsert(Arena& arena, std::span<DueRun> runs, const Wait& wait, bool counted)
    : arena_(arena), runs_(runs), wait_(wait), counted_(counted) {}

// Whether every item has its table's structure (as far as that is known) and fits a hold. Checked before any goes in.
Status DueInsert::find_misfit() {
  uint64_t structures[kMaxTables];
  for (uint32_t t = 0; t < arena_.num_tables(); ++t) structures[t] = arena_.table(t).record->structure_hash.get();
  for (at_ = 0; at_ < runs_.size(); ++at_) {
    const DueRun& run = runs_[at_];
    for (uint32_t i = run.done; i < run.n; ++i) {
      const DueItem& due = run.due[i];
      uint64_t& structure = structures[due.table];
      if (structure == 0) structure = due.pattern->structure;
      if (structure != due.pattern->structure) return Status::kStructure;
      if (run.stream->num_chunks(due) > kMaxItemChunks) return Status::kTooManyChunks;
    }
  }
  at_ = 0;
  return Status::kOk;
}

// The part of the run at at_ that goes in together.
DueInsert::Piece DueInsert::next_piece(const Hold& hold) const {
  const DueRun& run = runs_[at_];
  Piece piece{run.due + run.done, 0, 0};
  for (const uint32_t most = std::min(run.n - run.done, kInsertGroup); piece.n < most; ++piece.n) {
    const DueItem& due = piece.due[piece.n];
    const TableFacts& t = hold.arena().table(due.table);
    if (counted_ && piece.n > 0 && !goes_with(*t.record, count_of(piece.due, piece.n, due.table))) break;
    const uint32_t more = insert_entries(t, run.stream->num_chunks(due)) +
                          static_cast<uint32_t>(due.pattern->pattern.outputs.size());  // lengths noted
    if (piece.n > 0 && piece.entries + more + kMaxOutputs + kMaxTables > kLogCapacity) break;
    piece.entries += more;
  }
  return piece;
}

// `all` becomes false when the log has no room for another pattern.
Status DueInsert::make_piece_known(Hold& hold, const Piece& piece, bool& all) {
  for (uint32_t i = 0; i < piece.n; ++i) {
    const DueItem& due = piece.due[i];
    if (due.pattern == known_ && due.table == known_to_) continue;
    all = hold.room() >= kPatternWords + kMaxOutputs;
    if (!all) return Status::kOk;
    if (const Status s = make_known(hold, arena_.table(due.table), *due.pattern); s != Status::kOk) return s;
    known_ = due.pattern;
    known_to_ = due.table;
  }
  return Status::kOk;
}

// The first table whose limiter does not admit all of the piece's items for it; kNone: all limiters do.
uint32_t DueInsert::keeps_out(const Hold& hold, const Piece& piece) const {
  for (uint32_t i = 0; counted_ && i < piece.n; ++i) {
    const uint32_t table = piece.due[i].table;
    if (!can_insert(*hold.arena().table(table).record, count_of(piece.due, piece.n, table))) return table;
  }
  return kNone;
}

void DueInsert::put_in(Hold& hold, const Piece& piece, Filled& filled) {
  DueRun& run = runs_[at_];
  for (uint32_t i = 0; i < piece.n; ++i) {
    run.keys[run.done + i] = run.stream->put_in(hold, piece.due[i], counted_);
    filled.tables |= uint64_t{1} << piece.due[i].table;
  }
  run.done += piece.n;
  filled.items += piece.n;
}

// Puts in pieces until the hold is full or a limiter does not admit one.
Status DueInsert::fill(Hold& hold, Filled& filled) {
  known_ = nullptr;
  for (;;) {
    while (at_ < runs_.size() && runs_[at_].done == runs_[at_].n) ++at_;
    if (at_ == runs_.size()) return Status::kOk;
    const Piece piece = next_piece(hold);
    if (filled.items > 0 && filled.items + piece.n > kInsertGroup) return Status::kOk;
    bool known = true;
    if (const Status s = make_piece_known(hold, piece, known); s != Status::kOk) return s;
    // A large new pattern and an insert of the largest size may not fit one log together: the rest gets the next hold.
    if (!known || hold.room() < piece.entries + (filled.items > 0 ? kMaxTables : 0)) return Status::kOk;
    if (const uint32_t table = keeps_out(hold, piece); table != kNone) {
      if (filled.items > 0) return Status::kOk;
      filled.blocking = table;
      runs_[at_].stream->steps().note_blocking(table);
      return Status::kOk;
    }
    put_in(hold, piece, filled);
  }
}

Status DueInsert::run() {
  for (const DueRun& r : runs_) r.stream->steps().note_blocking(kNone);
  if (const Status s = find_misfit(); s != Status::kOk) return s;
  uint64_t tables = 0;
  for (const DueRun& r : runs_) {
    for (uint32_t i = r.done; i < r.n; ++i) tables |= uint64_t{1} << r.due[i].table;
  }
  const auto is_left = [this] {
    return std::any_of(runs_.begin() + static_cast<ptrdiff_t>(at_), runs_.end(),
                       [](const DueRun& r) { return r.done < r.n; });
  };
  return InsertHolds(arena_, tables, wait_).run(is_left, [this](Hold& hold, Filled& filled) {
    return fill(hold, filled);
  });
}

}  // namespace shmreplay
