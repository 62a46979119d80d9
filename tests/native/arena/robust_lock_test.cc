#include "arena/robust_lock.h"

#include <csignal>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/futex.h"
#include "support/fixtures.h"

namespace shmreplay::test {
namespace {

using Outcome = RobustLock::Outcome;

// A lock in memory that forked children share.
class SharedLock {
 public:
  SharedLock()
      : block_(new (mmap(nullptr, sizeof(LockBlock), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))
                   LockBlock{}) {
    RobustLock::init(*block_);
  }
  ~SharedLock() { munmap(block_, sizeof(LockBlock)); }
  LockBlock& operator*() const { return *block_; }
  LockBlock* operator->() const { return block_; }

 private:
  LockBlock* block_;
};

void lock_and_die(SharedLock& lock) {
  Child child([&] {
    RobustLock::lock(*lock, 7, 4711, kWhatever);
    raise(SIGKILL);
  });
  CHECK(child.killed());
}

// Holds the lock in a child until the child is told to go on.
class Holder {
 public:
  explicit Holder(SharedLock& lock)
      : child_([&lock] {
          RobustLock::lock(*lock, 3, static_cast<uint32_t>(getpid()), kWhatever);
          raise(SIGSTOP);
          RobustLock::unlock(*lock);
        }) {
    int status = 0;
    CHECK_EQ(waitpid(child_.pid(), &status, WUNTRACED), child_.pid());
    CHECK(WIFSTOPPED(status));
  }
  uint32_t pid() const { return static_cast<uint32_t>(child_.pid()); }
  void go_on() { child_.send(SIGCONT); }
  void join() { child_.join(); }

 private:
  Child child_;
};

}  // namespace

TEST(this_machine_reports_the_death_of_a_lock_owner) { prove_robust_lock(); }

TEST(the_holder_signs_with_session_pid_and_an_odd_number) {
  SharedLock lock;
  CHECK(RobustLock::lock(*lock, 5, 1234, kWhatever) == Outcome::kLocked);
  CHECK_EQ(lock->hold_seq.load() % 2, 1u);
  CHECK_EQ(lock->session.load(), 5u);
  CHECK_EQ(lock->pid.load(), 1234u);
  CHECK_EQ(lock->num_waits.load(), 0u);
  RobustLock::unlock(*lock);
  CHECK_EQ(lock->hold_seq.load() % 2, 0u);
}

TEST(a_try_on_a_held_lock_is_busy_and_leaves_the_holders_signature) {
  SharedLock lock;
  Holder holder(lock);
  CHECK(RobustLock::try_lock(*lock, 9, 9) == Outcome::kBusy);
  CHECK_EQ(lock->session.load(), 3u);
  holder.go_on();
  holder.join();
}

TEST(the_next_locker_is_told_that_the_owner_died) {
  SharedLock lock;
  lock_and_die(lock);
  CHECK(RobustLock::try_lock(*lock, 1, 1) == Outcome::kOwnerDied);
  CHECK_EQ(lock->hold_seq.load() % 2, 1u);
  CHECK(RobustLock::make_consistent(*lock));
  RobustLock::unlock(*lock);
  CHECK(RobustLock::lock(*lock, 1, 1, kWhatever) == Outcome::kLocked);
  RobustLock::unlock(*lock);
}

TEST(a_lock_left_without_being_made_consistent_is_unusable) {
  SharedLock lock;
  lock_and_die(lock);
  CHECK(RobustLock::lock(*lock, 1, 1, kWhatever) == Outcome::kOwnerDied);
  RobustLock::unlock(*lock);
  CHECK(RobustLock::lock(*lock, 1, 1, kWhatever) == Outcome::kUnusable);
}

TEST(a_waiter_that_sleeps_in_the_kernel_is_told_of_the_owners_death) {
  SharedLock lock;
  Holder holder(lock);
  // Only the holder's death can end the wait.
  Child waiter([&] {
    CHECK(RobustLock::lock(*lock, 2, 2, kWhatever) == Outcome::kOwnerDied);
    CHECK(RobustLock::make_consistent(*lock));
    RobustLock::unlock(*lock);
  });
  Listener listener;
  CHECK(RobustLock::lock(*lock, 1, 1, {now_ns(), &listener}) == Outcome::kTimeout);
  kill(static_cast<pid_t>(holder.pid()), SIGKILL);
  waiter.join();
}

TEST(a_hold_that_lasts_is_reported_with_its_pid_and_then_an_error) {
  SharedLock lock;
  Holder holder(lock);
  Listener listener;
  CHECK(RobustLock::lock(*lock, 1, 1, {now_ns(), &listener}) == Outcome::kTimeout);
  CHECK_EQ(listener.stuck_pid, holder.pid());
  CHECK_EQ(listener.stuck_seconds, 1);
  holder.go_on();
  CHECK(RobustLock::lock(*lock, 1, 1, {kForever, &listener}) == Outcome::kLocked);
  RobustLock::unlock(*lock);
  holder.join();
}

TEST(a_caller_without_a_deadline_reports_and_waits_on) {
  SharedLock lock;
  Holder holder(lock);
  class GoesOnAfterTwo final : public Patience {
   public:
    explicit GoesOnAfterTwo(Holder& h) : holder_(h) {}
    bool interrupted() noexcept override { return false; }
    void lock_stuck(uint32_t, int64_t seconds) noexcept override {
      seen = seconds;
      if (seconds == 2) holder_.go_on();
    }
    void still_blocked(int64_t) noexcept override {}
    int64_t seen = 0;

   private:
    Holder& holder_;
  } patience(holder);
  CHECK(RobustLock::lock(*lock, 1, 1, {kForever, &patience}) == Outcome::kLocked);
  CHECK(patience.seen >= 2);  // the holder goes on when it gets the processor
  CHECK_EQ(lock->num_waits.load(), 1u);
  CHECK(lock->wait_ns.load() >= uint64_t{2 * kSliceNs});
  RobustLock::unlock(*lock);
  holder.join();
}

TEST(a_signal_handler_that_raised_ends_the_wait_for_the_lock) {
  SharedLock lock;
  Holder holder(lock);
  Listener listener;
  listener.interrupt = true;
  CHECK(RobustLock::lock(*lock, 1, 1, {kForever, &listener}) == Outcome::kInterrupted);
  CHECK(listener.asked > 0);
}

TEST(threads_that_fight_for_the_lock_exclude_each_other) {
  SharedLock lock;
  uint64_t counter = 0;  // plain: only the lock protects it
  const auto body = [&] {
    for (int i = 0; i < 20'000; ++i) {
      CHECK(RobustLock::lock(*lock, 1, 1, kWhatever) == Outcome::kLocked);
      ++counter;
      RobustLock::unlock(*lock);
    }
  };
  run_threads({body, body, body, body});
  CHECK_EQ(counter, 80'000u);
  CHECK_EQ(lock->hold_seq.load(), 160'000u);
}

// Each hold outlasts a spinner's patience, so the others sleep in the kernel's wait and are woken from there.
TEST(threads_that_sleep_for_the_lock_get_it_one_after_the_other) {
  SharedLock lock;
  uint64_t counter = 0;
  const auto body = [&] {
    for (int i = 0; i < 200; ++i) {
      CHECK(RobustLock::lock(*lock, 1, 1, kWhatever) == Outcome::kLocked);
      ++counter;
      for (const int64_t end = now_ns() + 20'000; now_ns() < end;) {}
      RobustLock::unlock(*lock);
    }
  };
  run_threads({body, body, body});
  CHECK_EQ(counter, 600u);
}

}  // namespace shmreplay::test
