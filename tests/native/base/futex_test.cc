#include "base/futex.h"

#include <csignal>
#include <pthread.h>

#include "support/fixtures.h"

namespace shmreplay::test {

TEST(a_word_that_has_changed_already_is_not_slept_on) {
  std::atomic<uint32_t> word{1};
  CHECK(futex_wait(word, 0, kForever) == FutexResult::kWoken);
}

TEST(a_sleep_that_nobody_ends_times_out) {
  std::atomic<uint32_t> word{0};
  const int64_t before = now_ns();
  CHECK(futex_wait(word, 0, 2'000'000) == FutexResult::kTimedOut);
  CHECK(now_ns() - before >= 2'000'000);
}

TEST(a_wake_ends_the_sleep_of_as_many_as_it_says) {
  std::atomic<uint32_t> word{0}, awake{0};
  const auto sleeper = [&] {
    while (futex_wait(word, 0, kForever) == FutexResult::kSignal) {}
    ++awake;
  };
  const auto waker = [&] {
    word.store(1);
    until([&] {
      futex_wake(word, 1);  // repeated: a sleeper may still be on its way to the word
      return awake == 3;
    });
  };
  run_threads({sleeper, sleeper, sleeper, waker});
}

TEST(a_signal_ends_the_sleep) {
  struct sigaction action{};
  action.sa_handler = [](int) {};  // no SA_RESTART: the system call returns
  sigaction(SIGUSR1, &action, nullptr);
  std::atomic<uint32_t> word{0};
  std::atomic<bool> done{false};
  std::atomic<pthread_t> self{};
  const auto sleeper = [&] {
    self.store(pthread_self());
    CHECK(futex_wait(word, 0, kForever) == FutexResult::kSignal);
    done = true;
  };
  const auto other = [&] {
    until([&] { return self.load() != pthread_t{}; });
    until([&] {
      if (!done) pthread_kill(self.load(), SIGUSR1);
      return done.load();
    });
  };
  run_threads({sleeper, other});
}

TEST(both_clocks_go_forward_together) {
  const int64_t fine = now_ns();
  const auto coarse = static_cast<int64_t>(coarse_now_ns());
  CHECK(coarse <= now_ns());
  CHECK(fine - coarse < 1'000'000'000);
}

}  // namespace shmreplay::test
