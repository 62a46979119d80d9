// Waiting for a chunk needs no lock: the waiter announces itself and then looks at the leases, who drops a lease clears its
// count and then looks for waiters. Store buffering: were either order not sequentially consistent, both could miss the
// other, and the waiter would sleep although its chunk is free.
#include <cstdio>

#include "fixtures.h"
#include "leases.h"

namespace shmreplay::test {
namespace {

// Both threads go at the same time, again and again.
class Barrier {
 public:
  void wait() noexcept {
    const uint32_t round = round_.load();
    if (arrived_.fetch_add(1) == 1) {
      arrived_.store(0);
      round_.store(round + 1);
      return;
    }
    for (int spins = 0; round_.load() == round; ++spins) {
      if (spins > 200) until([&] { return round_.load() != round; });
    }
  }

 private:
  std::atomic<uint32_t> arrived_{0}, round_{0};
};

// What happened how often: whether the waiter saw the lease gone, and whether who dropped it saw the waiter.
class Outcomes {
 public:
  void count(bool waiter_sees_drop, bool dropper_sees_waiter) { ++counts_[waiter_sees_drop][dropper_sees_waiter]; }

  void print_and_check() const {
    const auto row = [&](bool drop, bool waiter, const char* verdict) {
      printf("    waiter sees the drop: %-3s  dropper sees the waiter: %-3s  %9llu  %s\n", drop ? "yes" : "no", waiter ? "yes" : "no",
             static_cast<unsigned long long>(counts_[drop][waiter]), verdict);
    };
    printf("\n");
    row(true, true, "ACCEPTABLE  a needless wake");
    row(true, false, "ACCEPTABLE  the waiter does not sleep");
    row(false, true, "ACCEPTABLE  the waiter is woken");
    row(false, false, "FORBIDDEN   the waiter sleeps and nobody wakes it");
    CHECK_EQ(counts_[0][0], 0u);
    CHECK(counts_[1][0] + counts_[0][1] + counts_[1][1] > 0);
  }

 private:
  uint64_t counts_[2][2] = {};
};

// A little time, different from round to round, so that either thread is sometimes the first.
void dawdle(Random& random) noexcept {
  for (uint64_t n = random.below(60); n > 0; --n) std::atomic_signal_fence(std::memory_order_seq_cst);
}

}  // namespace

TEST(of_waiter_and_dropper_at_least_one_sees_the_other) {
  const int rounds = kSanitized ? 20'000 : 300'000;
  World w(arena_of({open_table("a", 10)}));
  ArenaState& s = w.arena.state();
  CallSlot& slot = w.arena.call(0);
  const uint64_t from = seed();
  Barrier barrier;
  bool waiter_sees_drop = false, dropper_sees_waiter = false;
  Outcomes outcomes;
  // The words and orders of wait_for_chunk() and named_chunks() ...
  const auto waiter = [&] {
    Random random(from);
    for (int i = 0; i < rounds; ++i) {
      slot.count.store(1);
      s.chunk_waiters.store(0);
      barrier.wait();
      dawdle(random);
      s.chunk_waiters.store(1, std::memory_order_seq_cst);
      waiter_sees_drop = slot.count.load(std::memory_order_seq_cst) == 0;
      barrier.wait();
      outcomes.count(waiter_sees_drop, dropper_sees_waiter);
    }
  };
  // ... and of Lease::drop() and wake_chunk_waiters(), alone.
  const auto dropper = [&] {
    Random random(from + 1);
    for (int i = 0; i < rounds; ++i) {
      barrier.wait();
      dawdle(random);
      slot.count.store(0, std::memory_order_seq_cst);
      dropper_sees_waiter = s.chunk_waiters.load(std::memory_order_seq_cst) != 0;
      barrier.wait();
    }
  };
  run_threads({waiter, dropper});
  outcomes.print_and_check();
}

TEST(the_functions_themselves_never_miss_each_other) {
  const int rounds = kSanitized ? 10'000 : 100'000;
  World w(arena_of({open_table("a", 10)}));
  ArenaState& s = w.arena.state();
  const uint64_t from = seed();
  Lease lease(w.arena);
  Barrier barrier;
  Outcomes outcomes;
  const auto waiter = [&] {
    Random random(from);
    for (int i = 0; i < rounds; ++i) {
      {
        Hold hold(w.arena);
        CHECK_EQ(hold.begin(kWhatever), Status::kOk);
        CHECK_EQ(lease.take(hold), Status::kOk);
        lease.name(hold, 3);
      }
      s.chunk_waiters.store(0);
      const uint32_t before = s.chunk_futex.load();
      bool sees_drop = false;
      barrier.wait();
      dawdle(random);
      // Ends at once: this wait never sleeps, it only announces itself and looks.
      wait_for_chunk(w.arena, kNow, 0, [&](bool& found) {
        sees_drop = found = named_chunks(w.arena).empty();
        return Status::kOk;
      });
      barrier.wait();
      outcomes.count(sees_drop, s.chunk_futex.load() != before);
    }
  };
  const auto dropper = [&] {
    Random random(from + 1);
    for (int i = 0; i < rounds; ++i) {
      barrier.wait();
      dawdle(random);
      lease.drop();
      barrier.wait();
    }
  };
  run_threads({waiter, dropper});
  outcomes.print_and_check();
}

}  // namespace shmreplay::test
