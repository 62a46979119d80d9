#include "write/stream_group.h"

#include <algorithm>
#include <iterator>

#include "items/enter_table.h"

namespace shmreplay {
namespace {

constexpr uint32_t kStreamEntries = 16;  // log entries for opening a stream, or for closing one without chunks
constexpr uint32_t kChunkEntries = 64;   // log entries for taking a chunk, and for what leaves the window then
constexpr int64_t kCloseTimeoutNs = 5 * kSliceNs;

}  // namespace

void StreamGroup::give_up() noexcept {
  if (streams_.empty() || streams_.front()->arena().forked()) return;
  try {
    // What this cannot close (the lock is stuck, the process forked) is closed when the session ends.
    close({now_ns() + kCloseTimeoutNs, nullptr});
  } catch (const CorruptIndex&) {
    // The hold has marked the segment failed, and the next call of any process says so. A destructor cannot.
  }
}

Status StreamGroup::open(const Wait& wait) {
  const Status status = try_open(wait);
  if (status != Status::kNoStreams) return status;
  uint32_t reaped = 0;  // dead sessions that nobody has noticed yet may have streams
  if (const Status s = reap_dead_sessions(streams_[0]->arena(), wait, reaped); s != Status::kOk) return s;
  return reaped > 0 ? try_open(wait) : status;
}

Status StreamGroup::try_open(const Wait& wait) {
  for (size_t i = 0; i < streams_.size();) {
    if (streams_[i]->is_open()) {
      ++i;
      continue;
    }
    Hold hold(streams_[i]->arena());
    if (const Status s = enter_table(hold, streams_[i]->table(), wait); s != Status::kOk) return s;
    for (; i < streams_.size() && hold.room() >= kStreamEntries; ++i) {
      if (streams_[i]->is_open()) continue;
      if (const Status s = streams_[i]->open(hold); s != Status::kOk) return s;
    }
  }
  return Status::kOk;
}

Status StreamGroup::close(const Wait& wait) {
  for (size_t i = 0; i < streams_.size();) {
    if (!streams_[i]->is_open()) {
      ++i;
      continue;
    }
    Hold hold(streams_[i]->arena());
    if (const Status s = hold.begin(wait); s != Status::kOk) return s;
    for (; i < streams_.size() && hold.room() >= kGroup * (kDropRefEntries + 2) + kStreamEntries; ++i) {
      if (!streams_[i]->close(hold, kGroup)) break;
    }
  }
  return Status::kOk;
}

// Gives a chunk to each of the streams, from the first on, while there are chunks. Those that got one leave `wanting`.
Status StreamGroup::try_chunks(Wanting& wanting, const Wait& wait, Take take) {
  StreamSteps& first = *wanting.front();
  const uint32_t session = first.arena().session_index();
  size_t served = 0;
  for (bool is_dry = false; served < wanting.size() && !is_dry;) {
    Hold hold(first.arena());
    if (const Status s = enter_table(hold, first.table(), wait); s != Status::kOk) return s;
    for (; served < wanting.size() && !is_dry && hold.room() >= kChunkEntries; ++served) {
      StreamSteps& stream = *wanting[served];
      const uint32_t last = stream.last_chunk();
      const uint32_t c = take == Take::kOwn ? take_chunk(hold, session, stream.serial(), last)
                                            : steal_chunk(hold, session, stream.serial(), last);
      is_dry = c == kNone;
      if (is_dry) break;
      stream.use_chunk(hold, c);
    }
  }
  wanting.erase(wanting.begin(), wanting.begin() + static_cast<ptrdiff_t>(served));
  return Status::kOk;
}

// The same with chunks that lie one after another.
Status StreamGroup::try_run(Wanting& wanting, const Wait& wait) {
  const StreamSteps& first = *wanting.front();
  const uint32_t session = first.arena().session_index();
  uint32_t near = kNone;
  for (bool is_dry = false; !wanting.empty() && !is_dry;) {
    Hold hold(first.arena());
    if (const Status s = enter_table(hold, first.table(), wait); s != Status::kOk) return s;
    const auto wanted = static_cast<uint32_t>(wanting.size());
    const uint32_t n = std::min(wanted, hold.room() / kChunkEntries);
    uint32_t c = take_run(hold, session, n, wanted, near);
    is_dry = c == kNone;
    for (uint32_t i = 0; i < n && !is_dry; ++i, ++c) {
      StreamSteps& stream = *wanting[i];
      start_chunk(hold, c, session, stream.serial(), stream.last_chunk());
      stream.use_chunk(hold, c);
    }
    if (!is_dry) wanting.erase(wanting.begin(), wanting.begin() + n);
    near = c;
  }
  return Status::kOk;
}

// Takes chunks that lie one after another, so that items of the same steps of all streams lie at one stride. Takes no
// chunk that another session keeps.
Status StreamGroup::take_side_by_side(Wanting& wanting, const Wait& wait) {
  if (const Status s = try_run(wanting, wait); s != Status::kOk || wanting.empty() || wait.try_only) return s;
  bool made = false;
  if (const Status s = reclaim_room(wanting.front()->arena(), wait, made); s != Status::kOk || !made) return s;
  return try_run(wanting, wait);
}

// Takes a chunk for each of them, while there are any. With `must` it waits for the first one's.
Status StreamGroup::take_chunks(Wanting& wanting, bool must, const Wait& wait) {
  StreamSteps& first = *wanting.front();
  Arena& arena = first.arena();
  if (first.unrolls() && wanting.size() > 1) {
    if (const Status s = take_side_by_side(wanting, wait); s != Status::kOk || wanting.empty()) return s;
  }
  first.note_blocking(kNone);  // the call waits for room now, whatever kept an item waiting before
  const auto try_take = [&](Take take, bool& done) {
    const Status s = try_chunks(wanting, wait, take);
    done = wanting.empty();
    return s;
  };
  const auto can_do_without = [&] { return !must || wanting.front() != &first; };
  return take_room(arena, first.table(), wait, try_take, can_do_without,
                   [&] { return arena.state().num_free.get() > 0; });
}

Status StreamGroup::ensure_rows(const Wait& wait, uint32_t& ready) {
  ready = 0;
  Wanting wanting;
  std::copy_if(streams_.begin(), streams_.end(), std::back_inserter(wanting),
               [](StreamSteps* stream) { return !stream->has_row(); });
  if (!wanting.empty()) {
    if (const Status s = take_chunks(wanting, !streams_.front()->has_row(), wait); s != Status::kOk) return s;
  }
  for (; ready < streams_.size() && streams_[ready]->has_row(); ++ready) streams_[ready]->begin_row();
  return Status::kOk;
}

}  // namespace shmreplay
