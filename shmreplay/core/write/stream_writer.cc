#include "write/stream_writer.h"

#include <algorithm>
#include <bit>

#include "arena/admission.h"
#include "arena/session_counts.h"
#include "arena/span.h"
#include "base/mutable_cell.h"
#include "base/row_copy.h"
#include "chunks/streams.h"
#include "items/enter_table.h"
#include "items/item_run.h"
#include "write/due_insert.h"
#include "write/stream_group.h"

namespace shmreplay {
namespace {

constexpr uint64_t kPrefetchedBytes = 512;  // of a cell; the processor sees by itself how a longer copy goes on

uint32_t count_chunks(const Arena& arena, Place place, uint32_t num_steps) {
  uint32_t n = 0;
  each_run(arena, place, num_steps, [&n](uint32_t, uint32_t, uint32_t) { ++n; });
  return n;
}

}  // namespace

StreamWriter::StreamWriter(Arena& arena, const TableFacts& table, uint32_t history, uint32_t slack)
    : arena_(arena),
      table_(table),
      history_(history),
      slack_(slack),
      base_present_(arena.geometry().presence_words, 0),
      present_(base_present_),
      held_(std::max(history, 1u) + slack),
      held_present_(held_.size() * arena.geometry().presence_words, 0),
      episode_slots_(arena.num_tables(), kNone),
      noted_(arena.num_tables(), Noted{0, 0}),
      items_(kInsertGroup),
      row_values_(arena, table),
      item_values_(arena, table) {
  packer_of_.resize(arena.geometry().num_columns, kNone);
  for (uint32_t c = 0; c < arena.geometry().num_columns; ++c) {
    if (arena.columns()[c].packed_bytes == 0) continue;
    packer_of_[c] = static_cast<uint32_t>(packers_.size());
    packers_.emplace_back(arena.columns()[c].packed_bytes);
  }
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

Status StreamWriter::open(const Wait& wait) {
  StreamWriter* const self = this;
  return StreamGroup({&self, 1}).open(wait);
}

Status StreamWriter::close(const Wait& wait) {
  StreamWriter* const self = this;
  return StreamGroup({&self, 1}).close(wait);
}

void StreamWriter::give_up() noexcept {
  StreamWriter* const self = this;
  StreamGroup({&self, 1}).give_up();
}

Status StreamWriter::ensure_row(const Wait& wait) {
  StreamWriter* const self = this;
  uint32_t ready = 0;
  return StreamGroup({&self, 1}).ensure_rows(wait, ready);
}

// The rows of `history_` finished steps, of those that items held back go back further, and of the one being written
// touch at most this many chunks. Where rows repeat, a chunk has a step less that no other has; the newest step is in
// the last one.
uint32_t StreamWriter::max_chunks() const noexcept {
  const uint32_t steps = history_ + slack_, chunk_steps = arena_.geometry().chunk_steps;
  if (!unroll_.repeats || steps == 0) return (steps + chunk_steps - 1) / chunk_steps + 1;
  return (steps - 1 + unroll_.steps - 1) / unroll_.steps + 1;
}

// Whether the newest step ends a run of steps and begins the next.
bool StreamWriter::repeats_newest() const noexcept {
  const uint64_t steps = finished_ - (unroll_.across ? stretch_start_ : episode_start());
  return unroll_.repeats && steps > 1 && (steps - 1) % unroll_.steps == 0;
}

void StreamWriter::use_chunk(Hold& hold, uint32_t chunk) {
  is_to_repeat_ = chunk_ != kNone && repeats_newest();
  if (chunk_ != kNone && (is_to_repeat_ || row_ < arena_.geometry().chunk_steps))
    close_chunk(hold, chunk_, row_, is_to_repeat_);
  extend_window(hold, stream_, chunk);
  chunk_ = chunk;
  row_ = is_to_repeat_ ? 1 : 0;
  rows_in_chunk_ = arena_.geometry().chunk_steps;
  if (arena_.geometry().num_blocks > 0) row_values_.use_chunk(chunk);
  for (RowPacker& p : packers_) p.forget();
}

// Rows of steps are not read by anybody before an item shows one behind the repeated one.
void StreamWriter::repeat_newest() {
  is_to_repeat_ = false;
  const uint64_t at = (finished_ - 1) % held_.size();
  const Place from = held_[at];
  for (uint32_t c = 0; c < arena_.columns().size(); ++c) {
    copy_row(arena_.row(chunk_, c, 0), arena_.row(from.chunk, c, from.row), arena_.columns()[c].row_bytes,
             arena_.exceeds_caches());
  }
  for (uint32_t w = 0; w < present_.size(); ++w) {
    // Relaxed: as in finish_row().
    arena_.presence(chunk_, 0, w).store(held_present_[at * present_.size() + w], std::memory_order_relaxed);
  }
  held_[at] = {chunk_, 0};
}

void StreamWriter::begin_row() {
  if (is_to_repeat_) repeat_newest();
  for (const uint32_t c : arena_.mutable_columns()) mutable_cell(c, row_).begin();
  std::copy(base_present_.begin(), base_present_.end(), present_.begin());
  num_present_ = num_base_;
}

void StreamWriter::prefetch_row() const {
  if (chunk_ == kNone || row_ == rows_in_chunk_) return;
  for (uint32_t c = 0; c < arena_.columns().size(); ++c) {
    const char* at = cell_ahead(c, 0);
    const uint64_t bytes = std::min<uint64_t>(arena_.columns()[c].row_bytes, kPrefetchedBytes);
    for (uint64_t i = 0; i < bytes; i += 64) __builtin_prefetch(at + i, 1);
  }
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
  for (uint32_t w = 0; w < present_.size(); ++w)
    present_[w] = ~uint64_t{0} >> (64 - std::min(num_present_ - 64 * w, 64u));
}

void StreamWriter::restore_row(const std::vector<uint64_t>& present) noexcept {
  num_present_ = 0;
  for (size_t w = 0; w < present_.size(); ++w) {
    present_[w] = present[w] | base_present_[w];
    num_present_ += static_cast<uint32_t>(std::popcount(present_[w]));
  }
  row_is_open_ = num_present_ > num_base_;
  row_values_.take_back([this](uint32_t row, uint32_t column) {
    const bool goes = row == row_ && column != kNone && !has(column);
    if (goes) forget_packed(column);
    return goes;
  });
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
    const uint64_t at = finished_ % held_.size();
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

Status StreamWriter::insert(const TableFacts& t, PreparedPattern& p, NewItem* items, const double* priorities,
                            uint32_t n, const Wait& wait, int64_t* keys, uint32_t& done) {
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
    for (uint32_t i = done; i < n; ++i) {
      items[i].priority = priorities[i] < 0 ? fallback : priorities[i];
      items[i].pattern = p.record;
    }
    while (done < n) {
      if (done > before && hold.room() < insert_entries(t, chunks) + kMaxOutputs) break;
      const uint32_t may = items->counted ? admitted_inserts(hold, *t.record, n - done) : n - done;
      if (may == 0) break;
      note_insert(hold, t, p, items[done]);
      done += put_in(hold, t, items + done, may, keys + done);
    }
    if (done > before) {
      hold.set(t.record->last_insert_ns, coarse_now_ns());
      count_own_inserts(hold, uint64_t{1} << t.index, done - before);
      continue;
    }
    if (wait.try_only) return Status::kTimeout;
    blocked.join(hold);
    hold.end();
    if (const Status s = blocked.sleep(); s != Status::kOk) return s;
  }
  return Status::kOk;
}

// The first of the items, or as many of them as go together: how many.
uint32_t StreamWriter::put_in(Hold& hold, const TableFacts& t, NewItem* items, uint32_t n, int64_t* keys) {
  NewItem& item = items[0];
  if (item.own_episode) {
    if (const uint32_t together = replace_oldest(hold, t, items, n, keys); together > 0) return together;
    keys[0] = insert_item(hold, t, item).key;
    return 1;
  }
  item.episode = episode_;
  item.episode_slot = episode_slots_[t.index];
  const Inserted in = insert_item(hold, t, item);
  episode_ = in.episode;
  episode_slots_[t.index] = in.episode_slot;
  keys[0] = in.key;
  return 1;
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

// Of its own stream, whose chunks are full but for the last: nothing has to be looked at.
uint32_t StreamWriter::num_chunks(const DueItem& due) const {
  const uint32_t steps = unroll_.repeats ? unroll_.steps : arena_.geometry().chunk_steps;
  const uint64_t n = (uint64_t{place_of(due.first).row} + due.num_steps - 1) / steps + 1;
  return static_cast<uint32_t>(std::min<uint64_t>(n, kMaxItemChunks + 1));
}

void StreamWriter::end_episode(bool clear_history) noexcept {
  if (row_is_open_) finish_row();
  if (clear_history) {
    num_held_ = 0;
    stretch_start_ = finished_;
    if (unrolls() && chunk_ != kNone && row_ > 0) rows_in_chunk_ = row_;  // the next one begins a chunk
  }
  episode_steps_ = 0;
  episode_ = 0;
  std::fill(episode_slots_.begin(), episode_slots_.end(), kNone);
}

}  // namespace shmreplay
