#include "stream_writer.h"

#include <algorithm>
#include <bit>
#include <optional>

#include "chunk_pool.h"
#include "futex.h"
#include "sessions.h"
#include "streams.h"

namespace shmreplay {
namespace {

constexpr uint32_t kInsertGroup = 32;    // items a hold
constexpr uint32_t kEvictScan = 256;     // chunks looked at a hold
constexpr uint32_t kEvictAtOnce = 8;     // chunks evicted before the next scan of the leases
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
      present_(arena.geometry().presence_words, 0),
      held_(std::max(history, 1u)),
      held_present_(size_t{std::max(history, 1u)} * arena.geometry().presence_words, 0),
      episode_slots_(arena.num_tables(), kNone),
      noted_(arena.num_tables(), Noted{0, 0}) {}

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
  const Status status = try_open(wait);
  if (status != Status::kNoStreams) return status;
  uint32_t reaped = 0;  // the dead may have some, and nobody may have noticed yet
  if (const Status s = reap_dead_sessions(arena_, wait, reaped); s != Status::kOk) return s;
  return reaped > 0 ? try_open(wait) : status;
}

Status StreamWriter::try_open(const Wait& wait) {
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

Status StreamWriter::evict_for_room(const Wait& wait, bool& found) {
  found = false;
  const uint32_t want = std::clamp(arena_.geometry().num_chunks / 32, 1u, kEvictAtOnce);
  const uint64_t most_looks = uint64_t{want} * (arena_.geometry().num_chunks / kEvictScan + 2);
  uint32_t cursor = kNone;
  uint64_t looks = 0;  // a list that leads back into itself has no end
  for (uint32_t evicted = 0; evicted < want;) {
    uint32_t chunk;
    if (looks++ > most_looks) return Status::kOk;
    {
      Hold hold(arena_);
      if (const Status s = hold.begin(wait); s != Status::kOk) return s;
      chunk = find_evictable(hold, cursor, kEvictScan);
    }
    if (chunk == kNone && cursor == kNone) return Status::kOk;
    if (chunk == kNone) continue;
    for (bool done = false; !done;) {
      Hold hold(arena_);
      if (const Status s = hold.begin(wait); s != Status::kOk) return s;
      // Somebody else may have been at it since.
      const ChunkRecord& r = arena_.chunk(chunk);
      if (r.life.get().state != kChunkUsed || r.refs.get().windows != 0 || r.items.get().consuming != 0) break;
      done = evict_chunk_slice(hold, chunk);
    }
    found = true;
    ++evicted;
    cursor = kNone;
  }
  return Status::kOk;
}

Status StreamWriter::take_chunk(const Wait& wait) {
  const int64_t since = now_ns();
  blocking_table_ = kNone;  // what this waits for is room, whatever kept an item waiting before
  for (;;) {
    bool found = false;
    if (const Status s = try_chunk(wait, false, found); s != Status::kOk || found) return s;
    if (wait.try_only) return Status::kTimeout;
    uint32_t freed = 0;
    if (const Status s = reclaim(arena_, wait, freed); s != Status::kOk) return s;
    if (freed > 0) continue;
    if (const Status s = try_chunk(wait, true, found); s != Status::kOk || found) return s;
    if (const Status s = evict_for_room(wait, found); s != Status::kOk) return s;
    if (found) {
      if (wait.patience != nullptr) wait.patience->evicted_for_room();
      continue;
    }
    if (table_.on_full == kOnFullError) return Status::kArenaFull;
    const Status s = wait_for_chunk(arena_, wait, since, [&](bool& again) {
      uint32_t n = 0;
      Status status = reap_dead_sessions(arena_, wait, n);
      again = n > 0;
      if (status == Status::kOk && !again) status = reclaim(arena_, wait, n);
      // Others may have reclaimed since our look and taken less than they freed; nobody would wake us for the rest.
      again |= n > 0 || arena_.state().num_free.get() > 0;
      // What became evictable since, or that the table is gone, no chunk's wake tells of.
      if (status == Status::kOk && !again) status = evict_for_room(wait, again);
      again |= (table_.record->flags.get() & kDropped) != 0;
      return status;
    });
    if (s != Status::kOk) return s;
  }
}

Status StreamWriter::ensure_row(const Wait& wait) {
  if (row_is_open_) return Status::kOk;
  if (rows_left() == 0) {
    if (const Status s = take_chunk(wait); s != Status::kOk) return s;
  }
  begin_row();
  return Status::kOk;
}

void StreamWriter::begin_row() noexcept {
  std::fill(present_.begin(), present_.end(), 0);
  num_present_ = 0;
}

void StreamWriter::mark(uint32_t column) noexcept {
  row_is_open_ = true;
  present_[column / 64] |= uint64_t{1} << (column % 64);
  ++num_present_;
}

void StreamWriter::restore_row(const std::vector<uint64_t>& present) noexcept {
  present_ = present;
  num_present_ = 0;
  for (const uint64_t word : present_) num_present_ += static_cast<uint32_t>(std::popcount(word));
  row_is_open_ = num_present_ > 0;
}

void StreamWriter::finish_row() noexcept {
  for (uint32_t w = 0; w < present_.size(); ++w) {
    // Relaxed: read only by who holds an item of this row, behind the lock.
    arena_.presence(chunk_, row_, w).store(present_[w], std::memory_order_relaxed);
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
                                 const Wait& wait, int64_t* keys, uint32_t& done) {
  NewItem items[kInsertGroup];
  done = 0;
  while (done < n) {
    const uint32_t k = std::min(n - done, kInsertGroup);
    for (uint32_t i = 0; i < k; ++i) {
      items[i] = NewItem{};
      items[i].place = {chunk_, row_ + i};
      items[i].num_steps = 1;
      items[i].own_episode = true;
    }
    for (uint32_t i = 0; i < k; ++i) {
      for (uint32_t w = 0; w < present_.size(); ++w) {
        const uint32_t columns = std::min(arena_.geometry().num_columns - 64 * w, 64u);
        arena_.presence(chunk_, row_ + i, w).store(~uint64_t{0} >> (64 - columns), std::memory_order_relaxed);
      }
    }
    uint32_t went_in = 0;
    const Status s = insert(t, p, items, priorities + done, k, wait, keys + done, went_in);
    done += went_in;
    row_ += went_in;
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
                                 const Wait& wait, int64_t& key) {
  if (length == 0 || length > num_steps()) return Status::kHistory;
  DueItem due{t.index, &p, finished_ + (row_is_open_ ? 1 : 0) - length, length, {0, 0}, priority};
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
