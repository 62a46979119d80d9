#include "items/news.h"
#include "items/item_survey.h"

#include "deaths/crash.h"
#include "sessions/blocked.h"

namespace shmreplay::test {
namespace {

ArenaSpec one_item() { return arena_of({open_table("weights", 1)}, 1, 12); }

News& news_of(const TableFacts& table) { return table.record->news; }

// Waits, and answers how many inserts there had been when the wait ended as expected.
uint64_t wait_for(Arena& arena, uint64_t seen, Status expected = Status::kOk, const Wait& wait = kWhatever) {
  uint64_t found = UINT64_MAX;
  CHECK_EQ(wait_for_insert(arena, arena.table(0), seen, wait, found), expected);
  return found;
}

}  // namespace

TEST(a_reader_that_has_not_seen_the_newest_insert_does_not_wait) {
  World w(one_item());
  Actor actor(w.arena, w.table());
  for (int i = 0; i < 3; ++i) actor.insert();
  CHECK_EQ(wait_for(w.arena, 0), 3u);
  CHECK_EQ(wait_for(w.arena, 2), 3u);
  CHECK_EQ(news_of(w.table()).is_awaited.load(), 0u);
}

TEST(a_call_that_never_waits_learns_how_many_inserts_there_were) {
  World w(one_item());
  CHECK_EQ(wait_for(w.arena, 0, Status::kTimeout, kNow), 0u);
  Actor(w.arena, w.table()).insert();
  CHECK_EQ(wait_for(w.arena, 1, Status::kTimeout, kNow), 1u);
  check_healthy(w.arena);
}

TEST(an_insert_wakes_all_that_wait_for_it) {
  World w(one_item());
  std::atomic<int> told{0};
  const auto reader = [&] {
    CHECK_EQ(wait_for(w.arena, 0), 1u);
    ++told;
  };
  run_threads({reader, reader, reader, [&] {
                 until([&] { return news_of(w.table()).is_awaited.load() == 1; });
                 Actor(w.arena, w.table()).insert();
               }});
  CHECK_EQ(told.load(), 3);
}

// Otherwise each insert of a busy table would cost a system call.
TEST(an_insert_bumps_the_word_once_for_each_time_that_somebody_waits) {
  World w(one_item());
  Actor actor(w.arena, w.table());
  const News& news = news_of(w.table());
  actor.insert();
  CHECK_EQ(news.futex.load(), 0u);
  wait_for(w.arena, 1, Status::kTimeout, kNow);
  CHECK_EQ(news.is_awaited.load(), 1u);
  actor.insert();
  CHECK_EQ(news.futex.load(), 1u);
  CHECK_EQ(news.is_awaited.load(), 0u);
  actor.insert();
  CHECK_EQ(news.futex.load(), 1u);
}

TEST(what_is_no_insert_is_no_news) {
  World w(arena_of({open_table("weights", 4), open_table("other", 4)}));
  Actor actor(w.arena, w.table());
  int64_t key = actor.insert();
  wait_for(w.arena, 1, Status::kTimeout, kNow);
  Learner(w.arena).draw(w.table());
  const double priority = 2.0;
  uint32_t n = 0;
  CHECK_EQ(update_priorities(w.arena, w.table(), &key, &priority, 1, kNow, n), Status::kOk);
  CHECK_EQ(delete_items(w.arena, w.table(), &key, 1, kNow, n), Status::kOk);
  actor.create_in(w.table(1), 1);
  CHECK_EQ(news_of(w.table()).futex.load(), 0u);
  CHECK_EQ(wait_for(w.arena, 1, Status::kTimeout, kNow), 1u);
}

// Runs of new items go in by another way than single items.
TEST(items_that_take_the_places_of_the_oldest_are_news_too) {
  World w(arena_of({open_table("a", 4)}));
  Actor actor(w.arena, w.table());
  for (uint32_t i = 1; i <= 20; ++i) {
    wait_for(w.arena, i - 1, Status::kTimeout, kNow);
    actor.insert();
    CHECK_EQ(news_of(w.table()).futex.load(), i);
    CHECK_EQ(wait_for(w.arena, i - 1), i);
  }
}

TEST(a_reset_does_not_begin_the_count_anew) {
  World w(one_item());
  Actor actor(w.arena, w.table());
  actor.insert();
  CHECK_EQ(reset_table(w.arena, w.table(), kNow), Status::kOk);
  CHECK_EQ(wait_for(w.arena, 1, Status::kTimeout, kNow), 1u);
  uint64_t number = 0;
  CHECK_EQ(find_insert_number(w.arena, w.table(), actor.insert(), kNow, number), Status::kOk);
  CHECK_EQ(number, 2u);
}

TEST(a_wait_for_news_of_a_dropped_table_ends_with_closed) {
  World w(one_item());
  run_threads({[&] { wait_for(w.arena, 0, Status::kClosed); },
               [&] {
                 until([&] { return news_of(w.table()).is_awaited.load() == 1; });
                 CHECK_EQ(drop_tables(w.arena, kNow), Status::kOk);
               }});
}

TEST(a_signal_handler_that_raised_ends_the_wait_for_news) {
  World w(one_item());
  Listener listener;
  listener.interrupt = true;
  wait_for(w.arena, 0, Status::kInterrupted, {kForever, &listener});
}

TEST(a_wait_for_news_that_its_caller_gives_up_ends_at_once) {
  class GivenUp final : public Patience {
   public:
    bool interrupted() noexcept override { return ended(); }
    void lock_stuck(uint32_t, int64_t) noexcept override {}
    void still_blocked(int64_t) noexcept override {}
    bool ended() const noexcept override { return yes.load(); }
    std::atomic<bool> yes{false};
  } patience;
  World w(one_item());
  run_threads({[&] { wait_for(w.arena, 0, Status::kInterrupted, {kForever, &patience}); },
               [&] {
                 until([&] { return news_of(w.table()).is_awaited.load() == 1; });
                 patience.yes.store(true);
                 wake_sleepers(w.arena, w.table());
               }});
}

// Each thread answers the other's insert: a wait that missed one would leave both asleep.
TEST(two_processes_that_wait_for_each_other_in_turn_miss_nothing) {
  World w(arena_of({open_table("a", 1), open_table("b", 1)}, 1, 24));
  const uint64_t n = kSanitized ? 300 : 3000;
  const auto player = [&](uint32_t own, uint32_t other, bool begins) {
    Actor actor(w.arena, w.table(own));
    for (uint64_t i = 0; i < n; ++i) {
      if (begins) actor.insert();
      uint64_t found = 0;
      CHECK_EQ(wait_for_insert(w.arena, w.table(other), i, kWhatever, found), Status::kOk);
      CHECK_EQ(found, i + 1);
      if (!begins) actor.insert();
    }
  };
  run_threads({[&] { player(0, 1, true); }, [&] { player(1, 0, false); }});
  check_healthy(w.arena);
}

TEST(a_process_that_dies_while_it_looks_for_news_leaves_nothing) {
  CrashLab lab(one_item());
  Actor(lab.world.arena, lab.world.table()).insert();
  lab.run("wait for an insert", CrashLab::Holds::kOne, [](Arena& arena) -> std::function<void()> {
    return [&arena] { wait_for(arena, 1, Status::kTimeout, kNow); };
  });
}

TEST(an_insert_that_somebody_waits_for_happens_whole_or_not_at_all) {
  CrashLab lab(one_item());
  Actor(lab.world.arena, lab.world.table()).insert();
  lab.run("insert that is waited for", CrashLab::Holds::kMany, [](Arena& arena) -> std::function<void()> {
    auto* actor = new Actor(arena, arena.table(0), 0, 1000);
    wait_for(arena, 1, Status::kTimeout, kNow);
    return [=] { actor->insert(); };
  });
}

}  // namespace shmreplay::test
