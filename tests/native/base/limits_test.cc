#include "base/limits.h"

#include <cerrno>
#include <cstring>
#include <sys/resource.h>
#include <unistd.h>

#include "support/fixtures.h"

namespace shmreplay::test {

TEST(a_limit_is_named_with_its_value_whose_it_is_and_what_to_do) {
  Child child([] {
    const std::string me = "process " + std::to_string(getpid());
    const rlimit limit{1000, 1000};
    for (const auto kind : {RLIMIT_FSIZE, RLIMIT_NOFILE}) CHECK_EQ(setrlimit(kind, &limit), 0);
    CHECK_EQ(limit_behind(EMFILE),
             me + " may have 1000 files open: raise ulimit -n, or LimitNOFILE= of its unit, or close files");
    CHECK_EQ(limit_behind(EFBIG),
             "a file of " + me + " may have 1000 bytes: raise ulimit -f, or LimitFSIZE= of its unit");
    CHECK(limit_behind(ENFILE).find("fs.file-max") != std::string::npos);
    CHECK_EQ(limit_behind(EIO), "");
    CHECK_EQ(limit_behind(0), "");
  });
  child.join();
}

TEST(without_a_limit_of_the_address_space_other_bounds_are_named) {
  if (kSanitized) return;  // a sanitizer takes terabytes of address space
  Child child([] {
    CHECK(!address_space_is_limited());
    CHECK(limit_behind(ENOMEM).find("vm.max_map_count") != std::string::npos);
    const rlimit limit{1u << 29, 1u << 29};
    CHECK_EQ(setrlimit(RLIMIT_AS, &limit), 0);
    CHECK(address_space_is_limited());
    CHECK(limit_behind(ENOMEM).find("may have 536870912 bytes: raise ulimit -v") != std::string::npos);
  });
  child.join();
}

TEST(a_refusal_keeps_the_number_of_the_error) {
  const std::system_error error = refused(EMFILE, "a file");
  CHECK_EQ(error.code().value(), EMFILE);
  CHECK(std::string(error.what()).starts_with("a file (process "));
  CHECK(std::string(error.what()).ends_with(strerror(EMFILE)));
  CHECK_EQ(std::string(refused(EIO, "a file").what()), std::string("a file: ") + strerror(EIO));
}

}  // namespace shmreplay::test
