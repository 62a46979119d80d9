#include "arena/admission.h"

#include <cfloat>

#include "support/limited_table.h"

namespace shmreplay::test {
namespace {

bool inserts(World& w, uint64_t n) { return can_insert(*w.table().record, n); }
bool samples(World& w, uint64_t n) { return can_sample(*w.table().record, n); }

}  // namespace

TEST(the_first_worked_example_with_one_and_a_half_samples_an_insert) {
  World w(limited(1.5, 2, 0, 5));
  for (uint64_t n = 1; n <= 3; ++n) CHECK(inserts(w, n));
  CHECK(!inserts(w, 4));
  count(w, 3, 0);
  CHECK(!inserts(w, 1));
  count(w, 3, 2);
  CHECK(inserts(w, 1));
  CHECK(!inserts(w, 2));
}

TEST(the_second_worked_example_with_a_buffer_of_one_to_both_sides) {
  World w(limited(1, 1, -1, 1));
  CHECK(!samples(w, 1));
  count(w, 1, 0);
  CHECK(samples(w, 1));
  CHECK(samples(w, 2));
  CHECK(!samples(w, 3));
}

TEST(inserts_up_to_the_minimum_size_are_never_held_back) {
  World w(limited(10, 5, 0, 1));
  CHECK(inserts(w, 5));
  CHECK(!inserts(w, 6));
  count(w, 8, 0, 6);  // two are live: three more are below the minimum again
  CHECK(inserts(w, 3));
  CHECK(!inserts(w, 4));
}

TEST(sampling_needs_the_minimum_of_live_items_and_not_of_inserts) {
  World w(limited(1, 3, -DBL_MAX, DBL_MAX));
  count(w, 5, 0, 3);
  CHECK(!samples(w, 1));
  count(w, 6, 0, 3);
  CHECK(samples(w, 1000));
}

TEST(both_bounds_are_inclusive) {
  World w(limited(1, 1, 2, 4));
  count(w, 4, 0);
  CHECK(samples(w, 2));
  CHECK(!samples(w, 3));
  count(w, 3, 0);
  CHECK(inserts(w, 1));
  CHECK(!inserts(w, 2));
}

TEST(without_bounds_nobody_waits_but_for_the_minimum_size) {
  World w(limited(1, 1, -DBL_MAX, DBL_MAX));
  CHECK(!samples(w, 1));
  count(w, uint64_t{1} << 50, uint64_t{1} << 52);
  CHECK(samples(w, 1'000'000));
  CHECK(inserts(w, 1'000'000));
}

TEST(a_paused_side_is_not_admitted_and_the_other_is) {
  World w(limited(1, 1, -DBL_MAX, DBL_MAX));
  count(w, 1, 0);
  CHECK_EQ(change_flags(w.arena, w.table(), kPausedInserts, 0, kNow), Status::kOk);
  CHECK(!inserts(w, 1) && samples(w, 1));
  CHECK_EQ(change_flags(w.arena, w.table(), kPausedSamples, kPausedInserts, kNow), Status::kOk);
  CHECK(inserts(w, 1) && !samples(w, 1));
  CHECK_EQ(change_flags(w.arena, w.table(), 0, kPausedSamples, kNow), Status::kOk);
  CHECK(inserts(w, 1) && samples(w, 1));
}

TEST(a_table_that_is_stopping_admits_neither_side_until_it_is_not_and_keeps_its_pause) {
  World w(limited(1, 1, -DBL_MAX, DBL_MAX));
  count(w, 1, 0);
  CHECK_EQ(change_flags(w.arena, w.table(), kPausedInserts, 0, kNow), Status::kOk);
  CHECK_EQ(change_flags(w.arena, w.table(), kStopping, 0, kNow), Status::kOk);
  CHECK(!inserts(w, 1) && !samples(w, 1));
  CHECK(!can_go_on(*w.table().record, kSamples));
  CHECK_EQ(change_flags(w.arena, w.table(), 0, kStopping, kNow), Status::kOk);
  CHECK(!inserts(w, 1) && samples(w, 1));
}

TEST(a_sleeper_may_look_again_when_the_table_is_dropped_or_reset_or_admits_one) {
  World w(limited(1, 1, 0, 1));
  TableRecord& r = *w.table().record;
  CHECK(can_go_on(r, kInserts) && !can_go_on(r, kSamples));
  count(w, 1, 0);
  CHECK(!can_go_on(r, kInserts) && can_go_on(r, kSamples));
  poke(r.size, 0);  // the numbers admit a sample, but there is no item
  CHECK(!can_go_on(r, kSamples));
  for (const uint32_t flag : {kDropped, kResetting}) {
    poke(r.flags, flag);
    CHECK(can_go_on(r, kInserts) && can_go_on(r, kSamples));
  }
}

TEST(the_largest_burst_is_what_is_admitted_once_sampling_has_caught_up) {
  const auto burst = [](double spi, double min_diff, double max_diff) {
    World w(limited(spi, 1, min_diff, max_diff));
    return largest_burst(*w.table().record);
  };
  CHECK_EQ(burst(1, 0, 5), 5u);
  CHECK_EQ(burst(2, -4, 5), 4u);
  CHECK_EQ(burst(1.5, 0, 10), 6u);  // sampling may stop up to one short of min_diff
  CHECK_EQ(burst(8, 0, 4), 1u);
  CHECK_EQ(burst(1, -DBL_MAX, 5), UINT64_MAX);
  CHECK_EQ(burst(1, 0, DBL_MAX), UINT64_MAX);
}

TEST(items_past_the_limiter_fill_the_table_and_leave_the_difference) {
  World w(limited(2, 3, 0, 10));
  count(w, 4, 2);
  const LimiterReport before = report(*w.table().record);
  CHECK(inserts(w, 2) && !inserts(w, 3));
  poke(w.table().record->limiter.inserts, 7);
  poke(w.table().record->limiter.uncounted, 3);
  CHECK_NEAR(report(*w.table().record).difference(), before.difference(), 0);
  CHECK(inserts(w, 2) && !inserts(w, 3));
  CHECK(samples(w, 6) && !samples(w, 7));
  count(w, 2, 0);  // min_size_to_sample counts items, whichever way they came
  CHECK(!samples(w, 1));
  poke(w.table().record->limiter.inserts, 3);
  poke(w.table().record->limiter.uncounted, 1);
  CHECK(samples(w, 4) && !samples(w, 5));
}

TEST(a_report_tells_all_the_numbers_of_a_verdict) {
  World w(limited(1.5, 2, -1, 5));
  count(w, 10, 4, 3);
  const LimiterReport r = report(*w.table().record);
  CHECK_EQ(r.inserts, 10u);
  CHECK_EQ(r.samples, 4u);
  CHECK_EQ(r.deletes, 3u);
  CHECK_EQ(r.size, 7u);
  CHECK_NEAR(r.difference(), 11, 0);
  CHECK_EQ(r.min_size_to_sample, 2);
}

}  // namespace shmreplay::test
