#include "write/due_insert.h"

#include <algorithm>
#include <bit>

#include "arena/admission.h"
#include "arena/session_counts.h"
#include "base/futex.h"
#include "items/enter_table.h"
#include "write/stream_writer.h"

namespace shmreplay {
namespace {

// Whether an item can go in together with `same` others of its table: now or later.
bool goes_with(const TableRecord& t, uint64_t same) {
  if (same >= largest_burst(t)) return false;
  // As long as nobody can sample for want of items, only inserts change what is admitted: to wait for more is to wait
  // for ever.
  const bool is_short = static_cast<int64_t>(t.size.get()) < std::max<int64_t>(t.limiter.min_size_to_sample.get(), 1);
  return same == 0 || !is_short || can_insert(t, same + 1);
}

}  // namespace

DueInsert::DueInsert(Arena& arena, std::span<DueRun> runs, const Wait& wait, bool counted)
    : arena_(arena), runs_(runs), wait_(wait), counted_(counted) {
  for (const DueRun& run : runs_) {
    for (uint32_t i = run.done; i < run.n; ++i) tables_ |= uint64_t{1} << run.due[i].table;
  }
}

// Whether every item has its table's structure, as far as that is known, and fits a hold: looked at before any goes in.
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

Status DueInsert::enter_tables(Hold& hold) const {
  uint32_t first = static_cast<uint32_t>(std::countr_zero(tables_));
  for (;;) {
    if (const Status s = enter_table(hold, arena_.table(first), wait_); s != Status::kOk) return s;
    // The lock is held; the other tables may still be dropped or in the middle of a reset.
    uint32_t t = 0;
    const auto is_ours = [&] { return (tables_ >> t & 1) != 0; };
    while (t < arena_.num_tables() && !(is_ours() && (arena_.table(t).record->flags.get() & (kDropped | kResetting))))
      ++t;
    if (t == arena_.num_tables()) return Status::kOk;
    first = t;
    hold.end();
  }
}

DueInsert::Piece DueInsert::next_piece() const {
  const DueRun& run = runs_[at_];
  Piece piece{run.due + run.done, 0, 0};
  for (const uint32_t most = std::min(run.n - run.done, kInsertGroup); piece.n < most; ++piece.n) {
    DueItem& due = piece.due[piece.n];
    const TableFacts& t = arena_.table(due.table);
    const auto same = std::count_if(piece.due, &due, [&](const DueItem& d) { return d.table == due.table; });
    if (counted_ && piece.n > 0 && !goes_with(*t.record, static_cast<uint64_t>(same))) break;
    const uint32_t more = insert_entries(t, run.stream->num_chunks(due)) +
                          static_cast<uint32_t>(due.pattern->pattern.outputs.size());  // lengths noted
    if (piece.n > 0 && piece.entries + more + kMaxOutputs + kMaxTables > kLogCapacity) break;
    piece.entries += more;
  }
  return piece;
}

Status DueInsert::make_known(Hold& hold, const Piece& piece, bool& all) {
  for (uint32_t i = 0; i < piece.n; ++i) {
    if (piece.due[i].pattern == known_ && piece.due[i].table == known_to_) continue;
    all = hold.room() >= kPatternWords + kMaxOutputs;
    if (!all) return Status::kOk;
    PreparedPattern& pattern = *piece.due[i].pattern;
    if (const Status s = intern_pattern(hold, pattern); s != Status::kOk) return s;
    if (const Status s = admit_structure(hold, arena_.table(piece.due[i].table), pattern); s != Status::kOk) return s;
    known_ = &pattern;
    known_to_ = piece.due[i].table;
  }
  return Status::kOk;
}

// Whether the limiters of all tables concerned admit all of it; else the first that does not.
bool DueInsert::admits(const Piece& piece, uint32_t& blocking) const {
  for (uint32_t i = 0; counted_ && i < piece.n; ++i) {
    blocking = piece.due[i].table;
    const auto same =
        std::count_if(piece.due, piece.due + piece.n, [&](const DueItem& d) { return d.table == blocking; });
    if (!can_insert(*arena_.table(blocking).record, static_cast<uint64_t>(same))) return false;
  }
  return true;
}

// Puts in what fits the hold and is admitted: so many `items`; `filled` has the bits of the tables that got some.
// `blocking`: whose limiter keeps out the very first.
Status DueInsert::fill(Hold& hold, uint64_t& filled, uint32_t& items, uint32_t& blocking) {
  known_ = nullptr;
  for (items = 0;;) {
    while (at_ < runs_.size() && runs_[at_].done == runs_[at_].n) ++at_;
    if (at_ == runs_.size()) return Status::kOk;
    DueRun& run = runs_[at_];
    const Piece piece = next_piece();
    if (items > 0 && items + piece.n > kInsertGroup) return Status::kOk;
    bool known = true;
    if (const Status s = make_known(hold, piece, known); s != Status::kOk) return s;
    // Large patterns that were new and inserts of the largest size do not fit one log: the rest gets the next.
    if (!known || hold.room() < piece.entries + (items > 0 ? kMaxTables : 0)) return Status::kOk;
    uint32_t keeps_out = kNone;
    if (!admits(piece, keeps_out)) {
      if (items == 0) blocking = keeps_out;
      return Status::kOk;
    }
    for (uint32_t i = 0; i < piece.n; ++i) {
      run.keys[run.done + i] = run.stream->put_in(hold, piece.due[i], counted_);
      filled |= uint64_t{1} << piece.due[i].table;
    }
    run.done += piece.n;
    items += piece.n;
  }
}

// As much as one hold takes; if that is nothing, waits for the limiter that keeps it out.
Status DueInsert::one_hold() {
  Hold hold(arena_);
  if (const Status s = enter_tables(hold); s != Status::kOk) return s;
  if (blocked_) blocked_->leave(hold);
  uint64_t filled = 0;
  uint32_t items = 0, blocking = kNone;
  const Status s = fill(hold, filled, items, blocking);
  if (items > 0) count_own_inserts(hold, filled, items);
  for (; filled != 0; filled &= filled - 1) {
    hold.set(arena_.table(static_cast<uint32_t>(std::countr_zero(filled))).record->last_insert_ns, coarse_now_ns());
  }
  if (s != Status::kOk || blocking == kNone) return s;
  runs_[at_].stream->note_blocking(blocking);
  if (wait_.try_only) return Status::kTimeout;
  if (!blocked_ || blocking != blocking_) blocked_.emplace(arena_, arena_.table(blocking), kInserts, wait_);
  blocking_ = blocking;
  blocked_->join(hold);
  hold.end();
  return blocked_->sleep();
}

Status DueInsert::run() {
  for (const DueRun& r : runs_) r.stream->note_blocking(kNone);
  if (const Status s = find_misfit(); s != Status::kOk) return s;
  const auto is_left = [](const DueRun& r) { return r.done < r.n; };
  for (bool first = true; std::any_of(runs_.begin() + static_cast<ptrdiff_t>(at_), runs_.end(), is_left);
       first = false) {
    if (!first) arena_.give_way();
    if (const Status s = one_hold(); s != Status::kOk) return s;
  }
  return Status::kOk;
}

}  // namespace shmreplay
