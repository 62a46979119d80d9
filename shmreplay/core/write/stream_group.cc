#include "write/stream_group.h"

#include <algorithm>
#include <iterator>

#include "arena/hold.h"
#include "chunks/streams.h"
#include "items/enter_table.h"

namespace shmreplay {
namespace {

constexpr uint32_t kStreamEntries = 16;  // log entries that opening a stream, or closing one without chunks, needs
constexpr uint32_t kChunkEntries = 64;   // and a chunk taken, with what leaves the window for it
constexpr int64_t kCloseTimeoutNs = 5 * kSliceNs;

}  // namespace

void StreamGroup::give_up() noexcept {
  if (writers_.empty() || writers_.front()->arena_.forked()) return;
  try {
    // What this can not close (the lock is stuck, the process forked) is closed with the session.
    close({now_ns() + kCloseTimeoutNs, nullptr});
  } catch (const CorruptIndex&) {
    // Its hold has marked the segment failed: the next call of anybody says so, a destructor can not.
  }
}

Status StreamGroup::open(const Wait& wait) {
  const Status status = try_open(wait);
  if (status != Status::kNoStreams) return status;
  uint32_t reaped = 0;  // the dead may have some, and nobody may have noticed yet
  if (const Status s = reap_dead_sessions(writers_[0]->arena_, wait, reaped); s != Status::kOk) return s;
  return reaped > 0 ? try_open(wait) : status;
}

Status StreamGroup::try_open(const Wait& wait) {
  for (size_t i = 0; i < writers_.size();) {
    if (writers_[i]->is_open()) {
      ++i;
      continue;
    }
    Hold hold(writers_[i]->arena_);
    if (const Status s = enter_table(hold, writers_[i]->table_, wait); s != Status::kOk) return s;
    for (; i < writers_.size() && hold.room() >= kStreamEntries; ++i) {
      StreamWriter& w = *writers_[i];
      uint32_t stream;
      if (w.is_open()) continue;
      if (const Status s = open_stream(hold, w.max_chunks(), stream); s != Status::kOk) return s;
      w.serial_ = w.arena_.stream(stream).serial.get();
      w.stream_ = stream;
    }
  }
  return Status::kOk;
}

Status StreamGroup::close(const Wait& wait) {
  for (size_t i = 0; i < writers_.size();) {
    if (!writers_[i]->is_open()) {
      ++i;
      continue;
    }
    Hold hold(writers_[i]->arena_);
    if (const Status s = hold.begin(wait); s != Status::kOk) return s;
    for (; i < writers_.size() && hold.room() >= kGroup * (kDropRefEntries + 2) + kStreamEntries; ++i) {
      StreamWriter& w = *writers_[i];
      if (w.is_open() && !close_stream(hold, w.stream_, kGroup)) break;
      w.stream_ = w.chunk_ = kNone;
      w.num_held_ = 0;
      w.row_is_open_ = false;
    }
  }
  return Status::kOk;
}

// Gives those that want a chunk what can be had, and strikes them off.
Status StreamGroup::try_chunks(std::vector<StreamWriter*>& wanting, const Wait& wait, Take take) {
  StreamWriter& first = *wanting.front();
  size_t served = 0;
  for (bool is_dry = false; served < wanting.size() && !is_dry;) {
    Hold hold(first.arena_);
    if (const Status s = enter_table(hold, first.table_, wait); s != Status::kOk) return s;
    for (; served < wanting.size() && !is_dry && hold.room() >= kChunkEntries; ++served) {
      StreamWriter& w = *wanting[served];
      const uint32_t last = w.arena_.stream(w.stream_).window.get().last;
      const uint32_t c = take == Take::kOwn ? take_chunk(hold, w.arena_.session_index(), w.serial_, last)
                                            : steal_chunk(hold, w.arena_.session_index(), w.serial_, last);
      is_dry = c == kNone;
      if (is_dry) break;
      w.use_chunk(hold, c);
    }
  }
  wanting.erase(wanting.begin(), wanting.begin() + static_cast<ptrdiff_t>(served));
  return Status::kOk;
}

// The same with chunks that follow one another.
Status StreamGroup::try_run(std::vector<StreamWriter*>& wanting, const Wait& wait) {
  const StreamWriter& first = *wanting.front();
  uint32_t near = kNone;
  for (bool is_dry = false; !wanting.empty() && !is_dry;) {
    Hold hold(first.arena_);
    if (const Status s = enter_table(hold, first.table_, wait); s != Status::kOk) return s;
    const auto wanted = static_cast<uint32_t>(wanting.size());
    const uint32_t n = std::min(wanted, hold.room() / kChunkEntries);
    uint32_t c = take_run(hold, first.arena_.session_index(), n, wanted, near);
    is_dry = c == kNone;
    for (uint32_t i = 0; i < n && !is_dry; ++i, ++c) {
      StreamWriter& w = *wanting[i];
      start_chunk(hold, c, w.arena_.session_index(), w.serial_, w.arena_.stream(w.stream_).window.get().last);
      w.use_chunk(hold, c);
    }
    if (!is_dry) wanting.erase(wanting.begin(), wanting.begin() + n);
    near = c;
  }
  return Status::kOk;
}

// So that items of the same steps of all streams lie at one stride. As far as that goes without taking anything from
// anybody.
Status StreamGroup::take_side_by_side(std::vector<StreamWriter*>& wanting, const Wait& wait) {
  if (const Status s = try_run(wanting, wait); s != Status::kOk || wanting.empty() || wait.try_only) return s;
  bool made = false;
  if (const Status s = reclaim_room(wanting.front()->arena_, wait, made); s != Status::kOk || !made) return s;
  return try_run(wanting, wait);
}

// A chunk for each of them, as far as there are any; with `must` it waits for the first one's.
Status StreamGroup::take_chunks(std::vector<StreamWriter*>& wanting, bool must, const Wait& wait) {
  StreamWriter& first = *wanting.front();
  const Arena& arena = first.arena_;
  if (first.unrolls() && wanting.size() > 1) {
    if (const Status s = take_side_by_side(wanting, wait); s != Status::kOk || wanting.empty()) return s;
  }
  first.blocking_table_ = kNone;  // what this waits for is room, whatever kept an item waiting before
  const auto try_take = [&](Take take, bool& done) {
    const Status s = try_chunks(wanting, wait, take);
    done = wanting.empty();
    return s;
  };
  const auto can_do_without = [&] { return !must || wanting.front() != &first; };
  return take_room(first.arena_, first.table_, wait, try_take, can_do_without,
                   [&] { return arena.state().num_free.get() > 0; });
}

Status StreamGroup::ensure_rows(const Wait& wait, uint32_t& ready) {
  const auto has_row = [](const StreamWriter* w) { return w->row_is_open_ || w->rows_left() > 0; };
  ready = 0;
  std::vector<StreamWriter*> wanting;
  std::copy_if(writers_.begin(), writers_.end(), std::back_inserter(wanting),
               [&](StreamWriter* w) { return !has_row(w); });
  if (!wanting.empty()) {
    if (const Status s = take_chunks(wanting, !has_row(writers_.front()), wait); s != Status::kOk) return s;
  }
  for (; ready < writers_.size() && has_row(writers_[ready]); ++ready) {
    if (!writers_[ready]->row_is_open_) writers_[ready]->begin_row();
  }
  return Status::kOk;
}

}  // namespace shmreplay
