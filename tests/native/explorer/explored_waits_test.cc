// Sleeps and wake-ups in every order: the limiter's sleepers, the calls that wait for news, the calls in flight.
//
// What goes into the table and out of it is here a few counters instead of rows. How calls are admitted, counted, put
// to sleep and woken is the core's own code: InsertHolds, Blocked, Hold::end, wait_for_insert, CallsInFlight.
#include "arena/admission.h"
#include "base/calls_in_flight.h"
#include "explorer/explored_arena.h"
#include "items/enter_table.h"
#include "items/news.h"
#include "support/harness.h"
#include "write/insert_holds.h"

using namespace shmreplay;
using namespace shmreplay::explorer;

namespace {

constexpr int64_t kPatience = 6;  // slices, after which a call whose condition holds would long have seen it

class Traffic {
 public:
  explicit Traffic(const std::vector<std::string>& names, uint32_t most = 1) : world(names, queue_of(most)) {
    world.explorer.at_end = [this] { return verdict(); };
  }

  void put(Hold& hold, const TableFacts& t) {
    hold.add(t.record->limiter.inserts, 1);
    hold.add(t.record->size, 1);
    hold.add(t.record->next_insert_no, 1);
    hold.inserted(t.index);
  }

  // As the writers of the core do (InsertHolds).
  Status insert(uint32_t n, const Wait& wait) {
    Arena& a = world.arena(self());
    const TableFacts& t = world.table(self());
    uint32_t done = 0;
    return InsertHolds(a, 1, wait)
        .run([&] { return done < n; },
             [&](Hold& hold, Filled& filled) {
               if (admitted_inserts(hold, *t.record, 1) == 0) {
                 filled.blocking = t.index;
                 return Status::kOk;
               }
               put(hold, t);
               filled.items = 1;
               ++done;
               return Status::kOk;
             });
  }

  // As SampleCall::draw_all and draw_part do.
  Status sample(uint32_t n, const Wait& wait) {
    Arena& a = world.arena(self());
    const TableFacts& t = world.table(self());
    Blocked blocked(a, t, kSamples, wait);
    for (uint32_t done = 0; done < n;) {
      {
        Hold hold(a);
        if (const Status s = enter_table(hold, t, wait); s != Status::kOk) return s;
        blocked.leave(hold);
        if (t.record->size.get() > 0 && admitted_samples(hold, *t.record, 1) > 0) {
          hold.add(t.record->limiter.samples, 1);
          hold.add(t.record->limiter.deletes, 1);
          hold.set(t.record->size, t.record->size.get() - 1);
          hold.touch(t.index);
          ++done;
        } else {
          blocked.join(hold);
        }
      }
      if (!blocked.joined()) continue;
      if (const Status s = blocked.sleep(); s != Status::kOk) return s;
    }
    return Status::kOk;
  }

  // A call that gives up does so because it is not admitted, and only after a death.
  void expect_done(Status s, Side side) {
    if (s == Status::kOk) return;
    require(s == Status::kTimeout, "a call ended with an error");
    require(world.explorer.somebody_died(), "a call gave up although everybody lives");
    require(!can_go_on(world.record(), side), "a call gave up although it is admitted");
  }

  void writer(uint32_t n) { expect_done(insert(n, {clock_ns() + kPatience * kSliceNs, nullptr}), kInserts); }
  void reader(uint32_t n) { expect_done(sample(n, {clock_ns() + kPatience * kSliceNs, nullptr}), kSamples); }

  ExploredArena world;

 private:
  std::string verdict() {
    const TableRecord& t = world.record();
    const Limiter& l = t.limiter;
    if (world.checker().failed()) return "the segment is marked failed";
    // A dead process may still be in the lock, and then words of its hold stand.
    if ((world.checker().lock().mutex.__data.__lock & 0x4000'0000) != 0) return {};
    if (l.inserts.get() - l.deletes.get() != t.size.get()) return "I - D is not the size of the table";
    if (l.inserts.get() - l.samples.get() > t.max_size) return "more items were admitted than the limiter allows";
    if (!world.explorer.somebody_died() &&
        (t.sides[kInserts].sleepers.get() != 0 || t.sides[kSamples].sleepers.get() != 0))
      return "sleepers are counted after everybody has left";
    return {};
  }
};

}  // namespace

TEST(two_writers_and_a_reader_of_a_full_queue_are_all_woken) {
  Traffic q({"writer 1", "writer 2", "reader"});
  q.world.explorer.process("writer 1", [&q] { q.writer(1); });
  q.world.explorer.process("writer 2", [&q] { q.writer(1); });
  q.world.explorer.process("reader", [&q] { q.reader(2); });
  explore(q.world.explorer, of_three());
}

TEST(a_writer_and_a_reader_that_wait_for_each_other_are_woken_each_time) {
  Traffic q({"writer", "reader"});
  const auto n = static_cast<uint32_t>(depth(2, 3));
  q.world.explorer.process("writer", [&q, n] { q.writer(n); });
  q.world.explorer.process("reader", [&q, n] { q.reader(n); });
  explore(q.world.explorer, {});
}

TEST(whoever_dies_the_others_go_on_within_a_slice_if_they_are_admitted) {
  Traffic q({"writer", "reader"});
  q.world.explorer.process("writer", [&q] { q.writer(2); });
  q.world.explorer.process("reader", [&q] { q.reader(2); });
  Budget b;
  b.deaths = 1;
  b.slices = 2 * kPatience + 4;
  explore(q.world.explorer, b);
}

TEST(of_two_readers_and_a_writer_one_dies_and_no_item_waits_for_a_sleeper) {
  if (!is_long()) return;
  Traffic q({"writer", "reader 1", "reader 2"});
  q.world.explorer.process("writer", [&q] { q.writer(2); });
  q.world.explorer.process("reader 1", [&q] { q.reader(1); });
  q.world.explorer.process("reader 2", [&q] { q.reader(1); });
  Budget b;
  b.preemptions = 2;
  b.deaths = 1;
  b.slices = 3 * kPatience + 4;
  explore(q.world.explorer, b);
}

TEST(a_call_that_gives_up_hands_its_permission_on) {
  Traffic q({"writer", "reader 1", "reader 2"});
  q.world.explorer.process("writer", [&q] { q.writer(2); });
  // Its time is over after one slice: perhaps when it has just been woken and waits for the lock.
  q.world.explorer.process("reader 1", [&q] {
    const Status s = q.sample(1, {clock_ns() + kSliceNs, nullptr});
    require(s == Status::kOk || s == Status::kTimeout || s == Status::kLockTimeout, "a call ended with an error");
  });
  q.world.explorer.process("reader 2", [&q] { q.reader(1); });
  q.world.explorer.may_sleep = [&q](uint32_t p) { return !can_go_on(q.world.record(), p == 0 ? kInserts : kSamples); };
  Budget b;
  b.early_timeouts = 1;
  b.preemptions = depth(1, 2);
  b.slices = 3 * kPatience;
  explore(q.world.explorer, b);
}

namespace {

// Hears of every insert, until there have been `n`.
void hear(Traffic& q, uint64_t n) {
  const Wait wait{clock_ns() + kPatience * kSliceNs, nullptr};
  for (uint64_t found = 0; found < n;) {
    const Status s = wait_for_insert(q.world.arena(self()), q.world.table(self()), found, wait, found);
    if (s == Status::kOk) continue;
    require(s == Status::kTimeout, "a call ended with an error");
    require(q.world.explorer.somebody_died(), "a call gave up although everybody lives");
    require(num_inserts(q.world.record()) <= found, "a call gave up although there is news");
    return;
  }
}

}  // namespace

TEST(two_readers_of_news_hear_of_the_insert_of_each_writer) {
  Traffic q({"writer 1", "writer 2", "reader"}, 4);
  q.world.explorer.process("writer 1", [&q] { q.writer(1); });
  q.world.explorer.process("writer 2", [&q] { q.writer(1); });
  q.world.explorer.process("reader", [&q] { hear(q, 2); });
  explore(q.world.explorer, of_three());
}

TEST(news_of_a_writer_that_dies_at_any_step_is_heard_within_a_slice) {
  Traffic q({"writer", "reader 1", "reader 2"}, 4);
  q.world.explorer.process("writer", [&q] { q.writer(static_cast<uint32_t>(depth(1, 2))); });
  q.world.explorer.process("reader 1", [&q] { hear(q, 1); });
  if (is_long()) q.world.explorer.process("reader 2", [&q] { hear(q, 1); });
  Budget b;
  if (is_long()) b.preemptions = 2;  // of three processes
  b.deaths = 1;
  b.slices = 2 * kPatience + 4;
  explore(q.world.explorer, b);
}

TEST(who_ends_the_calls_in_flight_is_woken_by_the_last_and_none_begins_after_it) {
  struct Shared {
    alignas(64) CallsInFlight calls;
    alignas(64) uint32_t inside = 0;
    uint32_t ended = 0;
  };
  alignas(64) Shared s;
  Explorer explorer;
  explorer.segment(&s.calls, sizeof s.calls);
  explorer.watch("calls", &s.calls, sizeof s.calls);
  explorer.watch("checks", &s.inside, 8, Memory::kPrivate);
  for (const char* name : {"caller 1", "caller 2"}) {
    explorer.process(name, [&s] {
      for (int i = 0; i < depth(1, 2); ++i) {
        if (!s.calls.begin()) return;
        require(s.ended == 0, "a call began after all had ended");
        ++s.inside;
        --s.inside;
        s.calls.end();
      }
    });
  }
  explorer.process("closer", [&s] {
    require(s.calls.end_all(clock_ns() + kSliceNs), "a deadline ended the wait for calls that had ended");
    require(s.inside == 0, "a call is under way after all have ended");
    s.ended = 1;
  });
  explore(explorer, {});
}
