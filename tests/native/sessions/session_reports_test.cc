#include "sessions/session_reports.h"

#include <algorithm>
#include <unistd.h>

#include "base/futex.h"
#include "chunks/leases.h"
#include "sessions/blocked.h"
#include "sessions/room_wait.h"
#include "support/fixtures.h"

namespace shmreplay::test {
namespace {

ArenaSpec two_tables() { return arena_of({open_table("a", 100, kPrioritized), queue_table("q", 2)}); }

SessionReport report_of(const Arena& arena, uint32_t session) {
  for (const SessionReport& r : session_reports(arena)) {
    if (r.session == session) return r;
  }
  CHECK(false);
  return {};
}

void sample(Arena& arena, uint32_t table, uint32_t n) {
  Learner learner(arena);
  Batch batch(arena, n);
  CHECK_EQ(learner.sample(arena.table(table), n, batch).status, Status::kOk);
}

// Takes the lease and names the chunks in one hold.
void take(Arena& arena, Lease& lease, std::initializer_list<uint32_t> chunks) {
  Hold hold(arena);
  CHECK_EQ(hold.begin(kNow), Status::kOk);
  CHECK_EQ(lease.take(hold), Status::kOk);
  for (const uint32_t c : chunks) lease.name(hold, c);
}

}  // namespace

TEST(a_session_counts_what_it_has_done_and_nobody_elses) {
  World w(two_tables());
  const std::unique_ptr<Arena> other = w.client();
  Actor actor(w.arena, w.table());
  const int64_t key = actor.insert();
  actor.insert();
  sample(*other, 0, 3);
  const double priority = 2;
  uint32_t updated = 0;
  CHECK_EQ(update_priorities(*other, other->table(0), &key, &priority, 1, kNow, updated), Status::kOk);
  const SessionReport writer = report_of(*w.daemon, w.arena.session_index());
  CHECK(writer.inserts == 2 && writer.samples == 0 && writer.updates == 0);
  CHECK(writer.writes == 1 && writer.reads == 0 && writer.open_streams == 1);
  const SessionReport learner = report_of(*w.daemon, other->session_index());
  CHECK(learner.inserts == 0 && learner.samples == 3 && learner.updates == 1);
  CHECK(learner.writes == 0 && learner.reads == 1 && learner.open_streams == 0);
  CHECK_EQ(learner.pid, static_cast<uint32_t>(getpid()));
}

TEST(each_table_that_a_session_writes_or_reads_has_its_bit) {
  World w(two_tables());
  Actor one(w.arena, w.table(0)), other(w.arena, w.table(1));
  one.insert();
  other.insert();
  sample(w.arena, 1, 1);
  const SessionReport r = report_of(w.arena, w.arena.session_index());
  CHECK(r.writes == 3 && r.reads == 2 && r.inserts == 2 && r.samples == 1 && r.open_streams == 2);
}

TEST(items_that_are_due_with_their_step_are_counted_as_inserts_of_their_tables) {
  World w(two_tables());
  Actor actor(w.arena, w.table(0));
  for (int i = 0; i < 3; ++i) actor.append();
  actor.create(2);
  actor.create_in(w.table(1), 1);
  const SessionReport r = report_of(w.arena, w.arena.session_index());
  CHECK(r.inserts == 2 && r.writes == 3);
}

TEST(the_tables_that_a_session_uses_are_its_own_until_it_is_over) {
  World w(two_tables());
  const std::unique_ptr<Arena> other = w.client();
  Actor(w.arena, w.table(0)).insert();
  Actor(*other, other->table(1)).insert();
  sample(*other, 0, 1);
  const UsesReport own = uses_of(*w.daemon, w.arena.session_index(), w.arena.session_generation());
  CHECK(own.writes == 1 && own.reads == 0);
  CHECK_EQ(uses_of(*w.daemon, w.arena.session_index(), w.arena.session_generation() + 1).writes, 0u);
  CHECK_EQ(uses_of(*w.daemon, 1'000'000, 1).writes, 0u);
  CHECK(uses_of_all(*w.daemon).writes == 3 && uses_of_all(*w.daemon).reads == 1);
  bool reaped = false;
  CHECK_EQ(close_session(*w.daemon, other->session_index(), other->session_generation(), kNow, reaped), Status::kOk);
  CHECK(uses_of_all(*w.daemon).writes == 1 && uses_of_all(*w.daemon).reads == 0);
  CHECK_EQ(uses_of(*w.daemon, other->session_index(), other->session_generation()).writes, 0u);
}

TEST(a_session_that_opens_in_anothers_record_begins_at_nothing) {
  World w(two_tables());
  std::unique_ptr<Arena> first = w.client();
  { Actor(*first, first->table(0)).insert(); }
  sample(*first, 0, 1);
  const uint32_t index = first->session_index();
  bool reaped = false;
  CHECK_EQ(close_session(*w.daemon, index, first->session_generation(), kNow, reaped), Status::kOk);
  const std::unique_ptr<Arena> next = w.client();
  CHECK_EQ(next->session_index(), index);
  const SessionReport r = report_of(*w.daemon, index);
  CHECK(r.inserts == 0 && r.samples == 0 && r.writes == 0 && r.reads == 0);
}

TEST(a_call_that_sleeps_is_reported_with_its_table_side_and_how_long_it_waits) {
  World w(two_tables());
  CHECK(sleeper_reports(w.arena).empty());
  {
    Blocked blocked(w.arena, w.table(1), kSamples, kNow);
    for (int round = 0; round < 2; ++round) {  // the call wakes and sleeps again: that is still one wait
      Hold hold(w.arena);
      CHECK_EQ(hold.begin(kNow), Status::kOk);
      if (round > 0) blocked.leave(hold);
      blocked.join(hold);
    }
    const std::vector<SleeperReport> found = sleeper_reports(*w.daemon);
    CHECK_EQ(found.size(), 1u);
    CHECK(found[0].table == 1 && found[0].side == kSamples && found[0].session == w.arena.session_index());
    CHECK(found[0].pid == static_cast<uint32_t>(getpid()) && found[0].since_s >= 0 && found[0].since_s < 3600);
  }
  CHECK(sleeper_reports(w.arena).empty());
}

TEST(an_insert_that_finds_no_room_is_reported_once_for_its_process_until_it_gives_up) {
  World w(two_tables());
  const std::unique_ptr<Arena> other = w.client();
  {
    const RoomWait first(w.arena, w.table(1), now_ns()), second(w.arena, w.table(0), now_ns()),
        daemons(*w.daemon, w.table(0), 1);
    const std::vector<SleeperReport> found = sleeper_reports(*other);
    CHECK_EQ(found.size(), 1u);
    CHECK(found[0].wants_room && found[0].table == 1 && found[0].side == kInserts);
    CHECK(found[0].session == w.arena.session_index() && found[0].pid == static_cast<uint32_t>(getpid()));
  }
  CHECK(sleeper_reports(*other).empty());
}

TEST(a_writer_that_waits_for_a_chunk_says_so_while_it_does) {
  World w(arena_of({queue_table("q", 100)}, 4, 3));
  Actor actor(w.arena, w.table());
  for (int i = 0; i < 12; ++i) actor.insert();
  class Looks final : public Patience {
   public:
    explicit Looks(World& w) : world_(w) {}
    bool interrupted() noexcept override { return (found = sleeper_reports(*world_.daemon)).size() == 1; }
    void lock_stuck(uint32_t, int64_t) noexcept override {}
    void still_blocked(int64_t) noexcept override {}
    std::vector<SleeperReport> found;

   private:
    World& world_;
  } looks(w);
  int64_t key = 0;
  CHECK_EQ(actor.try_insert(1, {kForever, &looks}, key), Status::kInterrupted);
  CHECK(looks.found.size() == 1 && looks.found[0].wants_room && looks.found[0].table == 0);
  CHECK(sleeper_reports(w.arena).empty());
}

TEST(chunks_that_reads_name_are_counted_once_for_all_and_once_for_each_session) {
  World w(two_tables());
  const std::unique_ptr<Arena> other = w.client();
  CHECK(leases_report(w.arena).pinned_chunks == 0 && leases_report(w.arena).oldest_s < 0);
  Lease a(w.arena), b(w.arena), c(*other), daemons(*w.daemon);
  take(w.arena, a, {7, 3});
  take(w.arena, b, {3, 9});
  take(*other, c, {3});
  take(*w.daemon, daemons, {1});
  const LeasesReport all = leases_report(w.arena);
  CHECK(all.pinned_chunks == 4 && all.oldest_s >= 0 && all.oldest_s < 3600);
  CHECK_EQ(report_of(w.arena, w.arena.session_index()).pinned_chunks, 3u);
  CHECK_EQ(report_of(w.arena, other->session_index()).pinned_chunks, 1u);
  for (Lease* lease : {&a, &b, &c, &daemons}) lease->drop();
  CHECK(leases_report(w.arena).pinned_chunks == 0 && leases_report(w.arena).oldest_s < 0);
}

TEST(a_lease_that_names_nothing_yet_is_no_lease) {
  World w(two_tables());
  Lease lease(w.arena);
  take(w.arena, lease, {});
  CHECK(leases_report(w.arena).oldest_s < 0);
}

TEST(reports_of_a_damaged_index_are_wrong_and_nothing_worse) {
  World w(two_tables());
  Actor actor(w.arena, w.table());
  poke(w.arena.stream(0).owner, {77'777, 1});
  poke(w.arena.sleeper(0).owner, {5'555, 0});
  poke(w.arena.sleeper(1).owner, {w.arena.session_index(), 99 << 1});
  w.arena.call(0).owner.store({88'888, 1});
  w.arena.call(0).count.store(123'456'789);
  CHECK_EQ(session_reports(w.arena).size(), 1u);
  CHECK(sleeper_reports(w.arena).empty());
  CHECK_EQ(leases_report(w.arena).pinned_chunks, 1u);  // every name has the same number
}

}  // namespace shmreplay::test
