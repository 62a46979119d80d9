#include "arena/turns.h"

#include "support/fixtures.h"

namespace shmreplay::test {

TEST(where_nobody_else_is_nobody_comes) {
  World w(arena_of({open_table("t", 100)}));
  for (int i = 0; i < 100; ++i) {
    Hold hold(w.arena);
    CHECK_EQ(hold.begin(kWhatever), Status::kOk);
    hold.end();
    CHECK(!RobustLock::leave_gap(w.arena.lock()));
  }
}

// Only the line that a lock's holders write, without the lock: so the other thread never waits.
TEST(between_the_holds_of_a_call_others_come_in) {
  LockBlock block{};
  std::atomic<bool> done{false};
  Turns turns;
  CHECK(!turns.give_way(block));
  run_threads({[&] {
                 while (!done) ++block.hold_seq;
               },
               [&] {
                 while (!turns.give_way(block)) {}
                 done = true;
               }});
}

}  // namespace shmreplay::test
