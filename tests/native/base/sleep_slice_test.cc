#include "base/sleep_slice.h"

#include "support/fixtures.h"

namespace shmreplay::test {
namespace {
constexpr int64_t kLong = 3600 * kSliceNs;
}  // namespace

TEST(a_slice_without_a_wake_ends_by_itself_and_the_wait_goes_on) {
  std::atomic<uint32_t> word{0};
  const int64_t before = now_ns();
  CHECK_EQ(sleep_slice(word, 0, 2'000'000, before, kWhatever), Status::kOk);
  CHECK(now_ns() - before >= 2'000'000);
}

TEST(a_word_that_has_changed_ends_the_slice_at_once) {
  std::atomic<uint32_t> word{1};
  CHECK_EQ(sleep_slice(word, 0, kLong, now_ns(), kWhatever), Status::kOk);
}

TEST(one_changed_word_of_several_ends_the_slice) {
  std::atomic<uint32_t> same{0}, changed{8};
  const FutexWord words[] = {{&same, 0}, {&changed, 7}};
  CHECK_EQ(sleep_slice(words, 2, kLong, now_ns(), kWhatever), Status::kOk);
}

TEST(a_deadline_that_is_over_and_a_wait_that_only_tries_do_not_sleep) {
  std::atomic<uint32_t> word{0};
  CHECK_EQ(sleep_slice(word, 0, kLong, now_ns(), kNow), Status::kTimeout);
  CHECK_EQ(sleep_slice(word, 0, kLong, now_ns(), {kForever, nullptr, true}), Status::kTimeout);
}

TEST(a_deadline_before_the_end_of_the_slice_ends_it) {
  std::atomic<uint32_t> word{0};
  const Wait wait{now_ns() + 2'000'000};
  Status status = Status::kOk;
  while (status == Status::kOk) status = sleep_slice(word, 0, kLong, now_ns(), wait);
  CHECK_EQ(status, Status::kTimeout);
  CHECK(now_ns() >= wait.deadline_ns);
}

TEST(a_signal_handler_that_raised_ends_the_wait) {
  std::atomic<uint32_t> word{0};
  Listener listener;
  listener.interrupt = true;
  CHECK_EQ(sleep_slice(word, 0, 1'000'000, now_ns(), {kForever, &listener}), Status::kInterrupted);
}

}  // namespace shmreplay::test
