#include "sessions/sessions.h"

#include <optional>

#include "arena/session_counts.h"
#include "base/process.h"
#include "chunks/chunk_pool.h"
#include "chunks/leases.h"
#include "chunks/save_lease.h"
#include "chunks/streams.h"
#include "sessions/blocked.h"

namespace shmreplay {
namespace {

constexpr uint32_t kSlice = 32;  // streams, slots or chunks in one hold

void free_record(Hold& hold, uint32_t index) {
  SessionRecord& r = hold.arena().session(index);
  hold.set(r.process, {0, 0});
  hold.set(r.start_time, 0);
  hold.set(r.state, {kSessionFree, r.state.get().generation});
}

// One slice of the work; true when all of it is done.
class Reaper {
 public:
  Reaper(Arena& arena, uint32_t index, uint32_t generation) : arena_(arena), index_(index), generation_(generation) {}

  bool slice(Hold& hold) {
    if (!close_streams_of(hold, index_, generation_, streams_, kSlice)) return false;
    if (!remove_sleepers_of(hold, index_, sleepers_, kSlice)) return false;
    if (!drop_leases_of(arena_, index_, generation_, leases_, kSlice)) return false;
    drop_save_lease_of(arena_, index_, generation_);
    if (!release_free_chunks(hold, index_, kSlice)) return false;
    free_record(hold, index_);
    return true;
  }

 private:
  Arena& arena_;
  uint32_t index_, generation_;
  uint32_t streams_ = 0, sleepers_ = 0, leases_ = 0;
};

std::optional<SessionInfo> live_session(const Arena& arena, uint32_t index) {
  const SessionRecord& r = arena.session(index);
  const StateGeneration state = r.state.get();
  if (state.state == kSessionFree) return std::nullopt;
  return SessionInfo{index, state.generation, r.process.get().pid, r.process.get().role, r.start_time.get()};
}

Status reap_dead(Arena& arena, const std::vector<SessionInfo>& sessions, const Wait& wait, uint32_t& reaped) {
  reaped = 0;
  for (const SessionInfo& info : sessions) {
    if (!process_is_dead(info.pid, info.start_time)) continue;
    bool done = false;
    if (const Status s = close_session(arena, info.index, info.generation, wait, done); s != Status::kOk) return s;
    reaped += done ? 1 : 0;
  }
  return Status::kOk;
}

}  // namespace

Status open_session(Arena& arena, uint32_t pid, uint64_t start_time, uint32_t role, const Wait& wait,
                    SessionInfo& out) {
  Hold hold(arena);
  if (const Status s = hold.begin(wait); s != Status::kOk) return s;
  for (uint32_t i = 0; i < arena.geometry().max_sessions; ++i) {
    SessionRecord& r = arena.session(i);
    const StateGeneration state = r.state.get();
    if (state.state != kSessionFree) continue;
    hold.set(r.process, {pid, role});
    hold.set(r.start_time, start_time);
    hold.set(r.first_take, arena.state().next_take.get());
    clear_counts(r);
    hold.set(r.state, {kSessionAlive, state.generation + 1});
    out = {i, state.generation + 1, pid, role, start_time};
    return Status::kOk;
  }
  return Status::kNoSessions;
}

Status close_session(Arena& arena, uint32_t index, uint32_t generation, const Wait& wait, bool& reaped) {
  reaped = false;
  Reaper reaper(arena, index, generation);
  for (bool done = false; !done;) {
    Hold hold(arena);
    if (const Status s = hold.begin(wait); s != Status::kOk) return s;
    SessionRecord& r = arena.session(index);
    const StateGeneration state = r.state.get();
    if (state.generation != generation || state.state == kSessionFree) return Status::kOk;
    hold.set(r.state, {kSessionReaping, generation});
    done = reaper.slice(hold);
  }
  reaped = true;
  return Status::kOk;
}

std::vector<SessionInfo> live_sessions(const Arena& arena) {
  std::vector<SessionInfo> sessions;
  for (uint32_t i = 0; i < arena.geometry().max_sessions; ++i) {
    if (const auto info = live_session(arena, i)) sessions.push_back(*info);
  }
  return sessions;
}

Status reap_dead_sessions(Arena& arena, const Wait& wait, uint32_t& reaped) {
  return reap_dead(arena, live_sessions(arena), wait, reaped);
}

Status reap_dead_readers(Arena& arena, const Wait& wait, uint32_t& reaped) {
  reaped = 0;
  if (arena.state().num_retired.get() == 0) return Status::kOk;
  std::vector<SessionInfo> readers;
  for (const uint32_t index : sessions_that_name_chunks(arena)) {
    if (index == arena.session_index()) continue;
    if (const auto info = live_session(arena, index)) readers.push_back(*info);
  }
  return reap_dead(arena, readers, wait, reaped);
}

}  // namespace shmreplay
