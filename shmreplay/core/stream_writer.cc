#include "stream_writer.h"

#include <algorithm>

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
      episode_slots_(arena.num_tables(), kNone),
      noted_(arena.num_tables(), Noted{0, 0}) {}

StreamWriter::~StreamWriter() {
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
  uint32_t cursor = kNone;
  for (uint32_t evicted = 0; evicted < want;) {
    uint32_t chunk;
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

void StreamWriter::finish_row() noexcept {
  for (uint32_t w = 0; w < present_.size(); ++w) {
    // Relaxed: read only by who holds an item of this row, behind the lock.
    arena_.presence(chunk_, row_, w).store(present_[w], std::memory_order_relaxed);
  }
  row_is_open_ = false;
  if (history_ > 0) {
    newest_ = newest_ + 1 == history_ ? 0 : newest_ + 1;
    held_[newest_] = {chunk_, row_};
    num_held_ = std::min(num_held_ + 1, history_);
    num_whole_ = lacks_any() ? 0 : std::min(num_whole_ + 1, history_);
  }
  ++row_;
  ++episode_steps_;
}

Place StreamWriter::place_of(uint32_t steps_back) const noexcept {
  if (row_is_open_) {
    if (steps_back == 1) return {chunk_, row_};
    --steps_back;
  }
  const uint32_t at = newest_ + history_ - (steps_back - 1);
  return held_[at >= history_ ? at - history_ : at];
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
      const uint64_t positions = uint64_t{item.padding.before} + item.num_steps + item.padding.after;
      if (noted_[t.index].pattern_hash != p.hash || noted_[t.index].positions != positions) {
        note_lengths(hold, t, p.pattern, positions);
        noted_[t.index] = {p.hash, positions};
      }
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

Status StreamWriter::create_item(const TableFacts& t, PreparedPattern& p, uint32_t length, double priority,
                                 const Wait& wait, int64_t& key) {
  if (length == 0 || length > num_steps()) return Status::kHistory;
  NewItem item;
  item.place = place_of(length);
  item.num_steps = length;
  item.episode = episode_;
  item.episode_slot = episode_slots_[t.index];
  item.step = static_cast<int64_t>(episode_steps_ + (row_is_open_ ? 1 : 0)) - length;
  const uint32_t per_chunk = arena_.geometry().chunk_steps;
  if ((item.place.row + length + per_chunk - 1) / per_chunk > kMaxItemChunks) return Status::kTooManyChunks;
  uint32_t done = 0;
  return insert(t, p, &item, &priority, 1, wait, &key, done);
}

void StreamWriter::end_episode(bool clear_history) noexcept {
  if (row_is_open_) finish_row();
  if (clear_history) num_held_ = 0;
  episode_steps_ = 0;
  episode_ = 0;
  std::fill(episode_slots_.begin(), episode_slots_.end(), kNone);
}

}  // namespace shmreplay
