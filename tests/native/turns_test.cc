#include "turns.h"

#include "fixtures.h"

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

// Both take the lock again and again, and each sees the other come into gaps of its own.
TEST(between_the_holds_of_a_call_others_come_in) {
  World w(arena_of({open_table("t", 100)}));
  std::atomic<bool> done{false};
  Turns turns;
  run_threads({[&] {
                 while (!done) {
                   {
                     Hold hold(w.arena);
                     CHECK_EQ(hold.begin(kWhatever), Status::kOk);
                   }
                   w.arena.give_way();
                 }
               },
               [&] {
                 for (int came = 0; came < (kThreadSanitized ? 1 : 20);) {
                   {
                     Hold hold(w.arena);
                     CHECK_EQ(hold.begin(kWhatever), Status::kOk);
                   }
                   came += turns.give_way(w.arena.lock()) ? 1 : 0;
                 }
                 done = true;
               }});
  check_healthy(w.arena);
}

}  // namespace shmreplay::test
