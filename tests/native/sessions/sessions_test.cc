#include "sessions/sessions.h"

#include <csignal>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/process.h"
#include "chunks/leases.h"
#include "support/fixtures.h"

namespace shmreplay::test {
namespace {

ArenaSpec small() { return arena_of({open_table("a", 100)}); }

uint32_t own_pid() { return static_cast<uint32_t>(getpid()); }

bool reap(Arena& arena, const SessionInfo& info) {
  bool reaped = false;
  CHECK_EQ(close_session(arena, info.index, info.generation, kNow, reaped), Status::kOk);
  return reaped;
}

SessionInfo open_for(Arena& arena, uint32_t pid, uint64_t start_time) {
  SessionInfo info{};
  CHECK_EQ(open_session(arena, pid, start_time, 0, kNow, info), Status::kOk);
  return info;
}

}  // namespace

TEST(sessions_are_given_out_with_growing_generations_until_all_are_taken) {
  World w(small());  // one of eight is open
  std::vector<SessionInfo> infos;
  for (int i = 0; i < 7; ++i) infos.push_back(open_for(*w.daemon, own_pid(), 1));
  SessionInfo more{};
  CHECK_EQ(open_session(*w.daemon, own_pid(), 1, 0, kNow, more), Status::kNoSessions);
  CHECK(reap(*w.daemon, infos[3]));
  const SessionInfo again = open_for(*w.daemon, own_pid(), 1);
  CHECK_EQ(again.index, infos[3].index);
  CHECK_EQ(again.generation, infos[3].generation + 1);
}

TEST(a_session_is_listed_with_its_process_until_it_is_closed) {
  World w(small());
  const SessionInfo info = open_for(*w.daemon, 12345, 678);
  const std::vector<SessionInfo> live = live_sessions(w.arena);
  CHECK_EQ(live.size(), 2u);
  CHECK_EQ(live[1].index, info.index);
  CHECK_EQ(live[1].pid, 12345u);
  CHECK_EQ(live[1].start_time, 678u);
  CHECK(reap(*w.daemon, info));
  CHECK_EQ(live_sessions(w.arena).size(), 1u);
}

TEST(closing_another_generation_does_nothing) {
  World w(small());
  SessionInfo info = open_for(*w.daemon, own_pid(), 1);
  CHECK(reap(*w.daemon, info));
  CHECK(!reap(*w.daemon, info));
  const SessionInfo next = open_for(*w.daemon, own_pid(), 1);
  CHECK(!reap(*w.daemon, info));
  CHECK_EQ(live_sessions(w.arena).size(), 2u);
  CHECK(reap(*w.daemon, next));
}

TEST(reaping_takes_back_streams_leases_sleepers_and_free_chunks) {
  World w(small());
  const auto other = w.client();
  const TableFacts& t = w.table();
  Child child([&] {
    const auto arena = w.segments.attach(other->session_index(), other->session_generation());
    Actor actor(*arena, arena->table(0), 8);
    for (int i = 0; i < 12; ++i) actor.append();
    actor.create(6);
    Learner learner(*arena);
    learner.draw(arena->table(0));
    {
      Hold hold(*arena);
      CHECK_EQ(hold.begin(kNow), Status::kOk);
      Lease lease(*arena);
      CHECK_EQ(lease.take(hold), Status::kOk);
      lease.name(hold, 0);
      Blocked blocked(*arena, arena->table(0), kSamples, kNow);
      blocked.join(hold);
      hold.end();
      raise(SIGKILL);
    }
  });
  CHECK(child.killed());
  CHECK_EQ(sleepers(t, kSamples), 1u);
  CHECK(reap(*w.daemon, {other->session_index(), other->session_generation(), 0, 0, 0}));
  CHECK_EQ(sleepers(t, kSamples), 0u);
  CHECK(named_chunks(w.arena).empty());
  CHECK_EQ(live_items(t), 1u);  // what it had inserted stays
  check_healthy(w.arena);
}

TEST(a_reaper_that_died_half_way_is_followed_by_another) {
  World w(small());
  const auto other = w.client();
  Child child([&] {
    const auto arena = w.segments.attach(other->session_index(), other->session_generation());
    Actor actor(*arena, arena->table(0), 8);
    for (int i = 0; i < 12; ++i) actor.append();
    raise(SIGKILL);
  });
  CHECK(child.killed());
  {
    Hold hold(*w.daemon);
    CHECK_EQ(hold.begin(kNow), Status::kOk);
    hold.set(w.arena.session(other->session_index()).state, {kSessionReaping, other->session_generation()});
  }
  CHECK_EQ(live_sessions(w.arena).size(), 2u);  // still listed: a process has to finish it
  CHECK(reap(*w.daemon, {other->session_index(), other->session_generation(), 0, 0, 0}));
  check_healthy(w.arena);
}

TEST(reaping_the_dead_leaves_the_living_alone) {
  World w(small());
  Child stopped([] { pause(); });
  stopped.stop();
  const auto stopped_pid = static_cast<uint32_t>(stopped.pid());
  open_for(*w.daemon, stopped_pid, process_start_time(stopped_pid));
  Child ended([] {});
  open_for(*w.daemon, static_cast<uint32_t>(ended.pid()), 1);
  ended.join();
  open_for(*w.daemon, own_pid(), process_start_time(own_pid()) + 1);  // that pid is now ours
  uint32_t reaped = 0;
  CHECK_EQ(reap_dead_sessions(w.arena, kNow, reaped), Status::kOk);
  CHECK_EQ(reaped, 2u);
  CHECK_EQ(live_sessions(w.arena).size(), 2u);
  check_healthy(w.arena);
}

}  // namespace shmreplay::test
