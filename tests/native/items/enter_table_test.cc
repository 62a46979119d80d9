#include "items/enter_table.h"

#include "items/table_calls.h"
#include "support/fixtures.h"

namespace shmreplay::test {

TEST(a_call_that_meets_an_unfinished_reset_finishes_it) {
  World w(arena_of({open_table("a", 100)}));
  Actor actor(w.arena, w.table());
  for (int i = 0; i < 50; ++i) actor.insert();
  {
    Hold hold(w.arena);
    CHECK_EQ(hold.begin(kNow), Status::kOk);
    set_flags(hold, w.table(), kResetting, 0);
  }
  actor.insert();
  CHECK_EQ(live_items(w.table()), 1u);
  CHECK_EQ(w.table().record->limiter.inserts.get(), 1u);
  check_healthy(w.arena);
}

TEST(every_call_on_a_dropped_table_is_told_that_it_is_closed) {
  World w(arena_of({open_table("a", 100), open_table("b", 100)}));
  Actor actor(w.arena, w.table());
  int64_t key = actor.insert();
  CHECK_EQ(drop_tables(w.arena, kNow), Status::kOk);
  uint32_t n = 0;
  const double one = 1;
  CHECK_EQ(actor.try_insert(1.0, kNow, key), Status::kClosed);
  CHECK_EQ(update_priorities(w.arena, w.table(), &key, &one, 1, kNow, n), Status::kClosed);
  CHECK_EQ(delete_items(w.arena, w.table(), &key, 1, kNow, n), Status::kClosed);
  CHECK_EQ(reset_table(w.arena, w.table(), kNow), Status::kClosed);
  CHECK_EQ(change_flags(w.arena, w.table(1), kPausedInserts, 0, kNow), Status::kClosed);
  CHECK_EQ(change_limiter(w.arena, w.table(), {1, 0, 1, 1, false}, false, kNow), Status::kClosed);
  Batch batch(w.arena, 1);
  Learner learner(w.arena);
  CHECK_EQ(learner.sample(w.table(), 1, batch).status, Status::kClosed);
}

}  // namespace shmreplay::test
