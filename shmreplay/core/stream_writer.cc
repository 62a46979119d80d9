#include "stream_writer.h"

#include <algorithm>
#include <bit>
#include <optional>

#include "mutable_cell.h"
#include "room.h"
#include "streams.h"

namespace shmreplay {
namespace {

constexpr uint32_t kInsertGroup = 32;    // items a hold
constexpr int64_t kCloseTimeoutNs = 5 * kSliceNs;

uint32_t count_chunks(const Arena& arena, Place place, uint32_t num_steps) {
  uint32_t n = 0;
  each_run(arena, place, num_steps, [&n](uint32_t, uint32_t, uint32_t) { ++n; });
  return n;
}

}  // namespace

StreamWriter::StreamWriter(Arena& arena, const TableFacts& table, uint32_t history)
    : arena_(arena),
      table_(table),
      history_(history),
      base_present_(arena.geometry().presence_words, 0),
      present_(base_present_),
      held_(std::max(history, 1u)),
      held_present_(size_t{std::max(history, 1u)} * arena.geometry().presence_words, 0),
      episode_slots_(arena.num_tables(), kNone),
      noted_(arena.num_tables(), Noted{0, 0}),
      items_(kInsertGroup),
      row_values_(arena, table),
      item_values_(arena, table) {
  // A row lacks nothing of what items bring.
  for (uint32_t c = 0; c < arena.geometry().num_columns; ++c) {
    if (arena.columns()[c].flags != kPerItemColumn) continue;
    base_present_[c / 64] |= uint64_t{1} << (c % 64);
    ++num_base_;
  }
  begin_row();
}

StreamWriter::~StreamWriter() { give_up(); }

void StreamWriter::give_up() noexcept {
  if (!is_open() || arena_.forked()) return;
  try {
    // What this can not close (the lock is stuck, the process forked) is closed with the session.
    close({now_ns() + kCloseTimeoutNs, nullptr});
  } catch (const CorruptIndex&) {
    // Its hold has marked the segment failed: the next call of anybody says so, a destructor can not.
  }
}

Status StreamWriter::open(const Wait& wait) {
  Hold hold(arena_);
  if (const Status s = enter_table(hold, table_, wait); s != Status::kOk) return s;
  // The rows of `history` finished steps and of the one being written touch at most this many chunks.
  const uint32_t chunk_steps = arena_.geometry().chunk_steps;
  const uint32_t max_chunks = (history_ + chunk_steps - 1) / chunk_steps + 1;
  uint32_t stream;
  if (const Status s = open_stream(hold, max_chunks, stream); s != Status::kOk) return s;
  serial_ = arena_.stream(stream).serial.get();
  stream_ = stream;
  return Status::kOk;
}

Status StreamWriter::close(const Wait& wait) {
  while (stream_ != kNone) {
    Hold hold(arena_);
    if (const Status s = hold.begin(wait); s != Status::kOk) return s;
    if (close_stream(hold, stream_, kGroup)) stream_ = kNone;
  }
  chunk_ = kNone;
  num_held_ = 0;
  row_is_open_ = false;
  return Status::kOk;
}

void StreamWriter::use_chunk(Hold& hold, uint32_t chunk) {
  extend_window(hold, stream_, chunk);
  chunk_ = chunk;
  row_ = 0;
  rows_in_chunk_ = arena_.geometry().chunk_steps;
  if (arena_.geometry().num_blocks > 0) row_values_.use_chunk(chunk);
}

Status StreamWriter::try_chunk(const Wait& wait, bool steal, bool& found) {
  Hold hold(arena_);
  if (const Status s = enter_table(hold, table_, wait); s != Status::kOk) return s;
  const uint32_t last = arena_.stream(stream_).window.get().last;
  const uint32_t c = steal ? steal_chunk(hold, arena_.session_index(), serial_, last)
                           : shmreplay::take_chunk(hold, arena_.session_index(), serial_, last);
  found = c != kNone;
  if (found) use_chunk(hold, c);
  return Status::kOk;
}

Status StreamWriter::take_chunk(const Wait& wait) {
  blocking_table_ = kNone;  // what this waits for is room, whatever kept an item waiting before
  return take_room(
      arena_, table_, wait, [&](bool steal, bool& found) { return try_chunk(wait, steal, found); },
      [&] { return arena_.state().num_free.get() > 0; });
}

Status StreamWriter::ensure_row(const Wait& wait) {
  if (row_is_open_) return Status::kOk;
  if (rows_left() == 0) {
    if (const Status s = take_chunk(wait); s != Status::kOk) return s;
  }
  begin_row();
  for (const uint32_t c : arena_.mutable_columns()) mutable_cell(c, row_).begin();
  return Status::kOk;
}

void StreamWriter::begin_row() noexcept {
  std::copy(base_present_.begin(), base_present_.end(), present_.begin());
  num_present_ = num_base_;
}

void StreamWriter::mark(uint32_t column) noexcept {
  row_is_open_ = true;
  if (has(column)) return;
  present_[column / 64] |= uint64_t{1} << (column % 64);
  ++num_present_;
}

void StreamWriter::mark_all() noexcept {
  row_is_open_ = true;
  num_present_ = arena_.geometry().num_columns;
  for (uint32_t w = 0; w < present_.size(); ++w) present_[w] = all_columns(w);
}

// The presence bits of a whole row, as far as word w has them.
uint64_t StreamWriter::all_columns(uint32_t w) const noexcept {
  return ~uint64_t{0} >> (64 - std::min(arena_.geometry().num_columns - 64 * w, 64u));
}

void StreamWriter::restore_row(const std::vector<uint64_t>& present) noexcept {
  num_present_ = 0;
  for (size_t w = 0; w < present_.size(); ++w) {
    present_[w] = present[w] | base_present_[w];
    num_present_ += static_cast<uint32_t>(std::popcount(present_[w]));
  }
  row_is_open_ = num_present_ > num_base_;
  row_values_.take_back([this](uint32_t row, uint32_t column) { return row == row_ && column != kNone && !has(column); });
}

void StreamWriter::write_rows(uint32_t column, const char* from, uint32_t n) {
  const ColumnRecord& c = arena_.columns()[column];
  if (c.flags == 0) {
    std::memcpy(cell(column), from, size_t{n} * c.row_bytes);
    return;
  }
  for (uint32_t i = 0; i < n; ++i) std::memcpy(mutable_cell(column, row_ + i).first_copy(), from + size_t{i} * c.row_bytes, c.row_bytes);
}

Status StreamWriter::secure_blocks(uint64_t n, const Wait& wait) {
  if (n == 0) return Status::kOk;
  blocking_table_ = kNone;  // as for a chunk
  return row_values_.secure(n, wait);
}

void StreamWriter::write_value(uint32_t column, const char* bytes, uint32_t num_bytes, uint32_t ahead) {
  put_value(column, row_ + ahead, row_values_.write(row_ + ahead, column, bytes, num_bytes));
}

void StreamWriter::write_no_value(uint32_t column, uint32_t ahead) { put_value(column, row_ + ahead, kNoValue); }

void StreamWriter::put_value(uint32_t column, uint32_t row, BlockRef ref) {
  std::memcpy(arena_.row(chunk_, column, row), &ref, sizeof ref);
}

void StreamWriter::give_up_rows() noexcept {
  row_values_.take_back([this](uint32_t row, uint32_t column) { return row >= row_ && column != kNone; });
}

// The blocks of an item's values are those of the chunk of its first step: often, but not always, the one being written.
Status StreamWriter::bring_values(uint64_t first, const char* bytes, uint64_t num_bytes, const Wait& wait, BlockRef& ref) {
  if (!fits_heap(arena_, num_bytes)) return Status::kBlobTooLarge;
  const uint32_t chunk = place_of(first).chunk;
  ValueWriter& values = chunk == chunk_ ? row_values_ : item_values_;
  blocking_table_ = kNone;  // as for a chunk
  values.use_chunk(chunk);
  if (const Status s = values.secure(blocks_of(arena_, num_bytes), wait); s != Status::kOk) return s;
  ref = values.write(row_, kNone, bytes, static_cast<uint32_t>(num_bytes));
  brought_to_ = &values;
  return Status::kOk;
}

void StreamWriter::end_values(bool went_in) noexcept {
  if (brought_to_ != nullptr && !went_in) brought_to_->take_back_last();
  brought_to_ = nullptr;
  item_values_.keep_before(kNone);
}

BlockRef StreamWriter::value(uint64_t step, uint32_t column) const {
  const Place at = place_of(step);
  return value_of_row(arena_, at.chunk, column, at.row);
}

void StreamWriter::read_value(uint64_t step, BlockRef ref, char* to) const {
  shmreplay::read_value(arena_, place_of(step).chunk, ref, to);
}

void StreamWriter::read_mutable(uint64_t step, uint32_t column, char* to) const {
  const Place at = place_of(step);
  MutableCell(arena_.row(at.chunk, column, at.row), arena_.columns()[column].row_bytes).read(to);
}

MutableCell StreamWriter::mutable_cell(uint32_t column, uint32_t row) const {
  return MutableCell(arena_.row(chunk_, column, row), arena_.columns()[column].row_bytes);
}

void StreamWriter::finish_row() noexcept {
  for (uint32_t w = 0; w < present_.size(); ++w) {
    // Relaxed: read only by who holds an item of this row, behind the lock.
    arena_.presence(chunk_, row_, w).store(present_[w], std::memory_order_relaxed);
  }
  for (const uint32_t c : arena_.mutable_columns()) {
    if (has(c)) mutable_cell(c, row_).finish();
  }
  row_is_open_ = false;
  if (history_ > 0) {
    const uint64_t at = finished_ % history_;
    held_[at] = {chunk_, row_};
    std::copy(present_.begin(), present_.end(), held_present_.begin() + static_cast<ptrdiff_t>(at * present_.size()));
    num_held_ = std::min(num_held_ + 1, history_);
    num_whole_ = lacks_any() ? 0 : std::min(num_whole_ + 1, history_);
  }
  ++row_;
  row_values_.keep_before(row_);
  ++finished_;
  ++episode_steps_;
}

Place StreamWriter::place_of(uint64_t step) const noexcept {
  return step == finished_ ? Place{chunk_, row_} : held_[step % held_.size()];
}

bool StreamWriter::has(uint64_t step, uint32_t column) const noexcept {
  if (step == finished_) return has(column);
  return held_present_[(step % held_.size()) * present_.size() + column / 64] >> (column % 64) & 1;
}

const char* StreamWriter::cell(uint64_t step, uint32_t column) const {
  const Place at = place_of(step);
  return arena_.row(at.chunk, column, at.row);
}

Status StreamWriter::insert(const TableFacts& t, PreparedPattern& p, NewItem* items, const double* priorities, uint32_t n,
                            const Wait& wait, int64_t* keys, uint32_t& done) {
  Blocked blocked(arena_, t, kInserts, wait);
  const uint32_t chunks = count_chunks(arena_, items[0].place, items[0].num_steps);
  for (done = 0; done < n;) {
    Hold hold(arena_);
    if (const Status s = enter_table(hold, t, wait); s != Status::kOk) return s;
    if (const Status s = intern_pattern(hold, p); s != Status::kOk) return s;
    if (const Status s = admit_structure(hold, t, p); s != Status::kOk) return s;
    blocked.leave(hold);
    // A large pattern that was new and an insert of the largest size do not fit one log: the insert gets the next.
    if (hold.room() < insert_entries(t, chunks) + kMaxOutputs) continue;
    const uint32_t before = done;
    // Once a hold: the first newcomer at that priority keeps it the largest for the others.
    const double fallback = default_priority(hold, t);
    for (; done < n && done - before < kInsertGroup && can_insert(*t.record, 1); ++done) {
      if (done > before && hold.room() < insert_entries(t, chunks) + kMaxOutputs) break;
      NewItem& item = items[done];
      item.priority = priorities[done] < 0 ? fallback : priorities[done];
      item.pattern = p.record;
      note_insert(hold, t, p, item);
      const Inserted in = insert_item(hold, t, item);
      keys[done] = in.key;
      if (!item.own_episode) {
        episode_ = in.episode;
        episode_slots_[t.index] = in.episode_slot;
      }
    }
    if (done > before) {
      hold.set(t.record->last_insert_ns, coarse_now_ns());
      continue;
    }
    if (wait.try_only) return Status::kTimeout;
    blocked.join(hold);
    hold.end();
    if (const Status s = blocked.sleep(); s != Status::kOk) return s;
  }
  return Status::kOk;
}

Status StreamWriter::insert_rows(const TableFacts& t, PreparedPattern& p, const double* priorities, uint32_t n,
                                 const Wait& wait, int64_t* keys, uint32_t& done, const BlockRef* values) {
  done = 0;
  while (done < n) {
    const uint32_t k = std::min(n - done, kInsertGroup);
    for (uint32_t i = 0; i < k; ++i) {
      items_[i] = NewItem{};
      items_[i].place = {chunk_, row_ + i};
      items_[i].num_steps = 1;
      items_[i].own_episode = true;
      if (values != nullptr) items_[i].values = values[done + i];
    }
    for (uint32_t i = 0; i < k; ++i) {
      for (uint32_t w = 0; w < present_.size(); ++w) {
        arena_.presence(chunk_, row_ + i, w).store(all_columns(w), std::memory_order_relaxed);
      }
    }
    for (const uint32_t c : arena_.mutable_columns()) {
      for (uint32_t i = 0; i < k; ++i) mutable_cell(c, row_ + i).finish();
    }
    uint32_t went_in = 0;
    const Status s = insert(t, p, items_.data(), priorities + done, k, wait, keys + done, went_in);
    done += went_in;
    row_ += went_in;
    row_values_.keep_before(row_);
    row_is_open_ = false;
    if (s != Status::kOk) return s;
  }
  return Status::kOk;
}

void StreamWriter::note_insert(Hold& hold, const TableFacts& t, const PreparedPattern& p, const NewItem& item) {
  const uint64_t positions = uint64_t{item.padding.before} + item.num_steps + item.padding.after;
  if (noted_[t.index].pattern_hash == p.hash && noted_[t.index].positions == positions) return;
  note_lengths(hold, t, p.pattern, positions);
  noted_[t.index] = {p.hash, positions};
}

Status StreamWriter::create_item(const TableFacts& t, PreparedPattern& p, uint32_t length, double priority,
                                 const Wait& wait, int64_t& key, BlockRef values) {
  if (length == 0 || length > num_steps()) return Status::kHistory;
  DueItem due{t.index, &p, first_of(length), length, {0, 0}, priority, values};
  uint32_t done = 0;
  return insert_due(&due, 1, wait, &key, done);
}

NewItem StreamWriter::item_of(const DueItem& due) const {
  NewItem item;
  item.priority = due.priority;
  item.place = place_of(due.first);
  item.num_steps = due.num_steps;
  item.padding = due.padding;
  item.episode = episode_;
  item.episode_slot = episode_slots_[due.table];
  item.step = static_cast<int64_t>(due.first) - static_cast<int64_t>(episode_start());
  item.values = due.values;
  return item;
}

// Whether the limiters of all tables concerned admit all of it; else the first that does not.
bool StreamWriter::admits(const DueItem* due, uint32_t n, uint32_t& blocking) const {
  for (uint32_t i = 0; i < n; ++i) {
    uint32_t same = 0;
    for (uint32_t j = 0; j < n; ++j) same += due[j].table == due[i].table ? 1 : 0;
    blocking = due[i].table;
    if (!can_insert(*arena_.table(blocking).record, same)) return false;
  }
  return true;
}

Status StreamWriter::enter_tables(Hold& hold, const DueItem* due, uint32_t n, const Wait& wait) const {
  for (uint32_t i = 0;;) {
    if (const Status s = enter_table(hold, arena_.table(due[i].table), wait); s != Status::kOk) return s;
    // The lock is held; the other tables may still be dropped or in the middle of a reset.
    for (i = 0; i < n && (arena_.table(due[i].table).record->flags.get() & (kDropped | kResetting)) == 0;) ++i;
    if (i == n) return Status::kOk;
    hold.end();
  }
}

int64_t StreamWriter::put_in(Hold& hold, const DueItem& due) {
  const TableFacts& t = arena_.table(due.table);
  NewItem item = item_of(due);
  if (item.priority < 0) item.priority = default_priority(hold, t);
  item.pattern = due.pattern->record;
  note_insert(hold, t, *due.pattern, item);
  const Inserted in = insert_item(hold, t, item);
  episode_ = in.episode;
  episode_slots_[due.table] = in.episode_slot;
  hold.set(t.record->last_insert_ns, coarse_now_ns());
  return in.key;
}

// Whether every item has its table's structure, as far as that is known: looked at before any goes in.
bool StreamWriter::structures_fit(const DueItem* due, uint32_t n) const noexcept {
  for (uint32_t i = 0; i < n; ++i) {
    uint64_t structure = arena_.table(due[i].table).record->structure_hash.get();
    for (uint32_t j = 0; structure == 0; ++j) {
      if (due[j].table == due[i].table) structure = due[j].pattern->structure;  // at the latest its own
    }
    if (structure != due[i].pattern->structure) return false;
  }
  return true;
}

// How many of the due items go in with one hold: what its log has room for, and of a table what its limiter can ever admit
// at once. `entries` is what they need of the log. 0: the first spans too many chunks.
uint32_t StreamWriter::group_size(const DueItem* due, uint32_t n, uint32_t& entries) const {
  entries = 0;
  uint32_t size = 0;
  for (; size < std::min(n, kInsertGroup); ++size) {
    const auto same = std::count_if(due, due + size, [&](const DueItem& d) { return d.table == due[size].table; });
    if (size > 0 && static_cast<uint64_t>(same) >= largest_burst(*arena_.table(due[size].table).record)) break;
    const Place at = place_of(due[size].first);
    if ((uint64_t{at.row} + due[size].num_steps - 1) / arena_.geometry().chunk_steps >= kMaxItemChunks) break;
    const uint32_t more = insert_entries(arena_.table(due[size].table), count_chunks(arena_, at, due[size].num_steps)) +
                          static_cast<uint32_t>(due[size].pattern->pattern.outputs.size());  // lengths noted
    if (size > 0 && entries + more + kMaxOutputs > kLogCapacity) break;
    entries += more;
  }
  return size;
}

Status StreamWriter::insert_group(DueItem* due, uint32_t n, uint32_t entries, const Wait& wait, int64_t* keys) {
  std::optional<Blocked> blocked;
  uint32_t blocking = kNone;
  for (;;) {
    Hold hold(arena_);
    if (const Status s = enter_tables(hold, due, n, wait); s != Status::kOk) return s;
    if (blocked) blocked->leave(hold);
    uint32_t known = 0;
    for (; known < n && hold.room() >= kPatternWords + kMaxOutputs; ++known) {
      PreparedPattern& pattern = *due[known].pattern;
      if (const Status s = intern_pattern(hold, pattern); s != Status::kOk) return s;
      if (const Status s = admit_structure(hold, arena_.table(due[known].table), pattern); s != Status::kOk) return s;
    }
    // Large patterns that were new and inserts of the largest size do not fit one log: the rest gets the next.
    if (known < n || hold.room() < entries) continue;
    const uint32_t before = blocking;
    if (admits(due, n, blocking)) {
      for (uint32_t i = 0; i < n; ++i) keys[i] = put_in(hold, due[i]);
      return Status::kOk;
    }
    blocking_table_ = blocking;
    if (wait.try_only) return Status::kTimeout;
    if (!blocked || before != blocking) blocked.emplace(arena_, arena_.table(blocking), kInserts, wait);
    blocked->join(hold);
    hold.end();
    if (const Status s = blocked->sleep(); s != Status::kOk) return s;
  }
}

Status StreamWriter::insert_due(DueItem* due, uint32_t n, const Wait& wait, int64_t* keys, uint32_t& done) {
  done = 0;
  blocking_table_ = kNone;
  if (!structures_fit(due, n)) return Status::kStructure;
  while (done < n) {
    uint32_t entries = 0;
    const uint32_t size = group_size(due + done, n - done, entries);
    if (size == 0) return Status::kTooManyChunks;
    if (const Status s = insert_group(due + done, size, entries, wait, keys + done); s != Status::kOk) return s;
    done += size;
  }
  return Status::kOk;
}

void StreamWriter::end_episode(bool clear_history) noexcept {
  if (row_is_open_) finish_row();
  if (clear_history) {
    num_held_ = 0;
    stretch_start_ = finished_;
  }
  episode_steps_ = 0;
  episode_ = 0;
  std::fill(episode_slots_.begin(), episode_slots_.end(), kNone);
}

}  // namespace shmreplay
