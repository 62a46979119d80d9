#include "explorer/explored_arena.h"

#include <cstdio>
#include <sys/mman.h>
#include <unistd.h>

#include "arena/formatter.h"
#include "sessions/sessions.h"
#include "support/harness.h"

namespace shmreplay::explorer {
namespace {

ArenaSpec spec_of(const TableSpec& table, uint32_t num_chunks, uint32_t sessions) {
  ArenaSpec s;
  s.columns = {{8, 0}};
  s.num_chunks = num_chunks;
  s.max_streams = ExploredArena::kSlots;
  s.max_sessions = sessions;
  s.specs = "opaque";
  s.tables = {table};
  return s;
}

constexpr Wait kWhatever{};

}  // namespace

TableSpec queue_of(uint32_t most) {
  TableSpec t;
  t.name = "queue";
  t.max_size = most;
  t.max_times_sampled = 1;
  t.sampler = t.remover = kFifo;
  t.min_diff = 0;
  t.max_diff = most;
  t.count_deletes = true;
  return t;
}

ExploredArena::ExploredArena(const std::vector<std::string>& names, const TableSpec& table, uint32_t num_chunks)
    : index_fd_(memfd_create("index", MFD_CLOEXEC)), data_fd_(memfd_create("data", MFD_CLOEXEC)) {
  const auto n = static_cast<uint32_t>(names.size());
  const ArenaSpec spec = spec_of(table, num_chunks, n);
  const Plan plan = plan_arena(spec);
  CHECK_EQ(ftruncate(index_fd_, static_cast<off_t>(plan.index_bytes)), 0);
  CHECK_EQ(ftruncate(data_fd_, static_cast<off_t>(plan.data_bytes)), 0);
  Formatter(index_fd_, data_fd_, spec).run("native", "explored");
  daemon_ = std::make_unique<Arena>(index_fd_, data_fd_, kNone, 0);
  explorer.segment(daemon_->index(), daemon_->index_bytes());
  for (uint32_t p = 0; p < n; ++p) {
    SessionInfo info{};
    CHECK_EQ(open_session(*daemon_, pid_of(p), 0, 0, kWhatever, info), Status::kOk);
    act_as(pid_of(p));
    arenas_.push_back(std::make_unique<Arena>(index_fd_, data_fd_, info.index, info.generation));
    act_as(0);
    explorer.mapping(arenas_.back()->index(), daemon_->index());
    // Its words say how long a gap between two holds is, and gaps are not explored.
    explorer.watch("mapping of " + names[p], arenas_.back().get(), sizeof(Arena), Memory::kReport);
  }
  watch_all();
}

ExploredArena::~ExploredArena() {
  close(index_fd_);
  close(data_fd_);
}

void ExploredArena::watch_all() {
  Arena& a = *daemon_;
  LockBlock& lock = a.lock();
  explorer.watch("failed", &a.header().failed, sizeof a.header().failed);
  explorer.watch("mutex", &lock.mutex, sizeof lock.mutex);
  explorer.watch("hold_seq", &lock.hold_seq, 8);
  explorer.watch("session and pid of the holder", &lock.session, 8);
  explorer.watch("counts of the lock", &lock.num_recoveries, 24, Memory::kReport);
  explorer.watch("length of the log", &a.log().length, 8);
  explorer.watch("log", a.log().entries, 96 * sizeof(LogEntry));
  explorer.scrub(&a.log().length, a.log().entries, 96 * sizeof(LogEntry));
  explorer.watch("state", &a.state(), offsetof(ArenaState, num_rebuilds));
  explorer.watch("chunk_waiters", &a.state().chunk_waiters, 8);
  explorer.watch("chunk_futex", &a.state().chunk_futex, 8);
  for (uint32_t i = 0; i < a.geometry().max_sessions; ++i) {
    SessionRecord& r = a.session(i);
    const std::string name = "session " + std::to_string(i);
    explorer.watch(name, &r, offsetof(SessionRecord, inserts));
    explorer.watch(name + ", counts", &r.inserts, sizeof r - offsetof(SessionRecord, inserts), Memory::kReport);
  }
  for (uint32_t i = 0; i < kSlots; ++i) {
    const std::string number = std::to_string(i);
    explorer.watch("sleep slot " + number, &a.sleeper(i), sizeof(SleepSlot));
    explorer.watch("since of sleep slot " + number, &a.sleeper(i).since_ns, 8, Memory::kReport);
    explorer.watch("stream " + number, &a.stream(i), sizeof(StreamRecord));
    CallSlot& call = a.call(call_slot(i));
    explorer.watch("owner of call slot " + number, &call.owner, 8);
    explorer.watch("count of call slot " + number, &call.count, 8);
    explorer.watch("since of call slot " + number, &call.since_ns, 8, Memory::kReport);
    explorer.watch("names of call slot " + number, call.names, sizeof(uint32_t) * kNames);
  }
  explorer.watch("lease of the checkpoint", &a.save_lease(), sizeof(SaveLease));
  for (uint32_t i = 0; i < a.geometry().num_chunks; ++i)
    explorer.watch("chunk " + std::to_string(i), &a.chunk(i), sizeof(ChunkRecord));
  TableRecord& t = record();
  explorer.watch("table", &t.flags, offsetof(TableRecord, num_views) - offsetof(TableRecord, flags));
  explorer.watch("limiter", &t.limiter, sizeof t.limiter);
  for (int side = 0; side < 2; ++side) {
    WaitSide& s = t.sides[side];
    const std::string name = side == kInserts ? "inserts" : "samples";
    explorer.watch("futex of " + name, &s.futex, 8);
    explorer.watch("sleepers of " + name, &s.sleepers, 8);
    explorer.watch("blocked " + name, &s.blocked_calls, 16, Memory::kReport);
  }
  explorer.watch("futex of news", &t.news.futex, 8);
  explorer.mutex(&lock.mutex);
}

void explore(Explorer& explorer, const Budget& budget) {
  const Result r = explorer.explore(budget);
  printf("[%llu searches: %llu states, %llu schedules, %llu ends, %llu steps, %llu deaths, %zu deep] ",
         static_cast<unsigned long long>(r.starts), static_cast<unsigned long long>(r.states),
         static_cast<unsigned long long>(r.schedules), static_cast<unsigned long long>(r.ends),
         static_cast<unsigned long long>(r.steps), static_cast<unsigned long long>(r.deaths), r.depth);
  fflush(stdout);
  if (r.fault.empty()) return;
  printf("\nfault found: %s\n", r.fault.c_str());
  for (const std::string& line : r.schedule) printf("    %s\n", line.c_str());
  test::fail(__FILE__, __LINE__, "a schedule leads to a fault: " + r.fault);
}

Budget of_three() {
  Budget b;
  if (!is_long()) b.preemptions = 2;
  return b;
}

bool is_long() { return test::rounds(0, 1) == 1; }

int depth(int few, int many) {
  return static_cast<int>(test::rounds(static_cast<uint64_t>(few), static_cast<uint64_t>(many)));
}

}  // namespace shmreplay::explorer
