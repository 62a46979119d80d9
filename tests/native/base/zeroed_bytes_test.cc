#include "base/zeroed_bytes.h"

#include <sys/resource.h>

#include "support/fixtures.h"

namespace shmreplay::test {

TEST(bytes_that_nobody_has_written_are_zeros_and_take_no_memory) {
  Child child([] {
    rusage before, after;
    CHECK_EQ(getrusage(RUSAGE_SELF, &before), 0);
    const ZeroedBytes bytes(size_t{1} << 30);
    CHECK_EQ(getrusage(RUSAGE_SELF, &after), 0);
    CHECK_EQ(bytes.size(), size_t{1} << 30);
    CHECK_EQ(int{bytes.data()[12345]}, 0);
    if (!kSanitized) CHECK(after.ru_maxrss - before.ru_maxrss < 1 << 14);  // KiB
  });
  child.join();
}

TEST(no_bytes_at_all_are_fine) { CHECK_EQ(ZeroedBytes(0).size(), 0u); }

TEST(bytes_that_cannot_be_had_are_a_bad_alloc) {
  if (kSanitized) return;  // a sanitizer takes terabytes of address space
  Child child([] {
    const rlimit limit{1u << 29, 1u << 29};
    CHECK_EQ(setrlimit(RLIMIT_AS, &limit), 0);
    CHECK_THROWS(std::bad_alloc, "", ZeroedBytes(size_t{1} << 30));
  });
  child.join();
}

}  // namespace shmreplay::test
