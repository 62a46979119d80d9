#include "sessions/sessions.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "arena/session_counts.h"
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

}  // namespace

uint64_t process_start_time(uint32_t pid) noexcept {
  char path[32], text[1024];
  snprintf(path, sizeof path, "/proc/%u/stat", pid);
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  const ssize_t n = read(fd, text, sizeof text - 1);
  close(fd);
  if (n <= 0) return 0;
  text[n] = 0;
  const char* at = strrchr(text, ')');  // the command may hold spaces and brackets
  unsigned long long start = 0;
  // Fields after the command: state is the 3rd, start time the 22nd.
  if (at == nullptr ||
      sscanf(at + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu", &start) !=
          1) {
    return 0;
  }
  return start;
}

bool process_is_dead(uint32_t pid, uint64_t start_time) noexcept {
  const auto fd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  if (fd < 0) return errno == ESRCH;  // any other error proves nothing
  pollfd p{fd, POLLIN, 0};
  const bool ended = poll(&p, 1, 0) == 1 && (p.revents & POLLIN) != 0;
  close(fd);
  if (ended) return true;
  const uint64_t now = start_time == 0 ? 0 : process_start_time(pid);
  return now != 0 && now != start_time;  // the pid belongs to another process now
}

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
    const SessionRecord& r = arena.session(i);
    const StateGeneration state = r.state.get();
    if (state.state == kSessionFree) continue;
    sessions.push_back({i, state.generation, r.process.get().pid, r.process.get().role, r.start_time.get()});
  }
  return sessions;
}

Status reap_dead_sessions(Arena& arena, const Wait& wait, uint32_t& reaped) {
  reaped = 0;
  for (const SessionInfo& info : live_sessions(arena)) {
    if (!process_is_dead(info.pid, info.start_time)) continue;
    bool done = false;
    if (const Status s = close_session(arena, info.index, info.generation, wait, done); s != Status::kOk) return s;
    reaped += done ? 1 : 0;
  }
  return Status::kOk;
}

}  // namespace shmreplay
