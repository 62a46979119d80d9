#include "base/fault.h"

#include <csignal>
#include <cstring>

#include "support/fixtures.h"

namespace shmreplay::test {

TEST(the_armed_point_kills_and_the_ones_before_it_do_not) {
  for (int64_t k = 1; k <= 4; ++k) {
    Child child([k] {
      fault::arm(k);
      for (int i = 0; i < 3; ++i) SHMREPLAY_FAULT("test.point");
    });
    CHECK_EQ(child.killed(), k <= 3);
  }
}

TEST(a_disarmed_point_only_counts_and_tells_its_name) {
  fault::arm(0);
  SHMREPLAY_FAULT("test.one");
  SHMREPLAY_FAULT("test.two");
  CHECK_EQ(fault::passed(), 2);
  CHECK(strcmp(fault::last_name(), "test.two") == 0);
  fault::arm(0);
  CHECK_EQ(fault::passed(), 0);
}

TEST(points_are_counted_by_the_thread_that_armed_them) {
  fault::arm(1);
  run_threads({[] { SHMREPLAY_FAULT("test.elsewhere"); }});
  CHECK_EQ(fault::passed(), 0);
  fault::arm(0);
}

}  // namespace shmreplay::test
