#include "arena/robust_lock.h"

#include <csignal>
#include <cstring>
#include <linux/futex.h>
#include <string>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/futex.h"
#include "base/process.h"
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

void wait_until_stopped(const Child& child) {
  int status = 0;
  CHECK_EQ(waitpid(child.pid(), &status, WUNTRACED), child.pid());
  CHECK(WIFSTOPPED(status));
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
    wait_until_stopped(child_);
  }
  uint32_t pid() const { return static_cast<uint32_t>(child_.pid()); }
  void go_on() { child_.send(SIGCONT); }
  void join() { child_.join(); }

 private:
  Child child_;
};

const char* stop_at = "";

void stop_there(const char* name) {
  if (std::string(name) == stop_at) raise(SIGSTOP);
}

void put_word(SharedLock& lock, uint32_t word) { std::memcpy(&lock->mutex.__data.__lock, &word, sizeof word); }

uint32_t id_of_no_thread() {
  Child child([] {});
  child.join();
  CHECK(thread_is_gone(static_cast<uint32_t>(child.pid())));
  return static_cast<uint32_t>(child.pid());
}

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

// hold_seq is even at both of these places.
TEST(a_holder_that_stops_before_it_signs_or_before_it_unlocks_is_named_when_the_deadline_is_over) {
  for (const char* place : {"lock.taken", "lock.leaving"}) {
    SharedLock lock;
    Child child([&] {
      stop_at = place;
      fault::listen(stop_there);
      RobustLock::lock(*lock, 3, 4711, kWhatever);
      RobustLock::unlock(*lock);
    });
    wait_until_stopped(child);
    CHECK_EQ(lock->hold_seq.load() % 2, 0u);
    Listener listener;
    CHECK(RobustLock::lock(*lock, 1, 1, {now_ns(), &listener}) == Outcome::kTimeout);
    CHECK_EQ(listener.stuck_pid, static_cast<uint32_t>(child.pid()));
    CHECK_EQ(RobustLock::owner(*lock).pid, static_cast<uint32_t>(child.pid()));
    child.send(SIGCONT);
    CHECK(RobustLock::lock(*lock, 1, 1, kWhatever) == Outcome::kLocked);
    RobustLock::unlock(*lock);
    child.join();
    CHECK_EQ(RobustLock::owner(*lock).thread, 0u);
  }
}

TEST(a_holder_that_is_stopped_anywhere_is_named_when_the_deadline_is_over) {
  SharedLock lock;
  Child child([&] {
    for (;;) {
      RobustLock::lock(*lock, 3, static_cast<uint32_t>(getpid()), kWhatever);
      RobustLock::unlock(*lock);
    }
  });
  Random random(seed());
  uint64_t num_even = 0;
  const uint64_t num_stops = rounds(2, 25);
  for (uint64_t stops = 0; stops < num_stops;) {
    const int64_t until_ns = now_ns() + static_cast<int64_t>(random.below(300'000));
    while (now_ns() < until_ns) sched_yield();
    child.stop();
    if (RobustLock::owner(*lock).thread != 0) {
      ++stops;
      num_even += lock->hold_seq.load() % 2 == 0 ? 1 : 0;
      Listener listener;
      CHECK(RobustLock::lock(*lock, 1, 1, {now_ns(), &listener}) == Outcome::kTimeout);
      CHECK_EQ(listener.stuck_pid, static_cast<uint32_t>(child.pid()));
    }
    child.send(SIGCONT);
  }
  printf("    %llu stops of a holder, %llu of them while hold_seq was even\n",
         static_cast<unsigned long long>(num_stops), static_cast<unsigned long long>(num_even));
}

TEST(the_owner_is_the_process_whose_thread_has_the_lock) {
  SharedLock lock;
  Child child([&] {
    run_threads({[&] {
      RobustLock::lock(*lock, 3, 4711, kWhatever);
      raise(SIGSTOP);
      RobustLock::unlock(*lock);
    }});
  });
  wait_until_stopped(child);
  const LockOwner owner = RobustLock::owner(*lock);
  CHECK_EQ(owner.pid, static_cast<uint32_t>(child.pid()));
  CHECK(owner.thread != owner.pid);
  child.send(SIGCONT);
  child.join();
}

TEST(a_mutex_whose_word_names_no_thread_is_unusable_also_without_a_deadline) {
  for (const uint32_t word : {id_of_no_thread(), uint32_t{FUTEX_WAITERS}, uint32_t{FUTEX_TID_MASK}}) {
    SharedLock lock;
    put_word(lock, word);
    CHECK(RobustLock::lock(*lock, 1, 1, kWhatever) == Outcome::kUnusable);
  }
}

TEST(a_mutex_whose_word_names_a_thread_that_does_not_have_it_is_waited_for_until_the_deadline) {
  SharedLock lock;
  Child innocent([] { pause(); });
  put_word(lock, static_cast<uint32_t>(innocent.pid()));
  Listener listener;
  CHECK(RobustLock::lock(*lock, 1, 1, {now_ns(), &listener}) == Outcome::kTimeout);
  CHECK_EQ(listener.stuck_pid, static_cast<uint32_t>(innocent.pid()));
  listener.interrupt = true;
  CHECK(RobustLock::lock(*lock, 1, 1, {kForever, &listener}) == Outcome::kInterrupted);
}

TEST(a_mutex_of_another_kind_is_unusable) {
  for (int bit = 0; bit < 31; ++bit) {
    SharedLock lock;
    lock->mutex.__data.__kind ^= 1 << bit;
    CHECK(RobustLock::try_lock(*lock, 1, 1) == Outcome::kUnusable);
    put_word(lock, static_cast<uint32_t>(getpid()));
    CHECK(RobustLock::lock(*lock, 1, 1, kWhatever) == Outcome::kUnusable);
  }
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
