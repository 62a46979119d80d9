#include "sessions/blocked.h"

#include "base/futex.h"
#include "support/fixtures.h"

namespace shmreplay::test {
namespace {

ArenaSpec queue_of(uint32_t size) { return arena_of({queue_table("q", size)}, 4, 64); }

void join(Arena& arena, Blocked& blocked) {
  Hold hold(arena);
  CHECK_EQ(hold.begin(kNow), Status::kOk);
  blocked.join(hold);
}

void insert(Arena& arena, uint64_t n) {
  Actor actor(arena, arena.table(0));
  int64_t key = 0;
  for (uint64_t i = 0; i < n; ++i) CHECK_EQ(actor.try_insert(1, kWhatever, key), Status::kOk);
}

void consume(Arena& arena, uint64_t n, uint32_t at_once = 1) {
  Learner learner(arena);
  for (uint64_t i = 0; i < n; i += at_once) {
    Batch batch(arena, at_once);
    CHECK_EQ(learner.sample(arena.table(0), at_once, batch, kWhatever).status, Status::kOk);
  }
}

}  // namespace

TEST(a_blocked_call_is_counted_while_it_waits) {
  World w(queue_of(2));
  const WaitSide& side = w.table().record->sides[kSamples];
  {
    Blocked blocked(w.arena, w.table(), kSamples, kNow);
    CHECK(!blocked.joined());
    join(w.arena, blocked);
    CHECK(blocked.joined());
    CHECK_EQ(side.sleepers.get(), 1u);
    CHECK_EQ(side.blocked_calls.get(), 1u);
    check_healthy(w.arena);
    Hold hold(w.arena);
    CHECK_EQ(hold.begin(kNow), Status::kOk);
    blocked.leave(hold);
    CHECK_EQ(side.sleepers.get(), 0u);
    CHECK(!blocked.joined());
    blocked.join(hold);
  }
  CHECK_EQ(side.sleepers.get(), 0u);       // a call that gives up leaves with its scope
  CHECK_EQ(side.blocked_calls.get(), 1u);  // one call, however often it slept
  CHECK(side.blocked_ns.get() > 0);
  check_healthy(w.arena);
}

TEST(a_call_that_never_waits_times_out_at_once) {
  World w(queue_of(2));
  Blocked blocked(w.arena, w.table(), kSamples, kNow);
  join(w.arena, blocked);
  CHECK_EQ(blocked.sleep(), Status::kTimeout);
}

TEST(a_signal_handler_that_raised_ends_the_sleep) {
  World w(queue_of(2));
  Listener listener;
  listener.interrupt = true;
  Blocked blocked(w.arena, w.table(), kSamples, {kForever, &listener});
  join(w.arena, blocked);
  CHECK_EQ(blocked.sleep(), Status::kInterrupted);
}

TEST(a_call_that_is_blocked_for_long_is_told_so_every_second) {
  World w(queue_of(2));
  Listener listener;
  Blocked blocked(w.arena, w.table(), kSamples, {now_ns() + 1'100'000'000, &listener});
  join(w.arena, blocked);
  CHECK_EQ(blocked.sleep(), Status::kTimeout);
  CHECK(listener.blocked_seconds >= 1);  // later where others have the processor
}

// Its caller gives it up and wakes it, whatever it is in the middle of; nobody else's wait ends by that.
TEST(a_call_that_its_caller_gives_up_ends_at_once) {
  class GivenUp final : public Patience {
   public:
    bool interrupted() noexcept override { return ended(); }
    void lock_stuck(uint32_t, int64_t) noexcept override {}
    void still_blocked(int64_t) noexcept override {}
    bool ended() const noexcept override { return yes.load(); }
    std::atomic<bool> yes{false};
  };
  World w(queue_of(1));
  for (int round = 0; round < (kSanitized ? 50 : 500); ++round) {
    GivenUp patience;
    std::atomic<int> done{0};
    run_threads({[&] {
                   Learner learner(w.arena);
                   Batch batch(w.arena, 1);
                   CHECK_EQ(learner.sample(w.table(), 1, batch, {kForever, &patience}).status, Status::kInterrupted);
                   ++done;
                 },
                 [&] {
                   consume(w.arena, 1);
                   ++done;
                 },
                 [&] {
                   if (round % 2) until([&] { return sleepers(w.table(), kSamples) > 0; });
                   patience.yes.store(true);
                   wake_sleepers(w.arena, w.table());
                   until([&] { return done == 1; });
                   insert(w.arena, 1);
                 }});
  }
  CHECK_EQ(sleepers(w.table(), kSamples), 0u);
  check_healthy(w.arena);
}

TEST(sleepers_beyond_the_slots_there_are_look_by_themselves) {
  World w(queue_of(2));
  std::vector<std::unique_ptr<Blocked>> all;
  const uint32_t slots = w.arena.geometry().num_sleep_slots;
  for (uint32_t i = 0; i < slots + 3; ++i) {
    all.push_back(std::make_unique<Blocked>(w.arena, w.table(), kSamples, kNow));
    join(w.arena, *all.back());
  }
  CHECK_EQ(sleepers(w.table(), kSamples), slots);
  check_healthy(w.arena);
  run_threads({[&] { consume(w.arena, 1); }, [&] { insert(w.arena, 1); }});
  all.clear();
  CHECK_EQ(sleepers(w.table(), kSamples), 0u);
  check_healthy(w.arena);
}

TEST(each_of_many_blocked_samplers_gets_its_item) {
  World w(queue_of(100));
  std::vector<std::function<void()>> bodies(4, [&] { consume(w.arena, 25); });
  bodies.push_back([&] {
    until([&] { return sleepers(w.table(), kSamples) == 4; });
    insert(w.arena, 100);  // each insert wakes one call, which hands the permission on
  });
  run_threads(bodies);
  CHECK_EQ(live_items(w.table()), 0u);
  CHECK_EQ(sleepers(w.table(), kSamples), 0u);
}

TEST(one_batch_that_makes_room_for_many_lets_all_of_them_go_on) {
  World w(queue_of(8));
  insert(w.arena, 8);
  std::vector<std::function<void()>> bodies(4, [&] { insert(w.arena, 2); });
  bodies.push_back([&] {
    until([&] { return sleepers(w.table(), kInserts) == 4; });
    consume(w.arena, 8, 8);
  });
  run_threads(bodies);
  CHECK_EQ(live_items(w.table()), 8u);
  CHECK_EQ(w.table().record->limiter.inserts.get(), 16u);
}

TEST(actors_and_learners_in_lockstep_never_lose_a_wake) {
  World w(queue_of(1));
  const uint64_t n = kSanitized ? 300 : 3000;
  run_threads({[&] { insert(w.arena, n); }, [&] { insert(w.arena, n); }, [&] { consume(w.arena, n); },
               [&] { consume(w.arena, n); }});
  CHECK_EQ(live_items(w.table()), 0u);
  CHECK_EQ(w.table().record->limiter.samples.get(), 2 * n);
}

// Two calls sleep. One insert wakes one of them, and it leaves without the item: its leaving bumps the word for the
// other.
TEST(a_call_that_leaves_without_what_it_was_woken_for_bumps_the_word_again) {
  World w(queue_of(4));
  Blocked first(w.arena, w.table(), kSamples, kNow), second(w.arena, w.table(), kSamples, kNow);
  join(w.arena, first);
  join(w.arena, second);
  const std::atomic<uint32_t>& futex = w.table().record->sides[kSamples].futex;
  insert(w.arena, 1);
  CHECK_EQ(futex.load(), 1u);
  {
    Hold hold(w.arena);
    CHECK_EQ(hold.begin(kNow), Status::kOk);
    first.leave(hold);
  }
  CHECK_EQ(futex.load(), 2u);
}

// The call that is woken gives up at the same moment: its leaving asks the question again.
TEST(a_call_that_times_out_hands_its_permission_on) {
  World w(queue_of(4));
  const auto impatient = [&] {
    Learner learner(w.arena);
    for (int i = 0; i < 200; ++i) {
      Batch batch(w.arena, 1);
      const Status s = learner.sample(w.table(), 1, batch, {now_ns() + 20'000}).status;
      CHECK(s == Status::kTimeout || s == Status::kOk || s == Status::kClosed);
    }
  };
  std::atomic<bool> over{false};
  const auto patient = [&] {
    Learner learner(w.arena);
    while (!over) {
      Batch batch(w.arena, 1);
      const Status s = learner.sample(w.table(), 1, batch, kWhatever).status;
      if (s == Status::kClosed) return;
      CHECK_EQ(s, Status::kOk);
    }
  };
  const auto actor = [&] {
    insert(w.arena, 400);
    until([&] { return live_items(w.table()) == 0; });
    over = true;
    CHECK_EQ(drop_tables(w.arena, kWhatever), Status::kOk);
  };
  run_threads({impatient, impatient, patient, actor});
}

TEST(pausing_stops_a_side_and_resuming_wakes_it) {
  World w(queue_of(10));
  CHECK_EQ(change_flags(w.arena, w.table(), kPausedInserts, 0, kNow), Status::kOk);
  run_threads({[&] { insert(w.arena, 3); },
               [&] {
                 until([&] { return sleepers(w.table(), kInserts) == 1; });
                 CHECK_EQ(live_items(w.table()), 0u);
                 CHECK_EQ(change_flags(w.arena, w.table(), 0, kPausedInserts, kNow), Status::kOk);
               }});
  CHECK_EQ(live_items(w.table()), 3u);
}

TEST(a_reset_wakes_blocked_inserts) {
  World w(queue_of(3));
  insert(w.arena, 3);
  run_threads({[&] { insert(w.arena, 2); },
               [&] {
                 until([&] { return sleepers(w.table(), kInserts) == 1; });
                 CHECK_EQ(reset_table(w.arena, w.table(), kNow), Status::kOk);
               }});
  CHECK_EQ(live_items(w.table()), 2u);
}

TEST(a_deleted_item_makes_room_in_a_queue_and_wakes_its_writer) {
  World w(queue_of(3));
  insert(w.arena, 3);
  run_threads({[&] { insert(w.arena, 1); },
               [&] {
                 until([&] { return sleepers(w.table(), kInserts) == 1; });
                 const int64_t key = live_keys(w.arena, w.table())[1];
                 uint32_t deleted = 0;
                 CHECK_EQ(delete_items(w.arena, w.table(), &key, 1, kNow, deleted), Status::kOk);
               }});
  CHECK_EQ(live_items(w.table()), 3u);
}

TEST(another_limiter_wakes_both_sides) {
  World w(queue_of(3));
  insert(w.arena, 3);
  run_threads({[&] { insert(w.arena, 5); },
               [&] {
                 until([&] { return sleepers(w.table(), kInserts) == 1; });
                 CHECK_EQ(change_limiter(w.arena, w.table(), {1, 0, 8, 1, true}, false, kNow), Status::kOk);
               }});
  CHECK_EQ(w.table().record->limiter.inserts.get(), 8u);
}

TEST(blocked_callers_of_a_dropped_table_are_told_that_it_is_closed) {
  World w(queue_of(3));
  insert(w.arena, 3);
  const auto actor = [&] {
    Actor a(w.arena, w.table());
    int64_t key = 0;
    CHECK_EQ(a.try_insert(1, kWhatever, key), Status::kClosed);
  };
  run_threads({actor, actor, [&] {
                 until([&] { return sleepers(w.table(), kInserts) == 2; });
                 CHECK_EQ(drop_tables(w.arena, kNow), Status::kOk);
               }});
}

TEST(a_look_that_asks_no_limiter_waits_for_an_item_alone) {
  World w(queue_of(3));
  CHECK_EQ(change_flags(w.arena, w.table(), kPausedSamples, 0, kNow), Status::kOk);
  run_threads({[&] {
                 Learner learner(w.arena);
                 Batch batch(w.arena, 2);
                 CHECK_EQ(learner.sample(w.table(), 2, batch, kWhatever, false).status, Status::kOk);
               },
               [&] { insert(w.arena, 1); }});
  CHECK_EQ(w.table().record->limiter.samples.get(), 0u);
}

}  // namespace shmreplay::test
