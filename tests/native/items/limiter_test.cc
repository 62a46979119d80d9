#include "items/limiter.h"

#include <cfloat>

#include "arena/admission.h"
#include "support/limited_table.h"

namespace shmreplay::test {
namespace {

void set(World& w, const LimiterNumbers& n, bool rebase) {
  CHECK_EQ(change_limiter(w.arena, w.table(), n, rebase, kNow), Status::kOk);
}

bool inserts(World& w, uint64_t n) { return can_insert(*w.table().record, n); }
bool samples(World& w, uint64_t n) { return can_sample(*w.table().record, n); }

}  // namespace

TEST(changing_the_limiter_keeps_the_counters_and_wakes_both_sides) {
  World w(limited(1, 1, 0, 10));
  count(w, 100, 95);
  set(w, {2, 0, 10, 1, true}, false);
  CHECK_EQ(w.table().record->limiter.inserts.get(), 100u);
  CHECK_EQ(w.table().record->limiter.count_deletes.get(), 1u);
  CHECK_NEAR(report(*w.table().record).difference(), 105, 0);
  CHECK(!inserts(w, 1));  // without rebase, for hours
  for (const WaitSide& side : w.table().record->sides) CHECK_EQ(side.futex.load(), 1u);
}

TEST(rebasing_starts_the_difference_in_the_middle_of_the_new_bounds) {
  World w(limited(1, 1, 0, 10));
  count(w, 100, 95);
  set(w, {2, 10, 30, 1, false}, true);
  CHECK_NEAR(report(*w.table().record).difference(), 20, 0);
  CHECK(inserts(w, 5) && !inserts(w, 6));
  CHECK(samples(w, 10) && !samples(w, 11));
  set(w, {2, 10, 30, 1, false}, true);  // again: from where the counters are, not from the last offset
  CHECK_NEAR(report(*w.table().record).difference(), 20, 0);
}

TEST(rebasing_to_one_bound_admits_a_call_at_least) {
  World w(limited(1, 1, 0, 10));
  count(w, 100, 1000);
  set(w, {1, 5, DBL_MAX, 1, false}, true);
  CHECK(samples(w, 1));
  count(w, 1000, 1);
  set(w, {1.5, -DBL_MAX, 5, 1, false}, true);
  CHECK(inserts(w, 1));
  CHECK(!inserts(w, 2));
}

TEST(rebasing_within_the_bounds_or_without_bounds_moves_nothing) {
  World w(limited(1, 1, 0, 10));
  count(w, 100, 50);
  set(w, {1, 5, DBL_MAX, 1, false}, true);
  CHECK_EQ(w.table().record->limiter.offset.get(), 0.0);
  set(w, {1, -DBL_MAX, DBL_MAX, 1, false}, true);
  CHECK_EQ(w.table().record->limiter.offset.get(), 0.0);
}

}  // namespace shmreplay::test
