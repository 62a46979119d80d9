#include "stream_writer.h"

#include <algorithm>
#include <bit>
#include <iterator>

#include "due_insert.h"
#include "mutable_cell.h"
#include "room.h"
#include "streams.h"

namespace shmreplay {
namespace {

constexpr uint32_t kInsertGroup = 32;    // one-step items a hold
constexpr uint32_t kStreamEntries = 16;  // log entries that opening a stream, or closing one without chunks, needs
constexpr uint32_t kChunkEntries = 64;   // and a chunk taken, with what leaves the window for it
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
  present_ = base_present_;
  num_present_ = num_base_;
}

StreamWriter::~StreamWriter() { give_up(); }

void StreamWriter::give_up_all(Writers writers) noexcept {
  if (writers.empty() || writers.front()->arena_.forked()) return;
  try {
    // What this can not close (the lock is stuck, the process forked) is closed with the session.
    close_all(writers, {now_ns() + kCloseTimeoutNs, nullptr});
  } catch (const CorruptIndex&) {
    // Its hold has marked the segment failed: the next call of anybody says so, a destructor can not.
  }
}

Status StreamWriter::open_all(Writers writers, const Wait& wait) {
  const Status status = try_open_all(writers, wait);
  if (status != Status::kNoStreams) return status;
  uint32_t reaped = 0;  // the dead may have some, and nobody may have noticed yet
  if (const Status s = reap_dead_sessions(writers[0]->arena_, wait, reaped); s != Status::kOk) return s;
  return reaped > 0 ? try_open_all(writers, wait) : status;
}

Status StreamWriter::try_open_all(Writers writers, const Wait& wait) {
  for (size_t i = 0; i < writers.size();) {
    if (writers[i]->is_open()) {
      ++i;
      continue;
    }
    Hold hold(writers[i]->arena_);
    if (const Status s = enter_table(hold, writers[i]->table_, wait); s != Status::kOk) return s;
    for (; i < writers.size() && hold.room() >= kStreamEntries; ++i) {
      StreamWriter& w = *writers[i];
      // The rows of `history` finished steps and of the one being written touch at most this many chunks.
      const uint32_t chunk_steps = w.arena_.geometry().chunk_steps;
      const uint32_t max_chunks = (w.history_ + chunk_steps - 1) / chunk_steps + 1;
      uint32_t stream;
      if (w.is_open()) continue;
      if (const Status s = open_stream(hold, max_chunks, stream); s != Status::kOk) return s;
      w.serial_ = w.arena_.stream(stream).serial.get();
      w.stream_ = stream;
    }
  }
  return Status::kOk;
}

Status StreamWriter::close_all(Writers writers, const Wait& wait) {
  for (size_t i = 0; i < writers.size();) {
    if (!writers[i]->is_open()) {
      ++i;
      continue;
    }
    Hold hold(writers[i]->arena_);
    if (const Status s = hold.begin(wait); s != Status::kOk) return s;
    for (; i < writers.size() && hold.room() >= kGroup * (kDropRefEntries + 2) + kStreamEntries; ++i) {
      StreamWriter& w = *writers[i];
      if (w.is_open() && !close_stream(hold, w.stream_, kGroup)) break;
      w.stream_ = w.chunk_ = kNone;
      w.num_held_ = 0;
      w.row_is_open_ = false;
    }
  }
  return Status::kOk;
}

void StreamWriter::use_chunk(Hold& hold, uint32_t chunk) {
  extend_window(hold, stream_, chunk);
  chunk_ = chunk;
  row_ = 0;
  rows_in_chunk_ = arena_.geometry().chunk_steps;
  if (arena_.geometry().num_blocks > 0) row_values_.use_chunk(chunk);
}

// Gives those that want a chunk what can be had, and strikes them off.
Status StreamWriter::try_chunks(std::vector<StreamWriter*>& wanting, const Wait& wait, bool steal, bool& found) {
  StreamWriter& first = *wanting.front();
  found = false;
  size_t served = 0;
  for (bool is_dry = false; served < wanting.size() && !is_dry;) {
    Hold hold(first.arena_);
    if (const Status s = enter_table(hold, first.table_, wait); s != Status::kOk) return s;
    for (; served < wanting.size() && !is_dry && hold.room() >= kChunkEntries; ++served) {
      StreamWriter& w = *wanting[served];
      const uint32_t last = w.arena_.stream(w.stream_).window.get().last;
      const uint32_t c = steal ? steal_chunk(hold, w.arena_.session_index(), w.serial_, last)
                               : take_chunk(hold, w.arena_.session_index(), w.serial_, last);
      is_dry = c == kNone;
      if (is_dry) break;
      w.use_chunk(hold, c);
      found = true;
    }
  }
  wanting.erase(wanting.begin(), wanting.begin() + static_cast<ptrdiff_t>(served));
  return Status::kOk;
}

// A chunk for each of them, as far as there are any; with `must` it waits for the first one's.
Status StreamWriter::take_chunks(std::vector<StreamWriter*>& wanting, bool must, const Wait& wait) {
  StreamWriter& first = *wanting.front();
  Arena& arena = first.arena_;
  const int64_t since = now_ns();
  first.blocking_table_ = kNone;  // what this waits for is room, whatever kept an item waiting before
  for (;;) {
    bool found = false;
    if (const Status s = try_chunks(wanting, wait, false, found); s != Status::kOk) return s;
    if (wanting.empty()) return Status::kOk;
    must &= wanting.front() == &first;
    if (wait.try_only) return must ? Status::kTimeout : Status::kOk;
    bool made = false;
    if (const Status s = reclaim_room(arena, wait, made); s != Status::kOk) return s;
    if (made) continue;
    if (const Status s = try_chunks(wanting, wait, true, found); s != Status::kOk || wanting.empty()) return s;
    if (found) continue;
    if (const Status s = evict_for_room(arena, wait, made); s != Status::kOk) return s;
    if (made) continue;
    if (!must) return Status::kOk;
    if (first.table_.on_full == kOnFullError) return Status::kArenaFull;
    const Status s = wait_for_room(arena, first.table_, wait, since, [&] { return arena.state().num_free.get() > 0; });
    if (s != Status::kOk) return s;
  }
}

Status StreamWriter::ensure_rows(Writers writers, const Wait& wait, uint32_t& ready) {
  const auto has_row = [](const StreamWriter* w) { return w->row_is_open_ || w->rows_left() > 0; };
  ready = 0;
  std::vector<StreamWriter*> wanting;
  std::copy_if(writers.begin(), writers.end(), std::back_inserter(wanting), [&](StreamWriter* w) { return !has_row(w); });
  if (!wanting.empty()) {
    if (const Status s = take_chunks(wanting, !has_row(writers.front()), wait); s != Status::kOk) return s;
  }
  for (; ready < writers.size() && has_row(writers[ready]); ++ready) {
    if (!writers[ready]->row_is_open_) writers[ready]->begin_row();
  }
  return Status::kOk;
}

void StreamWriter::begin_row() {
  for (const uint32_t c : arena_.mutable_columns()) mutable_cell(c, row_).begin();
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
  for (uint32_t w = 0; w < present_.size(); ++w) present_[w] = ~uint64_t{0} >> (64 - std::min(num_present_ - 64 * w, 64u));
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
    for (; done < n && done - before < kInsertGroup && (!items->counted || can_insert(*t.record, 1)); ++done) {
      if (done > before && hold.room() < insert_entries(t, chunks) + kMaxOutputs) break;
      NewItem& item = items[done];
      item.priority = priorities[done] < 0 ? fallback : priorities[done];
      item.pattern = p.record;
      if (!item.own_episode) {
        item.episode = episode_;
        item.episode_slot = episode_slots_[t.index];
      }
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
                                 const Wait& wait, int64_t* keys, uint32_t& done, RowsKind kind) {
  done = 0;
  while (done < n) {
    const uint32_t k = std::min(n - done, kInsertGroup);
    for (uint32_t i = 0; i < k; ++i) {
      items_[i] = NewItem{};
      items_[i].place = {chunk_, row_ + i};
      items_[i].num_steps = 1;
      items_[i].own_episode = !kind.in_episode;
      items_[i].counted = kind.counted;
      items_[i].step = kind.in_episode ? static_cast<int64_t>(episode_steps_ + i) : 0;
      if (kind.values != nullptr) items_[i].values = kind.values[done + i];
    }
    mark_all();
    for (uint32_t i = 0; i < k; ++i) {
      for (uint32_t w = 0; w < present_.size(); ++w) {
        arena_.presence(chunk_, row_ + i, w).store(present_[w], std::memory_order_relaxed);
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
    if (kind.in_episode) {
      finished_ += went_in;
      episode_steps_ += went_in;
    }
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

int64_t StreamWriter::put_in(Hold& hold, const DueItem& due, bool counted) {
  const TableFacts& t = arena_.table(due.table);
  NewItem item = item_of(due);
  item.counted = counted;
  if (item.priority < 0) item.priority = default_priority(hold, t);
  item.pattern = due.pattern->record;
  note_insert(hold, t, *due.pattern, item);
  const Inserted in = insert_item(hold, t, item);
  episode_ = in.episode;
  episode_slots_[due.table] = in.episode_slot;
  return in.key;
}

uint32_t StreamWriter::num_chunks(const DueItem& due) const {
  const Place at = place_of(due.first);
  const uint64_t least = (uint64_t{at.row} + due.num_steps - 1) / arena_.geometry().chunk_steps + 1;
  return least > kMaxItemChunks ? kMaxItemChunks + 1 : count_chunks(arena_, at, due.num_steps);
}

Status StreamWriter::insert_due(DueItem* due, uint32_t n, const Wait& wait, int64_t* keys, uint32_t& done) {
  DueRun run{this, due, keys, n};
  const Status s = DueInsert(arena_, {&run, 1}, wait).run();
  done = run.done;
  return s;
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
