// Calls in flight: once they are ended, none begins, and a thread that waits for the last one is woken by it.
#include "base/calls_in_flight.h"

#include <atomic>
#include <thread>
#include <vector>

#include "support/harness.h"

namespace shmreplay::test {
namespace {

TEST(a_call_begins_until_all_are_ended) {
  CallsInFlight calls;
  {
    const CallInFlight first(calls), second(calls);
    CHECK(first.begun());
    CHECK(second.begun());
  }
  CHECK(calls.end_all(now_ns()));
  const CallInFlight late(calls);
  CHECK(!late.begun());
  CHECK(calls.end_all(now_ns()));  // the call that came too late does not count
}

TEST(ending_gives_up_at_its_deadline_while_a_call_is_under_way) {
  CallsInFlight calls;
  const CallInFlight call(calls);
  CHECK(!calls.end_all(now_ns() + 1'000'000));
}

TEST(ending_waits_for_the_last_call_of_many_threads) {
  for (int round = 0; round < 200; ++round) {
    CallsInFlight calls;
    std::atomic<int> inside{0};
    std::atomic<bool> ended{false};
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        for (;;) {
          const CallInFlight call(calls);
          if (!call.begun()) return;
          inside.fetch_add(1);
          CHECK(!ended.load());
          inside.fetch_sub(1);
        }
      });
    }
    CHECK(calls.end_all(INT64_MAX));
    CHECK_EQ(inside.load(), 0);
    ended.store(true);
    for (std::thread& t : threads) t.join();
  }
}

}  // namespace
}  // namespace shmreplay::test
