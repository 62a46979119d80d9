#include "write/insert_holds.h"

#include "items/table_calls.h"
#include "support/fixtures.h"

namespace shmreplay::test {
namespace {

constexpr uint64_t kFirst = 1, kSecond = 2;  // bits of the tables

}  // namespace

TEST(a_fill_that_puts_in_nothing_gets_another_hold_and_a_whole_log) {
  World w(arena_of({open_table("a", 10)}));
  int holds = 0;
  const auto fill = [&](Hold& hold, Filled&) {
    CHECK_EQ(hold.room(), kLogCapacity);
    hold.set(w.table().record->next_touch, w.table().record->next_touch.get() + 1);
    ++holds;
    return Status::kOk;
  };
  CHECK_EQ(InsertHolds(w.arena, kFirst, kNow).run([&] { return holds < 3; }, fill), Status::kOk);
  CHECK_EQ(holds, 3);
}

TEST(what_went_in_before_a_failure_is_counted_for_the_session) {
  World w(arena_of({open_table("a", 10), open_table("b", 10)}));
  const auto fill = [](Hold&, Filled& filled) {
    filled = {kFirst | kSecond, 3, kNone};
    return Status::kStructure;
  };
  CHECK_EQ(InsertHolds(w.arena, kFirst | kSecond, kNow).run([] { return true; }, fill), Status::kStructure);
  const SessionRecord& session = w.arena.session(w.arena.session_index());
  CHECK_EQ(session.inserts.load(), 3u);
  CHECK_EQ(session.writes.load(), kFirst | kSecond);
  for (uint32_t t = 0; t < 2; ++t) CHECK(w.table(t).record->last_insert_ns.get() != 0);
}

TEST(any_table_that_was_dropped_ends_the_insert) {
  World w(arena_of({open_table("a", 10), open_table("b", 10)}));
  CHECK_EQ(change_flags(w.arena, w.table(1), kDropped, 0, kNow), Status::kOk);
  const auto fill = [](Hold&, Filled&) -> Status { fail(__FILE__, __LINE__, "the hold was filled"); };
  CHECK_EQ(InsertHolds(w.arena, kFirst | kSecond, kNow).run([] { return true; }, fill), Status::kClosed);
}

TEST(an_insert_that_a_limiter_blocks_is_counted_among_the_sleepers_until_it_ends) {
  World w(arena_of({open_table("a", 10), queue_table("q", 1)}));
  Actor(w.arena, w.table(1)).insert();
  const auto fill = [](Hold&, Filled& filled) {
    filled.blocking = 1;
    return Status::kOk;
  };
  {
    InsertHolds insert(w.arena, kSecond, kNow);
    CHECK_EQ(insert.run([] { return true; }, fill), Status::kTimeout);
    CHECK_EQ(sleepers(w.table(1), kInserts), 1u);
  }
  CHECK_EQ(sleepers(w.table(1), kInserts), 0u);
  InsertHolds insert(w.arena, kSecond, kTryOnly);
  CHECK_EQ(insert.run([] { return true; }, fill), Status::kTimeout);
  CHECK_EQ(sleepers(w.table(1), kInserts), 0u);
}

}  // namespace shmreplay::test
