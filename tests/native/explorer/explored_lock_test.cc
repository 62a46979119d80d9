// The lock's hand-over, in every order: two or three processes hold it, die in it at every step, and are stopped in it.
#include <cstring>

#include "explorer/explored_arena.h"
#include "support/harness.h"

using namespace shmreplay;
using namespace shmreplay::explorer;

namespace {

constexpr uint32_t kNobody = UINT32_MAX;
constexpr size_t kStateBytes = offsetof(ArenaState, num_rebuilds);

// What the checks know of the holds: who is in one, and what the index must be when the next one begins.
struct Ledger {
  uint32_t holder;
  bool is_ending;
  uint64_t committed;  // holds
  char before[kStateBytes], after[kStateBytes];
};

class Holders {
 public:
  explicit Holders(const std::vector<std::string>& names) : world(names, queue_of(1)) {
    world.explorer.watch("ledger", &ledger_, sizeof ledger_, Memory::kPrivate);
    ledger_.holder = kNobody;
    note(ledger_.after);
    world.explorer.at_death = [this](uint32_t p) { settle(p); };
    world.explorer.at_end = [this] { return verdict(); };
  }

  // One hold that changes two words and a record. Answers what begin() answered.
  Status hold_once(const Wait& wait) {
    const uint32_t p = self();
    Arena& a = world.arena(p);
    Hold hold(a);
    if (const Status s = hold.begin(wait); s != Status::kOk) return s;
    enter(p);
    hold.add(a.state().next_stream_serial, 1);
    hold.add(a.state().next_take, 1);
    hold.add(a.state().next_take, 1);  // a roll-back must begin with the newest entry
    note(ledger_.after);
    ledger_.is_ending = true;
    hold.end();
    if (ledger_.holder == p) leave();
    return Status::kOk;
  }

  bool is_held() { return (static_cast<uint32_t>(world.checker().lock().mutex.__data.__lock) & 0x3fff'ffff) != 0; }

  ExploredArena world;

 private:
  void note(char* to) { std::memcpy(to, static_cast<const void*>(&world.checker().state()), kStateBytes); }

  void leave() {
    ++ledger_.committed;
    ledger_.holder = kNobody;
    ledger_.is_ending = false;
  }

  void enter(uint32_t p) {
    const LockBlock& lock = world.checker().lock();
    if (ledger_.holder != kNobody && ledger_.is_ending) leave();  // it has unlocked, and had no turn since
    require(ledger_.holder == kNobody, "two processes are in the lock");
    require(world.checker().log().length.load() == 0, "a hold begins on a log that is not empty");
    require((lock.hold_seq.load() & 1) == 1, "hold_seq is even inside a hold");
    require(lock.pid.load() == world.arena(p).pid(), "the lock names another holder");
    require(std::memcmp(ledger_.after, static_cast<const void*>(&world.checker().state()), kStateBytes) == 0,
            "the index is not what the last hold that happened left");
    ledger_.holder = p;
    ledger_.is_ending = false;
    note(ledger_.before);
  }

  // The process dies. Its hold has happened if the log is empty, and else it has not.
  void settle(uint32_t p) {
    if (ledger_.holder != p) return;
    if (ledger_.is_ending && world.checker().log().length.load() == 0) {
      leave();
      return;
    }
    std::memcpy(ledger_.after, ledger_.before, kStateBytes);
    ledger_.holder = kNobody;
    ledger_.is_ending = false;
  }

  std::string verdict() {
    if (world.checker().failed()) return "the segment is marked failed";
    const auto word = static_cast<uint32_t>(world.checker().lock().mutex.__data.__lock);
    if (word != 0 && !world.explorer.somebody_died()) return "the mutex is not free at the end";
    if (word != 0) roll_back(world.checker());  // the last one died in the lock, perhaps in a roll-back
    if (world.checker().log().length.load() != 0) return "the log is not empty at the end";
    if (std::memcmp(ledger_.after, static_cast<const void*>(&world.checker().state()), kStateBytes) != 0)
      return "the index is not what the holds that happened left";
    return {};
  }

  Ledger ledger_{};
};

void hold_times(Holders& h, int n) {
  for (int i = 0; i < n; ++i) require(h.hold_once({}) == Status::kOk, "a hold could not begin");
}

// Hears who is said to hold the lock for long.
class Ear final : public Patience {
 public:
  bool interrupted() noexcept override { return false; }
  void lock_stuck(uint32_t pid, int64_t) noexcept override { named = pid; }
  void still_blocked(int64_t) noexcept override {}
  uint32_t named = 0;
};

}  // namespace

TEST(a_hold_is_alone_and_its_hand_over_wakes_the_next) {
  Holders h({"writer 1", "writer 2", "reader"});
  for (const char* name : {"writer 1", "writer 2", "reader"})
    h.world.explorer.process(name, [&h] { hold_times(h, 1); });
  explore(h.world.explorer, of_three());
}

TEST(two_processes_that_hold_again_and_again_are_alone_and_get_their_turns) {
  Holders h({"writer", "reader"});
  for (const char* name : {"writer", "reader"}) h.world.explorer.process(name, [&h] { hold_times(h, depth(2, 3)); });
  explore(h.world.explorer, {});
}

TEST(the_hold_of_a_process_that_dies_at_any_step_happens_whole_or_not_at_all) {
  Holders h({"writer", "reader"});
  for (const char* name : {"writer", "reader"}) h.world.explorer.process(name, [&h] { hold_times(h, 2); });
  Budget b;
  b.deaths = depth(1, 2);
  explore(h.world.explorer, b);
}

TEST(of_three_processes_one_dies_at_any_step_and_the_others_get_the_lock) {
  Holders h({"writer 1", "writer 2", "reader"});
  for (const char* name : {"writer 1", "writer 2", "reader"})
    h.world.explorer.process(name, [&h] { hold_times(h, 1); });
  Budget b = of_three();
  b.deaths = 1;
  explore(h.world.explorer, b);
}

TEST(a_holder_that_is_stopped_at_any_step_is_named_and_the_timeout_of_who_waits_ends) {
  Holders h({"writer", "reader"});
  for (const char* name : {"writer", "reader"}) {
    h.world.explorer.process(name, [&h] {
      Ear ear;
      const Wait wait{clock_ns() + 2 * kSliceNs, &ear};
      const Status s = h.hold_once(wait);
      if (s == Status::kOk) return;
      require(s == Status::kLockTimeout, "a hold could not begin, and not for want of time");
      if (h.world.explorer.time_passed_early()) return;  // its holder may have gone on after the last look
      require(h.is_held(), "a call gave up a lock that nobody holds");
      require(ear.named == pid_of(1 - self()), "a call gave up, and did not name who holds the lock");
    });
  }
  Budget b;
  b.stops = 1;
  b.early_timeouts = depth(0, 1);
  explore(h.world.explorer, b);
}
