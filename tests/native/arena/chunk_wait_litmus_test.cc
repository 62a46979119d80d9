// Waiting for a chunk needs no lock. The waiter announces itself and then looks at the leases. A reader that drops a
// lease clears its count and then looks for waiters. This is store buffering: if either order were not sequentially
// consistent, both could miss the other, and the waiter would sleep although its chunk is free.
#include <cstdio>

#include "arena/chunk_wait.h"
#include "chunks/leases.h"
#include "support/fixtures.h"

namespace shmreplay::test {
namespace {

// Lets both threads go at the same time, again and again.
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

// How often each outcome came: whether the waiter saw the lease gone, and whether the dropper saw the waiter.
class Outcomes {
 public:
  void count(bool waiter_sees_drop, bool dropper_sees_waiter) { ++counts_[waiter_sees_drop][dropper_sees_waiter]; }
  uint64_t forbidden() const { return counts_[0][0]; }

  void print() const {
    const auto row = [&](bool drop, bool waiter, const char* verdict) {
      printf("    waiter sees the drop: %-3s  dropper sees the waiter: %-3s  %9llu  %s\n", drop ? "yes" : "no",
             waiter ? "yes" : "no", static_cast<unsigned long long>(counts_[drop][waiter]), verdict);
    };
    printf("\n");
    row(true, true, "ACCEPTABLE  a needless wake");
    row(true, false, "ACCEPTABLE  the waiter does not sleep");
    row(false, true, "ACCEPTABLE  the waiter is woken");
    row(false, false, "FORBIDDEN   the waiter sleeps and nobody wakes it");
  }

 private:
  uint64_t counts_[2][2] = {};
};

// The two words of one wait, and what each side saw of the other.
struct Cell {
  alignas(128) std::atomic<uint32_t> count{1};
  alignas(128) std::atomic<uint32_t> waiters{0};
  bool waiter_sees_drop = false, dropper_sees_waiter = false;
};

// How far a thread is. It does not run ahead of the other.
struct alignas(128) Progress {
  std::atomic<size_t> cells{0};

  void keep_pace_with(const Progress& other, size_t cell) noexcept {
    cells.store(cell, std::memory_order_relaxed);
    for (int spins = 0; other.cells.load(std::memory_order_relaxed) < cell; ++spins) {
      if (spins > 500) until([&] { return other.cells.load(std::memory_order_relaxed) >= cell; });
    }
  }
};

// A number of rounds, or as many as ten seconds allow: if more threads want to run than there are processors, two of
// them are seldom side by side.
class Rounds {
 public:
  explicit Rounds(int most) : left_(most), end_ns_(now_ns() + 10'000'000'000) {}

  // Both threads begin a round together; the first has decided whether there is one.
  bool next_of_first(Barrier& barrier) noexcept {
    if (left_-- == 0 || now_ns() > end_ns_) over_ = true;
    return next_of_second(barrier);
  }
  bool next_of_second(Barrier& barrier) noexcept {
    barrier.wait();
    return !over_;
  }

 private:
  int left_;
  int64_t end_ns_;
  bool over_ = false;
};

// Two threads run side by side along rows of cells, one as waiter and one as dropper. The orders are constants: with
// others compilers take seq_cst.
template <std::memory_order store, std::memory_order load>
Outcomes race(int most_rounds) {
  // With every line in both caches the loads are quick and the stores are not: that is when stores stay in their
  // buffers.
  const auto warm = [](const std::vector<Cell>& all) {
    uint32_t sum = 0;
    for (const Cell& c : all)
      sum += c.count.load(std::memory_order_relaxed) + c.waiters.load(std::memory_order_relaxed);
    CHECK_EQ(sum, all.size());
  };
  constexpr size_t kCells = 100;  // few enough for the first cache
  std::vector<Cell> cells(kCells);
  Progress waits, drops;
  Barrier barrier;
  Rounds rounds(most_rounds);
  Outcomes outcomes;
  const auto waiter = [&] {
    for (size_t n = 0; rounds.next_of_first(barrier);) {
      warm(cells);
      barrier.wait();
      for (Cell& c : cells) {
        waits.keep_pace_with(drops, ++n);
        c.waiters.store(1, store);
        c.waiter_sees_drop = c.count.load(load) == 0;
      }
      barrier.wait();
      for (Cell& c : cells) {
        outcomes.count(c.waiter_sees_drop, c.dropper_sees_waiter);
        c.count.store(1);
        c.waiters.store(0);
      }
    }
  };
  const auto dropper = [&] {
    for (size_t n = 0; rounds.next_of_second(barrier);) {
      warm(cells);
      barrier.wait();
      for (Cell& c : cells) {
        drops.keep_pace_with(waits, ++n);
        c.count.store(0, store);
        c.dropper_sees_waiter = c.waiters.load(load) != 0;
      }
      barrier.wait();
    }
  };
  run_threads({waiter, dropper});
  return outcomes;
}

// A little time, different from round to round, so that either thread is sometimes the first.
void dawdle(Random& random) noexcept {
  for (uint64_t n = random.below(60); n > 0; --n) std::atomic_signal_fence(std::memory_order_seq_cst);
}

}  // namespace

// The words and orders of wait_for_chunk() and named_chunks(), and of Lease::drop() and wake_chunk_waiters(), alone.
// Weaker orders are shown beside them and not judged: where the two run truly side by side, they bring what seq_cst
// forbids.
TEST(of_waiter_and_dropper_at_least_one_sees_the_other) {
  const Outcomes weaker = race<std::memory_order_release, std::memory_order_acquire>(kSanitized ? 100 : 2'000);
  const Outcomes outcomes = race<std::memory_order_seq_cst, std::memory_order_seq_cst>(kSanitized ? 200 : 8'000);
  outcomes.print();
  printf("    with release and acquire the last would have been seen %llu times\n",
         static_cast<unsigned long long>(weaker.forbidden()));
  CHECK_EQ(outcomes.forbidden(), 0u);
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
  outcomes.print();
  CHECK_EQ(outcomes.forbidden(), 0u);
}

}  // namespace shmreplay::test
